//! Leftovers, heartbeats, Secrets in use, and systems outside of the cluster: snapshots, members, records of a domain.

use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, Preconditions};
use kube::runtime::watcher;
use kube::{Api, Client, Resource, ResourceExt};
use serde_json::{Value, json};
use testkit::TestCluster;
use testkit::explore::{External, ExternalError};
use testkit::objects::{config_map, object, secret};
use tokio::time::sleep;

use crate::sites::{Site, change, site, sites, start};
use crate::support::{Context, Error, FINALIZER, OPERATOR, again, annotation, done, field, now};

twins! {
    sites(), 60;
    credentials_without_a_site_are_deleted: "end state", "secrets default/web: missing";
    snapshot_is_taken_before_the_deletion: "end state", "cloud snapshot-web: missing";
    member_is_removed_before_its_pod: "end state", "cloud web-1: unexpected";
    missed_heartbeat_is_tolerated: "end state", "configmaps default/node data.ready";
    record_is_created_after_its_owner_record: "end state", "cloud txt-a.example.com: missing";
    secret_in_use_is_kept: "end state", "secrets default/login metadata.annotations.users: expected \"1\", found \"2\"";
}

/// Deletes credentials that do not belong to a Site, once a minute. The buggy variant lists the Sites first.
async fn credentials_without_a_site_are_deleted(cluster: &TestCluster, is_healthy: bool) {
    cluster.controller("sweeper", move |client: Client| async move {
        let sites = Api::<Site>::default_namespaced(client.clone());
        let secrets = Api::<Secret>::default_namespaced(client);
        loop {
            let _ = sweep(&sites, &secrets, is_healthy).await;
            sleep(Duration::from_secs(60)).await;
        }
    });
    cluster.create(site("blog", json!({}))).await;
    cluster.create(secret("blog").label("site", "blog")).await;
    cluster.advance(Duration::from_secs(90)).await;
    cluster.create(site("web", json!({}))).await;
    cluster.create(secret("web").label("site", "web")).await;
    cluster.advance(Duration::from_secs(90)).await;
    cluster.delete(object("example.com/v1", "Site", "blog")).await;
    cluster.advance(Duration::from_secs(90)).await;
}

async fn sweep(sites: &Api<Site>, secrets: &Api<Secret>, is_healthy: bool) -> kube::Result<()> {
    let labelled = ListParams::default().labels("site");
    let (known, found) = if is_healthy {
        let found = secrets.list(&labelled).await?;
        (sites.list(&ListParams::default()).await?, found)
    } else {
        let known = sites.list(&ListParams::default()).await?;
        (known, secrets.list(&labelled).await?)
    };
    for secret in found {
        if known.iter().any(|it| it.name_any() == secret.labels()["site"]) {
            continue;
        }
        let params = DeleteParams {
            preconditions: Some(Preconditions {
                uid: secret.uid(),
                resource_version: None,
            }),
            ..Default::default()
        };
        match secrets.delete(&secret.name_any(), &params).await {
            Err(kube::Error::Api(status)) if status.is_not_found() || status.is_conflict() => {}
            deleted => drop(deleted?),
        }
    }
    Ok(())
}

async fn set_finalizers(cx: &Context, site: &Site, finalizers: &[&str]) -> Result<(), Error> {
    let patch = json!({"metadata": {"finalizers": finalizers, "resourceVersion": site.resource_version()}});
    cx.merge::<Site>(&site.name_any(), patch).await.map(drop)
}

async fn ensure(cloud: &External, key: &str, value: Value) -> Result<(), ExternalError> {
    match cloud.create(key, value).await {
        Err(ExternalError::AlreadyExists(_)) => Ok(()),
        created => created,
    }
}

async fn remove(cloud: &External, key: &str) -> Result<(), ExternalError> {
    match cloud.delete(key).await {
        Err(ExternalError::NotFound(_)) => Ok(()),
        deleted => deleted,
    }
}

