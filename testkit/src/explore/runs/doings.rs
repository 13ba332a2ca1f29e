//! Writes of the test itself, read from the journal.

use fake_apiserver::{Entry, RecordedRequest};
use serde::Deserialize;

use crate::explore::gate::name_in;
use crate::explore::outcomes::Doing;
use crate::test_cluster::{TEST_CLIENT, TestCluster};

/// Lists the writes of the test itself.
pub(crate) fn doings(cluster: &TestCluster) -> Vec<Doing> {
    let entries = cluster.journal().since(0);
    let doing = |entry: Entry| match entry {
        Entry::Request(request) if request.user_agent == TEST_CLIENT && request.is_write() => doing(&request),
        Entry::Request(_) | Entry::Event(_) => None,
    };
    entries.into_iter().filter_map(doing).collect()
}

fn doing(request: &RecordedRequest) -> Option<Doing> {
    let info = request.info.as_ref()?;
    let answer: Answer = serde_json::from_slice(&request.answer_bytes()).unwrap_or_default();
    let name = match (info.name.is_empty(), answer.metadata.name.is_empty()) {
        (false, _) => info.name.to_string(),
        (true, false) => answer.metadata.name,
        (true, true) => name_in(&request.request_body).unwrap_or_default(),
    };
    let part = |sign: &str, text: &str| match text.is_empty() {
        true => String::new(),
        false => format!("{sign}{text}"),
    };
    Some(Doing {
        at: request.started,
        verb: info.verb,
        resource: format!("{}{}", info.resource, part(".", &info.group)),
        subresource: part("/", &info.subresource),
        object: format!("{}/{name}", info.namespace).trim_start_matches('/').to_owned(),
        code: request.code,
        wrote: answer.metadata.resource_version.parse().ok(),
    })
}

/// The fields of a response that are read.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Answer {
    metadata: Metadata,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Metadata {
    name: String,
    resource_version: String,
}
