//! Measures the same operations with kube-fake-client, if it supports them. Prints lines with a name and a number of
//! nanoseconds.

#[path = "../../src/measure.rs"]
mod measure;
#[path = "../../src/objects.rs"]
mod objects;

use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::Client;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube_fake_client::ClientBuilder;
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use measure::{cpu_time, nanos_per_operation};

struct Bench {
    runtime: Runtime,
    maps: Api<ConfigMap>,
    pods: Api<Pod>,
    made: usize,
}

fn main() {
    let mut bench = Bench::new(Vec::new());
    report("start", nanos_per_operation(5, 200, start));
    report("create_map", nanos_per_operation(5, 2000, |n| bench.create_maps(n)));
    report("get_map", nanos_per_operation(5, 2000, |n| bench.get_map(n)));
    report("merge_map", nanos_per_operation(5, 2000, |n| bench.merge_map(n)));
    report("apply_map", nanos_per_operation(5, 1000, |n| bench.apply_map(n)));
    report("delete_map", nanos_per_operation(5, 500, |n| bench.delete_maps(n)));
    let mut bench = Bench::new(Vec::new());
    report("create_pod", nanos_per_operation(5, 300, |n| bench.create_pods(n)));
    report("get_pod", nanos_per_operation(5, 500, |n| bench.get_pod(n)));
    report("replace_pod", nanos_per_operation(5, 200, |n| bench.replace_pod(n)));
    let pods = (0..10_000)
        .map(|at| objects::running_pod(&format!("pod-{at:07}")))
        .collect();
    let mut bench = Bench::new(pods);
    report(
        "list_pod",
        nanos_per_operation(3, 1, |n| bench.list(n, &ListParams::default())) / 10_000.0,
    );
    report(
        "page",
        nanos_per_operation(3, 1, |n| bench.list(n, &ListParams::default().limit(500))),
    );
    let none = ListParams::default().labels("app.kubernetes.io/name=other");
    report("select_none", nanos_per_operation(3, 1, |n| bench.list(n, &none)));
}

#[expect(clippy::print_stdout, reason = "the figures program reads it")]
fn report(name: &str, nanos: f64) {
    println!("{name}\t{nanos}");
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .expect("the runtime can be built")
}

async fn client(objects: Vec<Value>) -> Client {
    ClientBuilder::new()
        .with_runtime_objects(objects)
        .build()
        .await
        .expect("the client can be created")
}

fn start(count: usize) -> Duration {
    runtime().block_on(async {
        let start = cpu_time();
        for _ in 0..count {
            let maps: Api<ConfigMap> = Api::default_namespaced(client(Vec::new()).await);
            // kube-fake-client does not serve namespaces, so the first response is a 404.
            let _ = maps.get_opt("default").await.expect("the server answers");
        }
        cpu_time() - start
    })
}

impl Bench {
    fn new(objects: Vec<Value>) -> Self {
        let runtime = runtime();
        let client = runtime.block_on(client(objects));
        let (maps, pods) = (Api::default_namespaced(client.clone()), Api::default_namespaced(client));
        let bench = Self {
            runtime,
            maps,
            pods,
            made: 0,
        };
        bench.runtime.block_on(async {
            for name in ["read", "written"] {
                let map: ConfigMap = typed(objects::config_map(name));
                bench.maps.create(&PostParams::default(), &map).await.expect("the create succeeds");
                let pod: Pod = typed(objects::running_pod(name));
                bench.pods.create(&PostParams::default(), &pod).await.expect("the create succeeds");
            }
        });
        bench
    }

    fn fresh(&mut self, count: usize) -> Vec<String> {
        let start = self.made;
        self.made += count;
        (start..self.made).map(|at| format!("fresh-{at:07}")).collect()
    }

    fn create_maps(&mut self, count: usize) -> Duration {
        let maps: Vec<ConfigMap> = self
            .fresh(count)
            .iter()
            .map(|it| typed(objects::config_map(it)))
            .collect();
        self.runtime.block_on(async {
            let start = cpu_time();
            for map in &maps {
                self.maps.create(&PostParams::default(), map).await.expect("the create succeeds");
            }
            cpu_time() - start
        })
    }

    fn create_pods(&mut self, count: usize) -> Duration {
        let pods: Vec<Pod> = self.fresh(count).iter().map(|it| typed(objects::pod(it))).collect();
        self.runtime.block_on(async {
            let start = cpu_time();
            for pod in &pods {
                self.pods.create(&PostParams::default(), pod).await.expect("the create succeeds");
            }
            cpu_time() - start
        })
    }

    fn get_map(&mut self, count: usize) -> Duration {
        self.runtime.block_on(async {
            let start = cpu_time();
            for _ in 0..count {
                self.maps.get("read").await.expect("the get succeeds");
            }
            cpu_time() - start
        })
    }

    fn get_pod(&mut self, count: usize) -> Duration {
        self.runtime.block_on(async {
            let start = cpu_time();
            for _ in 0..count {
                self.pods.get("read").await.expect("the get succeeds");
            }
            cpu_time() - start
        })
    }

    fn replace_pod(&mut self, count: usize) -> Duration {
        self.runtime.block_on(async {
            let mut pod = self.pods.get("written").await.expect("the get succeeds");
            let mut spent = Duration::ZERO;
            for at in 0..count {
                pod.metadata
                    .labels
                    .get_or_insert_default()
                    .insert("at".into(), at.to_string());
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

    fn merge_map(&mut self, count: usize) -> Duration {
        self.patch_map(count, &PatchParams::default(), |at| {
            Patch::Merge(json!({"data": {"key": at.to_string()}}))
        })
    }

    fn apply_map(&mut self, count: usize) -> Duration {
        self.patch_map(count, &PatchParams::apply("bench"), |at| {
            let mut map = objects::config_map("written");
            map["data"] = json!({"applied": at.to_string()});
            Patch::Apply(map)
        })
    }

    fn patch_map(&mut self, count: usize, params: &PatchParams, patch: impl Fn(usize) -> Patch<Value>) -> Duration {
        let patches: Vec<_> = (0..count).map(patch).collect();
        self.runtime.block_on(async {
            let start = cpu_time();
            for patch in &patches {
                self.maps.patch("written", params, patch).await.expect("the patch succeeds");
            }
            cpu_time() - start
        })
    }

    fn delete_maps(&mut self, count: usize) -> Duration {
        let names = self.fresh(count);
        self.runtime.block_on(async {
            for name in &names {
                let map: ConfigMap = typed(objects::config_map(name));
                self.maps.create(&PostParams::default(), &map).await.expect("the create succeeds");
            }
            let start = cpu_time();
            for name in &names {
                let _ = self.maps.delete(name, &DeleteParams::default()).await.expect("the delete succeeds");
            }
            cpu_time() - start
        })
    }

    fn list(&mut self, count: usize, params: &ListParams) -> Duration {
        self.runtime.block_on(async {
            let start = cpu_time();
            for _ in 0..count {
                self.pods.list(params).await.expect("the list succeeds");
            }
            cpu_time() - start
        })
    }
}

fn typed<K: for<'de> serde::Deserialize<'de>>(object: Value) -> K {
    serde_json::from_value(object).expect("the object has this type")
}
