//! Azure/azure-service-operator#2719: a conflict is ignored, because the newer object is expected to trigger a
//! reconcile. There is no event if the other write changed only fields that the controller's predicate filters out.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures::{FutureExt, StreamExt, future};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::PostParams;
use kube::runtime::controller::{self, Action, applier, trigger_self};
use kube::runtime::{WatchStreamExt, reflector, watcher};
use kube::{Client, ResourceExt};
use serde_json::json;
use testkit::TestCluster;

use crate::support::{api, custom, spec};

async fn reconcile(parent: Arc<ConfigMap>, client: Client, is_fixed: bool) -> Result<Action, kube::Error> {
    let mut parent = ConfigMap::clone(&parent);
    let size = spec(&parent, "size").to_owned();
    if parent.annotations().get("provisioned") == Some(&size) {
        return Ok(Action::await_change());
    }
    parent.annotations_mut().insert("provisioned".to_owned(), size);
    let parents = api::<ConfigMap>(&client);
    match parents
        .replace(&parent.name_any(), &PostParams::default(), &parent)
        .await
    {
        Err(kube::Error::Api(status)) if status.code == 409 && !is_fixed => Ok(Action::await_change()),
        replaced => replaced.map(|_| Action::await_change()),
    }
}

/// Reconciles changes of `data`, which represents the specification: the operator filters out other changes.
async fn service_operator(client: Client, is_fixed: bool) {
    let (cache, writer) = reflector::store();
    let mut seen = HashMap::new();
    let changed = watcher(api::<ConfigMap>(&client), watcher::Config::default())
        .default_backoff()
        .reflect(writer)
        .applied_objects()
        .filter(move |object| {
            let is_same = match object {
                Ok(object) => seen.insert(object.name_any(), object.data.clone()).as_ref() == Some(&object.data),
                Err(_) => false,
            };
            future::ready(!is_same)
        });
    let requests = trigger_self(changed, ());
    applier(
        move |parent, client: Arc<Client>| reconcile(parent, Client::clone(&client), is_fixed).boxed(),
        |_, _: &kube::Error, _| Action::requeue(Duration::from_secs(5)),
        Arc::new(client),
        cache,
        requests,
        controller::Config::default(),
    )
    .for_each(|_| async {})
    .await;
}

pub(crate) async fn scenario(cluster: &TestCluster, is_fixed: bool) {
    cluster.controller("service-operator", move |client| service_operator(client, is_fixed));
    cluster.create(custom("storage").data("size", "1")).await;
    cluster.settle().await;
    let _: testkit::Object = cluster.patch(custom("storage"), json!({"data": {"size": "2"}})).await;
    cluster.settle().await;
}
