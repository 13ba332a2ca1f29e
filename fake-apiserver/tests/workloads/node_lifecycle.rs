//! Nodes that are lost or under pressure, and their Pods.

use fake_apiserver::Worker;
use rstest::rstest;
use serde_json::{Value, json};

use crate::cluster::{Cluster, condition, deployment};

async fn set_condition(cluster: &Cluster, node: &str, kind: &str, status: &str) {
    let condition = json!({"type": kind, "status": status, "reason": "Test", "message": ""});
    let patch = json!({"status": {"conditions": [condition]}});
    let request = http::Request::patch(format!("/api/v1/nodes/{node}/status"))
        .header("content-type", "application/strategic-merge-patch+json")
        .body(bytes::Bytes::from(patch.to_string()));
    let answer = cluster.0.call(request.expect("the request is valid")).await;
    assert_eq!(answer.status(), 200);
}

async fn taints(cluster: &Cluster, node: &str) -> Vec<String> {
    let node = cluster.get("v1", "Node", node).await;
    let taints = node["spec"]["taints"].as_array().cloned().unwrap_or_default();
    let shown = |it: &Value| {
        let (key, effect) = (
            it["key"].as_str().unwrap_or_default(),
            it["effect"].as_str().unwrap_or_default(),
        );
        format!("{}:{effect}", key.trim_start_matches("node.kubernetes.io/"))
    };
    taints.iter().map(shown).collect()
}

#[rstest]
#[case::not_ready("Ready", "False", &["not-ready:NoSchedule", "not-ready:NoExecute"])]
#[case::unreachable("Ready", "Unknown", &["unreachable:NoSchedule", "unreachable:NoExecute"])]
#[case::pressure("MemoryPressure", "True", &["memory-pressure:NoSchedule"])]
#[case::no_pressure("DiskPressure", "False", &[])]
#[tokio::test(start_paused = true)]
async fn conditions_of_nodes_become_taints(#[case] kind: &str, #[case] status: &str, #[case] expected: &[&str]) {
    let cluster = Cluster::start();
    cluster
        .create(json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "a"}}))
        .await;
    cluster.pass(1.0).await;
    assert_eq!(taints(&cluster, "a").await, Vec::<String>::new());
    set_condition(&cluster, "a", kind, status).await;
    cluster.pass(1.0).await;
    assert_eq!(taints(&cluster, "a").await, expected);
    set_condition(&cluster, "a", kind, if kind == "Ready" { "True" } else { "False" }).await;
    cluster.pass(1.0).await;
    assert_eq!(taints(&cluster, "a").await, Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn pods_of_an_unreachable_node_are_replaced_after_five_minutes() {
    let cluster = Cluster::start();
    for name in ["a", "b"] {
        cluster
            .create(json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}))
            .await;
    }
    cluster.pass(1.0).await;
    cluster.create(deployment("web", 1)).await;
    cluster.pass(3.0).await;
    let name = cluster.pods().await[0]["metadata"]["name"]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    set_condition(&cluster, "a", "Ready", "Unknown").await;
    cluster.pass(1.0).await;
    assert_eq!(condition(&cluster.get("v1", "Pod", &name).await, "Ready")[0], "False");
    cluster.pass(290.0).await;
    assert_eq!(cluster.pods().await.len(), 1);
    cluster.pass(15.0).await;
    let pods = cluster.pods().await;
    let lost = pods
        .iter()
        .find(|it| it["metadata"]["name"] == name.as_str())
        .expect("the Pod is not deleted");
    assert!(lost["metadata"]["deletionTimestamp"].is_string());
    assert_eq!(condition(lost, "DisruptionTarget")[1], "DeletionByTaintManager");
    let new = pods
        .iter()
        .find(|it| it["metadata"]["name"] != name.as_str())
        .expect("the Pod is replaced");
    assert_eq!(
        (&new["spec"]["nodeName"], &new["status"]["phase"]),
        (&json!("b"), &json!("Running"))
    );
    set_condition(&cluster, "a", "Ready", "True").await;
    cluster.pass(60.0).await;
    assert_eq!(
        cluster.pods().await.len(),
        1,
        "Pods are kept after the kubelet of a has restarted"
    );
}

#[rstest]
#[case::not_tolerated(json!([]), 0.0, false)]
#[case::tolerated(json!([{"key": "gone", "operator": "Exists"}]), 5000.0, true)]
#[case::tolerated_for_a_time(
    json!([{"key": "gone", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 60}]), 58.0, true)]
