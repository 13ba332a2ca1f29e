//! Moves, releases and reservations: something is removed from one place before it is added to another.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::core::v1::{ConfigMap, Node, Secret};
use kube::api::{ListParams, Patch, PatchParams};
use kube::runtime::controller::{Action, Controller};
use kube::runtime::reflector::ObjectRef;
use kube::runtime::watcher;
use kube::{Api, Client, Resource, ResourceExt};
use serde_json::json;
use testkit::explore::ExternalError;
use testkit::objects::{config_map, node, secret};
use testkit::{Object, TestCluster};

use crate::support::{Context, Error, Memory, OPERATOR, again, annotation, done, field, now, plain};

twins! {
    plain();
    drained_node_is_uncordoned: "end state", "nodes b spec.unschedulable";
    parked_message_is_sent_later: "end state", "metadata.annotations.state";
    released_secret_loses_its_owner: "end state", "secrets default/a metadata.ownerReferences";
    certificate_is_requested_for_the_stored_key: "generated values", "web";
    volume_is_detached_from_its_old_node: "end state", "cloud volume@one: unexpected";
    request_in_an_annotation_is_served: "end state", "cloud web";
    budget_is_charged_once: "end state", "configmaps default/budget data.left";
}

/// Upgrades one node at a time: cordons it, upgrades it and uncordons it, unless the user has cordoned it. The buggy
/// variant remembers in memory which nodes it has cordoned.
async fn drained_node_is_uncordoned(cluster: &TestCluster, is_healthy: bool) {
    let cloud = cluster.external("cloud").of("upgrades");
    cluster.controller("upgrades", move |client: Client| {
        let cx = Context {
            client,
            cloud: cloud.clone(),
        };
        let memory = Memory::default();
        Controller::new(Api::<Node>::all(cx.client.clone()), watcher::Config::default())
            .run(
                move |node, cx: Arc<Context>| {
                    let memory = Arc::clone(&memory);
                    async move { upgrade(&node, &cx, &memory, is_healthy).await }
                },
                |_, _: &Error, _| Action::requeue(Duration::from_secs(10)),
                Arc::new(cx),
            )
            .for_each(|_| async {})
    });
    for name in ["a", "b"] {
        cluster
            .create(node(name).label("version", "1").annotation("wanted", "1"))
            .await;
    }
    cluster
        .create(
            node("c")
                .label("version", "1")
                .annotation("wanted", "1")
                .set("spec.unschedulable", true),
        )
        .await;
    cluster.settle().await;
    for name in ["a", "b"] {
        let _: Object = cluster
            .patch(node(name), json!({"metadata": {"annotations": {"wanted": "2"}}}))
            .await;
    }
    cluster.settle().await;
}

async fn upgrade(node: &Node, cx: &Context, memory: &Memory, is_healthy: bool) -> Result<Action, Error> {
    let (nodes, name) = (Api::<Node>::all(cx.client.clone()), node.name_any());
    let Some(node) = nodes.get_opt(&name).await? else {
        return done();
    };
    let patch =
        async |patch: serde_json::Value| nodes.patch(&name, &PatchParams::default(), &Patch::Merge(patch)).await;
    let wanted = node.annotations().get("wanted").cloned();
    let is_ours = match is_healthy {
        true => node.annotations().contains_key("cordoned"),
        false => memory.lock().expect("no task panics").contains(&name),
    };
    if node.labels().get("version") == wanted.as_ref() {
        if is_ours {
            patch(json!({"spec": {"unschedulable": null}, "metadata": {"annotations": {"cordoned": null}}})).await?;
            memory.lock().expect("no task panics").remove(&name);
        }
        return done();
    }
    if node.spec.as_ref().and_then(|it| it.unschedulable) != Some(true) {
        let all = nodes.list(&ListParams::default()).await?;
        if all.iter().any(|it| it.annotations().contains_key("cordoned")) {
            return again(10);
        }
        let cordon = json!({"spec": {"unschedulable": true}, "metadata": {
            "annotations": {"cordoned": "yes"}, "resourceVersion": node.resource_version()}});
        patch(cordon).await?;
        memory.lock().expect("no task panics").insert(name.clone());
    }
    patch(json!({"metadata": {"labels": {"version": wanted}}})).await?;
    again(1)
}

