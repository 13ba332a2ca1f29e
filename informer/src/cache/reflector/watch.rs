//! Watches: applies events to the store, handles the end of a watch, and receives streaming lists.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use kube::core::Status;
use tokio::time::{Instant, Sleep, sleep_until, timeout, timeout_at};

use super::document::{Lines, WatchLine};
use super::{Reflector, ReflectorStore, Run, Unread};
use crate::cache::list_watch::{Body, WatchOptions};
use crate::object::{Cacheable, CachedObject};
use crate::{Error, ObjectKey, ResourceVersion};

/// A watch that ends within this time without an event is treated as a failure.
const VERY_SHORT: Duration = Duration::from_secs(1);

/// Time after the requested end of a watch at which the watch is considered dead, because the server or the network has
/// dropped it.
pub(super) const GRACE: Duration = Duration::from_secs(30);

/// A watch without data for this long is considered dead if the source sends bookmarks (one per minute).
const BOOKMARK_SILENCE: Duration = Duration::from_secs(3 * 60);

/// Minimum time limit for opening a watch. Some proxies send the response headers only with the first event, which may
/// be the first bookmark, after a minute.
const FIRST_BOOKMARK: Duration = Duration::from_secs(90);

/// Time limit of a streaming list, including retries. When it expires, the reflector sends list requests instead.
/// client-go does not have such a limit, and waits forever for a server that ignores `sendInitialEvents`.
const STREAMING_PATIENCE: Duration = Duration::from_secs(60);

/// An internal error starts a new series of retries if the previous internal error was longer ago than this.
const INTERNAL_ERROR_RESET: Duration = Duration::from_secs(60);

/// An open watch.
pub(super) struct Stream {
    body: Body,
    lines: Lines,
    began: Instant,
    events: u64,
    /// Timer that ends the wait for the next chunk.
    timer: Pin<Box<Sleep>>,
    ends: Instant,
    /// Set while only ADDED events have been received by a watch that began without a version. These events are not
    /// ordered by version.
    is_unordered: bool,
}

/// The initial objects of a streaming list.
type Initial<K> = BTreeMap<ObjectKey, Result<CachedObject<K>, Unread>>;

/// Result of waiting for the next chunk of a watch.
enum Piece {
    Bytes(Bytes),
    /// The server ended the watch, or the connection broke.
    End,
    /// The timer has expired.
    Late,
}

/// Reasons for the end of a watch other than errors.
enum Ended {
    /// The watch can be resumed at the last version.
    Over,
    /// No data arrived in time. If the watch has sent events, it is reopened; otherwise the source is listed again.
    Silent,
    /// The watch sent invalid data; a new list is required.
    Lost,
}

impl<K: Cacheable, S: ReflectorStore<K>> Reflector<K, S> {
    /// Watches and applies changes until a new list is needed. The caller passes a returned error to the error handler.
    pub(super) async fn watch(&self, run: &mut Run, mut stream: Option<Stream>) -> Result<(), Error> {
        let mut internal_errors = InternalErrors::new(self.options.internal_error_retry);
        loop {
            let mut current = match stream.take() {
                Some(stream) => stream,
                None => match self.open(run, self.last_sync_resource_version(), false).await {
                    Ok(stream) => stream,
                    Err(err) if err.is_connection_refused() || err.is_too_many_requests() => {
                        self.pause(run).await;
                        continue;
                    }
                    Err(err) => return Err(err),
                },
            };
            match self.follow(&mut current).await {
                Ok(Ended::Over) => {}
                // The connection may be dead, so reopen the watch. If the new watch does not send anything either, list
                // again: a server that was restored from a backup sends nothing until it reaches the requested version.
                Ok(Ended::Silent) if current.events > 0 => {}
                Ok(Ended::Silent | Ended::Lost) => return Ok(()),
                Err(err) if err.is_expired() => return Ok(()),
                Err(err) if err.is_too_many_requests() => self.pause(run).await,
                Err(err) if err.code() == Some(500) && internal_errors.may_retry() => {}
                Err(err) => {
                    tracing::warn!(source = self.source.name(), %err, "the watch ended with an error");
                    return Ok(());
                }
            }
        }
    }

    /// Lists the objects with a streaming list. Returns the watch once the store contains the initial objects. The next
    /// events of the watch are changes.
    pub(super) async fn watch_list(&self, run: &mut Run) -> Result<Stream, Error> {
        let until = Instant::now() + STREAMING_PATIENCE;
        let mut was_cut_off = false;
        loop {
            let version = if run.is_last_unavailable {
                ResourceVersion::default()
            } else {
                self.last_sync_resource_version()
            };
            let was_newest = version.is_empty();
            let mut objects = Initial::new();
            match self.stream(run, version, until, &mut objects).await {
                Ok(Some((stream, version))) => {
                    run.is_last_unavailable = false;
                    *self.last() = version.clone();
                    self.contact.listed();
                    let (mut listed, mut unread) = (Vec::with_capacity(objects.len()), Vec::new());
                    for item in objects.into_values() {
                        match item {
                            Ok(object) => listed.push(object),
                            Err(it) => unread.push(it),
                        }
                    }
                    self.store.replace_keeping(listed, unread, version);
                    self.store.room().await;
                    return Ok(stream);
                }
                // Retry once without a delay, but not more often, because the server may cut off every watch.
                Ok(None) if !was_cut_off => was_cut_off = true,
                Ok(None) => drop(timeout_at(until, self.pause(run)).await),
                Err(err) if err.is_connection_refused() || err.is_too_many_requests() => {
                    drop(timeout_at(until, self.pause(run)).await);
                }
                Err(err) if !was_newest && (err.is_expired() || err.is_version_too_large()) => {
                    run.is_last_unavailable = true;
                }
                Err(err) => return Err(err),
            }
            if Instant::now() >= until {
                return Err(Error::unanswered("a streaming list", STREAMING_PATIENCE));
            }
        }
    }

