//! `Expectations`: requested creations and deletions that have not been observed yet.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::ObjectKey;

/// Age after which an expectation counts as met: the event was lost, and the cache is right.
const TIMEOUT: Duration = Duration::from_secs(300);

/// Expectations of creations and deletions, as kube-controller-manager's `UIDTrackingControllerExpectations`. Clones
/// share them.
///
/// A [`Controller`](super::Controller) does not need it, because its gate uses the versions of its writes. It is meant
/// for code that creates objects in its own tasks, or with a client that is not observed.
///
/// ```
/// use informer::ObjectKey;
/// use informer::runtime::Expectations;
///
/// let (expectations, key) = (Expectations::new(), ObjectKey::new("shop", "web"));
/// expectations.expect_creations(&key, 2);
/// expectations.creation_observed(&key);
/// assert!(!expectations.are_met(&key));
/// expectations.creation_observed(&key);
/// assert!(expectations.are_met(&key));
/// ```
#[derive(Clone, Debug, Default)]
pub struct Expectations {
    /// Guards the expectations, by the key of the owner. An entry is removed when it is met, or by `forget`.
    expected: Arc<Mutex<BTreeMap<ObjectKey, Expected>>>,
}

#[derive(Debug)]
struct Expected {
    creations: u64,
    /// By uid: a deletion may be observed twice, as a timestamp and as an event.
    deletions: BTreeSet<String>,
    since: Instant,
}

impl Expectations {
    /// Creates an empty set.
    pub fn new() -> Self {
        Self::default()
    }

    /// Expects `count` more creations. Call it before the requests.
    pub fn expect_creations(&self, key: &ObjectKey, count: u64) {
        self.expect(key, |it| it.creations += count);
    }

    /// Expects the deletions of the objects with these uids. Call it before the requests.
    pub fn expect_deletions(&self, key: &ObjectKey, uids: impl IntoIterator<Item = String>) {
        self.expect(key, |it| it.deletions.extend(uids));
    }

    /// Records that a creation was observed, or that it failed.
    pub fn creation_observed(&self, key: &ObjectKey) {
        self.observe(key, |it| it.creations = it.creations.saturating_sub(1));
    }

    /// Records that the deletion of an object was observed, or that it failed.
    pub fn deletion_observed(&self, key: &ObjectKey, uid: &str) {
        self.observe(key, |it| {
            it.deletions.remove(uid);
        });
    }

    /// Returns `true` if all expectations were observed, or five minutes have passed.
    pub fn are_met(&self, key: &ObjectKey) -> bool {
        let expected = self.expected.lock().unwrap_or_else(PoisonError::into_inner);
        expected
            .get(key)
            .is_none_or(|it| it.is_met() || it.since.elapsed() > TIMEOUT)
    }

    /// Removes the expectations of an owner that no longer exists.
    pub fn forget(&self, key: &ObjectKey) {
        self.expected.lock().unwrap_or_else(PoisonError::into_inner).remove(key);
    }

    fn expect(&self, key: &ObjectKey, expect: impl FnOnce(&mut Expected)) {
        let mut all = self.expected.lock().unwrap_or_else(PoisonError::into_inner);
        let expected = all.entry(key.clone()).or_insert_with(|| Expected {
            creations: 0,
            deletions: BTreeSet::new(),
            since: Instant::now(),
        });
        expected.since = Instant::now();
        expect(expected);
    }

    fn observe(&self, key: &ObjectKey, observe: impl FnOnce(&mut Expected)) {
        let mut all = self.expected.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(expected) = all.get_mut(key) else { return };
        observe(expected);
        if expected.is_met() {
            all.remove(key);
        }
    }
}

impl Expected {
    fn is_met(&self) -> bool {
        self.creations == 0 && self.deletions.is_empty()
    }
}
