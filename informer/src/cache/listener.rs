//! `Listener`: delivers events to one handler.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Duration;

use futures::FutureExt;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use super::handler_failures::HandlerFailures;
use super::sorted::Sorted;
use crate::error::text_of_panic;
use crate::handler::{Event, ResourceEventHandler};
use crate::object::Cacheable;
use crate::sync::Mutex;
use crate::{Error, ObjectKey, deadline};

/// Minimum resync period.
pub(crate) const MIN_RESYNC: Duration = Duration::from_secs(1);

/// Number of events after which a handler yields to other tasks.
const YIELD_AFTER: u32 = 128;

/// Policy for queueing events if a handler is too slow. The cache and other handlers are never delayed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum HandlerQueue {
    /// Queues all events without a limit. The handler receives every change. Memory use grows with the number of
    /// pending events.
    #[default]
    Unbounded,
    /// Once this number of events are pending, merges further events of the same object. The handler may skip
    /// intermediate states, but receives the last state of each object and its deletion. Usually, at most this number
    /// of events plus two per object are pending. There may be more while a resync is pending, because events before
    /// and after a resync are not merged with each other.
    Coalescing(usize),
}

/// Options of an event handler.
#[derive(Clone, Debug, Default)]
pub struct HandlerOptions {
    /// Interval at which the handler receives all objects again, as updates without a change; at least one second. Zero
    /// disables resyncs. Default: `None`, which uses the informer's resync period.
    pub resync_period: Option<Duration>,
    /// Policy for queueing events if the handler is too slow.
    pub queue: HandlerQueue,
    /// Name of the handler in messages. Default: the name of its type.
    pub name: Option<String>,
    /// Unused. End struct literals with `..HandlerOptions::default()`, because fields may be added.
    #[doc(hidden)]
    pub _more: (),
}

/// An event that all handlers share. Each object is decoded at most once while handlers are receiving the event.
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

/// An item of a handler's queue.
pub(crate) enum Item<K> {
    Event(Arc<Told<K>>),
    /// Replays all objects that existed when the handler was added.
    Replay(Sorted<K>),
    /// Delivers all objects again.
    Resync(Sorted<K>),
    /// Marks the handler as synced: it has received the initial list.
    Synced,
}

/// Queue and state of one handler.
pub(crate) struct Listener<K> {
    /// Guards the pending items.
    queue: Mutex<Queue<K>>,
    filled: Notify,
    status: Arc<Status>,
    failures: Arc<HandlerFailures>,
    order: HandlerQueue,
    /// Guards the state of resyncs.
    resync: Mutex<Resync>,
}

/// State of a handler's resyncs.
#[derive(Debug)]
pub(crate) struct Resync {
    pub(crate) period: Duration,
    pub(crate) due: Option<Instant>,
    /// Set if a resync is due. The next [`Item::Resync`] is then delivered to this handler.
    pub(crate) is_requested: bool,
    /// Set if the handler receives updates without a change: it is new, or it took part in the last resync.
    pub(crate) is_syncing: bool,
}

/// Stage in the life cycle of a handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Syncing,
    Synced,
    /// The handler was removed, or the informer has stopped.
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

/// Handle to a handler of an informer. Dropping it does not remove the handler.
#[derive(Clone)]
pub struct HandlerRegistration {
    status: Arc<Status>,
}

impl HandlerRegistration {
    /// Returns `true` if the handler has received the initial list, or, if it was added later, all objects that existed
    /// at that time.
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
    /// Fails if the handler is removed, or the informer stops, before the handler has synced.
    pub async fn synced(&self) -> Result<(), Error> {
        let mut stage = self.status.stage.subscribe();
        let ended = || Error::refused(format!("the handler {} ended before it had synced", self.status.name));
        match stage.wait_for(|it| *it != Stage::Syncing).await.map(|it| *it) {
            Ok(Stage::Synced | Stage::Ended { was_synced: true }) => Ok(()),
            Ok(Stage::Syncing | Stage::Ended { was_synced: false }) | Err(_) => Err(ended()),
        }
    }

