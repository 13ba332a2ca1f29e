//! Early end of waits in real time. A wait ends before the cluster has been quiet for the usual time if the run has
//! reached the state that the reference has at the end of the same wait, with at least as many messages.

use std::time::Duration;

use tokio::time::Instant;

use super::config::Mode;
use super::harness::Harness;
use crate::explore::outcomes::{Milestone, Passed};
use crate::explore::plans::{Names, OnRun};
use crate::explore::trace::{BOOKMARK, INITIAL_END, LEASES, Outcome, Step, What};
use crate::hooks::Hooks;

/// Time without a message after which a wait may end early.
pub(super) const SOON: Duration = Duration::from_millis(200);

/// Duration of a wait after which the test continues if a fault has to last until its next step. These faults take at
/// least four times as long.
pub(super) const OVERLAPPED: Duration = Duration::from_secs(1);

/// Interval at which a wait checks whether it may end early.
pub(super) const LOOK: Duration = Duration::from_millis(50);

/// State of a cluster that has not changed since the previous wait of the scenario.
#[derive(Clone, Copy, Debug)]
pub(super) enum Quiet {
    /// No fault has affected the run, so it equals the reference, which has settled.
    Over,
    /// The cluster has not changed at least since this time.
    Since(Instant),
}

impl Harness {
    /// Counts the messages since the previous wait. Also returns the time of the last message that counts as activity.
    pub(super) fn passed(&self) -> (Passed, Duration) {
        let (from, revision) = self.present_wait().from;
        let done = self.work.since(&self.gate.server, revision);
        let mut passed = Passed {
            changes: done.count,
            ..Passed::default()
        };
        let mut last = Duration::ZERO;
        for step in self.gate.state().trace.iter().skip(from) {
            let counts = match &step.what {
                What::Event {
                    kind,
                    resource,
                    revision,
                    ..
                } => {
                    let counts = *kind != BOOKMARK && *kind != INITIAL_END && !is_aside(resource);
                    let counts = counts && !done.beside.contains(revision);
                    passed.events += u64::from(counts);
                    counts
                }
                What::Request(request) => {
                    let is_aside = is_aside(request.base());
                    let is_watch = step.is_request_of(fake_apiserver::Verb::Watch);
                    passed.watches += u64::from(is_watch && !is_aside);
                    let is_lock = request.wrote.is_some_and(|it| done.beside.contains(&it));
                    !is_aside && (is_watch || request.is_write() && !is_lock)
                }
                What::Call { .. } | What::Note(_) => true,
            };
            if counts {
                last = last.max(step.told());
            }
        }
        (passed, last)
    }

    /// Begins the next wait.
    pub(super) fn next_wait(&self) {
        let from = (self.gate.state().trace.len(), self.gate.server.resource_version());
        let mut wait = self.present_wait();
        wait.from = from;
        wait.compared = None;
        wait.quiet_since = (!std::mem::take(&mut wait.is_early)).then(Instant::now);
        wait.quiet_at = wait.quiet_since.or(wait.quiet_at);
    }

    /// Returns the state of a quiet cluster; `None` if something has changed since the previous wait, or if that wait
    /// ended early in a run that a fault has affected. Always `None` in references and in virtual time.
    pub(super) fn quiet_since(&self) -> Option<Quiet> {
        let wait = self.present_wait();
        let is_unchanged = wait.from.1 == self.gate.server.resource_version();
        if !self.timing.is_real || self.mode != Mode::Compare || !is_unchanged {
            return None;
        }
        match self.is_unaffected() {
            true => Some(Quiet::Over),
            false => {
                let cluster = self.cluster()?;
                let began = wait.quiet_since?.checked_sub(cluster.bounds.quiet);
                began.map(Quiet::Since)
            }
        }
    }

    /// Returns `true` if the run has reached the state that the reference has at the end of this wait, and no fault or
    /// request is in progress.
    pub(super) fn is_where_the_reference_was(&self) -> bool {
        let (nth, is_over) = {
            let state = self.gate.state();
            (state.settled, state.is_over)
        };
        let milestone = self.milestones.get(nth);
        let Some(Milestone {
            state: Some(expected),
            mask,
            passed: least,
        }) = milestone.filter(|_| !is_over)
        else {
            return false;
        };
        if !self.are_faults_done() || !self.are_controllers_ready() {
            return false;
        }
        let (passed, last) = self.passed();
        if !passed.is_at_least(least) || self.gate.started.elapsed() < last + SOON || self.is_request_open() {
            return false;
        }
        let revision = self.revision();
        let known = self.present_wait().compared.filter(|(at, _)| *at == revision);
        let is_same = match known {
            Some((_, is_same)) => is_same,
            None => expected.judge(&self.end_state(), mask).lines.is_empty(),
        };
        let mut wait = self.present_wait();
        wait.compared = Some((revision, is_same));
        wait.is_early = is_same;
        is_same
    }

    /// Returns `true` if no fault has begun, or if the cluster has been quiet since the end of the last fault. Always
    /// `false` if a fault has begun and the test continues during faults.
    fn are_faults_done(&self) -> bool {
        let end = self.gate.state().windows_end;
        let quiet_at = self.present_wait().quiet_at;
        end.is_none_or(|end| !self.gate.plan.overlaps() && quiet_at.is_some_and(|it| it > end))
    }

    fn is_request_open(&self) -> bool {
        let is_open = |step: &Step| matches!(&step.what, What::Request(it) if it.outcome == Outcome::Open);
        self.gate
            .state()
            .trace
            .iter()
            .skip(self.present_wait().from.0)
            .any(is_open)
    }

    /// Returns `true` if the run still equals the reference, because none of the messages that its faults affect has
    /// been sent.
    fn is_unaffected(&self) -> bool {
        let plan = &self.gate.plan;
        let strike_messages = plan.faults.iter().all(|it| {
            let row = it.action.fault.row();
            row.names == Names::Message || it.action.effects().run == Some(OnRun::RestartAtEnd)
        });
        strike_messages && self.gate.state().windows_end.is_none()
    }
}

/// Returns `true` for Leases and Events, which do not count as activity.
fn is_aside(resource: &str) -> bool {
    matches!(resource, LEASES | "events" | "events.events.k8s.io")
}
