//! Requests to a server in this process, and their responses.

use axum::body::Body;
use fake_apiserver::ApiServer;
use futures::FutureExt as _;
use http::Request;
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use tower::ServiceExt as _;

pub(crate) const MERGE: &str = "application/merge-patch+json";
pub(crate) const STRATEGIC: &str = "application/strategic-merge-patch+json";
pub(crate) const JSON_PATCH: &str = "application/json-patch+json";
pub(crate) const APPLY: &str = "application/apply-patch+yaml";

/// Returns the messages of the warnings in the response to a POST.
pub(crate) async fn warnings(server: &ApiServer, path: &str, body: &Value) -> Vec<String> {
    warnings_of(server, "POST", path, body).await
}

/// Same as `warnings`, for another method.
pub(crate) async fn warnings_of(server: &ApiServer, method: &str, path: &str, body: &Value) -> Vec<String> {
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("content-type", "application/json")
        .body(body.to_string())
        .expect("the request is valid");
    let answer = server.call(request).await;
    let warnings = answer.headers().get_all("warning").iter();
    let text = |it: &http::HeaderValue| {
        let text = it.to_str().unwrap_or_default();
        let text = text.strip_prefix("299 - \"").and_then(|it| it.strip_suffix('"'));
        text.unwrap_or_default().replace("\\\"", "\"")
    };
    warnings.map(text).collect()
}

/// Sends a body with a content type; returns the code and the JSON.
pub(crate) async fn send(
    server: &ApiServer,
    method: &str,
    path: &str,
    content_type: &str,
    body: &Value,
) -> (u16, Value) {
    let text = if body.is_null() {
        String::new()
    } else {
        body.to_string()
    };
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("content-type", content_type)
        .body(text)
        .expect("the request is valid");
    let answer = server.call(request).await;
    let code = answer.status().as_u16();
    (code, serde_json::from_slice(answer.body()).unwrap_or(Value::Null))
}

pub(crate) async fn get(server: &ApiServer, path: &str) -> (u16, Value) {
    send(server, "GET", path, "application/json", &Value::Null).await
}

pub(crate) async fn post(server: &ApiServer, path: &str, body: &Value) -> (u16, Value) {
    send(server, "POST", path, "application/json", body).await
}

pub(crate) async fn put(server: &ApiServer, path: &str, body: &Value) -> (u16, Value) {
    send(server, "PUT", path, "application/json", body).await
}

pub(crate) fn message(answer: &Value) -> &str {
    answer["message"].as_str().unwrap_or_default()
}

/// Returns a ConfigMap.
pub(crate) fn config_map(name: &str, data: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data})
}

/// An open watch.
pub(crate) struct Watch {
    body: Body,
    text: Vec<u8>,
    ended: bool,
}

impl Watch {
    pub(crate) async fn open(server: &ApiServer, path: &str) -> Self {
        let request = Request::get(path).body(Body::empty()).expect("the request is valid");
        let answer = server
            .service()
            .oneshot(request)
            .await
            .expect("the service is infallible");
        assert_eq!(answer.status(), 200, "{path}");
        let mut watch = Self {
            body: answer.into_body(),
            text: Vec::new(),
            ended: false,
        };
        assert_eq!(watch.told(), Vec::<Value>::new(), "the watch has no events yet");
        watch
    }

    /// Returns the events received since the last call.
    pub(crate) fn told(&mut self) -> Vec<Value> {
        while let Some(next) = self.body.frame().now_or_never() {
            let Some(Ok(frame)) = next else {
                self.ended = true;
                break;
            };
            self.text
                .extend(frame.data_ref().map(|it| it.to_vec()).unwrap_or_default());
        }
        let text = std::mem::take(&mut self.text);
        let lines = text.split(|it| *it == b'\n').filter(|it| !it.is_empty());
        lines
            .map(|it| serde_json::from_slice(it).expect("the text is valid JSON"))
            .collect()
    }
}

impl Watch {
    /// Returns `true` if the server has ended the watch.
    pub(crate) const fn has_ended(&self) -> bool {
        self.ended
    }
}

/// Returns an object after a merge patch.
pub(crate) fn with(object: &Value, changes: &Value) -> Value {
    let (Value::Object(fields), Value::Object(changes)) = (object, changes) else {
        return changes.clone();
    };
    let mut fields = fields.clone();
    for (name, change) in changes {
        if change.is_null() {
            fields.remove(name);
        } else {
            let before = fields.get(name).cloned().unwrap_or_default();
            fields.insert(name.clone(), with(&before, change));
        }
    }
    Value::Object(fields)
}

/// Returns the causes of a refusal, each as `field: message`; otherwise the message, if there is one.
pub(crate) fn causes((code, answer): &(u16, Value)) -> Vec<String> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    if *code < 400 {
        return Vec::new();
    }
    match answer["details"]["causes"].as_array() {
        Some(causes) if causes[0]["field"].is_string() => causes
            .iter()
            .map(|it| format!("{}: {}", text(&it["field"]), text(&it["message"])))
            .collect(),
        _ => vec![text(&answer["message"])],
    }
}