#[case::expired_toleration(
    json!([{"key": "gone", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 60}]), 61.0, false)]
#[case::toleration_of_another_value(json!([{"key": "gone", "value": "no", "effect": "NoExecute"}]), 0.0, false)]
#[tokio::test(start_paused = true)]
async fn taint_evicts_pods(#[case] tolerations: Value, #[case] after: f64, #[case] stays: bool) {
    let cluster = Cluster::start();
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "one"},
        "spec": {"containers": [{"name": "main", "image": "nginx:1"}], "tolerations": tolerations},
    });
    cluster.create(pod).await;
    cluster.pass(3.0).await;
    let taint = json!({"key": "gone", "value": "yes", "effect": "NoExecute", "timeAdded": cluster.0.now().to_string()});
    cluster
        .patch("v1", "Node", "node-0", json!({"spec": {"taints": [taint]}}))
        .await;
    cluster.pass(after + 1.0).await;
    assert_eq!(cluster.get("v1", "Pod", "one").await != Value::Null, stays);
    assert_eq!(cluster.events("TaintManagerEviction").await.len(), usize::from(!stays));
}

/// Returns a cluster with two Nodes, and a Pod on the first Node.
async fn with_a_pod() -> Cluster {
    let cluster = Cluster::start();
    for name in ["a", "b"] {
        let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}});
        cluster.create(node).await;
    }
    cluster.pass(1.0).await;
    cluster.create(deployment("web", 1)).await;
    cluster.pass(3.0).await;
    assert_eq!(cluster.pods().await[0]["spec"]["nodeName"], "a");
    cluster
}

async fn ready(cluster: &Cluster, node: &str) -> [String; 2] {
    let node = cluster.get("v1", "Node", node).await;
    let [status, reason, _] = condition(&node, "Ready");
    [status, reason].map(str::to_owned)
}

const KNOWN: [&str; 2] = ["True", "KubeletReady"];
const UNKNOWN: [&str; 2] = ["Unknown", "NodeStatusUnknown"];

#[tokio::test(start_paused = true)]
async fn stopped_node_becomes_unreachable_and_its_pods_are_evicted() {
    let cluster = with_a_pod().await;
    cluster.0.kubelet().stop_node("a");
    cluster.pass(49.0).await;
    assert_eq!(ready(&cluster, "a").await, KNOWN);
    cluster.pass(2.0).await;
    assert_eq!(ready(&cluster, "a").await, UNKNOWN);
    let node = cluster.get("v1", "Node", "a").await;
    for kind in ["MemoryPressure", "DiskPressure", "PIDPressure"] {
        assert_eq!(condition(&node, kind)[0], "Unknown", "{kind}");
    }
    assert_eq!(
        taints(&cluster, "a").await,
        ["unreachable:NoSchedule", "unreachable:NoExecute"]
    );
    assert_eq!(
        cluster.events("NodeNotReady").await.len(),
        2,
        "the Node and the Pod have one Event each"
    );
    assert_eq!(condition(&cluster.pods().await[0], "Ready")[0], "False");
    cluster.pass(290.0).await;
    assert_eq!(cluster.pods().await.len(), 1);
    cluster.pass(15.0).await;
    let pods = cluster.pods().await;
    let nodes: Vec<&Value> = pods.iter().map(|it| &it["spec"]["nodeName"]).collect();
    assert_eq!(pods.len(), 2, "the old Pod stays Terminating: {nodes:?}");
    cluster.0.kubelet().start_node("a");
    cluster.pass(60.0).await;
    assert_eq!(ready(&cluster, "a").await, KNOWN);
    assert_eq!(taints(&cluster, "a").await, Vec::<String>::new());
    let pods = cluster.pods().await;
    assert_eq!((pods.len(), &pods[0]["spec"]["nodeName"]), (1, &json!("b")));
}

#[tokio::test(start_paused = true)]
async fn deleted_pod_of_a_stopped_node_is_kept_until_the_node_starts() {
    let cluster = with_a_pod().await;
    let name = cluster.pods().await[0]["metadata"]["name"].clone();
    let name = name.as_str().unwrap_or_default();
    cluster.0.kubelet().stop_node("a");
    cluster.delete("v1", "Pod", name).await;
    cluster.pass(20.0).await;
    assert!(cluster.get("v1", "Pod", name).await["metadata"]["deletionTimestamp"].is_string());
    cluster.0.kubelet().start_node("a");
    cluster.pass(2.0).await;
    assert_eq!(cluster.get("v1", "Pod", name).await, Value::Null);
}

