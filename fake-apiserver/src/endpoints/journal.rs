//! `Journal`: an ordered record of requests, responses and watch events, for tests.

pub(crate) mod stream;

use std::collections::VecDeque;
use std::fmt;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use http::Method;

use crate::api::json::Value;
use crate::api::request_info::{RequestInfo, Verb};
use crate::api::resource::Text;
use crate::api::user::UserInfo;
use crate::faults::Lost;
use crate::registry::scheme::codec;
use crate::storage::Stored;

/// Bounds of the journal.
#[derive(Clone, Copy, Debug)]
pub(crate) struct JournalBounds {
    /// Maximum number of entries; the oldest are dropped first.
    pub(crate) entries: usize,
    /// Maximum total size of request bodies, responses and event lines, in bytes; the oldest entries lose their
    /// contents first.
    pub(crate) bytes: usize,
}

impl Default for JournalBounds {
    fn default() -> Self {
        Self {
            entries: 65_536,
            bytes: 32 << 20,
        }
    }
}

/// A request and its response.
#[derive(Clone, Debug)]
pub struct RecordedRequest {
    /// Time of arrival, since the server's start, on its clock.
    pub started: Duration,
    /// Time at which the response began.
    pub answered: Duration,
    /// Method.
    pub method: Method,
    /// Path and query as sent.
    pub path: String,
    /// Verb, resource, namespace and name; `None` for a non-resource request.
    pub info: Option<RequestInfo>,
    /// Client that sent the request: the name of an in-process client, otherwise its `User-Agent`.
    pub client: Arc<str>,
    /// `User-Agent`
    pub user_agent: String,
    /// Worker that sent the request, such as `generic-garbage-collector`; `None` for clients.
    pub worker: Option<&'static str>,
    /// Descriptions of the applied faults; empty without faults.
    pub faults: Vec<String>,
    /// User that sent the request, after authentication and impersonation.
    pub user: Arc<UserInfo>,
    /// The request body as sent; may be empty.
    pub request_body: Bytes,
    /// HTTP status of the response; 0 if a fault suppressed the response or broke the connection.
    pub code: u16,
    /// Uncompressed response body; `None` if it was streamed, as for watches and long lists, or if it is not encoded
    /// yet; see [`answer_bytes`](Self::answer_bytes).
    pub answer: Option<Bytes>,
    /// The response if it is a stored object, as for most requests. It is encoded on demand.
    pub(crate) stored: Option<StoredAnswer>,
    /// The successful response that was not sent because of a fault, if any.
    pub(crate) lost: Option<Lost>,
    /// Set if the request body and the response were dropped because of the [size
    /// limit](crate::ApiServerBuilder::journal_bytes) of the journal.
    pub is_cut: bool,
}

/// A stored object in a response.
#[derive(Clone, Debug)]
pub(crate) struct StoredAnswer {
    /// The JSON of the response before the stored bytes.
    pub(crate) head: Arc<str>,
    /// The stored object of the response.
    pub(crate) object: Arc<Stored>,
}

impl StoredAnswer {
    /// Returns the bytes of the response.
    pub(crate) fn bytes(&self) -> Bytes {
        let mut bytes = Vec::with_capacity(self.head.len() + 40 + self.object.body.bytes.len());
        codec::write_with_head(&self.head, &self.object, self.object.revision, &mut bytes);
        bytes.push(b'\n');
        bytes.into()
    }
}

/// An event that was sent to a watcher.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RecordedEvent {
    /// Time of delivery, since the server's start, on its clock.
    pub at: Duration,
    /// Ordinal of the watch, from 1.
    pub watch: u64,
    /// Client of the watch: the name of an in-process client, otherwise its `User-Agent`.
    pub client: Arc<str>,
    /// `ADDED`, `MODIFIED`, `DELETED`, `BOOKMARK` or `ERROR`.
    pub kind: &'static str,
    /// API group of the resource; empty for core.
    pub group: Text,
    /// Plural name of the watched resource.
    pub resource: Text,
    /// Namespace of the object; empty for cluster-scoped objects, bookmarks, errors, and injected or duplicated events.
    pub namespace: String,
    /// Name of the object; empty for bookmarks, errors, and injected or duplicated events.
    pub name: String,
    /// The event's resourceVersion; 0 for errors and injected events.
    pub revision: u64,
    /// The event as a line of JSON, with its line end.
    pub line: Bytes,
    /// Set if the line was dropped because of the [size limit](crate::ApiServerBuilder::journal_bytes) of the journal.
    pub is_cut: bool,
}

