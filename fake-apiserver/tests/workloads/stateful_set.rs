//! StatefulSets: order, names, claims, updates.

use fake_apiserver::{ApiServer, KubernetesVersion, PodScript, PodSelector, Worker};
use rstest::rstest;
use serde_json::{Value, json};

use crate::cluster::{Cluster, condition, template};

fn set(spec: Value) -> Value {
    let mut set = json!({
        "apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "db"},
        "spec": {
            "replicas": 3, "serviceName": "db", "selector": {"matchLabels": {"app": "db"}}, "template": template("db"),
        },
    });
    for (field, value) in spec.as_object().expect("the value is an object") {
        set["spec"][field] = value.clone();
    }
    set
}

async fn names(cluster: &Cluster) -> Vec<String> {
    let name = |it: &Value| it["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    cluster.pods().await.iter().map(name).collect()
}

async fn images(cluster: &Cluster) -> Vec<String> {
    let image = |it: &Value| {
        it["spec"]["containers"][0]["image"]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    };
    cluster.pods().await.iter().map(image).collect()
}

#[tokio::test(start_paused = true)]
async fn pods_are_created_in_order_and_deleted_in_reverse() {
    let cluster = Cluster::start();
    cluster.create(set(json!({}))).await;
    cluster.pass(0.5).await;
    assert_eq!(names(&cluster).await, ["db-0"]);
    cluster.pass(1.0).await;
    assert_eq!(names(&cluster).await, ["db-0", "db-1"]);
    cluster.pass(3.0).await;
    let db = cluster.get("apps/v1", "StatefulSet", "db").await;
    for field in [
        "replicas",
        "readyReplicas",
        "currentReplicas",
        "updatedReplicas",
        "availableReplicas",
    ] {
        assert_eq!(db["status"][field], 3, "{field} of {:#}", db["status"]);
    }
    assert_eq!(db["status"]["currentRevision"], db["status"]["updateRevision"]);
    let first = cluster.get("v1", "Pod", "db-0").await;
    assert_eq!(first["metadata"]["generateName"], "db-");
    let messages = [0, 1, 2].map(|it| format!("Create Pod db-{it} in StatefulSet db successful"));
    assert_eq!(cluster.events("SuccessfulCreate").await, messages);
    let labels = &first["metadata"]["labels"];
    assert_eq!(labels["statefulset.kubernetes.io/pod-name"], "db-0");
    assert_eq!(labels["apps.kubernetes.io/pod-index"], "0");
    assert_eq!(labels["controller-revision-hash"], db["status"]["currentRevision"]);
    assert_eq!(
        (&first["spec"]["hostname"], &first["spec"]["subdomain"]),
        (&json!("db-0"), &json!("db"))
    );
    cluster
        .patch("apps/v1", "StatefulSet", "db", json!({"spec": {"replicas": 1}}))
        .await;
    cluster.pass(5.0).await;
    assert_eq!(names(&cluster).await, ["db-0"]);
    assert_eq!(cluster.list("apps/v1", "ControllerRevision").await.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn parallel_pods_are_created_together() {
    let cluster = Cluster::start();
    cluster
        .0
        .kubelet()
        .script(PodSelector::all(), PodScript::default().never_ready());
    cluster
        .create(set(
            json!({"podManagementPolicy": "Parallel", "ordinals": {"start": 5}}),
        ))
        .await;
    cluster.pass(0.5).await;
    assert_eq!(names(&cluster).await, ["db-5", "db-6", "db-7"]);
}

#[tokio::test(start_paused = true)]
async fn volume_claims_are_kept_if_a_stateful_set_is_scaled_down() {
    let cluster = Cluster::start();
    cluster.create(json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "fast"}, "provisioner": "example.com/disk"})).await;
    let claim = json!({
        "metadata": {"name": "data"},
        "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "fast", "resources": {"requests": {"storage": "1Gi"}}},
    });
    cluster
        .create(set(json!({"replicas": 2, "volumeClaimTemplates": [claim]})))
        .await;
    cluster.pass(5.0).await;
    assert_eq!(names(&cluster).await, ["db-0", "db-1"]);
    cluster
        .patch("apps/v1", "StatefulSet", "db", json!({"spec": {"replicas": 0}}))
        .await;
    cluster.pass(5.0).await;
    let claims = cluster.list("v1", "PersistentVolumeClaim").await;
    let stand: Vec<String> = claims
        .iter()
        .map(|it| format!("{} {}", it["metadata"]["name"], it["status"]["phase"]))
        .collect();
    assert_eq!(stand, ["\"data-db-0\" \"Bound\"", "\"data-db-1\" \"Bound\""]);
}

