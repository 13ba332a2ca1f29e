//! crossplane/crossplane#1910 and reddit/achilles-sdk#71: an object gets a generated name, which is recorded
//! afterwards. If recording it fails, nothing refers to the object, and the next attempt creates another one.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::{GetParams, PostParams};
use kube::{Client, ResourceExt};
use testkit::TestCluster;

use crate::support::{Reconciled, api, custom, ensure, operator, volume};

const REFERENCE: &str = "example.com/resource-ref";

/// Records the name of the composed resource, with a PUT that may fail with a conflict.
async fn refer(mut parent: ConfigMap, client: &Client, name: String) -> Reconciled {
    parent.annotations_mut().insert(REFERENCE.to_owned(), name);
    let parents = api::<ConfigMap>(client);
    let done = parents
        .replace(&parent.name_any(), &PostParams::default(), &parent)
        .await;
    done.map(drop)
}

/// The fix of both bugs: the name is chosen and recorded first.
async fn choose_first(parent: &ConfigMap, client: &Client) -> Reconciled {
    let Some(name) = parent.annotations().get(REFERENCE) else {
        let name = format!("{}-{}", parent.name_any(), parent.uid().unwrap_or_default());
        return refer(parent.clone(), client, name).await;
    };
    ensure(&api::<Secret>(client), &volume(name)).await
}

fn unnamed(parent: &ConfigMap) -> Secret {
    let mut secret = volume("");
    secret.metadata.name = None;
    secret.metadata.generate_name = Some(format!("{}-", parent.name_any()));
    secret
}

async fn compose(parent: Arc<ConfigMap>, client: Client, is_fixed: bool) -> Reconciled {
    if is_fixed {
        return choose_first(&parent, &client).await;
    }
    if parent.annotations().contains_key(REFERENCE) {
        return Ok(());
    }
    let composed = api::<Secret>(&client)
        .create(&PostParams::default(), &unnamed(&parent))
        .await?;
    refer(ConfigMap::clone(&parent), &client, composed.name_any()).await
}

/// Like crossplane: other clients may write to the composite in the meantime.
pub(crate) async fn contended(cluster: &TestCluster, is_fixed: bool) {
    cluster.controller("composite", move |client| {
        operator(client, move |parent, client| compose(parent, client, is_fixed))
    });
    cluster.create(custom("database")).await;
    cluster.settle().await;
}

async fn apply(parent: Arc<ConfigMap>, client: Client, is_fixed: bool) -> Reconciled {
    if is_fixed {
        return choose_first(&parent, &client).await;
    }
    if parent.annotations().contains_key(REFERENCE) {
        return Ok(());
    }
    let secrets = api::<Secret>(&client);
    let created = secrets.create(&PostParams::default(), &unnamed(&parent)).await?;
    // A client that reads through a cache may not have the object yet.
    let cached = GetParams {
        resource_version: Some("0".to_owned()),
    };
    let read = secrets.get_with(&created.name_any(), &cached).await?;
    refer(ConfigMap::clone(&parent), &client, read.name_any()).await
}

/// Reads the created object again from a cache, like the SDK.
pub(crate) async fn read_back(cluster: &TestCluster, is_fixed: bool) {
    cluster.controller("applicator", move |client| {
        operator(client, move |parent, client| apply(parent, client, is_fixed))
    });
    cluster.create(custom("database")).await;
    cluster.settle().await;
}
