//! `WatchBody`: a watch as a stream of events, each a line of JSON or a frame of protobuf (rules E1, E2).

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use http_body::Frame;

use super::broken::{cut_error, eof_error};
use super::journal::RecordedEvent;
use super::negotiation::{self, Encoding, View};
use super::table::IncludeObject;
use super::{Endpoints, encode, partial, watch_protobuf};
use crate::api::json::{Value, json};
use crate::api::object::Object;
use crate::api::status::Status;
use crate::faults::{GateStep, HeldEvent, Injected, OpenWatch, Sending};
use crate::registry::reader::verbs::{WatchPlan, is_cached};
use crate::registry::scheme::Row;
use crate::registry::scheme::codec;
use crate::storage::{Change, Revision, Stored};
use crate::watch::{Delivery, EventType, WatchStart, Watcher};

/// Time for which watches of custom resources continue after a change of their CRD, as in `crdHandler.tearDown`.
const TEAR_DOWN_DELAY: Duration = Duration::from_secs(1);

/// The body of a watch.
pub(crate) struct WatchBody {
    server: Arc<Endpoints>,
    row: Arc<Row>,
    view: View,
    encoding: Encoding,
    include: IncludeObject,
    /// Set once the column definitions of a Table have been sent. Only the first event contains them (rule E19).
    columns_sent: bool,
    open: OpenWatch,
    state: State,
    /// Lines that are ready to be sent, and the error that ends the stream, in order.
    left: VecDeque<io::Result<Bytes>>,
    is_flushed: bool,
    /// The bookmark at the end of the initial state, if a test withholds it.
    withheld_end: Option<Revision>,
    /// A delivery that waits for the conversion webhook of its CRD.
    converting: Option<(BoxFuture<'static, Result<(), Status>>, Delivery)>,
    /// Future that completes some time after a change of the row's CRD, which ends the watch (rule O16).
    row_change: RowChange,
    /// Number of events that all watches of the resource have sent.
    sent: Arc<AtomicU64>,
}

/// The end of a watch that follows a change of its CRD.
enum RowChange {
    Never,
    Ends(BoxFuture<'static, ()>),
}

enum State {
    /// The server has not yet reached the version that the initial state requires.
    Waiting(BoxFuture<'static, Result<(), Status>>, Option<WatchStart>),
    Watching(Box<Watcher>),
    Ended,
}

impl WatchBody {
    pub(crate) fn new(
        server: Arc<Endpoints>,
        row: Arc<Row>,
        open: OpenWatch,
        plan: WatchPlan,
        form: negotiation::AnswerForm,
        include: IncludeObject,
    ) -> Self {
        server.faults.rules.watch_begins(&open.handle());
        let state = match plan {
            WatchPlan::Start(start) => State::Watching(Box::new(server.registry.reader.start_watch(start))),
            WatchPlan::Future(revision, start) => {
                let (server, client) = (Arc::clone(&server), Arc::clone(open.client()));
                State::Waiting(
                    Box::pin(async move { server.registry.reader.reach(revision, &client).await }),
                    Some(start),
                )
            }
        };
        let row_change = match row.is_custom() {
            true => RowChange::Ends(definition_changes(Arc::clone(&server), &row)),
            false => RowChange::Never,
        };
        let info = open.info();
        let sent = server.metrics.events(&info.group, &info.version, &info.resource);
        Self {
            server,
            row,
            view: form.view,
            encoding: form.encoding,
            include,
            columns_sent: false,
            open,
            state,
            left: VecDeque::new(),
            is_flushed: false,
            withheld_end: None,
            converting: None,
            row_change,
            sent,
        }
    }

