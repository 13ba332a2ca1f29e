//! `Milestone`: the state of the cluster after the scenario has settled.

use jiff::Timestamp;

use super::end_state::EndState;
use crate::mask::Mask;

/// The state of the cluster after a step of the scenario. `state` is `None` if the state changes without further input.
#[derive(Clone, Debug)]
pub(crate) struct Milestone {
    pub(crate) state: Option<EndState>,
    /// Fields that differ between references.
    pub(crate) mask: Mask,
    /// Message counts since the previous milestone; the minimum over several references.
    pub(crate) passed: Passed,
}

/// Message counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Passed {
    /// Changes of objects that count as work.
    pub(crate) changes: u64,
    /// Events that were delivered.
    pub(crate) events: u64,
    /// Watches that were opened.
    pub(crate) watches: u64,
}

impl Passed {
    pub(crate) fn is_at_least(&self, least: &Self) -> bool {
        self.changes >= least.changes && self.events >= least.events && self.watches >= least.watches
    }

    fn least(self, other: Self) -> Self {
        Self {
            changes: self.changes.min(other.changes),
            events: self.events.min(other.events),
            watches: self.watches.min(other.watches),
        }
    }
}

impl Milestone {
    /// Combines the milestones of the same step in two references. Fields that differ are masked.
    pub(crate) fn common(one: Self, other: Option<Self>, ignored: &[String], began: Timestamp) -> Self {
        let passed = other.as_ref().map_or(one.passed, |it| it.passed.least(one.passed));
        let other = other.and_then(|it| it.state);
        match (one.state, other) {
            (Some(state), Some(other)) => {
                let mut mask = one.mask;
                mask.add(state.mask(&other, ignored, began));
                Self {
                    state: Some(state),
                    mask,
                    passed,
                }
            }
            (_, None) | (None, _) => Self {
                state: None,
                mask: one.mask,
                passed,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[rstest::rstest]
    #[case::equal_counts([3, 2, 1], true)]
    #[case::more_changes([4, 2, 1], true)]
    #[case::one_change_fewer([2, 2, 1], false)]
    #[case::one_event_fewer([3, 1, 1], false)]
    #[case::one_watch_fewer([3, 2, 0], false)]
    fn milestone_is_reached_if_all_counts_are_reached(#[case] counts: [u64; 3], #[case] is_reached: bool) {
        let [changes, events, watches] = counts;
        let least = Passed {
            changes: 3,
            events: 2,
            watches: 1,
        };
        let passed = Passed {
            changes,
            events,
            watches,
        };
        assert_eq!(passed.is_at_least(&least), is_reached);
    }
}
