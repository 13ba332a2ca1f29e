//! Claims and volumes.

use rstest::rstest;
use serde_json::{Value, json};

use crate::cluster::Cluster;

async fn class(cluster: &Cluster, mode: &str) {
    cluster
        .create(json!({
            "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "fast"},
            "provisioner": "example.com/disk", "volumeBindingMode": mode,
        }))
        .await;
}

async fn claim(cluster: &Cluster) {
    cluster
        .create(json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "data"},
            "spec": {
                "accessModes": ["ReadWriteOnce"], "storageClassName": "fast",
                "resources": {"requests": {"storage": "1Gi"}},
            },
        }))
        .await;
}

async fn phase(cluster: &Cluster) -> Value {
    cluster.get("v1", "PersistentVolumeClaim", "data").await["status"]["phase"].clone()
}

#[rstest]
#[case("Immediate", "Bound")]
#[case("WaitForFirstConsumer", "Pending")]
#[tokio::test(start_paused = true)]
async fn a_volume_is_made_when_the_class_says_so(#[case] mode: &str, #[case] before: &str) {
    let cluster = Cluster::start();
    class(&cluster, mode).await;
    claim(&cluster).await;
    cluster.pass(1.0).await;
    assert_eq!(phase(&cluster).await, before);
    cluster
        .create(json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "one"},
            "spec": {
                "containers": [{"name": "main", "image": "nginx:1"}],
                "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}],
            },
        }))
        .await;
    cluster.pass(2.0).await;
    assert_eq!(phase(&cluster).await, "Bound");
    assert_eq!(cluster.get("v1", "Pod", "one").await["status"]["phase"], "Running");
    let volume = cluster.list("v1", "PersistentVolume").await.remove(0);
    assert_eq!(volume["status"]["phase"], "Bound");
    assert_eq!(volume["spec"]["claimRef"]["name"], "data");
    let owners = volume["metadata"]["managedFields"].as_array().expect("owners").iter();
    let owned = owners.filter_map(|it| it["fieldsV1"].pointer("/f:spec/f:claimRef/f:name"));
    assert_eq!(owned.count(), 1, "a claimRef is owned field by field: {volume:#}");
    assert_eq!(
        cluster.get("v1", "PersistentVolumeClaim", "data").await["status"]["capacity"]["storage"],
        "1Gi"
    );
    cluster.delete("v1", "PersistentVolumeClaim", "data").await;
    cluster.delete("v1", "Pod", "one").await;
    cluster.pass(2.0).await;
    assert_eq!(phase(&cluster).await, Value::Null);
    assert_eq!(cluster.list("v1", "PersistentVolume").await.len(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_wants_more_gets_it() {
    let cluster = Cluster::start();
    class(&cluster, "Immediate").await;
    let expands = json!({ "allowVolumeExpansion": true });
    cluster
        .patch("storage.k8s.io/v1", "StorageClass", "fast", expands)
        .await;
    claim(&cluster).await;
    cluster.pass(1.0).await;
    let more = json!({"spec": {"resources": {"requests": {"storage": "3Gi"}}}});
    cluster.patch("v1", "PersistentVolumeClaim", "data", more).await;
    cluster.pass(1.0).await;
    let claim = cluster.get("v1", "PersistentVolumeClaim", "data").await;
    assert_eq!(claim["status"]["capacity"]["storage"], "3Gi");
    let volume = cluster.list("v1", "PersistentVolume").await.remove(0);
    assert_eq!(volume["spec"]["capacity"]["storage"], "3Gi");
}

#[tokio::test(start_paused = true)]
async fn the_smallest_volume_that_fits_is_taken() {
    let cluster = Cluster::start();
    for (name, size) in [("big", "5Gi"), ("small", "500Mi"), ("right", "2Gi")] {
        cluster
            .create(json!({
                "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name},
                "spec": {
                    "capacity": {"storage": size}, "accessModes": ["ReadWriteOnce"], "storageClassName": "fast",
                    "hostPath": {"path": "/data"},
                },
            }))
            .await;
    }
    claim(&cluster).await;
    cluster.pass(1.0).await;
    assert_eq!(phase(&cluster).await, "Bound");
    assert_eq!(
        cluster.get("v1", "PersistentVolumeClaim", "data").await["spec"]["volumeName"],
        "right"
    );
    cluster.delete("v1", "PersistentVolumeClaim", "data").await;
    cluster.pass(1.0).await;
    assert_eq!(
        cluster.get("v1", "PersistentVolume", "right").await["status"]["phase"],
        "Released"
    );
}
