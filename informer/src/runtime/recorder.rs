//! `EventRecorder`: records Events about objects, such as the events in the output of `kubectl describe`.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures::FutureExt;
use futures::future::{BoxFuture, Either, select};
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::Event;
use kube::api::ObjectMeta;
use kube::{Client, Resource};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use super::event_series::{Correlator, Count, SeriesKey, Verdict};
use super::event_sink::{DropReason, Dropped, Lanes, Sink, Write};
use super::runnable::{Runnable, RunnableGroup};
use crate::Clock;
use crate::jitter::Jitter;
use crate::metrics::{Collect, Metrics};
use crate::reconcile::BoxError;

/// Maximum number of queued events; further events are dropped. The writer takes events from the queue while fewer than
/// this number are in progress.
const QUEUE: usize = 1000;

/// Interval at which the counts of series are written.
const REFRESH: Duration = Duration::from_secs(30 * 60);

/// Time limit for sending the queued events when the writer stops. When it expires, the remaining events are dropped.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(10);

/// Maximum length of a note in bytes, as limited by the server.
const NOTE: usize = 1024;

/// Type of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum EventType {
    /// Information about normal operation.
    Normal,
    /// A problem that may require attention.
    Warning,
}

/// Contents of an event.
#[derive(Clone, Debug)]
pub struct Note {
    /// Type of the event: `Normal` or `Warning`.
    pub event_type: EventType,
    /// Reason as a single CamelCase word, such as `Created`. At most 128 bytes.
    pub reason: String,
    /// Action as a single CamelCase word, such as `CreateDeployment`. At most 128 bytes.
    pub action: String,
    /// Human-readable message. Truncated after 1,024 bytes.
    pub note: String,
    /// Another object that is related to the event.
    pub related: Option<ObjectReference>,
    /// Unused. End struct literals with `..Note::normal(reason, action, note)`, because fields may be added.
    #[doc(hidden)]
    pub _more: (),
}

impl Note {
    /// Creates a note of type `Normal`.
    pub fn normal(reason: &str, action: &str, note: impl Into<String>) -> Self {
        Self {
            event_type: EventType::Normal,
            reason: reason.to_owned(),
            action: action.to_owned(),
            note: note.into(),
            related: None,
            _more: (),
        }
    }

    /// Creates a note of type `Warning`.
    pub fn warning(reason: &str, action: &str, note: impl Into<String>) -> Self {
        Self {
            event_type: EventType::Warning,
            ..Self::normal(reason, action, note)
        }
    }
}

/// Options of an event recorder.
#[derive(Clone, Debug)]
pub struct RecorderConfig {
    /// Name of the reporting controller, such as `example.com/web-operator`.
    pub controller: String,
    /// Name of the reporting process, such as the name of its Pod. At most 128 bytes.
    pub instance: String,
    /// Clock for the times of events.
    pub clock: Clock,
    /// Seed of the delays between attempts. Default: 0, which selects a random seed; see
    /// [`ReflectorOptions::seed`](crate::cache::ReflectorOptions::seed).
    pub seed: u64,
    /// Unused. End struct literals with `..RecorderConfig::new(controller, instance)`, because fields may be added.
    #[doc(hidden)]
    pub _more: (),
}

impl RecorderConfig {
    /// Returns default options, with the system clock.
    pub fn new(controller: &str, instance: &str) -> Self {
        Self {
            controller: controller.to_owned(),
            instance: instance.to_owned(),
            clock: Clock::system(),
            seed: 0,
            _more: (),
        }
    }
}

