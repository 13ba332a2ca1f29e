//! `Processor`: applies deltas to the store and delivers the resulting events.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::future::{BoxFuture, select};
use tokio::time::Instant;
use tracing::Instrument;

use super::delta_queue::{Delta, QueueOrder};
use super::handler_failures::HandlerFailures;
use super::index::IndexValues;
use super::indexer::{Indexer, Scope, Writer, in_order};
use super::listener::{HandlerQueue, HandlerRegistration, Item, Listener, Told};
use super::sorted::Sorted;
use crate::handler::{Event, ResourceEventHandler};
use crate::object::{Cacheable, CachedObject};
use crate::tasks::TaskGroup;
use crate::{ResourceVersion, deadline, spans};

/// Number of objects after which the task that computes index values yields to other tasks.
const YIELD_AFTER: usize = 32;

/// Event handlers of an informer. Locked while a batch is applied and delivered, so that a new handler receives each
/// change exactly once: either as part of the initial contents or as an event.
pub(crate) struct Processor<K> {
    listeners: Vec<Arc<Listener<K>>>,
    /// Failed calls of all handlers, including removed handlers.
    failures: Arc<HandlerFailures>,
    /// Tasks of handlers that were added before the informer was run.
    to_start: Vec<(HandlerRegistration, BoxFuture<'static, ()>)>,
    /// Tasks of running handlers; `None` before and after the informer runs.
    tasks: Option<TaskGroup>,
    /// For each source, set if the store contains its first list.
    synced: Vec<bool>,
    scopes: Vec<Scope>,
    order: QueueOrder,
    /// For each source, the newest version of the changes that were applied, if the store may lack changes with lower
    /// versions, because deltas that are grouped by object are still waiting.
    newest: Vec<(usize, ResourceVersion)>,
}

/// Computes the index values of the objects in a batch and of the objects that they replace. Yields to other tasks
/// repeatedly, because index functions may be slow and batches large.
pub(crate) async fn index_values<K: Cacheable>(batch: &[Delta<K>], indexer: &Indexer<K>) -> IndexValues<K> {
    let mut values = indexer.index_values();
    if values.is_void() {
        return values;
    }
    let known = |key| indexer.read().objects.get(key).cloned();
    let mut count = 0;
    for delta in batch {
        let objects = match delta {
            Delta::Added(object) | Delta::Updated(object) => std::slice::from_ref(object),
            Delta::Deleted(object) | Delta::Vanished(object) => {
                known(object.key()).iter().for_each(|it| values.compute(it));
                pause(&mut count).await;
                continue;
            }
            Delta::Replaced { objects, .. } => objects,
            Delta::Resync | Delta::Bookmark { .. } => continue,
        };
        for object in objects {
            let old = known(object.key());
            if old.as_ref().is_none_or(|it| !it.ptr_eq(object)) {
                values.compute(object);
                old.iter().for_each(|it| values.compute(it));
            }
            pause(&mut count).await;
        }
    }
    values
}

/// Counts an object, and yields to other tasks after every `YIELD_AFTER` objects.
async fn pause(count: &mut usize) {
    *count += 1;
    if count.is_multiple_of(YIELD_AFTER) {
        tokio::task::yield_now().await;
    }
}

/// Result of applying a delta.
enum Outcome<K> {
    Event {
        told: Arc<Told<K>>,
        /// Set if this state was already stored, so that the object has not changed.
        is_sync: bool,
    },
    Resync(Sorted<K>),
    Synced,
}

/// Records `version` for its source, unless it is empty or a later version is already recorded.
fn note_newest(newest: &mut Vec<(usize, ResourceVersion)>, source: usize, version: &ResourceVersion) {
    if version.is_empty() {
        return;
    }
    match newest.iter_mut().find(|(it, _)| *it == source) {
        Some((_, newest)) if version < newest => {}
        Some((_, newest)) => newest.clone_from(version),
        None => newest.push((source, version.clone())),
    }
}

impl<K: Cacheable> Processor<K> {
    pub(crate) fn new(scopes: Vec<Scope>, order: QueueOrder) -> Self {
        Self {
            listeners: Vec::new(),
            failures: Arc::default(),
            to_start: Vec::new(),
            tasks: None,
            synced: vec![false; scopes.len()],
            scopes,
            order,
            newest: Vec::new(),
        }
    }

    /// Returns the counters of failed calls.
    pub(crate) fn failures(&self) -> Arc<HandlerFailures> {
        Arc::clone(&self.failures)
    }

    pub(crate) fn has_synced(&self) -> bool {
        self.synced.iter().all(|it| *it)
    }

