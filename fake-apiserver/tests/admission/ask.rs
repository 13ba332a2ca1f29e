//! Requests, and webhooks with responses that a test defines.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use axum::body::Body;
use base64::Engine as _;
use fake_apiserver::ApiServer;
use http::{Method, Request, Response};
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use tower::util::BoxCloneSyncService;

/// The host of all webhooks.
pub(crate) const HOST: &str = "hooks.example.com";

/// A response.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) code: u16,
    pub(crate) body: Value,
    pub(crate) warnings: Vec<String>,
}

impl Answer {
    /// Returns the code and the message of a Status.
    pub(crate) fn failure(&self) -> (u16, &str) {
        (self.code, self.body["message"].as_str().unwrap_or_default())
    }
}

/// Sends a request. A PATCH is a merge patch, unless its body is an apply configuration.
pub(crate) async fn ask(server: &ApiServer, method: Method, path: &str, body: Value) -> Answer {
    let content_type = match (method.as_str(), body.get("apiVersion").is_some()) {
        ("PATCH", true) => "application/apply-patch+yaml",
        ("PATCH", false) => "application/merge-patch+json",
        _ => "application/json",
    };
    let text = if body.is_null() {
        String::new()
    } else {
        body.to_string()
    };
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("content-type", content_type)
        .header("user-agent", "test/1")
        .body(text)
        .expect("the request is valid");
    let response = server.call(request).await;
    let warnings = response.headers().get_all("warning").iter();
    Answer {
        code: response.status().as_u16(),
        warnings: warnings
            .map(|it| it.to_str().expect("the header is text").to_owned())
            .collect(),
        body: serde_json::from_slice(response.body()).unwrap_or_default(),
    }
}

pub(crate) async fn post(server: &ApiServer, path: &str, body: Value) -> Answer {
    ask(server, Method::POST, path, body).await
}

/// Asserts that the request created an object.
#[track_caller]
pub(crate) fn made(answer: &Answer) {
    assert_eq!(answer.code, 201, "{}", answer.body);
}

pub(crate) const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// Returns a ConfigMap.
pub(crate) fn map(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}})
}

/// Returns a configuration with webhooks for ConfigMaps. Each has a name, a path, and fields that differ from the
/// default.
pub(crate) fn configuration(kind: &str, name: &str, hooks: &[(&str, &str, Value)]) -> Value {
    let hooks = hooks.iter().map(|(name, path, more)| {
        let mut hook = json!({
            "name": name, "sideEffects": "None", "admissionReviewVersions": ["v1"],
            "clientConfig": {"url": format!("https://{HOST}{path}")},
            "rules": [{"operations": ["CREATE", "UPDATE"], "apiGroups": [""], "apiVersions": ["v1"],
                "resources": ["configmaps"]}],
        });
        for (key, value) in more.as_object().into_iter().flatten() {
            hook[key] = value.clone();
        }
        hook
    });
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": format!("{kind}WebhookConfiguration"),
        "metadata": {"name": name}, "webhooks": hooks.collect::<Vec<_>>(),
    })
}

/// Stores a configuration.
pub(crate) async fn configure(server: &ApiServer, kind: &str, name: &str, hooks: &[(&str, &str, Value)]) {
    let resource = format!("{}webhookconfigurations", kind.to_lowercase());
    let path = format!("/apis/admissionregistration.k8s.io/v1/{resource}");
    made(&post(server, &path, configuration(kind, name, hooks)).await);
}

/// Builds a webhook's response: the fields of `response`, plus uid and `allowed: true` by default.
pub(crate) fn reviewed(review: &Value, response: Value) -> Value {
    let mut all = json!({"uid": review["request"]["uid"], "allowed": true});
    for (key, value) in response.as_object().into_iter().flatten() {
        all[key] = value.clone();
    }
    json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": all})
}

/// Returns a response with a patch.
pub(crate) fn patch(operations: Value) -> Value {
    let patch = base64::engine::general_purpose::STANDARD.encode(operations.to_string());
    json!({"patchType": "JSONPatch", "patch": patch})
}

/// Requests received by webhooks, in order: the path and the review.
pub(crate) type Asked = Arc<Mutex<Vec<(String, Value)>>>;

/// Returns the review in a request to a webhook.
pub(crate) async fn read_review(request: Request<Body>) -> Value {
    let body = request.into_body().collect().await.expect("the body is in memory");
    serde_json::from_slice(&body.to_bytes()).expect("a review is JSON")
}

/// Returns a service that responds to each review according to its path.
pub(crate) fn service(
    asked: &Asked,
    answer: impl Fn(&str, &Value) -> Value + Send + Sync + 'static,
) -> BoxCloneSyncService<Request<Body>, Response<Body>, Infallible> {
    let (asked, answer) = (Arc::clone(asked), Arc::new(answer));
    BoxCloneSyncService::new(tower::service_fn(move |request: Request<Body>| {
        let (asked, answer) = (Arc::clone(&asked), Arc::clone(&answer));
        async move {
            let path = request.uri().path().to_owned();
            let review = read_review(request).await;
            let answer = answer(&path, &review);
            asked.lock().expect("the lock is not poisoned").push((path, review));
            Ok(Response::new(Body::from(answer.to_string())))
        }
    }))
}
