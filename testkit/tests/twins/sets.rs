//! Sets, lists with keys and ordered lists, written by more than one controller.

use k8s_openapi::api::core::v1::{ConfigMap, Secret, Service};
use kube::api::{Patch, PatchParams};
use kube::core::{DynamicObject, GroupVersionKind};
use kube::discovery::ApiResource;
use kube::{Api, Resource, ResourceExt};
use serde_json::{Value, json};
use testkit::objects::{config_map, object, service};
use testkit::{TestCluster, TestClusterBuilder};

use crate::support::{Context, Done, Error, OPERATOR, done, plain};

twins! {
    zones();
    each_controller_adds_its_finalizer: "end state", "finalizers";
    each_controller_adds_its_condition: "idempotence", "sites.example.com default/site";
    each_controller_adds_its_zone: "idempotence", "sites.example.com default/site";
    each_controller_adds_its_port: "idempotence", "services default/shared";
    each_parent_owns_the_shared_child: "idempotence", "secrets default/shared";
    atomic_list_does_not_depend_on_the_arrival_order: "end state", "queue";
}

/// Builds a cluster with a kind that has a map list, a set and an atomic list in its status.
fn zones() -> TestClusterBuilder {
    plain().object(testkit::objects::serialized(&json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "sites.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"kind": "Site", "plural": "sites", "singular": "site", "listKind": "SiteList"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                "type": "object", "properties": {"status": {"type": "object", "properties": {
                    "conditions": {
                        "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["kind"],
                        "items": {"type": "object", "required": ["kind"], "properties": {
                            "kind": {"type": "string"}, "is": {"type": "string"},
                        }},
                    },
                    "zones": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
                    "queue": {"type": "array", "items": {"type": "string"}},
                }}},
            }}}],
        },
    })))
}

fn sites(cx: &Context) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk("example.com", "v1", "Site");
    Api::default_namespaced_with(cx.client.clone(), &ApiResource::from_gvk(&kind))
}

