//! Objects that several parents or replicas share: claims with optimistic locking, shards, slots of a quota, and
//! configuration that is hashed. Also labels of all objects, and orphans that are adopted.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::{ListParams, PostParams};
use kube::runtime::controller::{Action, Controller};
use kube::runtime::reflector::ObjectRef;
use kube::runtime::watcher;
use kube::{Api, Client, Resource, ResourceExt};
use serde_json::json;
use testkit::TestCluster;
use testkit::objects::config_map;
use tokio::time::sleep;

use crate::support::{
    Context, Done, Error, FINALIZER, OPERATOR, again, annotation, done, field, has_finalizer, is_deleted, plain,
};

twins! {
    plain();
    replicas_claim_jobs: "end state", "secrets default/";
    deployment_is_updated_if_the_hash_of_its_settings_changes: "end state", "deployments.apps default/web";
    label_is_added_to_the_newest_version: "end state", "configmaps default/web data.size";
    orphan_is_adopted_later: "end state", "secrets default/web metadata.ownerReferences";
    entries_are_spread_over_shards: "end state", "configmaps default/shard-";
    slots_of_a_quota_are_held_by_name: "end state", "configmaps default/quota";
}

/// Two replicas take jobs, and sign their results. The buggy variant claims a job that the other replica has claimed.
async fn replicas_claim_jobs(cluster: &TestCluster, is_healthy: bool) {
    for replica in ["one", "two"] {
        OPERATOR
            .named(replica)
            .selects("kind=job")
            .start(cluster, move |job, cx| async move {
                let name = job.name_any();
                match annotation(&job, "claimed-by") {
                    "" => {
                        let mut patch = json!({"metadata": {"annotations": {"claimed-by": replica}}});
                        if is_healthy {
                            patch["metadata"]["resourceVersion"] = job.resource_version().into();
                        }
                        cx.merge::<ConfigMap>(&name, patch).await?;
                    }
                    other if other != replica => return done(),
                    _ => {}
                }
                cx.create_secret(&job, &name, json!({"by": replica})).await?;
                done()
            });
    }
    for name in ["mail", "report"] {
        cluster.create(config_map(name).label("kind", "job")).await;
        cluster.settle().await;
    }
}

fn hash_of(settings: &ConfigMap) -> String {
    let data = serde_json::to_string(&settings.data).unwrap_or_default();
    let sum = data
        .bytes()
        .fold(7_u32, |sum, it| sum.wrapping_mul(31).wrapping_add(it.into()));
    format!("{sum:08x}")
}

async fn roll_out(cx: &Context, app: &ConfigMap, is_healthy: bool) -> Done {
    let Some(settings) = cx.get::<ConfigMap>("settings").await? else {
        return again(30);
    };
    let mode = field(&settings, "mode").to_owned();
    let hash = match is_healthy {
        true => hash_of(&settings),
        false => cx
            .get::<ConfigMap>("settings")
            .await?
            .map_or_else(String::new, |it| hash_of(&it)),
    };
    let name = app.name_any();
    let known = cx.get::<Deployment>(&name).await?;
    let template = known.and_then(|it| it.spec).and_then(|it| it.template.metadata);
    let known = template.and_then(|it| it.annotations).unwrap_or_default();
    if known.get("settings-hash") == Some(&hash) {
        return done();
    }
    let labels = json!({"app": name});
    cx.apply::<Deployment>(
        "operator",
        &name,
        json!({
            "metadata": {"ownerReferences": [app.controller_owner_ref(&())]},
            "spec": {
                "selector": {"matchLabels": labels},
                "template": {
                    "metadata": {"labels": labels, "annotations": {"settings-hash": hash}},
                    "spec": {"containers": [{
                        "name": "main", "image": "app", "env": [{"name": "MODE", "value": mode}],
                    }]},
                },
            },
        }),
    )
    .await?;
    done()
}

