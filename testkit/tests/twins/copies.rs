//! Objects without owners: copies in other namespaces, adopted objects, expiring objects, and external objects.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::api::{GetParams, ListParams, Patch, PatchParams, PostParams};
use kube::runtime::controller::{Action, Controller};
use kube::runtime::finalizer::{Event, finalizer};
use kube::runtime::watcher;
use kube::{Api, Client, Resource, ResourceExt};
use serde_json::json;
use testkit::TestCluster;
use testkit::explore::{External, ExternalError};
use testkit::objects::{config_map, namespace, secret};
use tokio::time::sleep;

use crate::support::{Error, OPERATOR, annotation, done, field, now, plain};

twins! {
    plain();
    copies_in_all_namespaces_are_deleted_with_the_original: "end state", "configmaps team-";
    adoption_requires_the_uid_of_the_object_that_was_read: "end state", "secrets default/web";
    expired_message_is_deleted_despite_an_error: "end state", "configmaps default/web: unexpected";
    bucket_is_deleted_with_its_parent: "end state", "cloud bucket-web: unexpected";
    each_order_is_charged_once_by_two_replicas: "end state", "billing";
    unfinished_batch_is_completed: "end state", "secrets default/web-";
}

/// Copies a ConfigMap into each namespace of a team, and deletes the copies when the ConfigMap is deleted. The buggy
/// variant deletes only the copies that it has made since its start.
async fn copies_in_all_namespaces_are_deleted_with_the_original(cluster: &TestCluster, is_healthy: bool) {
    OPERATOR.start_with_memory(cluster, move |parent, cx, memory| async move {
        let teams = Api::<Namespace>::all(cx.client.clone());
        let teams = teams.list(&ListParams::default().labels("team")).await?;
        let copies = |team: &str| Api::<ConfigMap>::namespaced(cx.client.clone(), team);
        if crate::support::is_deleted(&parent) {
            let made = memory.lock().unwrap().clone();
            let all = teams.iter().map(ResourceExt::name_any);
            for team in all.filter(|it| is_healthy || made.contains(it)) {
                match copies(&team).delete(&parent.name_any(), &Default::default()).await {
                    Err(kube::Error::Api(status)) if status.is_not_found() => {}
                    deleted => drop(deleted?),
                }
            }
            cx.set_finalizers(&parent, &[]).await?;
            return done();
        }
        if !crate::support::has_finalizer(&parent) {
            cx.add_finalizer(&parent, crate::support::FINALIZER).await?;
            return done();
        }
        for team in teams.iter().map(ResourceExt::name_any) {
            let mut copy = ConfigMap::default();
            copy.metadata.name = parent.metadata.name.clone();
            copy.data = parent.data.clone();
            match copies(&team).create(&PostParams::default(), &copy).await {
                Err(kube::Error::Api(status)) if status.is_already_exists() => {}
                created => {
                    created?;
                    memory.lock().unwrap().insert(team);
                }
            }
        }
        done()
    });
    for team in ["team-a", "team-b"] {
        cluster.create(namespace(team).label("team", "yes")).await;
    }
    cluster.create(config_map("web").data("size", "1")).await;
    cluster.settle().await;
    cluster.delete(config_map("web")).await;
    cluster.settle().await;
}

