//! StatefulSets: order, names, claims, updates.

use fake_apiserver::{PodScript, PodSelector};
use rstest::rstest;
use serde_json::{Value, json};

use crate::cluster::{Cluster, template};

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