    /// Adds a handler, and sends it the contents of `indexer`. `beside` is a future that runs concurrently with the
    /// handler; when one of them ends, the other is dropped.
    pub(crate) fn add(
        &mut self,
        handler: impl ResourceEventHandler<K>,
        beside: impl Future<Output = ()> + Send + 'static,
        name: String,
        period: Duration,
        order: HandlerQueue,
        indexer: &Indexer<K>,
    ) -> HandlerRegistration {
        let span = spans::handler(&name);
        self.failures.add(&name);
        let listener = Listener::new(name, period, order, &self.failures);
        let objects = indexer.lister().snapshot().0;
        if objects.len() > 0 {
            listener.push(1, [Item::Replay(objects)].into_iter());
        }
        if self.has_synced() {
            listener.push(1, [Item::Synced].into_iter());
        }
        let registration = listener.registration();
        let delivering = Arc::clone(&listener).run(handler);
        let task = async move {
            let _first = select(pin!(delivering), pin!(beside)).await;
        };
        let task = task.instrument(span);
        match &self.tasks {
            Some(tasks) => tasks.spawn(task),
            None => self.to_start.push((registration.clone(), Box::pin(task))),
        }
        self.listeners.push(listener);
        registration
    }

    /// Removes a handler if it still exists.
    pub(crate) fn remove(&mut self, registration: &HandlerRegistration) {
        self.to_start.retain(|(it, _)| !it.is(registration));
        self.listeners.retain(|listener| {
            let is_other = !listener.registration().is(registration);
            if !is_other {
                listener.remove();
            }
            is_other
        });
        let name = registration.name();
        if !self.listeners.iter().any(|it| it.registration().name() == name) {
            self.failures.remove(name);
        }
    }

    /// Starts the tasks of handlers that were added before the informer was run.
    pub(crate) fn start(&mut self) {
        let tasks = TaskGroup::default();
        self.to_start.drain(..).for_each(|(_, task)| tasks.spawn(task));
        self.tasks = Some(tasks);
    }

    /// Closes all queues. Returns the tasks of the handlers, which end when the pending items have been delivered.
    pub(crate) fn close(&mut self) -> Option<TaskGroup> {
        self.to_start.clear();
        self.listeners.drain(..).for_each(|listener| listener.close());
        self.tasks.take()
    }

    /// Returns the time at which the next resync is due.
    pub(crate) fn next_resync(&self) -> Option<Instant> {
        self.listeners.iter().filter_map(|it| it.resync().due).min()
    }

    /// Requests a resync for each handler whose resync is due. Returns `true` if a resync was requested.
    pub(crate) fn request_resyncs(&self) -> bool {
        let now = Instant::now();
        let mut any = false;
        for listener in &self.listeners {
            let mut resync = listener.resync();
            if resync.due.is_some_and(|due| due <= now) {
                resync.due = Some(deadline::after(now, resync.period));
                // Skip the resync if the first list has not arrived.
                resync.is_requested = self.has_synced();
                any |= resync.is_requested;
            }
        }
        any
    }

    /// Applies a batch to the store and delivers the resulting events. `is_last` is set if no further deltas are
    /// waiting.
    pub(crate) fn process(
        &mut self,
        batch: Vec<Delta<K>>,
        is_last: bool,
        indexer: &Indexer<K>,
        values: IndexValues<K>,
    ) {
        let mut outcomes = Vec::with_capacity(batch.len());
        let mut newest = std::mem::take(&mut self.newest);
        let mut writer = indexer.writer_with(values);
        for delta in batch {
            self.apply(delta, &mut writer, &mut outcomes, &mut newest);
        }
        if self.order == QueueOrder::Arrival || is_last {
            for (source, version) in newest {
                writer.moved_to(source, version);
            }
        } else {
            self.newest = newest;
        }
        drop(writer);
        self.hand_out(&outcomes);
    }

    fn apply(
        &mut self,
        delta: Delta<K>,
        writer: &mut Writer<'_, K>,
        outcomes: &mut Vec<Outcome<K>>,
        newest: &mut Vec<(usize, ResourceVersion)>,
    ) {
        match delta {
            Delta::Added(object) | Delta::Updated(object) => {
                self.note_version(&object, newest);
                let old = writer.insert(object.clone());
                self.tell_present(old, object, outcomes);
            }
            Delta::Deleted(object) => {
                self.note_version(&object, newest);
                // Ignore deletions of objects that the cache never contained.
                if writer.remove(object.key()).is_some() {
                    self.tell_deleted(object, false, outcomes);
                }
            }
            Delta::Vanished(last) => {
                if writer.remove(last.key()).is_some() {
                    self.tell_deleted(last, true, outcomes);
                }
            }
            Delta::Replaced {
                source,
                mut objects,
                unread,
                version,
            } => {
                let scope = self.scopes.get(source).cloned().unwrap_or(Scope::All);
                objects.extend(unread.iter().filter_map(|it| it.known(writer.get(&it.key))));
                let difference = writer.replace(&scope, in_order(objects));
                newest.retain(|(it, _)| *it != source);
                let _is_restored = writer.listed_at(source, version);
                for gone in difference.deleted {
                    self.tell_deleted(gone, true, outcomes);
                }
                for (old, object) in difference.present {
                    self.tell_present(old, object, outcomes);
                }
                self.note_synced(source, outcomes);
            }
            Delta::Resync => outcomes.push(Outcome::Resync(writer.snapshot())),
            Delta::Bookmark {
                source,
                version,
                ends_list,
            } => {
                if !ends_list {
                    return note_newest(newest, source, &version);
                }
                // Changes of objects in the list may have been applied before its end. After a restore, versions of
                // earlier changes must not be mistaken for them.
                if writer.listed_at(source, version) {
                    newest.retain(|(it, _)| *it != source);
                }
                self.note_synced(source, outcomes);
            }
        }
    }

