//! `DeltaQueue`: changes that reflectors have received but that are not in the store yet.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use super::indexer::{Indexer, in_order};
use super::reflector::{ReflectorStore, Unread};
use crate::object::{Cacheable, CachedObject};
use crate::{ObjectKey, ResourceVersion};

/// Maximum number of deltas in a batch.
pub(crate) const BATCH: usize = 1000;

/// Number of waiting deltas at which reflectors stop reading. With [`QueueOrder::ByObject`], all waiting deltas of an
/// object count as one.
const ROOM: usize = 2 * BATCH;

/// Order in which changes are applied to the store and sent to handlers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum QueueOrder {
    /// In order of arrival (client-go's `RealFIFO`, its default). Each list, resync and bookmark is a single delta.
    #[default]
    Arrival,
    /// By object (client-go's `DeltaFIFO`): all waiting changes of an object are applied together with its first
    /// change. Consecutive deletions are merged into one.
    ByObject,
}

/// A change that is not in the store yet.
#[derive(Debug)]
pub(crate) enum Delta<K> {
    Added(CachedObject<K>),
    Updated(CachedObject<K>),
    Deleted(CachedObject<K>),
    /// An object that was missing from a list, or that was deleted with a last state that cannot be decoded. Contains
    /// the last known state.
    Vanished(CachedObject<K>),
    /// A complete list from one source.
    Replaced {
        source: usize,
        objects: Vec<CachedObject<K>>,
        /// Objects in the list that could not be decoded.
        unread: Vec<Unread>,
        version: ResourceVersion,
    },
    /// A resync of the handlers that are due for a resync.
    Resync,
    /// The store contains all changes of the source up to this version. Also marks the end of a list that was split
    /// into deltas.
    Bookmark {
        source: usize,
        version: ResourceVersion,
        ends_list: bool,
    },
}

/// Queue of deltas from all sources of an informer.
pub(crate) struct DeltaQueue<K> {
    /// Guards the waiting deltas.
    waiting: Mutex<Waiting<K>>,
    order: QueueOrder,
    /// Notified when deltas are added.
    filled: Notify,
    emptied: Notify,
}

#[derive(Debug)]
struct Waiting<K> {
    arrival: VecDeque<Delta<K>>,
    /// Waiting deltas by object, for [`QueueOrder::ByObject`]. `turns` determines the order: it contains each key once,
    /// and `None` for each delta in `arrival`.
    by_object: BTreeMap<ObjectKey, Vec<Delta<K>>>,
    turns: VecDeque<Option<ObjectKey>>,
    /// For [`QueueOrder::ByObject`], the objects of the batch in progress with their last states; `None` if the object
    /// was deleted. They are neither waiting nor in the store yet.
    in_progress: BTreeMap<ObjectKey, Option<CachedObject<K>>>,
}

impl<K: Cacheable> DeltaQueue<K> {
    pub(crate) fn new(order: QueueOrder) -> Self {
        Self {
            waiting: Mutex::new(Waiting {
                arrival: VecDeque::new(),
                by_object: BTreeMap::new(),
                turns: VecDeque::new(),
                in_progress: BTreeMap::new(),
            }),
            order,
            filled: Notify::new(),
            emptied: Notify::new(),
        }
    }

    /// Adds a delta of a single object.
    fn push_object(&self, delta: Delta<K>) {
        let mut waiting = self.lock();
        match self.order {
            QueueOrder::Arrival => waiting.arrival.push_back(delta),
            QueueOrder::ByObject => waiting.push_by_object(delta),
        }
        drop(waiting);
        self.filled.notify_one();
    }

    /// Adds a delta that is never merged.
    pub(crate) fn push(&self, delta: Delta<K>) {
        let mut waiting = self.lock();
        waiting.arrival.push_back(delta);
        if self.order == QueueOrder::ByObject {
            waiting.turns.push_back(None);
        }
        drop(waiting);
        self.filled.notify_one();
    }

