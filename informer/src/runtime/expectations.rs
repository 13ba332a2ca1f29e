//! `Expectations`: creations and deletions that were requested but have not been observed yet.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::ObjectKey;

/// Time after which all expectations of an owner are considered met, because an event was probably lost.
const TIMEOUT: Duration = Duration::from_secs(300);

/// Tracks expected creations and deletions (kube-controller-manager's `UIDTrackingControllerExpectations`). Clones
/// share the expectations.
///
/// Reconcilers of a [`Controller`](super::Controller) do not need expectations, because the controller waits until its
/// caches contain their writes. Expectations are intended for code that creates objects in separate tasks, or with a
/// client that is not observed.
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
    /// Guards the expectations, by the key of the owner. Entries are removed when all of their expectations are met, or
    /// by `forget`.
    expected: Arc<Mutex<BTreeMap<ObjectKey, Expected>>>,
}

#[derive(Debug)]
struct Expected {
    creations: u64,
    /// Uids of the objects with expected deletions. A deletion may be observed twice: by its deletion timestamp and by
    /// its event.
    deletions: BTreeSet<String>,
    since: Instant,
}

impl Expectations {
    /// Creates an empty set of expectations.
    pub fn new() -> Self {
        Self::default()
    }

    /// Increases the number of expected creations by `count`. Must be called before the requests are sent.
    pub fn expect_creations(&self, key: &ObjectKey, count: u64) {
        self.expect(key, |it| it.creations += count);
    }

    /// Expects the deletion of the objects with these uids. Must be called before the requests are sent.
    pub fn expect_deletions(&self, key: &ObjectKey, uids: impl IntoIterator<Item = String>) {
        self.expect(key, |it| it.deletions.extend(uids));
    }

    /// Records that a creation was observed, or that its request has failed.
    pub fn creation_observed(&self, key: &ObjectKey) {
        self.observe(key, |it| it.creations = it.creations.saturating_sub(1));
    }

    /// Records that a deletion was observed, or that its request has failed.
    pub fn deletion_observed(&self, key: &ObjectKey, uid: &str) {
        self.observe(key, |it| {
            it.deletions.remove(uid);
        });
    }

    /// Returns `true` if all expectations of an owner are met, or if the last one was added more than five minutes ago.
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