    /// Makes one attempt at a streaming list. Returns the watch and the version of the complete list; `None` if the
    /// watch ended too early.
    async fn stream(
        &self,
        run: &mut Run,
        version: ResourceVersion,
        until: Instant,
        objects: &mut Initial<K>,
    ) -> Result<Option<(Stream, ResourceVersion)>, Error> {
        let mut stream = self.open(run, version, true).await?;
        stream.wait_until(until);
        Ok(self
            .collect(run, &mut stream, objects)
            .await?
            .map(|version| (stream, version)))
    }

    /// Returns the time without data after which a watch is considered dead; `None` if the source sends no bookmarks.
    pub(super) fn watch_silence(&self) -> Option<Duration> {
        self.contact.sends_bookmarks().then_some(BOOKMARK_SILENCE)
    }

    async fn open(&self, run: &mut Run, version: ResourceVersion, initial: bool) -> Result<Stream, Error> {
        let (least, most) = self.options.watch_seconds();
        let seconds = run.jitter.seconds(least, most);
        let is_unordered = version.is_empty() || version.is_any();
        let options = WatchOptions {
            resource_version: version,
            send_initial_events: initial,
            timeout_seconds: u32::try_from(seconds).unwrap_or(u32::MAX),
        };
        let half = self.options.request_timeout / 2;
        let limit = if initial { half } else { half.max(FIRST_BOOKMARK) };
        let began = Instant::now();
        let asking = timeout(limit, self.source.watch(&options));
        let unanswered = |_| Error::unanswered(format!("watching {}", self.source.name()), limit);
        let body = asking.await.map_err(unanswered)??;
        self.contact.heard();
        let ends = began + Duration::from_secs(seconds) + GRACE;
        Ok(Stream {
            body,
            lines: Lines::default(),
            began,
            events: 0,
            timer: Box::pin(sleep_until(ends)),
            ends,
            is_unordered,
        })
    }

    /// Collects the initial objects in `objects`, and returns the version of the list; `None` if the watch ended too
    /// early and may be restarted.
    async fn collect(
        &self,
        run: &mut Run,
        stream: &mut Stream,
        objects: &mut Initial<K>,
    ) -> Result<Option<ResourceVersion>, Error> {
        loop {
            match stream.next().await {
                Piece::Bytes(bytes) => {
                    self.contact.heard();
                    stream.lines.push(&bytes);
                }
                Piece::End => {
                    stream.check_length()?;
                    return Ok(None);
                }
                Piece::Late => {
                    run.cannot_stream = true;
                    return Err(Error::refused("the source does not mark the end of the initial events"));
                }
            }
            while let Some(line) = stream.lines.next() {
                stream.events += 1;
                let line = WatchLine::read(line).map_err(|err| Error::decode("a watch event", err))?;
                match &*line.kind {
                    "ADDED" | "MODIFIED" => {
                        if let Some(item) = self.item(line.object, &line.header) {
                            let key = item.as_ref().map_or_else(|it| &it.key, CachedObject::key).clone();
                            objects.insert(key, item);
                        }
                    }
                    "DELETED" => drop(objects.remove(&line.header.key())),
                    "BOOKMARK" if line.ends_initial_events() => {
                        let version = line.header.resource_version();
                        // All further events are ordered by version.
                        stream.is_unordered = false;
                        return Ok(Some(version));
                    }
                    "BOOKMARK" => {}
                    "ERROR" => return Err(error_of(line.object)),
                    other => tracing::error!(source = self.source.name(), kind = other, "an unknown event is skipped"),
                }
            }
        }
    }

