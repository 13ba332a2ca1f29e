//! `History`: an autoscaler's recent recommendations and changes, which limit the rate of further changes. They are
//! lost on a restart, as in kube-controller-manager.

use jiff::Timestamp;

use crate::entropy;

/// Time for which recommendations and changes are kept, in seconds: the longest stabilization window.
const KEPT_SECONDS: i64 = 3_600;

/// Recent recommendations and changes of an autoscaler.
#[derive(Clone, Debug, Default)]
pub(crate) struct History {
    /// Time of the next evaluation of the autoscaler.
    pub(super) next: Option<Timestamp>,
    /// Numbers of replicas recommended by the metrics, oldest first.
    recommended: Vec<(Timestamp, i64)>,
    /// Changes of the number of replicas, oldest first.
    changes: Vec<(Timestamp, i64)>,
    /// A change that the server may have refused.
    planned: Option<(Timestamp, i64)>,
    /// Set if the autoscaler has read the scale of its target.
    pub(super) is_known: bool,
}

impl History {
    /// Adds a recommendation. Before the first recommendation, the current number of replicas is added as a
    /// recommendation.
    pub(super) fn recommend(&mut self, now: Timestamp, replicas: i64, current: i64) {
        if self.recommended.is_empty() {
            self.recommended.push((now, current));
        }
        self.recommended.retain(|(at, _)| is_within(*at, now, KEPT_SECONDS));
        self.recommended.push((now, replicas));
    }

    /// Plans a change of the number of replicas, which counts after the server has accepted it.
    pub(super) fn plan(&mut self, now: Timestamp, change: i64) {
        self.planned = Some((now, change));
    }

    /// Adds the planned change if it was accepted: `last` is the time of the last change in the status.
    pub(super) fn settle(&mut self, now: Timestamp, last: &str) {
        let planned = self.planned.take();
        self.changes.retain(|(at, _)| is_within(*at, now, KEPT_SECONDS));
        self.changes
            .extend(planned.filter(|(at, _)| entropy::seconds(*at) == last));
    }

    /// Returns the recommendations of the last `seconds` seconds.
    pub(super) fn recommended(&self, now: Timestamp, seconds: i64) -> impl Iterator<Item = i64> {
        let within = self
            .recommended
            .iter()
            .filter(move |(at, _)| is_within(*at, now, seconds));
        within.map(|(_, replicas)| *replicas)
    }

    /// Returns the sum of the autoscaler's changes in the last `seconds` seconds; negative if it removed more than it
    /// added.
    pub(super) fn change(&self, now: Timestamp, seconds: i64) -> i64 {
        let within = self.changes.iter().filter(|(at, _)| is_within(*at, now, seconds));
        within.map(|(_, change)| change).sum()
    }
}

fn is_within(at: Timestamp, now: Timestamp, seconds: i64) -> bool {
    now.duration_since(at).as_secs() < seconds
}
