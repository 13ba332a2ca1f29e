//! The runtime in which exploration runs a controller.

use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Patch, PatchParams};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, ResourceExt};
use serde_json::json;
use testkit::TestCluster;
use testkit::explore::{crashes, explore};
use testkit::objects::config_map;

async fn write(client: Client) {
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "done"}});
    let maps = Api::<ConfigMap>::default_namespaced(client);
    while maps
        .patch("done", &PatchParams::apply("test").force(), &Patch::Apply(map.clone()))
        .await
        .is_err()
    {
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

/// Waits for a signal as kube-runtime's `shutdown_on_signal` does.
async fn until_signal(client: Client) {
    write(client).await;
    let mut terminate = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())
        .expect("signal handlers can be installed");
    terminate.recv().await;
}

/// Serves metrics without any clients.
async fn with_socket(client: Client) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0")
        .await
        .expect("a port is free");
    write(client).await;
    let _ = listener.accept().await;
}

#[test]
fn controller_can_wait_for_signals() {
    explore(async |cluster: &TestCluster| {
        cluster.controller("operator", until_signal);
        cluster.settle().await;
        cluster.assert_has(config_map("done"));
    })
    .faults(crashes())
    .run();
}

#[test]
fn controller_can_open_sockets() {
    explore(async |cluster: &TestCluster| {
        cluster.controller("operator", with_socket);
        cluster.settle().await;
        cluster.assert_has(config_map("done"));
    })
    .faults(crashes())
    .run();
}

/// Marks each ConfigMap except `done`.
async fn mark(client: Client) {
    let maps = Api::<ConfigMap>::default_namespaced(client);
    let events = watcher(maps.clone(), watcher::Config::default()).default_backoff();
    let mut applied = events.applied_objects().boxed();
    let patch = Patch::Merge(json!({"metadata": {"annotations": {"marked": "true"}}}));
    while let Some(map) = applied.next().await {
        let Ok(map) = map else { continue };
        if map.name_any() == "done" || map.annotations().contains_key("marked") {
            continue;
        }
        while maps
            .patch(&map.name_any(), &PatchParams::default(), &patch)
            .await
            .is_err()
        {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    }
}

#[test]
fn controller_started_by_run_is_not_crashed() {
    explore(async |cluster: &TestCluster| {
        cluster.controller("operator", write);
        cluster.run(mark(cluster.client()));
        cluster.create(config_map("a")).await;
        cluster.create(config_map("b")).await;
        cluster.settle().await;
    })
    .faults(crashes())
    .run();
}