/// Parks a message after two failures, and sends it again five minutes later. The buggy variant leaves it parked.
async fn parked_message_is_sent_later(cluster: &TestCluster, is_healthy: bool) {
    OPERATOR.start(cluster, move |parent, cx| async move {
        let Some(parent) = cx.get::<ConfigMap>(&parent.name_any()).await? else {
            return done();
        };
        match annotation(&parent, "state") {
            "Sent" => return done(),
            "Parked" if !is_healthy => return done(),
            "Parked" => {
                let until: i64 = annotation(&parent, "until").parse().unwrap_or(0);
                if let Ok(left @ 1..) = u64::try_from(until - now().as_second()) {
                    return again(left);
                }
            }
            _ => {}
        }
        let failures: u32 = annotation(&parent, "failures").parse().unwrap_or(0);
        let annotations = match cx.cloud.create(&parent.name_any(), json!({})).await {
            Ok(()) | Err(ExternalError::AlreadyExists(_)) => {
                json!({"state": "Sent", "failures": null, "until": null})
            }
            Err(_) if failures > 0 => {
                json!({"state": "Parked", "failures": null, "until": (now().as_second() + 300).to_string()})
            }
            Err(_) => json!({"state": "Waiting", "failures": (failures + 1).to_string()}),
        };
        let metadata = json!({"annotations": annotations, "resourceVersion": parent.resource_version()});
        cx.merge::<ConfigMap>(&parent.name_any(), json!({"metadata": metadata}))
            .await?;
        again(2)
    });
    for name in ["first", "second"] {
        cluster.create(config_map(name)).await;
        cluster.settle().await;
    }
}

/// Adopts Secrets with its label, and releases Secrets that lose it. The buggy variant releases only Secrets that it
/// remembers.
async fn released_secret_loses_its_owner(cluster: &TestCluster, is_healthy: bool) {
    let cloud = cluster.external("cloud").of("pools");
    cluster.controller("pools", move |client: Client| {
        let cx = Context {
            client,
            cloud: cloud.clone(),
        };
        let memory = Memory::default();
        Controller::new(cx.api::<ConfigMap>(), watcher::Config::default())
            .owns(cx.api::<Secret>(), watcher::Config::default())
            .watches(cx.api::<Secret>(), watcher::Config::default(), |it| {
                it.labels()
                    .get("pool")
                    .map(|pool| ObjectRef::new(pool).within("default"))
            })
            .run(
                move |pool, cx: Arc<Context>| {
                    let memory = Arc::clone(&memory);
                    async move { adopt(&pool, &cx, &memory, is_healthy).await }
                },
                |_, _: &Error, _| Action::requeue(Duration::from_secs(10)),
                Arc::new(cx),
            )
            .for_each(|_| async {})
    });
    cluster.create(config_map("web")).await;
    for name in ["a", "b"] {
        cluster.create(secret(name).label("pool", "web")).await;
    }
    cluster.settle().await;
    let _: Object = cluster
        .patch(secret("a"), json!({"metadata": {"labels": {"pool": null}}}))
        .await;
    cluster.settle().await;
}

async fn adopt(pool: &ConfigMap, cx: &Context, memory: &Memory, is_healthy: bool) -> Result<Action, Error> {
    let (name, owner) = (pool.name_any(), pool.controller_owner_ref(&()));
    for member in cx.api::<Secret>().list(&ListParams::default()).await? {
        let is_wanted = member.labels().get("pool") == Some(&name);
        let is_owned = member
            .owner_references()
            .iter()
            .any(|it| Some(&it.uid) == pool.uid().as_ref());
        if is_wanted == is_owned {
            continue;
        }
        let is_known = memory.lock().expect("no task panics").contains(&member.name_any());
        if is_owned && !is_healthy && !is_known {
            continue;
        }
        let mut owners = member.owner_references().to_vec();
        match is_wanted {
            true => owners.extend(owner.clone()),
            false => owners.retain(|it| Some(&it.uid) != pool.uid().as_ref()),
        }
        let metadata = json!({"ownerReferences": owners, "resourceVersion": member.resource_version()});
        cx.merge::<Secret>(&member.name_any(), json!({"metadata": metadata}))
            .await?;
        memory.lock().expect("no task panics").insert(member.name_any());
    }
    done()
}

/// Requests a certificate for a key that it generates, and stores both. The buggy variant stores the key with the
/// certificate.
async fn certificate_is_requested_for_the_stored_key(cluster: &TestCluster, is_healthy: bool) {
    OPERATOR.start(cluster, move |parent, cx| async move {
        let name = parent.name_any();
        let mut key: String = (0..16).map(|_| fastrand::alphanumeric()).collect();
        if is_healthy {
            let stored = format!("{name}-key");
            cx.create_secret(&parent, &stored, json!({"key": key})).await?;
            let secret = cx.get::<Secret>(&stored).await?.ok_or(Error::NotYet("no key"))?;
            let data = secret.data.unwrap_or_default();
            key = String::from_utf8_lossy(&data["key"].0).into_owned();
        }
        if cx.get::<Secret>(&format!("{name}-tls")).await?.is_some() {
            return done();
        }
        match cx
            .cloud
            .create(&name, json!({"request": format!("public part of {key}")}))
            .await
        {
            Ok(()) | Err(ExternalError::AlreadyExists(_)) => {}
            Err(err) => return Err(err.into()),
        }
        let request = cx.cloud.get(&name).await?.ok_or(Error::NotYet("no request"))?;
        let certificate = format!("signed {}", request["request"].as_str().unwrap_or_default());
        cx.create_secret(&parent, &format!("{name}-tls"), json!({"key": key, "crt": certificate}))
            .await?;
        done()
    });
    cluster.create(config_map("web")).await;
    cluster.settle().await;
}

