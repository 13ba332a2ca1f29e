//! Conflicts and lost updates.

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::ResourceExt;
use serde_json::json;
use testkit::TestCluster;
use testkit::objects::{config_map, secret};

use crate::support::{Error, FINALIZER, OPERATOR, annotation, done, field, has_finalizer, is_deleted, plain};

twins! {
    plain();
    old_content_is_not_written_at_the_newest_version: "end state", "configmaps default/web";
    finalizers_of_other_clients_are_kept: "end state", "cloud audited: missing";
    conflict_is_retried: "end state", "secrets default/shared";
    labels_of_other_clients_are_kept: "idempotence", "secrets default/shared";
    count_is_derived_from_the_state: "idempotence", "secrets default/shared";
    user_change_is_kept: "end state", "configmaps default/web";
}

async fn made_and_changed(cluster: &TestCluster) {
    cluster.create(secret("shared").label("size", "0")).await;
    cluster.create(config_map("web").data("size", "1")).await;
    cluster.settle().await;
    let _: testkit::Object = cluster.patch(config_map("web"), json!({"data": {"size": "2"}})).await;
    cluster.settle().await;
}

/// Writes an annotation into the object from its cache. After a conflict, the buggy variant takes the newest version
/// from the server and writes the old content with it, which overwrites the user's change.
async fn old_content_is_not_written_at_the_newest_version(cluster: &TestCluster, is_healthy: bool) {
    OPERATOR.start(cluster, move |parent, cx| async move {
        if !annotation(&parent, "seen").is_empty() {
            return done();
        }
        let mut next = ConfigMap::clone(&parent);
        next.annotations_mut().insert("seen".to_owned(), "yes".to_owned());
        match cx.replace(&next).await {
            Err(Error::Kube(kube::Error::Api(status))) if status.code == 409 && !is_healthy => {
                let newest = cx
                    .get::<ConfigMap>(&parent.name_any())
                    .await?
                    .ok_or(Error::NotYet("it is gone"))?;
                next.metadata.resource_version = newest.metadata.resource_version;
                cx.replace(&next).await?;
                done()
            }
            replaced => replaced.map_or_else(Err, |()| done()),
        }
    });
    made_and_changed(cluster).await;
}

/// Removes its finalizer; the buggy variant removes all finalizers, including the finalizer of another controller that
/// has not cleaned up yet.
async fn finalizers_of_other_clients_are_kept(cluster: &TestCluster, is_healthy: bool) {
    OPERATOR.named("audit").start(cluster, move |parent, cx| async move {
        let own = "example.com/audit".to_owned();
        let has_own = parent.finalizers().contains(&own);
        if is_deleted(&parent) && has_own {
            match cx.cloud.create("audited", json!({})).await {
                Ok(()) | Err(testkit::explore::ExternalError::AlreadyExists(_)) => {}
                Err(err) => return Err(err.into()),
            }
            cx.remove_finalizer(&parent, &own).await?;
        } else if !is_deleted(&parent) && !has_own {
            cx.add_finalizer(&parent, &own).await?;
        }
        done()
    });
    OPERATOR.start(cluster, move |parent, cx| async move {
        if is_deleted(&parent) && has_finalizer(&parent) {
            match is_healthy {
                true => cx.remove_finalizer(&parent, FINALIZER).await?,
                false => cx.set_finalizers(&parent, &[]).await?,
            }
        } else if !is_deleted(&parent) && !has_finalizer(&parent) {
            cx.add_finalizer(&parent, FINALIZER).await?;
        }
        done()
    });
    cluster.create(config_map("web")).await;
    cluster.settle().await;
    cluster.delete(config_map("web")).await;
    cluster.settle().await;
}

/// Counts the parents in a Secret, in an update with its resourceVersion. The buggy variant ignores a conflict.
async fn conflict_is_retried(cluster: &TestCluster, is_healthy: bool) {
    OPERATOR.start(cluster, move |parent, cx| async move {
        let mut shared = cx.get::<Secret>("shared").await?.ok_or(Error::NotYet("no secret"))?;
        if shared
            .labels()
            .get("size")
            .is_some_and(|it| it == field(&parent, "size"))
        {
            return done();
        }
        shared
            .labels_mut()
            .insert("size".to_owned(), field(&parent, "size").to_owned());
        match cx.replace(&shared).await {
            Err(Error::Kube(kube::Error::Api(status))) if status.code == 409 && !is_healthy => done(),
            replaced => replaced.map_or_else(Err, |()| done()),
        }
    });
    made_and_changed(cluster).await;
}

/// Two controllers label one Secret; the buggy variant writes all labels that it has read.
async fn labels_of_other_clients_are_kept(cluster: &TestCluster, is_healthy: bool) {
    for name in ["east", "west"] {
        OPERATOR.named(name).start(cluster, move |_, cx| async move {
            let shared = cx.get::<Secret>("shared").await?.ok_or(Error::NotYet("no secret"))?;
            if shared.labels().contains_key(name) {
                return done();
            }
            let mut labels = shared.labels().clone();
            labels.insert(name.to_owned(), "yes".to_owned());
            match is_healthy {
                true => drop(
                    cx.merge::<Secret>("shared", json!({"metadata": {"labels": {name: "yes"}}}))
                        .await?,
                ),
                false => {
                    let mut next = shared.clone();
                    *next.labels_mut() = labels;
                    next.metadata.resource_version = None;
                    cx.replace(&next).await?;
                }
            }
            done()
        });
    }
    cluster.create(secret("shared")).await;
    cluster.create(config_map("web")).await;
    cluster.settle().await;
}

/// Counts the parents. The buggy variant adds one for each parent that was created since its start.
async fn count_is_derived_from_the_state(cluster: &TestCluster, is_healthy: bool) {
    OPERATOR.start_with_memory(cluster, move |parent, cx, memory| async move {
        let mut shared = cx.get::<Secret>("shared").await?.ok_or(Error::NotYet("no secret"))?;
        let known: usize = shared.labels().get("count").and_then(|it| it.parse().ok()).unwrap_or(0);
        let count = match is_healthy {
            true => cx.list::<ConfigMap>("").await?.len(),
            false if memory.lock().unwrap().contains(&parent.name_any()) => return done(),
            false => known + 1,
        };
        if count != known {
            shared.labels_mut().insert("count".to_owned(), count.to_string());
            cx.replace(&shared).await?;
        }
        memory.lock().unwrap().insert(parent.name_any());
        done()
    });
    cluster.create(secret("shared")).await;
    for name in ["web", "shop"] {
        cluster.create(config_map(name)).await;
        cluster.settle().await;
    }
}

/// Sets a default in the parent. The buggy variant writes the complete object without its resourceVersion, which
/// overwrites concurrent changes of the user.
async fn user_change_is_kept(cluster: &TestCluster, is_healthy: bool) {
    OPERATOR.start(cluster, move |parent, cx| async move {
        if !annotation(&parent, "default").is_empty() {
            return done();
        }
        let mut next = ConfigMap::clone(&parent);
        next.annotations_mut().insert("default".to_owned(), "set".to_owned());
        if !is_healthy {
            next.metadata.resource_version = None;
        }
        cx.replace(&next).await?;
        done()
    });
    made_and_changed(cluster).await;
}