/// Adopts a Secret that permits it, found by its name. The buggy variant does not send the uid and resourceVersion of
/// the object that it has read.
async fn adoption_requires_the_uid_of_the_object_that_was_read(cluster: &TestCluster, is_healthy: bool) {
    OPERATOR.start(cluster, move |parent, cx| async move {
        if field(&parent, "adopt") != "yes" {
            return done();
        }
        // The server's cache may serve this read.
        let cached = GetParams {
            resource_version: Some("0".to_owned()),
        };
        let found = match cx.api::<Secret>().get_with("web", &cached).await {
            Err(kube::Error::Api(status)) if status.is_not_found() => return crate::support::again(10),
            found => found?,
        };
        if !found.owner_references().is_empty() {
            return done();
        }
        if found.annotations().get("adopt").is_none() {
            cx.annotate(&parent, "refused", "yes").await?;
            return done();
        }
        let mut patch = json!({"metadata": {"ownerReferences": [parent.controller_owner_ref(&())]}});
        if is_healthy {
            patch["metadata"]["uid"] = found.uid().into();
            patch["metadata"]["resourceVersion"] = found.resource_version().into();
        }
        cx.merge::<Secret>("web", patch).await?;
        done()
    });
    cluster.create(config_map("web").data("adopt", "no")).await;
    cluster.create(secret("web").annotation("adopt", "yes")).await;
    cluster.settle().await;
    cluster.delete(secret("web")).await;
    cluster.create(secret("web")).await;
    let _: testkit::Object = cluster
        .patch(config_map("web"), json!({"data": {"adopt": "yes"}}))
        .await;
    cluster.settle().await;
}

/// Deletes a message when it has expired. The buggy variant deletes it in a task without retries.
async fn expired_message_is_deleted_despite_an_error(cluster: &TestCluster, is_healthy: bool) {
    OPERATOR.start(cluster, move |parent, cx| async move {
        let ttl: i64 = field(&parent, "ttl").parse().unwrap_or(0);
        let made = parent.metadata.creation_timestamp.as_ref();
        let made = made.map_or(0, |it| it.0.as_second());
        let left = u64::try_from(made + ttl - now().as_second()).unwrap_or(0);
        if left > 0 && is_healthy {
            return crate::support::again(left);
        }
        if is_healthy {
            cx.delete::<ConfigMap>(&parent.name_any()).await?;
            return done();
        }
        tokio::spawn(async move {
            sleep(Duration::from_secs(left)).await;
            let _ = cx.delete::<ConfigMap>(&parent.name_any()).await;
        });
        done()
    });
    cluster.create(config_map("web").data("ttl", "90")).await;
    cluster.settle().await;
    cluster.advance(Duration::from_secs(120)).await;
    cluster.settle().await;
}

type FinalizerError = kube::runtime::finalizer::Error<Error>;

/// Creates a bucket for each ConfigMap, with the finalizer of kube. The buggy variant ignores errors of the deletion.
async fn bucket_is_deleted_with_its_parent(cluster: &TestCluster, is_healthy: bool) {
    let cloud = cluster.external("cloud").of("buckets");
    cluster.controller("buckets", move |client: Client| {
        let cloud = cloud.clone();
        async move {
            let maps = Api::<ConfigMap>::default_namespaced(client.clone());
            Controller::new(maps.clone(), watcher::Config::default())
                .run(
                    move |parent: Arc<ConfigMap>, cloud: Arc<External>| {
                        let maps = maps.clone();
                        async move {
                            finalizer(&maps, "example.com/bucket", parent, async |event| {
                                bucket(&cloud, event, is_healthy).await
                            })
                            .await
                        }
                    },
                    |_, _: &FinalizerError, _| Action::requeue(Duration::from_secs(10)),
                    Arc::new(cloud),
                )
                .for_each(|_| async {})
                .await;
        }
    });
    cluster.create(config_map("web")).await;
    cluster.settle().await;
    cluster.delete(config_map("web")).await;
    cluster.settle().await;
}

async fn bucket(cloud: &External, event: Event<ConfigMap>, is_healthy: bool) -> Result<Action, Error> {
    match event {
        Event::Apply(parent) => {
            let key = format!("bucket-{}", parent.name_any());
            match cloud.create(&key, json!({"size": 1})).await {
                Err(ExternalError::AlreadyExists(_)) => {}
                created => created?,
            }
        }
        Event::Cleanup(parent) => match cloud.delete(&format!("bucket-{}", parent.name_any())).await {
            Err(ExternalError::NotFound(_)) => {}
            Err(err) if is_healthy => return Err(err.into()),
            _ => {}
        },
    }
    Ok(Action::await_change())
}

