//! Faults of requests in this process.

use axum::body::Body;
use fake_apiserver::{ApiServer, Seen, Verdict};
use http::Request;
use http_body_util::BodyExt as _;
use serde_json::json;
use tower::ServiceExt as _;

use crate::ask::post;

const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/default/leases";

/// Returns a server that truncates the responses of the client `operator`, whose clock is ahead.
async fn truncating() -> ApiServer {
    let server = ApiServer::start();
    let lease = json!({"metadata": {"name": "a"}, "spec": {"renewTime": "2020-01-01T00:00:00.000000Z"}});
    assert_eq!(post(&server, LEASES, &lease).await.0, 201);
    server.skew_clock("operator", 1000);
    let cut = |seen: &Seen<'_>| match seen.client {
        "operator" => Verdict::Truncate(20),
        _ => Verdict::Pass,
    };
    server.inject(cut).forget();
    server
}

fn request<B>(path: &str, body: B) -> Request<B> {
    let request = Request::get(path).header("user-agent", "operator").body(body);
    request.expect("the request is valid")
}

#[tokio::test]
async fn truncated_response_breaks_the_connection_of_a_client_with_a_skewed_clock() {
    let server = truncating().await;
    let answer = server.service().oneshot(request(LEASES, Body::empty())).await;
    let mut body = answer.expect("the service is infallible").into_body();
    let start = body
        .frame()
        .await
        .expect("the body has a first frame")
        .expect("the first frame arrives completely");
    assert_eq!(start.data_ref().map(|it| it.len()), Some(20));
    assert!(body.frame().await.is_some_and(|it| it.is_err()));
}

#[tokio::test]
async fn broken_response_is_returned_as_bad_gateway() {
    let server = truncating().await;
    let answer = server.call(request("/api/v1/configmaps", "")).await;
    assert_eq!(answer.status(), 502);
}

#[tokio::test]
async fn fault_closure_may_own_the_guard_of_another_fault() {
    let server = ApiServer::start();
    let inner = server.inject(|_: &Seen<'_>| Verdict::Pass);
    let outer = server.inject(move |_: &Seen<'_>| {
        assert_eq!(inner.hits(), 0);
        Verdict::Pass
    });
    drop(outer);
    assert_eq!(server.call(request("/api/v1/configmaps", "")).await.status(), 200);
}