/// An entry of the journal.
#[derive(Clone, Debug)]
#[allow(
    clippy::large_enum_variant,
    reason = "most entries are requests, and a box for each would cost more"
)]
pub enum Entry {
    /// A request and its response.
    Request(RecordedRequest),
    /// An event sent to a watcher.
    Event(RecordedEvent),
}

impl Entry {
    /// Returns the size of the request body, response and event line, in bytes. The bytes may be shared with the stored
    /// object.
    fn size(&self) -> usize {
        match self {
            Entry::Request(it) => {
                let answer = it.answer.as_ref().map_or(0, Bytes::len);
                let stored = it.stored.as_ref().map_or(0, |it| it.object.body.bytes.len());
                it.request_body.len() + answer + stored
            }
            Entry::Event(it) => it.line.len(),
        }
    }

    /// Drops the request body, response and event line of the entry.
    fn cut(&mut self) {
        match self {
            Entry::Request(it) => {
                (it.request_body, it.answer, it.stored) = (Bytes::new(), None, None);
                it.is_cut = true;
            }
            Entry::Event(it) => {
                it.line = Bytes::new();
                it.is_cut = true;
            }
        }
    }
}

impl RecordedRequest {
    /// Returns a copy with the encoded response, for users of the journal.
    fn shown(&self) -> Self {
        let written = || self.stored.as_ref().map(StoredAnswer::bytes);
        Self {
            answer: self.answer.clone().or_else(written),
            stored: None,
            ..self.clone()
        }
    }

    /// Returns the response body, even if [`answer`](RecordedRequest::answer) is not encoded yet; empty if it was
    /// streamed.
    pub fn answer_bytes(&self) -> Bytes {
        let written = || self.stored.as_ref().map(StoredAnswer::bytes);
        self.answer.clone().or_else(written).unwrap_or_default()
    }

    /// Returns the verb of a request for a resource.
    pub fn verb(&self) -> Option<Verb> {
        self.info.as_ref().map(|info| info.verb)
    }

    /// Returns `true` if the request was for this resource or one of its subresources: `pods`, or `deployments.apps` to
    /// include the group.
    pub fn is_for(&self, resource: &str) -> bool {
        self.info.as_ref().is_some_and(|info| {
            *info.resource == *resource
                || resource
                    .split_once('.')
                    .is_some_and(|(name, group)| *info.resource == *name && *info.group == *group)
        })
    }

    /// Returns `true` for writes: create, update, patch, delete and deletecollection.
    pub fn is_write(&self) -> bool {
        !matches!(self.verb(), None | Some(Verb::Get | Verb::List | Verb::Watch))
    }
}

/// A range of consecutive entries of a journal.
#[derive(Debug)]
pub(crate) struct JournalPage {
    /// Number of the first entry. If it is greater than the requested number, the entries before it have been dropped.
    pub(crate) first: u64,
    /// The entries, oldest first.
    pub(crate) entries: Vec<Entry>,
    /// Number of entries ever recorded.
    pub(crate) total: u64,
}

impl JournalPage {
    /// Returns the number after the last entry.
    pub(crate) fn next(&self) -> u64 {
        self.first + self.entries.len() as u64
    }
}

/// Record of a server's requests, responses and watch events. Clones share the same journal.
///
/// ```
/// use fake_apiserver::{ApiServer, Verb};
///
/// let server = ApiServer::start();
/// assert_eq!(server.journal().count(Verb::List, "pods"), 0);
/// ```
#[derive(Clone, Debug)]
pub struct Journal {
    /// The recorded entries, shared by all clones.
    entries: Arc<Mutex<Entries>>,
    bounds: JournalBounds,
}

