//! Progress shown in a terminal while runs are made, and the clocks of the machine.

use std::io::{IsTerminal, Write};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use jiff::Timestamp;

use super::report::Coverage;
use crate::test_cluster::lock;

/// A real clock: people live by it. Nothing that a run does depends on it.
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

/// The time that processors have spent on this thread, so that a busy machine does not change how much is explored.
/// Where the system does not tell it is real time since the process began to ask.
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

    /// Writes the line. It goes past the test runner, which would keep it.
    pub(crate) fn show(&self) {
        if self.is_shown {
            let line = lock(&self.told).line();
            // A terminal that cannot be written to shows nothing.
            let _ = write!(std::io::stderr(), "\r\x1b[Kexploring: {line}");
        }
    }

    /// Takes the line away.
    pub(crate) fn clear(&self) {
        if self.is_shown {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    }
}
