//! PersistentVolumeClaims and PersistentVolumes.

use std::time::Duration;

use fake_apiserver::{PodScript, PodSelector, Worker};
use rstest::rstest;
use serde_json::{Value, json};

use crate::cluster::{Cluster, condition, template};

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
async fn volume_is_provisioned_according_to_the_binding_mode(#[case] mode: &str, #[case] before: &str) {
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
    let owners = volume["metadata"]["managedFields"]
        .as_array()
        .expect("the value is a list")
        .iter();
    let owned = owners.filter_map(|it| it["fieldsV1"].pointer("/f:spec/f:claimRef/f:name"));
    assert_eq!(
        owned.count(),
        1,
        "the fields of claimRef have separate owners: {volume:#}"
    );
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
async fn claim_with_a_larger_request_is_expanded() {
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
async fn smallest_volume_that_fits_is_bound() {
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

/// Claims are deleted with surplus Pods, and with the set, if the policy of the set requires it.
#[rstest]
#[case("Retain", "Retain", &["data-db-0", "data-db-1"], &["data-db-0", "data-db-1"])]
#[case("Delete", "Retain", &["data-db-0"], &["data-db-0"])]
#[case("Retain", "Delete", &["data-db-0", "data-db-1"], &[])]
#[case("Delete", "Delete", &["data-db-0"], &[])]
#[tokio::test(start_paused = true)]
async fn volume_claims_of_a_stateful_set_follow_the_retention_policy(
    #[case] scaled: &str,
    #[case] deleted: &str,
    #[case] after_scaling: &[&str],
    #[case] at_the_end: &[&str],
    #[values(false, true)] is_set_later: bool,
) {
    let cluster = Cluster::start();
    class(&cluster, "Immediate").await;
    let policy = json!({"whenScaled": scaled, "whenDeleted": deleted});
    let claim = json!({
        "metadata": {"name": "data"},
        "spec": {"storageClassName": "fast", "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    });
    let mut set = json!({
        "apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "db"},
        "spec": {
            "replicas": 2, "serviceName": "db", "selector": {"matchLabels": {"app": "db"}}, "template": template("db"),
            "volumeClaimTemplates": [claim],
        },
    });
    if !is_set_later {
        set["spec"]["persistentVolumeClaimRetentionPolicy"] = policy.clone();
    }
    cluster.create(set).await;
    cluster.pass(10.0).await;
    let change = async |spec: Value| {
        cluster
            .patch("apps/v1", "StatefulSet", "db", json!({"spec": spec}))
            .await;
        cluster.pass(10.0).await;
    };
    if is_set_later {
        change(json!({"persistentVolumeClaimRetentionPolicy": policy})).await;
    }
    let claims = async || {
        let claims = cluster.list("v1", "PersistentVolumeClaim").await;
        let name = |it: &Value| it["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        claims.iter().map(name).collect::<Vec<_>>()
    };
    assert_eq!(claims().await, ["data-db-0", "data-db-1"]);
    change(json!({"replicas": 1})).await;
    assert_eq!(claims().await, after_scaling);
    cluster.delete("apps/v1", "StatefulSet", "db").await;
    cluster.pass(10.0).await;
    assert_eq!(claims().await, at_the_end);
}

#[tokio::test(start_paused = true)]
async fn deleted_attributes_class_is_removed_once_no_claim_references_it() {
    let cluster = Cluster::start();
    let group = "storage.k8s.io/v1";
    let attributes = json!({
        "apiVersion": group, "kind": "VolumeAttributesClass", "metadata": {"name": "gold"},
        "driverName": "example.com", "parameters": {"iops": "100"},
    });
    cluster.create(attributes).await;
    cluster
        .create(json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "data"},
            "spec": {
                "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}},
                "volumeAttributesClassName": "gold",
            },
        }))
        .await;
    cluster.pass(1.0).await;
    cluster.delete(group, "VolumeAttributesClass", "gold").await;
    cluster.pass(1.0).await;
    assert_eq!(cluster.list(group, "VolumeAttributesClass").await.len(), 1);
    cluster.delete("v1", "PersistentVolumeClaim", "data").await;
    cluster.pass(1.0).await;
    assert_eq!(cluster.list(group, "VolumeAttributesClass").await, Vec::<Value>::new());
}

/// A claim is in use from the time at which a Pod with it is scheduled until that Pod is removed.
#[rstest]
#[case::finished_pod(json!({"restartPolicy": "Never"}), true)]
#[case::unscheduled_pod(json!({"nodeSelector": {"zone": "none"}}), false)]
#[tokio::test(start_paused = true)]
async fn claim_is_protected_while_a_scheduled_pod_exists(#[case] spec: Value, #[case] is_used: bool) {
    let cluster = Cluster::start();
    class(&cluster, "Immediate").await;
    claim(&cluster).await;
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "one"},
        "spec": {
            "containers": [{"name": "main", "image": "nginx:1"}],
            "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}],
        },
    });
    for (field, value) in spec.as_object().expect("the value is an object") {
        pod["spec"][field] = value.clone();
    }
    let once = PodScript::default().runs_for(Duration::from_secs(1));
    cluster.0.kubelet().script(PodSelector::all(), once);
    cluster.create(pod).await;
    cluster.pass(10.0).await;
    let phase = if is_used { "Succeeded" } else { "Pending" };
    assert_eq!(cluster.get("v1", "Pod", "one").await["status"]["phase"], phase);
    cluster.delete("v1", "PersistentVolumeClaim", "data").await;
    cluster.pass(5.0).await;
    let exists = async || cluster.get("v1", "PersistentVolumeClaim", "data").await != Value::Null;
    assert_eq!(exists().await, is_used);
    cluster.delete("v1", "Pod", "one").await;
    cluster.pass(5.0).await;
    assert!(!exists().await);
}

fn ephemeral_pod(class: &str) -> Value {
    let template = json!({
        "metadata": {"labels": {"app": "scratch"}, "annotations": {"team": "a"}},
        "spec": {
            "accessModes": ["ReadWriteOnce"], "storageClassName": class, "resources": {"requests": {"storage": "1Gi"}},
        },
    });
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "one"},
        "spec": {
            "containers": [{"name": "main", "image": "nginx:1"}],
            "volumes": [{"name": "scratch", "ephemeral": {"volumeClaimTemplate": template}}],
        },
    })
}

