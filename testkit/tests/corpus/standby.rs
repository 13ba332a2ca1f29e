//! hadron-project/hadron#71: a replica that is not the leader drops its events, and does not list again when it becomes
//! the leader. Work that arose without a leader is never done.

use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::PostParams;
use kube::runtime::watcher::Event;
use kube::{Client, ResourceExt};
use testkit::TestCluster;
use tokio::sync::watch;

use crate::support::{Reconciled, api, custom, ensure, events, volume};

/// Acquires the Lease, which has no other candidate.
async fn lead(client: Client, leads: watch::Sender<bool>) {
    let leases = api::<Lease>(&client);
    loop {
        match try_to_lead(&leases).await {
            Ok(()) => break,
            Err(_) => tokio::time::sleep(Duration::from_secs(2)).await,
        }
    }
    leads.send_replace(true);
}

async fn try_to_lead(leases: &kube::Api<Lease>) -> Reconciled {
    let mut lease = Lease::default();
    lease.metadata.name = Some("hadron".to_owned());
    lease.spec = Some(LeaseSpec {
        holder_identity: Some("operator".to_owned()),
        ..LeaseSpec::default()
    });
    if let Some(held) = leases.get_opt("hadron").await? {
        lease.metadata.resource_version = held.resource_version();
        return leases.replace("hadron", &PostParams::default(), &lease).await.map(drop);
    }
    leases.create(&PostParams::default(), &lease).await.map(drop)
}

async fn provide(client: &Client, stream: &ConfigMap) {
    let secrets = api::<Secret>(client);
    while ensure(&secrets, &volume(&stream.name_any())).await.is_err() {
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

async fn streams(client: Client, mut leads: watch::Receiver<bool>, is_fixed: bool) {
    if is_fixed && leads.wait_for(|it| *it).await.is_err() {
        return;
    }
    let mut events = Box::pin(events::<ConfigMap>(&client));
    while let Some(event) = events.next().await {
        let (Event::Apply(stream) | Event::InitApply(stream)) = event else {
            continue;
        };
        if *leads.borrow() {
            provide(&client, &stream).await;
        }
    }
}

pub(crate) async fn scenario(cluster: &TestCluster, is_fixed: bool) {
    cluster.controller("operator", move |client| async move {
        let (sender, leads) = watch::channel(false);
        futures::future::join(lead(client.clone(), sender), streams(client, leads, is_fixed)).await;
    });
    cluster.settle().await;
    cluster.create(custom("events")).await;
    cluster.settle().await;
}
