//! Certificates, members, locks, revisions, defaults, quotas and moves.

use std::cmp::Reverse;
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::PostParams;
use kube::{Api, Client, Resource, ResourceExt};
use serde_json::{Map, Value, json};
use testkit::TestCluster;
use testkit::explore::{External, ExternalError};
use testkit::objects::{config_map, secret};
use tokio::time::sleep;

use crate::support::{Context, Error, OPERATOR, again, annotation, done, field, plain};
use crate::workloads::{RESYNC, live};

twins! {
    plain();
    certificate_is_signed_for_the_current_key: "end state", "secrets default/web-cert";
    member_leaves_the_ensemble_before_its_child_is_deleted: "end state", "web-2";
    each_node_reboots_while_it_holds_the_lock: "end state", "configmaps default/lock";
    observed_revision_has_been_applied: "end state", "secrets default/web";
    default_does_not_replace_the_value_of_the_user: "end state", "configmaps default/web";
    each_claim_is_counted_once: "end state", "configmaps default/quota";
    credentials_are_copied_before_the_old_secret_is_deleted: "end state", "secrets default/web-new";
    edge_has_the_certificate_of_each_site: "end state", "configmaps default/edge";
}

/// Sets a field of a ConfigMap's data, as a user does.
pub(crate) async fn set(cluster: &TestCluster, name: &str, field: &str, value: &str) {
    let _: testkit::Object = cluster.patch(config_map(name), json!({"data": {field: value}})).await;
    cluster.settle().await;
}

/// Sets the labels of a Secret, which represent its content. Fails if another client writes the Secret at the same
/// time.
pub(crate) async fn put(cx: &Context, name: &str, labels: Value) -> Result<(), Error> {
    let Some(known) = cx.get::<Secret>(name).await? else {
        let object = json!({"metadata": {"name": name, "labels": labels}});
        return match cx.create::<Secret>(object).await? {
            true => Ok(()),
            false => Err(Error::NotYet("another client has created the Secret")),
        };
    };
    let metadata = json!({"labels": labels, "resourceVersion": known.resource_version()});
    cx.merge::<Secret>(name, json!({"metadata": metadata})).await.map(drop)
}

/// Ignores the error of a call that an earlier attempt has executed.
pub(crate) fn once(called: Result<(), ExternalError>) -> Result<(), Error> {
    match called {
        Err(ExternalError::AlreadyExists(_) | ExternalError::NotFound(_)) => Ok(()),
        called => Ok(called?),
    }
}

/// Rotates a key and its certificate, which are two Secrets. The buggy variant only checks the serial number of the key
/// and that a certificate exists.
///
/// A crash or an error between the two writes of a rotation leaves a certificate for the former key.
async fn certificate_is_signed_for_the_current_key(cluster: &TestCluster, is_healthy: bool) {
    OPERATOR.owns_secrets().start(cluster, move |parent, cx| async move {
        let (name, serial) = (parent.name_any(), field(&parent, "serial").to_owned());
        let (key, cert) = (format!("{name}-key"), format!("{name}-cert"));
        let known_key = cx.get::<Secret>(&key).await?;
        let known_cert = cx.get::<Secret>(&cert).await?;
        let is_current = |it: &Secret| it.labels().get("serial") == Some(&serial);
        let has_cert = known_cert.as_ref().is_some_and(|it| !is_healthy || is_current(it));
        if has_cert && known_key.as_ref().is_some_and(is_current) {
            return done();
        }
        for half in [key, cert] {
            let object = json!({
                "metadata": {
                    "labels": {"serial": serial}, "ownerReferences": [parent.controller_owner_ref(&())],
                },
                "stringData": {"key": serial},
            });
            cx.apply::<Secret>("operator", &half, object).await?;
        }
        done()
    });
    cluster.create(config_map("web").data("serial", "1")).await;
    cluster.settle().await;
    set(cluster, "web", "serial", "2").await;
}

fn ordinal(name: &str) -> Option<usize> {
    name.rsplit('-').next()?.parse().ok()
}

/// Runs the members of an ensemble, which are registered in an external system. The buggy variant deletes a surplus
/// child before it deregisters the member.
///
/// A crash or an error between the two deletions leaves a registered member without a child: only children are listed.
async fn member_leaves_the_ensemble_before_its_child_is_deleted(cluster: &TestCluster, is_healthy: bool) {
    OPERATOR.owns_secrets().start(cluster, move |parent, cx| async move {
        let (name, size) = (parent.name_any(), field(&parent, "size").parse().unwrap_or(0_usize));
        for nth in 0..size {
            let member = format!("{name}-{nth}");
            cx.create_secret(&parent, &member, json!({})).await?;
            once(cx.cloud.create(&member, json!({"ensemble": name})).await)?;
        }
        let children = cx.list::<Secret>(&format!("of={name}")).await?;
        let mut surplus: Vec<String> = children.iter().map(ResourceExt::name_any).collect();
        surplus.retain(|it| ordinal(it).is_some_and(|nth| nth >= size));
        surplus.sort_by_key(|it| Reverse(ordinal(it)));
        for member in surplus {
            if !is_healthy {
                cx.delete::<Secret>(&member).await?;
            }
            once(cx.cloud.delete(&member).await)?;
            if is_healthy {
                cx.delete::<Secret>(&member).await?;
            }
        }
        done()
    });
    cluster.create(config_map("web").data("size", "3")).await;
    cluster.settle().await;
    set(cluster, "web", "size", "2").await;
}

