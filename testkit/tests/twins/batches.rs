//! Work in several steps, if some of the steps fail.

use k8s_openapi::api::core::v1::{Pod, Secret};
use kube::api::{EvictParams, PostParams};
use kube::{Resource, ResourceExt};
use serde_json::json;
use testkit::TestCluster;
use testkit::objects::{config_map, pod, secret};

use crate::support::{Error, OPERATOR, again, annotation, done, field, plain};

twins! {
    plain();
    all_objects_of_a_batch_are_checked: "end state", "secrets default/web-";
    generated_child_is_found_again: "end state", "secrets default/web-*";
    step_is_recorded_after_its_completion: "end state", "secrets default/web-";
    refused_eviction_is_retried: "end state", "pods default/web";
    request_refused_by_a_quota_is_retried: "end state", "pods default/web";
    rename_moves_all_parts: "end state", "secrets default/old";
    failed_read_does_not_count_as_absence: "end state", "secrets default/web";
    deletion_of_many_objects_continues_after_an_error: "end state", "secrets default/";
    error_of_one_object_does_not_stop_the_others: "end state", "secrets default/";
}

async fn made(cluster: &TestCluster) {
    cluster.create(config_map("web").data("size", "3")).await;
    cluster.settle().await;
}

/// Creates three Secrets; the buggy variant only checks for the first one.
async fn all_objects_of_a_batch_are_checked(cluster: &TestCluster, is_healthy: bool) {
    OPERATOR.start(cluster, move |parent, cx| async move {
        let name = |nth: u32| format!("{}-{nth}", parent.name_any());
        if !is_healthy && cx.get::<Secret>(&name(0)).await?.is_some() {
            return done();
        }
        for nth in 0..3 {
            cx.create_secret(&parent, &name(nth), json!({})).await?;
        }
        done()
    });
    made(cluster).await;
}

/// Creates a Secret with a generated name and records the name; the buggy variant does not search for a Secret with a
/// name that was not recorded.
async fn generated_child_is_found_again(cluster: &TestCluster, is_healthy: bool) {
    OPERATOR.start(cluster, move |parent, cx| async move {
        if !annotation(&parent, "child").is_empty() {
            return done();
        }
        let known = match is_healthy {
            true => cx.list::<Secret>(&format!("of={}", parent.name_any())).await?,
            false => Vec::new(),
        };
        let child = match known.into_iter().next() {
            Some(child) => child,
            None => {
                let secret: Secret = serde_json::from_value(json!({"metadata": {
                    "generateName": "web-", "labels": {"of": parent.name_any()},
                    "ownerReferences": [parent.controller_owner_ref(&())],
                }}))
                .expect("the object is a Secret");
                cx.api::<Secret>().create(&PostParams::default(), &secret).await?
            }
        };
        cx.annotate(&parent, "child", &child.name_any()).await?;
        done()
    });
    made(cluster).await;
}

/// Performs three steps, one per reconciliation. The buggy variant records a step before it performs it.
async fn step_is_recorded_after_its_completion(cluster: &TestCluster, is_healthy: bool) {
    OPERATOR.start(cluster, move |parent, cx| async move {
        let step: u32 = annotation(&parent, "step").parse().unwrap_or(0);
        if step >= 3 {
            return done();
        }
        let (name, next) = (format!("{}-{step}", parent.name_any()), (step + 1).to_string());
        if !is_healthy {
            cx.annotate(&parent, "step", &next).await?;
        }
        cx.create_secret(&parent, &name, json!({})).await?;
        if is_healthy {
            cx.annotate(&parent, "step", &next).await?;
        }
        done()
    });
    made(cluster).await;
}

/// Evicts a Pod; a budget may forbid this for a while. The buggy variant gives up if the eviction is refused.
async fn refused_eviction_is_retried(cluster: &TestCluster, is_healthy: bool) {
    OPERATOR.start(cluster, move |parent, cx| async move {
        if field(&parent, "drain") != "yes" || cx.get::<Pod>("web-0").await?.is_none() {
            return done();
        }
        match cx.api::<Pod>().evict("web-0", &EvictParams::default()).await {
            Err(kube::Error::Api(status)) if status.code == 429 && !is_healthy => done(),
            Err(kube::Error::Api(status)) if status.code == 404 => done(),
            evicted => {
                evicted?;
                done()
            }
        }
    });
    cluster.create(pod("web-0")).await;
    cluster.create(config_map("web").data("drain", "no")).await;
    cluster.settle().await;
    let _: testkit::Object = cluster
        .patch(config_map("web"), json!({"data": {"drain": "yes"}}))
        .await;
    cluster.settle().await;
}

