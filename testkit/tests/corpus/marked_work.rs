//! Work that is marked but not completed. eclipse-theia/theia-cloud#221: an object is marked before it is handled, and
//! a marked object is not handled again, even if the operator crashed in between. nuclio/nuclio#1642: an object that
//! already exists is treated as a failure, and the parent is marked as failed forever.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::PostParams;
use kube::{Client, ResourceExt};
use testkit::TestCluster;

use crate::support::{Reconciled, annotate, annotation, api, custom, ensure, operator, volume};

async fn mark(parent: &ConfigMap, client: &Client, state: &str) -> Reconciled {
    annotate(parent, client, "state", state).await
}

async fn handle(session: Arc<ConfigMap>, client: Client, is_fixed: bool) -> Reconciled {
    match annotation(&session, "state") {
        Some("HANDLED") => return Ok(()),
        Some("HANDLING") if !is_fixed => return Ok(()),
        Some("HANDLING") => {}
        _ => mark(&session, &client, "HANDLING").await?,
    }
    ensure(&api::<Secret>(&client), &volume(&session.name_any())).await?;
    mark(&session, &client, "HANDLED").await
}

/// The scenario of theia-cloud.
pub(crate) async fn interrupted(cluster: &TestCluster, is_fixed: bool) {
    cluster.controller("sessions", move |client| {
        operator(client, move |session, client| handle(session, client, is_fixed))
    });
    cluster.create(custom("session")).await;
    cluster.settle().await;
}

async fn deploy(function: Arc<ConfigMap>, client: Client, is_fixed: bool) -> Reconciled {
    if annotation(&function, "state").is_some() {
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

/// The scenario of nuclio.
pub(crate) async fn already_there(cluster: &TestCluster, is_fixed: bool) {
    cluster.controller("functions", move |client| {
        operator(client, move |function, client| deploy(function, client, is_fixed))
    });
    cluster.create(custom("function")).await;
    cluster.settle().await;
}