    /// Applies the events of one watch until it ends.
    async fn follow(&self, stream: &mut Stream) -> Result<Ended, Error> {
        loop {
            // The buffer may still contain unread lines from a streaming list.
            while let Some(line) = stream.lines.next() {
                stream.events += 1;
                let line = match WatchLine::read(line) {
                    Ok(line) => line,
                    Err(err) => {
                        let err = Error::decode("a watch event", err);
                        tracing::warn!(source = self.source.name(), %err, "the watch cannot be read");
                        return Ok(Ended::Lost);
                    }
                };
                let moves = line.kind != "ADDED" || !stream.is_unordered;
                stream.is_unordered &= line.kind == "ADDED";
                let version = line.header.resource_version();
                if self.apply(&line)? && moves && !version.is_empty() {
                    let mut last = self.last();
                    // A DELETED event may contain the version of the object's last update.
                    let is_older = version < *last;
                    if !is_older {
                        *last = version;
                    }
                }
            }
            self.store.room().await;
            let due = self.watch_silence().map(|it| Instant::now() + it);
            stream.wait_until(due.map_or(stream.ends, |due| due.min(stream.ends)));
            match stream.next().await {
                Piece::Bytes(bytes) => {
                    self.contact.heard();
                    stream.lines.push(&bytes);
                }
                Piece::End => {
                    stream.check_length()?;
                    return Ok(Ended::Over);
                }
                Piece::Late if Instant::now() < stream.ends => return Ok(Ended::Silent),
                Piece::Late => return Ok(Ended::Over),
            }
        }
    }

    /// Applies an event to the store. Returns `false` for unknown event types.
    fn apply(&self, line: &WatchLine<'_>) -> Result<bool, Error> {
        let object = |store: &dyn Fn(CachedObject<K>)| {
            match self.options.object(line.header.key(), line.object, &line.header) {
                Ok(object) => store(object),
                Err(err) => self.report_unread(&err),
            }
            true
        };
        Ok(match &*line.kind {
            "ADDED" => object(&|it| self.store.add(it)),
            "MODIFIED" => object(&|it| self.store.update(it)),
            "DELETED" => {
                self.delete(line);
                true
            }
            "BOOKMARK" => {
                self.contact.saw_bookmark();
                self.store.bookmark(&line.header.resource_version());
                true
            }
            "ERROR" => return Err(error_of(line.object)),
            other => {
                tracing::error!(source = self.source.name(), kind = other, "an unknown event is skipped");
                false
            }
        })
    }
}

impl<K: Cacheable, S: ReflectorStore<K>> Reflector<K, S> {
    /// Deletes an object even if its last state cannot be decoded, because no later event will delete it.
    fn delete(&self, line: &WatchLine<'_>) {
        let (key, version) = (line.header.key(), line.header.resource_version());
        if key.name().is_empty() {
            return tracing::error!(
                source = self.source.name(),
                "a deletion of an object without a name is skipped"
            );
        }
        let err = match self.options.object(key.clone(), line.object, &line.header) {
            Ok(object) => return self.store.delete(object),
            Err(err) => err,
        };
        self.report_unread(&err);
        if let Some(known) = self.store.known(&key) {
            self.store.vanish(known);
            if !version.is_empty() {
                self.store.bookmark(&version);
            }
        } else if let Ok(object) = self.options.unread(line.object, &line.header) {
            // The store may contain an ADDED event of the object that has not been applied yet.
            self.store.delete(object);
        }
    }
}

impl Stream {
    /// Changes the deadline of the timer. Does nothing if the deadline changes by less than a second, because chunks
    /// often arrive in bursts.
    fn wait_until(&mut self, due: Instant) {
        if due.max(self.timer.deadline()) - due.min(self.timer.deadline()) >= Duration::from_secs(1) {
            self.timer.as_mut().reset(due);
        }
    }

    async fn next(&mut self) -> Piece {
        std::future::poll_fn(|cx| {
            if let Poll::Ready(piece) = self.body.poll_next_unpin(cx) {
                return Poll::Ready(match piece {
                    Some(Ok(bytes)) => Piece::Bytes(bytes),
                    Some(Err(err)) => {
                        tracing::debug!(%err, "the connection of the watch broke");
                        Piece::End
                    }
                    None => Piece::End,
                });
            }
            self.timer.as_mut().poll(cx).map(|()| Piece::Late)
        })
        .await
    }

    /// Fails if the watch ended within a second without an event. The caller then pauses before the next attempt.
    fn check_length(&self) -> Result<(), Error> {
        if self.events == 0 && self.began.elapsed() < VERY_SHORT {
            return Err(Error::refused(
                "very short watch: it ended within a second and without an event",
            ));
        }
        Ok(())
    }
}

/// Converts the Status in an ERROR event to an error.
fn error_of(object: &str) -> Error {
    match serde_json::from_str::<Status>(object) {
        Ok(status) => Error::from_status(status),
        Err(err) => Error::decode("an ERROR event of a watch", err),
    }
}

/// Limits the time for which watches are restarted immediately after internal server errors.
struct InternalErrors {
    retry: Duration,
    first: Option<Instant>,
    last: Option<Instant>,
}

impl InternalErrors {
    fn new(retry: Duration) -> Self {
        let (first, last) = (None, None);
        Self { retry, first, last }
    }

    fn may_retry(&mut self) -> bool {
        if self.retry.is_zero() {
            return false;
        }
        if self.last.is_none_or(|last| last.elapsed() > INTERNAL_ERROR_RESET) {
            self.first = Some(Instant::now());
        }
        self.last = Some(Instant::now());
        self.first.is_some_and(|first| first.elapsed() <= self.retry)
    }
}
