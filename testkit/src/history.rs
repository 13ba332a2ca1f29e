//! The history of an object, for the message of a failed assertion: its last write, and the reaction of a controller to
//! its last event.

use std::fmt::Write as _;

use fake_apiserver::trace::{Step, StepKind, steps};

use crate::panics::is_evaluating;
use crate::target::ObjectId;
use crate::test_cluster::{TEST_CLIENT, TestCluster};
use crate::text::fields;

/// Maximum number of the newest journal entries that are searched.
const LOOKED_AT: usize = 4_000;

impl TestCluster {
    /// Returns lines for the message of a failed assertion about an object: its last write, and the requests that the
    /// receiver of its last event has sent since. Empty if the journal does not contain messages of controllers, if the
    /// server is real, or while a condition is evaluated, because the condition may fail many times before it holds.
    pub(crate) fn history_of(&self, id: &ObjectId) -> String {
        let Some(info) = self.server.resource(&id.api_version, &id.kind) else {
            return String::new();
        };
        if is_evaluating() || self.is_real() {
            return String::new();
        }
        let id = self.located(id);
        let dot = if info.group.is_empty() { "" } else { "." };
        let place = format!("{}/{}", id.namespace.as_deref().unwrap_or_default(), id.name);
        let key = format!("{}{dot}{} {place}", info.resource, info.group).replace(" /", " ");
        let (_, steps) = steps(&self.server, self.base, TEST_CLIENT, LOOKED_AT);
        let is_controller = |it: &&Step| it.client != THE_TEST && !it.is_worker;
        if !steps.iter().any(|it| is_controller(&it)) {
            return String::new();
        }
        let mut text = String::new();
        let write = steps
            .iter()
            .rev()
            .find(|it| it.object == key && it.revision > 0 && it.is_write);
        // Writing to a String does not fail.
        let _ = match write {
            Some(it) => write!(
                text,
                "\n  last written at {:.3} s by {}: {}{}",
                it.at,
                it.client,
                it.text,
                fields(it)
            ),
            None => write!(text, "\n  no client has written it"),
        };
        let last = steps
            .iter()
            .rposition(|it| it.kind == StepKind::Event && it.object == key && is_controller(&it));
        let Some(last) = last else {
            let _ = write!(text, "\n  no controller has received an event about it");
            return text;
        };
        let event = &steps[last];
        let kind = event.text.split(' ').next().unwrap_or_default();
        let _ = write!(
            text,
            "\n  its last event, {kind}, reached {} at {:.3} s",
            event.client, event.at
        );
        let is_reaction = |it: &&Step| it.client == event.client && it.kind == StepKind::Request && !it.is_quiet;
        let after: Vec<&Step> = steps[last..].iter().filter(is_reaction).collect();
        let _ = match after.as_slice() {
            [] => write!(
                text,
                "; nothing was reconciled after it: {} has sent no request since",
                event.client
            ),
            [one] => write!(
                text,
                "; {} has sent one request since, at {:.3} s: {}",
                event.client,
                one.at,
                told(one)
            ),
            [.., it] => write!(
                text,
                "; {} has sent {} requests since, the last at {:.3} s: {}",
                event.client,
                after.len(),
                it.at,
                told(it)
            ),
        };
        text
    }
}

/// Name of the test in the steps of a trace.
const THE_TEST: &str = "the test";

fn told(step: &Step) -> String {
    format!("{} → {}", step.text, step.outcome)
}