/// Records Events of `events.k8s.io/v1`. Clones refer to the same recorder.
///
/// Recording does not wait and cannot fail: an [`EventWriter`], which a [`Manager`](super::Manager) runs, sends the
/// events. Events that differ only in their notes form a series: the second event adds a count to the Event of the
/// first one, and further events increase the count, which is written every half hour. A series ends after six minutes
/// without an event. For each controller and object, there may be a burst of 25 events, plus one event every five
/// minutes; further events are dropped. Events are also dropped if 1,000 events are already queued. Another 1,000
/// events may be in progress, of which at most eight are sent concurrently. Dropped events are
/// [counted](Self::register_metrics).
///
/// ```
/// use informer::runtime::{EventRecorder, Manager, Note, RecorderConfig};
/// use k8s_openapi::api::core::v1::Pod;
///
/// # fn record(manager: &Manager, pod: &Pod) -> Result<(), informer::Error> {
/// let (recorder, writer) = EventRecorder::new(manager.client(), RecorderConfig::new("example.com/web", "web-0"));
/// manager.add(writer)?;
/// recorder.record(pod, Note::normal("Created", "CreatePod", "it is there"));
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct EventRecorder {
    config: Arc<RecorderConfig>,
    events: mpsc::Sender<(Event, Instant)>,
    /// Number in the name of the last event, used to generate unique names.
    last: Arc<AtomicU64>,
    dropped: Arc<Dropped>,
}

/// Sends the events of an [`EventRecorder`]: up to eight concurrently, but events of the same series one after the
/// other.
pub struct EventWriter {
    sink: Arc<Sink>,
    events: mpsc::Receiver<(Event, Instant)>,
    correlator: Correlator,
}

impl EventRecorder {
    /// Creates a recorder and the writer that sends its events.
    pub fn new(client: Client, config: RecorderConfig) -> (Self, EventWriter) {
        let (sender, events) = mpsc::channel(QUEUE);
        let config = Arc::new(config);
        let dropped = Arc::new(Dropped::new(&config.controller));
        let recorder = Self {
            config: Arc::clone(&config),
            events: sender,
            last: Arc::default(),
            dropped: Arc::clone(&dropped),
        };
        let writer = EventWriter {
            sink: Arc::new(Sink {
                client,
                config,
                dropped,
            }),
            events,
            correlator: Correlator::default(),
        };
        (recorder, writer)
    }

    /// Registers the metric `informer_events_dropped_total`, with the label `reason` (`full`, `spam`, `failed`).
    pub fn register_metrics(&self, metrics: &Metrics) {
        let collector: Arc<dyn Collect> = self.dropped.clone();
        metrics.register(&collector);
    }

    /// Records an event about an object.
    pub fn record<K: Resource<DynamicType = ()>>(&self, regarding: &K, note: Note) {
        self.record_about(regarding.object_ref(&()), note);
    }

    /// Records an event about the object that a reference identifies.
    pub fn record_about(&self, regarding: ObjectReference, note: Note) {
        let Note {
            event_type,
            reason,
            action,
            mut note,
            related,
            _more: (),
        } = note;
        let end = (0..=NOTE.min(note.len())).rev().find(|end| note.is_char_boundary(*end));
        note.truncate(end.unwrap_or_default());
        let namespace = regarding.namespace.clone().filter(|it| !it.is_empty());
        let name = event_name(regarding.name.as_deref().unwrap_or_default(), self.number());
        let event = Event {
            metadata: ObjectMeta {
                name: Some(name),
                namespace: Some(namespace.unwrap_or_else(|| "default".to_owned())),
                ..ObjectMeta::default()
            },
            event_time: Some(self.config.clock.micro_time()),
            type_: Some(
                match event_type {
                    EventType::Normal => "Normal",
                    EventType::Warning => "Warning",
                }
                .to_owned(),
            ),
            reason: Some(reason),
            action: Some(action),
            note: Some(note),
            regarding: Some(regarding),
            related,
            reporting_controller: Some(self.config.controller.clone()),
            reporting_instance: Some(self.config.instance.clone()),
            ..Event::default()
        };
        if self.events.try_send((event, Instant::now())).is_err() {
            self.dropped.count(DropReason::Full);
            tracing::warn!(
                controller = self.config.controller,
                "an event was dropped: the queue is full, or there is no writer"
            );
        }
    }

    /// Returns the current time in nanoseconds, or the last number plus one if that is greater, so that the names of
    /// events are unique.
    fn number(&self) -> u64 {
        let now = u64::try_from(self.config.clock.now().as_nanosecond()).unwrap_or_default();
        let last = self
            .last
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |last| Some(now.max(last + 1)));
        let (Ok(last) | Err(last)) = last;
        now.max(last + 1)
    }
}

