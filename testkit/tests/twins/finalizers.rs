//! Cleanup: finalizers, owners and intentionally kept objects.

use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Secret, Service};
use kube::{Resource, ResourceExt};
use serde_json::json;
use testkit::objects::config_map;
use testkit::{TestCluster, TestClusterBuilder, Worker};

use crate::support::{Context, Done, FINALIZER, OPERATOR, done, field, has_finalizer, is_deleted, plain};

twins! {
    collected();
    only_the_claim_outlives_its_parent: "all have owners", "services default/web";
    recreated_parent_gets_a_new_child: "end state", "secrets default/web";
}

mod without_workers {
    use super::{
        applied_child_is_deleted_with_its_parent, children_are_deleted_before_the_finalizer_is_removed,
        children_of_an_earlier_spec_are_deleted, copies_are_reported_when_all_exist,
        orphans_are_looked_up_in_the_server, plain,
    };

    twins! {
        plain();
        children_are_deleted_before_the_finalizer_is_removed: "end state", "secrets default/web: unexpected";
        children_of_an_earlier_spec_are_deleted: "end state", "secrets default/web-2: unexpected";
        orphans_are_looked_up_in_the_server: "idempotence", "secrets default/web";
        copies_are_reported_when_all_exist: "end state", "secrets default/web-";
        applied_child_is_deleted_with_its_parent: "end state", "secrets default/web: unexpected";
    }
}

/// Builds a cluster with a garbage collector.
fn collected() -> TestClusterBuilder {
    plain().workers([Worker::GarbageCollector])
}

async fn made_and_deleted(cluster: &TestCluster) {
    cluster.create(config_map("web").data("size", "3")).await;
    cluster.settle().await;
    cluster.delete(config_map("web")).await;
    cluster.settle().await;
}

/// Creates a Secret and a Service that the parent owns, and a claim that outlives it, like a StatefulSet. The buggy
/// variant omits the ownerReference of the Service.
async fn only_the_claim_outlives_its_parent(cluster: &TestCluster, is_healthy: bool) {
    OPERATOR.start(cluster, move |parent, cx| async move {
        let name = parent.name_any();
        cx.create_secret(&parent, &name, json!({})).await?;
        let owners = is_healthy.then(|| [parent.controller_owner_ref(&())]);
        cx.create::<Service>(json!({
            "metadata": {"name": name, "ownerReferences": owners},
            "spec": {"ports": [{"port": 80}]},
        }))
        .await?;
        cx.create::<PersistentVolumeClaim>(json!({
            "metadata": {"name": format!("{name}-data-0")},
            "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
        }))
        .await?;
        done()
    });
    cluster.create(config_map("web")).await;
    cluster.settle().await;
}

/// Creates a Secret owned by a parent. After the parent was recreated, the buggy variant reuses the former parent's
/// Secret, which the garbage collector deletes.
async fn recreated_parent_gets_a_new_child(cluster: &TestCluster, is_healthy: bool) {
    let operator = if is_healthy { OPERATOR.owns_secrets() } else { OPERATOR };
    operator.start(cluster, move |parent, cx| async move {
        let name = parent.name_any();
        if !cx.create_secret(&parent, &name, json!({})).await? && is_healthy {
            let known = cx.get::<Secret>(&name).await?;
            let is_own = |it: &Secret| {
                it.owner_references()
                    .iter()
                    .any(|it| Some(&it.uid) == parent.uid().as_ref())
            };
            if !known.as_ref().is_some_and(is_own) {
                return crate::support::again(10);
            }
        }
        done()
    });
    made_and_deleted(cluster).await;
    cluster.create(config_map("web")).await;
    cluster.settle().await;
}

/// The buggy variant removes the finalizer before it deletes the child.
async fn children_are_deleted_before_the_finalizer_is_removed(cluster: &TestCluster, is_healthy: bool) {
    OPERATOR.start(cluster, move |parent, cx| async move {
        let name = parent.name_any();
        if !is_deleted(&parent) {
            if !has_finalizer(&parent) {
                cx.add_finalizer(&parent, FINALIZER).await?;
            }
            cx.create::<Secret>(json!({"metadata": {"name": name}})).await?;
        } else if has_finalizer(&parent) {
            if is_healthy {
                cx.delete::<Secret>(&name).await?;
            }
            cx.remove_finalizer(&parent, FINALIZER).await?;
            if !is_healthy {
                cx.delete::<Secret>(&name).await?;
            }
        }
        done()
    });
    made_and_deleted(cluster).await;
}

