//! A server with a list and a watch that were encoded in advance, so that benchmarks only measure the client.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use axum::body::{Body, Bytes};
use futures::StreamExt;
use futures::channel::mpsc::{UnboundedReceiver, UnboundedSender, unbounded};
use http::{Request, Response};
use k8s_openapi::api::core::v1::Pod;
use kube::Client;

use crate::objects;

/// A server of Pods at version 1, with lists in pages, and with a watch that sends pushed events.
#[derive(Clone, Debug)]
pub struct Mirror {
    pods: Arc<Vec<String>>,
    watch: Arc<Mutex<Option<UnboundedReceiver<Bytes>>>>,
    lines: UnboundedSender<Bytes>,
}

/// Returns a Pod of 5 KB as the server sends it.
fn encoded(number: usize, version: u64) -> String {
    let mut pod = objects::running_pod(&format!("web-6d4b75cb6d-{number:07}"));
    pod["metadata"]["resourceVersion"] = version.to_string().into();
    pod["metadata"]["uid"] = format!("5f0c7d2e-8f4b-4a65-9a3e-{number:012}").into();
    pod["metadata"]["creationTimestamp"] = "2026-01-01T00:00:00Z".into();
    pod["metadata"]["generation"] = 1.into();
    pod.to_string()
}

impl Mirror {
    /// Creates a server with a number of Pods.
    pub fn new(count: usize) -> Self {
        let (lines, watch) = unbounded();
        Self {
            pods: Arc::new((0..count).map(|at| encoded(at, 1)).collect()),
            watch: Arc::new(Mutex::new(Some(watch))),
            lines,
        }
    }

    /// Returns `count` changes, distributed over all Pods, as lines.
    pub fn changes(&self, count: usize, first: u64) -> Vec<Bytes> {
        let line = |at: usize| {
            let pod = encoded((at * 7919) % self.pods.len(), first + at as u64);
            Bytes::from(format!("{{\"type\":\"MODIFIED\",\"object\":{pod}}}\n"))
        };
        (0..count).map(line).collect()
    }

    /// Sends lines to the watch.
    pub fn push(&self, lines: Vec<Bytes>) {
        for line in lines {
            self.lines.unbounded_send(line).expect("the watch is open");
        }
    }

    /// Returns a client of this server.
    pub fn client(&self) -> Client {
        let mirror = self.clone();
        let service = tower::service_fn(move |request: Request<kube::client::Body>| {
            let answer = mirror.answer(request.uri().query().unwrap_or_default());
            async move { Ok::<_, Infallible>(answer) }
        });
        Client::new(service, "default")
    }

    /// Returns the server as a service, for sockets.
    pub fn service(self) -> axum::Router {
        axum::Router::new().fallback(move |request: Request<Body>| {
            let answer = self.answer(request.uri().query().unwrap_or_default());
            async move { answer }
        })
    }

    fn answer(&self, query: &str) -> Response<Body> {
        let pairs = query.split('&').filter_map(|it| it.split_once('='));
        let pairs: BTreeMap<&str, &str> = pairs.collect();
        if pairs.contains_key("sendInitialEvents") {
            // The server does not support streaming lists, so that both clients use lists.
            let mut refused = Response::new(Body::empty());
            *refused.status_mut() = http::StatusCode::UNPROCESSABLE_ENTITY;
            return refused;
        }
        if pairs.contains_key("watch") {
            let lines = self.watch.lock().expect("the lock is not poisoned").take();
            let Some(lines) = lines else {
                return Response::new(Body::from_stream(
                    futures::stream::pending::<Result<Bytes, Infallible>>(),
                ));
            };
            return Response::new(Body::from_stream(lines.map(Ok::<_, Infallible>)));
        }
        let number = |name: &str| {
            pairs
                .get(name)
                .and_then(|it| it.parse::<usize>().ok())
                .unwrap_or_default()
        };
        // Like kube-apiserver, ignore the limit of a list at version "0".
        let limit = match pairs.get("resourceVersion") {
            Some(&"0") => 0,
            _ => number("limit"),
        };
        let from = number("continue");
        let until = if limit == 0 {
            self.pods.len()
        } else {
            (from + limit).min(self.pods.len())
        };
        let more = if until < self.pods.len() {
            format!(",\"continue\":\"{until}\"")
        } else {
            String::new()
        };
        let head = format!(
            "{{\"kind\":\"PodList\",\"apiVersion\":\"v1\",\"metadata\":{{\"resourceVersion\":\"1\"{more}}},\"items\":["
        );
        let pods = Arc::clone(&self.pods);
        // Send chunks of eight objects, like a network.
        let frames = (from..until).step_by(8).map(move |at| {
            let piece = pods[at..(at + 8).min(until)].join(",");
            if at == from { piece } else { format!(",{piece}") }
        });
        let body = std::iter::once(head).chain(frames).chain(["]}".to_owned()]);
        Response::new(Body::from_stream(futures::stream::iter(
            body.map(|it| Ok::<_, Infallible>(Bytes::from(it))),
        )))
    }
}

/// Returns an event that adds a small Pod, as a line of a watch.
pub fn added(number: usize, version: u64) -> Bytes {
    let metadata = format!(r#"{{"name":"web-{number:07}","namespace":"default","resourceVersion":"{version}"}}"#);
    let spec = r#"{"containers":[{"name":"web","image":"web:1"}]}"#;
    let pod = format!(r#"{{"apiVersion":"v1","kind":"Pod","metadata":{metadata},"spec":{spec}}}"#);
    Bytes::from(format!("{{\"type\":\"ADDED\",\"object\":{pod}}}\n"))
}

/// Returns a decoded Pod.
pub fn pod(number: usize, version: u64) -> Pod {
    serde_json::from_str(&encoded(number, version)).expect("the object is a Pod")
}

/// Returns the same Pod as JSON text.
pub fn pod_text(number: usize, version: u64) -> String {
    encoded(number, version)
}
