//! The metrics API: an aggregated API server in this process that replaces metrics-server.

use std::convert::Infallible;
use std::sync::{Arc, Weak};

use axum_core::body::Body;
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{Method, Request, Response, StatusCode};
use serde_json::Value;

use crate::egress::{Handler, Routes};
use crate::endpoints::Endpoints;
use crate::registry::types::remote_server::RemoteServer;
use crate::workers::{Kubelet, metrics_server};

/// The Service of metrics-server.
const HOST: &str = "metrics-server.kube-system.svc";

/// `groupPriorityMinimum` and `versionPriority` of the APIService in the manifests of metrics-server.
const PRIORITIES: (i64, i64) = (100, 100);

/// Serves `metrics.k8s.io`, unless an APIService refers to another server for it.
pub(super) fn serve(endpoints: &Arc<Endpoints>, kubelet: &Kubelet, routes: &Routes) {
    let (server, kubelet) = (Arc::downgrade(endpoints), kubelet.clone());
    let service = tower::service_fn(move |request: Request<Body>| {
        std::future::ready(Ok::<_, Infallible>(answer(&server, &kubelet, &request)))
    });
    routes.answer_itself(HOST, Handler::new(service));
    let remote = RemoteServer::built_in(metrics_server::GROUP, metrics_server::VERSION, HOST, PRIORITIES);
    endpoints.registry.reader.serve_remote(remote);
}

fn answer(server: &Weak<Endpoints>, kubelet: &Kubelet, request: &Request<Body>) -> Response<Body> {
    let (code, value) = match server.upgrade() {
        Some(server) if request.method() == Method::GET => {
            let uri = request.uri();
            metrics_server::answer(&server.registry, kubelet, uri.path(), uri.query())
        }
        Some(_) => (405, crate::api::json::Value::Null),
        None => (503, crate::api::json::Value::Null),
    };
    let mut response = Response::new(Body::from(Value::from(value).to_string()));
    *response.status_mut() = StatusCode::from_u16(code).unwrap_or_default();
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(CONTENT_TYPE, json);
    response
}
