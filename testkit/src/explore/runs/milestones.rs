//! Compares the cluster with the reference each time the scenario has settled, so that a later step of the scenario
//! does not hide an error of an earlier step.

use std::panic::resume_unwind;
use std::time::Duration;

use fake_apiserver::Entry;
use tokio::time::{Instant, sleep};

use super::config::Mode;
use super::harness::Harness;
use super::hasty::Still;
use crate::explore::oracles::Oracle;
use crate::explore::outcomes::{EndState, LeftAfter, Milestone, Passed, headline};
use crate::mask::Mask;
use crate::test_cluster::TEST_CLIENT;

/// Time for which the state after a step must stay unchanged in a run without faults; otherwise the state is not
/// compared.
pub(crate) const STEADY: Duration = Duration::from_secs(15 * 60);

/// Panic payload that ends a scenario after a step with a wrong state, because the next step might hide the error.
#[derive(Debug)]
pub(crate) struct StepIsWrong;

impl Harness {
    /// Reads the current state.
    pub(crate) fn end_state(&self) -> EndState {
        let state = EndState::of(&self.gate.server, self.gate.base, &self.work);
        match self.cluster() {
            Some(cluster) => state.with_externals(cluster.externals.contents()),
            None => state,
        }
    }

    /// Returns the revision of the server and the number of changes to external systems. While both stay the same, the
    /// state is unchanged.
    pub(crate) fn revision(&self) -> (u64, u64) {
        let changes = self.cluster().map_or(0, |it| it.externals.changes());
        (self.gate.server.resource_version(), changes)
    }

    /// Records that the scenario has settled at this source location, and compares the state with the reference.
    pub(crate) async fn compare_step(&self, place: &str) {
        let nth = {
            let mut state = self.gate.state();
            if state.is_over {
                return;
            }
            state.settled += 1;
            state.waited += 1;
            state.settled_times.push(self.gate.started.elapsed());
            state.settled_at = self.gate.server.journal().total();
            state.settled - 1
        };
        self.inquire().await;
        let passed = match self.timing.is_real {
            true => self.passed().0,
            false => Passed::default(),
        };
        match self.mode {
            Mode::Keep => self.reached(Some(self.end_state()), passed),
            Mode::Wait => {
                let before = self.end_state();
                sleep(STEADY).await;
                let after = self.end_state();
                let is_steady = before.compare(&after, &Mask::of(&self.work.ignored)).is_empty();
                self.reached(is_steady.then_some(before), passed);
            }
            Mode::Compare => self.compare(nth, place).await,
        }
        self.next_wait();
    }

    /// Compares the end of a run with the state of the reference at the last settled step, if the scenario ended early.
    /// Returns `None` if the reference lacks this state, or if the test has written since that step.
    pub(crate) fn compare_where_it_ended(&self, end: &EndState) -> Option<Vec<String>> {
        let (settled, settled_at) = {
            let state = self.gate.state();
            (state.settled, state.settled_at)
        };
        let Milestone { state, mask, .. } = self.milestones.get(settled.checked_sub(1)?)?;
        let entries = self.gate.server.journal().since(settled_at);
        let is_of_test = |it: &Entry| matches!(it, Entry::Request(it) if it.is_write() && it.user_agent == TEST_CLIENT);
        if entries.iter().any(is_of_test) {
            return None;
        }
        Some(state.as_ref()?.judge(end, mask).lines)
    }

    /// Returns the time for which the scenario has paused after its steps.
    pub(crate) fn paused(&self) -> Duration {
        match self.mode {
            Mode::Wait => STEADY * self.gate.state().settled as u32,
            Mode::Keep | Mode::Compare => Duration::ZERO,
        }
    }

    fn reached(&self, state: Option<EndState>, passed: Passed) {
        let milestone = Milestone {
            state,
            mask: Mask::default(),
            passed,
        };
        self.gate.state().milestones.push(milestone);
    }

    /// Compares the state with the state of the reference at the same step.
    async fn compare(&self, nth: usize, place: &str) {
        let Some(Milestone {
            state: Some(expected),
            mask,
            ..
        }) = self.milestones.get(nth)
        else {
            return;
        };
        // Before its first fault, the run equals the reference.
        let (has_begun, waited) = {
            let state = self.gate.state();
            (state.windows_end.is_some(), state.waited)
        };
        // In a run that evaluates an assertion again, this wait also includes the work after the faults, such as
        // retries.
        let is_patient = self.gate.plan.overlaps();
        if !has_begun || self.gate.is_early(waited) || !self.compares {
            return;
        }
        let began = Instant::now();
        let (mut looked_at, mut differences, mut still) = (None, Vec::new(), Still::default());
        loop {
            // Skip the expensive comparison while nothing changes.
            let revision = self.revision();
            if looked_at.replace(revision) != Some(revision) {
                differences = self.gate.compared(expected.judge(&self.end_state(), mask));
            }
            // The time limit is counted from the end of the last fault.
            let faults_end = self.gate.state().windows_end.map_or(began, |end| end.max(began));
            let waited = Instant::now().saturating_duration_since(faults_end);
            if differences.is_empty() {
                if waited > self.within {
                    self.gate.state().late_step = Some(waited);
                }
                return;
            }
            let is_hopeless = self.is_hopeless(&mut still);
            if is_patient && (waited >= self.within || is_hopeless) {
                // The test took earlier steps during the faults, so the state may differ.
                return;
            }
            if waited >= self.within + self.slow() || is_hopeless {
                let end = self.end_state();
                let headline = headline(
                    (expected, &self.gate.state().trace),
                    &end,
                    self.within,
                    LeftAfter::Step(place),
                );
                let what = format!("{headline}\n  {}", differences.join("\n  "));
                self.gate.violation(Oracle::EndState.name(), what);
                self.gate.state().wrong_step = Some(nth);
                resume_unwind(Box::new(StepIsWrong));
            }
            let [first, last] = self.timing.step_look_again;
            let pause = (began.elapsed() / 2).clamp(first, last);
            self.gate.waits(pause);
            sleep(pause).await;
        }
    }
}