/// Starts two controllers, which both react to the same ConfigMap.
fn start_two<F>(
    cluster: &TestCluster,
    reconcile: impl Fn(std::sync::Arc<ConfigMap>, Context, &'static str) -> F + Clone + Send + Sync + 'static,
) where
    F: Future<Output = Done> + Send + 'static,
{
    for name in ["east", "west"] {
        let reconcile = reconcile.clone();
        OPERATOR
            .named(name)
            .start(cluster, move |parent, cx| reconcile(parent, cx, name));
    }
}

async fn made(cluster: &TestCluster) {
    cluster.create(config_map("web")).await;
    cluster.settle().await;
}

/// Adds its own finalizer; the buggy variant does not send the resourceVersion that it has read.
async fn each_controller_adds_its_finalizer(cluster: &TestCluster, is_healthy: bool) {
    start_two(cluster, move |parent, cx, name| async move {
        let own = format!("example.com/{name}");
        let mut finalizers = parent.finalizers().to_vec();
        if finalizers.contains(&own) {
            return done();
        }
        finalizers.push(own);
        match is_healthy {
            true => cx.set_finalizers(&parent, &finalizers).await?,
            false if annotation_of(&parent, name) => {}
            false => {
                let metadata = json!({"finalizers": finalizers, "annotations": {name: "done"}});
                drop(cx.merge::<ConfigMap>("web", json!({"metadata": metadata})).await?);
            }
        }
        done()
    });
    made(cluster).await;
}

fn annotation_of(parent: &ConfigMap, name: &str) -> bool {
    parent.annotations().contains_key(name)
}

/// Reads the status of the site, adds an item to one of its lists, and writes the list.
async fn append(cx: &Context, list: &str, item: Value, is_healthy: bool) -> Result<(), Error> {
    let site = sites(cx).get("site").await?;
    let status = site.data.get("status").cloned().unwrap_or_default();
    let mut items = status[list].as_array().cloned().unwrap_or_default();
    if items.contains(&item) {
        return Ok(());
    }
    items.push(item);
    let mut patch = json!({"status": {list: items}});
    if is_healthy {
        patch["metadata"] = json!({"resourceVersion": site.resource_version()});
    }
    sites(cx)
        .patch("site", &PatchParams::default(), &Patch::Merge(patch))
        .await?;
    Ok(())
}

async fn site(cluster: &TestCluster) {
    cluster.create(object("example.com/v1", "Site", "site")).await;
    made(cluster).await;
}

/// Adds its own condition to a map list; the buggy variant overwrites concurrent additions of the other controller.
async fn each_controller_adds_its_condition(cluster: &TestCluster, is_healthy: bool) {
    start_two(cluster, move |_, cx, name| async move {
        append(&cx, "conditions", json!({"kind": name, "is": "True"}), is_healthy).await?;
        done()
    });
    site(cluster).await;
}

/// Adds an item to a set; the buggy variant overwrites concurrent additions of the other controller.
async fn each_controller_adds_its_zone(cluster: &TestCluster, is_healthy: bool) {
    start_two(cluster, move |_, cx, name| async move {
        append(&cx, "zones", json!(name), is_healthy).await?;
        done()
    });
    site(cluster).await;
}

/// Applies its own port to a Service with a keyed list of ports; the buggy variant writes the complete list.
async fn each_controller_adds_its_port(cluster: &TestCluster, is_healthy: bool) {
    start_two(cluster, move |_, cx, name| async move {
        let port = if name == "east" { 8001 } else { 8002 };
        let mine = json!({"name": name, "port": port, "protocol": "TCP"});
        if is_healthy {
            cx.apply::<Service>(name, "shared", json!({"spec": {"ports": [mine]}}))
                .await?;
            return done();
        }
        let shared = cx.get::<Service>("shared").await?.ok_or(Error::NotYet("no service"))?;
        let mut ports = serde_json::to_value(shared.spec.and_then(|it| it.ports)).unwrap_or_default();
        if !ports.to_string().contains(name) {
            ports.as_array_mut().expect("the Service has ports").push(mine);
            drop(cx.merge::<Service>("shared", json!({"spec": {"ports": ports}})).await?);
        }
        done()
    });
    let port = json!([{"name": "main", "port": 80, "protocol": "TCP"}]);
    cluster.create(service("shared").set("spec.ports", port)).await;
    made(cluster).await;
}

/// Both parents own a Secret. The buggy variant replaces the owners instead of adding one.
async fn each_parent_owns_the_shared_child(cluster: &TestCluster, is_healthy: bool) {
    OPERATOR.start(cluster, move |parent, cx| async move {
        let own = parent.owner_ref(&()).expect("the object has a uid");
        let Some(mut shared) = cx.get::<Secret>("shared").await? else {
            return Err(Error::NotYet("no secret"));
        };
        if shared.owner_references().contains(&own) {
            return done();
        }
        shared.owner_references_mut().push(own);
        match is_healthy {
            true => cx.replace(&shared).await?,
            false => {
                let patch = json!({"metadata": {"ownerReferences": shared.owner_references()}});
                drop(cx.merge::<Secret>("shared", patch).await?);
            }
        }
        done()
    });
    cluster.create(testkit::objects::secret("shared")).await;
    for name in ["web", "shop"] {
        cluster.create(config_map(name)).await;
    }
    cluster.settle().await;
}

/// Writes the parents into an ordered list; the buggy variant writes them in the order of their arrival.
async fn atomic_list_does_not_depend_on_the_arrival_order(cluster: &TestCluster, is_healthy: bool) {
    OPERATOR.start(cluster, move |parent, cx| async move {
        let site = sites(&cx).get("site").await?;
        let queue = site
            .data
            .get("status")
            .map(|it| it["queue"].clone())
            .unwrap_or_default();
        let mut queue: Vec<String> = serde_json::from_value(queue).unwrap_or_default();
        if !queue.contains(&parent.name_any()) {
            queue.push(parent.name_any());
            if is_healthy {
                queue.sort();
            }
            let patch = json!({
                "metadata": {"resourceVersion": site.resource_version()}, "status": {"queue": queue},
            });
            sites(&cx)
                .patch("site", &PatchParams::default(), &Patch::Merge(patch))
                .await?;
        }
        done()
    });
    cluster.create(object("example.com/v1", "Site", "site")).await;
    for name in ["web", "shop"] {
        cluster.create(config_map(name)).await;
    }
    cluster.settle().await;
}