/// Keeps as many Secrets as the parent requests. The buggy variant only deletes Secrets that it remembers creating.
async fn children_of_an_earlier_spec_are_deleted(cluster: &TestCluster, is_healthy: bool) {
    OPERATOR.start_with_memory(cluster, move |parent, cx, memory| async move {
        let (name, size) = (parent.name_any(), field(&parent, "size").parse().unwrap_or(0_usize));
        for nth in 0..size {
            cx.create_secret(&parent, &format!("{name}-{nth}"), json!({})).await?;
            memory.lock().unwrap().insert(format!("{name}-{nth}"));
        }
        let known: Vec<String> = match is_healthy {
            true => cx
                .list::<Secret>(&format!("of={name}"))
                .await?
                .iter()
                .map(ResourceExt::name_any)
                .collect(),
            false => memory.lock().unwrap().iter().cloned().collect(),
        };
        for surplus in known {
            let nth = surplus.rsplit('-').next().and_then(|it| it.parse().ok());
            if nth.is_some_and(|it: usize| it >= size) {
                cx.delete::<Secret>(&surplus).await?;
                memory.lock().unwrap().remove(&surplus);
            }
        }
        done()
    });
    cluster.create(config_map("web").data("size", "3")).await;
    cluster.settle().await;
    let _: testkit::Object = cluster.patch(config_map("web"), json!({"data": {"size": "2"}})).await;
    cluster.settle().await;
}

/// Deletes Secrets without parents. The buggy variant only searches the parents that it has reconciled since its start.
async fn orphans_are_looked_up_in_the_server(cluster: &TestCluster, is_healthy: bool) {
    OPERATOR.start_with_memory(cluster, move |parent, cx, memory| async move {
        let own = parent.name_any();
        cx.create::<Secret>(json!({"metadata": {"name": own, "labels": {"made": "yes"}}}))
            .await?;
        for secret in cx.list::<Secret>("made=yes").await? {
            let name = secret.name_any();
            let has_parent = match is_healthy {
                true => cx.get::<ConfigMap>(&name).await?.is_some(),
                false => name == own || memory.lock().unwrap().contains(&name),
            };
            if !has_parent {
                cx.delete::<Secret>(&name).await?;
            }
        }
        memory.lock().unwrap().insert(own);
        done()
    });
    for name in ["web", "web-2", "web-3"] {
        cluster.create(config_map(name)).await;
        cluster.settle().await;
    }
}

/// Creates two copies and then records in the parent that both exist. The buggy variant records this even if one copy
/// has failed.
async fn copies_are_reported_when_all_exist(cluster: &TestCluster, is_healthy: bool) {
    async fn copied(parent: &ConfigMap, cx: &Context, is_healthy: bool) -> Done {
        if parent.annotations().contains_key("copies") {
            return done();
        }
        let mut failed = None;
        for name in ["one", "two"] {
            if let Err(err) = cx
                .create_secret(parent, &format!("{}-{name}", parent.name_any()), json!({}))
                .await
            {
                failed = Some(err);
            }
        }
        if let Some(err) = failed.filter(|_| is_healthy) {
            return Err(err);
        }
        cx.annotate(parent, "copies", "all").await?;
        done()
    }
    OPERATOR.start(cluster, move |parent, cx| async move {
        copied(&parent, &cx, is_healthy).await
    });
    cluster.create(config_map("web")).await;
    cluster.settle().await;
}

/// Applies a child that is deleted with its parent. The buggy variant applies it before the finalizer is set.
async fn applied_child_is_deleted_with_its_parent(cluster: &TestCluster, is_healthy: bool) {
    OPERATOR.start(cluster, move |parent, cx| async move {
        let name = parent.name_any();
        if is_deleted(&parent) {
            if has_finalizer(&parent) {
                cx.delete::<Secret>(&name).await?;
                cx.remove_finalizer(&parent, FINALIZER).await?;
            }
            return done();
        }
        let child = json!({"stringData": {"size": field(&parent, "size")}});
        if !is_healthy {
            cx.apply::<Secret>("operator", &name, child.clone()).await?;
        }
        if !has_finalizer(&parent) {
            cx.add_finalizer(&parent, FINALIZER).await?;
        }
        if is_healthy {
            cx.apply::<Secret>("operator", &name, child).await?;
        }
        done()
    });
    made_and_deleted(cluster).await;
}