/// Updates a Deployment if the hash of its settings has changed. The buggy variant does not hash the same settings that
/// it writes.
async fn deployment_is_updated_if_the_hash_of_its_settings_changes(cluster: &TestCluster, is_healthy: bool) {
    let cloud = cluster.external("cloud").of("operator");
    cluster.controller("operator", move |client: Client| {
        let cloud = cloud.clone();
        async move {
            let context = Context { client, cloud };
            let controller = Controller::new(
                context.api::<ConfigMap>(),
                watcher::Config::default().labels("kind=app"),
            );
            let apps = controller.store();
            controller
                .watches(
                    context.api::<ConfigMap>(),
                    watcher::Config::default().labels("kind=settings"),
                    move |_| {
                        apps.state()
                            .iter()
                            .map(|it| ObjectRef::from_obj(&**it))
                            .collect::<Vec<_>>()
                    },
                )
                .run(
                    move |app, cx: Arc<Context>| async move { roll_out(&cx, &app, is_healthy).await },
                    |_, _: &Error, _| Action::requeue(Duration::from_secs(5)),
                    Arc::new(context),
                )
                .for_each(|_| async {})
                .await;
        }
    });
    cluster
        .create(config_map("settings").label("kind", "settings").data("mode", "slow"))
        .await;
    cluster.create(config_map("web").label("kind", "app")).await;
    cluster.settle().await;
    for mode in ["fast", "safe"] {
        let _: testkit::Object = cluster
            .patch(config_map("settings"), json!({"data": {"mode": mode}}))
            .await;
        cluster.settle().await;
    }
}

/// Labels all objects of a list. The buggy variant writes the object from the list.
async fn label_all(client: &Client, is_healthy: bool) -> kube::Result<()> {
    let maps = Api::<ConfigMap>::default_namespaced(client.clone());
    for mut map in maps.list(&ListParams::default()).await? {
        if map.labels().contains_key("managed") {
            continue;
        }
        map.labels_mut().insert("managed".to_owned(), "yes".to_owned());
        if !is_healthy {
            map.metadata.resource_version = None;
        }
        maps.replace(&map.name_any(), &PostParams::default(), &map).await?;
    }
    Ok(())
}

/// Lists all objects once a minute, and labels them. The user changes an object between the list and the write.
async fn label_is_added_to_the_newest_version(cluster: &TestCluster, is_healthy: bool) {
    cluster.controller("labels", move |client: Client| async move {
        loop {
            let pause = match label_all(&client, is_healthy).await {
                Ok(()) => 60,
                Err(_) => 5,
            };
            sleep(Duration::from_secs(pause)).await;
        }
    });
    cluster.create(config_map("web").data("size", "1")).await;
    cluster.advance(Duration::from_secs(61)).await;
    let _: testkit::Object = cluster.patch(config_map("web"), json!({"data": {"size": "2"}})).await;
    cluster.advance(Duration::from_secs(61)).await;
}

/// Creates a child, and adds the ownerReference afterwards. The buggy variant only adopts a child that it has just
/// created.
async fn orphan_is_adopted_later(cluster: &TestCluster, is_healthy: bool) {
    OPERATOR.owns_secrets().start(cluster, move |parent, cx| async move {
        let name = parent.name_any();
        let size = field(&parent, "size");
        let is_new = cx
            .create::<Secret>(json!({"metadata": {"name": name}, "stringData": {"size": size}}))
            .await?;
        let Some(child) = cx.get::<Secret>(&name).await? else {
            return again(5);
        };
        let has_owner = child
            .owner_references()
            .iter()
            .any(|it| Some(&it.uid) == parent.uid().as_ref());
        if !has_owner && (is_healthy || is_new) {
            let patch = json!({"metadata": {
                "resourceVersion": child.resource_version(), "ownerReferences": [parent.controller_owner_ref(&())],
            }});
            cx.merge::<Secret>(&name, patch).await?;
        }
        cx.merge::<Secret>(&name, json!({"stringData": {"size": size}})).await?;
        done()
    });
    cluster.create(config_map("web").data("size", "1")).await;
    cluster.settle().await;
    let _: testkit::Object = cluster.patch(config_map("web"), json!({"data": {"size": "2"}})).await;
    cluster.settle().await;
}

