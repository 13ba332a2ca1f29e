//! Workloads: databases, brokers, volumes, backups, DNS records, ports of tenants.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::{DeleteParams, Preconditions};
use kube::{Resource, ResourceExt};
use serde_json::{Value, json};
use testkit::TestCluster;
use testkit::explore::ExternalError;
use testkit::objects::{config_map, secret};

use crate::rotations::{once, set};
use crate::support::{
    Context, Error, FINALIZER, Memory, OPERATOR, again, annotation, done, field, has_finalizer, is_deleted, plain,
};

twins! {
    plain();
    retention_keeps_three_backups: "end state", "secrets default/web-1: missing";
    replication_role_has_the_password_of_the_secret: "generated values", "cloud role-repl password";
    broker_is_drained_before_it_is_removed: "end state", "p-2";
    set_with_larger_volumes_keeps_its_replicas: "end state", "secrets default/db-set";
    each_proxy_has_loaded_the_recorded_config: "end state", "proxy-";
    operator_recognises_the_records_that_it_created: "end state", "example.com";
    readiness_of_all_members_is_in_the_status: "end state", "configmaps default/web";
    tenant_holds_one_port: "end state", "configmaps default/ports";
}

/// Seconds after which an operator compares an external system with its objects again.
pub(crate) const RESYNC: u64 = 300;

/// Returns the newest state of an object in a cache.
pub(crate) async fn live(cx: &Context, cached: &ConfigMap) -> Result<Option<ConfigMap>, Error> {
    cx.get::<ConfigMap>(&cached.name_any()).await
}

/// Sets annotations of an object. Fails if the object has changed since it was read.
pub(crate) async fn record(cx: &Context, known: &ConfigMap, annotations: Value) -> Result<(), Error> {
    let metadata = json!({"annotations": annotations, "resourceVersion": known.resource_version()});
    let patch = json!({"metadata": metadata});
    cx.merge::<ConfigMap>(&known.name_any(), patch).await.map(drop)
}

/// Creates or updates an object of the external system.
pub(crate) async fn ensure(cx: &Context, key: &str, wanted: Value) -> Result<(), ExternalError> {
    match cx.cloud.get(key).await? {
        None => cx.cloud.create(key, wanted).await,
        Some(known) if known != wanted => cx.cloud.update(key, wanted).await,
        Some(_) => Ok(()),
    }
}

fn number(parent: &ConfigMap, name: &str) -> usize {
    field(parent, name).parse().unwrap_or(0)
}

fn label<'a>(child: &'a Secret, name: &str) -> &'a str {
    child.labels().get(name).map_or("", String::as_str)
}

fn ordinal(name: &str) -> Option<usize> {
    name.rsplit('-').next()?.parse().ok()
}

/// Names of the parent's numbered children, the highest number first.
async fn numbered(cx: &Context, parent: &str) -> Result<Vec<String>, Error> {
    let children = cx.list::<Secret>(&format!("of={parent}")).await?;
    let mut names: Vec<String> = children.iter().map(ResourceExt::name_any).collect();
    names.retain(|it| ordinal(it).is_some());
    names.sort_by_key(|it| Reverse(ordinal(it)));
    Ok(names)
}

/// Deletes the oldest backups, so that this number remains.
async fn prune(cx: &Context, parent: &str, remaining: usize) -> Result<(), Error> {
    for backup in numbered(cx, parent).await?.into_iter().skip(remaining) {
        cx.delete::<Secret>(&backup).await?;
    }
    Ok(())
}

/// Backups on request, with retention: the user sets the number of a requested backup; the operator creates a Secret
/// with this number, keeps the three newest, and records the number of the request. Requests that the user replaces
/// before the operator has seen them are skipped; this is permitted.
///
/// In each pass, the healthy variant creates the backup, and then deletes the oldest backups if more than three exist:
/// a repetition finds three backups and deletes none. The buggy variant first deletes a backup to make room for the new
/// one. After a crash, or a lost response, between the creation and the record, the repetition makes room again, for a
/// backup that already exists: two backups remain.
async fn retention_keeps_three_backups(cluster: &TestCluster, is_healthy: bool) {
    const KEPT: usize = 3;
    OPERATOR.owns_secrets().start(cluster, move |cached, cx| async move {
        let Some(parent) = live(&cx, &cached).await? else {
            return done();
        };
        let (name, wanted) = (parent.name_any(), field(&parent, "backup"));
        let is_requested = !wanted.is_empty() && annotation(&parent, "last-backup") != wanted;
        if is_requested {
            if !is_healthy {
                prune(&cx, &name, KEPT - 1).await?;
            }
            cx.create_secret(&parent, &format!("{name}-{wanted}"), json!({}))
                .await?;
        }
        if is_healthy {
            prune(&cx, &name, KEPT).await?;
        }
        if is_requested {
            record(&cx, &parent, json!({"last-backup": wanted})).await?;
        }
        done()
    });
    cluster.create(config_map("web")).await;
    cluster.settle().await;
    for backup in ["1", "2", "3", "4"] {
        set(cluster, "web", "backup", backup).await;
    }
}

