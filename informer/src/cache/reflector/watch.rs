//! Watching: events into the store, what to do when a watch ends, and lists that come as a watch.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use kube::core::Status;
use tokio::time::{Instant, Sleep, sleep_until};

use super::document::{Lines, WatchLine};
use super::{Reflector, ReflectorStore, Run};
use crate::cache::list_watch::{Body, WatchOptions};
use crate::object::{Cacheable, Object};
use crate::{Error, ObjectKey, ResourceVersion};

/// A watch that ends sooner than this and without an event counts as failed.
const VERY_SHORT: Duration = Duration::from_secs(1);

/// How long after its time a watch may last until it counts as dead: the server, or the network, has forgotten it.
const GRACE: Duration = Duration::from_secs(30);

/// How long a streaming list may be silent before its end. client-go waits without end here; a server that ignores
/// `sendInitialEvents` would then never be listed.
const BOOKMARK_PATIENCE: Duration = Duration::from_secs(60);

/// Internal errors count as a new series when the last one is so long ago.
const INTERNAL_ERROR_RESET: Duration = Duration::from_secs(60);

/// A watch that was begun.
pub(super) struct Stream {
    body: Body,
    lines: Lines,
    began: Instant,
    events: u64,
    /// At what time it is given up, or looked after.
    timer: Pin<Box<Sleep>>,
    ends: Instant,
    /// It was begun at no certain version, and there were ADDED events alone: they come in no order of versions.
    is_unordered: bool,
}

/// What came of a watch.
enum Piece {
    Bytes(Bytes),
    /// The server ended it, or the connection broke: it goes on where it was.
    End,
    /// The time of the timer has come.
    Late,
}

/// How a watch ended that did not fail.
enum Ended {
    /// It can go on from the last version.
    Over,
    /// Only a new list helps.
    Lost,
}

impl<K: Cacheable, S: ReflectorStore<K>> Reflector<K, S> {
    /// Applies changes until a new list is needed. An error is one that the error handler should know.
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
                Ok(Ended::Lost) => return Ok(()),
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

    /// Lists by a watch: answers it when the store has what there was, to be followed further.
    pub(super) async fn watch_list(&self, run: &mut Run) -> Result<Stream, Error> {
        loop {
            let version = if run.is_last_unavailable {
                ResourceVersion::default()
            } else {
                self.last_sync_resource_version()
            };
            let was_newest = version.is_empty();
            let mut stream = match self.open(run, version, true).await {
                Ok(stream) => stream,
                Err(err) if err.is_connection_refused() || err.is_too_many_requests() => {
                    self.pause(run).await;
                    continue;
                }
                Err(err) if !was_newest && (err.is_expired() || err.is_version_too_large()) => {
                    run.is_last_unavailable = true;
                    continue;
                }
                Err(err) => return Err(err),
            };
            let mut objects = BTreeMap::new();
            match self.collect(run, &mut stream, &mut objects).await {
                Ok(Some(version)) => {
                    run.is_last_unavailable = false;
                    *self.last() = version.clone();
                    self.store.replace(objects.into_values().collect(), version);
                    self.store.room().await;
                    return Ok(stream);
                }
                Ok(None) => {}
                Err(err) if err.is_too_many_requests() => self.pause(run).await,
                Err(err) if !was_newest && (err.is_expired() || err.is_version_too_large()) => {
                    run.is_last_unavailable = true;
                }
                Err(err) => return Err(err),
            }
        }
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
        let body = self.source.watch(&options).await?;
        let began = Instant::now();
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

    /// The initial events, into `objects`; `None` if the watch ended before they did and may be begun anew.
    async fn collect(
        &self,
        run: &mut Run,
        stream: &mut Stream,
        objects: &mut BTreeMap<ObjectKey, Object<K>>,
    ) -> Result<Option<ResourceVersion>, Error> {
        loop {
            stream.timer.as_mut().reset(Instant::now() + BOOKMARK_PATIENCE);
            match stream.next().await {
                Piece::Bytes(bytes) => stream.lines.push(&bytes),
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
                        if let Some(object) = self.item(line.object, &line.header) {
                            objects.insert(object.key().clone(), object);
                        }
                    }
                    "DELETED" => drop(objects.remove(&line.header.key())),
                    "BOOKMARK" if line.ends_initial_events() => {
                        let version = line.header.resource_version();
                        // From here on events are in the order of their versions.
                        stream.is_unordered = false;
                        stream.timer.as_mut().reset(stream.ends);
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
            // A streaming list may have left lines.
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
                    *self.last() = version;
                }
            }
            self.store.room().await;
            match stream.next().await {
                Piece::Bytes(bytes) => stream.lines.push(&bytes),
                Piece::End => {
                    stream.check_length()?;
                    return Ok(Ended::Over);
                }
                Piece::Late => return Ok(Ended::Over),
            }
        }
    }

    /// Applies one event; `false` if there is none of this kind.
    fn apply(&self, line: &WatchLine<'_>) -> Result<bool, Error> {
        let object = |store: &dyn Fn(Object<K>)| {
            match self.options.object(line.header.key(), line.object, &line.header) {
                Ok(object) => store(object),
                Err(err) => tracing::error!(source = self.source.name(), %err, "an object is dropped"),
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
    /// What is deleted goes in any case: no later event would take it out of the store.
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
        tracing::error!(source = self.source.name(), %err, "the last state of a deleted object is dropped");
        if let Some(known) = self.store.known(&key) {
            self.store.vanish(known);
            if !version.is_empty() {
                self.store.bookmark(&version);
            }
        } else if let Ok(object) = self.options.unread(line.object, &line.header) {
            // It may be on its way into the store.
            self.store.delete(object);
        }
    }
}

impl Stream {
    async fn next(&mut self) -> Piece {
        std::future::poll_fn(|cx| {
            if let Poll::Ready(piece) = self.body.poll_next_unpin(cx) {
                return Poll::Ready(match piece {
                    Some(Ok(bytes)) => Piece::Bytes(bytes),
                    Some(Err(err)) => {
                        tracing::debug!(%err, "the watch broke");
                        Piece::End
                    }
                    None => Piece::End,
                });
            }
            self.timer.as_mut().poll(cx).map(|()| Piece::Late)
        })
        .await
    }

    /// A watch that ended at once and without an event is an error, so that it is not begun again without a pause.
    fn check_length(&self) -> Result<(), Error> {
        if self.events == 0 && self.began.elapsed() < VERY_SHORT {
            return Err(Error::refused(
                "a very short watch: it ended within a second and without an event",
            ));
        }
        Ok(())
    }
}

/// The Status in an ERROR event.
fn error_of(object: &str) -> Error {
    match serde_json::from_str::<Status>(object) {
        Ok(status) => Error::from_status(status),
        Err(err) => Error::decode("the error of a watch", err),
    }
}

/// For how long internal errors of the server are tried again at once.
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
