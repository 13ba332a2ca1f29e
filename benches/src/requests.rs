//! Measures requests through `kube::Client`, one after the other, on one thread with a paused clock.

use std::time::Duration;

use axum::body::Body;
use fake_apiserver::ApiServer;
use futures::StreamExt;
use http::Request;
use http_body_util::BodyExt;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod};
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use serde_json::json;
use tokio::runtime::Runtime;
use tower::ServiceExt;

use crate::measure::cpu_time;
use crate::objects;

/// Returns a current-thread runtime with a paused clock.
pub fn runtime() -> Runtime {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime without I/O can be built")
}

/// A server with its client.
#[derive(Debug)]
pub struct Bench {
    /// Runtime of the client.
    pub runtime: Runtime,
    /// The server.
    pub server: ApiServer,
    maps: Api<ConfigMap>,
    pub(crate) pods: Api<Pod>,
    made: usize,
    pub(crate) has_widgets: bool,
}

impl Default for Bench {
    fn default() -> Self {
        Self::new()
    }
}

impl Bench {
    /// Starts a new server.
    pub fn new() -> Self {
        let runtime = runtime();
        let guard = runtime.enter();
        let server = ApiServer::start();
        let client = server.client();
        drop(guard);
        let (maps, pods) = (Api::default_namespaced(client.clone()), Api::default_namespaced(client));
        Self {
            runtime,
            server,
            maps,
            pods,
            made: 0,
            has_widgets: false,
        }
    }

    pub(crate) fn fresh_names(&mut self, prefix: &str, count: usize) -> Vec<String> {
        let start = self.made;
        self.made += count;
        (start..self.made).map(|at| format!("{prefix}-{at:07}")).collect()
    }

    fn fresh_maps(&mut self, count: usize) -> Vec<ConfigMap> {
        self.fresh_names("map", count)
            .iter()
            .map(|name| typed(objects::config_map(name)))
            .collect()
    }

    /// Measures creating ConfigMaps.
    pub fn create_maps(&mut self, count: usize) -> Duration {
        let maps = self.fresh_maps(count);
        let params = PostParams::default();
        self.runtime.block_on(async {
            let start = cpu_time();
            for map in &maps {
                self.maps.create(&params, map).await.expect("the create succeeds");
            }
            cpu_time() - start
        })
    }

    /// Measures creating ConfigMaps, and receiving the event of each on a watch.
    pub fn create_maps_and_watch(&mut self, count: usize) -> Duration {
        let maps = self.fresh_maps(count);
        let params = PostParams::default();
        let version = self.server.resource_version().to_string();
        self.runtime.block_on(async {
            let watch = self
                .maps
                .watch(&WatchParams::default(), &version)
                .await
                .expect("the watch opens");
            let mut watch = std::pin::pin!(watch);
            let start = cpu_time();
            for map in &maps {
                let made = self.maps.create(&params, map).await.expect("the create succeeds");
                match watch.next().await {
                    Some(Ok(WatchEvent::Added(seen))) => assert_eq!(seen.metadata.uid, made.metadata.uid),
                    other => panic!("expected an event of the object, found {other:?}"),
                }
            }
            cpu_time() - start
        })
    }

    /// Measures creating Pods.
    pub fn create_pods(&mut self, count: usize) -> Duration {
        let names = self.fresh_names("pod", count);
        let pods: Vec<Pod> = names.iter().map(|name| typed(objects::pod(name))).collect();
        let params = PostParams::default();
        self.runtime.block_on(async {
            let start = cpu_time();
            for pod in &pods {
                self.pods.create(&params, pod).await.expect("the create succeeds");
            }
            cpu_time() - start
        })
    }

    /// Measures getting a ConfigMap.
    pub fn get_map(&mut self, count: usize) -> Duration {
        self.ensure(objects::config_map("read"));
        self.runtime.block_on(async {
            let start = cpu_time();
            for _ in 0..count {
                self.maps.get("read").await.expect("the get succeeds");
            }
            cpu_time() - start
        })
    }

    /// Measures getting a Pod.
    pub fn get_pod(&mut self, count: usize) -> Duration {
        self.ensure(objects::running_pod("read"));
        self.runtime.block_on(async {
            let start = cpu_time();
            for _ in 0..count {
                self.pods.get("read").await.expect("the get succeeds");
            }
            cpu_time() - start
        })
    }

