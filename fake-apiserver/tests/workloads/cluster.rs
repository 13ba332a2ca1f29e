//! `Cluster`: a server with workers and a paused clock, with helpers for the tests.

use std::time::Duration;

use bytes::Bytes;
use fake_apiserver::{ApiServer, Worker};
use http::Request;
use jiff::Timestamp;
use serde_json::{Value, json};

/// Start of the server's clock: a full minute, for CronJobs.
const START: &str = "2026-01-01T00:00:00Z";

/// A server with workers in virtual time.
pub(crate) struct Cluster(pub(crate) ApiServer);

impl Cluster {
    /// Starts a server with all workers.
    pub(crate) fn start() -> Self {
        Self::with(Worker::ALL)
    }

    pub(crate) fn with(workers: &[Worker]) -> Self {
        let start: Timestamp = START.parse().expect("the time is valid");
        Self(ApiServer::builder().workers(workers).start_time(start).start())
    }

    /// Advances the time by this many seconds.
    pub(crate) async fn pass(&self, seconds: f64) {
        tokio::time::sleep(Duration::from_secs_f64(seconds)).await;
    }

    /// Sends a request and reads the response.
    pub(crate) async fn send(&self, method: &str, path: &str, body: &Value) -> (u16, Value) {
        let media_type = match method {
            "PATCH" => "application/merge-patch+json",
            _ => "application/json",
        };
        let body = if body.is_null() {
            Bytes::new()
        } else {
            body.to_string().into()
        };
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("content-type", media_type);
        let answer = self.0.call(request.body(body).expect("the request is valid")).await;
        let status = answer.status().as_u16();
        (status, serde_json::from_slice(answer.body()).unwrap_or_default())
    }

    /// Creates an object in the namespace `default`.
    pub(crate) async fn create(&self, object: Value) -> Value {
        let (api, kind) = (
            object["apiVersion"].as_str().expect("the version is a string"),
            object["kind"].as_str().expect("the kind is a string"),
        );
        let resource = self.0.resource(api, kind).expect("the kind is served");
        let namespace = object["metadata"]["namespace"].as_str().unwrap_or("default");
        let group = if api.contains('/') { "apis" } else { "api" };
        let path = match resource.is_namespaced() {
            true => format!("/{group}/{api}/namespaces/{namespace}/{}", resource.resource),
            false => format!("/{group}/{api}/{}", resource.resource),
        };
        let (status, answer) = self.send("POST", &path, &object).await;
        assert_eq!(status, 201, "{answer:#}");
        answer
    }

    /// Sends a merge patch of an object in `default`.
    pub(crate) async fn patch(&self, api: &str, kind: &str, name: &str, patch: Value) -> Value {
        let (status, answer) = self.send("PATCH", &self.path(api, kind, name), &patch).await;
        assert_eq!(status, 200, "{answer:#}");
        answer
    }

    /// Deletes an object in `default`.
    pub(crate) async fn delete(&self, api: &str, kind: &str, name: &str) {
        let (status, answer) = self.send("DELETE", &self.path(api, kind, name), &Value::Null).await;
        assert_eq!(status, 200, "{answer:#}");
    }

    fn path(&self, api: &str, kind: &str, name: &str) -> String {
        let resource = self.0.resource(api, kind).expect("the kind is served");
        let group = if api.contains('/') { "apis" } else { "api" };
        match resource.is_namespaced() {
            true => format!("/{group}/{api}/namespaces/default/{}/{name}", resource.resource),
            false => format!("/{group}/{api}/{}/{name}", resource.resource),
        }
    }

    /// Returns an object in `default`; null if it does not exist.
    pub(crate) async fn get(&self, api: &str, kind: &str, name: &str) -> Value {
        let namespaced = self.0.resource(api, kind).expect("the kind is served").is_namespaced();
        let namespace = if namespaced { "default" } else { "" };
        self.0.get(api, kind, namespace, name).await.unwrap_or_default()
    }

    /// Returns the objects of a kind in `default`.
    pub(crate) async fn list(&self, api: &str, kind: &str) -> Vec<Value> {
        let namespaced = self.0.resource(api, kind).expect("the kind is served").is_namespaced();
        self.0
            .list(api, kind, if namespaced { "default" } else { "" })
            .await
            .expect("the kind is served")
    }

    /// Returns the versions of an object in `default` after the version `since`, oldest first.
    pub(crate) async fn versions(&self, since: &Value) -> Vec<Value> {
        let text = |path: &str| since.pointer(path).and_then(Value::as_str).unwrap_or_default();
        let (api, kind) = (text("/apiVersion"), text("/kind"));
        let resource = self.0.resource(api, kind).expect("the kind is served");
        let group = if api.contains('/') { "apis" } else { "api" };
        let version = text("/metadata/resourceVersion");
        let path = format!(
            "/{group}/{api}/namespaces/default/{}?watch=1&resourceVersion={version}&timeoutSeconds=1&fieldSelector=\
             metadata.name%3D{}",
            resource.resource,
            text("/metadata/name"),
        );
        let request = Request::get(path).body(Bytes::new()).expect("the request is valid");
        let answer = self.0.call(request).await;
        let lines = answer.body().split(|it| *it == b'\n').filter(|it| !it.is_empty());
        let object = |line: &[u8]| serde_json::from_slice::<Value>(line).expect("the line is JSON")["object"].clone();
        lines.map(object).collect()
    }

    /// Returns the Pods in `default`.
    pub(crate) async fn pods(&self) -> Vec<Value> {
        self.list("v1", "Pod").await
    }

    /// Returns the messages of Events with this reason, sorted by object name. Events about the same object are in the
    /// order in which they were first written.
    pub(crate) async fn events(&self, reason: &str) -> Vec<String> {
        let mut events = self.list("v1", "Event").await;
        events.retain(|it| it["reason"] == reason);
        events.sort_by_key(|it| it["metadata"]["name"].as_str().map(str::to_owned));
        events
            .iter()
            .map(|it| it["message"].as_str().unwrap_or_default().to_owned())
            .collect()
    }
}

/// Returns a Pod template with one container, labelled `app: NAME`.
pub(crate) fn template(app: &str) -> Value {
    json!({
        "metadata": {"labels": {"app": app}},
        "spec": {"containers": [{"name": "main", "image": "nginx:1"}]},
    })
}

/// Returns a Deployment.
pub(crate) fn deployment(name: &str, replicas: u32) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name},
        "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": name}}, "template": template(name)},
    })
}

/// Returns the status, the reason and the message of a condition.
pub(crate) fn condition<'a>(object: &'a Value, kind: &str) -> [&'a str; 3] {
    let list = object["status"]["conditions"]
        .as_array()
        .map_or(&[] as &[Value], Vec::as_slice);
    let condition = list.iter().find(|it| it["type"] == kind).unwrap_or(&Value::Null);
    ["status", "reason", "message"].map(|field| condition[field].as_str().unwrap_or_default())
}