    /// Records the version of an object from an event.
    fn note_version(&self, object: &CachedObject<K>, newest: &mut Vec<(usize, ResourceVersion)>) {
        let version = object.resource_version();
        let Some(source) = self.scopes.iter().position(|scope| scope.contains(object.key())) else {
            return;
        };
        note_newest(newest, source, version);
    }

    fn note_synced(&mut self, source: usize, outcomes: &mut Vec<Outcome<K>>) {
        let had_synced = self.has_synced();
        if let Some(synced) = self.synced.get_mut(source) {
            *synced = true;
        }
        if !had_synced && self.has_synced() {
            outcomes.push(Outcome::Synced);
        }
    }

    fn tell_present(&self, old: Option<CachedObject<K>>, object: CachedObject<K>, outcomes: &mut Vec<Outcome<K>>) {
        if self.listeners.is_empty() {
            return;
        }
        let (event, is_sync) = match old {
            Some(old) => {
                let is_sync = !old.resource_version().is_empty() && old.is_same_state(&object);
                (Event::Updated { old, new: object }, is_sync)
            }
            None => {
                let is_in_initial_list = !self.has_synced();
                let event = Event::Added {
                    object,
                    is_in_initial_list,
                };
                (event, false)
            }
        };
        // Most lists contain only known states. They are only delivered if a handler expects a resync.
        if is_sync && !self.listeners.iter().any(|it| it.resync().is_syncing) {
            return;
        }
        let told = Told::new(event);
        outcomes.push(Outcome::Event { told, is_sync });
    }

    fn tell_deleted(&self, object: CachedObject<K>, final_state_unknown: bool, outcomes: &mut Vec<Outcome<K>>) {
        if self.listeners.is_empty() {
            return;
        }
        let told = Told::new(Event::Deleted {
            object,
            final_state_unknown,
        });
        outcomes.push(Outcome::Event { told, is_sync: false });
    }

    fn hand_out(&self, outcomes: &[Outcome<K>]) {
        for listener in &self.listeners {
            let mut resync = listener.resync();
            let items = outcomes.iter().filter_map(|outcome| match outcome {
                Outcome::Event { is_sync: true, .. } if !resync.is_syncing => None,
                Outcome::Event { told, .. } => Some(Item::Event(Arc::clone(told))),
                Outcome::Resync(objects) => {
                    resync.is_syncing = std::mem::take(&mut resync.is_requested);
                    resync.is_syncing.then(|| Item::Resync(objects.clone()))
                }
                Outcome::Synced => Some(Item::Synced),
            });
            listener.push(outcomes.len(), items);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::PoisonError;

    use futures::FutureExt;
    use k8s_openapi::api::core::v1::ConfigMap;

    use super::*;
    use crate::handler::HandlerFn;
    use crate::interleave::interleave;
    use crate::sync::Mutex;

    fn map(number: u64) -> CachedObject<ConfigMap> {
        let text = format!(
            r#"{{"metadata": {{"name": "map-{number}", "resourceVersion": "{}"}}}}"#,
            number + 1
        );
        CachedObject::decode(&text).expect("the object can be decoded")
    }

    /// Returns the names of the objects that the newest handler has received.
    fn received(processor: &Processor<ConfigMap>) -> Vec<String> {
        let listener = processor.listeners.last().expect("a handler was added");
        let items = listener.next().now_or_never().flatten().unwrap_or_default();
        let names = items.iter().flat_map(|item| match item {
            Item::Event(told) => vec![told.event().object().key().to_string()],
            Item::Replay(objects) => objects.iter().map(|it| it.key().to_string()).collect(),
            Item::Resync(_) | Item::Synced => Vec::new(),
        });
        let mut names: Vec<_> = names.collect();
        names.sort();
        names
    }

    #[test]
    fn new_handler_receives_each_object_exactly_once() {
        for seed in 0..300 {
            let indexer = Indexer::<ConfigMap>::new();
            let processor = Mutex::new(Processor::new(vec![Scope::All], QueueOrder::Arrival));
            let locked = || processor.lock().unwrap_or_else(PoisonError::into_inner);
            let changes = || {
                for number in 0..6 {
                    let values = indexer.index_values();
                    locked().process(vec![Delta::Added(map(number))], true, &indexer, values);
                }
            };
            let handlers = || {
                for name in ["one", "other"] {
                    let handler = HandlerFn::new(|_: &Event<ConfigMap>| {});
                    let (period, order) = (Duration::ZERO, HandlerQueue::Unbounded);
                    locked().add(
                        handler,
                        std::future::pending(),
                        name.to_owned(),
                        period,
                        order,
                        &indexer,
                    );
                }
            };
            interleave(seed, vec![Box::new(changes), Box::new(handlers)]);
            let expected: Vec<_> = (0..6).map(|it| format!("map-{it}")).collect();
            assert_eq!(received(&locked()), expected, "the results differ with seed {seed}");
        }
    }
}
