//! Nodes: the first Node, its status, and the Pods that it admits.

use fake_apiserver::{ApiServer, KubernetesVersion, Worker};
use rstest::rstest;
use serde_json::{Value, json};

use crate::cluster::{Cluster, condition, template};

fn pod(name: &str, spec: Value) -> Value {
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
        "spec": {"containers": [{"name": "main", "image": "nginx:1"}]},
    });
    for (field, value) in spec.as_object().expect("the value is an object") {
        pod["spec"][field] = value.clone();
    }
    pod
}

fn on_port(port: u16) -> Value {
    json!([{"name": "main", "image": "nginx:1", "ports": [{"containerPort": 80, "hostPort": port}]}])
}

#[rstest]
#[case::pod(pod("one", json!({})), 1)]
#[case::assigned_pod(pod("one", json!({"nodeName": "node-0"})), 1)]
#[case::daemon_set(
    json!({"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "agent"},
        "spec": {"selector": {"matchLabels": {"app": "agent"}}, "template": template("agent")}}), 1,
)]
#[case::pod_of_another_scheduler(pod("one", json!({"schedulerName": "mine"})), 0)]
#[tokio::test(start_paused = true)]
async fn first_pod_registers_a_node(#[case] object: Value, #[case] nodes: usize) {
    let cluster = Cluster::start();
    assert_eq!(cluster.list("v1", "Node").await.len(), 0);
    cluster.create(object).await;
    cluster.pass(3.0).await;
    assert_eq!(cluster.list("v1", "Node").await.len(), nodes);
    let running: Vec<Value> = cluster.pods().await;
    assert_eq!(running.len(), 1);
    assert_eq!(running[0]["status"]["phase"] == "Running", nodes == 1);
    assert!(cluster.events("FailedScheduling").await.is_empty());
    if nodes == 1 {
        let node = cluster.get("v1", "Node", "node-0").await;
        assert_eq!(condition(&node, "Ready")[0], "True");
        assert_eq!(node["spec"]["taints"], Value::Null);
        assert_eq!(node["metadata"]["labels"]["kubernetes.io/hostname"], "node-0");
        assert_eq!(
            running[0]["status"]["hostIP"],
            node["status"]["addresses"][0]["address"]
        );
    }
}

#[tokio::test(start_paused = true)]
async fn no_node_is_registered_if_nodes_exist() {
    let cluster = Cluster::start();
    cluster
        .create(json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "a"}, "spec": {"unschedulable": true}}))
        .await;
    cluster.create(pod("one", json!({}))).await;
    cluster.pass(3.0).await;
    assert_eq!(cluster.list("v1", "Node").await.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn nodes_have_addresses_and_a_version() {
    let server = ApiServer::builder()
        .workers(Worker::ALL)
        .kubernetes_version(KubernetesVersion::V1_35)
        .nodes(1)
        .start();
    let cluster = Cluster(server);
    cluster
        .create(json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "b"}}))
        .await;
    cluster.pass(1.0).await;
    let mut addresses = Vec::new();
    for name in ["node-0", "b"] {
        let node = cluster.get("v1", "Node", name).await;
        assert!(
            node["status"]["nodeInfo"]["kubeletVersion"]
                .as_str()
                .is_some_and(|it| it.starts_with("v1.35."))
        );
        assert_eq!(node["status"]["addresses"][0]["type"], "InternalIP");
        addresses.push(node["status"]["addresses"][0]["address"].clone());
    }
    assert_eq!(addresses, ["172.18.0.2", "172.18.0.3"]);
}

