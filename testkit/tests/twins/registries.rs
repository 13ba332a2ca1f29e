//! Records, addresses, disks, routes, pauses, dependencies and shared conditions.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::{ListParams, Patch, PatchParams};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};
use testkit::TestCluster;
use testkit::explore::External;
use testkit::objects::{config_map, deployment};
use tokio::time::sleep;

use crate::rotations::{once, put, set};
use crate::support::{Context, Done, Error, OPERATOR, again, annotation, done, field, plain};

twins! {
    plain();
    record_is_created_after_its_proof_of_ownership: "end state", "txt/web";
    address_of_another_object_is_not_assigned_after_a_restart: "end state", "configmaps default/api";
    disks_of_all_pages_are_kept: "end state", "vol-3";
    routes_of_objects_deleted_during_a_gap_are_removed: "end state", "web-2";
    paused_deployment_gets_its_replicas_back: "end state", "deployments.apps default/web";
    dependent_is_built_from_the_newest_dependency: "end state", "secrets default/app";
    conditions_of_two_controllers_are_kept: "end state", "configmaps default/web";
}

/// Synchronises DNS records with ConfigMaps. Records without a TXT record belong to other owners. The buggy variant
/// creates the TXT record last.
async fn sync_records(maps: &Api<ConfigMap>, cloud: &External, is_healthy: bool) -> Result<(), Error> {
    let records: BTreeMap<String, Value> = cloud.list().await?.into_iter().collect();
    let sources = maps.list(&ListParams::default()).await?.items;
    for source in &sources {
        let name = source.name_any();
        let (record, owner) = (format!("a/{name}"), format!("txt/{name}"));
        let wanted = json!({"target": field(source, "target")});
        let is_owned = records.contains_key(&owner);
        match records.get(&record) {
            Some(known) if is_owned && *known != wanted => cloud.update(&record, wanted).await?,
            Some(_) => {}
            None => {
                if !is_owned && is_healthy {
                    cloud.create(&owner, json!({"owner": "dns"})).await?;
                }
                cloud.create(&record, wanted).await?;
                if !is_owned && !is_healthy {
                    cloud.create(&owner, json!({"owner": "dns"})).await?;
                }
            }
        }
    }
    let mut surplus: Vec<&str> = records.keys().filter_map(|it| it.strip_prefix("txt/")).collect();
    surplus.retain(|name| !sources.iter().any(|it| it.name_any() == *name));
    for name in surplus {
        once(cloud.delete(&format!("a/{name}")).await)?;
        once(cloud.delete(&format!("txt/{name}")).await)?;
    }
    Ok(())
}

/// Synchronises DNS records in a polling loop. The buggy variant creates a record before the TXT record that proves its
/// ownership.
///
/// A crash or an error between the two calls makes it treat its own record as the record of another owner, which it
/// never updates.
async fn record_is_created_after_its_proof_of_ownership(cluster: &TestCluster, is_healthy: bool) {
    let cloud = cluster.external("cloud").of("dns");
    cluster.controller("dns", move |client: Client| {
        let (maps, cloud) = (Api::<ConfigMap>::default_namespaced(client), cloud.clone());
        async move {
            loop {
                let pause = match sync_records(&maps, &cloud, is_healthy).await {
                    Ok(()) => 30,
                    Err(_) => 5,
                };
                sleep(Duration::from_secs(pause)).await;
            }
        }
    });
    cluster.create(config_map("web").data("target", "192.0.2.1")).await;
    cluster.advance(Duration::from_secs(65)).await;
    set(cluster, "web", "target", "192.0.2.2").await;
    cluster.advance(Duration::from_secs(180)).await;
}

/// Assigns the lowest free address to an object without an address. `seen` contains the assigned addresses; the buggy
/// variant only adds the addresses of objects whose events it has received.
async fn assign(maps: &Api<ConfigMap>, name: &str, seen: &mut BTreeSet<String>, is_healthy: bool) -> Result<(), Error> {
    let Some(map) = maps.get_opt(name).await? else {
        return Ok(());
    };
    let own = field(&map, "address");
    if !own.is_empty() {
        seen.insert(own.to_owned());
        return Ok(());
    }
    if is_healthy {
        let all = maps.list(&ListParams::default()).await?.items;
        *seen = all.iter().map(|it| field(it, "address").to_owned()).collect();
    }
    let free = (1..).map(|it: u32| it.to_string()).find(|it| !seen.contains(it));
    let patch = json!({
        "metadata": {"resourceVersion": map.resource_version()}, "data": {"address": free},
    });
    maps.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await?;
    seen.extend(free);
    Ok(())
}