#[rstest]
#[case("Immediate")]
#[case("WaitForFirstConsumer")]
#[tokio::test(start_paused = true)]
async fn claim_of_an_ephemeral_volume_is_created_and_deleted_with_its_pod(#[case] mode: &str) {
    let cluster = Cluster::start();
    class(&cluster, mode).await;
    let pod = cluster.create(ephemeral_pod("fast")).await;
    cluster.pass(3.0).await;
    assert_eq!(cluster.get("v1", "Pod", "one").await["status"]["phase"], "Running");
    let claim = cluster.get("v1", "PersistentVolumeClaim", "one-scratch").await;
    let owner = json!([{
        "apiVersion": "v1", "kind": "Pod", "name": "one", "uid": pod["metadata"]["uid"], "controller": true,
        "blockOwnerDeletion": true,
    }]);
    assert_eq!(claim["metadata"]["ownerReferences"], owner, "{claim:#}");
    assert_eq!(claim["metadata"]["labels"], json!({"app": "scratch"}));
    assert_eq!(claim["metadata"]["annotations"]["team"], "a");
    assert_eq!(claim["status"]["phase"], "Bound");
    cluster.delete("v1", "Pod", "one").await;
    cluster.pass(5.0).await;
    assert_eq!(cluster.list("v1", "PersistentVolumeClaim").await, Vec::<Value>::new());
}

