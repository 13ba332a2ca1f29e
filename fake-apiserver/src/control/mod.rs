//! The control API, through which a test controls a server in another process, over HTTP. It is off by default.
//!
//! | request | what it does |
//! |---|---|
//! | `GET /_fake` | this list |
//! | `GET /_fake/openapi.json` | the same as an OpenAPI document |
//! | `POST /_fake/faults` | injects a [`FaultRule`]; answers its number |
//! | `GET /_fake/faults` | the faults in force, with how many requests each has struck |
//! | `DELETE /_fake/faults[/N]` | ends all of them, or one |
//! | `GET /_fake/watches` | the watches under way, and what waits behind those that are held |
//! | `POST /_fake/watches` | controls matching watches: `{"on": {"resource": "pods"}, "do": "hold"}` |
//! | `GET /_fake/journal[?since=N]` | requests and watch events, in order; `isCut`: the body was dropped, being old |
//! | `DELETE /_fake/journal` | forgets them |
//! | `POST /_fake/replicas` | how far a client sees: `{"client": "operator", "sees": {"behind": 3}}` |
//! | `POST /_fake/clocks` | lets a client's clock go wrong: `{"client": "operator", "aheadMs": 5000}` |
//! | `POST /_fake/pods` | says what becomes of Pods, a [`ScriptOrder`]; `DELETE` forgets all of it |
//! | `POST /_fake/compact` | forgets history, as etcd's compaction does |
//! | `POST /_fake/restart` | ends all connections: `{"log": "lost", "downMs": 2000}` |
//! | `POST /_fake/snapshot` | keeps the state; answers its number |
//! | `POST /_fake/restore` | puts a state back: `{"snapshot": 1}` |
//! | `GET /_fake/diff?from=N` | what has changed since a state was kept, as text |
//! | `GET /_fake/world` | all objects, as YAML that can be loaded again |
//! | `POST /_fake/objects` | stores objects as they are, from YAML or JSON |
//! | `POST /_fake/events` | changes the state as a watch event says: `{"type": "DELETED", "object": {…}}` |

use std::sync::Arc;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::middleware::from_fn;
use axum::routing::{delete, get, post};

use crate::server::ApiServer;

mod answer;
mod faults;
mod worlds;

pub(crate) use answer::refuse;
pub(crate) use worlds::Control;

/// Path prefix of the control API.
const PREFIX: &str = "/_fake";

/// Returns `true` if a path belongs to the control API.
pub(crate) fn is_for(path: &str) -> bool {
    path.strip_prefix(PREFIX)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// State shared by the handlers.
#[derive(Clone, Debug)]
struct Controlled {
    server: ApiServer,
    control: Arc<Control>,
}

/// The control API of a server.
pub(crate) fn router(server: ApiServer, control: Arc<Control>) -> Router {
    let orders = Router::new()
        .route("/", get(answer::help))
        .route("/openapi.json", get(answer::open_api))
        .route(
            "/faults",
            get(faults::list).post(faults::inject).delete(faults::end_all),
        )
        .route("/faults/{id}", delete(faults::end))
        .route("/watches", get(faults::watches).post(faults::act_on_watches))
        .route("/journal", get(worlds::journal).delete(worlds::forget_journal))
        .route("/replicas", post(faults::set_replica))
        .route("/clocks", post(faults::skew_clock))
        .route("/pods", post(worlds::script_pods).delete(worlds::forget_scripts))
        .route("/compact", post(worlds::compact))
        .route("/restart", post(faults::restart))
        .route("/snapshot", post(worlds::snapshot))
        .route("/restore", post(worlds::restore))
        .route("/diff", get(worlds::diff))
        .route("/world", get(worlds::world))
        .route("/objects", post(worlds::load_objects))
        .route("/events", post(worlds::apply_event));
    Router::new()
        .nest(PREFIX, orders)
        .fallback(answer::unknown_path)
        .method_not_allowed_fallback(answer::unknown_method)
        // `check_body` holds the limit.
        .layer(DefaultBodyLimit::disable())
        .layer(from_fn(answer::check_body))
        .with_state(Controlled { server, control })
}
