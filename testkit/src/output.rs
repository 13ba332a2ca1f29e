//! The tracing output of controllers, and the reconciles, which are identified by their spans.
//!
//! While a run is recorded, the subscriber of the recording replaces any other subscriber of the thread. The output of
//! other threads is not recorded, but the tasks of a `TestCluster` run on a single thread.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fmt::{self, Write as _};
use std::sync::{Arc, Mutex, OnceLock};

use fake_apiserver::trace::{Group, Log, Mark, Marks};
use tokio::time::Instant;
use tracing::dispatcher::{self, DefaultGuard, Dispatch};
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::metadata::Metadata;
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::NoSubscriber;
use tracing::{Event, Level, Subscriber};
use tracing_core::span::Current;

use crate::lock::lock;
use crate::text::shortened;

/// Environment variable that enables traces: `1`, or the directory in which to write them.
pub(crate) const TRACE: &str = "DRYDOCK_TRACE";

/// Maximum number of recorded lines; later lines are dropped.
const LINES: usize = 20_000;

/// Maximum number of characters of a line.
const LINE_CHARS: usize = 1_000;

/// Crates with `DEBUG` output that is not recorded, because it is about the transport rather than the controller.
const NOISE: [&str; 8] = [
    "hyper",
    "h2",
    "tower",
    "rustls",
    "mio",
    "tokio",
    "kube_client",
    "kube_runtime",
];

/// The field that contains the object of a reconcile, in spans of kube-runtime.
const OBJECT: &str = "object.ref";

/// The field that contains the reason of a reconcile.
const REASON: &str = "object.reason";

/// Returns `true` if the environment variable enables traces.
pub(crate) fn is_asked() -> bool {
    std::env::var_os(TRACE).is_some_and(|it| !it.is_empty() && it != "0")
}

/// A subscriber that records nothing and is never dropped. If a process has only one subscriber, and a thread without a
/// subscriber is the first to write a line, `tracing` disables this line for all threads.
static OTHER: OnceLock<Dispatch> = OnceLock::new();

thread_local! {
    static GUARD: RefCell<Option<DefaultGuard>> = const { RefCell::new(None) };
}

/// A recording. It continues until `end` is called, or until another recording begins on the thread.
#[derive(Clone)]
pub(crate) struct Output(Arc<Shared>);

struct Shared {
    began: Instant,
    /// Returns the number of steps of the run so far.
    place: Box<dyn Fn() -> usize + Send + Sync>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    marks: Marks,
    spans: HashMap<u64, Span>,
    /// Ids of the entered spans, innermost last.
    stack: Vec<u64>,
    last_id: u64,
    left_out: usize,
}

struct Span {
    metadata: &'static Metadata<'static>,
    /// Number of handles to the span.
    handles: usize,
    /// Index of the reconcile that the span represents or that contains it.
    reconcile: Option<usize>,
    /// Name and fields of the span: `name{field=value}`.
    text: String,
}

impl Output {
    /// Starts recording the output of this thread; `place` returns the number of steps of the run so far.
    pub(crate) fn record(began: Instant, place: impl Fn() -> usize + Send + Sync + 'static) -> Self {
        let shared = Arc::new(Shared {
            began,
            place: Box::new(place),
            state: Mutex::default(),
        });
        OTHER.get_or_init(|| Dispatch::new(NoSubscriber::default()));
        let subscriber = Recorder(Arc::clone(&shared));
        GUARD.with_borrow_mut(|guard| {
            // Dropping the guard of an earlier recording resets the subscriber of the thread, so drop it first.
            guard.take();
            *guard = Some(dispatcher::set_default(&Dispatch::new(subscriber)));
        });
        Self(shared)
    }

    /// Returns everything that was recorded so far.
    pub(crate) fn marks(&self) -> Marks {
        let state = lock(&self.0.state);
        let mut marks = state.marks.clone();
        if state.left_out > 0 {
            let text = format!("{} more lines of output are omitted", state.left_out);
            let last = marks.logs.last().cloned().unwrap_or_default();
            marks.logs.push(Log { text, ..last });
        }
        marks
    }

