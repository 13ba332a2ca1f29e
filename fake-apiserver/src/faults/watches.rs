//! The open watches, and what a test may do to each: put events in, hold it, break it.

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
    /// Guards the list.
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
    /// Guards what may be delivered, and who waits for it.
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

    /// Enters a watch; it leaves when what this returns is dropped.
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

    /// The open watches, oldest first.
    pub(crate) fn handles(&self) -> Vec<WatchHandle> {
        let handle = |shared: &Arc<Shared>| WatchHandle {
            shared: Arc::clone(shared),
        };
        self.lock().watches.values().map(handle).collect()
    }
}

/// A watch's own end of the list.
#[derive(Debug)]
pub(crate) struct OpenWatch {
    list: OpenWatches,
    shared: Arc<Shared>,
}

impl OpenWatch {
    /// The number of the watch, counted from 1.
    pub(crate) fn id(&self) -> u64 {
        self.shared.id
    }

    /// Returns the watch request.
    pub(crate) fn info(&self) -> &RequestInfo {
        &self.shared.info
    }

    /// Returns its client.
    pub(crate) fn client(&self) -> &Arc<str> {
        &self.shared.client
    }

    /// The test's end.
    pub(crate) fn handle(&self) -> WatchHandle {
        WatchHandle {
            shared: Arc::clone(&self.shared),
        }
    }

    /// Returns the next step. Later changes of it wake the task.
    pub(crate) fn step(&self, cx: &Context<'_>) -> GateStep {
        let mut gate = self.shared.gate();
        match &mut gate.waker {
            Some(waker) => waker.clone_from(cx.waker()),
            none => *none = Some(cx.waker().clone()),
        }
        gate.step()
    }

    /// Counts an event that is about to be sent, and says how it is.
    pub(crate) fn sends(&self, revision: u64) -> Sending {
        self.shared.gate().sends(revision)
    }

    /// Counts an event that a test put in.
    pub(crate) fn counts(&self, revision: u64) {
        let mut gate = self.shared.gate();
        gate.delivered += 1;
        gate.last_revision = gate.last_revision.max(revision);
    }

    /// The resourceVersion delivered last; 0 if there was none.
    pub(crate) fn last_revision(&self) -> u64 {
        self.shared.gate().last_revision
    }

    /// Returns `true` if a bookmark is suppressed.
    pub(crate) fn withholds(&self, is_initial_end: bool) -> bool {
        let gate = self.shared.gate();
        let fate = match is_initial_end {
            true => gate.initial_end,
            false => gate.bookmarks,
        };
        fate == Bookmarks::Withheld
    }

    /// Notes that everything up to a revision has been delivered or was not selected.
    pub(crate) fn reaches(&self, revision: u64) {
        self.shared.gate().position = revision;
    }

    /// Shows the test what waits.
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

/// An open watch, as a test sees it. It may have ended meanwhile; what is done to it then is lost.
///
/// What is put in passes a watch that is held. It does not pass one that is silenced.
#[derive(Clone, Debug)]
pub struct WatchHandle {
    shared: Arc<Shared>,
}

/// Identity of the watch.
impl WatchHandle {
    /// The number of the watch, counted from 1 over the life of the server.
    pub fn id(&self) -> u64 {
        self.shared.id
    }

    /// Returns the watch request.
    pub fn info(&self) -> &RequestInfo {
        &self.shared.info
    }

    /// Returns its client: the name of an in-process client, else its `User-Agent`.
    pub fn client(&self) -> &str {
        &self.shared.client
    }

    /// The client's `User-Agent`.
    pub fn user_agent(&self) -> &str {
        &self.shared.user_agent
    }

    /// Returns `true` if it has ended, or the client has left it.
    pub fn has_ended(&self) -> bool {
        self.shared.gate().has_ended
    }

    /// Returns the number of delivered events, bookmarks and errors included.
    pub fn delivered(&self) -> u64 {
        self.shared.gate().delivered
    }

    /// Returns the resourceVersion of the last delivered event; 0 if there was none.
    pub fn last_revision(&self) -> u64 {
        self.shared.gate().last_revision
    }

    /// The revision up to which its client has seen everything; 0 if it has received nothing yet.
    pub(crate) fn position(&self) -> u64 {
        let gate = self.shared.gate();
        gate.position.max(gate.last_revision)
    }

