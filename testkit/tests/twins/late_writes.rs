//! Writes that arrive after their sender has died or given up. A sender that watches the object repairs it; a sender
//! with a watch that does not select the object cannot.

use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Patch, PatchParams};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, ResourceExt};
use serde_json::json;
use testkit::TestCluster;
use testkit::objects::{config_map, namespace};

use crate::support::{annotation, field, plain};

twins! {
    plain();
    failed_write_of_a_summary_without_the_label_is_retried: "end state", "configmaps default/summary";
    failed_write_of_a_summary_in_another_namespace_is_retried: "end state", "configmaps other/summary";
    failed_write_of_a_summary_of_one_object_is_retried: "end state", "configmaps default/summary";
    watched_summary_is_corrected: "end state", "configmaps default/summary";
}

/// Copies the size of the parent into a summary, at each event of a watch that does not select the summary.
async fn summarise(client: Client, namespace: &'static str, config: watcher::Config, is_healthy: bool) {
    let parents = Api::<ConfigMap>::namespaced(client.clone(), "default");
    let summaries = Api::<ConfigMap>::namespaced(client, namespace);
    let mut events = watcher(parents, config).default_backoff().applied_objects().boxed();
    while let Some(event) = events.next().await {
        let Ok(parent) = event else { continue };
        if parent.name_any() != "web" {
            continue;
        }
        let patch = Patch::Merge(json!({"data": {"size": field(&parent, "size")}}));
        loop {
            let written = summaries.patch("summary", &PatchParams::default(), &patch).await;
            if written.is_ok() || !is_healthy {
                break;
            }
            tokio::time::sleep(Duration::from_secs(5)).await;
        }
    }
}

async fn resized(cluster: &TestCluster, in_namespace: &str) {
    if in_namespace != "default" {
        cluster.create(namespace(in_namespace)).await;
    }
    cluster.create(config_map("summary").namespace(in_namespace)).await;
    cluster
        .create(config_map("web").label("role", "parent").data("size", "1"))
        .await;
    cluster.settle().await;
    let _: testkit::Object = cluster.patch(config_map("web"), json!({"data": {"size": "2"}})).await;
    cluster.settle().await;
}

/// The buggy variant does not repeat a failed write; neither variant can notice that a late write reverts a newer one.
async fn failed_write_of_a_summary_without_the_label_is_retried(cluster: &TestCluster, is_healthy: bool) {
    let config = watcher::Config::default().labels("role=parent");
    cluster.controller("operator", move |client| {
        summarise(client, "default", config.clone(), is_healthy)
    });
    resized(cluster, "default").await;
}

async fn failed_write_of_a_summary_in_another_namespace_is_retried(cluster: &TestCluster, is_healthy: bool) {
    let config = watcher::Config::default();
    cluster.controller("operator", move |client| {
        summarise(client, "other", config.clone(), is_healthy)
    });
    resized(cluster, "other").await;
}

async fn failed_write_of_a_summary_of_one_object_is_retried(cluster: &TestCluster, is_healthy: bool) {
    let config = watcher::Config::default().fields("metadata.name=web");
    cluster.controller("operator", move |client| {
        summarise(client, "default", config.clone(), is_healthy)
    });
    resized(cluster, "default").await;
}

/// The watch selects the summary: the healthy controller compares the summary at each event of it.
async fn watched_summary_is_corrected(cluster: &TestCluster, is_healthy: bool) {
    cluster.controller("operator", move |client| async move {
        let maps = Api::<ConfigMap>::default_namespaced(client);
        let mut events = watcher(maps.clone(), watcher::Config::default())
            .default_backoff()
            .applied_objects()
            .boxed();
        while let Some(event) = events.next().await {
            let Ok(object) = event else { continue };
            if object.name_any() == "summary" && !is_healthy {
                continue;
            }
            while let Err(_lost) = compare(&maps).await {
                tokio::time::sleep(Duration::from_secs(5)).await;
            }
        }
    });
    resized(cluster, "default").await;
}

async fn compare(maps: &Api<ConfigMap>) -> kube::Result<()> {
    let (web, summary) = (maps.get_opt("web").await?, maps.get("summary").await?);
    let Some(web) = web else { return Ok(()) };
    if field(&web, "size") != field(&summary, "size") || annotation(&summary, "of") != "web" {
        let patch = json!({"data": {"size": field(&web, "size")}, "metadata": {"annotations": {"of": "web"}}});
        maps.patch("summary", &PatchParams::default(), &Patch::Merge(patch))
            .await?;
    }
    Ok(())
}
