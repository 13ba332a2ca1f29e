//! Concurrent tasks, with errors that are repaired later, and heartbeats of several clients.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::{DeleteParams, ListParams, Preconditions};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Client, ResourceExt};
use serde_json::json;
use testkit::objects::config_map;
use testkit::{Object, TestCluster};

use crate::support::{Context, Error, OPERATOR, again, annotation, done, field, now, plain};

twins! {
    plain();
    retry_does_not_restore_an_old_value: "no field is rolled back", "secrets default/web data.text was";
    retry_does_not_replace_a_new_copy: "creates and deletes", "secrets default/web was created 3 times";
    only_the_agent_renews_the_heartbeat: "idempotence", "metadata.annotations";
}

/// The last observed version of each object.
type Versions = Arc<Mutex<BTreeMap<String, String>>>;

/// Copies data with a task for each event, and again each minute. A task first calls the cloud, and retries after a few
/// seconds. The buggy variant does not end a task when there is a task for a newer version.
async fn retry_does_not_restore_an_old_value(cluster: &TestCluster, is_healthy: bool) {
    copied(cluster, is_healthy, false).await;
}

/// Same as `retry_does_not_restore_an_old_value`, but a copy cannot be changed, only replaced.
async fn retry_does_not_replace_a_new_copy(cluster: &TestCluster, is_healthy: bool) {
    copied(cluster, is_healthy, true).await;
}

async fn copied(cluster: &TestCluster, is_healthy: bool, is_replaced: bool) {
    let cloud = cluster.external("cloud").of("copies");
    cluster.controller("copies", move |client: Client| {
        let cx = Context {
            client,
            cloud: cloud.clone(),
        };
        async move {
            let versions = Versions::default();
            let events = watcher(cx.api::<ConfigMap>(), watcher::Config::default());
            let mut events = events.default_backoff().applied_objects().boxed();
            let mut tasks = FuturesUnordered::new();
            let mut minute = tokio::time::interval(Duration::from_secs(60));
            loop {
                tokio::select! {
                    biased;
                    Some(event) = events.next() => {
                        if let Ok(map) = event {
                            let version = map.resource_version().unwrap_or_default();
                            versions.lock().expect("no task panics").insert(map.name_any(), version);
                            tasks.push(copy(&cx, map, &versions, is_healthy, is_replaced));
                        }
                    }
                    Some(()) = tasks.next(), if !tasks.is_empty() => {}
                    _ = minute.tick() => {
                        let Ok(list) = cx.api::<ConfigMap>().list(&ListParams::default()).await else { continue };
                        for map in list {
                            tasks.push(copy(&cx, map, &versions, is_healthy, is_replaced));
                        }
                    }
                }
            }
        }
    });
    cluster.create(config_map("web").data("text", "one")).await;
    cluster.settle().await;
    let _: Object = cluster.patch(config_map("web"), json!({"data": {"text": "two"}})).await;
    cluster.settle().await;
}

async fn copy(cx: &Context, map: ConfigMap, versions: &Versions, is_healthy: bool, is_replaced: bool) {
    loop {
        let is_newest =
            || versions.lock().expect("no task panics").get(&map.name_any()).cloned() == map.resource_version();
        let copied = copy_once(cx, &map, &|| is_newest() || !is_healthy, is_replaced).await;
        if copied.is_ok() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(3_500)).await;
    }
}

async fn copy_once(
    cx: &Context,
    map: &ConfigMap,
    is_wanted: &(dyn Fn() -> bool + Sync),
    is_replaced: bool,
) -> Result<(), Error> {
    cx.cloud.list().await?;
    let (name, text) = (map.name_any(), field(map, "text"));
    let known = cx.get::<Secret>(&name).await?;
    if !is_wanted() {
        return Ok(());
    }
    let copy = json!({"metadata": {"name": name}, "stringData": {"text": text}});
    let Some(mut known) = known else {
        let is_made = cx.create::<Secret>(copy).await?;
        return if is_made {
            Ok(())
        } else {
            Err(Error::NotYet("another task has made it"))
        };
    };
    let is_same = known
        .data
        .as_ref()
        .and_then(|it| it.get("text"))
        .is_some_and(|it| it.0 == text.as_bytes());
    if is_same {
        return Ok(());
    }
    if is_replaced {
        let newest = Preconditions {
            resource_version: known.resource_version(),
            uid: known.uid(),
        };
        cx.api::<Secret>()
            .delete(&name, &DeleteParams::default().preconditions(newest))
            .await?;
        // The next attempt creates the new copy.
        return Err(Error::NotYet("the old copy is deleted"));
    }
    known.string_data = Some([("text".to_owned(), text.to_owned())].into());
    cx.replace(&known).await
}

/// An agent writes the time every five minutes, and an operator writes it once. In the buggy variant, the operator
/// writes it after each start.
async fn only_the_agent_renews_the_heartbeat(cluster: &TestCluster, is_healthy: bool) {
    OPERATOR.named("agent").start(cluster, move |parent, cx| async move {
        let last = annotation(&parent, "seen").parse::<jiff::Timestamp>();
        let age = last.map_or(i64::MAX, |it| now().as_second() - it.as_second());
        if age >= 300 {
            cx.annotate(&parent, "seen", &now().to_string()).await?;
        }
        again(300)
    });
    OPERATOR.start_with_memory(cluster, move |parent, cx, memory| async move {
        let is_first = memory.lock().expect("no task panics").insert(parent.name_any());
        let is_wanted = match is_healthy {
            true => annotation(&parent, "seen").is_empty(),
            false => is_first,
        };
        if is_wanted {
            cx.annotate(&parent, "seen", &now().to_string()).await?;
        }
        done()
    });
    cluster.create(config_map("web")).await;
    cluster.advance(Duration::from_secs(1_700)).await;
}