/// Reboots a node, if no other node reboots. The buggy variant waits for the lock even if it holds the lock itself.
async fn reboot(maps: &Api<ConfigMap>, cloud: &External, node: &str, is_healthy: bool) -> Result<(), Error> {
    let params = PostParams::default();
    let mut lock = maps.get("lock").await?;
    let holder = field(&lock, "holder").to_owned();
    let is_own = is_healthy && holder == node;
    if field(&lock, node) == "rebooted" || !(holder.is_empty() || is_own) {
        return Ok(());
    }
    if !is_own {
        let data = lock.data.get_or_insert_default();
        data.insert("holder".to_owned(), node.to_owned());
        lock = maps.replace("lock", &params, &lock).await?;
    }
    once(cloud.create(node, json!({"rebooted": true})).await)?;
    let data = lock.data.get_or_insert_default();
    data.insert(node.to_owned(), "rebooted".to_owned());
    data.insert("holder".to_owned(), String::new());
    maps.replace("lock", &params, &lock).await?;
    Ok(())
}

/// Reboots two nodes one after the other. Each node has an agent, and a ConfigMap is the lock. The buggy variant of the
/// agent does not continue with a lock that it holds.
///
/// A crash with the lock, or a lost response to the write that takes the lock, stops all reboots.
async fn each_node_reboots_while_it_holds_the_lock(cluster: &TestCluster, is_healthy: bool) {
    for (agent, node) in [("agent-a", "node-a"), ("agent-b", "node-b")] {
        let cloud = cluster.external("cloud").of(agent);
        cluster.controller(agent, move |client: Client| {
            let (maps, cloud) = (Api::<ConfigMap>::default_namespaced(client), cloud.clone());
            async move {
                loop {
                    let _ = reboot(&maps, &cloud, node, is_healthy).await;
                    sleep(Duration::from_secs(5)).await;
                }
            }
        });
    }
    cluster.create(config_map("lock").data("holder", "")).await;
    cluster.advance(Duration::from_secs(120)).await;
    cluster.settle().await;
}

/// Applies each revision to a child, and records the revision in the parent. The buggy variant applies the revision of
/// its cache, and records the newest revision.
///
/// A delayed watch, or a stale cache after a restart, makes it record a revision that it has not applied.
async fn observed_revision_has_been_applied(cluster: &TestCluster, is_healthy: bool) {
    OPERATOR.start(cluster, move |parent, cx| async move {
        let name = parent.name_any();
        let Some(newest) = cx.get::<ConfigMap>(&name).await? else {
            return done();
        };
        let revision = field(&newest, "revision");
        if annotation(&newest, "observed") == revision {
            return done();
        }
        let applied = if is_healthy {
            revision
        } else {
            field(&parent, "revision")
        };
        put(&cx, &name, json!({"revision": applied})).await?;
        cx.annotate(&parent, "observed", revision).await?;
        done()
    });
    cluster.create(config_map("web").data("revision", "1")).await;
    cluster.settle().await;
    set(cluster, "web", "revision", "2").await;
    set(cluster, "web", "revision", "3").await;
}

/// Sets the default of a field. The buggy variant writes the default even if the object has changed since it was read.
///
/// A delayed watch, or a slow write, makes the default replace a value that the user has set meanwhile.
async fn default_does_not_replace_the_value_of_the_user(cluster: &TestCluster, is_healthy: bool) {
    OPERATOR.start(cluster, move |parent, cx| async move {
        if field(&parent, "replicas").is_empty() {
            let mut patch = json!({"data": {"replicas": "1"}});
            if is_healthy {
                patch["metadata"] = json!({"resourceVersion": parent.resource_version()});
            }
            cx.merge::<ConfigMap>(&parent.name_any(), patch).await?;
        }
        done()
    });
    cluster.create(config_map("web")).await;
    cluster.settle().await;
    set(cluster, "web", "replicas", "5").await;
}

fn size(claim: &ConfigMap) -> i64 {
    field(claim, "size").parse().unwrap_or(0)
}

