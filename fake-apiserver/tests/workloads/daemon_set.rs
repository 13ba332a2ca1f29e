//! DaemonSets: one Pod per Node.

use std::time::Duration;

use fake_apiserver::{PodScript, PodSelector, Worker};
use rstest::rstest;
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
async fn daemon_set_runs_one_pod_per_node_and_replaces_pods_on_update() {
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
    assert_eq!(
        nodes(&cluster).await,
        ["a", "b", "c"],
        "Pods of a deleted Node are left to the garbage collector"
    );
    let status = cluster.get("apps/v1", "DaemonSet", "agent").await["status"].clone();
    assert_eq!(status["numberMisscheduled"], 0, "{status:#}");
    cluster.pass(60.0).await;
    assert_eq!(nodes(&cluster).await, ["a", "b"]);
}

/// Counts the Pods with each image. New Pods become ready after four seconds.
#[tokio::test(start_paused = true)]
async fn daemon_set_surge_starts_new_pods_before_old_pods_end() {
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

/// Returns a DaemonSet with these fields in its spec.
fn agent(spec: Value) -> Value {
    let mut set = json!({
        "apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "agent"},
        "spec": {"selector": {"matchLabels": {"app": "agent"}}, "template": template("agent")},
    });
    for (field, value) in spec.as_object().expect("the value is an object") {
        set["spec"][field] = value.clone();
    }
    set
}

/// Returns a cluster without kubelets, with a Node and a DaemonSet.
async fn without_kubelet(set: Value) -> Cluster {
    let cluster = Cluster::with(&[Worker::DaemonSet]);
    let mut a = node("a");
    a["metadata"]["labels"] = json!({"disk": "ssd"});
    cluster.create(a).await;
    cluster
        .patch("v1", "Node", "a", json!({"spec": {"taints": null}}))
        .await;
    cluster.create(set).await;
    cluster.pass(0.1).await;
    cluster
}

async fn end(cluster: &Cluster, name: &Value, phase: &str) {
    let path = format!(
        "/api/v1/namespaces/default/pods/{}/status",
        name.as_str().unwrap_or_default()
    );
    let (code, _) = cluster.send("PATCH", &path, &json!({"status": {"phase": phase}})).await;
    assert_eq!(code, 200);
    cluster.pass(0.1).await;
}

async fn status(cluster: &Cluster) -> Value {
    cluster.get("apps/v1", "DaemonSet", "agent").await["status"].clone()
}

/// A Pod keeps running on a Node that got a taint with the effect `NoSchedule` (`shouldContinueRunning`).
#[rstest]
#[case("NoSchedule", 1)]
#[case("NoExecute", 0)]
#[tokio::test(start_paused = true)]
async fn daemon_pod_stays_on_a_node_unless_a_taint_evicts_it(#[case] effect: &str, #[case] left: usize) {
    let cluster = Cluster::start();
    cluster.create(node("a")).await;
    cluster.create(agent(json!({}))).await;
    cluster.pass(3.0).await;
    let taint = json!({"spec": {"taints": [{"key": "k", "value": "v", "effect": effect}]}});
    cluster.patch("v1", "Node", "a", taint).await;
    cluster.pass(5.0).await;
    assert_eq!(cluster.pods().await.len(), left);
    let status = status(&cluster).await;
    assert_eq!(
        (&status["desiredNumberScheduled"], &status["numberMisscheduled"]),
        (&json!(0), &json!(left)),
        "{status:#}"
    );
}

#[rstest]
#[case::running_pod(json!({}), "Pending", 1)]
#[case::failed_pod(json!({}), "Failed", 2)]
#[case::running_pod_with_surge(json!({"maxSurge": 1, "maxUnavailable": 0}), "Pending", 2)]
#[tokio::test(start_paused = true)]
async fn terminating_daemon_pod_is_replaced_immediately_if_it_failed_or_with_surge(
    #[case] rolling: Value,
    #[case] phase: &str,
    #[case] pods: usize,
) {
    let mut set = agent(json!({"updateStrategy": {"type": "RollingUpdate", "rollingUpdate": rolling}}));
    set["spec"]["template"]["metadata"]["finalizers"] = json!(["example.com/hold"]);
    let cluster = without_kubelet(set).await;
    let pod = cluster.pods().await[0]["metadata"]["name"].clone();
    if phase == "Failed" {
        end(&cluster, &pod, phase).await;
    } else {
        cluster.delete("v1", "Pod", pod.as_str().unwrap_or_default()).await;
    }
    cluster.pass(0.5).await;
    assert_eq!(cluster.pods().await.len(), pods);
}

/// `ReplaceDaemonSetPodNodeNameNodeAffinity` and `AddOrUpdateDaemonPodTolerations`.
#[tokio::test(start_paused = true)]
async fn daemon_pod_has_only_the_node_in_its_affinity_and_no_duplicate_tolerations() {
    let mut set = agent(json!({}));
    let expression = json!({"key": "disk", "operator": "In", "values": ["ssd"]});
    let required = json!({"nodeSelectorTerms": [{"matchExpressions": [expression]}]});
    set["spec"]["template"]["spec"]["affinity"] =
        json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}});
    set["spec"]["template"]["spec"]["tolerations"] = json!([
        {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 30},
        {"key": "node.kubernetes.io/disk-pressure", "operator": "Exists", "effect": "NoSchedule"},
    ]);
    let cluster = without_kubelet(set).await;
    let pod = cluster.pods().await.remove(0);
    let required = &pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
    let fields = json!([{"key": "metadata.name", "operator": "In", "values": ["a"]}]);
    assert_eq!(required["nodeSelectorTerms"], json!([{"matchFields": fields}]));
    let tolerations = pod["spec"]["tolerations"].as_array().expect("the value is a list");
    let of = |key: &str| tolerations.iter().filter(|it| it["key"] == key).collect::<Vec<_>>();
    assert_eq!(
        of("node.kubernetes.io/not-ready"),
        [&json!({"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute"})]
    );
    assert_eq!(of("node.kubernetes.io/disk-pressure").len(), 1);
}

