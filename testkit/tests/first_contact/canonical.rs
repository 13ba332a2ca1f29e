//! End states are compared after uids, generated names and addresses are replaced by descriptions of their objects;
//! fields that workers derived are reported after fields that controllers wrote.

use std::time::Duration;

use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, ResourceExt};
use serde_json::json;
use testkit::explore::{Oracle, crashes, delays, errors, explore, stale_watches};
use testkit::objects::{config_map, deployment, node, pod};
use testkit::{TestCluster, Worker};

/// Number of runs; fewer in debug builds, in which each takes about ten times as long.
const SCHEDULES: u64 = if cfg!(debug_assertions) { 150 } else { 2_000 };

fn apply() -> PatchParams {
    PatchParams::apply("test").force()
}

fn record(name: &str, data: serde_json::Value) -> Patch<serde_json::Value> {
    Patch::Apply(json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}))
}

/// Records the uid of each Pod in a ConfigMap with the same name. If `is_wrong` is set, trusts an existing record.
async fn record_uids(client: Client, is_wrong: bool) {
    let maps = Api::<ConfigMap>::default_namespaced(client.clone());
    let pods = Api::<Pod>::default_namespaced(client);
    let mut events = watcher(pods, watcher::Config::default()).default_backoff().boxed();
    while let Some(event) = events.next().await {
        match event {
            Ok(watcher::Event::Apply(pod) | watcher::Event::InitApply(pod)) => loop {
                let uid = json!({"pod": pod.uid()});
                let written = match is_wrong {
                    true => {
                        let map = serde_json::from_value(json!({"metadata": {"name": pod.name_any()}, "data": uid}));
                        let created = maps
                            .create(&PostParams::default(), &map.expect("the object is a ConfigMap"))
                            .await;
                        created.map(drop).or_else(|err| match err {
                            kube::Error::Api(status) if status.code == 409 => Ok(()),
                            err => Err(err),
                        })
                    }
                    false => maps
                        .patch(&pod.name_any(), &apply(), &record(&pod.name_any(), uid))
                        .await
                        .map(drop),
                };
                match written {
                    Ok(()) => break,
                    Err(_) => tokio::time::sleep(Duration::from_secs(1)).await,
                }
            },
            Ok(watcher::Event::Delete(pod)) => {
                while let Err(err) = maps.delete(&pod.name_any(), &DeleteParams::default()).await {
                    if matches!(&err, kube::Error::Api(status) if status.code == 404) {
                        break;
                    }
                    tokio::time::sleep(Duration::from_secs(1)).await;
                }
            }
            Ok(_) | Err(_) => {}
        }
    }
}

async fn pod_is_replaced(cluster: &TestCluster) {
    cluster.create(pod("a")).await;
    cluster.eventually(|cluster| cluster.exists(config_map("a"))).await;
    cluster.delete::<Pod>("a").await;
    cluster.create(pod("a")).await;
    cluster.settle().await;
}

#[test]
fn uid_of_a_deleted_object_is_reported_as_a_difference() {
    let report = explore(async |cluster: &TestCluster| {
        cluster.controller("recorder", |client| record_uids(client, true));
        pod_is_replaced(cluster).await;
    })
    .faults(stale_watches())
    .report();
    let failure = report.failure().expect("the exploration fails");
    assert_eq!(failure.oracle(), "end state", "{report}");
    let expected = r#"data.pod: expected "uid of pods default/a", found "uid of pods default/a, deleted""#;
    assert!(failure.what().contains(expected), "{report}");
}

#[test]
fn different_uids_of_the_same_object_are_not_reported() {
    explore(async |cluster: &TestCluster| {
        cluster.controller("recorder", |client| record_uids(client, false));
        cluster.create(pod("a")).await;
        cluster.create(pod("b")).await;
        cluster.settle().await;
    })
    .schedules(SCHEDULES)
    .run();
}

