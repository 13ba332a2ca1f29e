//! Nodes that are lost or under pressure, and their Pods.

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
#[case::lost("Ready", "Unknown", &["unreachable:NoSchedule", "unreachable:NoExecute"])]
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
async fn pods_of_a_lost_node_are_replaced_after_five_minutes() {
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
    assert_eq!(cluster.pods().await.len(), 1, "the kubelet of a is back");
}

#[rstest]
#[case::not_tolerated(json!([]), 0.0, false)]
#[case::tolerated(json!([{"key": "gone", "operator": "Exists"}]), 5000.0, true)]
#[case::for_a_time(json!([{"key": "gone", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 60}]), 58.0, true)]
#[case::until_then(json!([{"key": "gone", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 60}]), 61.0, false)]
#[case::another_value(json!([{"key": "gone", "value": "no", "effect": "NoExecute"}]), 0.0, false)]
#[tokio::test(start_paused = true)]
async fn a_taint_evicts_pods(#[case] tolerations: Value, #[case] after: f64, #[case] stays: bool) {
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