    /// Returns the number of events for which the handler returned an error or panicked.
    pub fn failures(&self) -> u64 {
        self.status.failures.load(Ordering::Relaxed)
    }

    /// Returns the name of the handler in messages.
    pub fn name(&self) -> &str {
        &self.status.name
    }

    /// Waits until the handler will not be called again, because it was removed or the informer has stopped. Must not
    /// be called by the handler itself.
    pub async fn ended(&self) {
        let mut stage = self.status.stage.subscribe();
        // Cannot fail: the registration keeps the sender alive.
        let _ = stage.wait_for(|it| matches!(it, Stage::Ended { .. })).await;
    }

    /// Returns `true` if the handler will not be called again.
    pub(crate) fn has_ended(&self) -> bool {
        matches!(*self.status.stage.borrow(), Stage::Ended { .. })
    }

    /// Returns `true` if both registrations refer to the same handler.
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

/// Pending items. All items in `items` are delivered before the items in `merged`.
struct Queue<K> {
    items: VecDeque<Item<K>>,
    merged: Merged<K>,
    is_closed: bool,
}

impl<K: Cacheable> Listener<K> {
    pub(crate) fn new(
        name: String,
        period: Duration,
        order: HandlerQueue,
        failures: &Arc<HandlerFailures>,
    ) -> Arc<Self> {
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
            failures: Arc::clone(failures),
            order,
            resync: Mutex::new(Resync {
                period,
                due: (!period.is_zero()).then(|| deadline::after(Instant::now(), period)),
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

    /// Adds items in order. `most` is the maximum number of items.
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

    /// Closes the queue, so that further items are ignored. Pending items are still delivered, unless the handler was
    /// removed.
    pub(crate) fn close(&self) {
        self.lock().is_closed = true;
        self.filled.notify_one();
    }

    /// Removes all pending items, and stops delivery after the current item.
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

    /// Calls the handler for each item until the queue is closed and empty.
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
            Err(panic) => Some(format!("panicked: {}", text_of_panic(&*panic))),
        };
        if let Some(failure) = failure {
            self.status.failures.fetch_add(1, Ordering::Relaxed);
            self.failures.count(&self.status.name);
            let (handler, object) = (&self.status.name, event.object().key());
            tracing::error!(handler, %object, ?event, "the handler {failure}");
        }
        *told += 1;
        if (*told).is_multiple_of(YIELD_AFTER) {
            tokio::task::yield_now().await;
        }
    }

    /// Waits for the next items to deliver: all pending items, or only the first one if later items may still be
    /// merged. Returns `None` when the queue is closed and empty.
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

/// Guard that marks the handler as ended when its task ends for any reason.
struct End(Arc<Status>);

impl Drop for End {
    fn drop(&mut self) {
        self.0.end();
    }
}

impl<K> Drop for Listener<K> {
    fn drop(&mut self) {
        // The task may never have started, in which case it has not marked the handler as ended.
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

/// Merged events, ordered by each object's first event. Events before and after a resync are not merged with each
/// other.
struct Merged<K> {
    next: u64,
    places: BTreeMap<ObjectKey, u64>,
    items: BTreeMap<u64, Slot<K>>,
}

enum Slot<K> {
    /// An item that does not belong to an object.
    Item(Item<K>),
    /// The object's deletion, if any, and its last event after the deletion.
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
            // A single pending resync is sufficient.
            Item::Resync(_) if self.items.values().any(|it| matches!(it, Slot::Item(Item::Resync(_)))) => return,
            Item::Replay(_) | Item::Resync(_) | Item::Synced => {
                // Later events must not be merged with events before this item.
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

/// Merges an event of an object into its pending events: its deletion, if any, and the last event after the deletion.
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

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use k8s_openapi::api::core::v1::ConfigMap;

    use super::*;
    use crate::CachedObject;
    use crate::handler::HandlerFn;
    use crate::interleave::{block_on, interleave};

    fn listener(order: HandlerQueue) -> Arc<Listener<ConfigMap>> {
        Listener::new("maps".to_owned(), Duration::ZERO, order, &Arc::default())
    }

    fn push(listener: &Listener<ConfigMap>, name: &str) {
        let text = format!(r#"{{"metadata": {{"name": "{name}", "resourceVersion": "1"}}}}"#);
        let event = Event::Added {
            object: CachedObject::decode(&text).expect("the object can be decoded"),
            is_in_initial_list: false,
        };
        listener.push(1, [Item::Event(Told::new(event))].into_iter());
    }

    #[test]
    fn handler_receives_each_item_exactly_once_and_in_order() {
        let orders = [HandlerQueue::Unbounded, HandlerQueue::Coalescing(2)];
        for (seed, order) in (0..300).flat_map(|seed| orders.map(|order| (seed, order))) {
            let listener = listener(order);
            let (seen, producers) = (Arc::new(Mutex::new(Vec::new())), AtomicUsize::new(2));
            let noted = Arc::clone(&seen);
            let handler = HandlerFn::new(move |event: &Event<ConfigMap>| {
                let name = event.object().key().name().to_owned();
                noted.lock().unwrap_or_else(PoisonError::into_inner).push(name);
            });
            let produce = |names: [&str; 4]| {
                names.iter().for_each(|name| push(&listener, name));
                if producers.fetch_sub(1, Ordering::Relaxed) == 1 {
                    listener.close();
                }
            };
            interleave(
                seed,
                vec![
                    Box::new(|| produce(["a-0", "a-1", "a-2", "a-3"])),
                    Box::new(|| produce(["b-0", "b-1", "b-2", "b-3"])),
                    // Panics if the handler is not woken for an item.
                    Box::new(|| block_on(Arc::clone(&listener).run(handler))),
                ],
            );
            let seen = seen.lock().unwrap_or_else(PoisonError::into_inner).clone();
            for producer in ["a", "b"] {
                let names: Vec<&String> = seen.iter().filter(|it| it.starts_with(producer)).collect();
                let expected: Vec<_> = (0..4).map(|it| format!("{producer}-{it}")).collect();
                assert_eq!(names, expected.iter().collect::<Vec<_>>(), "seed {seed}, {order:?}");
            }
        }
    }

    #[test]
    fn removed_handler_is_not_called_again() {
        for seed in 0..300 {
            let listener = listener(HandlerQueue::Unbounded);
            let (is_removed, late) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
            let (removed, counted, calls) = (Arc::clone(&is_removed), Arc::clone(&late), Mutex::new(0_u32));
            let handler = HandlerFn::new(move |_: &Event<ConfigMap>| {
                if removed.load(Ordering::Acquire) {
                    counted.fetch_add(1, Ordering::Relaxed);
                }
                // Locks a mutex, so that the handler may be removed during the call.
                *calls.lock().unwrap_or_else(PoisonError::into_inner) += 1;
            });
            let produce = || {
                for name in ["a", "b", "c", "d", "e", "f"] {
                    push(&listener, name);
                }
            };
            let remove = || {
                listener.remove();
                is_removed.store(true, Ordering::Release);
            };
            interleave(
                seed,
                vec![
                    Box::new(produce),
                    Box::new(remove),
                    Box::new(|| block_on(Arc::clone(&listener).run(handler))),
                ],
            );
            assert_eq!(
                late.load(Ordering::Relaxed),
                0,
                "the handler is called after its removal, seed {seed}"
            );
            assert!(listener.registration().has_ended());
            assert!(listener.lock().items.is_empty(), "removed items are kept, seed {seed}");
        }
    }
}