#[rstest]
#[tokio::test(start_paused = true)]
async fn stateful_set_update_stops_at_the_partition(#[values(0, 5)] start: i64) {
    let cluster = Cluster::start();
    cluster
        .create(set(json!({
            "ordinals": {"start": start},
            "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 2}},
        })))
        .await;
    cluster.pass(10.0).await;
    let uids = async || cluster.pods().await.into_iter().map(|it| it["metadata"]["uid"].clone());
    let before: Vec<_> = uids().await.take(2).collect();
    let container = json!([{"name": "main", "image": "nginx:2"}]);
    cluster
        .patch(
            "apps/v1",
            "StatefulSet",
            "db",
            json!({"spec": {"template": {"spec": {"containers": container}}}}),
        )
        .await;
    cluster.pass(10.0).await;
    assert_eq!(images(&cluster).await, ["nginx:1", "nginx:1", "nginx:2"]);
    assert_eq!(
        uids().await.take(2).collect::<Vec<_>>(),
        before,
        "Pods below the partition are kept"
    );
    let all = json!({"spec": {"updateStrategy": {"rollingUpdate": {"partition": 0}}}});
    cluster.patch("apps/v1", "StatefulSet", "db", all).await;
    cluster.pass(20.0).await;
    assert_eq!(images(&cluster).await, ["nginx:2"; 3]);
    let db = cluster.get("apps/v1", "StatefulSet", "db").await;
    assert_eq!(db["status"]["currentRevision"], db["status"]["updateRevision"]);
    assert_eq!(cluster.list("apps/v1", "ControllerRevision").await.len(), 2);
}

/// The name of a revision contains its hash (Go's `NewControllerRevision`).
#[tokio::test(start_paused = true)]
async fn controller_revision_has_a_hash_and_the_annotations_of_the_set() {
    let cluster = Cluster::start();
    let mut set = set(json!({"replicas": 1}));
    set["metadata"]["annotations"] = json!({"team": "a"});
    cluster.create(set).await;
    cluster.pass(1.0).await;
    let revision = cluster.list("apps/v1", "ControllerRevision").await.remove(0);
    let metadata = &revision["metadata"];
    let hash = metadata["labels"]["controller.kubernetes.io/hash"]
        .as_str()
        .expect("the hash is a string");
    assert_eq!(metadata["name"], format!("db-{hash}"));
    assert_eq!(
        metadata["labels"].as_object().map(|it| it.len()),
        Some(2),
        "{metadata:#}"
    );
    assert_eq!(metadata["annotations"], json!({"team": "a"}));
}

