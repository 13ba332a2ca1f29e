//! ReplicaSets: scaling, adoption, and the order in which Pods are deleted.

use rstest::rstest;
use serde_json::{Value, json};

use crate::cluster::{Cluster, condition, template};

fn set(replicas: u32) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": "web"},
        "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": "web"}}, "template": template("web")},
    })
}

fn pod(name: &str) -> Value {
    let template = template("web");
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": "web"}},
        "spec": template["spec"],
    })
}

#[rstest]
#[case("apps/v1", "ReplicaSet")]
#[case("v1", "ReplicationController")]
#[tokio::test(start_paused = true)]
async fn replica_set_keeps_its_number_of_pods(#[case] api: &str, #[case] kind: &str) {
    let cluster = Cluster::start();
    let mut it = set(3);
    (it["apiVersion"], it["kind"]) = (api.into(), kind.into());
    if kind == "ReplicationController" {
        it["spec"]["selector"] = json!({"app": "web"});
    }
    cluster.create(it).await;
    cluster.pass(2.0).await;
    let status = &cluster.get(api, kind, "web").await["status"];
    for field in ["replicas", "fullyLabeledReplicas", "readyReplicas", "availableReplicas"] {
        assert_eq!(status[field], 3, "{field} of {status}");
    }
    let first = cluster.pods().await[0]["metadata"]["name"]
        .as_str()
        .expect("the name is a string")
        .to_owned();
    cluster.delete("v1", "Pod", &first).await;
    cluster.pass(2.0).await;
    assert_eq!(cluster.pods().await.len(), 3);
    cluster.patch(api, kind, "web", json!({"spec": {"replicas": 1}})).await;
    cluster.pass(2.0).await;
    assert_eq!(cluster.pods().await.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn matching_orphans_are_adopted_and_other_pods_are_released() {
    let cluster = Cluster::start();
    cluster.create(pod("mine")).await;
    cluster.create(set(1)).await;
    cluster.pass(2.0).await;
    let mine = cluster.get("v1", "Pod", "mine").await;
    assert_eq!(mine["metadata"]["ownerReferences"][0]["kind"], "ReplicaSet");
    assert_eq!(cluster.pods().await.len(), 1);
    cluster
        .patch("v1", "Pod", "mine", json!({"metadata": {"labels": {"app": "other"}}}))
        .await;
    cluster.pass(2.0).await;
    assert_eq!(
        cluster.get("v1", "Pod", "mine").await["metadata"]["ownerReferences"],
        Value::Null
    );
    assert_eq!(cluster.pods().await.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn pod_with_lower_deletion_cost_is_deleted_first() {
    let cluster = Cluster::start();
    for (name, cost) in [("a", "10"), ("b", "-5"), ("c", "0")] {
        let mut it = pod(name);
        it["metadata"]["annotations"] = json!({"controller.kubernetes.io/pod-deletion-cost": cost});
        cluster.create(it).await;
    }
    cluster.create(set(3)).await;
    cluster.pass(2.0).await;
    cluster
        .patch("apps/v1", "ReplicaSet", "web", json!({"spec": {"replicas": 1}}))
        .await;
    cluster.pass(2.0).await;
    let left: Vec<Value> = cluster
        .pods()
        .await
        .into_iter()
        .map(|it| it["metadata"]["name"].clone())
        .collect();
    assert_eq!(left, ["a"]);
}

#[tokio::test(start_paused = true)]
async fn pods_are_available_after_min_ready_seconds() {
    let cluster = Cluster::start();
    let mut it = set(1);
    it["spec"]["minReadySeconds"] = json!(10);
    cluster.create(it).await;
    cluster.pass(5.0).await;
    let status = cluster.get("apps/v1", "ReplicaSet", "web").await["status"].clone();
    assert_eq!(
        (&status["readyReplicas"], &status["availableReplicas"]),
        (&json!(1), &Value::Null)
    );
    cluster.pass(7.0).await;
    assert_eq!(
        cluster.get("apps/v1", "ReplicaSet", "web").await["status"]["availableReplicas"],
        1
    );
}

/// The controllers write the status even if they cannot create Pods.
#[rstest]
#[case::replica_set("apps/v1", "ReplicaSet", json!({"replicas": 2}))]
#[case::replication_controller("v1", "ReplicationController", json!({"replicas": 2}))]
#[case::stateful_set("apps/v1", "StatefulSet", json!({"replicas": 2, "serviceName": "s"}))]
#[case::daemon_set("apps/v1", "DaemonSet", json!({}))]
#[tokio::test(start_paused = true)]
async fn refused_creation_is_reported_in_the_status(#[case] api: &str, #[case] kind: &str, #[case] mut spec: Value) {
    let cluster = Cluster::start();
    let quota = json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "none"},
        "spec": {"hard": {"pods": "0"}}});
    cluster.create(quota).await;
    cluster
        .create(json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}}))
        .await;
    cluster.pass(5.0).await;
    spec["template"] = template("web");
    spec["selector"] = match kind {
        "ReplicationController" => json!({"app": "web"}),
        _ => json!({"matchLabels": {"app": "web"}}),
    };
    let set = json!({"apiVersion": api, "kind": kind, "metadata": {"name": "web"}, "spec": spec});
    cluster.create(set).await;
    cluster.pass(5.0).await;
    assert_eq!(cluster.pods().await, Vec::<Value>::new());
    let set = cluster.get(api, kind, "web").await;
    assert_eq!(set["status"]["observedGeneration"], 1, "{:#}", set["status"]);
    if kind.starts_with("Replica") || kind == "ReplicationController" {
        assert_eq!(set["status"]["replicas"], 0);
        let [status, reason, text] = condition(&set, "ReplicaFailure");
        assert_eq!((status, reason), ("True", "FailedCreate"));
        assert!(text.contains("exceeded quota: none"), "{text}");
    }

    cluster.delete("v1", "ResourceQuota", "none").await;
    cluster.pass(120.0).await;
    let set = cluster.get(api, kind, "web").await;
    assert!(!cluster.pods().await.is_empty());
    let conditions = set["status"]["conditions"].as_array().map_or(0, Vec::len);
    assert_eq!(conditions, 0, "{:#}", set["status"]);
}

