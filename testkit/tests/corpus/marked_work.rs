//! Work that is marked and then left. eclipse-theia/theia-cloud#221: an object is marked before it is handled, and one
//! that is marked is not handled again, even if the operator ended in between. nuclio/nuclio#1642: an object that exists
//! already is taken for a failure, and the parent is marked as failed for ever.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Client, ResourceExt};
use serde_json::json;
use testkit::TestCluster;

use crate::support::{Reconciled, api, custom, operator, volume};

async fn mark(parent: &ConfigMap, client: &Client, state: &str) -> Reconciled {
    let patch = Patch::Merge(json!({"metadata": {"annotations": {"state": state}}}));
    let parents = api::<ConfigMap>(client);
    parents
        .patch(&parent.name_any(), &PatchParams::default(), &patch)
        .await
        .map(drop)
}

fn state(parent: &ConfigMap) -> Option<&str> {
    parent.annotations().get("state").map(String::as_str)
}

async fn handle(session: Arc<ConfigMap>, client: Client, is_fixed: bool) -> Reconciled {
    match state(&session) {
        Some("HANDLED") => return Ok(()),
        Some("HANDLING") if !is_fixed => return Ok(()),
        Some("HANDLING") => {}
        _ => mark(&session, &client, "HANDLING").await?,
    }
    crate::support::ensure(&api::<Secret>(&client), &volume(&session.name_any())).await?;
    mark(&session, &client, "HANDLED").await
}

/// As theia-cloud.
pub(crate) async fn interrupted(cluster: &TestCluster, is_fixed: bool) {
    cluster.controller("sessions", move |client| {
        operator(client, move |session, client| handle(session, client, is_fixed))
    });
    cluster.create(custom("session")).await;
    cluster.settle().await;
}

async fn deploy(function: Arc<ConfigMap>, client: Client, is_fixed: bool) -> Reconciled {
    if state(&function).is_some() {
        return Ok(());
    }
    let config = volume(&function.name_any());
    match api::<Secret>(&client).create(&PostParams::default(), &config).await {
        Err(kube::Error::Api(status)) if status.code == 409 && !is_fixed => mark(&function, &client, "error").await,
        Err(kube::Error::Api(status)) if status.code == 409 => mark(&function, &client, "ready").await,
        Err(err) => Err(err),
        Ok(_) => mark(&function, &client, "ready").await,
    }
}

/// As nuclio.
pub(crate) async fn already_there(cluster: &TestCluster, is_fixed: bool) {
    cluster.controller("functions", move |client| {
        operator(client, move |function, client| deploy(function, client, is_fixed))
    });
    cluster.create(custom("function")).await;
    cluster.settle().await;
}