    /// Stops recording on this thread.
    pub(crate) fn end(&self) {
        // At the end of a thread, the thread-local guard of the subscriber may already have been destroyed.
        let _ = GUARD.try_with(|it| it.borrow_mut().take());
    }
}

impl fmt::Debug for Output {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Output").finish_non_exhaustive()
    }
}

/// The subscriber that records spans and events.
struct Recorder(Arc<Shared>);

impl Recorder {
    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        lock(&self.0.state)
    }
}

impl State {
    fn reconcile(&self) -> Option<usize> {
        self.stack.last().and_then(|it| self.spans.get(it)?.reconcile)
    }

    /// Records which reconcile is active from the step with the index `place` on.
    fn mark(&mut self, place: usize) {
        let reconcile = self.reconcile();
        let marks = &mut self.marks.marks;
        if marks.last().is_some_and(|it| it.place == place) {
            marks.pop();
        }
        if marks.last().and_then(|it| it.reconcile) != reconcile {
            marks.push(Mark { place, reconcile });
        }
    }
}

impl Subscriber for Recorder {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        let target = metadata.target().split("::").next().unwrap_or_default();
        let most = match NOISE.contains(&target) {
            true => Level::INFO,
            false => Level::DEBUG,
        };
        *metadata.level() <= most
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(LevelFilter::DEBUG)
    }

    fn new_span(&self, attributes: &Attributes<'_>) -> Id {
        let mut fields = Fields::default();
        attributes.record(&mut fields);
        let name = attributes.metadata().name();
        let mut state = self.state();
        let parent = match (attributes.parent(), attributes.is_contextual()) {
            (Some(parent), _) => Some(parent.into_u64()),
            (None, true) => state.stack.last().copied(),
            (None, false) => None,
        };
        // The outermost span is the reconcile; inner functions may have their own spans.
        let outer = parent.and_then(|it| state.spans.get(&it)?.reconcile);
        let is_reconcile = fields.object.is_some() || name.to_ascii_lowercase().contains("reconcil");
        let reconcile = outer.or_else(|| {
            is_reconcile.then(|| {
                let object = fields.object.take().or_else(|| fields.named());
                state.marks.reconciles.push(Group {
                    client: String::new(),
                    name: object.map_or_else(|| name.to_owned(), |it| format!("reconcile {it}")),
                    reason: fields.reason.take().or_else(|| fields.attempt()).unwrap_or_default(),
                    is_certain: true,
                });
                state.marks.reconciles.len() - 1
            })
        });
        state.last_id += 1;
        let id = state.last_id;
        let text = format!("{name}{{{}}}", fields.text.trim());
        let span = Span {
            metadata: attributes.metadata(),
            handles: 1,
            reconcile,
            text,
        };
        state.spans.insert(id, span);
        Id::from_u64(id)
    }

    fn record(&self, span: &Id, values: &Record<'_>) {
        let mut fields = Fields::default();
        values.record(&mut fields);
        if let Some(span) = self.state().spans.get_mut(&span.into_u64()) {
            // Writing to a String does not fail.
            let _ = write!(span.text, " {}", fields.text.trim());
        }
    }

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut fields = Fields::default();
        event.record(&mut fields);
        // The call may take locks, so it precedes locking the recorder's state.
        let step = (self.0.place)();
        let mut state = self.state();
        if state.marks.logs.len() >= LINES {
            state.left_out += 1;
            return;
        }
        let message = fields.message.unwrap_or_default();
        let text = format!("{message} {}", fields.text.trim());
        let log = Log {
            at: self.0.began.elapsed().as_secs_f64(),
            step,
            group: state.reconcile(),
            level: event.metadata().level().to_string(),
            target: event.metadata().target().to_owned(),
            text: shortened(text.trim(), LINE_CHARS),
        };
        state.marks.logs.push(log);
    }

    fn enter(&self, span: &Id) {
        let place = (self.0.place)();
        let mut state = self.state();
        state.stack.push(span.into_u64());
        state.mark(place);
    }

    fn exit(&self, span: &Id) {
        let place = (self.0.place)();
        let mut state = self.state();
        let left = state.stack.iter().rposition(|it| *it == span.into_u64());
        if let Some(at) = left {
            state.stack.remove(at);
        }
        state.mark(place);
    }

    /// Returns the innermost span. kube's client requires it, because it handles requests in a separate task, which
    /// enters the caller's span.
    fn current_span(&self) -> Current {
        let state = self.state();
        let current = state
            .stack
            .last()
            .and_then(|it| Some((*it, state.spans.get(it)?.metadata)));
        match current {
            Some((id, metadata)) => Current::new(Id::from_u64(id), metadata),
            None => Current::none(),
        }
    }

    fn clone_span(&self, span: &Id) -> Id {
        if let Some(span) = self.state().spans.get_mut(&span.into_u64()) {
            span.handles += 1;
        }
        span.clone()
    }

    fn try_close(&self, span: Id) -> bool {
        let mut state = self.state();
        let Some(known) = state.spans.get_mut(&span.into_u64()) else {
            return false;
        };
        known.handles = known.handles.saturating_sub(1);
        let is_closed = known.handles == 0;
        if is_closed {
            state.spans.remove(&span.into_u64());
        }
        is_closed
    }
}