#[tokio::test(start_paused = true)]
async fn foreign_claim_is_not_used_for_an_ephemeral_volume() {
    let cluster = Cluster::start();
    class(&cluster, "Immediate").await;
    cluster
        .create(json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "one-scratch"},
            "spec": {
                "accessModes": ["ReadWriteOnce"], "storageClassName": "fast",
                "resources": {"requests": {"storage": "1Gi"}},
            },
        }))
        .await;
    cluster.pass(1.0).await;
    cluster.create(ephemeral_pod("fast")).await;
    cluster.pass(1.0).await;
    let why = "PVC default/one-scratch was not created for pod default/one (pod is not owner)";
    let pod = cluster.get("v1", "Pod", "one").await;
    let message = condition(&pod, "PodScheduled")[2].to_owned();
    assert!(
        message.starts_with(&format!("0/1 nodes are available: {why}. preemption: ")),
        "{message}"
    );
    let failed = cluster.events("FailedBinding").await;
    assert!(
        failed.contains(&format!("ephemeral volume scratch: {why}")),
        "{failed:?}"
    );
}

/// The scheduler checks claims before it examines Nodes (`VolumeBinding.PreFilter`).
#[rstest]
#[case::unbound_claim(Some("Pending"), "pod has unbound immediate PersistentVolumeClaims")]
#[case::missing_claim(None, "persistentvolumeclaim \"data\" not found")]
#[case::lost_claim(
    Some("Lost"),
    "persistentvolumeclaim \"data\" bound to non-existent persistentvolume \"gone\""
)]
#[tokio::test(start_paused = true)]
async fn pod_with_an_unusable_claim_is_unschedulable(#[case] phase: Option<&str>, #[case] why: &str) {
    let cluster = Cluster::with(&[Worker::Kubelet]);
    if let Some(phase) = phase {
        let mut claim = json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "data"},
            "spec": {
                "accessModes": ["ReadWriteOnce"], "storageClassName": "fast",
                "resources": {"requests": {"storage": "1Gi"}},
            },
        });
        if phase == "Lost" {
            claim["spec"]["volumeName"] = json!("gone");
        }
        cluster.create(claim).await;
        let path = "/api/v1/namespaces/default/persistentvolumeclaims/data/status";
        let (code, _) = cluster.send("PATCH", path, &json!({"status": {"phase": phase}})).await;
        assert_eq!(code, 200);
    }
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "one"},
        "spec": {
            "containers": [{"name": "main", "image": "nginx:1", "resources": {"requests": {"cpu": "1000"}}}],
            "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}],
        },
    });
    cluster.create(pod).await;
    cluster.pass(1.0).await;
    let pod = cluster.get("v1", "Pod", "one").await;
    let message = format!(
        "0/1 nodes are available: {why}. preemption: 0/1 nodes are available: 1 Preemption is not helpful for \
         scheduling."
    );
    assert_eq!(condition(&pod, "PodScheduled")[2], message);
}

/// Creates the nodes `a` and `b`, and a claim that is bound to a local volume of a node.
async fn local_volume(cluster: &Cluster, node: &str) {
    for name in ["a", "b"] {
        let labels = json!({"kubernetes.io/hostname": name});
        cluster
            .create(json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}}))
            .await;
    }
    let term = json!({"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}]});
    cluster
        .create(json!({
            "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "local"},
            "spec": {
                "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": "fast",
                "local": {"path": "/data"}, "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}},
            },
        }))
        .await;
    claim(cluster).await;
    cluster.pass(1.0).await;
    assert_eq!(phase(cluster).await, "Bound");
}

/// A local volume is only usable on its Node.
#[rstest]
#[case::existing_node("b", "b")]
#[case::missing_node(
    "z",
    "0/2 nodes are available: 2 node(s) didn't match PersistentVolume's node affinity. preemption: \
    0/2 nodes are available: 2 Preemption is not helpful for scheduling."
)]
#[tokio::test(start_paused = true)]
async fn pod_is_scheduled_to_the_node_of_its_bound_volume(#[case] node: &str, #[case] expected: &str) {
    let cluster = Cluster::start();
    local_volume(&cluster, node).await;
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "one"},
        "spec": {
            "containers": [{"name": "main", "image": "nginx:1"}],
            "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}],
        },
    });
    cluster.create(pod).await;
    cluster.pass(1.0).await;
    let pod = cluster.get("v1", "Pod", "one").await;
    let placed = pod["spec"]["nodeName"]
        .as_str()
        .unwrap_or(condition(&pod, "PodScheduled")[2]);
    assert_eq!(placed, expected);
}

