//! DaemonSets: one Pod per Node.

use std::time::Duration;

use fake_apiserver::{PodScript, PodSelector};
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
async fn daemon_set_runs_one_pod_per_node_and_replaces_them_on_update() {
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

/// Counts the Pods with each image. New Pods become ready after four seconds.
#[tokio::test(start_paused = true)]
async fn daemon_set_surge_starts_new_pods_before_old_ones_end() {
    let cluster = Cluster::start();
    for name in ["a", "b", "c"] {
        cluster.create(node(name)).await;
    }
    let mut set = json!({
        "apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "agent"},
        "spec": {"selector": {"matchLabels": {"app": "agent"}}, "template": template("agent")},
    });
    set["spec"]["updateStrategy"] =
        json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 2, "maxUnavailable": 0}});
    cluster.create(set).await;
    cluster.pass(10.0).await;
    let slow = PodScript::default().ready_after(Duration::from_secs(3));
    cluster.0.kubelet().script(PodSelector::all(), slow);
    let container = json!([{"name": "main", "image": "nginx:2"}]);
    let patch = json!({"spec": {"template": {"spec": {"containers": container}}}});
    cluster.patch("apps/v1", "DaemonSet", "agent", patch).await;
    let mut seen = Vec::new();
    for _ in 0..14 {
        cluster.pass(1.0).await;
        let pods = cluster.pods().await;
        let count = |image: &str| {
            pods.iter()
                .filter(|it| it["spec"]["containers"][0]["image"] == image)
                .count()
        };
        seen.push((count("nginx:1"), count("nginx:2")));
    }
    seen.dedup();
    assert_eq!(seen, [(3, 2), (1, 3), (0, 3)]);
    assert_eq!(nodes(&cluster).await, ["a", "b", "c"]);
}
