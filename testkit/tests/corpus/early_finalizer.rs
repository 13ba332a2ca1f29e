//! pingcap/tidb-operator#6532: the finalizer is removed when the cache contains no objects to delete. A recently
//! created object is not in the cache yet, and is never deleted.

use std::sync::Arc;
use std::time::Duration;

use futures::{FutureExt, StreamExt};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::{Patch, PatchParams};
use kube::runtime::controller::{Action, Controller};
use kube::runtime::reflector::{self, Store};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};
use testkit::TestCluster;

use crate::support::{Reconciled, api, custom, ensure, names, remove, volume};

const FINALIZER: &str = "example.com/store";

async fn set_finalizers(parent: &ConfigMap, client: &Client, finalizers: Value) -> Reconciled {
    let patch = Patch::Merge(json!({"metadata": {"finalizers": finalizers}}));
    let parents = api::<ConfigMap>(client);
    match parents.patch(&parent.name_any(), &PatchParams::default(), &patch).await {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        patched => patched.map(drop),
    }
}

async fn reconcile(parent: Arc<ConfigMap>, client: Client, cache: Store<Secret>, is_fixed: bool) -> Reconciled {
    let stores = api::<Secret>(&client);
    if parent.metadata.deletion_timestamp.is_none() {
        if parent.finalizers().is_empty() {
            set_finalizers(&parent, &client, json!([FINALIZER])).await?;
        }
        return ensure(&stores, &volume(&parent.name_any())).await;
    }
    let left = match is_fixed {
        false => cache.state().iter().map(|it| it.name_any()).collect(),
        true => names(&stores).await?,
    };
    for store in left {
        remove(&stores, &store).await?;
    }
    match parent.finalizers().is_empty() {
        true => Ok(()),
        false => set_finalizers(&parent, &client, Value::Null).await,
    }
}

async fn instances(client: Client, is_fixed: bool) {
    let (cache, writer) = reflector::store();
    let stores = watcher(api::<Secret>(&client), watcher::Config::default())
        .default_backoff()
        .reflect(writer)
        .for_each(|_| async {});
    let run = async {
        if cache.wait_until_ready().await.is_err() {
            return;
        }
        Controller::new(api::<ConfigMap>(&client), watcher::Config::default())
            .run(
                |parent, client: Arc<Client>| {
                    let done = reconcile(parent, Client::clone(&client), cache.clone(), is_fixed);
                    done.map(|done| done.map(|()| Action::await_change()))
                },
                |_, _: &kube::Error, _| Action::requeue(Duration::from_secs(5)),
                Arc::new(client.clone()),
            )
            .for_each(|_| async {})
            .await;
    };
    futures::future::join(stores, run).await;
}

pub(crate) async fn scenario(cluster: &TestCluster, is_fixed: bool) {
    cluster.controller("instances", move |client| instances(client, is_fixed));
    cluster.create(custom("tikv")).await;
    cluster.eventually(|c| c.exists::<Secret>("tikv")).await;
    cluster.delete(custom("tikv")).await;
    cluster.settle().await;
}