/// The volume is not usable on the nodes, but the resources are checked first (`VolumeBinding` follows
/// `NodeResourcesFit`), and only node `a` is full.
#[tokio::test(start_paused = true)]
async fn preemption_does_not_help_if_a_volume_is_not_usable_on_a_full_node() {
    let cluster = Cluster::start();
    local_volume(&cluster, "z").await;
    let class = json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "high"},
        "value": 1});
    cluster.create(class).await;
    let containers = json!([{"name": "main", "image": "nginx:1", "resources": {"requests": {"cpu": "6"}}}]);
    cluster
        .create(json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "low"},
            "spec": {"containers": containers, "nodeSelector": {"kubernetes.io/hostname": "a"}},
        }))
        .await;
    cluster.pass(1.0).await;
    cluster
        .create(json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "high"},
            "spec": {
                "containers": containers, "priorityClassName": "high",
                "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}],
            },
        }))
        .await;
    cluster.pass(1.0).await;
    let message = "0/2 nodes are available: 1 Insufficient cpu, 1 node(s) didn't match PersistentVolume's node \
        affinity. preemption: 0/2 nodes are available: 1 Preemption is not helpful for scheduling, 1 node(s) didn't \
        match PersistentVolume's node affinity.";
    assert_eq!(
        condition(&cluster.get("v1", "Pod", "high").await, "PodScheduled")[2],
        message
    );
}

fn volume(spec: Value) -> Value {
    let mut volume = json!({
        "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "disk"},
        "spec": {
            "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": "fast",
            "hostPath": {"path": "/data"},
        },
    });
    for (field, value) in spec.as_object().expect("the value is an object") {
        volume["spec"][field] = value.clone();
    }
    volume
}

fn data(spec: Value) -> Value {
    let mut claim = json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "data"},
        "spec": {
            "accessModes": ["ReadWriteOnce"], "storageClassName": "fast",
            "resources": {"requests": {"storage": "1Gi"}},
        },
    });
    for (field, value) in spec.as_object().expect("the value is an object") {
        claim["spec"][field] = value.clone();
    }
    claim
}

/// A claim that names a volume is only bound to it if the volume is suitable (`checkVolumeSatisfyClaim`).
#[rstest]
#[case::insufficient_size(json!({"capacity": {"storage": "500Mi"}}), "requested PV is too small")]
#[case::another_storage_class(json!({"storageClassName": "slow"}), "storageClassName does not match")]
#[case::another_volume_mode(json!({"volumeMode": "Block"}), "incompatible volumeMode")]
#[case::another_access_mode(json!({"accessModes": ["ReadOnlyMany"]}), "incompatible accessMode")]
#[tokio::test(start_paused = true)]
async fn requested_volume_must_satisfy_the_claim(#[case] spec: Value, #[case] why: &str) {
    let cluster = Cluster::start();
    cluster.create(volume(spec)).await;
    cluster.create(data(json!({"volumeName": "disk"}))).await;
    cluster.pass(1.0).await;
    assert_eq!(phase(&cluster).await, "Pending");
    let message = format!("Cannot bind to requested volume \"disk\": {why}");
    assert_eq!(cluster.events("VolumeMismatch").await, [message]);
}

#[tokio::test(start_paused = true)]
async fn requested_volume_of_another_claim_is_not_bound() {
    let cluster = Cluster::start();
    cluster
        .create(volume(json!({"claimRef": {"namespace": "default", "name": "other"}})))
        .await;
    cluster.create(data(json!({"volumeName": "disk"}))).await;
    cluster.pass(1.0).await;
    assert_eq!(phase(&cluster).await, "Pending");
    let message = "volume \"disk\" already bound to a different claim.";
    assert_eq!(cluster.events("FailedBinding").await, [message]);
}