/// Maximum length of an object's name, in bytes.
const NAME: usize = 253;

/// Returns a name for an event about an object. If the object's name is too long, or not a valid prefix of a name, it
/// is replaced by its hash.
fn event_name(regarding: &str, number: u64) -> String {
    let name = format!("{regarding}.{number:x}");
    let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let is_label = |label: &str| {
        let ends = [label.bytes().next(), label.bytes().last()];
        ends.into_iter().all(|end| end.is_some_and(is_plain)) && label.bytes().all(|it| is_plain(it) || it == b'-')
    };
    if name.len() <= NAME && name.split('.').all(is_label) {
        return name;
    }
    format!("{:016x}.{number:x}", Jitter::seed_of(regarding))
}

impl EventWriter {
    /// Sends events until `stop` is cancelled. Then attempts to send each queued event once, for at most ten seconds in
    /// total.
    pub async fn run(mut self, stop: CancellationToken) {
        let mut refresh = Instant::now() + REFRESH;
        let mut lanes = Lanes::new(Arc::clone(&self.sink), stop.clone());
        loop {
            let next = {
                let (has_room, events) = (lanes.len() < QUEUE, &mut self.events);
                let event = std::pin::pin!(async {
                    match has_room {
                        true => events.recv().await,
                        false => std::future::pending().await,
                    }
                });
                let timer = std::pin::pin!(async {
                    match has_room {
                        true => sleep_until(refresh).await,
                        false => std::future::pending().await,
                    }
                });
                let done = std::pin::pin!(lanes.done());
                match stop.run_until_cancelled(select(done, select(event, timer))).await {
                    None => break,
                    Some(Either::Left(((), _))) => continue,
                    Some(Either::Right((Either::Left((None, _)), _))) => break,
                    Some(Either::Right((Either::Left((Some(event), _)), _))) => Some(event),
                    Some(Either::Right((Either::Right(((), _)), _))) => None,
                }
            };
            match next {
                Some((event, at)) => self.take(event, at, &mut lanes),
                None => {
                    refresh = Instant::now();
                    if self.refresh(&mut lanes) {
                        refresh += REFRESH;
                    }
                }
            }
        }
        while let Ok((event, at)) = self.events.try_recv() {
            self.take(event, at, &mut lanes);
        }
        if timeout(DRAIN_TIMEOUT, lanes.finished()).await.is_err() {
            let late = lanes.len();
            (0..late).for_each(|_| self.sink.dropped.count(DropReason::Failed));
            tracing::warn!(
                count = late,
                "events were dropped: the server did not respond during the shutdown"
            );
        }
    }

    fn take(&mut self, mut event: Event, at: Instant, lanes: &mut Lanes) {
        let key = series_key(&event);
        let source = format!("{}/{}", key[3], key[5]);
        let observed = event.event_time.clone();
        let observed = observed.unwrap_or_else(|| self.sink.config.clock.micro_time());
        match self.correlator.observe(&key, &source, &event, observed, at) {
            Verdict::Create(ended) => {
                ended.into_iter().for_each(|count| push_count(lanes, count));
                lanes.push(&key, Write { event, series: None });
            }
            Verdict::Count(count) => {
                let count = *count;
                event.metadata.name = count.event.metadata.name;
                let series = Some(count.series);
                lanes.push(&key, Write { event, series });
            }
            Verdict::Later => {}
            Verdict::Drop => {
                self.sink.dropped.count(DropReason::Spam);
                tracing::debug!(source, "an event was dropped by the spam filter");
            }
        }
    }

    /// Writes the counts of series that have changed. Returns `false` if the lanes are full, because counts may remain
    /// in this case.
    fn refresh(&mut self, lanes: &mut Lanes) -> bool {
        let room = QUEUE.saturating_sub(lanes.len());
        for count in self.correlator.refresh(Instant::now(), room) {
            push_count(lanes, count);
        }
        lanes.len() < QUEUE
    }
}

fn push_count(lanes: &mut Lanes, count: Count) {
    let Count { key, event, series } = count;
    let series = Some(series);
    lanes.push(&key, Write { event, series });
}

