//! Joins of two caches, hand-written watches and writers, and results of other controllers.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::{ListParams, WatchEvent, WatchParams};
use kube::runtime::controller::{Action, Controller};
use kube::runtime::reflector::{self, ObjectRef, Store};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Client, ResourceExt};
use serde_json::json;
use testkit::explore::{External, ExternalError};
use testkit::objects::{config_map, secret};
use testkit::{Object, TestCluster};

use crate::sites::{Site, change, patch_status, site, sites, start, status};
use crate::support::{Context, Error, OPERATOR, again, done, field};

twins! {
    sites();
    referenced_secret_is_read_from_the_server: "end state", "cloud web";
    hash_and_content_come_from_one_read: "end state", "secrets default/web data.text";
    change_during_the_write_is_not_lost: "end state", "secrets default/all";
    deletion_between_watches_is_noticed: "end state", "cloud old: unexpected";
    dependency_is_ready_for_its_generation: "end state", "configmaps default/app data.url";
    unseen_machine_is_not_created_twice: "end state", "cloud";
}

fn text_of(secret: &Secret, key: &str) -> String {
    let data = secret.data.as_ref().and_then(|it| it.get(key));
    data.map_or_else(String::new, |it| String::from_utf8_lossy(&it.0).into_owned())
}

async fn put(cloud: &External, key: &str, value: serde_json::Value) -> Result<(), ExternalError> {
    match cloud.create(key, value.clone()).await {
        Err(ExternalError::AlreadyExists(_)) => cloud.update(key, value).await,
        created => created,
    }
}

/// Records the token of a Secret that the object refers to. Events of Secrets start a reconciliation. The buggy variant
/// reads the Secret from another cache, which has its own watch.
async fn referenced_secret_is_read_from_the_server(cluster: &TestCluster, is_healthy: bool) {
    let cloud = cluster.external("cloud").of("joins");
    cluster.controller("joins", move |client: Client| {
        let cx = Context {
            client,
            cloud: cloud.clone(),
        };
        async move {
            let (view, writer) = reflector::store::<Secret>();
            let filled = watcher(cx.api::<Secret>(), watcher::Config::default())
                .default_backoff()
                .reflect(writer)
                .for_each(|_| async {});
            let maps = Controller::new(cx.api::<ConfigMap>(), watcher::Config::default());
            let all = maps.store();
            let controller = maps
                .watches(cx.api::<Secret>(), watcher::Config::default(), move |secret| {
                    let users = all
                        .state()
                        .into_iter()
                        .filter(|it| field(it, "secret") == secret.name_any());
                    users.map(|it| ObjectRef::from_obj(&*it)).collect::<Vec<_>>()
                })
                .run(
                    move |map, cx: Arc<Context>| {
                        let view = view.clone();
                        async move { join(&map, &cx, &view, is_healthy).await }
                    },
                    |_, _: &Error, _| Action::requeue(Duration::from_secs(5)),
                    Arc::new(cx),
                )
                .for_each(|_| async {});
            tokio::join!(filled, controller);
        }
    });
    cluster.create(secret("login").data("token", "a")).await;
    cluster.create(config_map("web").data("secret", "login")).await;
    cluster.settle().await;
    let _: Object = cluster
        .patch(secret("login"), json!({"stringData": {"token": "b"}}))
        .await;
    cluster.settle().await;
}

async fn join(map: &ConfigMap, cx: &Context, view: &Store<Secret>, is_healthy: bool) -> Result<Action, Error> {
    let name = field(map, "secret");
    let found = match is_healthy {
        true => cx.get::<Secret>(name).await?.map(Arc::new),
        false => view.get(&ObjectRef::new(name).within("default")),
    };
    let Some(secret) = found else { return again(10) };
    put(&cx.cloud, &map.name_any(), json!({"token": text_of(&secret, "token")})).await?;
    done()
}