#[tokio::test(start_paused = true)]
async fn node_heartbeats_are_only_sent_if_enabled() {
    let cluster = with_a_pod().await;
    let leases = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";
    let renewed = async || {
        let lease = cluster.send("GET", &format!("{leases}/a"), &Value::Null).await.1;
        lease["spec"]["renewTime"].as_str().map(str::to_owned)
    };
    let revision = cluster.0.resource_version();
    cluster.pass(600.0).await;
    assert_eq!(cluster.0.resource_version(), revision);
    assert_eq!(renewed().await, None);

    cluster.0.kubelet().send_heartbeats(true);
    cluster.pass(1.0).await;
    let lease = cluster.send("GET", &format!("{leases}/a"), &Value::Null).await.1;
    assert_eq!(
        (&lease["spec"]["holderIdentity"], &lease["spec"]["leaseDurationSeconds"]),
        (&json!("a"), &json!(40))
    );
    assert_eq!(lease["metadata"]["ownerReferences"][0]["kind"], "Node");
    let first = renewed().await;
    cluster.pass(10.0).await;
    assert_ne!(renewed().await, first);
    cluster.pass(600.0).await;
    assert_eq!(ready(&cluster, "a").await, KNOWN);

    cluster.0.kubelet().stop_node("a");
    cluster.pass(1.0).await;
    let last = renewed().await;
    cluster.pass(60.0).await;
    assert_eq!(renewed().await, last);
    assert_eq!(
        (ready(&cluster, "a").await, ready(&cluster, "b").await),
        (UNKNOWN.map(str::to_owned), KNOWN.map(str::to_owned))
    );
    cluster.0.kubelet().start_node("a");
    cluster.pass(2.0).await;
    assert_eq!(ready(&cluster, "a").await, KNOWN);

    cluster.0.kubelet().send_heartbeats(false);
    cluster.pass(600.0).await;
    assert_eq!(
        ready(&cluster, "a").await,
        KNOWN,
        "a Node without a Lease needs no heartbeats"
    );
}

#[tokio::test(start_paused = true)]
async fn node_status_is_reported_every_five_minutes_if_heartbeats_are_enabled() {
    let cluster = with_a_pod().await;
    let times = async || {
        let node = cluster.get("v1", "Node", "a").await;
        let conditions = node["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let times = conditions.into_iter().map(|it| {
            let time = |field: &str| it[field].as_str().map(str::to_owned);
            (time("lastHeartbeatTime"), time("lastTransitionTime"))
        });
        times.collect::<Vec<_>>()
    };
    let first = times().await;
    assert_eq!(first.len(), 4);
    cluster.pass(600.0).await;
    assert_eq!(times().await, first);

    cluster.0.kubelet().send_heartbeats(true);
    cluster.pass(1.0).await;
    let second = times().await;
    for (old, new) in first.iter().zip(&second) {
        assert!(old.0 < new.0 && old.1 == new.1, "{old:?} {new:?}");
    }
    cluster.pass(290.0).await;
    assert_eq!(times().await, second);
    cluster.pass(15.0).await;
    assert!(times().await.iter().zip(&second).all(|(new, old)| new.0 > old.0));
}

/// A Node without heartbeats is not lost. A Node is lost if its Lease was renewed and the renewals have ended.
#[rstest]
#[case::missing_lease(0, false)]
#[case::lease_without_renewals(1, false)]
#[case::renewed_lease(2, true)]
#[tokio::test(start_paused = true)]
async fn node_only_becomes_unreachable_after_its_lease_has_been_renewed(#[case] renewals: u32, #[case] is_lost: bool) {
    let workers = [Worker::NodeLifecycle];
    let cluster = Cluster::with(&workers);
    let now = cluster.0.now().to_string();
    let kinds = ["Ready", "MemoryPressure", "DiskPressure"];
    let conditions = kinds.map(|kind| {
        let status = if kind == "Ready" { "True" } else { "False" };
        json!({"type": kind, "status": status, "reason": "KubeletReady", "lastHeartbeatTime": now, "lastTransitionTime": now})
    });
    let node =
        json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "a"}, "status": {"conditions": conditions}});
    cluster.create(node).await;
    for renewal in 0..renewals {
        let lease = json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"name": "a", "namespace": "kube-node-lease"},
            "spec": {"renewTime": format!("2026-01-01T00:00:{renewal:02}.000000Z")},
        });
        let path = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/a";
        let method = if renewal == 0 { "PUT" } else { "PATCH" };
        let (code, answer) = cluster.send(method, path, &lease).await;
        assert!(code < 300, "{answer}");
        cluster.pass(10.0).await;
    }
    cluster.pass(35.0).await;
    assert_eq!(ready(&cluster, "a").await, KNOWN);
    cluster.pass(10.0).await;
    assert_eq!(ready(&cluster, "a").await == UNKNOWN, is_lost);
    let node = cluster.get("v1", "Node", "a").await;
    let expected = if is_lost {
        ["Unknown", "NodeStatusNeverUpdated"]
    } else {
        ["", ""]
    };
    assert_eq!(condition(&node, "PIDPressure")[..2], expected);
}

