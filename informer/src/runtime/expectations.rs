//! `Expectations`: requested creations and deletions that have not been observed yet.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::ObjectKey;

/// An expectation that is older counts as met: the event was lost, and the cache is right.
const TIMEOUT: Duration = Duration::from_secs(300);

/// Expectations of creations and deletions, as kube-controller-manager's `UIDTrackingControllerExpectations`. Copies
/// are the same.
///
/// A [`Controller`](super::Controller) does not need it: its gate knows the versions of what it wrote. It is for those
/// who create objects in their own tasks, or by a client that is not observed.
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
    /// Guards what is expected, by the key of the owner. An entry goes when it is met or forgotten.
    expected: Arc<Mutex<BTreeMap<ObjectKey, Expected>>>,
}

#[derive(Debug)]
struct Expected {
    creations: u64,
    /// By uid: a deletion may be seen twice, as a timestamp and as an event.
    deletions: BTreeSet<String>,
    since: Instant,
}

impl Expectations {
    /// Nothing is expected.
    pub fn new() -> Self {
        Self::default()
    }

    /// Expects `count` more creations. Call it before the requests.
    pub fn expect_creations(&self, key: &ObjectKey, count: u64) {
        self.expect(key, |it| it.creations += count);
    }

    /// The deletions of the objects of these uids are expected, too. Say it before the requests.
    pub fn expect_deletions(&self, key: &ObjectKey, uids: impl IntoIterator<Item = String>) {
        self.expect(key, |it| it.deletions.extend(uids));
    }

    /// A creation was seen, or failed.
    pub fn creation_observed(&self, key: &ObjectKey) {
        self.observe(key, |it| it.creations = it.creations.saturating_sub(1));
    }

    /// The deletion of an object was seen, or failed.
    pub fn deletion_observed(&self, key: &ObjectKey, uid: &str) {
        self.observe(key, |it| {
            it.deletions.remove(uid);
        });
    }

    /// Returns `true` if all expectations were seen, or five minutes have passed.
    pub fn are_met(&self, key: &ObjectKey) -> bool {
        let expected = self.expected.lock().unwrap_or_else(PoisonError::into_inner);
        expected
            .get(key)
            .is_none_or(|it| it.is_met() || it.since.elapsed() > TIMEOUT)
    }

    /// The owner is gone.
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
