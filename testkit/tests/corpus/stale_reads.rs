//! pravega/zookeeper-operator#312 and #314: after a restart the operator reads from a lagging API server. It observes
//! the deletion of an earlier resource with the same name, or an earlier, lower number of replicas, and deletes volumes
//! that are in use.

use std::sync::Arc;
use std::time::Duration;

use futures::{FutureExt, StreamExt};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::{Patch, PatchParams};
use kube::runtime::controller::{Action, Controller};
use kube::runtime::watcher;
use kube::{Client, ResourceExt};
use serde_json::{Value, json};
use testkit::{Object, TestCluster};

use crate::support::{Reconciled, api, custom, ensure, names, remove, replicas, volume};

const FINALIZER: &str = "example.com/volumes";

async fn reconcile(parent: Arc<ConfigMap>, client: Client, is_fixed: bool) -> Reconciled {
    let (parents, volumes) = (api::<ConfigMap>(&client), api::<Secret>(&client));
    let name = parent.name_any();
    // The decision depends on the current object.
    let parent = match is_fixed {
        false => ConfigMap::clone(&parent),
        true => match parents.get_opt(&name).await? {
            Some(parent) => parent,
            None => return Ok(()),
        },
    };
    let (wanted, is_deleted) = match parent.metadata.deletion_timestamp {
        Some(_) => (0, true),
        None => (replicas(&parent), false),
    };
    let finalizers = |all: Value| {
        let revision = &parent.metadata.resource_version;
        Patch::Merge(json!({"metadata": {"finalizers": all, "resourceVersion": revision}}))
    };
    if !is_deleted && parent.finalizers().is_empty() {
        parents
            .patch(&name, &PatchParams::default(), &finalizers(json!([FINALIZER])))
            .await?;
    }
    for index in 0..wanted {
        ensure(&volumes, &volume(&format!("{name}-{index}"))).await?;
    }
    for found in names(&volumes).await? {
        let index = found.rsplit('-').next().and_then(|it| it.parse::<usize>().ok());
        if index.is_some_and(|it| it >= wanted) {
            remove(&volumes, &found).await?;
        }
    }
    if is_deleted && !parent.finalizers().is_empty() {
        let done = parents
            .patch(&name, &PatchParams::default(), &finalizers(Value::Null))
            .await;
        return match done {
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
            done => done.map(drop),
        };
    }
    Ok(())
}

/// Begins with a list from the API server's cache, as client-go's informers do.
async fn zookeeper(client: Client, is_fixed: bool) {
    let mut config = watcher::Config::default().any_semantic();
    config.page_size = None; // with pages, kube requests the newest state anyway
    Controller::new(api::<ConfigMap>(&client), config)
        .run(
            move |parent, client: Arc<Client>| {
                reconcile(parent, Client::clone(&client), is_fixed).map(|done| done.map(|()| Action::await_change()))
            },
            |_, _: &kube::Error, _| Action::requeue(Duration::from_secs(5)),
            Arc::new(client),
        )
        .for_each(|_| async {})
        .await;
}

/// #312: the resource is deleted, and created again with the same name.
pub(crate) async fn recreated(cluster: &TestCluster, is_fixed: bool) {
    cluster.controller("operator", move |client| zookeeper(client, is_fixed));
    cluster.create(custom("zk").data("replicas", "1")).await;
    cluster.settle().await;
    cluster.delete(custom("zk")).await;
    cluster.eventually(|c| c.gone(custom("zk"))).await;
    cluster.create(custom("zk").data("replicas", "1")).await;
    cluster.settle().await;
    let _: Object = cluster.patch(custom("zk"), json!({"data": {"note": "in use"}})).await;
    cluster.settle().await;
}

/// #314: the resource is scaled down, and up again.
pub(crate) async fn rescaled(cluster: &TestCluster, is_fixed: bool) {
    cluster.controller("operator", move |client| zookeeper(client, is_fixed));
    cluster.create(custom("zk").data("replicas", "2")).await;
    cluster.settle().await;
    for replicas in ["1", "2"] {
        let _: Object = cluster
            .patch(custom("zk"), json!({"data": {"replicas": replicas}}))
            .await;
        cluster.settle().await;
    }
    let _: Object = cluster.patch(custom("zk"), json!({"data": {"note": "in use"}})).await;
    cluster.settle().await;
}
