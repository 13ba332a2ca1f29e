//! `Bounds`: time limits and message limits of a test.

use std::time::Duration;

/// Limits on waiting and on requests. Times are virtual, except on a real API server and for controllers that are
/// processes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// Quiet time after which `settle` returns. Slightly longer than five seconds, so that the usual retry after five
    /// seconds still counts as work.
    pub(crate) quiet: Duration,
    /// Time after which a failed request that is repeated without any change no longer counts as activity. By default,
    /// it always counts.
    pub(crate) repeats: Option<Duration>,
    /// Time after which `settle` fails.
    pub(crate) settle: Duration,
    /// Time after which `eventually` fails.
    pub(crate) eventually: Duration,
    /// Maximum number of requests and events during one `settle`, and at one instant.
    pub(crate) requests: u64,
    /// Number of requests and events at one instant that count as a hot loop if they only concern a few objects.
    pub(crate) at_one_instant: u64,
    /// Set if time is real.
    pub(crate) is_real: bool,
}

impl Bounds {
    /// Returns the text that follows durations in messages.
    pub(crate) const fn clock(self) -> &'static str {
        if self.is_real { "" } else { " of virtual time" }
    }
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            quiet: Duration::from_millis(5_100),
            repeats: None,
            settle: Duration::from_secs(600),
            eventually: Duration::from_secs(60),
            requests: 10_000,
            at_one_instant: 2_000,
            is_real: false,
        }
    }
}
