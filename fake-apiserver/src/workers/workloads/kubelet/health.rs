//! The health of containers: the effects of the probe failures in a script.

use std::time::Duration;

use jiff::Timestamp;

use super::look::Look;
use super::probe::{Outage, ProbeKind, Probes, Ticks, stretches};
use crate::api::json::Map;
use crate::registry::types::cursor::Cursor;

impl Look<'_> {
    /// Records the time at which the script of a running Pod starts to contain probe failures. Earlier probes of
    /// running containers are treated as successful.
    pub(super) fn note_outages(&mut self) {
        let known = self.memory.outages.take();
        let since = |probe: ProbeKind| match &known {
            None => None,
            Some(known) => known.get(&probe).copied().unwrap_or(Some(self.now)),
        };
        let outages = self.script.outages.iter();
        let outages = outages.map(|it| (it.probe, since(it.probe))).collect();
        self.memory.outages = Some(outages);
    }

    /// Returns the effects of the probes of a container that was started at `start`.
    pub(super) fn probes(&self, container: &Map, start: Timestamp) -> Probes {
        let changes = |probe, begins, initial| self.changes(container, probe, start, begins, initial);
        let mut killed = None;
        let started = match changes(ProbeKind::Startup, Duration::ZERO, None).as_deref() {
            None | Some([]) => Some(Duration::ZERO),
            Some([(at, true), ..]) => Some(*at),
            Some([(at, false), ..]) => {
                killed = Some((*at, ProbeKind::Startup));
                None
            }
        };
        let mut ready = Vec::new();
        if let Some(begins) = started {
            let first = changes(ProbeKind::Liveness, begins, Some(true)).and_then(|it| it.first().copied());
            killed = first.map(|(at, _)| (at, ProbeKind::Liveness));
            ready = changes(ProbeKind::Readiness, begins, Some(false)).unwrap_or_else(|| vec![(begins, true)]);
        }
        Probes { started, killed, ready }
    }

    /// Returns the times at which the state of a probe changes, with the new state; `None` if the container does not
    /// have the probe, or the script does not make it fail.
    fn changes(
        &self,
        container: &Map,
        probe: ProbeKind,
        start: Timestamp,
        begins: Duration,
        initial: Option<bool>,
    ) -> Option<Vec<(Duration, bool)>> {
        let mut outages: Vec<&Outage> = self.script.outages.iter().filter(|it| it.probe == probe).collect();
        let fields = Cursor::root(Cursor::root(container).map(probe.field())?);
        if outages.is_empty() {
            return None;
        }
        outages.sort_by_key(|it| it.from);
        let known = self
            .memory
            .outages
            .as_ref()
            .and_then(|it| it.get(&probe).copied().flatten());
        let known = known.map_or(Duration::ZERO, |it| {
            Duration::try_from(it.duration_since(start)).unwrap_or_default()
        });
        let number = |field: &str, default: u64| {
            let value = fields.integer(field).and_then(|it| u64::try_from(it).ok());
            value.filter(|it| *it > 0).unwrap_or(default)
        };
        let ticks = Ticks {
            first: Duration::from_secs(number("initialDelaySeconds", 0)).max(begins),
            period: Duration::from_secs(number("periodSeconds", 10)),
        };
        let thresholds = [number("failureThreshold", 3), number("successThreshold", 1)];
        Some(ticks.changes(&stretches(&outages, known), thresholds, initial))
    }

    /// Writes the Event of a failed probe.
    pub(super) fn note_unhealthy(&mut self, list: &str, container: &Map, probe: ProbeKind) {
        let handler = Cursor::root(container).map_or_empty(probe.field());
        let why = match () {
            () if handler.contains_key("httpGet") => "HTTP probe failed with statuscode: 500",
            () if handler.contains_key("tcpSocket") => "connection refused",
            () if handler.contains_key("grpc") => "service unhealthy (responded with \"NOT_SERVING\")",
            () => "command failed",
        };
        let text = format!("{} probe failed: {why}", probe.title());
        self.note(list, Cursor::root(container).text("name"), "Unhealthy", text, true);
    }
}
