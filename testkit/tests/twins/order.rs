//! Numbers and addresses that are assigned in the order of arrival.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::ResourceExt;
use serde_json::json;
use testkit::TestCluster;
use testkit::objects::config_map;

use crate::support::{Context, Error, OPERATOR, again, annotation, done, plain};

twins! {
    plain();
    single_address_is_assigned_to_the_first_parent: "end state", "secrets default/address";
    each_parent_gets_the_next_number: "end state", "configmaps default/";
    ports_are_assigned_in_one_map: "end state", "configmaps default/ports";
    only_one_of_two_parents_leads: "end state", "configmaps default/";
    failed_assertion_does_not_invalidate_the_run: "end state", "cloud web: unexpected";
}

/// Two controllers request the only address, each for its own parents. A controller without the address retries. The
/// buggy variant never releases the address if the deletion fails.
async fn single_address_is_assigned_to_the_first_parent(cluster: &TestCluster, is_healthy: bool) {
    for (name, selector) in [("east", "side=east"), ("west", "side=west")] {
        OPERATOR
            .named(name)
            .selects(selector)
            .start(cluster, move |parent, cx| async move {
                let holder = cx.get::<Secret>("address").await?.map(|it| it.labels()["of"].clone());
                let name = parent.name_any();
                match (crate::support::is_deleted(&parent), holder) {
                    (false, Some(holder)) if holder != name => again(60),
                    (false, Some(_)) => done(),
                    (false, None) => {
                        if !crate::support::has_finalizer(&parent) {
                            cx.add_finalizer(&parent, crate::support::FINALIZER).await?;
                        }
                        let metadata = json!({"name": "address", "labels": {"of": name}});
                        match cx.create::<Secret>(json!({"metadata": metadata})).await? {
                            true => done(),
                            false => again(60),
                        }
                    }
                    (true, holder) => {
                        if holder.as_ref() == Some(&name) {
                            let deleted = cx.delete::<Secret>("address").await;
                            if is_healthy {
                                deleted?;
                            }
                        }
                        if crate::support::has_finalizer(&parent) {
                            cx.remove_finalizer(&parent, crate::support::FINALIZER).await?;
                        }
                        done()
                    }
                }
            });
    }
    cluster.create(config_map("east").label("side", "east")).await;
    cluster.settle().await;
    cluster.create(config_map("west").label("side", "west")).await;
    cluster.settle().await;
    cluster.delete(config_map("east")).await;
    cluster.advance(std::time::Duration::from_secs(120)).await;
}

/// Takes the next free number: only one controller can create its Secret.
async fn take_number(cx: &Context, name: &str) -> Result<u32, Error> {
    for number in 1.. {
        let secret = format!("number-{number}");
        let metadata = json!({"name": secret, "labels": {"of": name}});
        if cx.create::<Secret>(json!({"metadata": metadata})).await? {
            return Ok(number);
        }
        let taken = cx.get::<Secret>(&secret).await?;
        if taken.is_some_and(|it| it.labels()["of"] == name) {
            return Ok(number);
        }
    }
    Err(Error::NotYet("all numbers are taken"))
}

/// Gives each parent the next free number. The buggy variant counts in memory.
async fn each_parent_gets_the_next_number(cluster: &TestCluster, is_healthy: bool) {
    OPERATOR.start_with_memory(cluster, move |parent, cx, memory| async move {
        if !annotation(&parent, "number").is_empty() {
            return done();
        }
        let next = match is_healthy {
            true => take_number(&cx, &parent.name_any()).await?,
            false => {
                memory.lock().unwrap().insert(parent.name_any());
                memory.lock().unwrap().len() as u32
            }
        };
        cx.annotate(&parent, "number", &next.to_string()).await?;
        done()
    });
    for name in ["web", "shop", "blog"] {
        cluster.create(config_map(name)).await;
        cluster.settle().await;
    }
}