    /// Removes and returns the oldest deltas: at most [`BATCH`], plus the remaining deltas of the last object. Returns
    /// an empty list if the queue is empty. The caller applies the deltas to the store, and then calls
    /// [`applied`](Self::applied).
    pub(crate) fn take(&self) -> Vec<Delta<K>> {
        let mut waiting = self.lock();
        let batch = match self.order {
            QueueOrder::Arrival => {
                let count = waiting.arrival.len().min(BATCH);
                waiting.arrival.drain(..count).collect()
            }
            QueueOrder::ByObject => waiting.take_by_object(),
        };
        let has_room = waiting.len() < ROOM;
        drop(waiting);
        if has_room {
            self.emptied.notify_waiters();
        }
        batch
    }

    /// Records that the store contains the deltas of the last [`take`](Self::take).
    pub(crate) fn applied(&self) {
        self.lock().in_progress.clear();
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.lock().len() == 0
    }

    /// Waits until the queue is not empty.
    pub(crate) async fn filled(&self) {
        while self.lock().len() == 0 {
            self.filled.notified().await;
        }
    }

    /// Waits until the queue has space for more deltas.
    async fn room(&self) {
        // The queue nearly always has space, and this check is cheaper than registering for the notification.
        if self.lock().len() < ROOM {
            return;
        }
        loop {
            let mut emptied = std::pin::pin!(self.emptied.notified());
            emptied.as_mut().enable();
            if self.lock().len() < ROOM {
                return;
            }
            emptied.await;
        }
    }

    /// Returns `true` if the last waiting delta of an object is its deletion.
    fn is_deletion_waiting(&self, key: &ObjectKey) -> bool {
        let waiting = self.lock();
        let last = waiting.by_object.get(key).and_then(|deltas| deltas.last());
        matches!(last, Some(Delta::Deleted(_) | Delta::Vanished(_)))
    }

    fn lock(&self) -> MutexGuard<'_, Waiting<K>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K> Waiting<K> {
    fn len(&self) -> usize {
        self.arrival.len() + self.by_object.len()
    }

    fn push_by_object(&mut self, delta: Delta<K>) {
        let key = match &delta {
            Delta::Added(object) | Delta::Updated(object) | Delta::Deleted(object) | Delta::Vanished(object) => {
                object.key().clone()
            }
            Delta::Replaced { .. } | Delta::Resync | Delta::Bookmark { .. } => return,
        };
        let deltas = self.by_object.entry(key.clone()).or_default();
        if deltas.is_empty() {
            self.turns.push_back(Some(key));
        }
        match (deltas.last(), &delta) {
            // Keep the deletion from the watch event, because it contains the last state.
            (Some(Delta::Deleted(_)), Delta::Deleted(_) | Delta::Vanished(_)) => {}
            (Some(Delta::Vanished(_)), Delta::Deleted(_) | Delta::Vanished(_)) => {
                deltas.pop();
                deltas.push(delta);
            }
            _ => deltas.push(delta),
        }
    }

    fn take_by_object(&mut self) -> Vec<Delta<K>> {
        let mut batch = Vec::new();
        while batch.len() < BATCH {
            match self.turns.pop_front() {
                Some(Some(key)) => batch.extend(self.by_object.remove(&key).unwrap_or_default()),
                Some(None) => batch.extend(self.arrival.pop_front()),
                None => break,
            }
        }
        self.in_progress = batch.iter().filter_map(last_state).collect();
        batch
    }
}

/// Returns the object of a delta, and its state after the delta; `None` if the delta contains no object.
fn last_state<K>(delta: &Delta<K>) -> Option<(ObjectKey, Option<CachedObject<K>>)> {
    match delta {
        Delta::Added(object) | Delta::Updated(object) => Some((object.key().clone(), Some(object.clone()))),
        Delta::Deleted(object) | Delta::Vanished(object) => Some((object.key().clone(), None)),
        Delta::Replaced { .. } | Delta::Resync | Delta::Bookmark { .. } => None,
    }
}

/// Adds the changes of one source to the queue.
pub(crate) struct Intake<K> {
    pub(crate) queue: std::sync::Arc<DeltaQueue<K>>,
    pub(crate) source: usize,
    /// The part of the store that this source fills.
    pub(crate) scope: super::indexer::Scope,
    pub(crate) indexer: Indexer<K>,
}

impl<K: Cacheable> ReflectorStore<K> for Intake<K> {
    fn add(&self, object: CachedObject<K>) {
        self.queue.push_object(Delta::Added(object));
    }

