//! rabbitmq/cluster-operator#782: to enlarge volumes the operator writes two objects, and a difference in the first one
//! triggers the work. After a crash between the writes, the second object is never updated.

use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Secret};
use kube::api::{Patch, PatchParams};
use kube::{Api, Client, ResourceExt};
use serde_json::json;
use testkit::TestCluster;

use crate::support::{Reconciled, api, claim, custom, ensure, operator, spec};

async fn resize<K>(objects: &Api<K>, name: &str, size: &str) -> Reconciled
where
    K: Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    let patch = json!({"metadata": {"annotations": {"size": size}}});
    objects
        .patch(name, &PatchParams::default(), &Patch::Merge(patch))
        .await
        .map(drop)
}

/// Uses a Secret instead of the StatefulSet.
async fn reconcile(parent: std::sync::Arc<ConfigMap>, client: Client, is_fixed: bool) -> Reconciled {
    let (sets, claims) = (api::<Secret>(&client), api::<PersistentVolumeClaim>(&client));
    let (name, size) = (parent.name_any(), spec(&parent, "size"));
    let mut set = Secret::default();
    set.metadata.name = Some(name.clone());
    set.annotations_mut().insert("size".into(), size.into());
    ensure(&claims, &claim(&name, size)).await?;
    ensure(&sets, &set).await?;

    let is_other = |annotations: &std::collections::BTreeMap<String, String>| annotations["size"] != size;
    if is_fixed {
        if is_other(claims.get(&name).await?.annotations()) {
            resize(&claims, &name, size).await?;
        }
        if is_other(sets.get(&name).await?.annotations()) {
            resize(&sets, &name, size).await?;
        }
    } else if is_other(sets.get(&name).await?.annotations()) {
        resize(&sets, &name, size).await?;
        resize(&claims, &name, size).await?; // not called again once the set has its size
    }
    Ok(())
}

pub(crate) async fn scenario(cluster: &TestCluster, is_fixed: bool) {
    cluster.controller("operator", move |client| {
        operator(client, move |parent, client| reconcile(parent, client, is_fixed))
    });
    cluster.create(custom("mq").data("size", "10Gi")).await;
    cluster.settle().await;
    let _: testkit::Object = cluster.patch(custom("mq"), json!({"data": {"size": "15Gi"}})).await;
    cluster.settle().await;
}
