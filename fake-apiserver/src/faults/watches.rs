//! The open watches, and the operations that a test can perform on each of them: inject events, hold the watch, or
//! break it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Context;

use super::gate::{Bookmarks, Flow, Gate, GateStep, Sending};
use super::watch_events::{HeldEvent, Injected, WatchEventKind};
use crate::api::request_info::RequestInfo;
use crate::api::status::Status;

/// The open watches, oldest first.
#[derive(Clone, Debug, Default)]
pub(crate) struct OpenWatches {
    /// The watches by id.
    open: Arc<Mutex<Open>>,
}

#[derive(Debug, Default)]
struct Open {
    next_id: u64,
    watches: BTreeMap<u64, Arc<Shared>>,
}

#[derive(Debug)]
struct Shared {
    id: u64,
    info: RequestInfo,
    client: Arc<str>,
    user_agent: String,
    /// The delivery state, and the waker of the waiting task.
    gate: Mutex<Gate>,
}

impl Shared {
    fn gate(&self) -> MutexGuard<'_, Gate> {
        self.gate.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl OpenWatches {
    fn lock(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Registers a watch. It is removed when the returned guard is dropped.
    pub(crate) fn enter(&self, info: RequestInfo, client: &Arc<str>, user_agent: &str) -> OpenWatch {
        let mut open = self.lock();
        open.next_id += 1;
        let id = open.next_id;
        let shared = Arc::new(Shared {
            id,
            info,
            client: Arc::clone(client),
            user_agent: user_agent.to_owned(),
            gate: Mutex::default(),
        });
        open.watches.insert(id, Arc::clone(&shared));
        OpenWatch {
            list: self.clone(),
            shared,
        }
    }

    /// Returns the open watches, oldest first.
    pub(crate) fn handles(&self) -> Vec<WatchHandle> {
        let handle = |shared: &Arc<Shared>| WatchHandle {
            shared: Arc::clone(shared),
        };
        self.lock().watches.values().map(handle).collect()
    }
}

/// The registration of an open watch.
#[derive(Debug)]
pub(crate) struct OpenWatch {
    list: OpenWatches,
    shared: Arc<Shared>,
}

impl OpenWatch {
    /// Returns the id of the watch, counted from 1.
    pub(crate) fn id(&self) -> u64 {
        self.shared.id
    }

    /// Returns the watch request.
    pub(crate) fn info(&self) -> &RequestInfo {
        &self.shared.info
    }

    /// Returns the client of the watch.
    pub(crate) fn client(&self) -> &Arc<str> {
        &self.shared.client
    }

    /// Returns a handle with which a test controls the watch.
    pub(crate) fn handle(&self) -> WatchHandle {
        WatchHandle {
            shared: Arc::clone(&self.shared),
        }
    }

    /// Returns the next step, and registers the task to be woken when the step changes.
    pub(crate) fn step(&self, cx: &Context<'_>) -> GateStep {
        let mut gate = self.shared.gate();
        match &mut gate.waker {
            Some(waker) => waker.clone_from(cx.waker()),
            none => *none = Some(cx.waker().clone()),
        }
        gate.step()
    }

    /// Counts an event that is about to be sent, and returns how to send it.
    pub(crate) fn sends(&self, revision: u64) -> Sending {
        self.shared.gate().sends(revision)
    }

    /// Counts an injected event as delivered.
    pub(crate) fn counts(&self, revision: u64) {
        let mut gate = self.shared.gate();
        gate.delivered += 1;
        gate.last_revision = gate.last_revision.max(revision);
    }

    /// Returns the last delivered `resourceVersion`; 0 before the first event.
    pub(crate) fn last_revision(&self) -> u64 {
        self.shared.gate().last_revision
    }

    /// Returns `true` if bookmarks of a type are withheld: the bookmark that ends the initial state, or all others.
    pub(crate) fn withholds(&self, is_initial_end: bool) -> bool {
        let gate = self.shared.gate();
        let fate = match is_initial_end {
            true => gate.initial_end,
            false => gate.bookmarks,
        };
        fate == Bookmarks::Withheld
    }

    /// Records that all events up to a revision were delivered or filtered out.
    pub(crate) fn reaches(&self, revision: u64) {
        self.shared.gate().position = revision;
    }

    /// Makes the pending events available to the test's handle.
    pub(crate) fn show_held(&self, held: Vec<HeldEvent>) {
        self.shared.gate().held = held;
    }
}

impl Drop for OpenWatch {
    fn drop(&mut self) {
        self.shared.gate().has_ended = true;
        self.list.lock().watches.remove(&self.shared.id);
    }
}

/// Handle of an open watch. Operations are ignored after the end of the watch.
///
/// Injected events are delivered even if the watch is held, but not if it is silenced.
#[derive(Clone, Debug)]
pub struct WatchHandle {
    shared: Arc<Shared>,
}

/// Information about the watch.
impl WatchHandle {
    /// Returns the id of the watch. Ids are counted from 1 and not reused.
    pub fn id(&self) -> u64 {
        self.shared.id
    }

    /// Returns the watch request.
    pub fn info(&self) -> &RequestInfo {
        &self.shared.info
    }

    /// Returns the client: the name of an in-process client, otherwise the `User-Agent`.
    pub fn client(&self) -> &str {
        &self.shared.client
    }

    /// Returns the client's `User-Agent`.
    pub fn user_agent(&self) -> &str {
        &self.shared.user_agent
    }

    /// Returns `true` if the watch has ended, or its client has disconnected.
    pub fn has_ended(&self) -> bool {
        self.shared.gate().has_ended
    }

    /// Returns the number of delivered events, including bookmarks and errors.
    pub fn delivered(&self) -> u64 {
        self.shared.gate().delivered
    }

    /// Returns the `resourceVersion` of the last delivered event; 0 before the first event.
    pub fn last_revision(&self) -> u64 {
        self.shared.gate().last_revision
    }

    /// Returns the revision up to which the client has received all events that match its selectors; 0 if unknown.
    pub(crate) fn position(&self) -> u64 {
        let gate = self.shared.gate();
        gate.position.max(gate.last_revision)
    }

    /// Returns `true` if the watch is [silenced](WatchHandle::silence).
    pub(crate) fn is_silent(&self) -> bool {
        self.shared.gate().flow == Flow::Silent
    }

    /// Returns the pending events of a held watch, in order; empty unless it [is held](WatchHandle::is_held). They are
    /// updated when the client polls for the next event, so read them while the runtime is idle.
    pub fn held(&self) -> Vec<HeldEvent> {
        self.shared.gate().held.clone()
    }

    /// Returns `true` if the watch is held and has delivered all [released](WatchHandle::release) events.
    pub fn is_held(&self) -> bool {
        self.shared.gate().flow == Flow::Held(0)
    }
}

/// Operations on the events of the watch.
impl WatchHandle {
    /// Delivers an event to this watch only. The stored objects are not changed, so the event may contradict them.
    pub fn send(&self, kind: WatchEventKind, object: serde_json::Value) {
        self.put(Injected::Event(kind, object.into()));
    }

    /// Delivers a bookmark with the last delivered `resourceVersion`, even if the client did not request bookmarks.
    /// Before the first event, the bookmark has the revision at which the watch started; it is not sent while the watch
    /// waits for its initial state. kube-apiserver sends bookmarks about once a minute, and before the end of a watch.
    pub fn bookmark(&self) {
        self.put(Injected::Bookmark);
    }

    /// Stops sending bookmarks. Clients must not depend on bookmarks, because servers do not guarantee them.
    pub fn withhold_bookmarks(&self) {
        self.change(|gate| gate.bookmarks = Bookmarks::Withheld);
    }

    /// Withholds the bookmark that ends the initial state of a streaming list (`sendInitialEvents`) until
    /// [`send_initial_end`](WatchHandle::send_initial_end), so that the client must treat the state as incomplete.
    /// Changes are delivered in the meantime. kube-apiserver withholds this bookmark while its watch cache lags behind
    /// etcd.
    pub fn withhold_initial_end(&self) {
        self.change(|gate| gate.initial_end = Bookmarks::Withheld);
    }

    /// Sends the withheld bookmark and stops withholding it.
    pub fn send_initial_end(&self) {
        self.change(|gate| {
            gate.initial_end = Bookmarks::Sent;
            gate.injected.push_back(Injected::InitialEnd);
        });
    }

    /// Delivers each of the next `events` events twice, as if the client had resumed from an older `resourceVersion`
    /// than it has received.
    pub fn duplicate(&self, events: u64) {
        self.change(|gate| gate.duplicates = gate.duplicates.saturating_add(events));
    }
}

/// Operations on the timing of the watch.
impl WatchHandle {
    /// Delivers nothing, not even a regular end of the watch, until [`release`](WatchHandle::release) or
    /// [`resume`](WatchHandle::resume). Simulates a slow network, or a server that lags behind. Up to 512 changes are
    /// read ahead, so that a compaction does not drop them.
    pub fn hold(&self) {
        self.change(|gate| gate.flow = Flow::Held(0));
    }

    /// Delivers this number of events of a held watch, including bookmarks.
    pub fn release(&self, events: u64) {
        self.change(|gate| match &mut gate.flow {
            Flow::Held(more) => *more = more.saturating_add(events),
            Flow::Open | Flow::Silent => {}
        });
    }

    /// Resumes the watch, and delivers all pending events immediately.
    pub fn resume(&self) {
        self.change(|gate| gate.flow = Flow::Open);
    }

    /// Delivers nothing more, not even the end of the watch, as if a server or a load balancer had died without closing
    /// the connection. [`resume`](WatchHandle::resume) undoes this; [`hold`](WatchHandle::hold) replaces it.
    pub fn silence(&self) {
        self.change(|gate| gate.flow = Flow::Silent);
    }
}

/// Operations that end the watch.
impl WatchHandle {
    /// Ends the watch with an ERROR event with 410 Expired, as for a watch that resumes from a compacted version.
    pub fn expire(&self) {
        self.put(Injected::Expire);
    }

    /// Ends the watch with an ERROR event that contains this Status, as if the server had failed during the watch.
    pub fn fail(&self, status: Status) {
        self.put(Injected::Error(Box::new(status)));
    }

    /// Ends the watch as after its timeout.
    pub fn end(&self) {
        self.put(Injected::End);
    }

    /// Breaks the connection between two events: the client receives an error instead of the end of the watch.
    pub fn cut(&self) {
        self.put(Injected::Cut);
    }

    /// Breaks the connection inside the next event, after at most this number of bytes.
    pub fn cut_inside(&self, bytes: usize) {
        self.change(|gate| gate.cut_inside = Some(bytes));
    }

    fn put(&self, injected: Injected) {
        self.change(|gate| gate.injected.push_back(injected));
    }

    fn change(&self, change: impl FnOnce(&mut Gate)) {
        let waker = {
            let mut gate = self.shared.gate();
            change(&mut gate);
            if gate.flow != Flow::Held(0) {
                gate.held.clear();
            }
            gate.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}