/// Attaches a volume to the node of the object. The buggy variant detaches it from the node that it has recorded after
/// the work.
async fn volume_is_detached_from_its_old_node(cluster: &TestCluster, is_healthy: bool) {
    OPERATOR.start(cluster, move |parent, cx| async move {
        let wanted = format!("{}@{}", parent.name_any(), field(&parent, "node"));
        let recorded = annotation(&parent, "attached");
        if recorded == wanted && !is_healthy {
            return done();
        }
        let attached: Vec<String> = match is_healthy {
            true => {
                let all = cx.cloud.list().await?;
                all.into_iter().map(|(key, _)| key).collect()
            }
            false => Some(recorded.to_owned())
                .filter(|it| !it.is_empty())
                .into_iter()
                .collect(),
        };
        for old in attached.iter().filter(|it| **it != wanted) {
            match cx.cloud.delete(old).await {
                Ok(()) | Err(ExternalError::NotFound(_)) => {}
                Err(err) => return Err(err.into()),
            }
        }
        match cx.cloud.create(&wanted, json!({})).await {
            Ok(()) | Err(ExternalError::AlreadyExists(_)) => {}
            Err(err) => return Err(err.into()),
        }
        if recorded != wanted {
            cx.annotate(&parent, "attached", &wanted).await?;
        }
        done()
    });
    cluster.create(config_map("volume").data("node", "one")).await;
    cluster.settle().await;
    let _: Object = cluster
        .patch(config_map("volume"), json!({"data": {"node": "two"}}))
        .await;
    cluster.settle().await;
}

/// Serves a request in an annotation and removes it. The buggy variant removes it without sending the resourceVersion
/// that it has read.
async fn request_in_an_annotation_is_served(cluster: &TestCluster, is_healthy: bool) {
    OPERATOR.start(cluster, move |parent, cx| async move {
        let (name, request) = (parent.name_any(), annotation(&parent, "sync"));
        if request.is_empty() {
            return done();
        }
        let record = json!({"last": request});
        match cx.cloud.create(&name, record.clone()).await {
            Err(ExternalError::AlreadyExists(_)) => cx.cloud.update(&name, record).await?,
            created => created?,
        }
        let mut patch = json!({"metadata": {"annotations": {"sync": null}}});
        if is_healthy {
            patch["metadata"]["resourceVersion"] = json!(parent.resource_version());
        }
        cx.merge::<ConfigMap>(&name, patch).await?;
        done()
    });
    cluster.create(config_map("web")).await;
    for request in ["one", "two"] {
        let _: Object = cluster
            .patch(
                config_map("web"),
                json!({"metadata": {"annotations": {"sync": request}}}),
            )
            .await;
        cluster.settle().await;
    }
}

/// Charges each order to a budget. The buggy variant records the order after the charge.
async fn budget_is_charged_once(cluster: &TestCluster, is_healthy: bool) {
    OPERATOR.start(cluster, move |parent, cx| async move {
        let (name, price) = (parent.name_any(), field(&parent, "price"));
        if price.is_empty() || !annotation(&parent, "charged").is_empty() {
            return done();
        }
        let budget = cx.get::<ConfigMap>("budget").await?.ok_or(Error::NotYet("no budget"))?;
        let data = budget.data.clone().unwrap_or_default();
        if !data.contains_key(&name) {
            let left: i64 = data["left"].parse().unwrap_or(0);
            let left = left - price.parse::<i64>().unwrap_or(0);
            let mut changed = BTreeMap::from([("left".to_owned(), left.to_string())]);
            if is_healthy {
                changed.insert(name.clone(), price.to_owned());
            }
            let patch = json!({"data": changed, "metadata": {"resourceVersion": budget.resource_version()}});
            cx.merge::<ConfigMap>("budget", patch).await?;
        }
        cx.annotate(&parent, "charged", price).await?;
        done()
    });
    cluster.create(config_map("budget").data("left", "100")).await;
    for (name, price) in [("a", "30"), ("b", "20")] {
        cluster.create(config_map(name).data("price", price)).await;
        cluster.settle().await;
    }
}
