//! `Timing`: whether runs use virtual or real time, and the time limits that depend on it.

use std::time::Duration;

/// Virtual time after which a scenario is aborted.
pub(crate) const SCENARIO_BOUND: Duration = Duration::from_secs(4 * 3600);

/// Time after `within` up to which an end state that becomes correct counts as slow, not as wrong.
pub(crate) const SLOW: Duration = Duration::from_secs(3600);

/// In real time, faults that are longer than this duration are shortened, but not below it. Shorter faults are
/// unchanged, except for crashes; see [`SHORT_DOWN`].
const SHORT_WINDOW: Duration = Duration::from_secs(1);

/// Downtime of a crashed process in real time, for crashes with a downtime of at most a second.
const SHORT_DOWN: Duration = Duration::from_millis(100);

/// Time limits and intervals for the runs of an exploration.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timing {
    /// Set if runs take real time, because their controllers are processes. Otherwise time is virtual.
    pub(crate) is_real: bool,
    /// Time after which the scenario is aborted.
    pub(crate) scenario: Duration,
    /// Time after `within` up to which an end state that becomes correct counts as slow; after that, it counts as
    /// wrong.
    pub(crate) slow: Duration,
    /// Intervals between comparisons while the end state is wrong: until `within`, and after that.
    pub(crate) look_again: [Duration; 2],
    /// Minimum and maximum interval between comparisons while the state after a step is wrong.
    pub(crate) step_look_again: [Duration; 2],
    /// Delay of each request of a worker, as in a busy kube-controller-manager. Without a delay, a controller with an
    /// outdated view and a worker that reverts its writes would loop forever at one instant of virtual time.
    pub(crate) worker_takes: Duration,
    /// Divisor for the duration of faults that are longer than a second.
    pub(crate) shortens: u32,
    /// Set if a failure counts even if one of up to five runs passes. Otherwise all runs must fail.
    pub(crate) allows_miss: bool,
}

impl Timing {
    /// Timing of runs in virtual time.
    pub(crate) const VIRTUAL: Self = Self {
        is_real: false,
        scenario: SCENARIO_BOUND,
        slow: SLOW,
        look_again: [Duration::from_secs(5), Duration::from_secs(60)],
        step_look_again: [Duration::from_secs(5), Duration::from_secs(60)],
        worker_takes: Duration::from_millis(100),
        shortens: 1,
        allows_miss: false,
    };

    /// Returns the time for which a crashed controller is down. It is shorter in real time, because a process takes a
    /// while to start.
    pub(crate) fn down(self, down: Duration) -> Duration {
        match self.is_real && down <= SHORT_WINDOW {
            true => SHORT_DOWN,
            false => self.window(down),
        }
    }

    /// Returns the duration of a fault. Long faults are shortened in real time.
    pub(crate) fn window(self, window: Duration) -> Duration {
        match window > SHORT_WINDOW {
            true => (window / self.shortens).max(SHORT_WINDOW),
            false => window,
        }
    }
}
