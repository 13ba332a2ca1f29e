//! Progress shown in a terminal while runs are made, and the clocks of the machine.

use std::io::{IsTerminal, Write};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use jiff::Timestamp;

use super::report::Coverage;
use crate::test_cluster::lock;

/// A real clock, for people only: nothing that a run does depends on it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WallClock(std::time::Instant);

impl WallClock {
    #[expect(clippy::disallowed_methods, reason = "people wait in real time")]
    pub(crate) fn start() -> Self {
        Self(std::time::Instant::now())
    }

    pub(crate) fn elapsed(self) -> Duration {
        self.0.elapsed()
    }
}

/// Returns the processor time of this thread, so that a busy machine does not change how much is explored. On systems
/// without such a clock it is the real time since the first call.
#[cfg(unix)]
pub(crate) fn thread_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::try_from(time).unwrap_or_default()
}

/// See above.
#[cfg(not(unix))]
pub(crate) fn thread_time() -> Duration {
    static STARTED: std::sync::OnceLock<WallClock> = std::sync::OnceLock::new();
    STARTED.get_or_init(WallClock::start).elapsed()
}

/// Returns the processor time of this process.
#[cfg(unix)]
fn process_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::try_from(time).unwrap_or_default()
}

/// See above.
#[cfg(not(unix))]
fn process_time() -> Duration {
    thread_time()
}

/// Least processor time that counts as activity.
const AWAKE: Duration = Duration::from_millis(100);

/// Real time after which a run is given up if the process is idle: its thread blocks.
const BLOCKED: Duration = Duration::from_secs(30);

/// Real time after which a run is given up in any case: a loop does not end. It is long because a busy machine must not
/// change a verdict.
const ENDLESS: Duration = Duration::from_secs(300);

/// Activity of the process.
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

    /// Measures again; returns the real time for which the process has been idle.
    pub(crate) fn idle(&mut self) -> Duration {
        if process_time().saturating_sub(self.spent) > AWAKE {
            *self = Self::start();
        }
        self.since.elapsed()
    }
}

/// Returns `true` if a run that has taken `running` must be given up, in a process that has been idle for `idle`.
pub(crate) fn is_stuck(running: Duration, idle: Duration) -> bool {
    running > ENDLESS || running.min(idle) > BLOCKED
}

/// Returns the machine's time of day.
#[expect(clippy::disallowed_methods, reason = "what controllers wrongly read is told by it")]
pub(crate) fn time_of_day() -> Timestamp {
    Timestamp::try_from(std::time::SystemTime::now()).unwrap_or(Timestamp::UNIX_EPOCH)
}

/// The progress line.
#[derive(Clone, Debug)]
pub(crate) struct Progress {
    is_shown: bool,
    told: Arc<Mutex<Coverage>>,
}

impl Progress {
    pub(crate) fn start() -> Self {
        Self {
            is_shown: std::io::stderr().is_terminal(),
            told: Arc::default(),
        }
    }

    pub(crate) fn tell(&self, coverage: &Coverage) {
        if self.is_shown {
            lock(&self.told).clone_from(coverage);
        }
    }

    /// Writes the line to the terminal itself, since the test runner captures standard error.
    pub(crate) fn show(&self) {
        if self.is_shown {
            let line = lock(&self.told).line();
            // A terminal that cannot be written to shows nothing.
            let _ = write!(std::io::stderr(), "\r\x1b[Kexploring: {line}");
        }
    }

    /// Erases the line.
    pub(crate) fn clear(&self) {
        if self.is_shown {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rstest::rstest;

    use super::is_stuck;

    #[rstest]
    #[case::slow_on_a_busy_machine(200, 0, false)]
    #[case::young(10, 60, false)]
    #[case::blocked(31, 31, true)]
    #[case::endless(301, 0, true)]
    fn runs_are_given_up_when_blocked_or_endless(#[case] running: u64, #[case] idle: u64, #[case] expected: bool) {
        assert_eq!(
            is_stuck(Duration::from_secs(running), Duration::from_secs(idle)),
            expected
        );
    }
}