    /// Returns `true` if it is [silenced](WatchHandle::silence).
    pub(crate) fn is_silent(&self) -> bool {
        self.shared.gate().flow == Flow::Silent
    }

    /// The events that wait behind a held watch, in order; none unless it [is held](WatchHandle::is_held). They are
    /// shown when the client has asked for the next event, as it does when it waits, so look when the runtime is idle.
    pub fn held(&self) -> Vec<HeldEvent> {
        self.shared.gate().held.clone()
    }

    /// Returns `true` if it is held and has delivered all that was released.
    pub fn is_held(&self) -> bool {
        self.shared.gate().flow == Flow::Held(0)
    }
}

/// Content of the watch.
impl WatchHandle {
    /// Delivers an event to this watch alone. State does not change: the client may receive a false event.
    pub fn send(&self, kind: WatchEventKind, object: serde_json::Value) {
        self.put(Injected::Event(kind, object.into()));
    }

    /// Delivers a bookmark with the resourceVersion that was delivered last, whether the client requested bookmarks or
    /// not; where nothing was delivered yet, with the one the client began with, and none where it began with none.
    /// Real servers send them about once a minute, and before the end of a watch.
    pub fn bookmark(&self) {
        self.put(Injected::Bookmark);
    }

    /// Sends bookmarks no more: they are a courtesy of the server, on which a client must not depend.
    pub fn withhold_bookmarks(&self) {
        self.change(|gate| gate.bookmarks = Bookmarks::Withheld);
    }

    /// Does not send the bookmark that ends the initial state of a streaming list (`sendInitialEvents`) until
    /// [`send_initial_end`](WatchHandle::send_initial_end): the client may not believe that it has seen all. Changes
    /// that come meanwhile pass. So it is on a server whose watch cache lags behind etcd.
    pub fn withhold_initial_end(&self) {
        self.change(|gate| gate.initial_end = Bookmarks::Withheld);
    }

    /// Sends the bookmark that was withheld, and withholds no other.
    pub fn send_initial_end(&self) {
        self.change(|gate| {
            gate.initial_end = Bookmarks::Sent;
            gate.injected.push_back(Injected::InitialEnd);
        });
    }

    /// Delivers the next so many events twice each: what a client sees that resumes from an older resourceVersion than
    /// it has seen.
    pub fn duplicate(&self, events: u64) {
        self.change(|gate| gate.duplicates = gate.duplicates.saturating_add(events));
    }
}

/// Timing of the watch.
impl WatchHandle {
    /// Delivers nothing until [`release`](WatchHandle::release) or [`resume`](WatchHandle::resume), nor does the watch
    /// end by itself: a slow network, or a server that is behind. Reads up to 512 changes ahead, which compaction does
    /// not take away.
    pub fn hold(&self) {
        self.change(|gate| gate.flow = Flow::Held(0));
    }

    /// Lets so many more events of a held watch pass, bookmarks included.
    pub fn release(&self, events: u64) {
        self.change(|gate| match &mut gate.flow {
            Flow::Held(more) => *more = more.saturating_add(events),
            Flow::Open | Flow::Silent => {}
        });
    }

    /// Lets everything pass again: all that waited comes at once.
    pub fn resume(&self) {
        self.change(|gate| gate.flow = Flow::Open);
    }

    /// Delivers nothing more, not even the end of the watch, as when a server or a load balancer on the way dies and
    /// the client does not notice. Only [`resume`](WatchHandle::resume) ends it.
    pub fn silence(&self) {
        self.change(|gate| gate.flow = Flow::Silent);
    }
}

/// End of the watch.
impl WatchHandle {
    /// Ends the watch as a server does whose log was compacted: an ERROR event with 410 Expired, then the end.
    pub fn expire(&self) {
        self.put(Injected::Expire);
    }

    /// Ends the watch with an ERROR event of this Status, as a server does that fails while it watches.
    pub fn fail(&self, status: Status) {
        self.put(Injected::Error(Box::new(status)));
    }

    /// Ends the watch as a server does when its time is over.
    pub fn end(&self) {
        self.put(Injected::End);
    }

    /// Breaks the connection between two events: the client sees an error, and no end.
    pub fn cut(&self) {
        self.put(Injected::Cut);
    }

    /// Breaks the connection within the next event, after so many bytes of it at the most.
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
