//! `Milestone`: the state of the cluster each time the scenario has settled, compared with the reference, so that a
//! later step of the scenario does not hide an error of an earlier one.

use std::panic::{Location, resume_unwind};
use std::time::Duration;

use jiff::Timestamp;
use tokio::time::{Instant, sleep};

use super::Oracle;
use super::end_state::{EndState, Mask};
use super::gate::Gate;
use super::plan::Action;
use super::run::SLOW;

/// Time for which the state of a step must stay unchanged in a run without faults to be compared with others.
pub(super) const STEADY: Duration = Duration::from_secs(15 * 60);

/// First and last interval at which the state is compared while it is not yet right.
const LOOK_AGAIN: [Duration; 2] = [Duration::from_secs(5), Duration::from_secs(60)];

/// Panic payload that ends a scenario when a step of it is wrong: the next step might hide it.
#[derive(Debug)]
pub(crate) struct StepIsWrong;

/// Part of `settle` in comparing steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Keep what is there.
    Keep,
    /// Wait whether it changes by itself, and keep what is there if not.
    Wait,
    /// Compare it with the reference.
    Compare,
}

/// The state after a step; `None` if it changes by itself.
#[derive(Clone, Debug)]
pub(crate) struct Milestone {
    pub(crate) state: Option<EndState>,
    /// Differences between references.
    pub(crate) mask: Mask,
}

impl Milestone {
    /// Returns the part that two references share; the second of them has waited at each step.
    pub(crate) fn common(one: Self, other: Option<Self>, ignored: &[String], began: Timestamp) -> Self {
        let other = other.and_then(|it| it.state);
        match (one.state, other) {
            (Some(state), Some(other)) => {
                let mut mask = one.mask;
                mask.add(state.mask(&other, ignored, began));
                Self {
                    state: Some(state),
                    mask,
                }
            }
            (_, None) | (None, _) => Self {
                state: None,
                mask: one.mask,
            },
        }
    }
}

impl Gate {
    /// Reads the current state.
    pub(crate) fn end_state(&self) -> EndState {
        EndState::of(&self.server, self.base, &self.work)
    }

    /// The scenario has settled at a place.
    pub(crate) async fn settled(&self, place: &Location<'_>) {
        let nth = {
            let mut state = self.state();
            if state.is_over {
                return;
            }
            state.settled += 1;
            state.settled - 1
        };
        match self.mode {
            Mode::Keep => self.reached(Some(self.end_state())),
            Mode::Wait => {
                let before = self.end_state();
                sleep(STEADY).await;
                let after = self.end_state();
                let is_steady = before.compare(&after, &Mask::of(&self.work.ignored)).is_empty();
                self.reached(is_steady.then_some(before));
            }
            Mode::Compare => self.compare(nth, place).await,
        }
    }

    fn reached(&self, state: Option<EndState>) {
        let mask = Mask::default();
        self.state().milestones.push(Milestone { state, mask });
    }

    /// Compares the state with that of the reference at the same step.
    async fn compare(&self, nth: usize, place: &Location<'_>) {
        let Some(Milestone {
            state: Some(expected),
            mask,
        }) = self.milestones.get(nth)
        else {
            return;
        };
        // Before anything goes wrong the run is the reference's.
        let has_begun = self.state().windows_end.is_some();
        let is_early = self.plan.has(|it| it == Action::Early);
        if !has_begun || is_early || self.skipped.contains(&Oracle::EndState) {
            return;
        }
        let began = Instant::now();
        let (mut looked_at, mut differences) = (None, Vec::new());
        loop {
            // Comparing costs more than all else while nothing happens.
            let revision = self.server.resource_version();
            if looked_at.replace(revision) != Some(revision) {
                differences = expected.compare(&self.end_state(), mask);
            }
            // Time counts from the end of the last fault.
            let faults_end = self.state().windows_end.map_or(began, |end| end.max(began));
            let waited = Instant::now().saturating_duration_since(faults_end);
            if differences.is_empty() {
                if waited > self.within {
                    self.state().late_step = Some(waited);
                }
                return;
            }
            if waited >= self.within + SLOW {
                let what = format!(
                    "still differs from the reference after {:?}: after the step at {}:{}\n  {}",
                    self.within,
                    place.file(),
                    place.line(),
                    differences.join("\n  ")
                );
                self.violation("end state", what);
                resume_unwind(Box::new(StepIsWrong));
            }
            let [first, last] = LOOK_AGAIN;
            let pause = (began.elapsed() / 2).clamp(first, last);
            self.waits(pause);
            sleep(pause).await;
        }
    }
}
