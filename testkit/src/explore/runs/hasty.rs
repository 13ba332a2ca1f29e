//! Early verdicts. Unless an earlier verdict was premature, a `Role::Tried` run fails in virtual time if the state is
//! still wrong after `within`, and in real time if a wrong state has not changed for eight seconds. The `Role::Usual`
//! runs that confirm the failure wait longer.

use std::time::Duration;

use tokio::time::Instant;

use super::harness::Harness;
use crate::hooks::Hooks;

/// Time without changes after which a wrong state counts as final.
const HOPELESS: Duration = Duration::from_secs(8);

/// The last change that was observed during a wait: its revision, and the time of the observation.
#[derive(Debug, Default)]
pub(super) struct Still(Option<(u64, Instant)>);

impl Harness {
    /// Returns the time after `within` for which a state may still become correct in this run. Such a state counts as
    /// slow, not as wrong.
    pub(super) const fn slow(&self) -> Duration {
        match self.is_hasty && !self.timing.is_real {
            true => Duration::ZERO,
            false => self.timing.slow,
        }
    }

    /// Returns `true` if a run that tries a plan in real time does not have to wait any longer for the correct state.
    pub(super) fn is_hopeless(&self, still: &mut Still) -> bool {
        if !self.is_hasty || !self.timing.is_real {
            return false;
        }
        let (now, revision) = (Instant::now(), self.gate.server.resource_version());
        let faults_end = self.gate.state().windows_end;
        let (since, at) = *still.0.get_or_insert((revision, now));
        if faults_end.is_some_and(|it| it > at) || self.work.since(&self.gate.server, since).count > 0 {
            still.0 = Some((revision, now));
            return false;
        }
        let is_hopeless = now.saturating_duration_since(at) >= HOPELESS && self.are_controllers_ready();
        self.gate.state().is_hasty |= is_hopeless;
        is_hopeless
    }
}