    /// Measures getting a Pod by a direct call of the server, up to the last byte of the body.
    pub fn get_pod_bytes(&mut self, count: usize) -> Duration {
        self.ensure(objects::running_pod("read"));
        let service = self.server.service();
        self.runtime.block_on(async {
            let requests: Vec<_> = (0..count)
                .map(|_| get("/api/v1/namespaces/default/pods/read"))
                .collect();
            let start = cpu_time();
            for request in requests {
                let response = service
                    .clone()
                    .oneshot(request)
                    .await
                    .expect("the service is infallible");
                let body = response
                    .into_body()
                    .collect()
                    .await
                    .expect("the body is in memory")
                    .to_bytes();
                assert!(body.len() > 4000);
            }
            cpu_time() - start
        })
    }

    /// Measures replacing a Pod with a changed label.
    pub fn replace_pod(&mut self, count: usize) -> Duration {
        self.ensure(objects::running_pod("written"));
        self.runtime.block_on(async {
            let mut pod = self.pods.get("written").await.expect("the get succeeds");
            let mut spent = Duration::ZERO;
            for at in 0..count {
                let labels = pod.metadata.labels.get_or_insert_default();
                labels.insert("at".into(), at.to_string());
                let start = cpu_time();
                let written = self
                    .pods
                    .replace("written", &PostParams::default(), &pod)
                    .await
                    .expect("the replace succeeds");
                spent += cpu_time() - start;
                pod = written;
            }
            spent
        })
    }

    /// Measures a merge patch of a ConfigMap.
    pub fn merge_map(&mut self, count: usize) -> Duration {
        self.ensure(objects::config_map("written"));
        self.patch_map(count, &PatchParams::default(), |at| {
            Patch::Merge(json!({"data": {"key": at.to_string()}}))
        })
    }

    /// Measures server-side apply of a ConfigMap.
    pub fn apply_map(&mut self, count: usize) -> Duration {
        self.patch_map(count, &PatchParams::apply("bench"), |at| {
            let mut map = objects::config_map("written");
            map["data"] = json!({"applied": at.to_string()});
            Patch::Apply(map)
        })
    }

    fn patch_map(
        &mut self,
        count: usize,
        params: &PatchParams,
        patch: impl Fn(usize) -> Patch<serde_json::Value>,
    ) -> Duration {
        let patches: Vec<_> = (0..count).map(patch).collect();
        self.runtime.block_on(async {
            let start = cpu_time();
            for patch in &patches {
                self.maps
                    .patch("written", params, patch)
                    .await
                    .expect("the patch succeeds");
            }
            cpu_time() - start
        })
    }

    /// Measures server-side apply of the fields of a Pod template, with a changed annotation.
    pub fn apply_pod(&mut self, count: usize) -> Duration {
        let patches: Vec<_> = (0..count)
            .map(|at| {
                let mut pod = objects::pod("applied");
                pod["metadata"]["annotations"]["at"] = at.to_string().into();
                Patch::Apply(pod)
            })
            .collect();
        let params = PatchParams::apply("bench");
        self.runtime.block_on(async {
            let start = cpu_time();
            for patch in &patches {
                self.pods
                    .patch("applied", &params, patch)
                    .await
                    .expect("the apply succeeds");
            }
            cpu_time() - start
        })
    }

    /// Measures deleting ConfigMaps.
    pub fn delete_maps(&mut self, count: usize) -> Duration {
        let names = self.fresh_names("gone", count);
        self.server
            .load(names.iter().map(|name| objects::config_map(name)))
            .expect("the objects are loaded");
        self.runtime.block_on(async {
            let start = cpu_time();
            for name in &names {
                let _ = self
                    .maps
                    .delete(name, &DeleteParams::default())
                    .await
                    .expect("the delete succeeds");
            }
            cpu_time() - start
        })
    }

    fn ensure(&self, object: serde_json::Value) {
        self.server.load([object]).expect("the objects are loaded");
    }
}

/// Measures the time from the start of a server to its first response, `count` times.
pub fn start_and_answer(count: usize) -> Duration {
    let runtime = runtime();
    runtime.block_on(async {
        let start = cpu_time();
        for _ in 0..count {
            first_answer().await;
        }
        cpu_time() - start
    })
}

/// Starts a server and reads a namespace from it.
pub async fn first_answer() {
    let client = ApiServer::start().client();
    Api::<Namespace>::all(client)
        .get("default")
        .await
        .expect("the get succeeds");
}

/// Returns a GET request for direct calls.
pub fn get(path: &str) -> Request<Body> {
    Request::get(path)
        .header("user-agent", "bench")
        .body(Body::empty())
        .expect("the request is valid")
}

pub(crate) fn typed<K: for<'de> serde::Deserialize<'de>>(object: serde_json::Value) -> K {
    serde_json::from_value(object).expect("the object has this type")
}