/// The fields of a span or an event.
#[derive(Default)]
struct Fields {
    message: Option<String>,
    object: Option<String>,
    reason: Option<String>,
    /// The other fields as `name=value`, each preceded by a space.
    text: String,
}

impl Fields {
    fn field(&self, name: &str) -> Option<&str> {
        let mut parts = self.text.split(' ').filter_map(|it| it.split_once('='));
        let value = parts.find(|(it, _)| *it == name)?.1.trim_matches('"');
        (!value.is_empty()).then_some(value)
    }

    /// Returns the object in the fields `kind`, `namespace` and `name`, as in spans of the informer.
    fn named(&self) -> Option<String> {
        let name = self.field("name").or_else(|| self.field("key"))?;
        let namespace = self.field("namespace").map_or(String::new(), |it| format!("{it}/"));
        let kind = self.field("kind").map_or(String::new(), |it| format!("{it} "));
        Some(format!("{kind}{namespace}{name}"))
    }

    fn attempt(&self) -> Option<String> {
        let attempt = self.field("attempt").filter(|it| *it != "1")?;
        Some(format!("attempt {attempt}"))
    }
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let value = format!("{value:?}");
        match field.name() {
            "message" => self.message = Some(value),
            OBJECT => self.object = Some(value),
            REASON => self.reason = Some(value),
            name => {
                // Writing to a String does not fail.
                let _ = write!(self.text, " {name}={value}");
            }
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            "message" => self.message = Some(value.to_owned()),
            OBJECT => self.object = Some(value.to_owned()),
            REASON => self.reason = Some(value.to_owned()),
            name => {
                let _ = write!(self.text, " {name}={value:?}");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two tests in the same process run the same controller, and only one of them is recorded.
    #[test]
    fn output_is_recorded_if_another_thread_has_written_the_same_line_first() {
        let write = || tracing::info!("a line");
        let output = Output::record(Instant::now(), || 0);
        std::thread::scope(|it| drop(it.spawn(write)));
        write();
        output.end();
        assert_eq!(output.marks().logs.len(), 1);
    }

    #[test]
    fn second_recording_on_a_thread_replaces_the_first() {
        let first = Output::record(Instant::now(), || 0);
        let second = Output::record(Instant::now(), || 0);
        tracing::info!("a line");
        second.end();
        tracing::info!("another line");
        assert_eq!((first.marks().logs.len(), second.marks().logs.len()), (0, 1));
    }
}