    fn update(&self, object: CachedObject<K>) {
        self.queue.push_object(Delta::Updated(object));
    }

    fn delete(&self, object: CachedObject<K>) {
        self.queue.push_object(Delta::Deleted(object));
    }

    fn vanish(&self, object: CachedObject<K>) {
        self.queue.push_object(Delta::Vanished(object));
    }

    fn replace(&self, objects: Vec<CachedObject<K>>, version: ResourceVersion) {
        self.replace_keeping(objects, Vec::new(), version);
    }

    fn replace_keeping(&self, objects: Vec<CachedObject<K>>, unread: Vec<Unread>, version: ResourceVersion) {
        let source = self.source;
        let objects = in_order(objects);
        match self.queue.order {
            QueueOrder::Arrival => self.queue.push(Delta::Replaced {
                source,
                objects,
                unread,
                version,
            }),
            QueueOrder::ByObject => {
                for gone in self.missing(&objects, &unread) {
                    self.queue.push_object(Delta::Vanished(gone));
                }
                objects
                    .into_iter()
                    .for_each(|it| self.queue.push_object(Delta::Updated(it)));
                self.queue.push(Delta::Bookmark {
                    source,
                    version,
                    ends_list: true,
                });
            }
        }
    }

    fn bookmark(&self, version: &ResourceVersion) {
        self.queue.push(Delta::Bookmark {
            source: self.source,
            version: version.clone(),
            ends_list: false,
        });
    }

    fn known(&self, key: &ObjectKey) -> Option<CachedObject<K>> {
        self.indexer.read().objects.get(key).cloned()
    }

    async fn room(&self) {
        self.queue.room().await;
    }
}

impl<K: Cacheable> Intake<K> {
    /// Returns the objects of this source that are in the store, the batch in progress or the queue, but not in a new
    /// list.
    fn missing(&self, list: &[CachedObject<K>], unread: &[Unread]) -> Vec<CachedObject<K>> {
        let mut known: BTreeMap<ObjectKey, CachedObject<K>> = BTreeMap::new();
        let stored = self.indexer.lister().snapshot();
        known.extend(self.scope.of(&stored.0).map(|it| (it.key().clone(), it.clone())));
        {
            let waiting = self.queue.lock();
            for (key, state) in waiting.in_progress.iter().filter(|(key, _)| self.scope.contains(key)) {
                match state {
                    Some(object) => drop(known.insert(key.clone(), object.clone())),
                    None => drop(known.remove(key)),
                }
            }
            for delta in waiting.by_object.values().flatten() {
                if let Delta::Added(object) | Delta::Updated(object) = delta
                    && self.scope.contains(object.key())
                {
                    known.insert(object.key().clone(), object.clone());
                }
            }
        }
        for it in unread {
            if it.known(known.get(&it.key)).is_some() {
                known.remove(&it.key);
            }
        }
        known.retain(|key, _| {
            let is_listed = list.binary_search_by(|it| it.key().cmp(key)).is_ok();
            !is_listed && !self.queue.is_deletion_waiting(key)
        });
        known.into_values().collect()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use k8s_openapi::api::core::v1::ConfigMap;

    use super::super::indexer::Scope;
    use super::*;

    #[test]
    fn object_of_the_batch_in_progress_is_removed_if_a_new_list_lacks_it() {
        let intake = Intake {
            queue: Arc::new(DeltaQueue::new(QueueOrder::ByObject)),
            source: 0,
            scope: Scope::All,
            indexer: Indexer::<ConfigMap>::new(),
        };
        let text = r#"{"metadata":{"name":"m","namespace":"shop","uid":"u","resourceVersion":"5"}}"#;
        intake.add(CachedObject::decode(text).expect("the object can be decoded"));
        // The object is neither in the queue nor in the store until the batch has been applied.
        let batch = intake.queue.take();
        assert!(matches!(batch[..], [Delta::Added(_)]), "{batch:?}");
        intake.replace(Vec::new(), ResourceVersion::from("7"));
        let next = intake.queue.take();
        assert!(
            matches!(next[..], [Delta::Vanished(_), Delta::Bookmark { .. }]),
            "{next:?}"
        );
    }
}
