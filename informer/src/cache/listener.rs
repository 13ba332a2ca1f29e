//! `Listener`: the pending notifications of one handler, and the task that delivers them.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::FutureExt;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use super::sorted::Sorted;
use crate::handler::{Event, ResourceEventHandler};
use crate::object::Cacheable;
use crate::{Error, ObjectKey};

/// Minimum resync period.
pub(crate) const MIN_RESYNC: Duration = Duration::from_secs(1);

/// Number of events after which a handler that never waits yields to other tasks.
const YIELD_AFTER: u32 = 128;

/// Treatment of events if a handler is too slow. Neither policy delays the cache or other handlers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum HandlerQueue {
    /// Keeps all events: the handler receives every change, and memory grows with the number of pending events.
    #[default]
    Unbounded,
    /// Merges further events of the same object beyond this number: the handler skips states, but receives the last
    /// state of each object and its deletion. At most this number are pending, plus two for each object.
    Coalescing(usize),
}

/// Options of one handler.
#[derive(Clone, Debug, Default)]
pub struct HandlerOptions {
    /// Interval at which the handler receives all objects again, as updates without a change. `None` uses the
    /// informer's default, zero disables it. The minimum is a second.
    pub resync_period: Option<Duration>,
    /// Treatment of events for which the handler is too slow.
    pub queue: HandlerQueue,
    /// Name in messages. Default: the name of its type.
    pub name: Option<String>,
    /// Unused. End literals with `..`, because options may be added.
    #[doc(hidden)]
    pub _more: (),
}

/// An event that all handlers share. Decoded objects are kept until the last handler has received the event.
pub(crate) struct Told<K> {
    event: Event<K>,
}

impl<K> Told<K> {
    pub(crate) fn new(event: Event<K>) -> Arc<Self> {
        event.object().keep_decoded();
        if let Some(old) = event.old() {
            old.keep_decoded();
        }
        Arc::new(Self { event })
    }

    #[cfg(test)]
    pub(crate) fn event(&self) -> &Event<K> {
        &self.event
    }
}

impl<K> Drop for Told<K> {
    fn drop(&mut self) {
        self.event.object().release_decoded();
        if let Some(old) = self.event.old() {
            old.release_decoded();
        }
    }
}

/// A notification for a handler.
pub(crate) enum Item<K> {
    Event(Arc<Told<K>>),
    /// All objects that were present when the handler was added.
    Replay(Sorted<K>),
    /// All objects again.
    Resync(Sorted<K>),
    /// The end of the initial list.
    Synced,
}

/// The queue and state of one handler.
pub(crate) struct Listener<K> {
    /// Guards the pending items.
    queue: Mutex<Queue<K>>,
    filled: Notify,
    status: Arc<Status>,
    order: HandlerQueue,
    /// Guards the time of the next resync.
    resync: Mutex<Resync>,
}

/// The resyncs of a handler.
#[derive(Debug)]
pub(crate) struct Resync {
    pub(crate) period: Duration,
    pub(crate) due: Option<Instant>,
    /// Set if it is due, and the next resync includes this handler.
    pub(crate) is_requested: bool,
    /// Set if the handler receives updates without a change: a new handler, or one with a resync in progress.
    pub(crate) is_syncing: bool,
}

/// Stage of a handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Syncing,
    Synced,
    /// Removed, or the informer has stopped, before or after it had synced.
    Ended {
        was_synced: bool,
    },
}

#[derive(Debug)]
struct Status {
    name: String,
    stage: watch::Sender<Stage>,
    failures: AtomicU64,
    is_removed: AtomicBool,
}

/// Handle of an informer's handler. Dropping it does not remove the handler.
#[derive(Clone)]
pub struct HandlerRegistration {
    status: Arc<Status>,
}

impl HandlerRegistration {
    /// Returns `true` if the handler has received all objects that were present when it was added, or when the informer
    /// started.
    pub fn has_synced(&self) -> bool {
        matches!(
            *self.status.stage.borrow(),
            Stage::Synced | Stage::Ended { was_synced: true }
        )
    }

    /// Waits until the handler has synced.
    ///
    /// # Errors
    ///
    /// If the handler is removed, or the informer stops, before.
    pub async fn synced(&self) -> Result<(), Error> {
        let mut stage = self.status.stage.subscribe();
        let ended = || Error::refused(format!("the handler {} ended before it had synced", self.status.name));
        match stage.wait_for(|it| *it != Stage::Syncing).await.map(|it| *it) {
            Ok(Stage::Synced | Stage::Ended { was_synced: true }) => Ok(()),
            Ok(Stage::Syncing | Stage::Ended { was_synced: false }) | Err(_) => Err(ended()),
        }
    }

    /// Returns the number of events for which the handler failed, by an error or a panic.
    pub fn failures(&self) -> u64 {
        self.status.failures.load(Ordering::Relaxed)
    }

    /// Returns its name in messages.
    pub fn name(&self) -> &str {
        &self.status.name
    }

