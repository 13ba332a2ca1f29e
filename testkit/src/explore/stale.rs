//! Reads answered as by an API server whose cache lags behind etcd.

use std::time::Duration;

use fake_apiserver::{Replica, Verb};

use super::client::REVISION;
use super::gate::Gate;
use super::life::Life;
use super::plan::given;
use super::trace::Request;

/// Lag of a replica.
const LAG: Duration = Duration::from_secs(12);

/// A client sees an older state until this is dropped.
#[derive(Debug)]
pub(crate) struct Lagging(Replica);

impl Drop for Lagging {
    fn drop(&mut self) {
        self.0.catch_up();
    }
}

/// Lets a read show the state as it was between the beginning of the run and now. A list becomes one of an exact
/// revision, and the watch that follows it is silent for a while; a read of one object, which can name none, needs a
/// replica that lags until it is answered.
pub(crate) fn stale(gate: &Gate, life: &Life, about: &Request, uri: &mut http::Uri, percent: u8) -> Option<Lagging> {
    let newest = gate.server.resource_version();
    let revision = gate.base + (newest - gate.base) * u64::from(percent) / 100;
    if about.verb != Verb::Get {
        gate.lag(life, &about.resource, LAG);
        *uri = exactly_at(uri, revision);
        return None;
    }
    let replica = gate.server.replica(&given(&life.client));
    // If the test already lets the client's replica lag, nothing changes.
    let is_free = replica.sees() == newest;
    is_free.then(|| {
        replica.freeze_at(revision);
        Lagging(replica)
    })
}

/// The same list, of this revision.
fn exactly_at(uri: &http::Uri, revision: u64) -> http::Uri {
    let exact = format!("{REVISION}={revision}&resourceVersionMatch=Exact");
    let others = uri
        .query()
        .unwrap_or_default()
        .split('&')
        .filter(|it| !it.starts_with(REVISION));
    let query = others.map(str::to_owned).chain([exact]).collect::<Vec<_>>().join("&");
    // It was a URI before, and only digits and letters were added.
    format!("{}?{query}", uri.path())
        .parse()
        .unwrap_or_else(|_| uri.clone())
}
