//! Probes of containers that fail because of a script.

use std::time::Duration;

use fake_apiserver::{PodScript, PodSelector, ProbeKind};
use rstest::rstest;
use serde_json::{Value, json};

use crate::cluster::{Cluster, condition};

const fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// Returns a Pod with a container that has all probes.
fn probed(restart_policy: &str) -> Value {
    let probe = |delay: u64, period: u64, failures: u64| {
        json!({"httpGet": {"port": 80, "path": "/"}, "initialDelaySeconds": delay, "periodSeconds": period,
            "failureThreshold": failures})
    };
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "one"},
        "spec": {"restartPolicy": restart_policy, "containers": [{"name": "main", "image": "nginx:1",
            "startupProbe": probe(0, 5, 4), "readinessProbe": probe(0, 10, 3), "livenessProbe": probe(15, 10, 2)}]},
    })
}

/// Returns a cluster with a running Pod. Its container starts one second after the Pod.
async fn running(script: PodScript, restart_policy: &str) -> Cluster {
    let cluster = Cluster::start();
    cluster.0.kubelet().script(PodSelector::all(), script);
    cluster.create(probed(restart_policy)).await;
    cluster.pass(1.0).await;
    cluster
}

async fn container(cluster: &Cluster) -> Value {
    cluster.get("v1", "Pod", "one").await["status"]["containerStatuses"][0].clone()
}

/// Checks `ready` at times in seconds after the start of the container.
#[rstest]
#[case::probe_never_fails(PodScript::default(), &[(1, true), (1000, true)])]
#[case::probe_always_fails(PodScript::default().probe_fails(ProbeKind::Readiness, ..), &[(1, false), (1000, false)])]
#[case::probe_fails_at_first(PodScript::default().probe_fails(ProbeKind::Readiness, ..seconds(12)),
    &[(1, false), (19, false), (21, true), (1000, true)])]
#[case::probe_fails_for_a_time(PodScript::default().probe_fails(ProbeKind::Readiness, seconds(35)..seconds(75)),
    &[(1, true), (59, true), (61, false), (79, false), (81, true)])]
#[case::failure_shorter_than_the_threshold(
    PodScript::default().probe_fails(ProbeKind::Readiness, seconds(35)..seconds(55)),
    &[(39, true), (61, true), (1000, true)])]
#[case::two_failures(
    PodScript::default().probe_fails(ProbeKind::Readiness, ..seconds(5)).probe_fails(ProbeKind::Readiness, seconds(95)..),
    &[(1, false), (11, true), (119, true), (121, false), (1000, false)])]
#[case::after_a_slow_start(PodScript::default().probe_fails(ProbeKind::Startup, ..seconds(8)),
    &[(1, false), (9, false), (11, true)])]
#[tokio::test(start_paused = true)]
async fn readiness_follows_the_probe(#[case] script: PodScript, #[case] expected: &[(u16, bool)]) {
    let cluster = running(script, "Always").await;
    let mut passed = 0;
    for (at, ready) in expected {
        cluster.pass(f64::from(at - passed)).await;
        passed = *at;
        assert_eq!(container(&cluster).await["ready"], *ready, "after {at} s");
        let pod = cluster.get("v1", "Pod", "one").await;
        assert_eq!(condition(&pod, "Ready")[0] == "True", *ready, "after {at} s");
    }
    assert_eq!(container(&cluster).await["restartCount"], 0);
}

#[tokio::test(start_paused = true)]
async fn repeated_probe_failures_make_a_running_container_unready() {
    let cluster = running(PodScript::default(), "Always").await;
    cluster.pass(2.0).await;
    let script = PodScript::default().probe_fails(ProbeKind::Readiness, ..);
    cluster.0.kubelet().script(PodSelector::all(), script);
    cluster.pass(0.1).await;
    assert_eq!(
        container(&cluster).await["ready"],
        true,
        "the first failure does not count"
    );
    cluster.pass(30.0).await;
    assert_eq!(container(&cluster).await["ready"], false);
    let events = cluster.events("Unhealthy").await;
    assert_eq!(
        events,
        ["Readiness probe failed: HTTP probe failed with statuscode: 500"]
    );
    cluster.0.kubelet().clear();
    cluster.pass(0.1).await;
    assert_eq!(container(&cluster).await["ready"], true);
}

#[rstest]
#[case::liveness(ProbeKind::Liveness, 25, "liveness", "Liveness")]
#[case::startup(ProbeKind::Startup, 15, "startup", "Startup")]
#[tokio::test(start_paused = true)]
async fn failed_probe_restarts_the_container(
    #[case] probe: ProbeKind,
    #[case] killed_after: u16,
    #[case] name: &str,
    #[case] title: &str,
    #[values("Always", "OnFailure", "Never")] restart_policy: &str,
) {
    let cluster = running(PodScript::default().probe_fails(probe, ..), restart_policy).await;
    cluster.pass(f64::from(killed_after) - 0.5).await;
    let before = container(&cluster).await;
    assert_eq!(
        (&before["restartCount"], &before["started"]),
        (&json!(0), &json!(probe == ProbeKind::Liveness))
    );
    cluster.pass(1.0).await;
    let after = container(&cluster).await;
    let restarts = restart_policy != "Never";
    let state = if restarts { "lastState" } else { "state" };
    assert_eq!(after[state]["terminated"]["exitCode"], 137, "{after}");
    assert_eq!(after["restartCount"], u8::from(restarts));
    let pod = cluster.get("v1", "Pod", "one").await;
    assert_eq!(pod["status"]["phase"], if restarts { "Running" } else { "Failed" });
    let ending = if restarts { ", will be restarted" } else { "" };
    assert_eq!(
        cluster.events("Killing").await,
        [format!("Container main failed {name} probe{ending}")]
    );
    let unhealthy = format!("{title} probe failed: HTTP probe failed with statuscode: 500");
    assert_eq!(cluster.events("Unhealthy").await, [unhealthy]);
    if restarts {
        cluster.pass(f64::from(killed_after)).await;
        let waiting = container(&cluster).await["state"]["waiting"]["reason"].clone();
        assert_eq!(waiting, "CrashLoopBackOff");
    }
}

#[tokio::test(start_paused = true)]
async fn probes_without_a_script_do_not_write_to_the_server() {
    let cluster = running(PodScript::default(), "Always").await;
    cluster.pass(5.0).await;
    let revision = cluster.0.resource_version();
    cluster.pass(3000.0).await;
    assert_eq!(cluster.0.resource_version(), revision);
}

#[tokio::test(start_paused = true)]
async fn containers_without_a_probe_ignore_probe_scripts() {
    let cluster = Cluster::start();
    let script = PodScript::default().probe_fails(ProbeKind::Readiness, ..);
    cluster
        .0
        .kubelet()
        .script(PodSelector::all(), script.probe_fails(ProbeKind::Liveness, ..));
    let container_spec = json!({"name": "main", "image": "nginx:1"});
    cluster
        .create(json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "one"}, "spec": {"containers": [container_spec]}}))
        .await;
    cluster.pass(100.0).await;
    let status = container(&cluster).await;
    assert_eq!((&status["ready"], &status["restartCount"]), (&json!(true), &json!(0)));
}
