//! The control API, through which a test controls a server in another process, over HTTP. It is off by default.
//!
//! | request | effect |
//! |---|---|
//! | `GET /_fake/` | a page for browsers with all of this information |
//! | `GET /_fake` | this list |
//! | `GET /_fake/openapi.json` | the same as an OpenAPI document |
//! | `POST /_fake/faults` | injects a [`FaultRule`](crate::faults::FaultRule); returns its number |
//! | `GET /_fake/faults` | installed faults, with the number of requests that each has affected |
//! | `DELETE /_fake/faults[/N]` | ends all faults, or one |
//! | `GET /_fake/watches` | open watches, with the number of their undelivered events |
//! | `POST /_fake/watches` | controls watches: `{"on": {"resource": "pods"}, "do": "hold"}`; `"watch": 3` selects one |
//! | `GET /_fake/journal[?since=N]` | requests and watch events, in order; `isCut`: an old body was dropped |
//! | … with `Accept: text/event-stream` | the same, followed by new entries |
//! | `GET /_fake/journal/N` | one entry with its response |
//! | `DELETE /_fake/journal` | removes all entries |
//! | `GET /_fake/trace` | a page that shows every step of the journal, with the fields that each write changed |
//! | … with `Accept: application/json` | its document, in the [format of traces](crate::trace) |
//! | `POST /_fake/replicas` | sets the view of a client: `{"client": "operator", "sees": {"behind": 3}}` |
//! | `POST /_fake/clocks` | skews a client's clock: `{"client": "operator", "aheadMs": 5000}` |
//! | `POST /_fake/nodes` | stops the kubelet of a Node: `{"node": "node-0", "kubelet": "stopped"}`; `"running"` starts it |
//! | `POST /_fake/pods` | sets the script of Pods: [`ScriptOrder`](crate::ScriptOrder); `DELETE` removes all |
//! | `POST /_fake/compact` | compacts the history, as etcd does |
//! | `POST /_fake/restart` | ends all connections: `{"log": "lost", "downMs": 2000}` |
//! | `POST /_fake/snapshot` | saves the state; returns its number |
//! | `GET /_fake/snapshot` | saved states, and the newest resourceVersion |
//! | `POST /_fake/restore` | restores a state: `{"snapshot": 1}` |
//! | `GET /_fake/diff?from=N[&to=N]` | changes since a state was saved, as text |
//! | … with `Accept: application/json` | the same as JSON |
//! | `GET /_fake/world` | all objects, as YAML that can be loaded again |
//! | `GET /_fake/kinds` | kinds that have objects, with the number of objects in each namespace |
//! | `GET /_fake/search?text=WORDS` | objects of all kinds whose kind, name, namespace or labels contain all words |
//! | `GET /_fake/table?resource=deployments.apps[&namespace=N]` | objects as `kubectl get` shows them |
//! | `GET /_fake/changes?since=REVISION` | writes that are still in the history |
//! | `GET /_fake/objects` | all objects with their owners |
//! | `GET /_fake/objects/UID` | one object |
//! | … with `?snapshot=N` or `?at=REVISION` | kinds, tables, searches and objects in a saved or earlier state |
//! | `GET /_fake/objects/UID/history` | its revisions: the fields that each write changed, and its author |
//! | `GET /_fake/objects/UID/related` | its owners, the objects that it owns, and Events about it |
//! | `POST /_fake/objects` | [loads](crate::ApiServer::load) objects, from YAML or JSON |
//! | `POST /_fake/events` | applies a watch event to the state: `{"type": "DELETED", "object": {…}}` |

use std::sync::Arc;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::middleware::from_fn;
use axum::routing::{delete, get, post};

use crate::server::ApiServer;
use crate::snapshot::KeptSnapshots;

mod answer;
mod controlled;
mod authors;
mod faults;
mod history;
mod journal;
mod objects;
mod page;
#[cfg_attr(not(feature = "workers"), path = "no_pods.rs")]
mod pods;
mod related;
mod search;
mod tables;
mod trace;
mod watches;
mod worlds;

use controlled::Controlled;

pub(crate) use answer::refuse;
pub(crate) use page::{is_page, page};

/// Path prefix of the control API.
const PREFIX: &str = "/_fake";

/// Returns `true` if a path belongs to the control API.
pub(crate) fn is_for(path: &str) -> bool {
    path.strip_prefix(PREFIX)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Returns the router of a server's control API.
pub(crate) fn router(server: ApiServer, kept: Arc<KeptSnapshots>) -> Router {
    let orders = Router::new()
        .route("/", get(answer::help))
        .route("/openapi.json", get(answer::open_api))
        .route(
            "/faults",
            get(faults::list).post(faults::inject).delete(faults::end_all),
        )
        .route("/faults/{id}", delete(faults::end))
        .route("/watches", get(watches::list).post(watches::act))
        .route("/journal", get(journal::read).delete(journal::forget))
        .route("/journal/{number}", get(journal::read_entry))
        .route("/trace", get(trace::read))
        .route("/replicas", post(faults::set_replica))
        .route("/clocks", post(faults::skew_clock))
        .route("/pods", post(pods::script_pods).delete(pods::forget_scripts))
        .route("/nodes", post(pods::set_kubelet))
        .route("/compact", post(worlds::compact))
        .route("/restart", post(faults::restart))
        .route("/snapshot", get(worlds::list).post(worlds::snapshot))
        .route("/restore", post(worlds::restore))
        .route("/diff", get(worlds::diff))
        .route("/world", get(worlds::world))
        .route("/objects", get(objects::list).post(worlds::load_objects))
        .route("/objects/{uid}", get(objects::read))
        .route("/objects/{uid}/history", get(history::of_object))
        .route("/objects/{uid}/related", get(related::of_object))
        .route("/changes", get(history::changes))
        .route("/kinds", get(tables::kinds))
        .route("/search", get(search::search))
        .route("/table", get(tables::table))
        .route("/events", post(worlds::apply_event));
    Router::new()
        .nest(PREFIX, orders)
        .fallback(answer::unknown_path)
        .method_not_allowed_fallback(answer::unknown_method)
        // `check_body` enforces the limit.
        .layer(DefaultBodyLimit::disable())
        .layer(from_fn(answer::check_body))
        .with_state(Controlled { server, kept })
}
