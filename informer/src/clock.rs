//! `Clock`: the time of day for fields of objects.

use std::fmt;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, Time};
use k8s_openapi::jiff::Timestamp;
use tokio::time::Instant;

/// A source for the time of day: the system clock, or a clock that follows tokio's clock.
///
/// A `Clock` is only used for times in objects (Leases, Events, conditions); timers use tokio's clock. Tests can set a
/// clock that makes these times the same in each run:
///
/// ```
/// use std::time::Duration;
/// use informer::Clock;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// tokio::time::pause();
/// let clock = Clock::starting_at("2026-01-01T00:00:00Z".parse()?);
/// tokio::time::advance(Duration::from_secs(90)).await;
/// assert_eq!(clock.now().to_string(), "2026-01-01T00:01:30Z");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Default)]
pub struct Clock(Source);

#[derive(Clone, Copy, Default)]
enum Source {
    #[default]
    Machine,
    Runtime {
        epoch: Timestamp,
        started: Instant,
    },
}

impl Clock {
    /// Returns the system clock.
    pub fn system() -> Self {
        Self(Source::Machine)
    }

    /// Returns a clock that starts at `epoch` and follows tokio's clock, even while tokio's clock is paused.
    pub fn starting_at(epoch: Timestamp) -> Self {
        let started = Instant::now();
        Self(Source::Runtime { epoch, started })
    }

    /// Returns a clock that is ahead of this clock by `duration`, for example to simulate the clock skew of another
    /// machine. Has no effect on the system clock.
    #[must_use]
    pub fn ahead_by(self, duration: Duration) -> Self {
        match self.0 {
            Source::Machine => self,
            Source::Runtime { epoch, started } => {
                let epoch = epoch.saturating_add(duration).unwrap_or(Timestamp::MAX);
                Self(Source::Runtime { epoch, started })
            }
        }
    }

    /// Returns the time of day.
    pub fn now(&self) -> Timestamp {
        match self.0 {
            Source::Machine => machine_time(),
            Source::Runtime { epoch, started } => epoch.saturating_add(started.elapsed()).unwrap_or(Timestamp::MAX),
        }
    }

    /// Returns the current time in whole seconds, the precision of most time fields.
    pub fn time(&self) -> Time {
        let seconds = Timestamp::from_second(self.now().as_second());
        Time(seconds.unwrap_or(Timestamp::MAX))
    }

    /// Returns the current time in microseconds, the precision of Leases and Events.
    pub fn micro_time(&self) -> MicroTime {
        let micros = Timestamp::from_microsecond(self.now().as_microsecond());
        MicroTime(micros.unwrap_or(Timestamp::MAX))
    }
}

/// Reads the system clock. No other function of this crate reads it. The time is only written to objects.
#[expect(clippy::disallowed_methods, reason = "other machines read these times")]
fn machine_time() -> Timestamp {
    Timestamp::now()
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Source::Machine => f.write_str("Clock::system()"),
            Source::Runtime { .. } => write!(f, "Clock({})", self.now()),
        }
    }
}