fn password_of(secret: &Secret) -> String {
    let password = secret.data.as_ref().and_then(|it| it.get("password"));
    password.map_or_else(String::new, |it| String::from_utf8_lossy(&it.0).into_owned())
}

/// Generates the password with which replicas connect to the primary. The password is in a Secret, and the role is in
/// the database. The value is random, so it differs between runs, but the two must be equal.
///
/// The healthy variant stores the password before it uses it, and sets the password of the Secret in each pass: a
/// password that was lost before it was stored was never used. The buggy variant creates the role first, and permits
/// that the role exists already, as `CREATE ROLE IF NOT EXISTS` does. After a crash before the Secret is created, it
/// generates another password, which is only stored in the Secret.
async fn replication_role_has_the_password_of_the_secret(cluster: &TestCluster, is_healthy: bool) {
    const ROLE: &str = "role-repl";
    OPERATOR.owns_secrets().start(cluster, move |cached, cx| async move {
        let Some(parent) = live(&cx, &cached).await? else {
            return done();
        };
        let name = format!("{}-repl", parent.name_any());
        let known = cx.get::<Secret>(&name).await?;
        let password = match &known {
            Some(it) => password_of(it),
            None => format!("{:016x}", fastrand::u64(..)),
        };
        if password.is_empty() {
            return Err(Error::NotYet("a user has removed the password"));
        }
        let content = json!({"password": password});
        if !is_healthy {
            once(cx.cloud.create(ROLE, content.clone()).await)?;
        }
        if known.is_none() && !cx.create_secret(&parent, &name, content.clone()).await? {
            return Err(Error::NotYet("another client has created the Secret"));
        }
        if is_healthy {
            ensure(&cx, ROLE, content).await?;
        }
        again(RESYNC)
    });
    cluster.create(config_map("db")).await;
    cluster.settle().await;
}

/// Returns the broker of each partition.
async fn placements(cx: &Context) -> Result<BTreeMap<String, String>, Error> {
    let partitions = cx.cloud.list().await?;
    let broker = |it: &Value| it["broker"].as_str().unwrap_or_default().to_owned();
    Ok(partitions.iter().map(|(key, it)| (key.clone(), broker(it))).collect())
}

fn least_loaded(name: &str, size: usize, placed: &BTreeMap<String, String>) -> String {
    let brokers = (0..size).map(|nth| format!("{name}-{nth}"));
    let least = brokers.min_by_key(|it| placed.values().filter(|on| *on == it).count());
    least.unwrap_or_default()
}

/// Moves all partitions away from the brokers that exceed the size.
async fn drain(cx: &Context, name: &str, size: usize) -> Result<(), Error> {
    let mut placed = placements(cx).await?;
    let is_surplus = |broker: &str| ordinal(broker).is_some_and(|nth| nth >= size);
    while let Some((partition, _)) = placed.iter().find(|(_, broker)| is_surplus(broker)) {
        let (partition, target) = (partition.clone(), least_loaded(name, size, &placed));
        cx.cloud.update(&partition, json!({"broker": target})).await?;
        placed.insert(partition, target);
    }
    Ok(())
}

