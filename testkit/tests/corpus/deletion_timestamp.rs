//! Percona's operator for MongoDB (Sieve, OSDI'22, "unobserved states"): it deletes the volumes when it observes the
//! `deletionTimestamp` of its resource. Without a finalizer, it may never observe it.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::{Patch, PatchParams};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};
use testkit::{Object, TestCluster};

use crate::support::{Reconciled, api, custom, ensure, operator, remove, volume};

const OWN: &str = "example.com/volumes";
const OTHERS: &str = "example.com/backup";

async fn reconcile(parent: Arc<ConfigMap>, client: Client, is_fixed: bool) -> Reconciled {
    let volumes = api::<Secret>(&client);
    let (parents, name) = (api::<ConfigMap>(&client), parent.name_any());
    let has_own = parent.finalizers().iter().any(|it| it == OWN);
    let finalizers = |all: Vec<&String>| {
        let revision = &parent.metadata.resource_version;
        Patch::Merge(json!({"metadata": {"finalizers": all, "resourceVersion": revision}}))
    };
    if parent.metadata.deletion_timestamp.is_some() {
        remove(&volumes, &format!("data-{name}")).await?;
        if has_own {
            let others = parent.finalizers().iter().filter(|it| *it != OWN).collect();
            parents
                .patch(&name, &PatchParams::default(), &finalizers(others))
                .await?;
        }
        return Ok(());
    }
    if is_fixed && !has_own {
        let own = OWN.to_owned();
        let all = parent.finalizers().iter().chain([&own]).collect();
        parents.patch(&name, &PatchParams::default(), &finalizers(all)).await?;
    }
    ensure(&volumes, &volume(&format!("data-{name}"))).await
}

pub(crate) async fn scenario(cluster: &TestCluster, is_fixed: bool) {
    cluster.controller("operator", move |client| {
        operator(client, move |parent, client| reconcile(parent, client, is_fixed))
    });
    cluster
        .create(custom("mongo").set("metadata.finalizers", json!([OTHERS])))
        .await;
    cluster.settle().await;
    cluster.delete(custom("mongo")).await;
    cluster.settle().await;
    // The backup is complete, and its controller releases the object.
    let Some(object) = cluster.try_get::<Object>(custom("mongo")) else {
        return;
    };
    let left: Vec<Value> = match object.get("metadata.finalizers") {
        Some(Value::Array(all)) => all.iter().filter(|it| *it != OTHERS).cloned().collect(),
        _ => Vec::new(),
    };
    if left.is_empty() {
        let _ = cluster
            .patch::<Object>(custom("mongo"), json!({"metadata": {"finalizers": null}}))
            .await;
    } else {
        let _ = cluster
            .patch::<Object>(custom("mongo"), json!({"metadata": {"finalizers": left}}))
            .await;
    }
    cluster.settle().await;
}
