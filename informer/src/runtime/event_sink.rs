//! `Lanes`: sends several Events to the server concurrently, so that slow requests do not delay other Events.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures::future::{BoxFuture, FutureExt};
use futures::stream::{FuturesUnordered, StreamExt};
use k8s_openapi::api::events::v1::{Event, EventSeries};
use kube::Client;
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde_json::json;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::event_series::SeriesKey;
use super::recorder::RecorderConfig;
use crate::Error;
use crate::jitter::Jitter;
use crate::metrics::{Collect, Samples};

/// Maximum number of concurrent writes of Events. All writes of a series use the same lane, because an Event must be
/// created before its count is written.
const LANES: usize = 8;

/// Maximum number of attempts for a write, and the delay between them, which is randomly extended by up to a quarter. A
/// write is not retried if the server responds with an error.
const TRIES: (u32, Duration) = (12, Duration::from_secs(10));

/// Time limit for an attempt. A request without a response is treated as failed, so that it does not block later writes
/// of its lane.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);

/// A write of an Event: the creation of the Event, or a new count for an existing Event.
pub(super) struct Write {
    pub(super) event: Event,
    pub(super) series: Option<EventSeries>,
}

/// Sends writes of Events to the server.
pub(super) struct Sink {
    pub(super) client: Client,
    pub(super) config: Arc<RecorderConfig>,
    pub(super) dropped: Arc<Dropped>,
}

/// All writes that are queued or in progress.
pub(super) struct Lanes {
    sink: Arc<Sink>,
    stop: CancellationToken,
    /// Queues of writes. The first write of each lane is in progress.
    lanes: [VecDeque<Write>; LANES],
    running: FuturesUnordered<BoxFuture<'static, usize>>,
}

impl Lanes {
    pub(super) fn new(sink: Arc<Sink>, stop: CancellationToken) -> Self {
        Self {
            sink,
            stop,
            lanes: Default::default(),
            running: FuturesUnordered::new(),
        }
    }

    /// Returns the number of writes that are queued or in progress.
    pub(super) fn len(&self) -> usize {
        self.lanes.iter().map(VecDeque::len).sum()
    }

    pub(super) fn push(&mut self, key: &SeriesKey, write: Write) {
        let lane = usize::try_from(Jitter::seed_of(&key.concat()) % LANES as u64).unwrap_or_default();
        let is_idle = self.lanes[lane].is_empty();
        self.lanes[lane].push_back(write);
        if is_idle {
            self.start(lane);
        }
    }

    /// Waits until a write has completed.
    pub(super) async fn done(&mut self) {
        match self.running.next().await {
            Some(lane) => {
                self.lanes[lane].pop_front();
                self.start(lane);
            }
            None => std::future::pending().await,
        }
    }

    /// Waits until all writes have completed.
    pub(super) async fn finished(&mut self) {
        while !self.running.is_empty() {
            self.done().await;
        }
    }

    fn start(&mut self, lane: usize) {
        let Some(Write { event, series }) = self.lanes[lane].front_mut() else {
            return;
        };
        let write = Write {
            event: std::mem::take(event),
            series: series.take(),
        };
        let (sink, stop) = (Arc::clone(&self.sink), self.stop.clone());
        let writing = async move {
            sink.write(write, stop).await;
            lane
        };
        self.running.push(writing.boxed());
    }
}

impl Sink {
    /// Sends a write until it succeeds, the server responds with an error, or the maximum number of attempts is
    /// reached. After `stop` is cancelled, makes at most one more attempt.
    async fn write(&self, write: Write, stop: CancellationToken) {
        let namespace = write.event.metadata.namespace.as_deref().unwrap_or("default");
        let api: Api<Event> = Api::namespaced(self.client.clone(), namespace);
        let name = write.event.metadata.name.as_deref().unwrap_or_default();
        let mut jitter = Jitter::new(self.config.seed, &format!("{} {name}", self.config.instance));
        for tried in 1..=TRIES.0 {
            let written = timeout(REQUEST_TIMEOUT, self.try_write(&api, &write)).await;
            let unanswered = |_| Err(Error::unanswered(format!("event {name}"), REQUEST_TIMEOUT));
            let Err(err) = written.unwrap_or_else(unanswered) else {
                return;
            };
            let is_refused = err.code().is_some();
            if is_refused || tried == TRIES.0 || stop.is_cancelled() {
                self.dropped.count(DropReason::Failed);
                return tracing::warn!(error = %err, "an event could not be written");
            }
            stop.run_until_cancelled(sleep(jitter.prolong(TRIES.1, 0.25))).await;
        }
    }

    async fn try_write(&self, api: &Api<Event>, write: &Write) -> Result<(), Error> {
        let mut event = write.event.clone();
        if let Some(series) = &write.series {
            let name = event.metadata.name.clone().unwrap_or_default();
            let patch = Patch::Merge(json!({ "series": series }));
            match api
                .patch(&name, &PatchParams::default(), &patch)
                .await
                .map_err(Error::from)
            {
                // The Event has expired or was deleted. Create it again under the same name, so that later counts can
                // be written to it.
                Err(err) if err.is_not_found() => event.series = Some(series.clone()),
                Err(err) => return Err(err),
                Ok(_) => return Ok(()),
            }
        }
        match api.create(&PostParams::default(), &event).await.map_err(Error::from) {
            Err(err) if !err.is_already_exists() => Err(err),
            Ok(_) | Err(_) => Ok(()),
        }
    }
}

/// Reason why an event was not written.
#[derive(Clone, Copy, Debug)]
pub(super) enum DropReason {
    /// The queue is full, or the writer has stopped.
    Full,
    /// The spam filter dropped the event.
    Spam,
    /// The server responded with an error, or all attempts failed.
    Failed,
}

/// Number of dropped events by reason.
#[derive(Debug)]
pub(super) struct Dropped {
    controller: String,
    full: AtomicU64,
    spam: AtomicU64,
    failed: AtomicU64,
}

impl Dropped {
    pub(super) fn new(controller: &str) -> Self {
        Self {
            controller: controller.to_owned(),
            full: AtomicU64::new(0),
            spam: AtomicU64::new(0),
            failed: AtomicU64::new(0),
        }
    }

    pub(super) fn count(&self, why: DropReason) {
        let counter = match why {
            DropReason::Full => &self.full,
            DropReason::Spam => &self.spam,
            DropReason::Failed => &self.failed,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

impl Collect for Dropped {
    fn collect(&self, samples: &mut Samples) {
        let help = "Events that were not written, by reason.";
        for (reason, count) in [("full", &self.full), ("spam", &self.spam), ("failed", &self.failed)] {
            let labels = &[("controller", self.controller.as_str()), ("reason", reason)];
            let count = count.load(Ordering::Relaxed) as f64;
            samples.counter("informer_events_dropped_total", help, labels, count);
        }
    }
}