/// Takes a snapshot of a disk before it deletes it. The buggy variant ignores an error of the snapshot.
async fn snapshot_is_taken_before_the_deletion(cluster: &TestCluster, is_healthy: bool) {
    start(
        cluster,
        "disks",
        |it, _| it,
        move |site, cx| async move {
            let (disk, snapshot) = (
                format!("disk-{}", site.name_any()),
                format!("snapshot-{}", site.name_any()),
            );
            if site.metadata.deletion_timestamp.is_none() {
                if site.finalizers().is_empty() {
                    set_finalizers(&cx, &site, &[FINALIZER]).await?;
                }
                ensure(&cx.cloud, &disk, json!({"size": site.spec.size})).await?;
                return done();
            }
            if site.finalizers().is_empty() {
                return done();
            }
            if cx.cloud.get(&disk).await?.is_some() {
                let taken = ensure(&cx.cloud, &snapshot, json!({"of": disk})).await;
                if is_healthy {
                    taken?;
                }
                remove(&cx.cloud, &disk).await?;
            }
            set_finalizers(&cx, &site, &[]).await?;
            done()
        },
    );
    cluster.create(site("web", json!({"size": 10}))).await;
    cluster.settle().await;
    cluster.delete(object("example.com/v1", "Site", "web")).await;
    cluster.settle().await;
}

/// Registers each Pod as a member, which leaves before its Pod is deleted. The buggy variant deletes the Pod first, and
/// only removes members with a Pod.
async fn member_is_removed_before_its_pod(cluster: &TestCluster, is_healthy: bool) {
    start(
        cluster,
        "members",
        |it, cx| it.owns(cx.api::<Pod>(), watcher::Config::default()),
        move |site, cx| async move {
            let name = site.name_any();
            let Some(site) = cx.get::<Site>(&name).await? else {
                return done();
            };
            let size = site.spec.size.unwrap_or(1);
            for nth in 0..size {
                let pod = format!("{name}-{nth}");
                ensure(&cx.cloud, &pod, json!({"peer": format!("http://{pod}:2380")})).await?;
                if cx.get::<Pod>(&pod).await?.is_none() {
                    cx.create::<Pod>(json!({
                        "metadata": {"name": pod, "labels": {"site": name},
                            "ownerReferences": [site.controller_owner_ref(&())]},
                        "spec": {"containers": [{"name": "main", "image": "etcd"}]},
                    }))
                    .await?;
                }
            }
            let is_surplus = |it: &str| {
                let nth = it.rsplit('-').next().and_then(|it| it.parse::<u32>().ok());
                nth.is_some_and(|it| it >= size)
            };
            if is_healthy {
                for (member, _) in cx.cloud.list().await? {
                    if is_surplus(&member) {
                        remove(&cx.cloud, &member).await?;
                    }
                }
            }
            for pod in cx.list::<Pod>(&format!("site={name}")).await? {
                if is_surplus(&pod.name_any()) {
                    cx.delete::<Pod>(&pod.name_any()).await?;
                    if !is_healthy {
                        remove(&cx.cloud, &pod.name_any()).await?;
                    }
                }
            }
            done()
        },
    );
    cluster.create(site("web", json!({"size": 3}))).await;
    cluster.settle().await;
    change(cluster, "web", json!({"size": 1})).await;
    cluster.settle().await;
}

/// An agent reports itself every ten seconds, and a monitor marks it as lost after forty seconds without a report. The
/// buggy variant only marks it as ready when the agent starts.
async fn missed_heartbeat_is_tolerated(cluster: &TestCluster, is_healthy: bool) {
    cluster.controller("agent", move |client: Client| async move {
        let maps = Api::<ConfigMap>::default_namespaced(client);
        let mut is_first = true;
        loop {
            let mut patch = json!({"metadata": {"annotations": {"heartbeat": now().to_string()}}});
            if is_first && !is_healthy {
                patch["data"] = json!({"ready": "True"});
            }
            let patched = maps.patch("node", &PatchParams::default(), &Patch::Merge(patch)).await;
            is_first = is_first && patched.is_err();
            sleep(Duration::from_secs(10)).await;
        }
    });
    OPERATOR.named("monitor").start(cluster, move |node, cx| async move {
        let Ok(last) = annotation(&node, "heartbeat").parse::<jiff::Timestamp>() else {
            return done();
        };
        let left = last.as_second() + 40 - now().as_second();
        let wanted = if left > 0 { "True" } else { "Unknown" };
        if field(&node, "ready") != wanted && (is_healthy || left <= 0) {
            let patch = json!({
                "metadata": {"resourceVersion": node.resource_version()},
                "data": {"ready": wanted, "since": now().to_string()},
            });
            cx.merge::<ConfigMap>(&node.name_any(), patch).await?;
        }
        again(left.max(20).unsigned_abs())
    });
    cluster.create(config_map("node")).await;
    cluster.advance(Duration::from_secs(120)).await;
}