    /// Polls for the next line, unless a test holds the watch.
    fn poll_line(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<Bytes>>> {
        loop {
            match self.left.pop_front() {
                // Yields once, so that the output before the break is sent first.
                Some(Err(err)) if !std::mem::replace(&mut self.is_flushed, true) => {
                    self.left.push_front(Err(err));
                    cx.waker().wake_by_ref();
                    return Poll::Pending;
                }
                Some(left) => return Poll::Ready(Some(left)),
                None => {}
            }
            match self.open.step(cx) {
                GateStep::Silent => return Poll::Pending,
                GateStep::Held => {
                    self.show_held(cx);
                    return Poll::Pending;
                }
                GateStep::Put(injected) => {
                    if self.inject(injected) {
                        return Poll::Ready(None);
                    }
                }
                GateStep::Open => match std::task::ready!(self.poll_delivery(cx)) {
                    Some(delivery) => self.deliver(delivery),
                    // An ERROR event may still be queued.
                    None if self.left.is_empty() => return Poll::Ready(None),
                    None => {}
                },
            }
        }
    }

    /// Polls for the next delivery; `None` at the end.
    fn poll_delivery(&mut self, cx: &mut Context<'_>) -> Poll<Option<Delivery>> {
        loop {
            if let Some((asked, _)) = &mut self.converting {
                let result = std::task::ready!(asked.as_mut().poll(cx));
                let delivery = self.converting.take().map(|(_, delivery)| delivery);
                return Poll::Ready(match result {
                    Ok(()) => delivery,
                    Err(status) => {
                        self.end_with(&status);
                        None
                    }
                });
            }
            match &mut self.state {
                State::Ended => return Poll::Ready(None),
                State::Waiting(reached, start) => {
                    let result = std::task::ready!(reached.as_mut().poll(cx));
                    match (result, start.take()) {
                        (Ok(()), Some(mut start)) => {
                            start.initial = Some(self.server.registry.reader.cached(&self.row, self.open.client()));
                            self.state = State::Watching(Box::new(self.server.registry.reader.start_watch(start)));
                        }
                        (Ok(()), None) => self.state = State::Ended,
                        (Err(status), _) => {
                            self.end_with(&status);
                            return Poll::Ready(None);
                        }
                    }
                }
                State::Watching(watcher) => match watcher.poll_next(cx) {
                    Poll::Ready(Some(delivery)) => match self.to_convert(&delivery) {
                        Some(asked) => self.converting = Some((asked, delivery)),
                        None => return Poll::Ready(Some(delivery)),
                    },
                    Poll::Ready(None) => self.state = State::Ended,
                    Poll::Pending => {
                        self.open.reaches(watcher.position());
                        // All earlier changes have been sent by now.
                        if let RowChange::Ends(change) = &mut self.row_change
                            && change.as_mut().poll(cx).is_ready()
                        {
                            self.state = State::Ended;
                            continue;
                        }
                        return Poll::Pending;
                    }
                },
            }
        }
    }

    /// Returns a future that converts the objects of a delivery with the conversion webhook; `None` if the row does not
    /// need a conversion.
    fn to_convert(&self, delivery: &Delivery) -> Option<BoxFuture<'static, Result<(), Status>>> {
        self.row.conversion_on_read()?;
        let stored: Vec<Arc<Stored>> = match delivery {
            Delivery::Initial(stored) => vec![Arc::clone(stored)],
            Delivery::Change(change, _) => [&change.previous, &change.current]
                .into_iter()
                .flatten()
                .cloned()
                .collect(),
            Delivery::Bookmark { .. } | Delivery::Expired { .. } => return None,
        };
        let (server, row) = (Arc::clone(&self.server), Arc::clone(&self.row));
        Some(Box::pin(async move {
            server.registry.reader.convert_stored(&row, &stored).await
        }))
    }

