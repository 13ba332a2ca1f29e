//! kubernetes#129795: the ReplicaSet controller counts Pods in a cache that lags behind its own writes, and creates too
//! many. ray-project/kuberay#715: the same bug, and then one Pod is deleted to correct the number, even if the Pod is
//! in use.

use std::sync::Arc;
use std::time::Duration;

use futures::{FutureExt, StreamExt};
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::api::PostParams;
use kube::runtime::controller::{Action, Controller};
use kube::runtime::reflector::{self, Store};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Client, ResourceExt};
use serde_json::json;
use testkit::TestCluster;

use crate::support::{Reconciled, api, custom, names, pod_of, remove, replicas};

struct Context {
    client: Client,
    cache: Store<Pod>,
    is_fixed: bool,
    readjusts: bool,
}

async fn reconcile(parent: &ConfigMap, context: &Context) -> Reconciled {
    let pods = api::<Pod>(&context.client);
    let mut found: Vec<String> = match context.is_fixed {
        // An object that the controller has just created may be missing from the cache.
        false => context.cache.state().iter().map(|it| it.name_any()).collect(),
        true => names(&pods).await?,
    };
    found.sort();
    for _ in found.len()..replicas(parent) {
        let pod = pod_of(parent, json!({"generateName": format!("{}-", parent.name_any())}));
        pods.create(&PostParams::default(), &pod).await?;
    }
    let surplus = found.len().saturating_sub(replicas(parent));
    for name in found.iter().take(surplus).filter(|_| context.readjusts) {
        remove(&pods, name).await?;
    }
    Ok(())
}

async fn replica_sets(client: Client, is_fixed: bool, readjusts: bool) {
    let (cache, writer) = reflector::store();
    let pods = watcher(api::<Pod>(&client), watcher::Config::default())
        .default_backoff()
        .reflect(writer)
        .for_each(|_| async {});
    let context = Arc::new(Context {
        client: client.clone(),
        cache,
        is_fixed,
        readjusts,
    });
    let run = async {
        // As with an informer, the controller only starts once the cache contains the first list.
        if context.cache.wait_until_ready().await.is_err() {
            return;
        }
        Controller::new(api::<ConfigMap>(&client), watcher::Config::default())
            .owns(api::<Pod>(&client), watcher::Config::default())
            .run(
                |parent, context: Arc<Context>| async move {
                    reconcile(&parent, &context)
                        .map(|done| done.map(|()| Action::await_change()))
                        .await
                },
                |_, _: &kube::Error, _| Action::requeue(Duration::from_secs(5)),
                Arc::clone(&context),
            )
            .for_each(|_| async {})
            .await;
    };
    futures::future::join(pods, run).await;
}

async fn scale(cluster: &TestCluster, is_fixed: bool, readjusts: bool) {
    cluster.controller("replicaset", move |client| replica_sets(client, is_fixed, readjusts));
    cluster.create(custom("web").data("replicas", "1")).await;
    cluster.settle().await;
    let _: testkit::Object = cluster.patch(custom("web"), json!({"data": {"replicas": "2"}})).await;
    cluster.settle().await;
}

pub(crate) async fn scenario(cluster: &TestCluster, is_fixed: bool) {
    scale(cluster, is_fixed, false).await;
}

pub(crate) async fn scenario_with_readjustment(cluster: &TestCluster, is_fixed: bool) {
    scale(cluster, is_fixed, true).await;
}