/// Copies a string with its hash, and writes only if the hash differs. The buggy variant combines the hash of the
/// newest object with the string of the cached object.
async fn hash_and_content_come_from_one_read(cluster: &TestCluster, is_healthy: bool) {
    OPERATOR.start(cluster, move |parent, cx| async move {
        let name = parent.name_any();
        let Some(live) = cx.get::<ConfigMap>(&name).await? else {
            return done();
        };
        let hash = format!("hash-of-{}", field(&live, "text"));
        let known = cx.get::<Secret>(&name).await?;
        if known.is_some_and(|it| it.annotations().get("hash") == Some(&hash)) {
            return done();
        }
        let text = field(if is_healthy { &live } else { &parent }, "text");
        let copy = json!({"metadata": {"annotations": {"hash": hash}}, "stringData": {"text": text}});
        cx.apply::<Secret>("operator", &name, copy).await?;
        done()
    });
    cluster.create(config_map("web").data("text", "one")).await;
    cluster.settle().await;
    let _: Object = cluster.patch(config_map("web"), json!({"data": {"text": "two"}})).await;
    cluster.settle().await;
}

/// The strings of all objects, and whether they must be written.
#[derive(Default)]
struct Texts {
    all: BTreeMap<String, String>,
    is_dirty: bool,
}

/// A writer checks every second whether the strings have changed. The buggy variant clears the flag after the write
/// instead of before it.
async fn change_during_the_write_is_not_lost(cluster: &TestCluster, is_healthy: bool) {
    let cloud = cluster.external("cloud").of("writer");
    cluster.controller("writer", move |client: Client| {
        let cx = Context {
            client,
            cloud: cloud.clone(),
        };
        async move {
            let texts = Arc::new(Mutex::new(Texts::default()));
            tokio::join!(read_texts(&cx, &texts), write_texts(&cx, &texts, is_healthy));
        }
    });
    for (name, text) in [("a", "1"), ("b", "2"), ("c", "3")] {
        cluster.create(config_map(name).data("text", text)).await;
        cluster.settle().await;
    }
}

async fn read_texts(cx: &Context, texts: &Mutex<Texts>) {
    let mut events = watcher(cx.api::<ConfigMap>(), watcher::Config::default())
        .default_backoff()
        .boxed();
    let mut listed = BTreeMap::new();
    while let Some(event) = events.next().await {
        let mut texts = texts.lock().expect("no task panics");
        match event {
            Ok(watcher::Event::Init) => listed.clear(),
            Ok(watcher::Event::InitApply(it)) => drop(listed.insert(it.name_any(), field(&it, "text").to_owned())),
            Ok(watcher::Event::InitDone) => {
                texts.all = std::mem::take(&mut listed);
                texts.is_dirty = true;
            }
            Ok(watcher::Event::Apply(it)) => {
                texts.all.insert(it.name_any(), field(&it, "text").to_owned());
                texts.is_dirty = true;
            }
            Ok(watcher::Event::Delete(it)) => {
                texts.all.remove(&it.name_any());
                texts.is_dirty = true;
            }
            Err(_) => {}
        }
    }
}

async fn write_texts(cx: &Context, texts: &Mutex<Texts>, is_healthy: bool) {
    loop {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let all = {
            let mut texts = texts.lock().expect("no task panics");
            if !texts.is_dirty {
                continue;
            }
            texts.is_dirty = !is_healthy;
            texts.all.clone()
        };
        let written = cx.apply::<Secret>("writer", "all", json!({"stringData": all})).await;
        texts.lock().expect("no task panics").is_dirty |= written.is_err();
        if !is_healthy && written.is_ok() {
            texts.lock().expect("no task panics").is_dirty = false;
        }
    }
}

/// Mirrors objects with its own list and watch. The buggy variant does not delete records that a new list does not
/// contain.
async fn deletion_between_watches_is_noticed(cluster: &TestCluster, is_healthy: bool) {
    let cloud = cluster.external("cloud").of("mirror");
    cluster.controller("mirror", move |client: Client| {
        let cx = Context {
            client,
            cloud: cloud.clone(),
        };
        async move {
            loop {
                if mirror(&cx, is_healthy).await.is_err() {
                    tokio::time::sleep(Duration::from_secs(5)).await;
                }
            }
        }
    });
    for name in ["old", "web"] {
        cluster.create(config_map(name).data("text", name)).await;
    }
    cluster.settle().await;
    cluster.delete(config_map("old")).await;
    cluster.settle().await;
}