/// The new set takes over the ControllerRevisions together with the Pods, so that the Pods keep running.
#[rstest]
#[case::stateful_set("StatefulSet")]
#[case::daemon_set("DaemonSet")]
#[tokio::test(start_paused = true)]
async fn recreated_set_adopts_revisions_and_keeps_pods(#[case] kind: &str) {
    let cluster = Cluster::start();
    let mut set = set(json!({"replicas": 2}));
    set["kind"] = kind.into();
    if kind == "DaemonSet" {
        set["spec"] = json!({"selector": {"matchLabels": {"app": "db"}}, "template": template("db")});
    }
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "a"}});
    cluster.create(node).await;
    cluster.create(set.clone()).await;
    cluster.pass(5.0).await;
    let uids = async |kind: &str| {
        let api = if kind == "Pod" { "v1" } else { "apps/v1" };
        let objects = cluster.list(api, kind).await;
        objects
            .iter()
            .map(|it| it["metadata"]["uid"].clone())
            .collect::<Vec<_>>()
    };
    let (pods, revisions) = (uids("Pod").await, uids("ControllerRevision").await);
    let plural = format!("{}s", kind.to_lowercase());
    let path = format!("/apis/apps/v1/namespaces/default/{plural}/db");
    let (status, _) = cluster
        .send("DELETE", &path, &json!({"propagationPolicy": "Orphan"}))
        .await;
    assert_eq!(status, 200);
    cluster.pass(1.0).await;
    assert_eq!(cluster.get("apps/v1", kind, "db").await, Value::Null);
    cluster.create(set).await;
    cluster.pass(60.0).await;
    assert_eq!(uids("Pod").await, pods);
    assert_eq!(uids("ControllerRevision").await, revisions);
    let owner = cluster.list("apps/v1", "ControllerRevision").await[0]["metadata"]["ownerReferences"][0].clone();
    assert_eq!(
        owner["uid"],
        cluster.get("apps/v1", kind, "db").await["metadata"]["uid"]
    );
}

fn image(number: u32) -> Value {
    let containers = json!([{"name": "main", "image": format!("nginx:{number}")}]);
    json!({"spec": {"template": {"spec": {"containers": containers}}}})
}

#[tokio::test(start_paused = true)]
async fn parallel_rollout_replaces_pods_that_are_not_ready() {
    let cluster = Cluster::start();
    let broken = PodSelector::labelled("version=1").expect("the selector is valid");
    cluster.0.kubelet().script(broken, PodScript::default().never_ready());
    let mut broken = set(json!({"podManagementPolicy": "Parallel"}));
    broken["spec"]["template"]["metadata"]["labels"]["version"] = json!("1");
    cluster.create(broken).await;
    cluster.pass(5.0).await;
    let mut fixed = image(2);
    fixed["spec"]["template"]["metadata"] = json!({"labels": {"version": "2"}});
    cluster.patch("apps/v1", "StatefulSet", "db", fixed).await;
    cluster.pass(0.1).await;
    assert_eq!(images(&cluster).await[..2], ["nginx:1", "nginx:1"]);
    cluster.pass(30.0).await;
    assert_eq!(images(&cluster).await, ["nginx:2"; 3]);
}

/// A Pod that is missing or was just created is not available (`isUnavailable`).
#[tokio::test(start_paused = true)]
async fn parallel_rollout_replaces_one_pod_at_a_time() {
    let cluster = Cluster::start();
    cluster.create(set(json!({"podManagementPolicy": "Parallel"}))).await;
    cluster.pass(10.0).await;
    cluster.patch("apps/v1", "StatefulSet", "db", image(2)).await;
    for step in 0..200 {
        cluster.pass(0.05).await;
        let is_ready =
            |it: &&Value| condition(it, "Ready")[0] == "True" && it["metadata"].get("deletionTimestamp").is_none();
        let ready = cluster.pods().await.iter().filter(is_ready).count();
        assert!(ready >= 2, "{ready} ready Pods in step {step}");
    }
    assert_eq!(images(&cluster).await, ["nginx:2"; 3]);
}

/// Returns a cluster with a set that has claims, and a class for them.
async fn with_claims(workers: &[Worker], spec: Value) -> Cluster {
    let cluster = Cluster::with(workers);
    let class = json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "fast"},
        "provisioner": "example.com/disk"});
    cluster.create(class).await;
    let claim = json!({
        "metadata": {"name": "data"},
        "spec": {
            "accessModes": ["ReadWriteOnce"], "storageClassName": "fast", "resources": {"requests": {"storage": "1Gi"}},
        },
    });
    let mut set = set(spec);
    set["spec"]["volumeClaimTemplates"] = json!([claim]);
    cluster.create(set).await;
    cluster.pass(5.0).await;
    cluster
}