/// Assigns addresses in a watch loop. The buggy variant remembers the assigned addresses in memory.
///
/// After a crash before the assignment, or after a late start, the first listed object gets an address that an object
/// later in the list already has.
async fn address_of_another_object_is_not_assigned_after_a_restart(cluster: &TestCluster, is_healthy: bool) {
    cluster.controller("addresses", move |client: Client| async move {
        let maps = Api::<ConfigMap>::default_namespaced(client);
        let mut seen = BTreeSet::new();
        let mut events = watcher(maps.clone(), watcher::Config::default())
            .default_backoff()
            .applied_objects()
            .boxed();
        while let Some(event) = events.next().await {
            let Ok(map) = event else { continue };
            while assign(&maps, &map.name_any(), &mut seen, is_healthy).await.is_err() {
                sleep(Duration::from_secs(3)).await;
            }
        }
    });
    // A user has selected this address.
    cluster.create(config_map("web").data("address", "1")).await;
    cluster.settle().await;
    cluster.create(config_map("api")).await;
    cluster.settle().await;
}

/// Returns the names of all ConfigMaps. The buggy variant returns the names so far if a further page fails.
async fn names(maps: &Api<ConfigMap>, is_healthy: bool) -> Result<BTreeSet<String>, Error> {
    let mut names = BTreeSet::new();
    let mut params = ListParams::default().limit(2);
    loop {
        let page = match maps.list(&params).await {
            Ok(page) => page,
            Err(_) if !is_healthy && !names.is_empty() => return Ok(names),
            Err(err) => return Err(err.into()),
        };
        names.extend(page.items.iter().map(ResourceExt::name_any));
        match page.metadata.continue_.filter(|it| !it.is_empty()) {
            Some(token) => params = params.continue_token(&token),
            None => return Ok(names),
        }
    }
}

/// Deletes disks without volumes. The disks are listed first: a listed disk without a volume has lost its volume.
async fn collect_disks(maps: &Api<ConfigMap>, cloud: &External, is_healthy: bool) -> Result<(), Error> {
    let disks = cloud.list().await?;
    let volumes = names(maps, is_healthy).await?;
    for (disk, _) in disks {
        if !volumes.contains(&disk) {
            once(cloud.delete(&disk).await)?;
        }
    }
    Ok(())
}

/// Creates a disk for each volume once, and deletes disks without volumes in a polling loop. The buggy variant of the
/// loop uses an incomplete list of volumes.
///
/// An error of the list's second page, such as 410 or 500, makes it delete the disks of the volumes on that page.
async fn disks_of_all_pages_are_kept(cluster: &TestCluster, is_healthy: bool) {
    OPERATOR.named("disks").start(cluster, move |volume, cx| async move {
        let name = volume.name_any();
        let newest = cx.get::<ConfigMap>(&name).await?;
        if newest.is_some_and(|it| annotation(&it, "disk") != name) {
            once(cx.cloud.create(&name, json!({"size": field(&volume, "size")})).await)?;
            cx.annotate(&volume, "disk", &name).await?;
        }
        done()
    });
    let cloud = cluster.external("cloud").of("collector");
    cluster.controller("collector", move |client: Client| {
        let (maps, cloud) = (Api::<ConfigMap>::default_namespaced(client), cloud.clone());
        async move {
            loop {
                let pause = match collect_disks(&maps, &cloud, is_healthy).await {
                    Ok(()) => 60,
                    Err(_) => 5,
                };
                sleep(Duration::from_secs(pause)).await;
            }
        }
    });
    for nth in 1..=4 {
        cluster
            .create(config_map(&format!("vol-{nth}")).data("size", "10"))
            .await;
    }
    cluster.settle().await;
    cluster.advance(Duration::from_secs(70)).await;
    cluster.delete(config_map("vol-4")).await;
    cluster.advance(Duration::from_secs(200)).await;
}

