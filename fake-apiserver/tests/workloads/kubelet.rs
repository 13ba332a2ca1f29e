//! Scheduler and kubelet: the life cycle of a Pod.

use std::time::Duration;

use fake_apiserver::{PodScript, PodSelector, Worker};
use rstest::rstest;
use serde_json::{Value, json};

use crate::cluster::{Cluster, condition};

fn pod(policy: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "one"},
        "spec": {"restartPolicy": policy, "containers": [{"name": "main", "image": "busybox:1", "command": ["true"]}]},
    })
}

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// Returns the phase, the state of the container with its reason, and its restarts.
fn stand(pod: &Value) -> String {
    let container = &pod["status"]["containerStatuses"][0];
    let state = container["state"].as_object().and_then(|it| it.iter().next());
    let (state, inner) = state.map_or(("none", Value::Null), |(name, inner)| (name.as_str(), inner.clone()));
    let phase = pod["status"]["phase"].as_str().unwrap_or("gone");
    let reason = inner["reason"].as_str().unwrap_or_default();
    format!("{phase} {state} {reason} {}", container["restartCount"]).replace("  ", " ")
}

/// A container ends if its command is predictable, unless the restart policy is `Always`.
#[rstest]
#[case::command_of_the_image(json!([]), 5000.0, "Running running 0")]
#[case::server(json!(["nginx", "-g", "daemon off;"]), 5000.0, "Running running 0")]
#[case::exit(json!(["sh", "-c", "exit 7"]), 2.5, "Failed terminated Error 0")]
#[case::sleep_that_has_not_ended(json!(["sleep", "30"]), 30.5, "Running running 0")]
#[case::sleep_that_has_ended(json!(["sleep", "30"]), 31.5, "Succeeded terminated Completed 0")]
#[tokio::test(start_paused = true)]
async fn well_known_command_determines_the_container_state(
    #[case] command: Value,
    #[case] after: f64,
    #[case] want: &str,
) {
    let cluster = Cluster::start();
    let mut pod = pod("Never");
    pod["spec"]["containers"][0]["command"] = command;
    cluster.create(pod).await;
    cluster.pass(after).await;
    assert_eq!(stand(&cluster.get("v1", "Pod", "one").await), want);
}

#[rstest]
#[case::container_creating(PodScript::default(), "Always", 0.5, "Pending waiting ContainerCreating 0")]
#[case::running(PodScript::default(), "Always", 1.5, "Running running 0")]
#[case::running_indefinitely(PodScript::default(), "Always", 5000.0, "Running running 0")]
#[case::succeeded(PodScript::default(), "Never", 2.5, "Succeeded terminated Completed 0")]
#[case::failed(PodScript::default().exits_with(3), "Never", 2.5, "Failed terminated Error 0")]
#[case::restarted_after_a_failure(PodScript::default().exits_with(3), "OnFailure", 2.5, "Running running 1")]
#[case::slow_start(PodScript::default().starts_after(seconds(9)), "Always", 8.5, "Pending waiting ContainerCreating 0")]
#[case::crash_loop(PodScript::default().crash_loop(), "Always", 5.0, "Running waiting CrashLoopBackOff 1")]
#[case::second_crash_of_a_crash_loop(PodScript::default().crash_loop(), "Always", 12.0, "Running waiting CrashLoopBackOff 2")]
#[case::image_pull_error(PodScript::default().image_pull_error(), "Always", 2.0, "Pending waiting ErrImagePull 0")]
#[case::image_pull_back_off(PodScript::default().image_pull_error(), "Always", 20.0,
    "Pending waiting ImagePullBackOff 0")]
#[tokio::test(start_paused = true)]
async fn script_determines_the_phases_of_a_pod(
    #[case] script: PodScript,
    #[case] policy: &str,
    #[case] after: f64,
    #[case] want: &str,
) {
    let cluster = Cluster::start();
    cluster.0.kubelet().script(PodSelector::named("default", "one"), script);
    cluster.create(pod(policy)).await;
    cluster.pass(after).await;
    assert_eq!(stand(&cluster.get("v1", "Pod", "one").await), want);
}

#[tokio::test(start_paused = true)]
async fn script_changes_apply_to_running_pods() {
    let cluster = Cluster::start();
    cluster
        .0
        .kubelet()
        .script(PodSelector::all(), PodScript::default().never_ready());
    cluster.create(pod("Always")).await;
    cluster.pass(100.0).await;
    let one = cluster.get("v1", "Pod", "one").await;
    let unready = ["False", "ContainersNotReady", "containers with unready status: [main]"];
    assert_eq!(condition(&one, "Ready"), unready);
    cluster.0.kubelet().clear();
    cluster.pass(0.1).await;
    let one = cluster.get("v1", "Pod", "one").await;
    assert_eq!(condition(&one, "Ready")[0], "True");
    assert_eq!(one["status"]["conditions"].as_array().map(Vec::len), Some(5));
}