    /// Encodes a delivery as a line, and queues it.
    fn deliver(&mut self, delivery: Delivery) {
        let (kind, revision, line) = match delivery {
            Delivery::Initial(stored) => {
                let line = self.event(EventType::Added.as_str(), &stored, stored.revision);
                self.record("ADDED", Some(&stored), stored.revision, &line);
                ("ADDED", stored.revision, line)
            }
            Delivery::Change(change, kind) => {
                let line = self.change(&change, kind);
                self.record(kind.as_str(), Some(seen(&change, kind)), change.revision, &line);
                (kind.as_str(), change.revision, line)
            }
            Delivery::Bookmark { revision, initial_end } if self.open.withholds(initial_end) => {
                self.withheld_end = self.withheld_end.or(initial_end.then_some(revision));
                return;
            }
            Delivery::Bookmark { revision, initial_end } => {
                let line = self.bookmark(revision, initial_end);
                self.record("BOOKMARK", None, revision, &line);
                ("BOOKMARK", revision, line)
            }
            Delivery::Expired { wanted, floor } => {
                // Events are read from etcd (rule E24).
                let message = match is_cached(&self.row) {
                    true => format!("too old resource version: {wanted} ({floor})"),
                    false => "The resourceVersion for the provided watch is too old.".to_owned(),
                };
                ("ERROR", 0, self.error(&Status::expired(message)))
            }
        };
        match self.open.sends(revision) {
            Sending::Once => {}
            Sending::Twice => {
                self.record(kind, None, revision, &line);
                self.left.push_back(Ok(self.sent_form(&line)));
            }
            Sending::Part(bytes) => {
                let line = self.sent_form(&line);
                self.left
                    .push_back(Ok(line.slice(..bytes.min(line.len().saturating_sub(1)))));
                self.left.push_back(Err(eof_error()));
                self.state = State::Ended;
                return;
            }
        }
        self.left.push_back(Ok(self.sent_form(&line)));
    }

    /// Converts a line of JSON to the client's encoding.
    fn sent_form(&self, line: &Bytes) -> Bytes {
        match self.encoding {
            Encoding::Json | Encoding::Yaml => line.clone(),
            Encoding::Protobuf => watch_protobuf::frame(line),
        }
    }

    /// Publishes the pending events of a held watch to the test's handle.
    fn show_held(&mut self, cx: &Context<'_>) {
        let held = match &mut self.state {
            State::Watching(watcher) => watcher.look_ahead(cx).iter().map(brief).collect(),
            State::Waiting(..) | State::Ended => Vec::new(),
        };
        self.open.show_held(held);
    }

    /// Encodes a change; the result is shared by all watches that send it unmodified.
    fn change(&mut self, change: &Change, kind: EventType) -> Bytes {
        let natural = match (&change.previous, &change.current) {
            (None, _) => EventType::Added,
            (Some(_), Some(_)) => EventType::Modified,
            (Some(_), None) => EventType::Deleted,
        };
        let object = seen(change, kind);
        if kind == natural && self.view == View::Whole && self.row.is_as_stored && !self.row.is_custom() {
            let encoded = change
                .encoded
                .get_or_init(|| whole_event(&self.row, kind.as_str(), object, change.revision));
            return encoded.clone();
        }
        self.event(kind.as_str(), object, change.revision)
    }

    fn event(&mut self, kind: &str, stored: &Stored, revision: Revision) -> Bytes {
        match self.view {
            View::Whole if self.row.is_as_stored => return whole_event(&self.row, kind, stored, revision),
            View::Metadata(version) | View::MetadataList(version) if partial::is_as_stored(&self.row) => {
                return metadata_event(&partial::head(version), kind, stored, revision);
            }
            View::Whole | View::Metadata(_) | View::MetadataList(_) | View::Table(_) => {}
        }
        let object = codec::decode_at(&self.row, stored, revision);
        let shown = self.shown(object);
        event_line(kind, &shown)
    }

    /// Converts an object to the requested form: the whole object, a Table, or only its metadata.
    fn shown(&mut self, object: Object) -> Value {
        match self.view {
            View::Whole => Value::Object(object.0),
            View::Metadata(version) | View::MetadataList(version) => partial::object(&object, version),
            View::Table(version) => {
                let is_first = !std::mem::replace(&mut self.columns_sent, true);
                let columns = encode::columns(&self.row, &object);
                encode::tables(&self.server, &self.row, &columns, version, self.include).of_event(&object, is_first)
            }
        }
    }