/// Creates and updates the wanted routes. Deletes all other routes; the buggy variant only deletes the route `gone`.
async fn sync_routes(
    cloud: &External,
    wanted: &BTreeMap<String, Value>,
    gone: Option<&String>,
    is_healthy: bool,
) -> Result<(), Error> {
    let known: BTreeMap<String, Value> = cloud.list().await?.into_iter().collect();
    for (name, route) in wanted {
        match known.get(name) {
            Some(it) if it == route => {}
            Some(_) => cloud.update(name, route.clone()).await?,
            None => cloud.create(name, route.clone()).await?,
        }
    }
    for name in known.keys() {
        if !wanted.contains_key(name) && (is_healthy || gone == Some(name)) {
            cloud.delete(name).await?;
        }
    }
    Ok(())
}

/// Keeps a route for each ConfigMap, in a watch loop. The buggy variant only deletes a route when it receives the event
/// of a deletion.
///
/// A crash or an expired watch hides the deletion from it: the object is only absent from the next list.
async fn routes_of_objects_deleted_during_a_gap_are_removed(cluster: &TestCluster, is_healthy: bool) {
    async fn run(client: Client, cloud: External, is_healthy: bool) {
        let maps = Api::<ConfigMap>::default_namespaced(client);
        let mut events = watcher(maps, watcher::Config::default()).default_backoff().boxed();
        let (mut wanted, mut is_listed) = (BTreeMap::new(), false);
        while let Some(event) = events.next().await {
            let Ok(event) = event else { continue };
            let mut gone = None;
            match event {
                watcher::Event::Init => {
                    wanted.clear();
                    is_listed = false;
                }
                watcher::Event::InitDone => is_listed = true,
                watcher::Event::InitApply(map) | watcher::Event::Apply(map) => {
                    wanted.insert(map.name_any(), json!({"host": field(&map, "host")}));
                }
                watcher::Event::Delete(map) => {
                    wanted.remove(&map.name_any());
                    gone = Some(map.name_any());
                }
            }
            while is_listed && sync_routes(&cloud, &wanted, gone.as_ref(), is_healthy).await.is_err() {
                sleep(Duration::from_secs(3)).await;
            }
        }
    }
    let cloud = cluster.external("cloud").of("routes");
    cluster.controller("routes", move |client: Client| run(client, cloud.clone(), is_healthy));
    for name in ["web-1", "web-2"] {
        cluster.create(config_map(name).data("host", name)).await;
    }
    cluster.settle().await;
    cluster.delete(config_map("web-2")).await;
    cluster.settle().await;
}

/// Scales a Deployment to zero while its policy is paused, and then back. The healthy variant saves the number of
/// replicas in the write that scales the Deployment; the buggy variant has three writes.
///
/// A crash or an error after the Deployment was scaled makes the buggy variant save zero as the former number. If the
/// user ends the pause first, the buggy variant never scales the Deployment back.
async fn paused_deployment_gets_its_replicas_back(cluster: &TestCluster, is_healthy: bool) {
    async fn reconciled(policy: &ConfigMap, cx: &Context, is_healthy: bool) -> Done {
        let name = policy.name_any();
        let Some(app) = cx.get::<Deployment>(&name).await? else {
            return again(5);
        };
        let is_paused = app.annotations().contains_key("paused");
        let is_pause_wanted = field(policy, "paused") == "yes";
        let version = app.resource_version();
        if is_pause_wanted && !is_paused {
            let replicas = app.spec.as_ref().and_then(|it| it.replicas).unwrap_or(1).to_string();
            if is_healthy {
                let patch = json!({
                    "metadata": {"resourceVersion": version, "annotations": {"paused": "yes", "saved": replicas}},
                    "spec": {"replicas": 0},
                });
                cx.merge::<Deployment>(&name, patch).await?;
                return again(60);
            }
            let saved = json!({"metadata": {"annotations": {"saved": replicas}}});
            cx.merge::<Deployment>(&name, saved).await?;
            cx.merge::<Deployment>(&name, json!({"spec": {"replicas": 0}})).await?;
            let marked = json!({"metadata": {"annotations": {"paused": "yes"}}});
            cx.merge::<Deployment>(&name, marked).await?;
        } else if is_paused && !is_pause_wanted {
            let saved: Option<i32> = app.annotations().get("saved").and_then(|it| it.parse().ok());
            let replicas = saved.unwrap_or(1);
            let patch = json!({
                "metadata": {"resourceVersion": version, "annotations": {"paused": null, "saved": null}},
                "spec": {"replicas": replicas},
            });
            cx.merge::<Deployment>(&name, patch).await?;
        }
        again(60)
    }
    OPERATOR.start(cluster, move |policy, cx| async move {
        reconciled(&policy, &cx, is_healthy).await
    });
    cluster.create(deployment("web").set("spec.replicas", 3)).await;
    cluster.create(config_map("web").data("paused", "yes")).await;
    cluster.settle().await;
    set(cluster, "web", "paused", "no").await;
    cluster.advance(Duration::from_secs(150)).await;
}