/// A volume that is reserved for the claim must be large enough.
#[tokio::test(start_paused = true)]
async fn reserved_volume_that_is_too_small_is_not_bound() {
    let cluster = Cluster::start();
    let reference = json!({"namespace": "default", "name": "data"});
    cluster
        .create(volume(json!({"claimRef": reference, "capacity": {"storage": "500Mi"}})))
        .await;
    cluster.create(data(json!({}))).await;
    cluster.pass(1.0).await;
    assert_eq!(phase(&cluster).await, "Pending");
}

#[rstest]
#[case::volume_of_another_claim(
    json!({"spec": {"claimRef": {"uid": "another"}}}), "ClaimMisbound",
    "Two claims are bound to the same volume, this one is bound incorrectly")]
#[tokio::test(start_paused = true)]
async fn bound_claim_loses_a_volume_that_refers_to_another_claim(
    #[case] change: Value,
    #[case] reason: &str,
    #[case] message: &str,
) {
    let cluster = Cluster::start();
    cluster.create(volume(json!({}))).await;
    cluster.create(data(json!({}))).await;
    cluster.pass(1.0).await;
    assert_eq!(phase(&cluster).await, "Bound");
    cluster.patch("v1", "PersistentVolume", "disk", change).await;
    cluster.pass(1.0).await;
    let claim = cluster.get("v1", "PersistentVolumeClaim", "data").await;
    assert_eq!(claim["status"], json!({"phase": "Lost"}));
    assert_eq!(cluster.events(reason).await, [message]);
}

#[tokio::test(start_paused = true)]
async fn events_of_a_waiting_claim_name_its_unscheduled_pods() {
    let cluster = Cluster::start();
    class(&cluster, "WaitForFirstConsumer").await;
    claim(&cluster).await;
    cluster.pass(1.0).await;
    let waiting = cluster.events("WaitForFirstConsumer").await;
    assert_eq!(waiting, ["waiting for first consumer to be created before binding"]);
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "one"},
        "spec": {
            "containers": [{"name": "main", "image": "nginx:1"}], "nodeSelector": {"zone": "none"},
            "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}],
        },
    });
    cluster.create(pod.clone()).await;
    pod["metadata"]["name"] = json!("two");
    cluster.create(pod).await;
    cluster.pass(1.0).await;
    let labels = json!({"metadata": {"labels": {"a": "b"}}});
    cluster.patch("v1", "PersistentVolumeClaim", "data", labels).await;
    cluster.pass(1.0).await;
    let waiting = cluster.events("WaitForPodScheduled").await;
    assert_eq!(
        waiting.last().map(String::as_str),
        Some("waiting for pods one,two to be scheduled")
    );
}

#[tokio::test(start_paused = true)]
async fn waiting_for_an_external_provisioner_is_reported() {
    let cluster = Cluster::start();
    class(&cluster, "Immediate").await;
    claim(&cluster).await;
    cluster.pass(1.0).await;
    let message = "Waiting for a volume to be created either by the external provisioner 'example.com/disk' or \
                   manually by the system administrator. If volume creation is delayed, please verify that the \
                   provisioner is running and correctly registered.";
    assert_eq!(cluster.events("ExternalProvisioning").await, [message]);
    let claim = cluster.get("v1", "PersistentVolumeClaim", "data").await;
    for name in [
        "volume.beta.kubernetes.io/storage-provisioner",
        "volume.kubernetes.io/storage-provisioner",
    ] {
        assert_eq!(claim["metadata"]["annotations"][name], "example.com/disk");
    }
}

#[tokio::test(start_paused = true)]
async fn removed_protection_finalizers_are_added_again() {
    let cluster = Cluster::start();
    cluster.create(volume(json!({}))).await;
    cluster.create(data(json!({}))).await;
    cluster.pass(1.0).await;
    for (kind, name) in [("PersistentVolume", "disk"), ("PersistentVolumeClaim", "data")] {
        let before = cluster.get("v1", kind, name).await["metadata"]["finalizers"].clone();
        cluster
            .patch("v1", kind, name, json!({"metadata": {"finalizers": null}}))
            .await;
        cluster.pass(1.0).await;
        assert_eq!(cluster.get("v1", kind, name).await["metadata"]["finalizers"], before);
    }
}