    /// Encodes a bookmark: the kind, the revision, and the fields that Go's types never omit (rule E13).
    fn bookmark(&mut self, revision: Revision, initial_end: bool) -> Bytes {
        let mut metadata = json!({"resourceVersion": revision.to_string()});
        if initial_end {
            metadata["annotations"] = json!({"k8s.io/initial-events-end": "true"});
        }
        let mut object = Object::default();
        self.row.name_kind(&mut object);
        object.insert("metadata".into(), metadata);
        if let Some(shape) = self.row.shape()
            && self.view == View::Whole
        {
            // Adds the fields that Go's types never omit; converting an empty object cannot fail.
            let _ = crate::registry::types::decode::convert(shape, &mut object);
        }
        let shown = self.shown(object);
        event_line("BOOKMARK", &shown)
    }

    fn error(&mut self, status: &Status) -> Bytes {
        let line = event_line("ERROR", status);
        self.record("ERROR", None, 0, &line);
        line
    }

    /// Applies an injection from a test. Returns `true` if it ends the stream regularly.
    fn inject(&mut self, injected: Injected) -> bool {
        match injected {
            Injected::Event(kind, object) => {
                let line = event_line(kind.as_str(), &object);
                self.record(kind.as_str(), None, 0, &line);
                self.send(0, line);
            }
            Injected::Bookmark => {
                let began = match &self.state {
                    State::Watching(watcher) => watcher.began_after(),
                    State::Waiting(..) | State::Ended => 0,
                };
                let revision = self.open.last_revision().max(began);
                // A client would try to resume from version 0.
                if revision > 0 {
                    self.send_bookmark(revision, false);
                }
            }
            Injected::InitialEnd => {
                if let Some(revision) = self.withheld_end.take() {
                    self.send_bookmark(revision, true);
                }
            }
            Injected::Error(status) => self.end_with(&status),
            Injected::Expire => {
                let current = self.server.registry.reader.store.revision();
                self.end_with(&Status::expired(format!("too old resource version: 1 ({current})")));
            }
            Injected::End => {
                self.state = State::Ended;
                return true;
            }
            Injected::Cut => {
                self.state = State::Ended;
                self.left.push_back(Err(cut_error()));
            }
        }
        false
    }

    fn send_bookmark(&mut self, revision: Revision, initial_end: bool) {
        let line = self.bookmark(revision, initial_end);
        self.record("BOOKMARK", None, revision, &line);
        self.send(revision, line);
    }

    fn send(&mut self, revision: Revision, line: Bytes) {
        // Injected events are neither duplicated nor truncated.
        self.open.counts(revision);
        self.left.push_back(Ok(self.sent_form(&line)));
    }

    /// Sends an ERROR event, and ends the stream.
    fn end_with(&mut self, status: &Status) {
        let line = self.error(status);
        self.send(0, line);
        self.state = State::Ended;
    }