/// Assigns the ports of a pool in one ConfigMap. The buggy variant does not send the resourceVersion that it has read.
async fn ports_are_assigned_in_one_map(cluster: &TestCluster, is_healthy: bool) {
    for (name, selector) in [("east", "side=east"), ("west", "side=west")] {
        OPERATOR
            .named(name)
            .selects(selector)
            .start(cluster, move |parent, cx| async move {
                let ports = cx.get::<ConfigMap>("ports").await?.ok_or(Error::NotYet("no pool"))?;
                let taken: BTreeMap<String, String> = ports.data.clone().unwrap_or_default();
                if taken.contains_key(&parent.name_any()) {
                    return done();
                }
                let next = (8000..)
                    .map(|it: u32| it.to_string())
                    .find(|it| !taken.values().any(|port| port == it));
                let mut patch = json!({"data": {parent.name_any(): next}});
                if is_healthy {
                    patch["metadata"] = json!({"resourceVersion": ports.resource_version()});
                }
                cx.merge::<ConfigMap>("ports", patch).await?;
                done()
            });
    }
    cluster.create(config_map("ports")).await;
    cluster.create(config_map("web").label("side", "east")).await;
    cluster.settle().await;
    cluster.create(config_map("shop").label("side", "west")).await;
    cluster.settle().await;
}

/// The first of two parents leads and the other follows. The buggy variant chooses the role from a list, which may be
/// outdated when the role is written.
async fn only_one_of_two_parents_leads(cluster: &TestCluster, is_healthy: bool) {
    OPERATOR.start(cluster, move |parent, cx| async move {
        if !annotation(&parent, "role").is_empty() {
            return done();
        }
        if is_healthy {
            // The Secret decides, because only one controller can create it.
            let metadata = json!({"name": "leader", "labels": {"of": parent.name_any()}});
            cx.create::<Secret>(json!({"metadata": metadata})).await?;
            let leader = cx.get::<Secret>("leader").await?.ok_or(Error::NotYet("no leader"))?;
            let role = if leader.labels()["of"] == parent.name_any() {
                "leads"
            } else {
                "follows"
            };
            cx.annotate(&parent, "role", role).await?;
            return done();
        }
        let all = cx.list::<ConfigMap>("").await?;
        let role = if all.iter().any(|it| annotation(it, "role") == "leads") {
            "follows"
        } else {
            "leads"
        };
        cx.annotate(&parent, "role", role).await?;
        done()
    });
    for name in ["web", "shop"] {
        cluster.create(config_map(name)).await;
        cluster.settle().await;
    }
}

/// The scenario waits for the result of each step; a test that does not wait continues without it.
async fn failed_assertion_does_not_invalidate_the_run(cluster: &TestCluster, is_healthy: bool) {
    use crate::support::{FINALIZER, has_finalizer, is_deleted};
    OPERATOR.start(cluster, move |parent, cx| async move {
        let name = parent.name_any();
        let disk = || cx.cloud.create(&name, json!({}));
        if is_deleted(&parent) {
            if has_finalizer(&parent) {
                if cx.cloud.get(&name).await?.is_some() {
                    cx.cloud.delete(&name).await?;
                }
                cx.remove_finalizer(&parent, FINALIZER).await?;
            }
            return done();
        }
        if !is_healthy && cx.cloud.get(&name).await?.is_none() {
            disk().await?;
        }
        if !has_finalizer(&parent) {
            cx.add_finalizer(&parent, FINALIZER).await?;
        }
        if cx.cloud.get(&name).await?.is_none() {
            disk().await?;
        }
        done()
    });
    let cloud = cluster.external("cloud");
    cluster.create(config_map("web")).await;
    cluster
        .eventually(|c| {
            let web: testkit::Object = c.get(config_map("web"));
            !web.value()["metadata"]["finalizers"].is_null()
        })
        .await;
    cluster.eventually(|_| cloud.objects().len() == 1).await;
    cluster.delete(config_map("web")).await;
    cluster.eventually(|c| c.gone(config_map("web"))).await;
}
