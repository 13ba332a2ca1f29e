//! Patterns of published operators: the last valid configuration, configurations named by their content, a pool of
//! prepared objects, changes in batches, and numbers of objects that were deleted.

use std::hash::{DefaultHasher, Hash, Hasher};

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::ResourceExt;
use serde_json::json;
use testkit::TestCluster;
use testkit::objects::{config_map, secret};

use crate::support::{Error, OPERATOR, again, annotation, done, field, plain};

twins! {
    plain();
    last_valid_configuration_is_kept: "idempotence", "secrets default/web-config";
    configurations_named_by_content_are_deleted: "end state", "secrets default/web-";
    prepared_object_is_claimed: "end state", "secrets default/standby-";
    records_are_changed_in_batches: "end state", "cloud ";
    number_of_a_deleted_object_is_not_reused: "end state", "configmaps default/registry";
}

async fn set_size(cluster: &TestCluster, name: &str, size: &str) {
    let _: testkit::Object = cluster.patch(config_map(name), json!({"data": {"size": size}})).await;
}

/// Keeps the configuration if the new one is not a number. The buggy variant writes the last valid configuration again,
/// but only remembers it until it is restarted.
async fn last_valid_configuration_is_kept(cluster: &TestCluster, is_healthy: bool) {
    OPERATOR.start_with_memory(cluster, move |parent, cx, memory| async move {
        let size = field(&parent, "size").to_owned();
        let is_valid = size.parse::<u32>().is_ok();
        let known = memory.lock().unwrap().last().cloned();
        let wanted = match is_valid {
            true => Some(size),
            false if is_healthy => None,
            false => Some(known.unwrap_or_else(|| "0".to_owned())),
        };
        if let Some(size) = wanted {
            let config = json!({"metadata": {"labels": {"size": size}}});
            cx.apply::<Secret>("operator", "web-config", config).await?;
            memory.lock().unwrap().insert(size);
        }
        let valid = is_valid.to_string();
        if annotation(&parent, "valid") != valid {
            cx.annotate(&parent, "valid", &valid).await?;
        }
        done()
    });
    cluster.create(config_map("web").data("size", "1")).await;
    cluster.settle().await;
    for size in ["2", "none"] {
        set_size(cluster, "web", size).await;
        cluster.settle().await;
    }
}

/// Stores each configuration under a name with its hash, and keeps the current one and the newest of the others. The
/// buggy variant deletes nothing if the current one is already recorded.
async fn configurations_named_by_content_are_deleted(cluster: &TestCluster, is_healthy: bool) {
    OPERATOR.start(cluster, move |parent, cx| async move {
        let size = field(&parent, "size");
        let mut hasher = DefaultHasher::new();
        size.hash(&mut hasher);
        let name = format!("web-{:08x}", hasher.finish() & 0xffff_ffff);
        let is_recorded = annotation(&parent, "config") == name;
        if is_recorded && !is_healthy {
            return done();
        }
        cx.create_secret(&parent, &name, json!({"size": size})).await?;
        if !is_recorded {
            cx.annotate(&parent, "config", &name).await?;
        }
        let mut others = cx.list::<Secret>("of=web").await?;
        others.retain(|it| it.name_any() != name);
        others.sort_by_key(|it| (it.creation_timestamp().map(|it| it.0), it.name_any()));
        others.pop();
        for old in others {
            cx.delete::<Secret>(&old.name_any()).await?;
        }
        done()
    });
    cluster.create(config_map("web").data("size", "1")).await;
    cluster.settle().await;
    set_size(cluster, "web", "2").await;
    cluster.settle().await;
    for size in ["3", "4"] {
        set_size(cluster, "web", size).await;
    }
    cluster.settle().await;
    set_size(cluster, "web", "5").await;
    cluster.settle().await;
}