/// Scales a message broker down: the partitions of a surplus broker move to the least loaded brokers, then the broker
/// is deleted. The operator records the target size of a drain, for users. A partition may be on any broker that
/// exists.
///
/// The healthy variant looks for partitions on surplus brokers in each pass, regardless of the record. The buggy
/// variant takes the record, which it writes before the drain, as the proof of a drain: after a crash, or an error of a
/// move, it deletes a broker that still has partitions.
async fn broker_is_drained_before_it_is_removed(cluster: &TestCluster, is_healthy: bool) {
    OPERATOR.owns_secrets().start(cluster, move |cached, cx| async move {
        let Some(parent) = live(&cx, &cached).await? else {
            return done();
        };
        let (name, size) = (parent.name_any(), number(&parent, "size"));
        if size == 0 {
            return done();
        }
        for nth in 0..size {
            cx.create_secret(&parent, &format!("{name}-{nth}"), json!({})).await?;
        }
        let mut placed = placements(&cx).await?;
        for nth in 0..number(&parent, "partitions") {
            let partition = format!("p-{nth}");
            if !placed.contains_key(&partition) {
                let broker = least_loaded(&name, size, &placed);
                cx.cloud.create(&partition, json!({"broker": broker})).await?;
                placed.insert(partition, broker);
            }
        }
        let mut surplus = numbered(&cx, &name).await?;
        surplus.retain(|it| ordinal(it).is_some_and(|nth| nth >= size));
        let is_recorded = annotation(&parent, "draining-to") == size.to_string();
        if !surplus.is_empty() && !is_recorded {
            record(&cx, &parent, json!({"draining-to": size.to_string()})).await?;
        }
        if is_healthy || !is_recorded {
            drain(&cx, &name, size).await?;
        }
        for broker in surplus {
            cx.delete::<Secret>(&broker).await?;
        }
        again(RESYNC)
    });
    cluster
        .create(config_map("kafka").data("size", "3").data("partitions", "4"))
        .await;
    cluster.settle().await;
    set(cluster, "kafka", "size", "2").await;
}

/// Enlarges the volume of a database; volumes never shrink.
async fn grow(cx: &Context, parent: &ConfigMap, claim: &str, storage: &str) -> Result<(), Error> {
    let size = |it: &str| it.parse().unwrap_or(0_u64);
    let Some(known) = cx.get::<Secret>(claim).await? else {
        let owners = [parent.controller_owner_ref(&())];
        let metadata = json!({"name": claim, "labels": {"storage": storage}, "ownerReferences": owners});
        return match cx.create::<Secret>(json!({"metadata": metadata})).await? {
            true => Ok(()),
            false => Err(Error::NotYet("another client has created the claim")),
        };
    };
    if size(label(&known, "storage")) >= size(storage) {
        return Ok(());
    }
    let metadata = json!({"labels": {"storage": storage}, "resourceVersion": known.resource_version()});
    let patch = json!({"metadata": metadata});
    cx.merge::<Secret>(claim, patch).await.map(drop)
}

/// Deletes a Secret, if it has not changed since it was read.
async fn delete_known(cx: &Context, known: &Secret) -> Result<(), Error> {
    let preconditions = Preconditions {
        uid: known.uid(),
        resource_version: known.resource_version(),
    };
    let params = DeleteParams::default().preconditions(preconditions);
    Ok(cx.api::<Secret>().delete(&known.name_any(), &params).await.map(drop)?)
}

/// Enlarges volumes. The storage in the template of a set is immutable, as in a StatefulSet, so the operator enlarges
/// the claim, deletes the set and creates it again. The number of replicas belongs to the user or an autoscaler, so
/// the new set must have the replicas of the old one.
///
/// The healthy variant stores the replicas in the parent before it deletes the set, and deletes only the version that
/// it has read. The buggy variant keeps the replicas in a variable: after a crash, or an error of the creation, it
/// creates the set with the default.
async fn set_with_larger_volumes_keeps_its_replicas(cluster: &TestCluster, is_healthy: bool) {
    OPERATOR.owns_secrets().start(cluster, move |cached, cx| async move {
        let Some(parent) = live(&cx, &cached).await? else {
            return done();
        };
        let (name, storage) = (parent.name_any(), field(&parent, "storage"));
        let carried = annotation(&parent, "carried-replicas").to_owned();
        grow(&cx, &parent, &format!("{name}-data"), storage).await?;
        let set = format!("{name}-set");
        let replicas = match cx.get::<Secret>(&set).await? {
            Some(known) if label(&known, "storage") == storage => {
                if !carried.is_empty() {
                    record(&cx, &parent, json!({"carried-replicas": null})).await?;
                }
                return done();
            }
            Some(known) => {
                let replicas = label(&known, "replicas").to_owned();
                if is_healthy && carried != replicas {
                    record(&cx, &parent, json!({"carried-replicas": replicas})).await?;
                }
                delete_known(&cx, &known).await?;
                replicas
            }
            None => carried,
        };
        let replicas = if replicas.is_empty() { "1" } else { replicas.as_str() };
        let metadata = json!({
            "name": set, "ownerReferences": [parent.controller_owner_ref(&())],
            "labels": {"storage": storage, "replicas": replicas},
        });
        if !cx.create::<Secret>(json!({"metadata": metadata})).await? {
            return Err(Error::NotYet("another client has created the set"));
        }
        done()
    });
    cluster
        .create(secret("db-set").label("storage", "10").label("replicas", "5"))
        .await;
    cluster.create(config_map("db").data("storage", "10")).await;
    cluster.settle().await;
    set(cluster, "db", "storage", "20").await;
}