#[rstest]
#[case(
    "Succeeded",
    "SucceededDaemonPod",
    "Found succeeded daemon pod default/POD on node a, will try to delete it"
)]
#[case(
    "Failed",
    "FailedDaemonPod",
    "Found failed daemon pod default/POD on node a, will try to kill it"
)]
#[tokio::test(start_paused = true)]
async fn event_about_an_ended_daemon_pod_contains_its_phase(
    #[case] phase: &str,
    #[case] reason: &str,
    #[case] message: &str,
) {
    let cluster = without_kubelet(agent(json!({}))).await;
    let pod = cluster.pods().await[0]["metadata"]["name"].clone();
    end(&cluster, &pod, phase).await;
    let message = message.replace("POD", pod.as_str().unwrap_or_default());
    assert_eq!(cluster.events(reason).await, [message]);
}

#[tokio::test(start_paused = true)]
async fn status_of_a_daemon_set_that_is_being_deleted_is_not_written() {
    let mut set = agent(json!({}));
    set["metadata"]["finalizers"] = json!(["example.com/hold"]);
    let cluster = without_kubelet(set).await;
    let before = status(&cluster).await;
    cluster.delete("apps/v1", "DaemonSet", "agent").await;
    cluster.create(node("b")).await;
    cluster.pass(1.0).await;
    assert_eq!(status(&cluster).await, before);
}

/// The limit also counts revisions of existing Pods, which are kept (`cleanupHistory`).
#[tokio::test(start_paused = true)]
async fn history_limit_of_a_daemon_set_includes_live_revisions() {
    let cluster = without_kubelet(agent(
        json!({"revisionHistoryLimit": 1, "updateStrategy": {"type": "OnDelete"}}),
    ))
    .await;
    for number in 2..5 {
        let containers = json!([{"name": "main", "image": format!("nginx:{number}")}]);
        let patch = json!({"spec": {"template": {"spec": {"containers": containers}}}});
        cluster.patch("apps/v1", "DaemonSet", "agent", patch).await;
        cluster.pass(0.1).await;
    }
    let mut revisions: Vec<i64> = cluster
        .list("apps/v1", "ControllerRevision")
        .await
        .iter()
        .filter_map(|it| it["revision"].as_i64())
        .collect();
    revisions.sort_unstable();
    assert_eq!(revisions, [1, 4]);
}

/// The delay starts at one second and is doubled with each failure.
#[tokio::test(start_paused = true)]
async fn failed_daemon_pods_are_deleted_with_a_backoff() {
    let cluster = without_kubelet(agent(json!({}))).await;
    let fail = async || {
        let pod = cluster.pods().await[0]["metadata"]["name"].clone();
        end(&cluster, &pod, "Failed").await;
        cluster.pods().await[0]["metadata"]["name"] == pod
    };
    assert!(!fail().await, "the first failed Pod is deleted at once");
    assert!(fail().await, "the next failed Pod is kept");
    cluster.pass(1.0).await;
    assert!(fail().await, "the delay is two seconds");
    cluster.pass(1.0).await;
    assert_eq!(cluster.pods().await[0]["status"]["phase"], "Failed");
    cluster.pass(1.0).await;
    assert_eq!(cluster.pods().await[0]["status"]["phase"], "Pending");
}

#[tokio::test(start_paused = true)]
async fn scheduled_daemon_pod_is_kept_if_a_node_has_several() {
    let cluster = Cluster::with(&[Worker::DaemonSet]);
    cluster.create(node("a")).await;
    cluster
        .patch("v1", "Node", "a", json!({"spec": {"taints": null}}))
        .await;
    let fields = json!([{"key": "metadata.name", "operator": "In", "values": ["a"]}]);
    let required = json!({"nodeSelectorTerms": [{"matchFields": fields}]});
    let pinned = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}});
    for (name, field, value) in [("first", "affinity", pinned), ("later", "nodeName", json!("a"))] {
        let mut pod = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": "agent"}},
            "spec": {"containers": [{"name": "main", "image": "nginx:1"}]},
        });
        pod["spec"][field] = value;
        cluster.create(pod).await;
        cluster.pass(2.0).await;
    }
    cluster
        .create(agent(json!({"updateStrategy": {"type": "OnDelete"}})))
        .await;
    cluster.pass(1.0).await;
    let mut pods = cluster.pods().await;
    pods.retain(|it| it["metadata"].get("deletionTimestamp").is_none());
    let left: Vec<&Value> = pods.iter().map(|it| &it["metadata"]["name"]).collect();
    assert_eq!(left, ["later"]);
}