#[tokio::test(start_paused = true)]
async fn init_containers_run_first() {
    let cluster = Cluster::start();
    let mut it = pod("Always");
    it["spec"]["initContainers"] = json!([{"name": "a", "image": "i"}, {"name": "b", "image": "i"}]);
    cluster.create(it).await;
    let mut seen = Vec::new();
    for _ in 0..8 {
        cluster.pass(0.5).await;
        let one = cluster.get("v1", "Pod", "one").await;
        let stand = format!(
            "{} {}",
            one["status"]["phase"].as_str().unwrap_or_default(),
            condition(&one, "Initialized")[0]
        );
        if seen.last() != Some(&stand) {
            seen.push(stand);
        }
    }
    assert_eq!(seen, ["Pending False", "Running True"]);
}

#[rstest]
#[case::immediately(PodScript::default(), 0.1)]
#[case::within_the_grace_period(PodScript::default().stops_after(seconds(5)), 5.1)]
#[case::killed_after_the_grace_period(PodScript::default().stops_after(seconds(500)), 30.1)]
#[tokio::test(start_paused = true)]
async fn deleted_pod_stops_within_its_grace_period(#[case] script: PodScript, #[case] gone_after: f64) {
    let cluster = Cluster::start();
    cluster.0.kubelet().script(PodSelector::all(), script);
    cluster.create(pod("Always")).await;
    cluster.pass(2.0).await;
    cluster.delete("v1", "Pod", "one").await;
    if gone_after > 1.0 {
        cluster.pass(gone_after - 0.2).await;
        assert_ne!(cluster.get("v1", "Pod", "one").await, Value::Null);
        cluster.pass(0.2).await;
    }
    cluster.pass(0.1).await;
    assert_eq!(cluster.get("v1", "Pod", "one").await, Value::Null);
}

#[tokio::test(start_paused = true)]
async fn pod_waits_for_a_node_with_enough_resources() {
    let cluster = Cluster::start();
    let room = json!({"cpu": "2", "memory": "1Gi", "pods": "110"});
    cluster
        .create(
            json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "small"},
            "status": {"capacity": room, "allocatable": room}}),
        )
        .await;
    let asking = |name: &str, requests: Value| {
        let mut pod = pod("Always");
        pod["metadata"]["name"] = json!(name);
        pod["spec"]["containers"][0]["resources"] = json!({ "requests": requests });
        pod
    };
    cluster.create(asking("one", json!({"cpu": "1500m"}))).await;
    cluster.pass(2.0).await;
    cluster.create(asking("two", json!({"cpu": "1"}))).await;
    cluster
        .create(asking("gpu", json!({"memory": "2Gi", "cpu": "100m"})))
        .await;
    cluster.pass(2.0).await;
    assert_eq!(cluster.get("v1", "Pod", "one").await["spec"]["nodeName"], "small");
    // The whole node is too small for the Pod `gpu`.
    let reasons = [
        (
            "two",
            "Insufficient cpu",
            "No preemption victims found for incoming pod",
        ),
        ("gpu", "Insufficient memory", "Preemption is not helpful for scheduling"),
    ];
    for (name, why, preemption) in reasons {
        let waiting = cluster.get("v1", "Pod", name).await;
        let expected =
            format!("0/1 nodes are available: 1 {why}. preemption: 0/1 nodes are available: 1 {preemption}.");
        assert_eq!(
            condition(&waiting, "PodScheduled"),
            ["False", "Unschedulable", expected.as_str()]
        );
    }
    cluster.delete("v1", "Pod", "one").await;
    cluster.pass(2.0).await;
    assert_eq!(cluster.get("v1", "Pod", "two").await["spec"]["nodeName"], "small");
    assert_eq!(cluster.get("v1", "Pod", "gpu").await["spec"]["nodeName"], Value::Null);
}

#[tokio::test(start_paused = true)]
async fn nodes_are_chosen_by_pod_requirements() {
    let cluster = Cluster::start();
    for (name, spec) in [
        ("a", json!({"unschedulable": true})),
        ("b", json!({})),
        ("c", json!({})),
    ] {
        let labels = json!({"disk": if name == "c" { "ssd" } else { "hdd" }});
        cluster
            .create(
                json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}, "spec": spec}),
            )
            .await;
    }
    let mut picky = pod("Always");
    picky["spec"]["nodeSelector"] = json!({"disk": "ssd"});
    cluster.create(picky).await;
    let mut hopeless = pod("Always");
    hopeless["metadata"]["name"] = json!("two");
    hopeless["spec"]["nodeSelector"] = json!({"disk": "tape"});
    cluster.create(hopeless).await;
    cluster.pass(2.0).await;
    assert_eq!(cluster.get("v1", "Pod", "one").await["spec"]["nodeName"], "c");
    let two = cluster.get("v1", "Pod", "two").await;
    let [status, reason, message] = condition(&two, "PodScheduled");
    assert_eq!([status, reason], ["False", "Unschedulable"]);
    assert!(message.starts_with("0/3 nodes are available: "), "{message}");
    cluster
        .patch("v1", "Node", "b", json!({"metadata": {"labels": {"disk": "tape"}}}))
        .await;
    cluster.pass(2.0).await;
    assert_eq!(stand(&cluster.get("v1", "Pod", "two").await), "Running running 0");
}