/// A claim that is deleted with the previous Pod of the same name is not used for the next one (`PodClaimIsStale`).
#[tokio::test(start_paused = true)]
async fn pod_of_a_stateful_set_does_not_use_a_claim_that_is_deleted_with_its_predecessor() {
    let policy = json!({"whenScaled": "Delete", "whenDeleted": "Retain"});
    let spec = json!({"replicas": 2, "persistentVolumeClaimRetentionPolicy": policy});
    let workers: Vec<Worker> = Worker::WORKLOADS.to_vec();
    let cluster = with_claims(&workers, spec).await;
    for replicas in [1, 2] {
        cluster
            .patch("apps/v1", "StatefulSet", "db", json!({"spec": {"replicas": replicas}}))
            .await;
        cluster.pass(5.0).await;
    }
    assert_eq!(
        names(&cluster).await,
        ["db-0"],
        "no garbage collector has deleted the claim"
    );
    assert_eq!(cluster.events("FailedCreate").await, Vec::<String>::new());
    cluster.delete("v1", "PersistentVolumeClaim", "data-db-1").await;
    cluster.pass(5.0).await;
    assert_eq!(names(&cluster).await, ["db-0", "db-1"]);
}

#[tokio::test(start_paused = true)]
async fn pod_of_a_stateful_set_is_not_created_while_its_claim_is_being_deleted() {
    let cluster = with_claims(Worker::ALL, json!({"replicas": 1})).await;
    let mut reader = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "reader"}});
    reader["spec"] = template("reader")["spec"].clone();
    reader["spec"]["volumes"] = json!([{"name": "data", "persistentVolumeClaim": {"claimName": "data-db-0"}}]);
    cluster.create(reader).await;
    cluster.pass(2.0).await;
    cluster.delete("v1", "PersistentVolumeClaim", "data-db-0").await;
    cluster.delete("v1", "Pod", "db-0").await;
    cluster.pass(5.0).await;
    assert_eq!(names(&cluster).await, ["reader"]);
    assert_eq!(
        cluster.events("FailedCreate").await,
        ["Create Pod db-0 in StatefulSet db failed error: pvc data-db-0 is being deleted"]
    );
    cluster.delete("v1", "Pod", "reader").await;
    cluster.pass(10.0).await;
    assert_eq!(names(&cluster).await, ["db-0"]);
}

async fn put_status(cluster: &Cluster, pod: &str, phase: &str, is_ready: bool) {
    let status = if is_ready { "True" } else { "False" };
    let ready = json!({"type": "Ready", "status": status, "lastTransitionTime": "2026-01-01T00:00:00Z"});
    let patch = json!({"status": {"phase": phase, "conditions": [ready]}});
    let path = format!("/api/v1/namespaces/default/pods/{pod}/status");
    assert_eq!(cluster.send("PATCH", &path, &patch).await.0, 200);
    cluster.pass(0.1).await;
}

/// An unready Pod is only removed if no Pod with a lower ordinal is unready.
#[tokio::test(start_paused = true)]
async fn ordered_scale_down_only_removes_an_unready_pod_without_an_unready_predecessor() {
    let cluster = Cluster::with(&[Worker::StatefulSet]);
    cluster.create(set(json!({"replicas": 4}))).await;
    cluster.pass(0.1).await;
    for pod in ["db-0", "db-1", "db-2", "db-3"] {
        put_status(&cluster, pod, "Running", true).await;
    }
    for pod in ["db-2", "db-3"] {
        put_status(&cluster, pod, "Running", false).await;
    }
    cluster
        .patch("apps/v1", "StatefulSet", "db", json!({"spec": {"replicas": 1}}))
        .await;
    cluster.pass(1.0).await;
    assert_eq!(names(&cluster).await, ["db-0", "db-1", "db-2", "db-3"]);
    put_status(&cluster, "db-3", "Running", true).await;
    assert_eq!(
        names(&cluster).await,
        ["db-0"],
        "the first unready Pod and the ready ones are removed"
    );
}