fn digest(parent: &ConfigMap) -> String {
    let mut hasher = DefaultHasher::new();
    parent.data.hash(&mut hasher);
    format!("{:016x}", hasher.finish())
}

/// Reloads proxies if the hash of their configuration changes. The operator records the hash that all proxies have
/// loaded.
///
/// The healthy variant asks each proxy for the hash that it has loaded, and only records a hash after all proxies have
/// confirmed it; the record is for users. The buggy variant does not ask again after it has recorded the hash, and a
/// proxy that it does not reach only causes a line in its log: this proxy keeps the old configuration.
async fn each_proxy_has_loaded_the_recorded_config(cluster: &TestCluster, is_healthy: bool) {
    OPERATOR.start(cluster, move |cached, cx| async move {
        let Some(parent) = live(&cx, &cached).await? else {
            return done();
        };
        let hash = digest(&parent);
        let is_recorded = annotation(&parent, "loaded-hash") == hash;
        if is_recorded && !is_healthy {
            return done();
        }
        for nth in 0..2 {
            let reloaded = ensure(&cx, &format!("proxy-{nth}"), json!({"hash": hash})).await;
            if is_healthy {
                reloaded?;
            }
        }
        if !is_recorded {
            record(&cx, &parent, json!({"loaded-hash": hash})).await?;
        }
        again(RESYNC)
    });
    cluster.create(config_map("proxy").data("listen", "80")).await;
    cluster.settle().await;
    set(cluster, "proxy", "listen", "443").await;
}

/// Manages DNS records like external-dns: a text record names the owner of each address, and the operator does not
/// change addresses without its text record. A finalizer removes both records.
///
/// The healthy variant creates the text record before the address, and deletes it after the address, so that it
/// recognises each address that it has created. The buggy variant creates the address first. After a crash or an error
/// between the two writes, it treats its own address as foreign, and neither updates nor deletes it.
async fn operator_recognises_the_records_that_it_created(cluster: &TestCluster, is_healthy: bool) {
    OPERATOR.start(cluster, move |cached, cx| async move {
        let Some(parent) = live(&cx, &cached).await? else {
            return done();
        };
        let host = format!("{}.example.com", parent.name_any());
        let (text, address) = (format!("txt-{host}"), format!("a-{host}"));
        let owner = json!({"owner": "operator"});
        let known_text = cx.cloud.get(&text).await?;
        let known_address = cx.cloud.get(&address).await?;
        let is_own = known_text.as_ref() == Some(&owner);
        if is_deleted(&parent) {
            if has_finalizer(&parent) {
                if is_own {
                    once(cx.cloud.delete(&address).await)?;
                    once(cx.cloud.delete(&text).await)?;
                }
                cx.remove_finalizer(&parent, FINALIZER).await?;
            }
            return done();
        }
        if !has_finalizer(&parent) {
            cx.add_finalizer(&parent, FINALIZER).await?;
            return done();
        }
        let is_free = known_text.is_none() && known_address.is_none();
        if !is_own && !is_free {
            return again(RESYNC);
        }
        if is_free && is_healthy {
            cx.cloud.create(&text, owner.clone()).await?;
        }
        ensure(&cx, &address, json!({"target": field(&parent, "target")})).await?;
        if is_free && !is_healthy {
            cx.cloud.create(&text, owner).await?;
        }
        again(RESYNC)
    });
    for (name, target) in [("web", "10.0.0.1"), ("api", "10.0.0.2")] {
        cluster.create(config_map(name).data("target", target)).await;
        cluster.settle().await;
    }
    set(cluster, "web", "target", "10.0.0.3").await;
    cluster.delete(config_map("api")).await;
    cluster.settle().await;
}

/// Remembers the summary of an object; returns `false` if it is remembered already.
fn remember(memory: &Memory, name: &str, summary: &str) -> bool {
    let entry = format!("{name} {summary}");
    let mut entries = memory.lock().expect("no reconciliation panics");
    if entries.contains(&entry) {
        return false;
    }
    entries.retain(|it| !it.starts_with(&format!("{name} ")));
    entries.insert(entry);
    true
}