/// Creates a Pod with a generated name for a ConfigMap, and records its name and address in the ConfigMap.
async fn run_pod(client: Client, map: &'static str) {
    let maps = Api::<ConfigMap>::default_namespaced(client.clone());
    let pods = Api::<Pod>::default_namespaced(client);
    let spec = json!({"containers": [{"name": "main", "image": "app:1"}]});
    loop {
        let listed = pods
            .list(&kube::api::ListParams::default().labels(&format!("map={map}")))
            .await;
        let found = listed.ok().map(|it| it.items.into_iter().next());
        let done = match found {
            Some(Some(pod)) => {
                let address = pod.status.as_ref().and_then(|it| it.pod_ip.clone());
                let data = json!({"name": pod.name_any(), "url": address.map(|it| format!("http://{it}:80/"))});
                maps.patch(map, &apply(), &record(map, data)).await.map(drop)
            }
            Some(None) => {
                let metadata = json!({"generateName": "run-", "labels": {"map": map}});
                let pod =
                    serde_json::from_value(json!({"metadata": metadata, "spec": spec})).expect("the object is a Pod");
                pods.create(&PostParams::default(), &pod).await.map(drop)
            }
            None => Ok(()),
        };
        let _ = done;
        tokio::time::sleep(Duration::from_secs(2)).await;
    }
}

#[test]
fn order_of_addresses_names_and_nodes_is_ignored() {
    let world = TestCluster::builder()
        .workers([Worker::Kubelet])
        .object(node("node-1"))
        .object(node("node-2"));
    explore(async |cluster: &TestCluster| {
        for name in ["one", "two"] {
            cluster.controller(name, move |client| run_pod(client, name));
        }
        cluster
            .eventually(|cluster| {
                ["one", "two"].into_iter().all(|it| {
                    let map = cluster.try_get(config_map(it));
                    map.is_some_and(|it| it.data("url").is_some())
                })
            })
            .await;
    })
    .cluster(world)
    .faults(delays() | errors())
    .without(Oracle::CreatesAndDeletes)
    .without(Oracle::HotLoop)
    .schedules(SCHEDULES)
    .run();
}

/// Scales a Deployment according to a ConfigMap, once for each event.
async fn scale(client: Client) {
    let deployments = Api::<Deployment>::default_namespaced(client.clone());
    let maps = Api::<ConfigMap>::default_namespaced(client);
    let mut events = watcher(maps, watcher::Config::default()).applied_objects().boxed();
    while let Ok(map) = events.try_next().await {
        let Some(map) = map else { return };
        let replicas = map
            .data
            .unwrap_or_default()
            .get("replicas")
            .and_then(|it| it.parse::<i32>().ok());
        if let Some(replicas) = replicas {
            let patch = Patch::Merge(json!({"spec": {"replicas": replicas}}));
            let _ = deployments.patch("web", &PatchParams::default(), &patch).await;
        }
    }
}

#[test]
fn fields_derived_by_workers_are_listed_last_in_one_line() {
    let workers = [Worker::Deployment, Worker::ReplicaSet, Worker::Kubelet];
    let report = explore(async |cluster: &TestCluster| {
        cluster.create(deployment("web").set("spec.replicas", 1)).await;
        cluster.settle().await;
        cluster.controller("scaler", scale);
        cluster.create(config_map("size").data("replicas", "3")).await;
        cluster.settle().await;
    })
    .cluster(TestCluster::builder().workers(workers).object(node("node-1")))
    .faults(errors() | crashes())
    .report();
    let failure = report.failure().expect("the exploration fails");
    let lines: Vec<&str> = failure.what().lines().map(str::trim).collect();
    assert_eq!(
        lines[1], "deployments.apps default/web spec.replicas: expected 3, found 1",
        "{report}"
    );
    assert!(
        lines[2].starts_with("and fields derived by workers: deployments.apps default/web ("),
        "{report}"
    );
    assert_eq!(lines.len(), 3, "{report}");
}