/// Returns the key of the series that an event belongs to. Its last two parts are the regarding object and the
/// namespace.
fn series_key(event: &Event) -> SeriesKey {
    let text = |it: &Option<String>| it.clone().unwrap_or_default();
    let reference = |it: &Option<ObjectReference>| match it {
        Some(it) => [
            &it.api_version,
            &it.kind,
            &it.namespace,
            &it.name,
            &it.uid,
            &it.field_path,
        ]
        .map(|it| it.as_deref().unwrap_or_default())
        .join("/"),
        None => String::new(),
    };
    [
        text(&event.type_),
        text(&event.action),
        text(&event.reason),
        format!(
            "{}@{}",
            text(&event.reporting_controller),
            text(&event.reporting_instance)
        ),
        reference(&event.related),
        reference(&event.regarding),
        text(&event.metadata.namespace),
    ]
}

impl Runnable for EventWriter {
    fn name(&self) -> String {
        format!("events of {}", self.sink.config.controller)
    }

    fn group(&self) -> RunnableGroup {
        RunnableGroup::Base
    }

    fn run(self: Box<Self>, stop: CancellationToken) -> BoxFuture<'static, Result<(), BoxError>> {
        (*self).run(stop).map(Ok).boxed()
    }
}

impl fmt::Debug for EventRecorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.config.fmt(f)
    }
}

impl fmt::Debug for EventWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.sink.config.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a reference to the Pod with this number.
    fn numbered(number: usize) -> ObjectReference {
        ObjectReference {
            name: Some(format!("pod-{number}")),
            ..ObjectReference::default()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn event_counts_above_the_queue_capacity_are_written_later() {
        let never = tower::service_fn(|_: http::Request<kube::client::Body>| {
            std::future::pending::<Result<http::Response<kube::client::Body>, kube::Error>>()
        });
        let client = Client::new(never, "default");
        let (recorder, mut writer) = EventRecorder::new(client, RecorderConfig::new("web", "web-0"));
        let lanes = |writer: &EventWriter| Lanes::new(Arc::clone(&writer.sink), CancellationToken::new());
        let mut first = lanes(&writer);
        for number in 0..QUEUE + 200 {
            let regarding = numbered(number);
            for _ in 0..3 {
                recorder.record_about(regarding.clone(), Note::normal("Reason", "Act", ""));
                let (event, at) = writer.events.try_recv().expect("the event was queued");
                writer.take(event, at, &mut first);
            }
        }
        // All series have ended, but series with unwritten counts must be kept.
        tokio::time::advance(REFRESH).await;
        let waiting = [(); 3].map(|()| {
            let mut lanes = lanes(&writer);
            writer.refresh(&mut lanes);
            lanes.len()
        });
        assert_eq!(waiting, [QUEUE, 200, 0]);
    }

    #[tokio::test(start_paused = true)]
    async fn event_counts_above_the_queue_capacity_are_all_written() {
        let patches = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&patches);
        let server = tower::service_fn(move |request: http::Request<kube::client::Body>| {
            if request.method() == http::Method::PATCH {
                count.fetch_add(1, Ordering::Relaxed);
            }
            let event = kube::client::Body::from(br#"{"metadata": {}}"#.to_vec());
            std::future::ready(Ok::<_, kube::Error>(http::Response::new(event)))
        });
        let client = Client::new(server, "default");
        let (recorder, writer) = EventRecorder::new(client, RecorderConfig::new("web", "web-0"));
        let recording = std::pin::pin!(async {
            for number in 0..QUEUE + 200 {
                let regarding = numbered(number);
                for _ in 0..3 {
                    recorder.record_about(regarding.clone(), Note::normal("Reason", "Act", ""));
                }
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            tokio::time::sleep(REFRESH).await;
        });
        select(std::pin::pin!(writer.run(CancellationToken::new())), recording).await;
        let counts = 2 * (QUEUE as u64 + 200);
        assert_eq!(
            patches.load(Ordering::Relaxed),
            counts,
            "later occurrences are written as counts"
        );
    }
}
