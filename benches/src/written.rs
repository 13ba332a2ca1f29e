//! Measures a controller that writes each of its objects once, on a server that only sends prepared responses.

use std::convert::Infallible;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::body::{Body, Bytes};
use futures::StreamExt;
use futures::channel::mpsc::{UnboundedReceiver, UnboundedSender, unbounded};
use http::{Method, Request, Response, StatusCode};
use informer::cache::SharedInformerFactory;
use informer::reconcile::{Action, ReconcileError, Request as Key, Writes};
use informer::runtime::Controller;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde_json::json;
use tokio::runtime::Runtime;
use tokio_util::sync::CancellationToken;

use crate::requests::runtime;

/// The configuration of the measured controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Reconciles do not write, so that only cache and queue are measured.
    Cache,
    /// Each object is written once, without read-your-writes.
    Writes,
    /// Each object is written once, with read-your-writes.
    Gate,
}

/// A server of ConfigMaps at version 1, with a watch that sends the changes.
struct Server {
    count: usize,
    version: AtomicUsize,
    lines: UnboundedSender<Bytes>,
    watch: Mutex<Option<UnboundedReceiver<Bytes>>>,
}

fn map(name: &str, version: usize) -> String {
    let metadata = format!(r#"{{"name":"{name}","namespace":"default","uid":"{name}","resourceVersion":"{version}"}}"#);
    format!(r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{metadata}}}"#)
}

impl Server {
    fn answer(&self, request: &Request<kube::client::Body>) -> Response<Body> {
        if *request.method() == Method::PATCH {
            let name = request.uri().path().rsplit('/').next().unwrap_or_default();
            let written = map(name, self.version.fetch_add(1, Ordering::Relaxed) + 1);
            let line = format!("{{\"type\":\"MODIFIED\",\"object\":{written}}}\n");
            self.lines.unbounded_send(line.into()).expect("the watch is open");
            return Response::new(Body::from(written));
        }
        let query = request.uri().query().unwrap_or_default();
        if query.contains("sendInitialEvents") {
            let mut refused = Response::new(Body::empty());
            *refused.status_mut() = StatusCode::UNPROCESSABLE_ENTITY;
            return refused;
        }
        if query.contains("watch=true") {
            let lines = self.watch.lock().expect("the lock is not poisoned").take();
            let lines = lines.expect("there is one watch");
            return Response::new(Body::from_stream(lines.map(Ok::<_, Infallible>)));
        }
        let maps: Vec<_> = (0..self.count).map(|it| map(&format!("map-{it:07}"), 1)).collect();
        let list = format!(
            r#"{{"kind":"ConfigMapList","apiVersion":"v1","metadata":{{"resourceVersion":"1"}},"items":[{}]}}"#,
            maps.join(",")
        );
        Response::new(Body::from(list))
    }
}

/// Runs the controller until all keys are reconciled and all periodic work is done. The returned runtime keeps the
/// controller's memory alive.
pub fn keys(count: usize, part: Part) -> Runtime {
    let runtime = runtime();
    let (lines, watch) = unbounded();
    let server = Arc::new(Server {
        count,
        version: AtomicUsize::new(1),
        lines,
        watch: Mutex::new(Some(watch)),
    });
    let service = tower::service_fn(move |request: Request<kube::client::Body>| {
        let answer = server.answer(&request);
        async move { Ok::<_, Infallible>(answer) }
    });
    runtime.block_on(async {
        let client = Client::new(service, "default");
        let factory = SharedInformerFactory::new(client.clone());
        let maps = factory.informer::<ConfigMap>().lister();
        let api: Api<ConfigMap> = Api::default_namespaced(Writes::new().observe(&client));
        let mut builder = Controller::builder("maps", &factory).for_::<ConfigMap>();
        if part != Part::Gate {
            builder = builder.without_read_your_writes();
        }
        let controller = builder.build(move |key: Key| {
            let is_written = maps
                .get(&key.key)
                .is_none_or(|it| it.resource_version().to_string() != "1");
            let api = api.clone();
            async move {
                if part != Part::Cache && !is_written {
                    let patch = Patch::Merge(json!({"data": {"is": "written"}}));
                    api.patch(key.key.name(), &PatchParams::default(), &patch).await?;
                }
                Ok::<_, ReconcileError>(Action::await_change())
            }
        });
        let controller = controller.expect("the controller is complete");
        tokio::spawn(controller.run(CancellationToken::new()));
        tokio::time::sleep(Duration::from_secs(120)).await;
    });
    runtime
}
