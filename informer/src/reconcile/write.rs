//! `Write`: a recorded write, and the condition under which a cache includes it.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;

use futures::stream::{self, StreamExt};
use tokio::time::Instant;

use super::asked::Asked;
use super::collection::Collection;
use crate::{ObjectKey, ResourceVersion};

/// Maximum number of concurrent requests that read the outcomes of writes.
const ASKED_AT_ONCE: usize = 8;

/// A write that was made during a reconcile or by a `CachedClient`.
#[derive(Clone, Debug)]
pub(crate) struct Write {
    pub(crate) collection: Collection,
    pub(crate) key: ObjectKey,
    /// Labels of the written object, if the response contains them.
    pub(crate) labels: Option<BTreeMap<String, String>>,
    /// Time of the response.
    pub(crate) at: Instant,
    pub(crate) what: Written,
}

/// The condition under which a cache includes a write.
#[derive(Clone, Debug)]
pub(crate) enum Written {
    /// The cache has reached this version.
    Version(ResourceVersion),
    /// The object is being deleted: the cache has reached this version, or it has reached `floor` and does not contain
    /// the object, because the object may have been removed right after this version.
    Terminating {
        version: ResourceVersion,
        floor: ResourceVersion,
        uid: String,
    },
    /// The object was deleted: the cache has reached `floor` and does not contain the object with this uid.
    Gone { floor: ResourceVersion, uid: String },
    /// The object was or is being deleted: the cache has reached `floor`, and does not contain the object with this uid
    /// or contains it with a deletion timestamp.
    Deleted { floor: ResourceVersion, uid: String },
    /// No object with this name existed at version `floor`: the cache does not contain an object with this name, or it
    /// has reached `floor` and contains an object that was created later. `floor` is empty if the server did not return
    /// a version.
    Absent { floor: ResourceVersion },
    /// The outcome is unknown: the current state must be read from the server. Requests are compared by identity,
    /// because the result for one write does not apply to a later write.
    Unknown(Arc<Asked>),
}

impl Write {
    /// Returns `true` if the outcome of the write is unknown.
    pub(crate) fn is_unknown(&self) -> bool {
        matches!(self.what, Written::Unknown(_))
    }

    /// Returns `true` if both writes are to the same object.
    fn is_to_object_of(&self, other: &Self) -> bool {
        self.key == other.key && self.collection == other.collection
    }

    /// If the outcome is unknown, reads the current state from the server. Returns the write unchanged if the request
    /// fails temporarily; `None` if the server refuses the request.
    pub(crate) async fn learn(&self) -> Option<Self> {
        let mut learnt = self.clone();
        let Written::Unknown(asked) = &self.what else {
            return Some(learnt);
        };
        match asked.present().await {
            Ok(what) => (learnt.what, learnt.at) = (what, Instant::now()),
            Err(err) if err.code().is_some_and(|code| code != 429 && code < 500) => {
                tracing::warn!(?asked, %err, "a write has an unknown outcome, and the cache may be stale");
                return None;
            }
            Err(err) => tracing::debug!(?asked, %err, "the outcome of a write is unknown"),
        }
        Some(learnt)
    }

    /// Reads the outcomes of several writes from the server concurrently. Calls `settle` with each write and its
    /// result.
    pub(crate) async fn learn_all(writes: Vec<Self>, settle: impl Fn(&Self, Option<Self>)) {
        let asking = stream::iter(writes).map(|write| async move {
            let learnt = write.learn().await;
            (write, learnt)
        });
        let mut learnt = pin!(asking.buffer_unordered(ASKED_AT_ONCE));
        while let Some((write, learnt)) = learnt.next().await {
            settle(&write, learnt);
        }
    }

    /// Adds a write to a list. The result does not depend on the order of calls, because the order of responses may
    /// differ from the order in which the server executed the writes. If there are two versions of an object, the
    /// higher version is kept. A deletion is kept in addition to a version.
    pub(crate) fn merge(writes: &mut Vec<Self>, new: Self) {
        let mut is_superseded = false;
        writes.retain(|known| {
            if !known.is_to_object_of(&new) {
                return true;
            }
            match relation(known, &new) {
                Relation::Both => true,
                Relation::NewOnly => false,
                Relation::KnownOnly => {
                    is_superseded = true;
                    true
                }
            }
        });
        if !is_superseded {
            writes.push(new);
        }
    }

    /// Replaces a write that has an unknown outcome with the result of [`learn`](Self::learn). Does nothing if a later
    /// write has replaced the write in the meantime.
    pub(crate) fn settle(writes: &mut Vec<Self>, unknown: &Self, learnt: Option<Self>) {
        let Written::Unknown(asked) = &unknown.what else {
            return;
        };
        let is_it = |it: &Self| matches!(&it.what, Written::Unknown(other) if Arc::ptr_eq(other, asked));
        let Some(place) = writes.iter().position(is_it) else {
            return;
        };
        match learnt {
            Some(write) if write.is_unknown() => {}
            Some(write) => {
                writes.remove(place);
                Self::merge(writes, write);
            }
            None => drop(writes.remove(place)),
        }
    }

