//! The control API, through which a test controls a server in another process, over HTTP. It is off by default.
//!
//! | request | effect |
//! |---|---|
//! | `GET /_fake/` | a page that shows all of this in a browser |
//! | `GET /_fake` | this list |
//! | `GET /_fake/openapi.json` | the same as an OpenAPI document |
//! | `POST /_fake/faults` | injects a [`FaultRule`](crate::faults::FaultRule); answers its number |
//! | `GET /_fake/faults` | active faults, with the number of requests that each has struck |
//! | `DELETE /_fake/faults[/N]` | ends all of them, or one |
//! | `GET /_fake/watches` | open watches, with the events that wait behind held ones |
//! | `POST /_fake/watches` | controls matching watches: `{"on": {"resource": "pods"}, "do": "hold"}`; `"watch": 3` is one |
//! | `GET /_fake/journal[?since=N]` | requests and watch events, in order; `isCut`: the old body was dropped |
//! | … with `Accept: text/event-stream` | the same, then those that come |
//! | `GET /_fake/journal/N` | one of them with its answer |
//! | `DELETE /_fake/journal` | forgets them |
//! | `POST /_fake/replicas` | sets the view of a client: `{"client": "operator", "sees": {"behind": 3}}` |
//! | `POST /_fake/clocks` | skews a client's clock: `{"client": "operator", "aheadMs": 5000}` |
//! | `POST /_fake/pods` | sets the script of Pods: [`ScriptOrder`](crate::ScriptOrder); `DELETE` removes all |
//! | `POST /_fake/compact` | forgets history, as etcd's compaction does |
//! | `POST /_fake/restart` | ends all connections: `{"log": "lost", "downMs": 2000}` |
//! | `POST /_fake/snapshot` | keeps the state; answers its number |
//! | `GET /_fake/snapshot` | kept states, and the newest resourceVersion |
//! | `POST /_fake/restore` | restores a state: `{"snapshot": 1}` |
//! | `GET /_fake/diff?from=N[&to=N]` | changes since a state was kept, as text |
//! | … with `Accept: application/json` | the same for programs |
//! | `GET /_fake/world` | all objects, as YAML that can be loaded again |
//! | `GET /_fake/objects[?snapshot=N]` | all objects with their owners |
//! | `GET /_fake/objects/UID[?snapshot=N]` | one object |
//! | `POST /_fake/objects` | stores objects as they are, from YAML or JSON |
//! | `POST /_fake/events` | changes the state as a watch event says: `{"type": "DELETED", "object": {…}}` |

use std::sync::Arc;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::middleware::from_fn;
use axum::routing::{delete, get, post};

use crate::server::ApiServer;
use crate::snapshot::KeptSnapshots;

mod answer;
mod controlled;
mod faults;
mod journal;
mod objects;
mod page;
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

/// The control API of a server.
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
        .route("/replicas", post(faults::set_replica))
        .route("/clocks", post(faults::skew_clock))
        .route("/pods", post(worlds::script_pods).delete(worlds::forget_scripts))
        .route("/compact", post(worlds::compact))
        .route("/restart", post(faults::restart))
        .route("/snapshot", get(worlds::list).post(worlds::snapshot))
        .route("/restore", post(worlds::restore))
        .route("/diff", get(worlds::diff))
        .route("/world", get(worlds::world))
        .route("/objects", get(objects::list).post(worlds::load_objects))
        .route("/objects/{uid}", get(objects::read))
        .route("/events", post(worlds::apply_event));
    Router::new()
        .nest(PREFIX, orders)
        .fallback(answer::unknown_path)
        .method_not_allowed_fallback(answer::unknown_method)
        // `check_body` holds the limit.
        .layer(DefaultBodyLimit::disable())
        .layer(from_fn(answer::check_body))
        .with_state(Controlled { server, kept })
}