    /// Waits until the handler receives nothing more, after it was removed or the informer has stopped. A handler must
    /// not wait for itself.
    pub async fn ended(&self) {
        let mut stage = self.status.stage.subscribe();
        // The sender lives as long as this registration.
        let _ = stage.wait_for(|it| matches!(it, Stage::Ended { .. })).await;
    }

    /// Returns `true` once the handler receives nothing more.
    pub(crate) fn has_ended(&self) -> bool {
        matches!(*self.status.stage.borrow(), Stage::Ended { .. })
    }

    /// Returns `true` if both belong to the same handler.
    pub(crate) fn is(&self, status: &Self) -> bool {
        Arc::ptr_eq(&self.status, &status.status)
    }
}

impl fmt::Debug for HandlerRegistration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "HandlerRegistration({}, {:?})",
            self.status.name,
            *self.status.stage.borrow()
        )
    }
}

/// Pending items: `items` first, then the merged ones.
struct Queue<K> {
    items: VecDeque<Item<K>>,
    merged: Merged<K>,
    is_closed: bool,
}

impl<K: Cacheable> Listener<K> {
    pub(crate) fn new(name: String, period: Duration, order: HandlerQueue) -> Arc<Self> {
        let status = Status {
            name,
            stage: watch::Sender::new(Stage::Syncing),
            failures: AtomicU64::new(0),
            is_removed: AtomicBool::new(false),
        };
        Arc::new(Self {
            queue: Mutex::new(Queue {
                items: VecDeque::new(),
                merged: Merged::default(),
                is_closed: false,
            }),
            filled: Notify::new(),
            status: Arc::new(status),
            order,
            resync: Mutex::new(Resync {
                period,
                due: (!period.is_zero()).then(|| Instant::now() + period),
                is_requested: false,
                is_syncing: true,
            }),
        })
    }

    pub(crate) fn registration(&self) -> HandlerRegistration {
        HandlerRegistration {
            status: Arc::clone(&self.status),
        }
    }

    /// Adds items in order; `most` is the maximum number of pending items.
    pub(crate) fn push(&self, most: usize, items: impl Iterator<Item = Item<K>>) {
        let mut queue = self.lock();
        if queue.is_closed {
            return;
        }
        match self.order {
            HandlerQueue::Unbounded => {
                queue.items.reserve(most);
                queue.items.extend(items);
            }
            HandlerQueue::Coalescing(room) => items.for_each(|item| queue.push_or_merge(item, room)),
        }
        drop(queue);
        self.filled.notify_one();
    }

    /// Closes the queue: further items are ignored. Pending ones are delivered, or dropped if the handler was removed.
    pub(crate) fn close(&self) {
        self.lock().is_closed = true;
        self.filled.notify_one();
    }

    /// Stops delivery after the current item.
    pub(crate) fn remove(&self) {
        self.status.is_removed.store(true, Ordering::Release);
        let mut queue = self.lock();
        queue.is_closed = true;
        queue.items.clear();
        queue.merged = Merged::default();
        drop(queue);
        self.filled.notify_one();
    }

    fn is_removed(&self) -> bool {
        self.status.is_removed.load(Ordering::Acquire)
    }

    /// Calls the handler with each item until the queue is closed and empty.
    pub(crate) async fn run(self: Arc<Self>, handler: impl ResourceEventHandler<K>) {
        let _end = End(Arc::clone(&self.status));
        let mut told = 0_u32;
        while let Some(items) = self.next().await {
            for item in items {
                match item {
                    Item::Event(event) => self.tell(&handler, &event.event, &mut told).await,
                    Item::Replay(objects) => {
                        for object in objects.iter() {
                            let object = object.clone();
                            let event = Event::Added {
                                object,
                                is_in_initial_list: true,
                            };
                            self.tell(&handler, &event, &mut told).await;
                        }
                    }
                    Item::Resync(objects) => {
                        for object in objects.iter() {
                            let (old, new) = (object.clone(), object.clone());
                            self.tell(&handler, &Event::Updated { old, new }, &mut told).await;
                        }
                    }
                    Item::Synced => {
                        self.status.stage.send_replace(Stage::Synced);
                    }
                }
            }
        }
    }

    async fn tell(&self, handler: &impl ResourceEventHandler<K>, event: &Event<K>, told: &mut u32) {
        if self.is_removed() {
            return;
        }
        let failure = match AssertUnwindSafe(handler.on_event(event)).catch_unwind().await {
            Ok(Ok(())) => None,
            Ok(Err(err)) => Some(format!("failed: {err}")),
            Err(_) => Some("panicked".to_owned()),
        };
        if let Some(failure) = failure {
            self.status.failures.fetch_add(1, Ordering::Relaxed);
            tracing::error!(handler = self.status.name, ?event, "the handler {failure}");
        }
        *told += 1;
        if (*told).is_multiple_of(YIELD_AFTER) {
            tokio::task::yield_now().await;
        }
    }

