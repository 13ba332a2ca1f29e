//! The watches under way, and the way to put events into them.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use serde_json::Value;

use crate::api::request_info::RequestInfo;

/// The `type` of an event that is put into a watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatchEventKind {
    /// `ADDED`
    Added,
    /// `MODIFIED`
    Modified,
    /// `DELETED`
    Deleted,
    /// `BOOKMARK`
    Bookmark,
    /// `ERROR`, whose object is a Status.
    Error,
}

impl WatchEventKind {
    /// As the stream writes it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Added => "ADDED",
            Self::Modified => "MODIFIED",
            Self::Deleted => "DELETED",
            Self::Bookmark => "BOOKMARK",
            Self::Error => "ERROR",
        }
    }
}

/// What a test puts into a watch.
#[derive(Clone, Debug)]
pub(crate) enum Injected {
    /// An event, whatever the state says.
    Event(WatchEventKind, Value),
    /// An ERROR event 410 Expired, then the end.
    Expire,
    /// The end.
    End,
}

/// The watches under way, oldest first.
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
    user_agent: String,
    /// What waits to be delivered, and who waits for it.
    waiting: Mutex<(VecDeque<Injected>, Option<Waker>)>,
}

impl Shared {
    fn waiting(&self) -> MutexGuard<'_, (VecDeque<Injected>, Option<Waker>)> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl OpenWatches {
    fn lock(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Enters a watch; it leaves when what this returns is dropped.
    pub(crate) fn enter(&self, info: RequestInfo, user_agent: &str) -> OpenWatch {
        let mut open = self.lock();
        open.next_id += 1;
        let id = open.next_id;
        let waiting = Mutex::new((VecDeque::new(), None));
        let shared = Arc::new(Shared {
            id,
            info,
            user_agent: user_agent.to_owned(),
            waiting,
        });
        open.watches.insert(id, Arc::clone(&shared));
        OpenWatch {
            list: self.clone(),
            shared,
        }
    }

    /// The watches under way, oldest first.
    pub(crate) fn handles(&self) -> Vec<WatchHandle> {
        self.lock()
            .watches
            .values()
            .map(|shared| WatchHandle {
                shared: Arc::clone(shared),
            })
            .collect()
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

    /// What it watches.
    pub(crate) fn info(&self) -> &RequestInfo {
        &self.shared.info
    }

    /// The next thing a test put in.
    pub(crate) fn poll_injected(&self, cx: &mut Context<'_>) -> Poll<Injected> {
        let mut waiting = self.shared.waiting();
        match waiting.0.pop_front() {
            Some(injected) => Poll::Ready(injected),
            None => {
                waiting.1 = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }
}

impl Drop for OpenWatch {
    fn drop(&mut self) {
        self.list.lock().watches.remove(&self.shared.id);
    }
}

/// A watch under way, as a test sees it. It may have ended meanwhile; what is put into it then is lost.
#[derive(Clone, Debug)]
pub struct WatchHandle {
    shared: Arc<Shared>,
}

impl WatchHandle {
    /// The number of the watch, counted from 1 over the life of the server.
    pub fn id(&self) -> u64 {
        self.shared.id
    }

    /// What it watches.
    pub fn info(&self) -> &RequestInfo {
        &self.shared.info
    }

    /// The client's `User-Agent`.
    pub fn user_agent(&self) -> &str {
        &self.shared.user_agent
    }

    /// Delivers an event to this watch alone. State does not change: the client is told something that is not so.
    pub fn send(&self, kind: WatchEventKind, object: Value) {
        self.put(Injected::Event(kind, object));
    }

    /// Ends the watch as a server does whose log was compacted: an ERROR event with 410 Expired, then the end.
    pub fn expire(&self) {
        self.put(Injected::Expire);
    }

    /// Ends the watch as a server does when its time is over.
    pub fn end(&self) {
        self.put(Injected::End);
    }

    fn put(&self, injected: Injected) {
        let waker = {
            let mut waiting = self.shared.waiting();
            waiting.0.push_back(injected);
            waiting.1.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}