/// Writes the names of all entries into shards of two. The buggy variant deletes only the shard after the last one.
async fn shard(cx: &Context, is_healthy: bool) -> Done {
    let entries = cx.list::<ConfigMap>("kind=entry").await?;
    let mut names: Vec<_> = entries.iter().map(ResourceExt::name_any).collect();
    names.sort();
    let shards: Vec<_> = names.chunks(2).collect();
    for (nth, names) in shards.iter().enumerate() {
        let data: BTreeMap<_, _> = names.iter().map(|it| (it.as_str(), "here")).collect();
        let object = json!({"metadata": {"labels": {"kind": "shard"}}, "data": data});
        cx.apply::<ConfigMap>("shards", &format!("shard-{nth}"), object).await?;
    }
    if is_healthy {
        for old in cx.list::<ConfigMap>("kind=shard").await? {
            let nth = old.name_any().trim_start_matches("shard-").parse::<usize>();
            if nth.is_ok_and(|nth| nth >= shards.len()) {
                cx.delete::<ConfigMap>(&old.name_any()).await?;
            }
        }
    } else {
        cx.delete::<ConfigMap>(&format!("shard-{}", shards.len())).await?;
    }
    done()
}

async fn entries_are_spread_over_shards(cluster: &TestCluster, is_healthy: bool) {
    let cloud = cluster.external("cloud").of("shards");
    cluster.controller("shards", move |client: Client| {
        let cloud = cloud.clone();
        async move {
            let context = Context { client, cloud };
            Controller::new(
                context.api::<ConfigMap>(),
                watcher::Config::default().fields("metadata.name=index"),
            )
            .watches(
                context.api::<ConfigMap>(),
                watcher::Config::default().labels("kind=entry"),
                |_| Some(ObjectRef::new("index").within("default")),
            )
            .run(
                move |_, cx: Arc<Context>| async move { shard(&cx, is_healthy).await },
                |_, _: &Error, _| Action::requeue(Duration::from_secs(5)),
                Arc::new(context),
            )
            .for_each(|_| async {})
            .await;
        }
    });
    cluster.create(config_map("index")).await;
    for name in ["ant", "bee", "cat", "dog", "eel"] {
        cluster.create(config_map(name).label("kind", "entry")).await;
    }
    cluster.settle().await;
    for name in ["ant", "bee", "cat", "dog"] {
        cluster.delete(config_map(name)).await;
        cluster.settle().await;
    }
}

const SLOTS: usize = 2;

/// Admits at most two Apps. The buggy variant counts the slots in use instead of their holders.
async fn admit(app: &ConfigMap, cx: &Context, is_healthy: bool) -> Done {
    let name = app.name_any();
    if !is_deleted(app) && !has_finalizer(app) {
        cx.add_finalizer(app, FINALIZER).await?;
        return done();
    }
    let Some(mut quota) = cx.get::<ConfigMap>("quota").await? else {
        return again(30);
    };
    let data = quota.data.get_or_insert_default();
    let used = data.get("used").and_then(|it| it.parse().ok()).unwrap_or(0_usize);
    if is_deleted(app) {
        if !has_finalizer(app) {
            return done();
        }
        if is_healthy {
            if data.remove(&name).is_some() {
                cx.replace(&quota).await?;
            }
        } else if annotation(app, "admitted") == "yes" {
            data.insert("used".to_owned(), used.saturating_sub(1).to_string());
            cx.replace(&quota).await?;
        }
        cx.remove_finalizer(app, FINALIZER).await?;
        return done();
    }
    if annotation(app, "admitted") == "yes" {
        return done();
    }
    if is_healthy {
        if !data.contains_key(&name) {
            if data.len() >= SLOTS {
                return again(30);
            }
            data.insert(name, "held".to_owned());
            cx.replace(&quota).await?;
        }
    } else {
        if used >= SLOTS {
            return again(30);
        }
        data.insert("used".to_owned(), (used + 1).to_string());
        cx.replace(&quota).await?;
    }
    cx.annotate(app, "admitted", "yes").await?;
    done()
}

async fn slots_of_a_quota_are_held_by_name(cluster: &TestCluster, is_healthy: bool) {
    OPERATOR.selects("kind=app").start(
        cluster,
        move |app, cx| async move { admit(&app, &cx, is_healthy).await },
    );
    cluster.create(config_map("quota")).await;
    for name in ["one", "two", "three"] {
        cluster.create(config_map(name).label("kind", "app")).await;
        cluster.settle().await;
    }
    cluster.delete(config_map("one")).await;
    cluster.advance(Duration::from_secs(65)).await;
    cluster.create(config_map("one").label("kind", "app")).await;
    cluster.advance(Duration::from_secs(65)).await;
}