/// Counts the sizes of claims in a quota, and marks each counted claim. The buggy variant adds the size of an unmarked
/// claim; the healthy variant adds up all claims.
///
/// A crash or an error between the two writes makes the buggy variant count a claim twice. So does a lost response.
async fn each_claim_is_counted_once(cluster: &TestCluster, is_healthy: bool) {
    OPERATOR
        .selects("kind=claim")
        .start(cluster, move |claim, cx| async move {
            let is_counted = annotation(&claim, "counted") == "yes";
            if is_counted && !is_healthy {
                return done();
            }
            // The quota is read before the claims: its resourceVersion refuses a sum that lacks a claim.
            let mut quota = cx.api::<ConfigMap>().get("quota").await?;
            let known: i64 = field(&quota, "used").parse().unwrap_or(0);
            let used: i64 = match is_healthy {
                true => cx.list::<ConfigMap>("kind=claim").await?.iter().map(size).sum(),
                false => known + size(&claim),
            };
            if used != known {
                quota.data = Some([("used".to_owned(), used.to_string())].into());
                cx.replace(&quota).await?;
            }
            if !is_counted {
                cx.annotate(&claim, "counted", "yes").await?;
            }
            done()
        });
    cluster.create(config_map("quota").data("used", "0")).await;
    for (name, size) in [("web", "2"), ("api", "3")] {
        cluster
            .create(config_map(name).label("kind", "claim").data("size", size))
            .await;
        cluster.settle().await;
    }
}

/// Moves credentials to a Secret with another name: creates the Secret, copies the data, and deletes the old Secret.
/// The buggy variant only copies the data into a Secret that it has just created.
///
/// A crash or a lost response between the creation and the copy makes it delete the only copy of the data.
async fn credentials_are_copied_before_the_old_secret_is_deleted(cluster: &TestCluster, is_healthy: bool) {
    OPERATOR.start(cluster, move |parent, cx| async move {
        let (old, new) = (field(&parent, "from"), field(&parent, "to"));
        let is_new = cx.create::<Secret>(json!({"metadata": {"name": new}})).await?;
        if let Some(source) = cx.get::<Secret>(old).await? {
            if is_new || is_healthy {
                cx.merge::<Secret>(new, json!({"data": source.data})).await?;
            }
            cx.delete::<Secret>(old).await?;
        }
        done()
    });
    cluster.create(secret("web-old").data("password", "s3cret")).await;
    cluster
        .create(config_map("web").data("from", "web-old").data("to", "web-new"))
        .await;
    cluster.settle().await;
}

/// Two controllers write one object with server-side apply: the router applies the route of each site, and the other
/// controller its TLS mode and the serial of its certificate. Each site and part has a field manager of its own. The
/// serial is random; the issuer keeps the order of each certificate.
///
/// The healthy variant is right because each pass takes the serial from the order, creates the order only if there is
/// none, and applies everything again. The buggy variant applies the certificate only in the pass that orders it, as an
/// existing order means that "the certificate is installed": a crash, a lost response, or an error of the apply leaves
/// the site without a certificate.
async fn edge_has_the_certificate_of_each_site(cluster: &TestCluster, is_healthy: bool) {
    let router = OPERATOR.named("router").selects("kind=site");
    router.start(cluster, move |cached, cx| async move {
        let Some(site) = live(&cx, &cached).await? else {
            return done();
        };
        let (name, port) = (site.name_any(), field(&site, "port"));
        let (manager, key) = (format!("router-{name}"), format!("route-{name}"));
        let route = Map::from_iter([(key, json!(port))]);
        cx.apply::<ConfigMap>(&manager, "edge", json!({"data": route})).await?;
        again(RESYNC)
    });
    let tls = OPERATOR.named("tls").selects("kind=site");
    tls.start(cluster, move |cached, cx| async move {
        let Some(site) = live(&cx, &cached).await? else {
            return done();
        };
        let name = site.name_any();
        let mode = Map::from_iter([(format!("tls-{name}"), json!(field(&site, "tls")))]);
        cx.apply::<ConfigMap>(&format!("tls-mode-{name}"), "edge", json!({"data": mode}))
            .await?;
        let order = format!("order-{name}");
        let known = cx.cloud.get(&order).await?;
        let is_new = known.is_none();
        let serial = match &known {
            Some(order) => order["serial"].as_str().unwrap_or_default().to_owned(),
            None => format!("{:016x}", fastrand::u64(..)),
        };
        if is_new {
            cx.cloud.create(&order, json!({"serial": serial})).await?;
        }
        if is_healthy || is_new {
            let certificate = Map::from_iter([(format!("cert-{name}"), json!(serial))]);
            let manager = format!("tls-cert-{name}");
            cx.apply::<ConfigMap>(&manager, "edge", json!({"data": certificate}))
                .await?;
        }
        again(RESYNC)
    });
    for (name, port) in [("shop", "80"), ("blog", "8080")] {
        let site = config_map(name).label("kind", "site");
        cluster.create(site.data("port", port).data("tls", "strict")).await;
        cluster.settle().await;
    }
    set(cluster, "shop", "port", "443").await;
}
