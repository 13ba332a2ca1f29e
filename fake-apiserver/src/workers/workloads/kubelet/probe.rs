//! Probes of containers: computes when the probe failures in a script change the state of a container.
//!
//! Probes without failures in the script succeed immediately and need no timer. The effects of failures are computed
//! from the fields of the probe, so a Pod is only synced when a probe changes the Pod's state.

use std::collections::BTreeMap;
use std::ops::{Bound, RangeBounds};
use std::time::Duration;

use jiff::Timestamp;

/// A type of probe, which a [`PodScript`](crate::PodScript::probe_fails) can make fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub enum ProbeKind {
    /// `startupProbe`: the other probes begin after its success, and its failure restarts the container.
    Startup,
    /// `readinessProbe`: the container is not ready while it fails.
    Readiness,
    /// `livenessProbe`: its failure restarts the container.
    Liveness,
}

/// A period in which a probe fails, relative to the start of the container; without an end it lasts forever.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Outage {
    pub(super) probe: ProbeKind,
    pub(super) from: Duration,
    until: Option<Duration>,
}

impl Outage {
    pub(super) fn new(probe: ProbeKind, when: &impl RangeBounds<Duration>) -> Self {
        let from = match when.start_bound() {
            Bound::Included(at) | Bound::Excluded(at) => *at,
            Bound::Unbounded => Duration::ZERO,
        };
        let until = match when.end_bound() {
            Bound::Included(at) | Bound::Excluded(at) => Some(*at),
            Bound::Unbounded => None,
        };
        Self { probe, from, until }
    }
}

/// The probes that fail in the script of a Pod, with the time at which the failures were added to the script of a
/// running Pod.
pub(super) type Known = BTreeMap<ProbeKind, Option<Timestamp>>;

/// Effects of the probes of a container. Times are relative to its start.
pub(super) struct Probes {
    /// Time at which the container is started; `None` if its startup probe fails until the container is killed.
    pub(super) started: Option<Duration>,
    /// Time at which a failed probe ends the container.
    pub(super) killed: Option<(Duration, ProbeKind)>,
    /// Changes of readiness; before the first one, the container is not ready.
    pub(super) ready: Vec<(Duration, bool)>,
}

impl ProbeKind {
    pub(super) fn field(self) -> &'static str {
        match self {
            Self::Startup => "startupProbe",
            Self::Readiness => "readinessProbe",
            Self::Liveness => "livenessProbe",
        }
    }

    /// Returns `liveness`, `readiness` or `startup`.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Startup => "startup",
            Self::Readiness => "readiness",
            Self::Liveness => "liveness",
        }
    }

    pub(super) fn title(self) -> &'static str {
        match self {
            Self::Startup => "Startup",
            Self::Readiness => "Readiness",
            Self::Liveness => "Liveness",
        }
    }
}

/// Divides the time after the start of the container into periods in which probes have the same result. Returns the end
/// of each period (`None` for the last one), and `true` if probes succeed in it. Failures before `known` are ignored.
pub(super) fn stretches(outages: &[&Outage], known: Duration) -> Vec<(Option<Duration>, bool)> {
    let mut found = Vec::new();
    let mut reached = Duration::ZERO;
    for outage in outages {
        let from = outage.from.max(known).max(reached);
        if outage.until.is_some_and(|it| it <= from) {
            continue;
        }
        found.push((Some(from), true));
        found.push((outage.until, false));
        match outage.until {
            Some(until) => reached = until,
            None => return found,
        }
    }
    found.push((None, true));
    found
}

/// The times at which a probe runs, relative to the start of the container.
pub(super) struct Ticks {
    pub(super) first: Duration,
    pub(super) period: Duration,
}

impl Ticks {
    /// Returns the number of ticks before a time.
    fn before(&self, time: Duration) -> u64 {
        let ticks = time
            .saturating_sub(self.first)
            .as_nanos()
            .div_ceil(self.period.as_nanos().max(1));
        u64::try_from(ticks).unwrap_or(u64::MAX)
    }

    /// Returns the time of a tick.
    fn at(&self, tick: u64) -> Duration {
        let seconds = self.period.as_secs().saturating_mul(tick);
        self.first.saturating_add(Duration::from_secs(seconds))
    }

    /// Returns the changes of the probe's state. The state changes when the number of consecutive equal results reaches
    /// the threshold for failures or successes.
    pub(super) fn changes(
        &self,
        stretches: &[(Option<Duration>, bool)],
        [failures, successes]: [u64; 2],
        mut state: Option<bool>,
    ) -> Vec<(Duration, bool)> {
        let mut changes = Vec::new();
        let (mut begin, mut last, mut run) = (0, None, 0_u64);
        for (until, result) in stretches {
            let end = until.map_or(u64::MAX, |it| self.before(it));
            let count = end.saturating_sub(begin);
            if count == 0 {
                continue;
            }
            let before = if last == Some(*result) { run } else { 0 };
            let threshold = if *result { successes } else { failures };
            let missing = threshold.saturating_sub(before).max(1);
            if state != Some(*result) && count >= missing {
                changes.push((self.at(begin.saturating_add(missing - 1)), *result));
                state = Some(*result);
            }
            (begin, last, run) = (end, Some(*result), before.saturating_add(count));
        }
        changes
    }
}
