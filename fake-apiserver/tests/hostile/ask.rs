//! `Ask`: a request of a hostile client, and the properties of every response.

use std::time::Duration;

use axum::body::{Body, Bytes};
use fake_apiserver::ApiServer;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request};
use http_body_util::BodyExt as _;
use serde_json::Value;
use tower::ServiceExt as _;

/// Messages of 500s that kube-apiserver also returns (rules A12, A20, D5, G7, H12, I2, I3), usually for patches with
/// contradictory parts.
const GENUINE_500: [&str; 16] = [
    "resourceVersion should not be set on objects to be created",
    "etcdserver: request is too large",
    "failed to create typed patch object",
    "failed to create manager for existing fields",
    "failed to update managed fields",
    "failed to convert new object",
    "Internal error occurred: the spec replicas field",
    "This pod has more than one PodDisruptionBudget",
    "invalid syntax",
    "value out of range",
    "does not contain declared merge key",
    "expected a ",
    "unknown patch type: ",
    "list element types are not identical",
    "doesn't match $setElementOrder list",
    "unable to find api field in struct",
];

/// A request.
#[derive(Clone, Debug)]
pub(crate) struct Ask {
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

/// A complete response. A watch is only read for a limited time.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) code: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Ask {
    pub(crate) fn new(method: &str, path: &str, content_type: &str, body: impl Into<Vec<u8>>) -> Self {
        let headers = vec![
            ("accept".to_owned(), "application/json".to_owned()),
            ("user-agent".to_owned(), "hostile/1".to_owned()),
            ("content-type".to_owned(), content_type.to_owned()),
        ];
        Self {
            method: method.to_owned(),
            path: path.to_owned(),
            headers,
            body: body.into(),
        }
    }

    pub(crate) fn get(path: &str) -> Self {
        Self::new("GET", path, "application/json", "")
    }

    pub(crate) fn set_header(&mut self, name: &str, value: &str) {
        self.headers.retain(|(other, _)| other != name);
        self.headers.push((name.to_owned(), value.to_owned()));
    }

    /// Returns `true` if the request may change something.
    fn may_change(&self, answer: &Answer) -> bool {
        // kube-apiserver may also write first and then fail to encode the object in the requested form; and a failed
        // delete of a collection may already have deleted some objects.
        let is_shown = !(answer.code == 406 && answer.message().starts_with("you requested"));
        let is_refused = answer.code >= 400 && is_shown && self.method != "DELETE";
        let only_reads = matches!(self.method.as_str(), "GET" | "HEAD") || self.path.contains("dryRun=All");
        !is_refused && !only_reads
    }

    /// Builds the request; `None` if it cannot be represented in HTTP.
    fn request(&self) -> Option<Request<Body>> {
        let mut request = Request::new(Body::from(self.body.clone()));
        *request.method_mut() = Method::from_bytes(self.method.as_bytes()).ok()?;
        *request.uri_mut() = self.path.parse().ok()?;
        for (name, value) in &self.headers {
            let name = HeaderName::from_bytes(name.as_bytes()).ok()?;
            request
                .headers_mut()
                .append(name, HeaderValue::from_bytes(value.as_bytes()).ok()?);
        }
        Some(request)
    }

    /// Sends the request. If it cannot be sent, the code of the response is 0.
    async fn send(&self, server: &ApiServer) -> Answer {
        let Some(request) = self.request() else {
            return Answer {
                code: 0,
                headers: HeaderMap::new(),
                body: Bytes::new(),
            };
        };
        let Ok(answer) = server.service().oneshot(request).await;
        let (parts, mut body) = answer.into_parts();
        let mut bytes = Vec::new();
        // A watch may last for half an hour, so read it only for a limited time.
        let _ = tokio::time::timeout(Duration::from_secs(90), async {
            while let Some(Ok(frame)) = body.frame().await {
                bytes.extend_from_slice(frame.data_ref().map_or(&[], |data| data));
            }
        })
        .await;
        Answer {
            code: parts.status.as_u16(),
            headers: parts.headers,
            body: bytes.into(),
        }
    }

    /// Sends the request, and checks the properties of every response: no panic, no internal error, well-formed
    /// failures, and an unchanged state after a refusal or a dry run.
    pub(crate) async fn check(&self, server: &ApiServer) -> Result<Answer, String> {
        let before = server.resource_version();
        let answer = self.send(server).await;
        let after = server.resource_version();
        let complain = |why: &str| Err(format!("{why}\n{}", self.describe(&answer)));
        if String::from_utf8_lossy(&answer.body).contains("the server panicked") {
            return complain("the server panicked");
        }
        if before != after && !self.may_change(&answer) {
            return complain("a request that must not change anything did");
        }
        match answer.code {
            0 | 200..=399 => Ok(answer),
            400..=499 | 501 | 504 => match answer.is_failure() {
                true => Ok(answer),
                false => complain("the failure has not its form"),
            },
            500 if GENUINE_500.iter().any(|text| answer.message().contains(text)) => Ok(answer),
            _ => complain("an error of the server's own"),
        }
    }

    fn describe(&self, answer: &Answer) -> String {
        let clip = |bytes: &[u8]| format!("{:.3000}", String::from_utf8_lossy(bytes));
        let Self {
            method,
            path,
            headers,
            body,
        } = self;
        let (code, got) = (answer.code, clip(&answer.body));
        format!("{method} {path:.2000}\n{headers:?}\n{}\n-> {code} {got}", clip(body))
    }
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }

    pub(crate) fn message(&self) -> String {
        match self.json()["message"].as_str() {
            Some(message) => message.to_owned(),
            None => String::from_utf8_lossy(&self.body).into_owned(),
        }
    }

    /// Returns `true` if a failure is a Status with the code of the response. The response to an unknown path is plain
    /// text.
    fn is_failure(&self) -> bool {
        let is_json = self
            .headers
            .get("content-type")
            .is_some_and(|it| it.as_bytes().starts_with(b"application/json"));
        if !is_json {
            return true;
        }
        let status = self.json();
        self.body.is_empty()
            || status["kind"] == "Status"
                && status["apiVersion"] == "v1"
                && status["status"] == "Failure"
                && status["metadata"].is_object()
                && status["code"] == self.code
    }
}
