//! Reads from an API server with a cache that lags behind etcd.

use std::time::Duration;

use fake_apiserver::{Replica, StoredChange, StoredObject, Verb};

use crate::explore::gate::{Gate, Life, REVISION};
use crate::explore::outcomes::resource;
use crate::explore::plans::given;
use crate::explore::trace::Request;

/// Time for which the client's next watch is silent after a list of an older state.
pub(super) const LAG: Duration = Duration::from_secs(12);

/// Guard of a lagging replica. While the guard exists, reads of a client return an older state.
#[derive(Debug)]
pub(crate) struct Lagging(Replica);

impl Drop for Lagging {
    fn drop(&mut self) {
        self.0.catch_up();
    }
}

/// Makes a read return a state between the beginning of the run and the current one. A list is rewritten to request an
/// exact revision, and the client's next watch is silent for a while. A read of a single object cannot request a
/// revision, so a lagging replica handles it.
pub(crate) fn stale(gate: &Gate, life: &Life, about: &Request, uri: &mut http::Uri, percent: u8) -> Option<Lagging> {
    let newest = gate.server.resource_version();
    let revision = gate.base + (newest - gate.base) * u64::from(percent) / 100;
    if about.verb != Verb::Get {
        gate.lag(life, &about.resource, LAG);
        *uri = exactly_at(uri, revision);
        return None;
    }
    let replica = gate.server.replica(&given(&life.client));
    // If the test itself has set a lag of the replica, keep it.
    let is_free = replica.sees() == newest;
    is_free.then(|| {
        replica.freeze_at(revision);
        Lagging(replica)
    })
}

/// Makes a list return the state before the last `changes` changes of its resource, without counting changes of the
/// status. The client's next watch is silent for a while.
pub(super) fn rewind(gate: &Gate, life: &Life, about: &Request, uri: &mut http::Uri, changes: u8, lag: Duration) {
    let all = gate.server.changes_after(gate.base).into_iter();
    let is_of_spec = |change: &StoredChange| {
        let object = change.object();
        object.is_some_and(|it| resource(it) == about.base()) && changes_spec(change)
    };
    let revisions: Vec<u64> = all.filter(is_of_spec).map(|it| it.revision).collect();
    let first = revisions.len().saturating_sub(usize::from(changes));
    let revision = revisions.get(first).map_or(gate.base, |it| it - 1);
    gate.lag(life, &about.resource, lag);
    *uri = exactly_at(uri, revision);
}

/// Returns `true` for creations, deletions, and changes that increment the generation, such as setting the deletion
/// timestamp.
fn changes_spec(change: &StoredChange) -> bool {
    let (Some(before), Some(after)) = (&change.before, &change.after) else {
        return true;
    };
    let mark = |it: &StoredObject| {
        let value = it.value();
        let metadata = &value["metadata"];
        (
            metadata["generation"].clone(),
            metadata["deletionTimestamp"].is_string(),
        )
    };
    mark(before) != mark(after)
}

/// Returns the URI of the same list at an exact revision.
fn exactly_at(uri: &http::Uri, revision: u64) -> http::Uri {
    let exact = format!("{REVISION}={revision}&resourceVersionMatch=Exact");
    let others = uri
        .query()
        .unwrap_or_default()
        .split('&')
        .filter(|it| !it.starts_with(REVISION));
    let query = others.map(str::to_owned).chain([exact]).collect::<Vec<_>>().join("&");
    // The URI was valid, and only a valid query was added.
    format!("{}?{query}", uri.path())
        .parse()
        .unwrap_or_else(|_| uri.clone())
}