/// Creates the record of a domain and another record with its owner; it never changes a record of a different owner.
/// The buggy variant creates the domain's record first, and after a crash treats it as the record of a different owner.
async fn record_is_created_after_its_owner_record(cluster: &TestCluster, is_healthy: bool) {
    start(
        cluster,
        "records",
        |it, _| it,
        move |site, cx| async move {
            let (name, host) = (site.name_any(), site.spec.host.clone());
            let is_deleted = site.metadata.deletion_timestamp.is_some();
            if is_deleted && site.finalizers().is_empty() {
                return done();
            }
            if !is_deleted && site.finalizers().is_empty() {
                set_finalizers(&cx, &site, &[FINALIZER]).await?;
                return done();
            }
            let all = cx.cloud.list().await?;
            let owner = json!({"owner": name});
            for (key, value) in &all {
                let Some(old) = key.strip_prefix("txt-") else { continue };
                if *value == owner && (is_deleted || old != host) {
                    remove(&cx.cloud, &format!("a-{old}")).await?;
                    remove(&cx.cloud, key).await?;
                }
            }
            if is_deleted {
                set_finalizers(&cx, &site, &[]).await?;
                return done();
            }
            let (txt, a) = (format!("txt-{host}"), format!("a-{host}"));
            let has = |wanted: &str| all.iter().find(|(key, _)| key == wanted).map(|it| &it.1);
            if has(&txt).is_some_and(|it| *it != owner) || (has(&txt).is_none() && has(&a).is_some()) {
                return done();
            }
            let address = json!({"target": site.spec.image});
            if is_healthy {
                ensure(&cx.cloud, &txt, owner).await?;
                ensure(&cx.cloud, &a, address.clone()).await?;
            } else {
                ensure(&cx.cloud, &a, address.clone()).await?;
                ensure(&cx.cloud, &txt, owner).await?;
            }
            if cx.cloud.get(&a).await? != Some(address.clone()) {
                cx.cloud.update(&a, address).await?;
            }
            done()
        },
    );
    cluster
        .create(site("web", json!({"host": "a.example.com", "image": "10.0.0.1"})))
        .await;
    cluster.settle().await;
    change(cluster, "web", json!({"host": "b.example.com", "image": "10.0.0.2"})).await;
    cluster.settle().await;
    change(cluster, "web", json!({"image": "10.0.0.3"})).await;
    cluster.settle().await;
}

/// Keeps a Secret until no Site uses it. The buggy variant counts the users in an annotation.
async fn secret_in_use_is_kept(cluster: &TestCluster, is_healthy: bool) {
    start(
        cluster,
        "protection",
        |it, _| it,
        move |site, cx| async move {
            let is_deleted = site.metadata.deletion_timestamp.is_some();
            if is_deleted == site.finalizers().is_empty() {
                return done();
            }
            let known = cx.get::<Secret>(&site.spec.secret).await?;
            let users: i64 = known
                .as_ref()
                .and_then(|it| it.annotations().get("users")?.parse().ok())
                .unwrap_or(0);
            let is_used = match is_healthy {
                true => cx
                    .list::<Site>("")
                    .await?
                    .iter()
                    .any(|it| it.spec.secret == site.spec.secret && it.metadata.deletion_timestamp.is_none()),
                false => users > 1,
            };
            if let Some(known) = known {
                let mut patch = json!({"metadata": {"resourceVersion": known.resource_version()}});
                if !is_deleted && (known.finalizers().is_empty() && known.metadata.deletion_timestamp.is_none()) {
                    patch["metadata"]["finalizers"] = json!(["example.com/in-use"]);
                }
                if is_deleted && !is_used {
                    patch["metadata"]["finalizers"] = json!([]);
                }
                if !is_healthy {
                    let users = if is_deleted { users - 1 } else { users + 1 };
                    patch["metadata"]["annotations"] = json!({"users": users.to_string()});
                }
                cx.merge::<Secret>(&site.spec.secret, patch).await?;
            }
            let finalizers: &[&str] = if is_deleted { &[] } else { &[FINALIZER] };
            set_finalizers(&cx, &site, finalizers).await?;
            done()
        },
    );
    cluster.create(secret("login")).await;
    for name in ["blog", "web"] {
        cluster.create(site(name, json!({"secret": "login"}))).await;
        cluster.settle().await;
    }
    cluster.delete(secret("login")).await;
    cluster.settle().await;
    for name in ["blog", "web"] {
        cluster.delete(object("example.com/v1", "Site", name)).await;
        cluster.settle().await;
    }
}