/// Aggregates the readiness of many members in the status of their parent. Changes of members and of the parent trigger
/// the aggregation, so several may run at the same time.
///
/// The healthy variant reads the parent before the members, compares the summary with the parent's status, and writes
/// it if the parent has not changed. The buggy variant skips the write if the summary has not changed since the
/// last one, which it remembers before it writes: a failed write is not repeated until the summary changes.
async fn readiness_of_all_members_is_in_the_status(cluster: &TestCluster, is_healthy: bool) {
    OPERATOR.start_with_memory(cluster, move |cached, cx, memory| async move {
        let name = match cached.labels().get("of") {
            Some(parent) => parent.clone(),
            None => cached.name_any(),
        };
        let Some(parent) = cx.get::<ConfigMap>(&name).await? else {
            return done();
        };
        let members = cx.list::<ConfigMap>(&format!("of={name}")).await?;
        let ready = members.iter().filter(|it| field(it, "ready") == "yes").count();
        let summary = format!("{ready}/{}", members.len());
        let is_written = match is_healthy {
            true => annotation(&parent, "ready") == summary,
            false => !remember(&memory, &name, &summary),
        };
        if !is_written {
            record(&cx, &parent, json!({"ready": summary})).await?;
        }
        again(RESYNC)
    });
    cluster.create(config_map("web")).await;
    cluster.settle().await;
    for member in ["web-a", "web-b", "web-c"] {
        cluster.create(config_map(member).label("of", "web")).await;
        cluster.settle().await;
    }
    for member in ["web-a", "web-b", "web-c"] {
        set(cluster, member, "ready", "yes").await;
    }
}

/// Assigns each tenant its own port from a pool. A ConfigMap maps ports to tenants; its resourceVersion makes
/// reservations atomic. Entries of tenants that do not exist are removed in each pass. The assignment is not specified,
/// and depends on the times of creations and deletions.
///
/// The healthy variant first looks for the tenant's own reservation in the pool. The buggy variant only accepts a
/// reservation that is recorded in the tenant. After a crash, or a lost response, between the reservation and the
/// record, it reserves another port, and never releases the first one while the tenant exists.
async fn tenant_holds_one_port(cluster: &TestCluster, is_healthy: bool) {
    OPERATOR
        .selects("kind=tenant")
        .start(cluster, move |cached, cx| async move {
            let Some(tenant) = live(&cx, &cached).await? else {
                return done();
            };
            let (name, recorded) = (tenant.name_any(), field(&tenant, "port"));
            // The pool is read before the tenants: its resourceVersion refuses the removal of a newer reservation.
            let mut pool = cx.api::<ConfigMap>().get("ports").await?;
            let before = pool.data.clone().unwrap_or_default();
            let ports = pool.data.get_or_insert_default();
            if is_deleted(&tenant) {
                ports.retain(|_, owner| *owner != name);
                if *ports != before {
                    cx.replace(&pool).await?;
                }
                if has_finalizer(&tenant) {
                    cx.remove_finalizer(&tenant, FINALIZER).await?;
                }
                return done();
            }
            if !has_finalizer(&tenant) {
                cx.add_finalizer(&tenant, FINALIZER).await?;
                return done();
            }
            let tenants = cx.list::<ConfigMap>("kind=tenant").await?;
            ports.retain(|_, owner| tenants.iter().any(|it| it.name_any() == *owner));
            let own = before
                .iter()
                .find(|(port, owner)| **owner == name && (is_healthy || *port == recorded))
                .map(|(port, _)| port.clone());
            let unused = || {
                (30_000..30_100)
                    .map(|it: u32| it.to_string())
                    .find(|it| !ports.contains_key(it))
            };
            let Some(port) = own.or_else(unused) else {
                return Err(Error::NotYet("all ports are in use"));
            };
            ports.insert(port.clone(), name.clone());
            if *ports != before {
                cx.replace(&pool).await?;
            }
            if recorded != port {
                cx.merge::<ConfigMap>(&name, json!({"data": {"port": port}})).await?;
            }
            again(RESYNC)
        });
    cluster.create(config_map("ports")).await;
    for name in ["a", "b"] {
        cluster.create(config_map(name).label("kind", "tenant")).await;
        cluster.settle().await;
    }
    cluster.delete(config_map("a")).await;
    cluster.settle().await;
    cluster.create(config_map("c").label("kind", "tenant")).await;
    cluster.settle().await;
}
