//! Objects that are stored in an old version of their kind.

use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Patch, PatchParams};
use kube::core::{DynamicObject, GroupVersionKind};
use kube::discovery::ApiResource;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};
use testkit::objects::{object, serialized};
use testkit::{TestCluster, TestClusterBuilder};
use tokio::time::sleep;

use crate::support::plain;

twins! {
    pools();
    version_of_each_object_is_recognised: "idempotence", "configmaps default/old";
    only_migrated_versions_are_forgotten: "end state", "pools.example.com default/old";
}

const DEFINITION: &str = "pools.example.com";

/// Returns the versions of the kind. The number of nodes is `spec.count` in v1 and `spec.nodes` in v2. The server does
/// not convert objects, so they keep the fields of the version in which they were written.
fn versions(stored: &str) -> Value {
    let schema = json!({"openAPIV3Schema": {"type": "object", "properties": {
        "spec": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
    }}});
    let version = |name: &str| json!({"name": name, "served": true, "storage": name == stored, "schema": schema});
    json!([version("v1"), version("v2")])
}

fn pools() -> TestClusterBuilder {
    plain().object(serialized(&json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": DEFINITION},
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"kind": "Pool", "plural": "pools", "singular": "pool", "listKind": "PoolList"},
            "versions": versions("v1"),
        },
    })))
}

/// Waits before a failed request is repeated.
async fn pause() {
    sleep(Duration::from_secs(5)).await;
}

struct Operator {
    pools: Api<DynamicObject>,
    maps: Api<ConfigMap>,
    definitions: Api<CustomResourceDefinition>,
}

impl Operator {
    fn new(client: Client) -> Self {
        let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("example.com", "v2", "Pool"));
        Self {
            pools: Api::default_namespaced_with(client.clone(), &kind),
            maps: Api::default_namespaced(client.clone()),
            definitions: Api::all(client),
        }
    }

    /// Applies a ConfigMap for each pool that is listed or changed.
    async fn run(&self, is_healthy: bool) {
        let events = watcher(self.pools.clone(), watcher::Config::default());
        let mut events = events.default_backoff().applied_objects().boxed();
        while let Some(event) = events.next().await {
            let Ok(pool) = event else { continue };
            while self.reconcile(&pool, is_healthy).await.is_err() {
                pause().await;
            }
        }
    }

    async fn reconcile(&self, pool: &DynamicObject, is_healthy: bool) -> kube::Result<()> {
        let spec = &pool.data["spec"];
        let is_old = match is_healthy {
            true => spec["nodes"].is_null(),
            false => self.stored_version().await? == "v1",
        };
        self.apply(pool, if is_old { &spec["count"] } else { &spec["nodes"] })
            .await
    }

    async fn stored_version(&self) -> kube::Result<String> {
        let definition = self.definitions.get(DEFINITION).await?;
        let stored = definition.spec.versions.into_iter().find(|it| it.storage);
        Ok(stored.map(|it| it.name).unwrap_or_default())
    }

    /// Applies a ConfigMap with the number of nodes of a pool.
    async fn apply(&self, pool: &DynamicObject, nodes: &Value) -> kube::Result<()> {
        let name = pool.name_any();
        let map = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"nodes": nodes.to_string()},
        });
        let params = PatchParams::apply("operator").force();
        self.maps.patch(&name, &params, &Patch::Apply(map)).await.map(drop)
    }
}

/// Creates a pool in each version. The stored version changes in between.
async fn old_and_new(cluster: &TestCluster) {
    let old = object("example.com/v1", "Pool", "old").set("spec", json!({"count": 3}));
    cluster.create(old).await;
    cluster.settle().await;
    let definition = object("apiextensions.k8s.io/v1", "CustomResourceDefinition", DEFINITION);
    let _: testkit::Object = cluster
        .patch(definition, json!({"spec": {"versions": versions("v2")}}))
        .await;
    cluster.settle().await;
    let new = object("example.com/v2", "Pool", "new").set("spec", json!({"nodes": 2}));
    cluster.create(new).await;
    cluster.settle().await;
}

/// Reads the number of nodes in the version of each object. The buggy variant assumes that all objects have the fields
/// of the stored version, so it misreads the old object as soon as it is reconciled again.
async fn version_of_each_object_is_recognised(cluster: &TestCluster, is_healthy: bool) {
    cluster.controller("operator", move |client| async move {
        Operator::new(client).run(is_healthy).await
    });
    old_and_new(cluster).await;
}

/// Moves each object to the fields of v2 when the stored version is v2, and then removes v1 from the versions in which
/// objects may be stored. The buggy variant also removes it if an object could not be written.
async fn only_migrated_versions_are_forgotten(cluster: &TestCluster, is_healthy: bool) {
    cluster.controller("operator", move |client| async move {
        let operator = Operator::new(client);
        while migrated(&operator, is_healthy).await.is_err() {
            pause().await;
        }
    });
    old_and_new(cluster).await;
}

async fn migrated(operator: &Operator, is_healthy: bool) -> kube::Result<()> {
    while operator.stored_version().await? != "v2" {
        pause().await;
    }
    for pool in operator.pools.list(&Default::default()).await? {
        let count = &pool.data["spec"]["count"];
        if count.is_null() {
            continue;
        }
        let patch = json!({
            "metadata": {"resourceVersion": pool.resource_version()}, "spec": {"count": null, "nodes": count},
        });
        let patch = Patch::Merge(patch);
        match operator
            .pools
            .patch(&pool.name_any(), &PatchParams::default(), &patch)
            .await
        {
            Err(err) if is_healthy => return Err(err),
            _ => {}
        }
    }
    let stored = Patch::Merge(json!({"status": {"storedVersions": ["v2"]}}));
    let params = PatchParams::default();
    operator
        .definitions
        .patch_status(DEFINITION, &params, &stored)
        .await
        .map(drop)
}