#[derive(Debug, Default)]
struct Entries {
    kept: VecDeque<Entry>,
    /// Number of entries that have lost their contents, counted from the oldest.
    cut: usize,
    /// Total size of the contents that are still kept, in bytes.
    size: usize,
    /// Number of entries ever recorded.
    total: u64,
    /// Wakers of callers that wait for a number of entries.
    awaited: Vec<(u64, Waker)>,
}

impl Entries {
    fn push(&mut self, entry: Entry, bounds: JournalBounds) {
        if self.kept.len() == bounds.entries
            && let Some(dropped) = self.kept.pop_front()
        {
            match self.cut.checked_sub(1) {
                Some(left) => self.cut = left,
                None => self.size -= dropped.size(),
            }
        }
        self.size += entry.size();
        self.kept.push_back(entry);
        self.total += 1;
        while self.size > bounds.bytes
            && let Some(oldest) = self.kept.get_mut(self.cut)
        {
            self.size -= oldest.size();
            oldest.cut();
            self.cut += 1;
        }
    }

    fn clear(&mut self) {
        self.kept.clear();
        (self.cut, self.size) = (0, 0);
    }
}

impl Journal {
    pub(crate) fn new(bounds: JournalBounds) -> Self {
        Self {
            entries: Arc::default(),
            bounds: JournalBounds {
                entries: bounds.entries.max(1),
                ..bounds
            },
        }
    }

    fn lock(&self) -> MutexGuard<'_, Entries> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn record(&self, entry: Entry) {
        let mut entries = self.lock();
        entries.push(entry, self.bounds);
        if !entries.awaited.is_empty() {
            let total = entries.total;
            let due = entries.awaited.extract_if(.., |(awaited, _)| *awaited <= total);
            due.for_each(|(_, waker)| waker.wake());
        }
    }

    pub(crate) fn record_request(&self, request: RecordedRequest) {
        self.record(Entry::Request(request));
    }

    pub(crate) fn record_event(&self, event: RecordedEvent) {
        self.record(Entry::Event(event));
    }

    /// Returns the kept entries, oldest first.
    pub fn entries(&self) -> Vec<Entry> {
        let entry = |entry: &Entry| match entry {
            Entry::Request(request) => Entry::Request(request.shown()),
            Entry::Event(event) => Entry::Event(event.clone()),
        };
        self.lock().kept.iter().map(entry).collect()
    }

    /// Returns the kept requests, oldest first.
    pub fn requests(&self) -> Vec<RecordedRequest> {
        let request = |entry: &Entry| match entry {
            Entry::Request(request) => Some(request.shown()),
            Entry::Event(_) => None,
        };
        self.lock().kept.iter().filter_map(request).collect()
    }

    /// Returns the kept events, oldest first.
    pub fn events(&self) -> Vec<RecordedEvent> {
        let event = |entry: &Entry| match entry {
            Entry::Event(event) => Some(event.clone()),
            Entry::Request(_) => None,
        };
        self.lock().kept.iter().filter_map(event).collect()
    }

    /// Returns the number of kept client requests with this verb and resource (see [`RecordedRequest::is_for`]).
    /// Requests of the server's own [workers](crate::Worker) are not counted.
    pub fn count(&self, verb: Verb, resource: &str) -> usize {
        let counts = |entry: &&Entry| match entry {
            Entry::Request(request) => {
                request.worker.is_none() && request.verb() == Some(verb) && request.is_for(resource)
            }
            Entry::Event(_) => false,
        };
        self.lock().kept.iter().filter(counts).count()
    }

    /// Returns the number of entries recorded so far, including dropped ones. It increases with every request and
    /// event.
    pub fn total(&self) -> u64 {
        self.lock().total
    }

    /// Waits until the total number of entries reaches `total`. Use it to detect a client that keeps sending requests
    /// while the clock does not advance.
    pub fn reached(&self, total: u64) -> impl Future<Output = ()> + Send {
        poll_fn(move |cx| {
            let mut entries = self.lock();
            // Keeps at most one waker per task, so that wakers of abandoned waits do not accumulate.
            entries.awaited.retain(|(_, waker)| !waker.will_wake(cx.waker()));
            if entries.total >= total {
                return Poll::Ready(());
            }
            entries.awaited.push((total, cx.waker().clone()));
            Poll::Pending
        })
    }

    /// Returns the kept entries after the first `total` ones, oldest first.
    pub fn since(&self, total: u64) -> Vec<Entry> {
        let mut all = Vec::new();
        self.visit(total, |entry| all.push(entry.clone()));
        all
    }

    /// Calls `look` with the same entries as [`since`](Self::since), without copying them. Returns the current total.
    /// `look` must not use the journal.
    pub fn visit(&self, total: u64, look: impl FnMut(&Entry)) -> u64 {
        let entries = self.lock();
        let fresh = usize::try_from(entries.total.saturating_sub(total)).unwrap_or(usize::MAX);
        let skipped = entries.kept.len().saturating_sub(fresh);
        entries.kept.iter().skip(skipped).for_each(look);
        entries.total
    }

    /// Returns at most `most` entries, beginning with the number `since`.
    pub(crate) fn page(&self, since: u64, most: usize) -> JournalPage {
        let entries = self.lock();
        let oldest = entries.total - entries.kept.len() as u64;
        let first = since.clamp(oldest, entries.total);
        let skipped = usize::try_from(first - oldest).unwrap_or(usize::MAX);
        JournalPage {
            first,
            entries: entries.kept.iter().skip(skipped).take(most).cloned().collect(),
            total: entries.total,
        }
    }

    /// Drops all entries; [`Journal::total`] is not reset.
    pub fn clear(&self) {
        self.lock().clear();
    }

    /// Formats the last `most` entries as text, for the message of a failed test.
    pub fn tail(&self, most: usize) -> String {
        let entries = self.lock();
        let skipped = entries.kept.len().saturating_sub(most);
        entries
            .kept
            .iter()
            .skip(skipped)
            .map(|entry| format!("{entry}\n"))
            .collect()
    }
}

