//! The server's own log on stderr.

use std::fmt::{self, Write as _};

use tracing::field::{Field, Visit};
use tracing::{Event, Level, Metadata, Subscriber, span};

use crate::report;

/// Enables the server's log; with `verbose` it contains every request.
pub(crate) fn start(verbose: bool) -> Result<(), String> {
    let level = if verbose { Level::DEBUG } else { Level::WARN };
    tracing::subscriber::set_global_default(Log { level }).map_err(|err| err.to_string())
}

/// Returns the system time, for lines of the log.
#[expect(clippy::disallowed_methods, reason = "the log shows wall-clock times")]
fn now() -> jiff::Timestamp {
    jiff::Timestamp::try_from(std::time::SystemTime::now()).unwrap_or(jiff::Timestamp::UNIX_EPOCH)
}

/// Writes the server's own log to stderr, with one line per event.
struct Log {
    level: Level,
}

impl Subscriber for Log {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= self.level && metadata.target().starts_with("fake_apiserver")
    }

    fn event(&self, event: &Event<'_>) {
        let mut line = Line(String::new());
        event.record(&mut line);
        report(format_args!("{}{}", time_of_day(), line.0));
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

/// Formats the current time for the start of a line.
fn time_of_day() -> impl fmt::Display {
    now().strftime("%H:%M:%S%.3f ").to_string()
}

/// The formatted line of one event: the message, followed by the fields.
struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        // Writing to a string cannot fail.
        let _ = match field.name() {
            "message" => write!(self.0, "{value:?}"),
            name => write!(self.0, " {name}={value:?}"),
        };
    }
}
