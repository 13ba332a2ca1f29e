//! Times of another clock than the server's, as a controller writes them that reads the system's.

use fake_apiserver::Entry;
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::progress::time_of_day;
use crate::test_cluster::{TEST_CLIENT, TestCluster};

/// Least difference between two clocks that are told apart.
const FAR: SignedDuration = SignedDuration::from_secs(60);

/// A time that a client wrote.
pub(crate) struct ForeignTime {
    pub(crate) client: String,
    pub(crate) object: String,
    pub(crate) path: String,
    pub(crate) time: Timestamp,
    /// The server's time.
    pub(crate) now: Timestamp,
}

/// Finds the times that controllers wrote and that are the machine's since `began`, while it was another time on the
/// server; the first of each client.
pub(crate) fn foreign_times(cluster: &TestCluster, began: Timestamp) -> Vec<ForeignTime> {
    let machine = began..=time_of_day();
    let started = cluster.server.now() - SignedDuration::try_from(cluster.started.elapsed()).unwrap_or_default();
    let mut found: Vec<ForeignTime> = Vec::new();
    for entry in cluster.journal().since(0) {
        let Entry::Request(request) = entry else { continue };
        let is_client = request.worker.is_none() && request.user_agent != TEST_CLIENT;
        // Events tell when somebody saw something; kube's recorder takes the machine's time for it.
        let is_event = request.info.as_ref().is_some_and(|it| it.resource == "events");
        if !request.is_write() || !is_client || is_event || found.iter().any(|it| *it.client == *request.client) {
            continue;
        }
        let Ok(body) = serde_json::from_slice::<Value>(&request.request_body) else {
            continue;
        };
        let now = started.saturating_add(request.started).unwrap_or(started);
        let is_foreign = |time: &Timestamp| machine.contains(time) && now.duration_since(*time).abs() > FAR;
        if let Some((path, time)) = time_in(&body, String::new(), &is_foreign) {
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

/// The first time in a value that is looked for, with its path.
fn time_in(value: &Value, path: String, is_wanted: &dyn Fn(&Timestamp) -> bool) -> Option<(String, Timestamp)> {
    let below = |name: &str| match path.as_str() {
        "" => name.to_owned(),
        path => format!("{path}.{name}"),
    };
    match value {
        Value::String(text) if text.len() >= "2000-01-01T00:00:00Z".len() && text.as_bytes()[4] == b'-' => {
            let time = text.parse::<Timestamp>().ok().filter(is_wanted)?;
            Some((path, time))
        }
        Value::Array(items) => {
            let mut items = items.iter().enumerate();
            items.find_map(|(at, item)| time_in(item, below(&at.to_string()), is_wanted))
        }
        Value::Object(fields) => {
            let mut fields = fields.iter();
            fields.find_map(|(name, field)| time_in(field, below(name), is_wanted))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
    }
}