#[tokio::test(start_paused = true)]
async fn foreign_pod_with_the_name_of_a_stateful_set_pod_does_not_cause_an_event() {
    let cluster = Cluster::start();
    let mut foreign = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "db-0"}});
    foreign["spec"] = template("db")["spec"].clone();
    cluster.create(foreign).await;
    cluster.create(set(json!({}))).await;
    cluster.pass(10.0).await;
    assert_eq!(cluster.events("FailedCreate").await, Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn pod_name_label_is_restored() {
    let cluster = Cluster::start();
    cluster.create(set(json!({"replicas": 1}))).await;
    cluster.pass(5.0).await;
    let name = "statefulset.kubernetes.io/pod-name";
    cluster
        .patch("v1", "Pod", "db-0", json!({"metadata": {"labels": {name: null}}}))
        .await;
    cluster.pass(1.0).await;
    assert_eq!(
        cluster.get("v1", "Pod", "db-0").await["metadata"]["labels"][name],
        "db-0"
    );
    let updated = cluster.events("SuccessfulUpdate").await;
    assert_eq!(updated, ["Update Pod db-0 in StatefulSet db successful"]);
}

#[tokio::test(start_paused = true)]
async fn missing_claim_of_a_pending_pod_is_created_without_an_event_about_the_pod() {
    let policy = json!({"whenScaled": "Retain", "whenDeleted": "Delete"});
    let cluster = with_claims(&[Worker::StatefulSet], json!({"replicas": 1})).await;
    cluster
        .create(json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "a"}}))
        .await;
    let binding = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "db-0"},
        "target": {"kind": "Node", "name": "a"}});
    let path = "/api/v1/namespaces/default/pods/db-0/binding";
    assert_eq!(cluster.send("POST", path, &binding).await.0, 201);
    let patch = json!({"metadata": {"finalizers": null}});
    cluster.patch("v1", "PersistentVolumeClaim", "data-db-0", patch).await;
    cluster.delete("v1", "PersistentVolumeClaim", "data-db-0").await;
    cluster.pass(1.0).await;
    let claim = async || cluster.get("v1", "PersistentVolumeClaim", "data-db-0").await;
    assert_ne!(claim().await, Value::Null);
    let patch = json!({"spec": {"persistentVolumeClaimRetentionPolicy": policy}});
    cluster.patch("apps/v1", "StatefulSet", "db", patch).await;
    cluster.pass(1.0).await;
    assert_eq!(claim().await["metadata"]["ownerReferences"][0]["kind"], "StatefulSet");
    assert_eq!(cluster.events("SuccessfulUpdate").await, Vec::<String>::new());
}

#[rstest]
#[case("Pending", Value::Null)]
#[case("Running", json!(1))]
#[tokio::test(start_paused = true)]
async fn only_running_pods_count_as_ready_replicas_of_a_stateful_set(#[case] phase: &str, #[case] ready: Value) {
    let cluster = Cluster::with(&[Worker::StatefulSet]);
    cluster.create(set(json!({"replicas": 1}))).await;
    cluster.pass(0.1).await;
    put_status(&cluster, "db-0", phase, true).await;
    let status = cluster.get("apps/v1", "StatefulSet", "db").await["status"].clone();
    assert_eq!(status["readyReplicas"], ready, "{status:#}");
}

/// A percentage is rounded down since Kubernetes 1.37 uses this field.
#[tokio::test(start_paused = true)]
async fn max_unavailable_percentage_is_rounded_down() {
    let server = ApiServer::builder()
        .workers(Worker::ALL)
        .kubernetes_version(KubernetesVersion::V1_37);
    let cluster = Cluster(server.start());
    let rolling = json!({"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "50%"}});
    cluster
        .create(set(
            json!({"podManagementPolicy": "Parallel", "updateStrategy": rolling}),
        ))
        .await;
    cluster.pass(10.0).await;
    cluster.patch("apps/v1", "StatefulSet", "db", image(2)).await;
    cluster.pass(0.1).await;
    let pods = cluster.pods().await;
    let is_old = |it: &&Value| {
        it["spec"]["containers"][0]["image"] == "nginx:1" && it["metadata"].get("deletionTimestamp").is_none()
    };
    assert_eq!(pods.iter().filter(is_old).count(), 2);
}