#[tokio::test(start_paused = true)]
async fn bound_claim_has_the_attributes_class_of_its_volume() {
    let cluster = Cluster::start();
    let mut attributes = json!({"apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttributesClass",
        "metadata": {"name": "gold"}, "driverName": "example.com"});
    attributes["parameters"] = json!({"iops": "100"});
    cluster.create(attributes).await;
    let csi = json!({"driver": "example.com", "volumeHandle": "disk"});
    let spec = json!({"volumeAttributesClassName": "gold", "hostPath": null, "csi": csi});
    cluster.create(volume(spec)).await;
    cluster.create(data(json!({"volumeAttributesClassName": "gold"}))).await;
    cluster.pass(1.0).await;
    let claim = cluster.get("v1", "PersistentVolumeClaim", "data").await;
    assert_eq!(claim["status"]["phase"], "Bound");
    assert_eq!(claim["status"]["currentVolumeAttributesClassName"], "gold");
}

/// A quota counts `status.allocatedResources` if it is larger than the request, as after a failed expansion.
#[tokio::test(start_paused = true)]
async fn quota_counts_the_allocated_size_of_a_claim() {
    let cluster = Cluster::start();
    let hard = json!({"requests.storage": "100Gi"});
    cluster
        .create(json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q"}, "spec": {"hard": hard}}))
        .await;
    cluster.pass(1.0).await;
    cluster.create(data(json!({}))).await;
    cluster.pass(1.0).await;
    let used = async || cluster.get("v1", "ResourceQuota", "q").await["status"]["used"]["requests.storage"].clone();
    assert_eq!(used().await, "1Gi");
    let path = "/api/v1/namespaces/default/persistentvolumeclaims/data/status";
    let patch = json!({"status": {"allocatedResources": {"storage": "3Gi"}}});
    assert_eq!(cluster.send("PATCH", path, &patch).await.0, 200);
    cluster.pass(1.0).await;
    assert_eq!(used().await, "3Gi");
}

#[rstest]
#[case::volume_is_created_last(false)]
#[case::class_is_created_last(true)]
#[tokio::test(start_paused = true)]
async fn pod_is_scheduled_if_its_volume_or_class_appears_later(#[case] is_class_last: bool) {
    let cluster = Cluster::start();
    let class = json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "fast"},
        "provisioner": "kubernetes.io/no-provisioner", "volumeBindingMode": "WaitForFirstConsumer",
    });
    let (first, last) = match is_class_last {
        true => (volume(json!({})), class),
        false => (class, volume(json!({}))),
    };
    cluster.create(first).await;
    cluster.create(data(json!({"volumeName": ""}))).await;
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "one"},
        "spec": {
            "containers": [{"name": "main", "image": "nginx:1"}],
            "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}],
        },
    });
    cluster.create(pod).await;
    cluster.pass(5.0).await;
    cluster.create(last).await;
    cluster.pass(5.0).await;
    assert_eq!(phase(&cluster).await, "Bound");
    assert_eq!(cluster.get("v1", "Pod", "one").await["status"]["phase"], "Running");
}

#[tokio::test(start_paused = true)]
async fn volume_reserved_by_a_user_gets_the_uid_of_its_claim() {
    let cluster = Cluster::start();
    cluster
        .create(volume(json!({"claimRef": {"namespace": "default", "name": "data"}})))
        .await;
    cluster.create(data(json!({"volumeName": "disk"}))).await;
    cluster.pass(1.0).await;
    assert_eq!(phase(&cluster).await, "Bound");
    let disk = cluster.get("v1", "PersistentVolume", "disk").await;
    let claim = cluster.get("v1", "PersistentVolumeClaim", "data").await;
    assert_eq!(disk["spec"]["claimRef"]["uid"], claim["metadata"]["uid"]);
    assert_eq!(disk["metadata"]["annotations"], Value::Null);
}
