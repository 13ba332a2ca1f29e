//! kubernetes#69376: an object is deleted by its name. Between the decision and the delete, another object with the
//! same name has replaced it.

use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, Preconditions};
use kube::runtime::watcher::Event;
use kube::{Api, Client, ResourceExt};
use serde_json::json;
use testkit::TestCluster;
use testkit::objects::pod;

use crate::support::{Reconciled, api, events};

async fn collect(pods: &Api<Pod>, pod: &Pod, is_fixed: bool) -> Reconciled {
    let is_failed = pod.status.as_ref().and_then(|it| it.phase.as_deref()) == Some("Failed");
    if !is_failed {
        return Ok(());
    }
    let mut params = DeleteParams::default();
    if is_fixed {
        params.preconditions = Some(Preconditions {
            uid: pod.uid(),
            resource_version: None,
        });
    }
    match pods.delete(&pod.name_any(), &params).await {
        // The object no longer exists, or the name belongs to another object.
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(()),
        deleted => deleted.map(drop),
    }
}

/// Deletes failed Pods, so that they are recreated.
async fn pod_collector(client: Client, is_fixed: bool) {
    let pods = api::<Pod>(&client);
    let mut events = Box::pin(events::<Pod>(&client));
    while let Some(event) = events.next().await {
        let (Event::Apply(pod) | Event::InitApply(pod)) = event else {
            continue;
        };
        while collect(&pods, &pod, is_fixed).await.is_err() {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    }
}

pub(crate) async fn scenario(cluster: &TestCluster, is_fixed: bool) {
    cluster.controller("collector", move |client| pod_collector(client, is_fixed));
    cluster.create(pod("db-0").status(json!({"phase": "Failed"}))).await;
    cluster.settle().await;
    // The Pod's owner recreates it, and deletes the old Pod first if it still exists.
    if cluster.exists(pod("db-0")) {
        cluster.delete(pod("db-0")).await;
    }
    cluster.create(pod("db-0").status(json!({"phase": "Running"}))).await;
    cluster.settle().await;
}