#[tokio::test(start_paused = true)]
async fn pods_of_a_deleted_node_are_removed() {
    let cluster = with_a_pod().await;
    let name = cluster.pods().await[0]["metadata"]["name"].clone();
    let name = name.as_str().unwrap_or_default();
    let finalizers = json!({"metadata": {"finalizers": ["example.com/kept"]}});
    cluster.patch("v1", "Pod", name, finalizers).await;
    cluster.delete("v1", "Node", "a").await;
    cluster.pass(35.0).await;
    assert_eq!(
        cluster.get("v1", "Pod", name).await["metadata"]["deletionTimestamp"],
        Value::Null
    );
    cluster.pass(10.0).await;
    let pod = cluster.get("v1", "Pod", name).await;
    assert!(pod["metadata"]["deletionTimestamp"].is_string());
    assert_eq!(pod["status"]["phase"], "Failed");
    assert_eq!(condition(&pod, "DisruptionTarget")[..2], ["True", "DeletionByPodGC"]);
    let pods = cluster.pods().await;
    let new = pods.iter().find(|it| it["metadata"]["name"] != name);
    assert_eq!(new.map(|it| &it["spec"]["nodeName"]), Some(&json!("b")));
    cluster
        .patch("v1", "Pod", name, json!({"metadata": {"finalizers": null}}))
        .await;
    assert_eq!(cluster.get("v1", "Pod", name).await, Value::Null);
}

/// Manifests of Pods may contain the name of a Node that is not part of the test.
#[tokio::test(start_paused = true)]
async fn pods_of_a_node_that_never_existed_are_kept() {
    let cluster = Cluster::start();
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "a"}});
    cluster.create(node).await;
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "one"},
        "spec": {"nodeName": "absent", "containers": [{"name": "main", "image": "nginx:1"}]},
    });
    cluster.create(pod).await;
    cluster.pass(300.0).await;
    assert_eq!(cluster.get("v1", "Pod", "one").await["status"]["phase"], "Running");
}

#[rstest]
#[case::unreachable_node(true, true)]
#[case::ready_node(false, false)]
#[tokio::test(start_paused = true)]
async fn terminating_pods_of_a_node_out_of_service_are_removed(#[case] is_lost: bool, #[case] removed: bool) {
    let cluster = with_a_pod().await;
    let name = cluster.pods().await[0]["metadata"]["name"].clone();
    let name = name.as_str().unwrap_or_default();
    if is_lost {
        cluster.0.kubelet().stop_node("a");
        cluster.pass(60.0).await;
        cluster.delete("v1", "Pod", name).await;
        cluster.pass(60.0).await;
        assert!(cluster.get("v1", "Pod", name).await["metadata"]["deletionTimestamp"].is_string());
    }
    let known = cluster.get("v1", "Node", "a").await["spec"]["taints"].clone();
    let mut taints = known.as_array().cloned().unwrap_or_default();
    taints.push(json!({"key": "node.kubernetes.io/out-of-service", "value": "nodeshutdown", "effect": "NoSchedule"}));
    cluster
        .patch("v1", "Node", "a", json!({"spec": {"taints": taints}}))
        .await;
    cluster.pass(1.0).await;
    assert_eq!(cluster.get("v1", "Pod", name).await == Value::Null, removed);
}

