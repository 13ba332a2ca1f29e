//! Objects with a hash of their content in their names: releases and configurations.

use std::hash::{DefaultHasher, Hash, Hasher};

use k8s_openapi::api::core::v1::{ConfigMap, Secret, Service};
use kube::ResourceExt;
use serde_json::json;
use testkit::TestCluster;
use testkit::objects::{config_map, service};

use crate::support::{Context, Error, OPERATOR, done, field, plain};

twins! {
    plain();
    traffic_is_switched_before_the_old_color_is_deleted: "end state", "services default/web";
    old_configurations_are_deleted: "end state", "secrets default/";
    pods_restart_for_a_new_configuration: "end state", "configmaps default/pods";
    all_releases_are_kept: "end state", "secrets default/release-";
    all_releases_before_the_newest_are_deleted: "end state", ": unexpected";
}

/// Returns the hash of a size, for use as the end of a name.
fn hash(size: &str) -> String {
    let mut hasher = DefaultHasher::new();
    size.hash(&mut hasher);
    format!("{:08x}", hasher.finish() & 0xffff_ffff)
}

async fn updated(cluster: &TestCluster) {
    cluster
        .create(config_map("web").data("size", "1").label("kind", "app"))
        .await;
    cluster.settle().await;
    for size in ["2", "3"] {
        let _: testkit::Object = cluster.patch(config_map("web"), json!({"data": {"size": size}})).await;
        cluster.settle().await;
    }
}

/// Deletes the children of the parent except for one.
async fn delete_others(cx: &Context, parent: &ConfigMap, kept: &str) -> Result<(), Error> {
    for other in cx.list::<Secret>(&format!("of={}", parent.name_any())).await? {
        if other.name_any() != kept {
            cx.delete::<Secret>(&other.name_any()).await?;
        }
    }
    Ok(())
}

/// Creates the new color, switches the traffic, and deletes the old color. The buggy variant ignores an error of the
/// switch.
async fn traffic_is_switched_before_the_old_color_is_deleted(cluster: &TestCluster, is_healthy: bool) {
    OPERATOR.start(cluster, move |parent, cx| async move {
        let color = format!("{}-{}", parent.name_any(), hash(field(&parent, "size")));
        cx.create_secret(&parent, &color, json!({"size": field(&parent, "size")}))
            .await?;
        let switched = cx
            .merge::<Service>("web", json!({"spec": {"selector": {"color": color}}}))
            .await;
        if is_healthy {
            switched?;
        }
        delete_others(&cx, &parent, &color).await?;
        done()
    });
    cluster
        .create(service("web").set("spec.ports", json!([{"port": 80}])))
        .await;
    updated(cluster).await;
}

/// Keeps the configurations of the two newest sizes. The buggy variant deletes the configurations that it remembers.
async fn old_configurations_are_deleted(cluster: &TestCluster, is_healthy: bool) {
    OPERATOR.start_with_memory(cluster, move |parent, cx, memory| async move {
        let size: u32 = field(&parent, "size").parse().unwrap_or(0);
        let name = format!("config-{}", hash(field(&parent, "size")));
        let labels = json!({"of": parent.name_any(), "size": size.to_string()});
        cx.create::<Secret>(json!({"metadata": {"name": name, "labels": labels}}))
            .await?;
        if is_healthy {
            for other in cx.list::<Secret>(&format!("of={}", parent.name_any())).await? {
                if other.labels()["size"].parse::<u32>().is_ok_and(|it| it + 1 < size) {
                    cx.delete::<Secret>(&other.name_any()).await?;
                }
            }
            return done();
        }
        let entry = format!("{size:05} {name}");
        let old: Vec<String> = {
            let mut memory = memory.lock().unwrap();
            memory.insert(entry);
            memory.iter().rev().skip(2).cloned().collect()
        };
        for entry in old {
            cx.delete::<Secret>(&entry[6..]).await?;
        }
        done()
    });
    updated(cluster).await;
}

/// Writes the hash of the configuration into the template of the Pods. The buggy variant ends its reconciliation if the
/// configuration already exists.
async fn pods_restart_for_a_new_configuration(cluster: &TestCluster, is_healthy: bool) {
    OPERATOR
        .selects("kind=app")
        .start(cluster, move |parent, cx| async move {
            let size = field(&parent, "size");
            let known = cx.get::<Secret>("settings").await?;
            let is_there = known
                .as_ref()
                .is_some_and(|it| it.labels().get("size").is_some_and(|it| it == size));
            if !is_there {
                let settings = json!({"metadata": {"labels": {"size": size}}, "stringData": {"size": size}});
                cx.apply::<Secret>("operator", "settings", settings).await?;
            }
            if is_healthy || !is_there {
                let pods = json!({"metadata": {"annotations": {"checksum": hash(size)}}});
                cx.apply::<ConfigMap>("operator", "pods", pods).await?;
            }
            done()
        });
    updated(cluster).await;
}

/// Keeps one release for each size. The buggy variant numbers them, and only creates the release that follows the last
/// one.
async fn all_releases_are_kept(cluster: &TestCluster, is_healthy: bool) {
    OPERATOR.start(cluster, move |parent, cx| async move {
        let size: u32 = field(&parent, "size").parse().unwrap_or(0);
        let releases = cx.list::<Secret>(&format!("of={}", parent.name_any())).await?;
        let last = releases.iter().filter_map(|it| it.labels()["size"].parse().ok()).max();
        let is_next = last.is_none_or(|last: u32| size == last + 1);
        if is_healthy || is_next {
            let name = match is_healthy {
                true => format!("release-{}", hash(field(&parent, "size"))),
                false => format!("release-{}", releases.len() + 1),
            };
            let labels = json!({"of": parent.name_any(), "size": size.to_string()});
            cx.create::<Secret>(json!({"metadata": {"name": name, "labels": labels}}))
                .await?;
        }
        done()
    });
    updated(cluster).await;
}

/// Keeps one record for each size, and only the newest release. The buggy variant only deletes the release of the size
/// minus one.
async fn all_releases_before_the_newest_are_deleted(cluster: &TestCluster, is_healthy: bool) {
    OPERATOR
        .selects("kind=app")
        .start(cluster, move |parent, cx| async move {
            let size: u32 = field(&parent, "size").parse().unwrap_or(0);
            let record = json!({"metadata": {"name": format!("record-{}", hash(field(&parent, "size")))}});
            cx.create::<ConfigMap>(record).await?;
            let name = format!("release-{size}");
            cx.create_secret(&parent, &name, json!({})).await?;
            match is_healthy {
                true => delete_others(&cx, &parent, &name).await?,
                false => cx.delete::<Secret>(&format!("release-{}", size - 1)).await?,
            }
            done()
        });
    updated(cluster).await;
}