async fn mirror(cx: &Context, is_healthy: bool) -> Result<(), Error> {
    let api = cx.api::<ConfigMap>();
    let list = api.list(&ListParams::default()).await?;
    if is_healthy {
        for (key, _) in cx.cloud.list().await? {
            if list.items.iter().all(|it| it.name_any() != key) {
                cx.cloud.delete(&key).await?;
            }
        }
    }
    for it in &list.items {
        put(&cx.cloud, &it.name_any(), json!({"text": field(it, "text")})).await?;
    }
    let version = list.metadata.resource_version.unwrap_or_default();
    let mut events = api.watch(&WatchParams::default(), &version).await?.boxed();
    while let Some(event) = events.next().await {
        match event? {
            WatchEvent::Added(it) | WatchEvent::Modified(it) => {
                put(&cx.cloud, &it.name_any(), json!({"text": field(&it, "text")})).await?;
            }
            WatchEvent::Deleted(it) => match cx.cloud.delete(&it.name_any()).await {
                Err(ExternalError::NotFound(_)) => {}
                deleted => deleted?,
            },
            WatchEvent::Bookmark(_) => {}
            WatchEvent::Error(_) => return Err(Error::NotYet("the watch has ended")),
        }
    }
    Ok(())
}

/// An app gets the address of its database once the database is ready. The buggy variant accepts the status of an
/// earlier generation.
async fn dependency_is_ready_for_its_generation(cluster: &TestCluster, is_healthy: bool) {
    start(
        cluster,
        "databases",
        |it, _| it,
        |site, cx| async move {
            let name = site.name_any();
            if site.spec.image != "database" || status(&site).observed_generation == site.metadata.generation {
                return done();
            }
            put(&cx.cloud, &name, json!({"host": site.spec.host})).await?;
            let ready = json!({"host": site.spec.host, "observedGeneration": site.metadata.generation});
            patch_status(&cx, &name, ready).await?;
            done()
        },
    );
    start(
        cluster,
        "apps",
        |it, _| it,
        move |site, cx| async move {
            if site.spec.image != "app" {
                return done();
            }
            let Some(database) = cx.get::<Site>(&site.spec.secret).await? else {
                return again(10);
            };
            let (status, generation) = (status(&database), database.metadata.generation);
            let is_ready = match is_healthy {
                true => status.observed_generation == generation,
                false => status.observed_generation.is_some(),
            };
            if !is_ready {
                return again(10);
            }
            let map = json!({"metadata": {"name": site.name_any()}, "data": {"url": status.host}});
            cx.create::<ConfigMap>(map).await?;
            done()
        },
    );
    cluster
        .create(site("db", json!({"image": "database", "host": "one"})))
        .await;
    cluster.settle().await;
    change(cluster, "db", json!({"host": "two"})).await;
    cluster.settle().await;
    cluster
        .create(site("app", json!({"image": "app", "secret": "db"})))
        .await;
    cluster.settle().await;
}

/// A new machine is listed half a minute after its creation. The buggy variant lists before it creates, instead of
/// using a key.
async fn unseen_machine_is_not_created_twice(cluster: &TestCluster, is_healthy: bool) {
    OPERATOR.start(cluster, move |parent, cx| async move {
        let name = parent.name_any();
        if !crate::support::annotation(&parent, "machine").is_empty() {
            return done();
        }
        let now = crate::support::now().as_second();
        let machine = json!({"name": name, "seen": now + 30});
        if is_healthy {
            match cx.cloud.create(&format!("machine-{name}"), machine).await {
                Ok(()) | Err(ExternalError::AlreadyExists(_)) => {}
                Err(err) => return Err(err.into()),
            }
        } else {
            let all = cx.cloud.list().await?;
            let is_seen = |it: &serde_json::Value| it["name"] == name.as_str() && it["seen"].as_i64() <= Some(now);
            if !all.iter().any(|(_, it)| is_seen(it)) {
                cx.cloud.add(machine).await?;
            }
        }
        cx.annotate(&parent, "machine", "made").await?;
        done()
    });
    cluster.create(config_map("web")).await;
    cluster.settle().await;
}
