//! `Write`: a recorded write, and the condition under which a cache includes it.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;

use futures::stream::{self, StreamExt};
use tokio::time::Instant;

use super::asked::Asked;
use super::collection::Collection;
use crate::cache_state::CacheState;
use crate::{ObjectKey, ResourceVersion};

/// Maximum number of concurrent requests that read the outcomes of writes.
const ASKED_AT_ONCE: usize = 8;

/// Maximum number of different labels of a write. If there are more, the labels count as unknown.
const STATES: usize = 8;

/// A write that was made during a reconcile or by a `CachedClient`.
#[derive(Clone, Debug)]
pub(crate) struct Write {
    pub(crate) collection: Collection,
    pub(crate) key: ObjectKey,
    /// Labels of the written states of the object; `None` if the labels of a state are unknown. Contains several states
    /// after a merge, because a cache that selects only an earlier state receives the later write as a deletion.
    pub(crate) labels: Option<Vec<BTreeMap<String, String>>>,
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

    /// Returns `true` if the cache includes this write, or will never receive it.
    pub(crate) fn is_in(&self, cache: &(impl CacheState + ?Sized)) -> bool {
        let key = &self.key;
        let may_have = match &self.labels {
            Some(states) => states.iter().any(|it| cache.may_have(key, Some(it))),
            None => cache.may_have(key, None),
        };
        if !may_have || cache.restored(key) >= Some(self.at) {
            return true;
        }
        let is_at = |version: &ResourceVersion| is_reached(&cache.resource_version(key), version);
        let is_gone = |uid: &String| cache.uid(key).is_none_or(|it| it != *uid);
        match &self.what {
            Written::Version(version) => is_at(version),
            Written::Terminating { version, floor, uid } => is_at(version) || is_at(floor) && is_gone(uid),
            Written::Gone { floor, uid } => is_at(floor) && is_gone(uid),
            Written::Deleted { floor, uid } => is_at(floor) && (is_gone(uid) || cache.is_deleting(key)),
            Written::Absent { floor } => cache.uid(key).is_none() || !floor.is_empty() && is_at(floor),
            Written::Unknown(_) => false,
        }
    }

    /// Returns `true` if both writes are to the same object.
    fn is_to_object_of(&self, other: &Self) -> bool {
        self.key == other.key && self.collection == other.collection
    }

    /// Returns `true` if the server was restored from a backup and has lost this write: its `current` version is lower
    /// than the version of the write.
    pub(crate) fn is_lost(&self, current: &ResourceVersion) -> bool {
        let version = match &self.what {
            Written::Absent { floor } => floor.clone(),
            Written::Version(_)
            | Written::Terminating { .. }
            | Written::Gone { .. }
            | Written::Deleted { .. }
            | Written::Unknown(_) => self.version(),
        };
        *current < version
    }

