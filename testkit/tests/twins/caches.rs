//! Watches, caches and discovery.

use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::{ListParams, PostParams, WatchEvent, WatchParams};
use kube::runtime::{WatchStreamExt, reflector, watcher};
use kube::{Api, Client, ResourceExt};
use serde_json::json;
use testkit::TestCluster;
use testkit::objects::{config_map, object, serialized};
use tokio::time::sleep;

use crate::support::{OPERATOR, again, done, plain};

twins! {
    plain();
    failed_discovery_is_retried: "end state", "secrets default/web";
    failed_version_request_is_retried: "end state", "secrets default/web";
    controller_waits_until_its_kind_is_installed: "end state", "secrets default/";
    ended_stream_is_reopened: "end state", "secrets default/";
    controller_waits_until_its_cache_has_synced: "end state", "secrets default/";
    loop_continues_after_an_error: "end state", "secrets default/";
    deleted_child_is_recreated: "idempotence", "secrets default/web";
    failed_discovery_of_a_group_is_not_cached: "end state", "secrets default/";
}

async fn make(client: &Client, name: &str) -> kube::Result<()> {
    let secrets = Api::<Secret>::default_namespaced(client.clone());
    let mut secret = Secret::default();
    secret.metadata.name = Some(name.to_owned());
    match secrets.create(&PostParams::default(), &secret).await {
        Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(()),
        created => created.map(drop),
    }
}

/// Reads the server's groups before it starts; the buggy variant continues without a feature if the request fails.
async fn failed_discovery_is_retried(cluster: &TestCluster, is_healthy: bool) {
    cluster.controller("operator", move |client| async move {
        let has_apps = loop {
            match client.list_api_groups().await {
                Ok(groups) => break groups.groups.iter().any(|it| it.name == "apps"),
                Err(_) if is_healthy => sleep(Duration::from_secs(5)).await,
                Err(_) => break false,
            }
        };
        while has_apps && make(&client, "web").await.is_err() {
            sleep(Duration::from_secs(5)).await;
        }
    });
    cluster.settle().await;
}

/// Requests the version of the server. The buggy variant does nothing more if this request fails.
async fn failed_version_request_is_retried(cluster: &TestCluster, is_healthy: bool) {
    cluster.controller("operator", move |client| async move {
        while client.apiserver_version().await.is_err() {
            if !is_healthy {
                return;
            }
            sleep(Duration::from_secs(5)).await;
        }
        while make(&client, "web").await.is_err() {
            sleep(Duration::from_secs(5)).await;
        }
    });
    cluster.settle().await;
}

/// Waits until its kind is installed. The buggy variant treats any error of discovery as an old server, and ends.
async fn controller_waits_until_its_kind_is_installed(cluster: &TestCluster, is_healthy: bool) {
    cluster.controller("operator", move |client| async move {
        loop {
            match client.list_api_group_resources("example.com/v1").await {
                Ok(_) => break,
                Err(kube::Error::Api(status)) if status.code == 404 || is_healthy => {}
                Err(kube::Error::Api(_)) => return,
                Err(_) => {}
            }
            sleep(Duration::from_secs(30)).await;
        }
        while make(&client, "installed").await.is_err() {
            sleep(Duration::from_secs(5)).await;
        }
    });
    cluster.advance(Duration::from_secs(40)).await;
    cluster
        .create(serialized(&json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": "pages.example.com"},
            "spec": {
                "group": "example.com", "scope": "Namespaced",
                "names": {"kind": "Page", "plural": "pages", "singular": "page", "listKind": "PageList"},
                "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                    "type": "object", "x-kubernetes-preserve-unknown-fields": true,
                }}}],
            },
        })))
        .await;
    cluster.advance(Duration::from_secs(60)).await;
    cluster.create(object("example.com/v1", "Page", "home")).await;
}

/// Requests the resources of a group at each reconciliation; the buggy variant caches the first response, even if it is
/// an error.
async fn failed_discovery_of_a_group_is_not_cached(cluster: &TestCluster, is_healthy: bool) {
    OPERATOR.start_with_memory(cluster, move |parent, cx, memory| async move {
        let is_known = memory.lock().unwrap().contains("asked");
        let found = match is_known && !is_healthy {
            true => memory.lock().unwrap().contains("batch"),
            false => {
                let found = cx.client.list_api_group_resources("batch/v1").await;
                memory.lock().unwrap().insert("asked".to_owned());
                match found {
                    Ok(found) => found.resources.iter().any(|it| it.name == "jobs"),
                    Err(err) if is_healthy => return Err(err.into()),
                    Err(_) => false,
                }
            }
        };
        if found {
            memory.lock().unwrap().insert("batch".to_owned());
            cx.create_secret(&parent, &parent.name_any(), json!({})).await?;
        }
        done()
    });
    for name in ["web", "shop"] {
        cluster.create(config_map(name)).await;
        cluster.settle().await;
    }
}

