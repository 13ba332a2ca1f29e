//! openkruise/agents#776: an operation is skipped while another operation is in progress, and is not retried when the
//! other operation has ended.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::ListParams;
use kube::runtime::controller::{Action, Controller};
use kube::runtime::watcher;
use kube::{Client, ResourceExt};
use testkit::TestCluster;

use crate::support::{annotate, annotation, api, custom, ensure, volume};

fn phase(operation: &ConfigMap) -> Option<&str> {
    annotation(operation, "phase")
}

async fn update(operation: Arc<ConfigMap>, client: Client, is_fixed: bool) -> Result<Action, kube::Error> {
    if phase(&operation) == Some("Completed") {
        return Ok(Action::await_change());
    }
    let all = api::<ConfigMap>(&client).list(&ListParams::default()).await?;
    let mut others = all.iter().filter(|it| it.name_any() != operation.name_any());
    // Work in progress continues. Otherwise two interrupted operations would wait for each other.
    let has_begun = phase(&operation) == Some("Updating");
    if !has_begun && others.any(|it| phase(it) == Some("Updating")) {
        return Ok(match is_fixed {
            false => Action::await_change(),
            true => Action::requeue(Duration::from_secs(5)),
        });
    }
    annotate(&operation, &client, "phase", "Updating").await?;
    ensure(&api::<Secret>(&client), &volume(&operation.name_any())).await?;
    annotate(&operation, &client, "phase", "Completed").await?;
    Ok(Action::await_change())
}

pub(crate) async fn scenario(cluster: &TestCluster, is_fixed: bool) {
    cluster.controller("sandboxes", move |client| async move {
        Controller::new(api::<ConfigMap>(&client), watcher::Config::default())
            .run(
                move |operation, client: Arc<Client>| update(operation, Client::clone(&client), is_fixed),
                |_, _: &kube::Error, _| Action::requeue(Duration::from_secs(5)),
                Arc::new(client),
            )
            .for_each(|_| async {})
            .await;
    });
    cluster.create(custom("first")).await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    cluster.create(custom("second")).await;
    cluster.settle().await;
}