impl fmt::Display for Journal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.tail(usize::MAX))
    }
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Entry::Request(request) => request.fmt(f),
            Entry::Event(event) => event.fmt(f),
        }
    }
}

impl fmt::Display for RecordedRequest {
    /// `   0.002s  PATCH  /api/v1/namespaces/shop/pods/web-0  409 Conflict: the object has been modified`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (started, method) = (self.started.as_secs_f64(), self.method.as_str());
        write!(f, "{started:>9.3}s  {method:<6} {}  ", self.path)?;
        match self.code {
            0 => f.write_str("no response")?,
            code => write!(f, "{code}")?,
        }
        if !self.faults.is_empty() {
            write!(f, " [{}]", self.faults.join("; "))?;
        }
        if self.code >= 400
            && let Some(status) = self
                .answer
                .as_ref()
                .and_then(|it| serde_json::from_slice::<Value>(it).ok())
        {
            let text = |name: &str| status.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
            write!(f, " {}: {}", text("reason"), text("message"))?;
        }
        Ok(())
    }
}

impl fmt::Display for RecordedEvent {
    /// `   0.002s    watch 3 of pods  ADDED  shop/web-0 @17`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = self.at.as_secs_f64();
        write!(
            f,
            "{at:>9.3}s    watch {} of {}  {}",
            self.watch, self.resource, self.kind
        )?;
        match (self.namespace.as_str(), self.name.as_str()) {
            ("", "") => {}
            ("", name) => write!(f, "  {name}")?,
            (namespace, name) => write!(f, "  {namespace}/{name}")?,
        }
        if self.revision > 0 {
            write!(f, " @{}", self.revision)
        } else {
            Ok(())
        }
    }
}