async fn two_maps(cluster: &TestCluster) {
    for name in ["web", "shop"] {
        cluster.create(config_map(name)).await;
        cluster.settle().await;
    }
}

/// Watches by hand: lists, watches, and lists again when the watch ends. The buggy variant lists only once.
async fn ended_stream_is_reopened(cluster: &TestCluster, is_healthy: bool) {
    cluster.controller("operator", move |client| async move {
        let maps = Api::<ConfigMap>::default_namespaced(client.clone());
        let ensure = async |name: String| {
            while make(&client, &name).await.is_err() {
                sleep(Duration::from_secs(5)).await;
            }
        };
        loop {
            if let Ok(list) = maps.list(&ListParams::default()).await {
                let version = list.metadata.resource_version.clone().unwrap_or_default();
                for map in list {
                    ensure(map.name_any()).await;
                }
                if let Ok(events) = maps.watch(&WatchParams::default(), &version).await {
                    let mut events = events.boxed();
                    while let Some(Ok(event)) = events.next().await {
                        if let WatchEvent::Added(map) = event {
                            ensure(map.name_any()).await;
                        }
                    }
                }
                if !is_healthy {
                    return;
                }
            }
            sleep(Duration::from_secs(1)).await;
        }
    });
    two_maps(cluster).await;
}

/// Deletes Secrets without a ConfigMap, every half minute. The buggy variant reads its cache before the cache has
/// synced.
async fn controller_waits_until_its_cache_has_synced(cluster: &TestCluster, is_healthy: bool) {
    cluster.controller("operator", move |client| async move {
        let (store, writer) = reflector::store();
        let maps = Api::<ConfigMap>::default_namespaced(client.clone());
        let events = watcher(maps, watcher::Config::default())
            .default_backoff()
            .reflect(writer);
        let fill = events.for_each(async |_| {});
        let clean = async {
            if is_healthy {
                let _ = store.wait_until_ready().await;
            }
            let secrets = Api::<Secret>::default_namespaced(client.clone());
            loop {
                let known: Vec<String> = store.state().iter().map(|it| it.name_any()).collect();
                let made = secrets
                    .list(&ListParams::default())
                    .await
                    .map(|it| it.items)
                    .unwrap_or_default();
                for secret in made.iter().filter(|it| !known.contains(&it.name_any())) {
                    let _ = secrets.delete(&secret.name_any(), &Default::default()).await;
                }
                sleep(Duration::from_secs(30)).await;
            }
        };
        futures::join!(fill, clean);
    });
    for name in ["web", "shop"] {
        cluster.create(config_map(name)).await;
        cluster.create(testkit::objects::secret(name)).await;
    }
    cluster.advance(Duration::from_secs(70)).await;
}

/// Lists every half minute and creates missing objects. The buggy variant ends at the first error.
async fn loop_continues_after_an_error(cluster: &TestCluster, is_healthy: bool) {
    cluster.controller("operator", move |client| async move {
        let maps = Api::<ConfigMap>::default_namespaced(client.clone());
        let once = async || -> kube::Result<()> {
            for map in maps.list(&ListParams::default()).await? {
                make(&client, &map.name_any()).await?;
            }
            Ok(())
        };
        while once().await.is_ok() || is_healthy {
            sleep(Duration::from_secs(30)).await;
        }
    });
    cluster.create(config_map("web")).await;
    cluster.advance(Duration::from_secs(40)).await;
    cluster.create(config_map("shop")).await;
    cluster.advance(Duration::from_secs(40)).await;
}

/// Recreates a child that the user deletes. The buggy variant remembers that it has created it.
async fn deleted_child_is_recreated(cluster: &TestCluster, is_healthy: bool) {
    OPERATOR
        .owns_secrets()
        .start_with_memory(cluster, move |parent, cx, memory| async move {
            let name = parent.name_any();
            if !is_healthy && memory.lock().unwrap().contains(&name) {
                return done();
            }
            cx.create_secret(&parent, &name, json!({})).await?;
            if is_healthy {
                // kube-runtime does not report deleted objects after it has listed again.
                return again(60);
            }
            if !is_healthy {
                // A child that existed at the start of the controller is not remembered.
                let secret = cx.get::<Secret>(&name).await?;
                if secret.is_some_and(|it| it.annotations().contains_key("made")) {
                    memory.lock().unwrap().insert(name.clone());
                }
                cx.merge::<Secret>(&name, json!({"metadata": {"annotations": {"made": "yes"}}}))
                    .await?;
                if memory.lock().unwrap().is_empty() {
                    memory.lock().unwrap().clear();
                }
            }
            done()
        });
    cluster.create(config_map("web")).await;
    cluster.settle().await;
    cluster.delete(testkit::objects::secret("web")).await;
    cluster.settle().await;
}