/// Ages are compared by their binary logarithms, and equal ones by uid.
#[tokio::test(start_paused = true)]
async fn pods_of_similar_age_are_deleted_in_the_order_of_their_uids() {
    let cluster = Cluster::start();
    for name in ["a", "b", "c", "d", "e", "f"] {
        cluster.create(pod(name)).await;
        cluster.pass(1.0).await;
    }
    cluster.pass(1000.0).await;
    cluster.create(set(6)).await;
    cluster.pass(1.0).await;
    let uids = async || {
        let pods = cluster.pods().await;
        let mut uids: Vec<String> = pods
            .iter()
            .map(|it| it["metadata"]["uid"].as_str().unwrap_or_default().to_owned())
            .collect();
        uids.sort();
        uids
    };
    let all = uids().await;
    cluster
        .patch("apps/v1", "ReplicaSet", "web", json!({"spec": {"replicas": 3}}))
        .await;
    cluster.pass(40.0).await;
    assert_eq!(uids().await, all[3..]);
}

/// Returns the bodies of the patches of Pods whose path ends with this text.
fn patches(cluster: &Cluster, end: &str) -> Vec<Value> {
    let requests = cluster.0.journal().requests();
    let of_pods = |it: &&fake_apiserver::RecordedRequest| {
        it.method == "PATCH" && it.path.contains("/pods/") && it.path.ends_with(end)
    };
    let bodies = requests.iter().filter(of_pods);
    bodies
        .map(|it| serde_json::from_slice(&it.request_body).expect("the body is JSON"))
        .collect()
}

/// Other owners are not part of the requests, so an owner that is added at the same time is kept.
#[tokio::test(start_paused = true)]
async fn adoption_and_release_only_patch_the_own_owner_reference() {
    let cluster = Cluster::start();
    let map = cluster
        .create(json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}}))
        .await;
    let uid = map["metadata"]["uid"].clone();
    let mut mine = pod("mine");
    mine["metadata"]["ownerReferences"] = json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "m", "uid": uid}]);
    cluster.create(mine).await;
    cluster.create(set(1)).await;
    cluster.pass(2.0).await;
    let owners = async || {
        let pod = cluster.get("v1", "Pod", "mine").await;
        let owners = pod["metadata"]["ownerReferences"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        owners.iter().map(|it| it["kind"].clone()).collect::<Vec<_>>()
    };
    assert_eq!(owners().await, ["ReplicaSet", "ConfigMap"]);
    let labels = json!({"metadata": {"labels": {"app": "other"}}});
    cluster.patch("v1", "Pod", "mine", labels).await;
    cluster.pass(2.0).await;
    assert_eq!(owners().await, ["ConfigMap"]);
    let sent = patches(&cluster, "/mine");
    let mut sent = sent
        .iter()
        .filter_map(|it| it["metadata"]["ownerReferences"].as_array());
    let (adopted, released) = (sent.next(), sent.next());
    assert_eq!(adopted.map(Vec::len), Some(1));
    assert_eq!(released.map(|it| it[0]["$patch"].clone()), Some(json!("delete")));
}

#[tokio::test(start_paused = true)]
async fn kubelet_status_patches_contain_the_uid() {
    let cluster = Cluster::start();
    let created = cluster.create(pod("mine")).await;
    cluster.pass(3.0).await;
    let sent = patches(&cluster, "/mine/status");
    assert!(!sent.is_empty());
    for patch in sent {
        assert_eq!(patch["metadata"]["uid"], created["metadata"]["uid"], "{patch}");
    }
}
