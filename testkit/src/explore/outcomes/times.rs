//! Times from the machine's clock instead of the server's, written by a controller.

use std::ops::RangeInclusive;

use fake_apiserver::Entry;
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use crate::explore::machine::time_of_day;
use crate::test_cluster::{TEST_CLIENT, TestCluster};

/// Text of notes about controllers that read another clock.
pub(crate) const OTHER_CLOCK: &str = "it reads another clock than the server's";

/// Minimum difference at which two clocks are distinguished.
const FAR: SignedDuration = SignedDuration::from_secs(60);

/// Returns the range of the machine's times since `began`. A clock with whole seconds may show up to a second less.
pub(crate) fn machine_since(began: Timestamp) -> RangeInclusive<Timestamp> {
    began.saturating_sub(SignedDuration::from_secs(1)).unwrap_or(began)..=time_of_day()
}

/// Placeholder for a time.
const A_TIME: &str = "a time";

/// A time that a client wrote.
pub(crate) struct ForeignTime {
    pub(crate) client: String,
    pub(crate) object: String,
    pub(crate) path: String,
    pub(crate) time: Timestamp,
    /// The server's time of the write.
    pub(crate) now: Timestamp,
}

/// Finds times written by controllers that are between `began` and the machine's current time, although the server's
/// time was different. Returns the first such time of each client.
pub(crate) fn foreign_times(cluster: &TestCluster, began: Timestamp) -> Vec<ForeignTime> {
    let machine = machine_since(began);
    let started = cluster.server.now() - SignedDuration::try_from(cluster.started.elapsed()).unwrap_or_default();
    let mut found: Vec<ForeignTime> = Vec::new();
    for entry in cluster.journal().since(0) {
        let Entry::Request(request) = entry else { continue };
        let is_client = request.worker.is_none() && request.user_agent != TEST_CLIENT;
        // kube's recorder writes the machine's time into Events.
        let is_event = request.info.as_ref().is_some_and(|it| it.resource == "events");
        if !request.is_write() || !is_client || is_event || found.iter().any(|it| *it.client == *request.client) {
            continue;
        }
        let Ok(body) = serde_json::from_slice::<Value>(&request.request_body) else {
            continue;
        };
        let now = started.saturating_add(request.started).unwrap_or(started);
        let is_foreign = |time: &Timestamp| machine.contains(time) && now.duration_since(*time).abs() > FAR;
        let mut first = None;
        each_time(&body, String::new(), &mut |path, time| {
            if first.is_none() && is_foreign(&time) && !is_of_the_server(path) {
                first = Some((path.to_owned(), time));
            }
        });
        if let Some((path, time)) = first {
            let info = request.info.as_ref();
            let object = info.map(|it| format!("{} {}/{}", it.resource, it.namespace, it.name));
            found.push(ForeignTime {
                client: request.client.to_string(),
                object: object.unwrap_or_default().replace(" /", " "),
                path,
                time,
                now,
            });
        }
    }
    found
}

/// Returns `true` for times that the server sets, and that a client writes back unchanged.
fn is_of_the_server(path: &str) -> bool {
    let metadata = ["creationTimestamp", "deletionTimestamp", "managedFields"];
    let field = path.strip_prefix("metadata.").unwrap_or_default();
    metadata.iter().any(|it| field.starts_with(it))
}

/// Returns the paths of the times in an object that are within the range `machine`.
pub(crate) fn times_within(value: &Value, machine: &RangeInclusive<Timestamp>) -> Vec<String> {
    let mut paths = Vec::new();
    each_time(value, String::new(), &mut |path, time| {
        if machine.contains(&time) {
            paths.push(path.to_owned());
        }
    });
    paths
}

/// Visits the times in a value, with their paths.
fn each_time(value: &Value, path: String, visit: &mut dyn FnMut(&str, Timestamp)) {
    let below = |name: &str| match path.as_str() {
        "" => name.to_owned(),
        path => format!("{path}.{name}"),
    };
    match value {
        Value::String(text) if text.len() >= "2000-01-01T00:00:00Z".len() && text.as_bytes()[4] == b'-' => {
            if let Ok(time) = text.parse() {
                visit(&path, time);
            }
        }
        Value::Array(items) => {
            for (at, item) in items.iter().enumerate() {
                each_time(item, below(&at.to_string()), visit);
            }
        }
        Value::Object(fields) => {
            for (name, field) in fields {
                each_time(field, below(name), visit);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Replaces all times of a value.
pub(crate) fn hide_times(value: &mut Value) {
    match value {
        Value::String(text) if is_time(text) => *text = A_TIME.to_owned(),
        Value::Array(items) => items.iter_mut().for_each(hide_times),
        Value::Object(fields) => fields.values_mut().for_each(hide_times),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Returns `true` for a time in the form of RFC 3339, as Kubernetes writes it.
pub(crate) fn is_time(text: &str) -> bool {
    text.len() >= "2000-01-01T00:00:00Z".len() && text.as_bytes()[4] == b'-' && text.parse::<Timestamp>().is_ok()
}
