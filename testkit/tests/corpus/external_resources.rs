//! Duplicate resources outside of the cluster. aws-controllers-k8s/community#2062: the controller ends between the
//! creation of a resource and the write that records it. openshift/machine-api-operator#1011: the resource has been
//! recorded, but the controller's cache does not contain the record yet.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::api::ListParams;
use kube::{Client, ResourceExt};
use serde_json::json;
use testkit::TestCluster;
use testkit::explore::{External, ExternalError};

use crate::support::{Reconciled, annotate, annotation, api, custom, ensure, operator, pod_of};

const ID: &str = "example.com/id";

fn failed(err: ExternalError) -> kube::Error {
    kube::Error::Service(Box::new(err))
}

/// Creates a network. With the fix, the network is tagged with the uid of its object, and found by this tag.
async fn network(parent: Arc<ConfigMap>, client: Client, cloud: External, is_fixed: bool) -> Reconciled {
    if annotation(&parent, ID).is_some() {
        return Ok(());
    }
    let tag = json!({"tag": parent.uid()});
    let known = match is_fixed {
        true => cloud.list().await.map_err(failed)?,
        false => Vec::new(),
    };
    let id = match known.into_iter().find(|(_, network)| *network == tag) {
        Some((id, _)) => id,
        None => cloud.add(tag).await.map_err(failed)?,
    };
    annotate(&parent, &client, ID, &id).await
}

pub(crate) async fn interrupted(cluster: &TestCluster, is_fixed: bool) {
    let cloud = cluster.external("cloud").of("vpc");
    cluster.controller("vpc", move |client| {
        let cloud = cloud.clone();
        operator(client, move |parent, client| {
            network(parent, client, cloud.clone(), is_fixed)
        })
    });
    cluster.create(custom("network")).await;
    cluster.settle().await;
}

/// Creates a Pod and an instance for a machine. With the fix, the instance has the machine's name, so it is created
/// only once.
async fn machine(parent: Arc<ConfigMap>, client: Client, cloud: External, is_fixed: bool) -> Reconciled {
    let name = parent.name_any();
    ensure(&api::<Pod>(&client), &pod_of(&parent, json!({"name": name.as_str()}))).await?;
    if annotation(&parent, ID).is_some() {
        return Ok(());
    }
    let id = match is_fixed {
        true => match cloud.create(&name, json!({})).await {
            Ok(()) | Err(ExternalError::AlreadyExists(_)) => name,
            Err(err) => return Err(failed(err)),
        },
        // An instance without a machine was created before a crash, so use it.
        false => match orphan(&client, &cloud).await? {
            Some(id) => id,
            None => cloud.add(json!({})).await.map_err(failed)?,
        },
    };
    annotate(&parent, &client, ID, &id).await
}

/// Returns an instance that no machine refers to.
async fn orphan(client: &Client, cloud: &External) -> Result<Option<String>, kube::Error> {
    let machines = api::<ConfigMap>(client).list(&ListParams::default()).await?;
    let is_referred = |id: &str| machines.iter().any(|it| annotation(it, ID) == Some(id));
    let instances = cloud.list().await.map_err(failed)?;
    Ok(instances.into_iter().map(|(id, _)| id).find(|id| !is_referred(id)))
}

pub(crate) async fn cached(cluster: &TestCluster, is_fixed: bool) {
    let cloud = cluster.external("cloud").of("machines");
    cluster.controller("machines", move |client| {
        let cloud = cloud.clone();
        operator(client, move |parent, client| {
            machine(parent, client, cloud.clone(), is_fixed)
        })
    });
    cluster.create(custom("machine")).await;
    cluster.settle().await;
}