/// The time of a toleration starts when the taint and the Pod are first seen together.
#[rstest]
#[case::taint_without_a_time(Value::Null, 58.0, true)]
#[case::taint_without_a_time_later(Value::Null, 62.0, false)]
#[case::taint_with_an_old_time(json!("2020-01-01T00:00:00Z"), 58.0, true)]
#[case::taint_with_an_old_time_later(json!("2020-01-01T00:00:00Z"), 62.0, false)]
#[tokio::test(start_paused = true)]
async fn toleration_seconds_start_when_the_controller_observes_the_taint(
    #[case] added: Value,
    #[case] after: f64,
    #[case] stays: bool,
) {
    let cluster = Cluster::start();
    let mut taint = json!({"key": "gone", "effect": "NoExecute"});
    if !added.is_null() {
        taint["timeAdded"] = added;
    }
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "a"}, "spec": {"taints": [taint]}});
    cluster.create(node).await;
    cluster.pass(10.0).await;
    let toleration = json!({"key": "gone", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 60});
    cluster
        .create(json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "one"},
            "spec": {"containers": [{"name": "main", "image": "nginx:1"}], "tolerations": [toleration]},
        }))
        .await;
    cluster.pass(20.0).await;
    // A later change of the Pod does not extend the time.
    cluster
        .patch("v1", "Pod", "one", json!({"metadata": {"labels": {"a": "b"}}}))
        .await;
    cluster.pass(after - 20.0).await;
    assert_eq!(cluster.get("v1", "Pod", "one").await != Value::Null, stays);
}

/// The eviction by taints does not depend on the phase of a Pod (`processPodOnNode`).
#[tokio::test(start_paused = true)]
async fn finished_pod_is_evicted_by_a_taint() {
    let cluster = with_a_pod().await;
    let name = cluster.pods().await[0]["metadata"]["name"].clone();
    let path = format!(
        "/api/v1/namespaces/default/pods/{}/status",
        name.as_str().unwrap_or_default()
    );
    let patch = json!({"status": {"phase": "Succeeded"}});
    assert_eq!(cluster.send("PATCH", &path, &patch).await.0, 200);
    let node = cluster.pods().await[0]["spec"]["nodeName"].clone();
    let taint = json!({"spec": {"taints": [{"key": "k", "effect": "NoExecute"}]}});
    cluster
        .patch("v1", "Node", node.as_str().unwrap_or_default(), taint)
        .await;
    cluster.pass(5.0).await;
    let pods = cluster.pods().await;
    assert!(pods.iter().all(|it| it["metadata"]["name"] != name), "{pods:#?}");
}

#[tokio::test(start_paused = true)]
async fn cancelled_eviction_is_reported() {
    let cluster = Cluster::start();
    cluster
        .create(json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "a"}}))
        .await;
    let mut pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "one"}});
    pod["spec"] = crate::cluster::template("one")["spec"].clone();
    pod["spec"]["tolerations"] =
        json!([{"key": "k", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 60}]);
    cluster.create(pod).await;
    cluster.pass(3.0).await;
    for taints in [json!([{"key": "k", "effect": "NoExecute"}]), Value::Null] {
        cluster
            .patch("v1", "Node", "a", json!({"spec": {"taints": taints}}))
            .await;
        cluster.pass(10.0).await;
    }
    assert_eq!(
        cluster.events("TaintManagerEviction").await,
        ["Cancelling deletion of Pod default/one"]
    );
}

#[tokio::test(start_paused = true)]
async fn node_is_registered_and_removed_with_events() {
    let cluster = Cluster::start();
    cluster
        .create(json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "a"}}))
        .await;
    cluster.pass(1.0).await;
    assert_eq!(
        cluster.events("RegisteredNode").await,
        ["Node a event: Registered Node a in Controller"]
    );
    cluster.delete("v1", "Node", "a").await;
    cluster.pass(1.0).await;
    assert_eq!(
        cluster.events("RemovingNode").await,
        ["Node a event: Removing Node a from Controller"]
    );
}

/// Conditions of Pods contain the generation that the controller has seen.
#[tokio::test(start_paused = true)]
async fn disruption_condition_contains_the_generation() {
    let cluster = Cluster::with(&[Worker::NodeLifecycle]);
    cluster
        .create(json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "a"}}))
        .await;
    let mut pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "one", "finalizers": ["e.com/hold"]}});
    pod["spec"] = crate::cluster::template("one")["spec"].clone();
    pod["spec"]["nodeName"] = json!("a");
    cluster.create(pod).await;
    set_condition(&cluster, "a", "Ready", "True").await;
    let taint = json!({"spec": {"taints": [{"key": "k", "effect": "NoExecute"}]}});
    cluster.patch("v1", "Node", "a", taint).await;
    cluster.pass(1.0).await;
    let pod = cluster.get("v1", "Pod", "one").await;
    let conditions = pod["status"]["conditions"].as_array().expect("the value is a list");
    let target = conditions.iter().find(|it| it["type"] == "DisruptionTarget");
    assert_eq!(target.expect("the Pod is evicted")["observedGeneration"], 1, "{pod:#}");
}