/// Acquires or renews the Lease; returns `true` if this replica holds it.
async fn lead(leases: &Api<Lease>, name: &str) -> kube::Result<bool> {
    let now = now();
    let spec = json!({
        "holderIdentity": name, "leaseDurationSeconds": 15, "renewTime": MicroTime(now),
    });
    let Some(known) = leases.get_opt("billing").await? else {
        let lease: Lease = serde_json::from_value(json!({"metadata": {"name": "billing"}, "spec": spec}))
            .map_err(kube::Error::SerdeError)?;
        return leases.create(&PostParams::default(), &lease).await.map(|_| true);
    };
    let held = known.spec.as_ref();
    let holder = held.and_then(|it| it.holder_identity.as_deref());
    let renewed = held
        .and_then(|it| it.renew_time.as_ref())
        .map_or(0, |it| it.0.as_second());
    if holder != Some(name) && renewed + 15 > now.as_second() {
        return Ok(false);
    }
    let patch = json!({"metadata": {"resourceVersion": known.resource_version()}, "spec": spec});
    leases
        .patch("billing", &PatchParams::default(), &Patch::Merge(patch))
        .await
        .map(|_| true)
}

/// Charges for each order once. The buggy variant charges without an idempotency key.
async fn each_order_is_charged_once_by_two_replicas(cluster: &TestCluster, is_healthy: bool) {
    for name in ["one", "two"] {
        let billing = cluster.external("billing").of(name);
        cluster.controller(name, move |client: Client| {
            let billing = billing.clone();
            async move {
                let leases = Api::<Lease>::default_namespaced(client.clone());
                let orders = Api::<ConfigMap>::default_namespaced(client);
                loop {
                    if lead(&leases, name).await.unwrap_or(false) {
                        let _ = charge(&orders, &billing, is_healthy).await;
                    }
                    sleep(Duration::from_secs(5)).await;
                }
            }
        });
    }
    for order in ["order-1", "order-2"] {
        cluster.create(config_map(order)).await;
        cluster.advance(Duration::from_secs(30)).await;
    }
}

async fn charge(orders: &Api<ConfigMap>, billing: &External, is_healthy: bool) -> Result<(), Error> {
    for order in orders.list(&ListParams::default()).await? {
        if annotation(&order, "charged") == "yes" {
            continue;
        }
        let name = order.name_any();
        let charged = match is_healthy {
            true => billing.create(&name, json!({"of": name})).await,
            false => billing.add(json!({"of": name})).await.map(drop),
        };
        match charged {
            Err(ExternalError::AlreadyExists(_)) => {}
            charged => charged?,
        }
        let patch = json!({"metadata": {"annotations": {"charged": "yes"}}});
        orders
            .patch(&name, &PatchParams::default(), &Patch::Merge(patch))
            .await?;
    }
    Ok(())
}

/// Creates five Secrets in chunks of two, with a cursor in the parent. The buggy variant advances the cursor before it
/// creates the chunk.
async fn unfinished_batch_is_completed(cluster: &TestCluster, is_healthy: bool) {
    OPERATOR.start(cluster, move |parent, cx| async move {
        let cursor: u32 = annotation(&parent, "cursor").parse().unwrap_or(0);
        if cursor >= 5 {
            return done();
        }
        let next = (cursor + 2).to_string();
        if !is_healthy {
            cx.annotate(&parent, "cursor", &next).await?;
        }
        for nth in cursor..(cursor + 2).min(5) {
            cx.create_secret(&parent, &format!("web-{nth}"), json!({})).await?;
        }
        if is_healthy {
            cx.annotate(&parent, "cursor", &next).await?;
        }
        done()
    });
    cluster.create(config_map("web")).await;
    cluster.settle().await;
}