#[rstest]
#[case::port_that_is_free(json!({"containers": on_port(81)}), "Running", "", "")]
#[case::port_that_is_in_use(
    json!({"containers": on_port(80)}), "Failed", "NodePorts",
    "Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports",
)]
#[case::too_many_cpus(
    json!({"containers": [{"name": "main", "image": "i", "resources": {"requests": {"cpu": "8"}}}]}), "Failed",
    "OutOfcpu", "Node didn't have enough resource: cpu, requested: 8000, used: 500, capacity: 8000",
)]
#[case::node_selector_of_another_node(
    json!({"nodeSelector": {"disk": "ssd"}}), "Failed", "NodeAffinity",
    "Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector",
)]
#[tokio::test(start_paused = true)]
async fn kubelet_rejects_assigned_pods_that_do_not_fit(
    #[case] mut spec: Value,
    #[case] phase: &str,
    #[case] reason: &str,
    #[case] message: &str,
) {
    let cluster = Cluster::start();
    let mut first = pod("one", json!({"containers": on_port(80)}));
    first["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": "500m"}});
    cluster.create(first).await;
    cluster.pass(2.0).await;
    spec["nodeName"] = json!("node-0");
    cluster.create(pod("two", spec)).await;
    cluster.pass(3.0).await;
    let two = cluster.get("v1", "Pod", "two").await;
    assert_eq!(two["status"]["phase"], phase, "{:#}", two["status"]);
    assert_eq!(two["status"]["reason"].as_str().unwrap_or_default(), reason);
    if !reason.is_empty() {
        assert_eq!(two["status"]["message"], format!("Pod was rejected: {message}"));
        assert_eq!(cluster.events(reason).await, [message]);
    }
    assert_eq!(cluster.get("v1", "Pod", "one").await["status"]["phase"], "Running");
}

#[rstest]
#[case::host_ports(json!({"containers": on_port(80)}), "node(s) didn't have free ports for the requested pod ports")]
#[case::maximum_number_of_pods(json!({}), "Too many pods")]
#[tokio::test(start_paused = true)]
async fn pod_waits_until_another_pod_is_removed(#[case] spec: Value, #[case] why: &str) {
    let cluster = Cluster::start();
    let room = json!({"cpu": "8", "pods": "1"});
    cluster
        .create(
            json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "small"},
            "status": {"capacity": room, "allocatable": room}}),
        )
        .await;
    cluster.create(pod("one", spec.clone())).await;
    cluster.pass(2.0).await;
    if why.starts_with("node(s)") {
        let room = json!({"status": {"allocatable": {"pods": "2"}}});
        let (code, _) = cluster.send("PATCH", "/api/v1/nodes/small/status", &room).await;
        assert_eq!(code, 200);
    }
    cluster.create(pod("two", spec)).await;
    cluster.pass(2.0).await;
    let two = cluster.get("v1", "Pod", "two").await;
    let [_, _, message] = condition(&two, "PodScheduled");
    assert!(
        message.starts_with(&format!("0/1 nodes are available: 1 {why}.")),
        "{message}"
    );
    cluster.delete("v1", "Pod", "one").await;
    cluster.pass(2.0).await;
    assert_eq!(cluster.get("v1", "Pod", "two").await["spec"]["nodeName"], "small");
}

#[tokio::test(start_paused = true)]
async fn new_node_gets_a_unique_address() {
    let cluster = Cluster::start();
    let addresses: Vec<Value> = (2..6)
        .map(|it| json!({"type": "InternalIP", "address": format!("172.18.0.{it}")}))
        .collect();
    for (name, status) in [("a", json!({"addresses": addresses})), ("b", json!({}))] {
        let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "status": status});
        cluster.create(node).await;
        cluster.pass(1.0).await;
    }
    let node = cluster.get("v1", "Node", "b").await;
    assert_eq!(node["status"]["addresses"][0]["address"], "172.18.0.6");
}

/// The Event keeps its name, its count and the time of its first occurrence, as in client-go.
#[tokio::test(start_paused = true)]
async fn deleted_event_is_recreated() {
    let cluster = Cluster::start();
    let node = async |name: &str| {
        let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}});
        cluster.create(node).await;
        cluster.pass(1.0).await;
    };
    let find = async || {
        let mut events = cluster.list("v1", "Event").await;
        events.retain(|it| it["message"].as_str().is_some_and(|it| it.starts_with("0/2 nodes")));
        events
    };
    node("a").await;
    cluster.create(pod("one", json!({"nodeSelector": {"zone": "x"}}))).await;
    cluster.pass(1.0).await;
    node("b").await;
    let first = find().await.remove(0);
    assert_eq!(first["count"], 1);
    let name = first["metadata"]["name"].as_str().unwrap_or_default();
    cluster.delete("v1", "Event", name).await;
    cluster.delete("v1", "Node", "b").await;
    cluster.pass(1.0).await;
    node("b").await;
    let again = find().await.remove(0);
    assert_eq!((&again["count"], &again["metadata"]["name"]), (&json!(2), &json!(name)));
    assert_eq!(again["firstTimestamp"], first["firstTimestamp"]);
    assert_ne!(again["lastTimestamp"], first["lastTimestamp"]);
}