    /// Marks the outcome as unknown, so that `asked` reads it.
    pub(crate) fn question(&mut self, asked: Asked) {
        self.what = Written::Unknown(Arc::new(asked));
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
    /// higher version is kept. A deletion is kept in addition to a version, and its floor is raised to this version:
    /// before a cache has received the object, the missing object does not show that the cache has received the
    /// deletion.
    pub(crate) fn merge(writes: &mut Vec<Self>, mut new: Self) {
        for known in writes.iter_mut() {
            if known.is_to_object_of(&new) {
                known.raise(&new);
                new.raise(known);
            }
        }
        let mut is_superseded = false;
        writes.retain_mut(|known| {
            if !known.is_to_object_of(&new) {
                return true;
            }
            match relation(known, &new) {
                Relation::Both => true,
                Relation::NewOnly => {
                    new.add_labels(known);
                    false
                }
                Relation::KnownOnly => {
                    known.add_labels(&new);
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

    /// Returns the version that a cache reaches with this write; empty if it is unknown.
    fn version(&self) -> ResourceVersion {
        match &self.what {
            Written::Version(version)
            | Written::Terminating { version, .. }
            | Written::Gone { floor: version, .. }
            | Written::Deleted { floor: version, .. } => version.clone(),
            Written::Absent { .. } | Written::Unknown(_) => ResourceVersion::default(),
        }
    }

    /// Adds the labels of a write that this write replaces.
    fn add_labels(&mut self, other: &Self) {
        if matches!(other.what, Written::Absent { .. }) {
            // The object did not exist.
            return;
        }
        self.labels = match (self.labels.take(), &other.labels) {
            (Some(mut states), Some(others)) => {
                let others = others.iter().filter(|it| !states.contains(it));
                let others: Vec<_> = others.cloned().collect();
                states.extend(others);
                (states.len() <= STATES).then_some(states)
            }
            (Some(_) | None, _) => None,
        };
    }

    /// Raises the floor of a deletion to the version of `other`, if this version is higher. The time becomes the time
    /// of the earlier write, because a server that is restored in between may never reach this version.
    fn raise(&mut self, other: &Self) {
        let version = other.version();
        if let Written::Terminating { floor, .. } | Written::Gone { floor, .. } | Written::Deleted { floor, .. } =
            &mut self.what
            && is_older(floor, &version)
        {
            *floor = version;
            self.at = self.at.min(other.at);
        }
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
        (Gone { floor: one, uid: a }, Gone { floor: other, uid: b })
        | (Deleted { floor: one, uid: a }, Deleted { floor: other, uid: b })
            if a == b =>
        {
            newer(is_older(other, one))
        }
        // A completed deletion implies that the deletion has begun.
        (Gone { uid: a, .. }, Deleted { uid: b, .. }) if a == b => Relation::KnownOnly,
        (Deleted { uid: a, .. }, Gone { uid: b, .. }) if a == b => Relation::NewOnly,
        // Reading the state after the later write covers both writes, if the same state is read for both.
        (Unknown(one), Unknown(other)) if one.about == other.about => Relation::NewOnly,
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

/// Returns `true` if a cache at version `at` has reached `version`. Also returns `true` if `version` is empty, or if
/// `at` is not empty and the two versions cannot be compared.
fn is_reached(at: &ResourceVersion, version: &ResourceVersion) -> bool {
    if version.is_empty() {
        return true;
    }
    match at.partial_cmp(version) {
        Some(order) => order.is_ge(),
        None => !at.is_empty(),
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

    use super::super::asked::About;
    use super::*;
    use crate::cache_state::fake::FakeCache;

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

    fn deleted(floor: &str, uid: &str) -> Written {
        let floor = ResourceVersion::from(floor);
        Written::Deleted {
            floor,
            uid: uid.to_owned(),
        }
    }

    fn unknown(about: About) -> Written {
        let never = tower::service_fn(|_: http::Request<kube::client::Body>| {
            std::future::pending::<Result<http::Response<kube::client::Body>, kube::Error>>()
        });
        let path = match &about {
            About::Object(_) => "object",
            About::Made => "made",
            About::Deleted => "deleted",
        };
        Written::Unknown(Arc::new(Asked {
            client: kube::Client::new(never, "default"),
            path: path.to_owned(),
            about,
        }))
    }

    fn absent(floor: &str) -> Written {
        let floor = ResourceVersion::from(floor);
        Written::Absent { floor }
    }

    fn terminating(version: &str, floor: &str) -> Written {
        Written::Terminating {
            version: ResourceVersion::from(version),
            floor: ResourceVersion::from(floor),
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
        texts(writes.iter().map(|it| &it.what))
    }

    fn texts<'a>(all: impl IntoIterator<Item = &'a Written>) -> Vec<String> {
        let mut texts: Vec<_> = all.into_iter().map(|it| format!("{it:?}")).collect();
        texts.sort();
        texts
    }

    #[rstest]
    #[case::higher_version([version("9"), version("10")], &[version("10")])]
    #[case::last_state_of_a_deletion([terminating("10", ""), version("9")], &[terminating("10", "9")])]
    #[case::version_and_deletion([version("9"), gone("7", "u")], &[version("9"), gone("9", "u")])]
    #[case::version_and_deletion_without_a_version([version("9"), gone("", "u")], &[version("9"), gone("9", "u")])]
    #[case::deletions_of_two_objects([gone("7", "u"), gone("9", "v")], &[gone("9", "u"), gone("9", "v")])]
    #[case::deletions_of_one_object([gone("7", "u"), gone("9", "u")], &[gone("9", "u")])]
    #[case::deletion_and_its_completion([deleted("9", "u"), gone("7", "u")], &[gone("9", "u")])]
    #[case::deletion_of_a_lower_version([deleted("7", "u"), gone("9", "u")], &[gone("9", "u")])]
    #[case::unknown_create_and_deletions([unknown(About::Made), unknown(About::Deleted)],
        &[unknown(About::Made), unknown(About::Deleted)])]
    #[case::missing_version([version(""), version("9")], &[version("9")])]
    #[case::absence_before_a_version([absent("7"), version("9")], &[version("9")])]
    #[case::absence_before_a_deletion([absent("7"), terminating("9", "")], &[terminating("9", "")])]
    #[case::absence_after_a_version([absent("7"), version("5")], &[absent("7"), version("5")])]
    #[case::absence_at_an_unknown_version([absent(""), version("5")], &[absent(""), version("5")])]
    #[case::two_absences([absent("7"), absent("9")], &[absent("9")])]
    #[tokio::test(start_paused = true)]
    async fn merged_writes_do_not_depend_on_their_order(#[case] writes: [Written; 2], #[case] kept: &[Written]) {
        let [one, other] = writes;
        assert_eq!(merged([one.clone(), other.clone()]), texts(kept));
        assert_eq!(merged([other, one]), texts(kept));
    }

    #[rstest]
    #[case::older_than_the_known_write(Some(version("7")), &[version("9")])]
    #[case::newer_than_the_known_write(Some(version("12")), &[version("12")])]
    #[case::refused_by_the_server(None, &[version("9")])]
    #[tokio::test(start_paused = true)]
    async fn learnt_outcome_is_merged_with_the_known_write(#[case] learnt: Option<Written>, #[case] kept: &[Written]) {
        let (known, asked) = (write(version("9")), write(unknown(About::Made)));
        let mut writes = vec![known, asked.clone()];
        Write::settle(&mut writes, &asked, Some(asked.clone()));
        assert_eq!(writes.len(), 2, "the outcome is still unknown");
        Write::settle(&mut writes, &asked, learnt.map(write));
        assert_eq!(texts(writes.iter().map(|it| &it.what)), texts(kept));
    }

    #[tokio::test(start_paused = true)]
    async fn learnt_outcome_of_a_replaced_write_is_ignored() {
        let (replaced, later) = (write(unknown(About::Made)), write(unknown(About::Made)));
        let mut writes = vec![replaced.clone()];
        Write::merge(&mut writes, later.clone());
        Write::settle(&mut writes, &replaced, Some(write(version("7"))));
        Write::settle(&mut writes, &replaced, None);
        assert!(writes.len() == 1 && writes[0].is_unknown(), "{writes:?}");
        Write::settle(&mut writes, &later, Some(write(version("9"))));
        assert_eq!(texts(writes.iter().map(|it| &it.what)), texts(&[version("9")]));
    }

    #[rstest]
    #[case::added(["web", "web"], false)]
    #[case::selected_at_first(["web", "old"], false)]
    #[case::selected_later(["old", "web"], false)]
    #[case::never_selected(["old", "other"], true)]
    #[tokio::test(start_paused = true)]
    async fn merged_write_is_missing_in_a_cache_that_selects_one_of_the_written_states(
        #[case] apps: [&str; 2],
        #[case] is_seen: bool,
        #[values([0, 1], [1, 0])] order: [usize; 2],
    ) {
        let labelled = |number: usize| Write {
            labels: Some(vec![BTreeMap::from([("app".to_owned(), apps[number].to_owned())])]),
            ..write(version(["5", "6"][number]))
        };
        let mut writes = Vec::new();
        order.into_iter().for_each(|it| Write::merge(&mut writes, labelled(it)));
        let cache = FakeCache {
            app: Some("web"),
            ..FakeCache::at(4)
        };
        assert_eq!(writes.iter().all(|it| it.is_in(&cache)), is_seen, "{writes:?}");
    }
}