    fn record(&self, kind: &'static str, stored: Option<&Stored>, revision: Revision, line: &Bytes) {
        self.sent.fetch_add(1, Ordering::Relaxed);
        self.server.journal.record_event(RecordedEvent {
            at: self.server.registry.reader.entropy.elapsed(),
            watch: self.open.id(),
            client: Arc::clone(self.open.client()),
            kind,
            group: self.open.info().group.clone(),
            resource: self.open.info().resource.clone(),
            namespace: stored.map_or_else(String::new, |it| it.key.namespace().to_owned()),
            name: stored.map_or_else(String::new, |it| it.key.name().to_owned()),
            revision,
            line: line.clone(),
            is_cut: false,
        });
    }
}

/// Summarizes a held delivery for a test.
fn brief(delivery: &Delivery) -> HeldEvent {
    let event = |kind, stored: &Stored, revision| HeldEvent {
        kind,
        namespace: stored.key.namespace().to_owned(),
        name: stored.key.name().to_owned(),
        revision,
    };
    let nameless = |kind, revision| HeldEvent {
        kind,
        namespace: String::new(),
        name: String::new(),
        revision,
    };
    match delivery {
        Delivery::Initial(stored) => event("ADDED", stored, stored.revision),
        Delivery::Change(change, kind) => event(kind.as_str(), seen(change, *kind), change.revision),
        Delivery::Bookmark { revision, .. } => nameless("BOOKMARK", *revision),
        Delivery::Expired { .. } => nameless("ERROR", 0),
    }
}

/// Returns the object in an event: for `DELETED` the previous object, otherwise the current one.
fn seen(change: &Change, kind: EventType) -> &Stored {
    match (kind, &change.previous) {
        (EventType::Deleted, Some(previous)) => previous,
        _ => change.object(),
    }
}

fn whole_event(row: &Row, kind: &str, stored: &Stored, revision: Revision) -> Bytes {
    let bytes = row.head.len() + stored.body.bytes.len();
    line_of(kind, bytes, |line| codec::write_at(row, stored, revision, line))
}

fn metadata_event(head: &str, kind: &str, stored: &Stored, revision: Revision) -> Bytes {
    let bytes = head.len() + stored.body.metadata_len;
    line_of(kind, bytes, |line| codec::write_metadata(head, stored, revision, line))
}

/// Formats an event whose object is written by `write`; `bytes` is the estimated size of the object.
fn line_of(kind: &str, bytes: usize, write: impl FnOnce(&mut Vec<u8>)) -> Bytes {
    let mut line = Vec::with_capacity(bytes + 64);
    line.extend_from_slice(b"{\"type\":\"");
    line.extend_from_slice(kind.as_bytes());
    line.extend_from_slice(b"\",\"object\":");
    write(&mut line);
    line.extend_from_slice(b"}\n");
    line.into()
}

fn event_line(kind: &str, object: &impl serde::Serialize) -> Bytes {
    line_of(kind, 512, |line| {
        // Writing JSON to memory cannot fail, because keys are strings and numbers are finite.
        let _ = serde_json::to_writer(line, object);
    })
}

/// Completes a second after a change of the row's CRD, or as soon as the CRD changes again. kube-apiserver creates a
/// new storage for a changed CRD and destroys the old one later; until then its watches continue.
fn definition_changes(server: Arc<Endpoints>, row: &Arc<Row>) -> BoxFuture<'static, ()> {
    let row = Arc::clone(row);
    Box::pin(async move {
        let changed = other_definition(&server, &row, row.served_as()).await;
        let again = other_definition(&server, &row, &changed);
        // The watch ends if the definition changes again, or after this time.
        let _ = tokio::time::timeout(TEAR_DOWN_DELAY, again).await;
    })
}

/// Waits until the definition of the row's version changes from `served_as`, and returns the new definition, or an
/// empty string if the version is no longer served.
async fn other_definition(server: &Endpoints, row: &Row, served_as: &str) -> String {
    loop {
        let changed = server.registry.definitions.changed.notified();
        let info = &row.info;
        let scheme = server.registry.reader.scheme();
        let now = scheme.lookup(&info.group, &info.version, &info.resource);
        let now = now.map_or_else(String::new, |now| now.served_as().to_owned());
        drop(scheme);
        if now != served_as {
            return now;
        }
        changed.await;
    }
}

impl http_body::Body for WatchBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        self.get_mut()
            .poll_line(cx)
            .map(|line| line.map(|line| line.map(Frame::data)))
    }
}

impl std::fmt::Debug for WatchBody {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WatchBody")
            .field("watch", &self.open.id())
            .finish_non_exhaustive()
    }
}
