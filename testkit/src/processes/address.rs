//! `Address`: the address at which one controller reaches the server. The gate identifies the controller by this
//! address, regardless of the User-Agent.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use axum_core::body::Body;
use fake_apiserver::{ApiServer, ServeOptions, Serving};
use http::{HeaderValue, Method, Request, Response, header};
use http_body_util::{BodyExt, Full, Limited};
use tower::ServiceExt;

use super::election::Election;
use crate::hooks::Passage;
use crate::lock::lock;

/// Maximum size of a request body in bytes; if a body is larger, the connection is closed. The server itself returns
/// 413 for bodies of more than 3 MiB.
pub(crate) const BODY_BYTES_MAX: usize = 8 << 20;

/// Encoding that the gate cannot parse.
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
/// Encoding that replaces protobuf in the requested encodings.
const JSON: &str = "application/json";

/// A listener, and the current run of the controller that it serves.
#[derive(Debug)]
pub(crate) struct Address {
    serving: Serving,
    shared: Arc<Shared>,
}

struct Shared {
    server: ApiServer,
    /// The gate's service for the current run of the controller; `None` before the first start.
    passage: Mutex<Option<Passage>>,
    /// Set in the current run of the controller once a list or a watch of a resource has succeeded, or once the
    /// controller has read a lock that another process holds.
    has_started: AtomicBool,
    /// Name of the process.
    process: String,
    /// The locks that the processes of this run hold.
    election: Arc<Election>,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").finish_non_exhaustive()
    }
}

impl Address {
    /// Listens on a free port of the loopback interface for the requests of a process.
    pub(crate) async fn listen(
        server: &ApiServer,
        process: &str,
        election: &Arc<Election>,
        insecure: bool,
    ) -> io::Result<Self> {
        let shared = Arc::new(Shared {
            server: server.clone(),
            passage: Mutex::new(None),
            has_started: AtomicBool::new(false),
            process: process.to_owned(),
            election: Arc::clone(election),
        });
        let options = match insecure {
            true => ServeOptions::http(),
            false => ServeOptions::tls(),
        };
        let served = Arc::clone(&shared);
        let service = tower::service_fn(move |request| answer(Arc::clone(&served), request));
        let loopback = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 0);
        let serving = options.serve(loopback, service).await?;
        Ok(Self { serving, shared })
    }

    /// Begins a new run of the controller. From now on, `passage` handles its requests.
    pub(crate) fn begin(&self, passage: Passage) {
        self.shared.has_started.store(false, Ordering::Relaxed);
        *lock(&self.shared.passage) = Some(passage);
    }

    /// Returns `true` if the controller has read resources, or waits for the lock of another process.
    pub(crate) fn has_started(&self) -> bool {
        self.shared.has_started.load(Ordering::Relaxed)
    }

    /// Records that the process has ended.
    pub(crate) fn ended(&self) {
        self.shared.election.ended(&self.shared.process);
    }

    pub(crate) fn url(&self) -> String {
        self.serving.url()
    }

    pub(crate) fn port(&self) -> u16 {
        self.serving.addr().port()
    }

    /// Returns the CA of the server's certificate as PEM; empty for plain HTTP.
    pub(crate) fn authority(&self) -> &str {
        self.serving.ca_certificate().unwrap_or_default()
    }

    /// Returns the locks of leader election that the process held when it ended, with the identities of their holders.
    pub(crate) fn locks(&self) -> Vec<(String, Option<String>)> {
        self.shared.election.left_by(&self.shared.process)
    }
}

/// Handles a request.
async fn answer(shared: Arc<Shared>, request: Request<Body>) -> io::Result<Response<Body>> {
    if request.headers().contains_key(header::UPGRADE) {
        // Streams, such as `exec`, bypass the gate, because they do not contain objects.
        let answer = shared.server.service().oneshot(request).await;
        return Ok(answer.unwrap_or_else(|never| match never {}));
    }
    let Some(passage) = lock(&shared.passage).clone() else {
        return Err(io::ErrorKind::ConnectionReset.into());
    };
    let (mut parts, body) = request.into_parts();
    let body = Limited::new(body, BODY_BYTES_MAX)
        .collect()
        .await
        .map_err(io::Error::other)?;
    let body = body.to_bytes();
    as_json(&mut parts.headers);
    let path = parts.uri.path();
    let written = shared.election.writes(&shared.process, &parts.method, path, &body);
    let waits = || shared.election.is_held_by_another(&shared.process, path);
    let shows_start = parts.method == Method::GET && (is_collection(path) || waits());
    let answer = passage.oneshot(Request::from_parts(parts, Full::new(body))).await?;
    let is_success = answer.status().is_success();
    if shows_start && is_success {
        shared.has_started.store(true, Ordering::Relaxed);
    }
    if let Some(earlier) = written.filter(|_| !is_success) {
        shared.election.refused(&shared.process, earlier);
    }
    Ok(answer.map(Body::new))
}

/// Requests uncompressed JSON instead of protobuf, because the gate parses the responses.
fn as_json(headers: &mut http::HeaderMap) {
    headers.remove(header::ACCEPT_ENCODING);
    let accepted = headers.get(header::ACCEPT).and_then(|it| it.to_str().ok());
    let json = accepted
        .filter(|it| it.contains(PROTOBUF))
        .map(|it| it.replace(PROTOBUF, JSON));
    if let Some(json) = json.and_then(|it| HeaderValue::from_str(&it).ok()) {
        headers.insert(header::ACCEPT, json);
    }
}

/// Returns `true` for paths of collections, and `false` for paths of single objects and for other paths, such as
/// discovery and health.
fn is_collection(path: &str) -> bool {
    fake_apiserver::api::request_info::ResourcePath::parse(path).is_some_and(|it| it.name.is_empty())
}
