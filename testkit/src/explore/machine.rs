//! The machine's real clocks. The results of runs in virtual time do not depend on them.

use std::time::Duration;

use jiff::Timestamp;

use crate::virtual_clock::of_the_machine;

/// Start of a measurement of real time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WallClock(std::time::Instant);

impl WallClock {
    #[expect(clippy::disallowed_methods, reason = "people wait in real time, not in virtual time")]
    pub(crate) fn start() -> Self {
        Self(std::time::Instant::now())
    }

    pub(crate) fn elapsed(self) -> Duration {
        self.0.elapsed()
    }
}

pub(crate) use processor::{process_time, thread_time};

#[cfg(unix)]
mod processor {
    use std::time::Duration;

    use rustix::time::{ClockId, clock_gettime};

    /// Returns the processor time of this thread. Limits use it so that other load on the machine does not affect the
    /// extent of the exploration.
    pub(crate) fn thread_time() -> Duration {
        Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap_or_default()
    }

    /// Returns the processor time of this process.
    pub(crate) fn process_time() -> Duration {
        Duration::try_from(clock_gettime(ClockId::ProcessCPUTime)).unwrap_or_default()
    }
}

#[cfg(windows)]
mod processor {
    #![expect(unsafe_code, reason = "the system writes the results through pointers")]

    use std::ffi::c_void;
    use std::time::Duration;

    use windows_sys::Win32::Foundation::FILETIME;
    use windows_sys::Win32::System::Threading::{GetCurrentProcess, GetCurrentThread, GetProcessTimes, GetThreadTimes};

    type Times =
        unsafe extern "system" fn(*mut c_void, *mut FILETIME, *mut FILETIME, *mut FILETIME, *mut FILETIME) -> i32;

    /// Returns the processor time of this thread. Limits use it so that other load on the machine does not affect the
    /// extent of the exploration. Windows counts in steps of 16 ms.
    pub(crate) fn thread_time() -> Duration {
        // SAFETY: the pseudo handle of the current thread needs no release.
        spent(GetThreadTimes, unsafe { GetCurrentThread() })
    }

    /// Returns the processor time of this process.
    pub(crate) fn process_time() -> Duration {
        // SAFETY: the pseudo handle of the current process needs no release.
        spent(GetProcessTimes, unsafe { GetCurrentProcess() })
    }

    /// Returns the sum of kernel time and user time.
    fn spent(times: Times, handle: *mut c_void) -> Duration {
        let [mut created, mut ended, mut kernel, mut user] = [FILETIME::default(); 4];
        // SAFETY: `handle` is a pseudo handle of this thread or process, and the pointers are valid during the call.
        let is_done = unsafe { times(handle, &mut created, &mut ended, &mut kernel, &mut user) } != 0;
        let nanos = |it: FILETIME| ((u64::from(it.dwHighDateTime) << 32) | u64::from(it.dwLowDateTime)) * 100;
        match is_done {
            true => Duration::from_nanos(nanos(kernel) + nanos(user)),
            false => Duration::ZERO,
        }
    }
}

/// Minimum processor time that counts as activity.
const AWAKE: Duration = Duration::from_millis(100);

/// Real time after which a run is aborted if the process is idle, because a thread is blocked.
const BLOCKED: Duration = Duration::from_secs(30);

/// Real time after which a run is aborted in any case, because a loop does not end. The limit is high, so that no run
/// is aborted because the machine is busy.
const ENDLESS: Duration = Duration::from_secs(300);

/// Measures for how long the process has been idle.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Activity {
    since: WallClock,
    spent: Duration,
}

impl Activity {
    pub(crate) fn start() -> Self {
        Self {
            since: WallClock::start(),
            spent: process_time(),
        }
    }

    /// Measures the processor time again, and returns the real time for which the process has been idle.
    pub(crate) fn idle(&mut self) -> Duration {
        if process_time().saturating_sub(self.spent) > AWAKE {
            *self = Self::start();
        }
        self.since.elapsed()
    }
}

/// Returns `true` if a run that has taken the real time `running` must be aborted. The process has been idle for the
/// time `idle`.
pub(crate) fn is_stuck(running: Duration, idle: Duration) -> bool {
    running > ENDLESS || running.min(idle) > BLOCKED
}

/// Returns the machine's current time of day.
#[expect(
    clippy::disallowed_methods,
    reason = "notes about other clocks compare times with this clock"
)]
pub(crate) fn time_of_day() -> Timestamp {
    let now = of_the_machine(std::time::SystemTime::now);
    Timestamp::try_from(now).unwrap_or(Timestamp::UNIX_EPOCH)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rstest::rstest;

    use super::is_stuck;

    #[rstest]
    #[case::slow_on_a_busy_machine(200, 0, false)]
    #[case::recently_started(10, 60, false)]
    #[case::blocked(31, 31, true)]
    #[case::endless(301, 0, true)]
    fn only_blocked_and_endless_runs_are_aborted(#[case] running: u64, #[case] idle: u64, #[case] expected: bool) {
        assert_eq!(
            is_stuck(Duration::from_secs(running), Duration::from_secs(idle)),
            expected
        );
    }
}