/// Builds an application from the output of its infrastructure, with one controller for each. The buggy variant uses
/// any existing output; the healthy variant waits for the output of the infrastructure's current revision.
///
/// A crash, an error or a delayed watch of the controller `infra` makes the buggy variant use the former output.
async fn dependent_is_built_from_the_newest_dependency(cluster: &TestCluster, is_healthy: bool) {
    OPERATOR
        .named("infra")
        .selects("kind=infra")
        .start(cluster, move |infra, cx| async move {
            let revision = field(&infra, "revision");
            put(&cx, &infra.name_any(), json!({"revision": revision})).await?;
            done()
        });
    OPERATOR
        .named("app")
        .selects("kind=app")
        .start(cluster, move |app, cx| async move {
            let revision = field(&app, "revision");
            if annotation(&app, "applied") == revision {
                return done();
            }
            let infra = cx.get::<ConfigMap>("infra").await?;
            let output = cx.get::<Secret>("infra").await?;
            let (Some(infra), Some(output)) = (infra, output) else {
                return again(3);
            };
            let built_from = output.labels().get("revision").map_or("", String::as_str);
            if is_healthy && built_from != field(&infra, "revision") {
                return again(3);
            }
            put(&cx, &app.name_any(), json!({"revision": revision, "infra": built_from})).await?;
            cx.annotate(&app, "applied", revision).await?;
            done()
        });
    for kind in ["infra", "app"] {
        cluster
            .create(config_map(kind).label("kind", kind).data("revision", "1"))
            .await;
        cluster.settle().await;
    }
    for kind in ["infra", "app"] {
        set(cluster, kind, "revision", "2").await;
    }
}

/// Two controllers write their conditions into one list of the same object. The buggy variant replaces the list that it
/// has read, even if the object has changed since.
///
/// A delayed watch or a slow write makes it remove the condition that the other controller has written meanwhile.
async fn conditions_of_two_controllers_are_kept(cluster: &TestCluster, is_healthy: bool) {
    async fn reported(parent: &ConfigMap, cx: &Context, kind: &str, is_healthy: bool) -> Done {
        let (wanted, observed) = (field(parent, kind), format!("observed-{kind}"));
        if annotation(parent, &observed) == wanted {
            return done();
        }
        let known = serde_json::from_str(annotation(parent, "conditions"));
        let mut conditions: BTreeMap<String, String> = known.unwrap_or_default();
        conditions.insert(kind.to_owned(), wanted.to_owned());
        let mut patch = json!({"metadata": {"annotations": {"conditions": json!(conditions).to_string()}}});
        patch["metadata"]["annotations"][&observed] = wanted.into();
        if is_healthy {
            patch["metadata"]["resourceVersion"] = json!(parent.resource_version());
        }
        cx.merge::<ConfigMap>(&parent.name_any(), patch).await?;
        done()
    }
    for kind in ["storage", "network"] {
        OPERATOR.named(kind).start(cluster, move |parent, cx| async move {
            reported(&parent, &cx, kind, is_healthy).await
        });
    }
    cluster.create(config_map("web").data("storage", "1")).await;
    cluster.settle().await;
    set(cluster, "web", "network", "1").await;
    set(cluster, "web", "storage", "2").await;
}
