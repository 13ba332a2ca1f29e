//! Versions of objects that occur in other objects are compared by the objects that they refer to.

use std::time::Duration;

use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Secret};
use kube::api::{Patch, PatchParams};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, ResourceExt};
use rstest::rstest;
use serde_json::{Value, json};
use testkit::explore::{Explore, errors, explore};
use testkit::objects::{config_map, object, secret};
use testkit::{TestCluster, Worker};

const SCHEDULES: u64 = 40;

async fn apply<K>(client: &Client, name: &str, mut object: Value) -> Result<(), kube::Error>
where
    K: kube::Resource<DynamicType = (), Scope = kube::core::NamespaceResourceScope>,
    K: Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    object["apiVersion"] = K::api_version(&()).into();
    object["kind"] = K::kind(&()).into();
    object["metadata"] = json!({"name": name});
    let api = Api::<K>::default_namespaced(client.clone());
    let params = PatchParams::apply("test").force();
    api.patch(name, &params, &Patch::Apply(object)).await.map(drop)
}

/// Creates a claim, and reports each failure until it succeeds.
async fn claim(client: Client) {
    let spec = json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}});
    let phase = |phase: &str| json!({"data": {"phase": phase}});
    while apply::<PersistentVolumeClaim>(&client, "disk", json!({"spec": spec}))
        .await
        .is_err()
    {
        let _ = apply::<ConfigMap>(&client, "state", phase("failed")).await;
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    while apply::<ConfigMap>(&client, "state", phase("made")).await.is_err() {
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

#[test]
fn resource_version_of_a_claim_in_its_volume_is_not_a_difference() {
    let class = object("storage.k8s.io/v1", "StorageClass", "standard")
        .annotation("storageclass.kubernetes.io/is-default-class", "true")
        .set("provisioner", "example.com/disk");
    explore(async |cluster: &TestCluster| {
        cluster.controller("claims", claim);
        cluster.settle().await;
    })
    .cluster(TestCluster::builder().workers([Worker::Volumes]).object(class))
    .faults(errors())
    .schedules(SCHEDULES)
    .run();
}

/// Copies the version of a Secret into a ConfigMap, like controllers that restart Pods when a Secret changes.
async fn copy_version(client: Client, field: &'static str, gives_up: bool) {
    let secrets = Api::<Secret>::default_namespaced(client.clone());
    let events = watcher(secrets, watcher::Config::default()).default_backoff();
    let mut secrets = events.applied_objects().boxed();
    loop {
        let Ok(Some(secret)) = secrets.try_next().await else {
            continue;
        };
        let data = json!({"data": {field: secret.resource_version()}});
        while apply::<ConfigMap>(&client, &secret.name_any(), data.clone())
            .await
            .is_err()
            && !gives_up
        {
            let _ = apply::<ConfigMap>(&client, &secret.name_any(), json!({"data": {"state": "failed"}})).await;
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    }
}

fn copied(field: &'static str, gives_up: bool) -> Explore {
    explore(async move |cluster: &TestCluster| {
        cluster.controller("copier", move |client| copy_version(client, field, gives_up));
        cluster.create(config_map("other")).await;
        cluster.create(secret("a")).await;
        cluster.settle().await;
        cluster.patch(secret("a"), json!({"data": {"key": "dg=="}})).await;
        cluster.settle().await;
    })
}

#[rstest]
fn different_versions_of_one_object_are_not_reported(
    #[values("secretVersion", "example.com.secret-resource-version")] field: &'static str,
) {
    copied(field, false).faults(errors()).schedules(SCHEDULES).run();
}

#[test]
fn copied_version_of_an_outdated_object_is_reported() {
    let second = "fail=500@copier:patch:configmaps:default/a#2";
    let report = copied("secretVersion", true).replay(second).report();
    let failure = report.failure().expect("the exploration fails");
    let expected = "expected \"version of secrets default/a\", found \"earlier version of secrets default/a\"";
    assert!(failure.what().contains(expected), "{report}");
}