    /// Returns the highest version of the writes to an object. The state of the object in a cache is only relevant once
    /// the cache has reached this version.
    pub(crate) fn floor(writes: &[Self], collection: &Collection, key: &ObjectKey) -> ResourceVersion {
        let to_it = writes
            .iter()
            .filter(|it| it.key == *key && it.collection == *collection);
        let versions = to_it.filter_map(|it| match &it.what {
            Written::Version(version) | Written::Terminating { version, .. } => Some(version),
            Written::Gone { floor, .. } | Written::Deleted { floor, .. } => Some(floor),
            Written::Absent { .. } | Written::Unknown(_) => None,
        });
        let highest = versions.reduce(|one, other| if is_older(one, other) { other } else { one });
        highest.cloned().unwrap_or_default()
    }
}

/// Selects the writes that are kept when two writes to an object are merged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Relation {
    Both,
    KnownOnly,
    NewOnly,
}

fn relation(known: &Write, new: &Write) -> Relation {
    use Written::{Absent, Deleted, Gone, Terminating, Unknown, Version};
    let newer = |is_known_newer: bool| {
        if is_known_newer {
            Relation::KnownOnly
        } else {
            Relation::NewOnly
        }
    };
    match (&known.what, &new.what) {
        (Version(one) | Terminating { version: one, .. }, Version(other) | Terminating { version: other, .. }) => {
            newer(is_older(other, one))
        }
        (Gone { floor: one, uid: a } | Deleted { floor: one, uid: a }, Gone { floor: other, uid: b })
        | (Deleted { floor: one, uid: a }, Deleted { floor: other, uid: b })
            if a == b =>
        {
            newer(is_older(other, one))
        }
        // A completed deletion implies that the deletion has begun.
        (Gone { uid: a, .. }, Deleted { uid: b, .. }) if a == b => Relation::KnownOnly,
        // Reading the state after the later write covers both writes.
        (Unknown(_), Unknown(_)) => Relation::NewOnly,
        (Absent { floor: one }, Absent { floor: other }) => newer(is_older(other, one)),
        // The object did not exist at `floor`, so a higher version belongs to an object that was created later.
        (Absent { floor }, Version(version) | Terminating { version, .. }) if is_above(version, floor) => {
            Relation::NewOnly
        }
        (Version(version) | Terminating { version, .. }, Absent { floor }) if is_above(version, floor) => {
            Relation::KnownOnly
        }
        _ => Relation::Both,
    }
}

/// Returns `true` if `one` is older than `other`. An empty version is older than any other.
fn is_older(one: &ResourceVersion, other: &ResourceVersion) -> bool {
    (one.is_empty() && !other.is_empty()) || one < other
}

/// Returns `true` if the version can be compared with the floor and is higher.
fn is_above(version: &ResourceVersion, floor: &ResourceVersion) -> bool {
    !floor.is_empty() && floor < version
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn version(version: &str) -> Written {
        Written::Version(ResourceVersion::from(version))
    }

    fn gone(floor: &str, uid: &str) -> Written {
        let floor = ResourceVersion::from(floor);
        Written::Gone {
            floor,
            uid: uid.to_owned(),
        }
    }

    fn absent(floor: &str) -> Written {
        let floor = ResourceVersion::from(floor);
        Written::Absent { floor }
    }

    fn terminating(version: &str) -> Written {
        Written::Terminating {
            version: ResourceVersion::from(version),
            floor: ResourceVersion::default(),
            uid: "u".to_owned(),
        }
    }

    fn write(what: Written) -> Write {
        Write {
            collection: Collection::new(None, "", "pods"),
            key: ObjectKey::cluster("a"),
            labels: None,
            at: Instant::now(),
            what,
        }
    }

    fn merged(all: impl IntoIterator<Item = Written>) -> Vec<String> {
        let mut writes = Vec::new();
        all.into_iter().for_each(|it| Write::merge(&mut writes, write(it)));
        let mut texts: Vec<_> = writes.iter().map(|it| format!("{:?}", it.what)).collect();
        texts.sort();
        texts
    }

    #[rstest]
    #[case::higher_version([version("9"), version("10")], &[version("10")])]
    #[case::last_state_of_a_deletion([terminating("10"), version("9")], &[terminating("10")])]
    #[case::version_and_deletion([version("9"), gone("7", "u")], &[version("9"), gone("7", "u")])]
    #[case::deletions_of_two_objects([gone("7", "u"), gone("9", "v")], &[gone("7", "u"), gone("9", "v")])]
    #[case::deletions_of_one_object([gone("7", "u"), gone("9", "u")], &[gone("9", "u")])]
    #[case::missing_version([version(""), version("9")], &[version("9")])]
    #[case::absence_before_a_version([absent("7"), version("9")], &[version("9")])]
    #[case::absence_before_a_deletion([absent("7"), terminating("9")], &[terminating("9")])]
    #[case::absence_after_a_version([absent("7"), version("5")], &[absent("7"), version("5")])]
    #[case::absence_at_an_unknown_version([absent(""), version("5")], &[absent(""), version("5")])]
    #[case::two_absences([absent("7"), absent("9")], &[absent("9")])]
    #[tokio::test(start_paused = true)]
    async fn merged_writes_do_not_depend_on_their_order(#[case] writes: [Written; 2], #[case] kept: &[Written]) {
        let kept = kept.iter().map(|it| format!("{it:?}")).collect::<Vec<_>>();
        let sorted = |mut texts: Vec<String>| {
            texts.sort();
            texts
        };
        let [one, other] = writes;
        assert_eq!(merged([one.clone(), other.clone()]), sorted(kept.clone()));
        assert_eq!(merged([other, one]), sorted(kept));
    }
}
