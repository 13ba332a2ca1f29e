//! Custom resources of two kinds that refer to each other.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use kube::api::{ListParams, PostParams};
use kube::runtime::controller::{Action, Controller};
use kube::runtime::reflector::ObjectRef;
use kube::runtime::watcher;
use kube::{Api, Client, CustomResource, CustomResourceExt, ResourceExt};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use testkit::objects::{object, serialized};
use testkit::{TestCluster, TestClusterBuilder};

use crate::support::plain;

twins! {
    bindings();
    claims_are_bound_to_volumes: "end state", "claims.example.com default/one spec.volume";
}

#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[kube(group = "example.com", version = "v1", kind = "Claim", namespaced)]
struct ClaimSpec {
    volume: Option<String>,
}

#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[kube(group = "example.com", version = "v1", kind = "Volume", namespaced)]
struct VolumeSpec {
    claim: Option<String>,
    claim_uid: Option<String>,
}

fn bindings() -> TestClusterBuilder {
    plain()
        .object(serialized(&Claim::crd()))
        .object(serialized(&Volume::crd()))
}

/// Binds each claim to a free volume, in both directions. The buggy variant does not look for a volume that is already
/// bound to the claim.
async fn claims_are_bound_to_volumes(cluster: &TestCluster, is_healthy: bool) {
    cluster.controller("binder", move |client: Client| async move {
        Controller::new(
            Api::<Claim>::default_namespaced(client.clone()),
            watcher::Config::default(),
        )
        .watches(
            Api::<Volume>::default_namespaced(client.clone()),
            watcher::Config::default(),
            |volume: Volume| {
                volume
                    .spec
                    .claim
                    .map(|it| ObjectRef::<Claim>::new(&it).within("default"))
            },
        )
        .run(
            move |claim, client: Arc<Client>| async move { bind(&claim, &client, is_healthy).await },
            |_, _: &kube::Error, _| Action::requeue(Duration::from_secs(5)),
            Arc::new(client),
        )
        .for_each(|_| async {})
        .await;
    });
    for name in ["small", "large", "spare"] {
        cluster
            .create(object("example.com/v1", "Volume", name).set("spec", json!({})))
            .await;
    }
    for name in ["one", "two"] {
        cluster
            .create(object("example.com/v1", "Claim", name).set("spec", json!({})))
            .await;
    }
    cluster.settle().await;
}

async fn bind(claim: &Claim, client: &Client, is_healthy: bool) -> kube::Result<Action> {
    if claim.spec.volume.is_some() {
        return Ok(Action::await_change());
    }
    let volumes = Api::<Volume>::default_namespaced(client.clone());
    let claims = Api::<Claim>::default_namespaced(client.clone());
    let all = volumes.list(&ListParams::default()).await?;
    let own = all.iter().find(|it| is_healthy && it.spec.claim_uid == claim.uid());
    let volume = match own {
        Some(own) => own.name_any(),
        None => {
            let Some(free) = all.iter().find(|it| it.spec.claim_uid.is_none()) else {
                return Ok(Action::requeue(Duration::from_secs(30)));
            };
            let mut taken = free.clone();
            taken.spec = VolumeSpec {
                claim: Some(claim.name_any()),
                claim_uid: claim.uid(),
            };
            volumes
                .replace(&free.name_any(), &PostParams::default(), &taken)
                .await?;
            free.name_any()
        }
    };
    let mut bound = claim.clone();
    bound.spec.volume = Some(volume);
    bound.metadata.managed_fields = None;
    claims
        .replace(&claim.name_any(), &PostParams::default(), &bound)
        .await?;
    Ok(Action::await_change())
}