    /// Returns the next items to deliver: all of them, or one if pending items may still be merged. `None` at the end.
    pub(crate) async fn next(&self) -> Option<VecDeque<Item<K>>> {
        loop {
            {
                let mut queue = self.lock();
                match self.order {
                    HandlerQueue::Unbounded if !queue.items.is_empty() => {
                        return Some(std::mem::take(&mut queue.items));
                    }
                    HandlerQueue::Coalescing(_) => {
                        if let Some(item) = queue.items.pop_front() {
                            return Some(VecDeque::from([item]));
                        }
                        if let Some(items) = queue.merged.pop() {
                            return Some(items);
                        }
                    }
                    HandlerQueue::Unbounded => {}
                }
                if queue.is_closed {
                    return None;
                }
            }
            self.filled.notified().await;
        }
    }

    pub(crate) fn resync(&self) -> MutexGuard<'_, Resync> {
        self.resync.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock(&self) -> MutexGuard<'_, Queue<K>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Marks the handler as ended when its task ends, for any reason.
struct End(Arc<Status>);

impl Drop for End {
    fn drop(&mut self) {
        self.0.end();
    }
}

impl<K> Drop for Listener<K> {
    fn drop(&mut self) {
        // Its task may never have started.
        self.status.end();
    }
}

impl Status {
    fn end(&self) {
        self.stage.send_if_modified(|stage| {
            let was_synced = match stage {
                Stage::Ended { .. } => return false,
                Stage::Synced => true,
                Stage::Syncing => false,
            };
            *stage = Stage::Ended { was_synced };
            true
        });
    }
}

impl<K: Cacheable> Queue<K> {
    fn push_or_merge(&mut self, item: Item<K>, most: usize) {
        if self.merged.is_empty() && self.items.len() < most {
            self.items.push_back(item);
        } else {
            self.merged.push(item);
        }
    }
}

/// Merged events, at most one per object, in the order of the first event of each object.
struct Merged<K> {
    next: u64,
    places: BTreeMap<ObjectKey, u64>,
    items: BTreeMap<u64, Slot<K>>,
}

enum Slot<K> {
    /// An item without an object.
    Item(Item<K>),
    /// A deletion, if there was one, and the event after it.
    Object(Option<Event<K>>, Option<Event<K>>),
}

impl<K> Default for Merged<K> {
    fn default() -> Self {
        Self {
            next: 0,
            places: BTreeMap::new(),
            items: BTreeMap::new(),
        }
    }
}

impl<K: Cacheable> Merged<K> {
    fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    fn push(&mut self, item: Item<K>) {
        let event = match item {
            Item::Event(told) => told.event.clone(),
            // A pending resync makes another one superfluous.
            Item::Resync(_) if self.items.values().any(|it| matches!(it, Slot::Item(Item::Resync(_)))) => return,
            Item::Replay(_) | Item::Resync(_) | Item::Synced => {
                // The order of the events of an object must not change.
                self.places.clear();
                self.items.insert(self.next, Slot::Item(item));
                self.next += 1;
                return;
            }
        };
        let key = event.object().key().clone();
        let place = self.places.get(&key).copied();
        let slot = place.and_then(|place| self.items.get_mut(&place));
        if let Some(Slot::Object(deleted, after)) = slot {
            merge(deleted, after, event);
            return;
        }
        let (mut deleted, mut after) = (None, None);
        merge(&mut deleted, &mut after, event);
        self.items.insert(self.next, Slot::Object(deleted, after));
        self.places.insert(key, self.next);
        self.next += 1;
    }

    fn pop(&mut self) -> Option<VecDeque<Item<K>>> {
        let (_, slot) = self.items.pop_first()?;
        Some(match slot {
            Slot::Item(item) => VecDeque::from([item]),
            Slot::Object(deleted, after) => {
                if let Some(event) = deleted.as_ref().or(after.as_ref()) {
                    self.places.remove(event.object().key());
                }
                let events = deleted.into_iter().chain(after);
                events.map(|event| Item::Event(Told::new(event))).collect()
            }
        })
    }
}

/// Merges an event into the pending ones of its object: a deletion, if there was one, and the event after it.
pub(crate) fn merge<K: Cacheable>(deleted: &mut Option<Event<K>>, after: &mut Option<Event<K>>, event: Event<K>) {
    let merged = match (after.take(), event) {
        (_, gone @ Event::Deleted { .. }) => {
            *deleted = Some(gone);
            None
        }
        (Some(Event::Added { is_in_initial_list, .. }), Event::Updated { new: object, .. }) => Some(Event::Added {
            object,
            is_in_initial_list,
        }),
        (Some(Event::Updated { old, .. }), Event::Updated { new, .. }) => Some(Event::Updated { old, new }),
        (_, other) => Some(other),
    };
    *after = merged;
}

impl<K> Clone for Item<K> {
    fn clone(&self) -> Self {
        match self {
            Self::Event(event) => Self::Event(Arc::clone(event)),
            Self::Replay(objects) => Self::Replay(objects.clone()),
            Self::Resync(objects) => Self::Resync(objects.clone()),
            Self::Synced => Self::Synced,
        }
    }
}