/// Creates a Pod; a quota may be exhausted for a while. The buggy variant treats this as a permanent failure.
async fn request_refused_by_a_quota_is_retried(cluster: &TestCluster, is_healthy: bool) {
    OPERATOR.start(cluster, move |parent, cx| async move {
        match cx
            .create::<Pod>(json!({
                "metadata": {"name": "web-0", "ownerReferences": [parent.controller_owner_ref(&())]},
                "spec": {"containers": [{"name": "main", "image": "main"}]},
            }))
            .await
        {
            Err(Error::Kube(kube::Error::Api(status))) if status.code == 403 && !is_healthy => done(),
            Err(Error::Kube(kube::Error::Api(status))) if status.code == 403 => again(60),
            made => made.map(drop).map_or_else(Err, |()| done()),
        }
    });
    made(cluster).await;
}

/// Moves a Secret to another name. The buggy variant deletes the old one by a name that it keeps only in memory.
async fn rename_moves_all_parts(cluster: &TestCluster, is_healthy: bool) {
    OPERATOR.start(cluster, move |parent, cx| async move {
        let (target, former) = (field(&parent, "target"), annotation(&parent, "current"));
        if target.is_empty() || target == former {
            return done();
        }
        cx.create_secret(&parent, target, json!({})).await?;
        if is_healthy {
            for other in cx.list::<Secret>(&format!("of={}", parent.name_any())).await? {
                if other.name_any() != target {
                    cx.delete::<Secret>(&other.name_any()).await?;
                }
            }
        }
        cx.annotate(&parent, "current", target).await?;
        if !former.is_empty() && !is_healthy {
            cx.delete::<Secret>(former).await?;
        }
        done()
    });
    cluster.create(config_map("web").data("target", "old")).await;
    cluster.settle().await;
    let _: testkit::Object = cluster
        .patch(config_map("web"), json!({"data": {"target": "new"}}))
        .await;
    cluster.settle().await;
}

/// Generates a password once. The buggy variant generates another password if the first one cannot be read.
async fn failed_read_does_not_count_as_absence(cluster: &TestCluster, is_healthy: bool) {
    OPERATOR.start(cluster, move |parent, cx| async move {
        let known = match cx.get::<Secret>("web").await {
            Ok(known) => known,
            Err(err) if is_healthy => return Err(err),
            Err(_) => None,
        };
        if known.is_none() {
            let password = format!("for size {}", field(&parent, "size"));
            cx.apply::<Secret>("operator", "web", json!({"stringData": {"password": password}}))
                .await?;
        }
        done()
    });
    made(cluster).await;
    let _: testkit::Object = cluster.patch(config_map("web"), json!({"data": {"size": "4"}})).await;
    cluster.settle().await;
}

/// Deletes the Secrets of a parent that requests none; the buggy variant ends the batch at the first missing Secret.
async fn deletion_of_many_objects_continues_after_an_error(cluster: &TestCluster, is_healthy: bool) {
    OPERATOR.start(cluster, move |parent, cx| async move {
        if field(&parent, "wants") == "none" {
            for name in ["a", "b", "c"] {
                match is_healthy {
                    true => cx.delete::<Secret>(name).await?,
                    false if cx.api::<Secret>().delete(name, &Default::default()).await.is_err() => return done(),
                    false => {}
                }
            }
        }
        done()
    });
    for name in ["a", "b", "c"] {
        cluster.create(secret(name)).await;
    }
    cluster.create(config_map("web")).await;
    cluster.settle().await;
    let _: testkit::Object = cluster
        .patch(config_map("web"), json!({"data": {"wants": "none"}}))
        .await;
    cluster.settle().await;
}

/// Creates a Secret for each word of the parent. The buggy variant stops at the first failure, and does not report it.
async fn error_of_one_object_does_not_stop_the_others(cluster: &TestCluster, is_healthy: bool) {
    OPERATOR.start(cluster, move |parent, cx| async move {
        let mut failed = None;
        for name in ["a", "b"] {
            if let Err(err) = cx.create_secret(&parent, name, json!({})).await {
                failed = Some(err);
                break;
            }
        }
        match failed.filter(|_| is_healthy) {
            Some(err) => Err(err),
            None => done(),
        }
    });
    made(cluster).await;
}