#[tokio::test(start_paused = true)]
async fn logs_come_from_the_pod_script() {
    let cluster = Cluster::start();
    cluster
        .0
        .kubelet()
        .script(PodSelector::all(), PodScript::default().logs("one\ntwo\nthree\n"));
    cluster.create(pod("Always")).await;
    let log = |query: &str| http::Request::get(format!("/api/v1/namespaces/default/pods/one/log{query}"));
    let ask = async |query: &str| {
        let answer = cluster.0.call(log(query).body("").expect("the request is valid")).await;
        (
            answer.status().as_u16(),
            String::from_utf8_lossy(answer.body()).into_owned(),
        )
    };
    cluster.pass(0.5).await;
    let (code, message) = ask("").await;
    assert_eq!(code, 400, "{message}");
    cluster.pass(1.0).await;
    assert_eq!(ask("").await, (200, "one\ntwo\nthree\n".to_owned()));
    assert_eq!(ask("?tailLines=1").await, (200, "three\n".to_owned()));
    let stamped = "2026-01-01T00:00:01.000000000Z three\n".to_owned();
    assert_eq!(ask("?tailLines=1&timestamps=true").await, (200, stamped));
    assert_eq!(ask("?sinceTime=2026-01-01T00:00:02Z").await, (200, String::new()));
    cluster.pass(10.0).await;
    assert_eq!(ask("?sinceSeconds=5").await, (200, String::new()));
    assert_eq!(ask("?sinceSeconds=15&tailLines=1").await, (200, "three\n".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn pod_deleted_without_grace_ends_even_if_a_finalizer_keeps_it() {
    let cluster = Cluster::start();
    cluster
        .create(json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "kept", "finalizers": ["example.com/keep"]},
            "spec": {"containers": [{"name": "main", "image": "nginx:1"}]},
        }))
        .await;
    cluster.pass(3.0).await;
    let path = "/api/v1/namespaces/default/pods/kept";
    let (status, _) = cluster.send("DELETE", path, &json!({"gracePeriodSeconds": 0})).await;
    assert_eq!(status, 200);
    cluster.pass(3.0).await;
    let pod = cluster.get("v1", "Pod", "kept").await;
    assert!(
        pod["status"]["containerStatuses"][0]["state"]["terminated"].is_object(),
        "{pod:#}"
    );
    assert!(["Succeeded", "Failed"].contains(&pod["status"]["phase"].as_str().unwrap_or_default()));
}

#[tokio::test(start_paused = true)]
async fn pod_has_an_address_while_its_image_cannot_be_pulled() {
    let cluster = Cluster::start();
    cluster
        .0
        .kubelet()
        .script(PodSelector::all(), PodScript::default().image_pull_error());
    cluster
        .create(json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "one"},
            "spec": {"containers": [{"name": "main", "image": "nginx:1"}]},
        }))
        .await;
    cluster.pass(3.0).await;
    let status = cluster.get("v1", "Pod", "one").await["status"].clone();
    assert!(status["podIP"].is_string() && status["podIPs"].is_array(), "{status:#}");
    assert_eq!(
        condition(&json!({"status": status}), "PodReadyToStartContainers")[0],
        "True"
    );
}

#[tokio::test(start_paused = true)]
async fn stopped_containers_are_reported() {
    let cluster = Cluster::start();
    let mut pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "one"}});
    pod["spec"] = json!({"containers": [{"name": "app", "image": "nginx:1"}, {"name": "log", "image": "nginx:1"}]});
    cluster.create(pod).await;
    cluster.pass(3.0).await;
    cluster.delete("v1", "Pod", "one").await;
    cluster.pass(5.0).await;
    assert_eq!(
        cluster.events("Killing").await,
        ["Stopping container app", "Stopping container log"]
    );
}

#[tokio::test(start_paused = true)]
async fn kubelet_rejects_a_pod_that_does_not_tolerate_an_evicting_taint() {
    let cluster = Cluster::with(&[Worker::Kubelet]);
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "a"},
        "spec": {"taints": [{"key": "k", "effect": "NoExecute"}]}});
    cluster.create(node).await;
    let mut pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "one"}});
    pod["spec"] = json!({"nodeName": "a", "containers": [{"name": "app", "image": "nginx:1"}]});
    cluster.create(pod).await;
    cluster.pass(1.0).await;
    let status = cluster.get("v1", "Pod", "one").await["status"].clone();
    assert_eq!(
        (&status["phase"], &status["reason"]),
        (&json!("Failed"), &json!("TaintToleration"))
    );
    let why = "Pod was rejected: Predicate TaintToleration failed: node(s) had taints that the pod didn't tolerate";
    assert_eq!(status["message"], why);
}
