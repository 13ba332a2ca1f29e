//! DaemonSets: one Pod a Node.

use serde_json::{Value, json};

use crate::cluster::{Cluster, template};

async fn nodes(cluster: &Cluster) -> Vec<String> {
    let mut nodes: Vec<String> = cluster
        .pods()
        .await
        .iter()
        .map(|it| it["spec"]["nodeName"].as_str().unwrap_or("-").to_owned())
        .collect();
    nodes.sort();
    nodes
}

fn node(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})
}

#[tokio::test(start_paused = true)]
async fn each_node_has_one_and_an_update_replaces_them() {
    let cluster = Cluster::start();
    cluster.create(node("a")).await;
    cluster.create(node("b")).await;
    cluster
        .create(json!({
            "apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "agent"},
            "spec": {"selector": {"matchLabels": {"app": "agent"}}, "template": template("agent")},
        }))
        .await;
    cluster.pass(3.0).await;
    assert_eq!(nodes(&cluster).await, ["a", "b"]);
    let revision = cluster.list("apps/v1", "ControllerRevision").await.remove(0);
    let template_generation = json!({"deprecated.daemonset.template.generation": "1"});
    assert_eq!(revision["metadata"]["annotations"], template_generation);
    cluster.create(node("c")).await;
    cluster
        .patch("v1", "Node", "a", json!({"spec": {"unschedulable": true}}))
        .await;
    cluster.pass(3.0).await;
    assert_eq!(nodes(&cluster).await, ["a", "b", "c"]);
    let container = json!([{"name": "main", "image": "nginx:2"}]);
    cluster
        .patch(
            "apps/v1",
            "DaemonSet",
            "agent",
            json!({"spec": {"template": {"spec": {"containers": container}}}}),
        )
        .await;
    cluster.pass(20.0).await;
    assert!(
        cluster
            .pods()
            .await
            .iter()
            .all(|it| it["spec"]["containers"][0]["image"] == "nginx:2")
    );
    let status = cluster.get("apps/v1", "DaemonSet", "agent").await["status"].clone();
    for field in [
        "currentNumberScheduled",
        "desiredNumberScheduled",
        "numberReady",
        "updatedNumberScheduled",
        "numberAvailable",
    ] {
        assert_eq!(status[field], 3, "{field} of {status:#}");
    }
    cluster.delete("v1", "Node", "c").await;
    cluster.pass(3.0).await;
    assert_eq!(nodes(&cluster).await, ["a", "b"]);
}
