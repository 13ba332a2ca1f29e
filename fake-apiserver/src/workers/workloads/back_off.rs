//! Delays after failures of Pods. Controllers keep them in memory, so they are lost on a restart, as in
//! kube-controller-manager.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};

use super::pods::plus;

/// Delay after the first failure of a Pod of a Job, in seconds; each further failure doubles it.
const JOB_FIRST: i64 = 10;
/// Maximum delay of a Job, in seconds.
const JOB_MOST: i64 = 600;
/// Delay after the first failed Pod of a DaemonSet on a node, in seconds; each further one doubles it.
const DAEMON_FIRST: i64 = 1;
/// Maximum delay of a DaemonSet, in seconds. A delay that started more than twice this time ago is reset.
const DAEMON_MOST: i64 = 900;

/// The failures of a Job's Pods since the last success (Go's `backoffRecord`).
#[derive(Clone, Debug, Default)]
pub(crate) struct Failures {
    /// Number of failures since the last success.
    count: usize,
    /// Time of the last failure.
    last: Option<Timestamp>,
    /// The uids of existing Pods that were included.
    seen: BTreeSet<String>,
}

impl Failures {
    /// Adds the Pods that ended since the last call. Each entry contains the uid of a Pod and the time of its end.
    pub(crate) fn add(&mut self, succeeded: &[(&str, Timestamp)], failed: &[(&str, Timestamp)]) {
        let new = |list: &[(&str, Timestamp)]| -> Vec<Timestamp> {
            let unseen = list.iter().filter(|(uid, _)| !self.seen.contains(*uid));
            unseen.map(|(_, at)| *at).collect()
        };
        let (good, bad) = (new(succeeded), new(failed));
        if let Some(success) = good.into_iter().max() {
            let later = || bad.iter().filter(|at| **at > success);
            self.count = later().count();
            self.last = later().max().copied();
        } else if let Some(last) = bad.iter().max() {
            self.count += bad.len();
            self.last = Some(*last);
        }
        let all = succeeded.iter().chain(failed);
        self.seen.extend(all.map(|(uid, _)| (*uid).to_owned()));
    }

    /// Forgets the Pods that no longer exist, so that the memory is bounded by the number of Pods.
    pub(crate) fn retain(&mut self, exists: impl Fn(&str) -> bool) {
        self.seen.retain(|uid| exists(uid));
    }

    /// Returns the end of the delay; `None` without failures.
    pub(crate) fn end(&self) -> Option<Timestamp> {
        self.last.map(|at| job_delay_end(at, self.count))
    }
}

/// Returns the end of the delay of a Job after this number of failures, with the last failure at `at`.
pub(crate) fn job_delay_end(at: Timestamp, failures: usize) -> Timestamp {
    let doublings = u32::try_from(failures.saturating_sub(1)).unwrap_or(u32::MAX);
    let wait = JOB_FIRST.saturating_mul(2_i64.saturating_pow(doublings));
    plus(at, wait.min(JOB_MOST))
}

/// The delays between deletions of failed Pods of a DaemonSet (Go's `failedPodsBackoff`).
#[derive(Clone, Debug, Default)]
pub(crate) struct FailedPods {
    /// The observed generation of the DaemonSet; a new generation resets the delays.
    generation: i64,
    /// Start and seconds of the delay of each node.
    delays: BTreeMap<String, (Timestamp, i64)>,
}

impl FailedPods {
    /// Returns the end of the current delay of a node; `None` if a failed Pod may be deleted now, which starts the next
    /// delay.
    pub(crate) fn wait(&mut self, generation: i64, node: &str, now: Timestamp) -> Option<Timestamp> {
        if self.generation != generation {
            *self = Self {
                generation,
                ..Self::default()
            };
        }
        let known = self.delays.get(node).copied();
        let known = known.filter(|(since, _)| now.duration_since(*since) <= SignedDuration::from_secs(2 * DAEMON_MOST));
        let seconds = match known {
            Some((since, seconds)) if plus(since, seconds) > now => return Some(plus(since, seconds)),
            Some((_, seconds)) => (2 * seconds).min(DAEMON_MOST),
            None => DAEMON_FIRST,
        };
        self.delays.insert(node.to_owned(), (now, seconds));
        None
    }
}