/// Gives each item one of the prepared Secrets. The buggy variant claims another one if the first one is not recorded
/// in the item.
async fn prepared_object_is_claimed(cluster: &TestCluster, is_healthy: bool) {
    OPERATOR
        .selects("kind=item")
        .start(cluster, move |item, cx| async move {
            if !annotation(&item, "standby").is_empty() {
                return done();
            }
            let (name, all) = (item.name_any(), cx.list::<Secret>("pool=standby").await?);
            let of = |it: &Secret| it.labels().get("of").cloned();
            let mine = all.iter().find(|it| is_healthy && of(it).as_ref() == Some(&name));
            let claimed = match mine {
                Some(mine) => mine.name_any(),
                None => {
                    let Some(free) = all.iter().find(|it| of(it).is_none()) else {
                        return again(30);
                    };
                    let metadata = json!({"resourceVersion": free.resource_version(), "labels": {"of": name}});
                    let claimed = free.name_any();
                    cx.merge::<Secret>(&claimed, json!({"metadata": metadata})).await?;
                    claimed
                }
            };
            cx.annotate(&item, "standby", &claimed).await?;
            done()
        });
    for name in ["standby-1", "standby-2", "standby-3", "standby-4"] {
        cluster.create(secret(name).label("pool", "standby")).await;
    }
    cluster.settle().await;
    for name in ["web", "shop", "blog"] {
        cluster.create(config_map(name).label("kind", "item")).await;
    }
    cluster.settle().await;
}

/// Changes at most two records of the external system at a time. The buggy variant remembers each change before it has
/// been made.
async fn records_are_changed_in_batches(cluster: &TestCluster, is_healthy: bool) {
    OPERATOR
        .selects("kind=item")
        .start_with_memory(cluster, move |_, cx, memory| async move {
            let (all, known) = (cx.list::<ConfigMap>("kind=item").await?, cx.cloud.list().await?);
            let mut changes = Vec::new();
            for item in &all {
                let (name, record) = (item.name_any(), json!({"size": field(item, "size")}));
                let present = known
                    .iter()
                    .find(|(key, _)| *key == name)
                    .map(|(_, value)| value.clone());
                let mark = format!("{name} {record}");
                let is_remembered = !is_healthy && memory.lock().unwrap().contains(&mark);
                if present.as_ref() != Some(&record) && !is_remembered {
                    changes.push((name, record, present.is_some(), mark));
                }
            }
            let is_last = changes.len() <= 2;
            for (name, record, is_present, mark) in changes.into_iter().take(2) {
                memory.lock().unwrap().insert(mark);
                match is_present {
                    true => cx.cloud.update(&name, record).await?,
                    false => cx.cloud.create(&name, record).await?,
                }
            }
            if is_last { done() } else { again(10) }
        });
    for name in ["web", "shop", "blog", "docs", "mail"] {
        cluster
            .create(config_map(name).label("kind", "item").data("size", "1"))
            .await;
    }
    cluster.settle().await;
    for name in ["mail", "blog", "web"] {
        set_size(cluster, name, "2").await;
    }
    cluster.advance(std::time::Duration::from_secs(60)).await;
}

/// Gives each object a number, and another one to a new object with the same name. The entry of a deleted object stays
/// in the registry. The buggy variant increments the number if it is not recorded in the object.
async fn number_of_a_deleted_object_is_not_reused(cluster: &TestCluster, is_healthy: bool) {
    OPERATOR
        .selects("kind=item")
        .start(cluster, move |item, cx| async move {
            let registry = cx
                .get::<ConfigMap>("registry")
                .await?
                .ok_or(Error::NotYet("no registry"))?;
            let (name, uid) = (item.name_any(), item.uid().unwrap_or_default());
            let (number, of) = field(&registry, &name).split_once(' ').unwrap_or_default();
            let is_new = match is_healthy {
                true => of != uid,
                false => annotation(&item, "number").is_empty(),
            };
            let mut number: u32 = number.parse().unwrap_or(0);
            if is_new {
                number += 1;
                let metadata = json!({"resourceVersion": registry.resource_version()});
                let data = json!({name: format!("{number} {uid}")});
                cx.merge::<ConfigMap>("registry", json!({"metadata": metadata, "data": data}))
                    .await?;
            }
            let number = number.to_string();
            if annotation(&item, "number") != number {
                cx.annotate(&item, "number", &number).await?;
            }
            done()
        });
    cluster.create(config_map("registry")).await;
    for _ in 0..2 {
        cluster.create(config_map("web").label("kind", "item")).await;
        cluster.settle().await;
        cluster.delete(config_map("web")).await;
        cluster.settle().await;
    }
    cluster.create(config_map("web").label("kind", "item")).await;
    cluster.settle().await;
}
