//! Stages of KWOK, which replace the kubelet's own life cycle of Pods and Nodes.

use fake_apiserver::{PodScript, PodSelector};
use rstest::rstest;
use serde_json::{Value, json};

use crate::cluster::{Cluster, condition};

fn stage(name: &str, kind: &str, spec: Value) -> Value {
    let mut stage = json!({
        "apiVersion": "kwok.x-k8s.io/v1alpha1", "kind": "Stage", "metadata": {"name": name},
        "spec": {"resourceRef": {"apiGroup": "v1", "kind": kind}},
    });
    for (field, value) in spec.as_object().expect("the value is an object") {
        stage["spec"][field] = value.clone();
    }
    stage
}

fn is(key: &str, operator: &str, values: &[&str]) -> Value {
    json!({"key": key, "operator": operator, "values": values})
}

/// Returns Stages with which a Pod starts after two seconds, ends after five if a Job owns it, and is removed when it
/// is deleted.
fn stages() -> Vec<Value> {
    let ready = "\
{{ $now := Now }}
conditions:
- type: Ready
  status: \"True\"
  lastTransitionTime: {{ $now | Quote }}
containerStatuses:
{{ range .spec.containers }}
- name: {{ .name | Quote }}
  image: {{ .image | Quote }}
  ready: true
  restartCount: 0
  state:
    running:
      startedAt: {{ $now | Quote }}
{{ end }}
podIP: {{ PodIPWith .spec.nodeName ( or .spec.hostNetwork false ) ( or .metadata.uid \"\" ) .metadata.name \"\" | Quote }}
phase: Running
";
    let alive = is(".metadata.deletionTimestamp", "DoesNotExist", &[]);
    vec![
        stage(
            "ready",
            "Pod",
            json!({
                "selector": {"matchExpressions": [alive, is(".status.phase", "In", &["Pending"])]},
                "delay": {"durationMilliseconds": 2000},
                "next": {"event": {"type": "Normal", "reason": "Begun", "message": "it runs"}, "statusTemplate": ready},
            }),
        ),
        stage(
            "complete",
            "Pod",
            json!({
                "selector": {"matchExpressions": [
                    alive, is(".status.phase", "In", &["Running"]), is(".metadata.ownerReferences.[].kind", "In", &["Job"]),
                ]},
                "delay": {
                    "durationMilliseconds": 5000,
                    "durationFrom": {"expressionFrom": ".metadata.annotations[\"delay\"]"},
                },
                "next": {"statusTemplate": "phase: Succeeded"},
            }),
        ),
        stage(
            "delete",
            "Pod",
            json!({
                "selector": {"matchExpressions": [is(".metadata.deletionTimestamp", "Exists", &[])]},
                "next": {"finalizers": {"empty": true}, "delete": true},
            }),
        ),
    ]
}

fn pod(name: &str, metadata: Value) -> Value {
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": metadata,
        "spec": {"containers": [{"name": "main", "image": "nginx:1"}]},
    });
    pod["metadata"]["name"] = json!(name);
    pod
}

async fn phase(cluster: &Cluster, name: &str) -> String {
    let pod = cluster.get("v1", "Pod", name).await;
    pod["status"]["phase"].as_str().unwrap_or("gone").to_owned()
}

#[tokio::test(start_paused = true)]
async fn stages_determine_the_lifecycle_of_pods() {
    let cluster = Cluster::start();
    cluster.0.kubelet().stages(stages()).expect("the Stages are valid");
    cluster
        .create(pod("one", json!({"finalizers": ["example.com/held"]})))
        .await;
    cluster.pass(1.9).await;
    assert_eq!(phase(&cluster, "one").await, "Pending");
    cluster.pass(0.2).await;
    let one = cluster.get("v1", "Pod", "one").await;
    assert_eq!(one["status"]["phase"], "Running");
    assert_eq!(condition(&one, "Ready")[0], "True");
    assert_eq!(
        condition(&one, "PodScheduled")[0],
        "True",
        "the patch of a Stage is merged into the status"
    );
    assert_eq!(
        one["status"]["containerStatuses"][0]["state"]["running"]["startedAt"],
        "2026-01-01T00:00:02Z"
    );
    assert_eq!(one["status"]["podIP"], "10.244.0.1");
    assert_eq!(cluster.events("Begun").await, ["it runs"]);
    cluster.pass(100.0).await;
    assert_eq!(phase(&cluster, "one").await, "Running");
    cluster.delete("v1", "Pod", "one").await;
    cluster.pass(0.1).await;
    assert_eq!(phase(&cluster, "one").await, "gone");
}

#[rstest]
#[case::delay_of_the_stage(json!({}), 5.0)]
#[case::delay_in_an_annotation(json!({"delay": "1m"}), 60.0)]
#[tokio::test(start_paused = true)]
async fn stage_waits_for_its_delay(#[case] annotations: Value, #[case] delay: f64) {
    let cluster = Cluster::start();
    cluster.0.kubelet().stages(stages()).expect("the Stages are valid");
    let template = json!({"metadata": {"annotations": annotations}, "spec": {
        "restartPolicy": "Never", "containers": [{"name": "main", "image": "migrate:1"}],
    }});
    cluster
        .create(json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "work"}, "spec": {"template": template}}))
        .await;
    cluster.pass(2.0 + delay - 0.2).await;
    let complete = async || condition(&cluster.get("batch/v1", "Job", "work").await, "Complete")[0].to_owned();
    assert_eq!(complete().await, "");
    cluster.pass(2.0).await;
    assert_eq!(complete().await, "True");
}

#[tokio::test(start_paused = true)]
async fn scripted_pods_ignore_stages() {
    let cluster = Cluster::start();
    cluster.0.kubelet().stages(stages()).expect("the Stages are valid");
    let script = PodScript::default().starts_after(std::time::Duration::from_secs(9));
    cluster.0.kubelet().script(PodSelector::named("default", "one"), script);
    cluster.create(pod("one", json!({}))).await;
    cluster.create(pod("two", json!({}))).await;
    cluster.pass(3.0).await;
    assert_eq!(
        (phase(&cluster, "one").await, phase(&cluster, "two").await),
        ("Pending".into(), "Running".into())
    );
    cluster.pass(7.0).await;
    assert_eq!(phase(&cluster, "one").await, "Running");
}

#[tokio::test(start_paused = true)]
async fn stage_weights_determine_the_frequency_of_stages() {
    let cluster = Cluster::start();
    let of = |phase: &str, weight: u32| {
        let selector = json!({"matchExpressions": [is(".status.phase", "In", &["Pending"])]});
        let next = json!({"statusTemplate": format!("phase: {phase}")});
        stage(
            &phase.to_lowercase(),
            "Pod",
            json!({"selector": selector, "weight": weight, "next": next}),
        )
    };
    cluster
        .0
        .kubelet()
        .stages([of("Failed", 1), of("Succeeded", 3), of("Unknown", 0)])
        .expect("the Stages are valid");
    for number in 0..40 {
        cluster.create(pod(&format!("pod-{number}"), json!({}))).await;
    }
    cluster.pass(1.0).await;
    let mut counts = std::collections::BTreeMap::new();
    for pod in cluster.pods().await {
        *counts
            .entry(pod["status"]["phase"].as_str().unwrap_or_default().to_owned())
            .or_insert(0) += 1;
    }
    assert_eq!(counts.len(), 2, "{counts:?}");
    assert!((20..40).contains(&counts["Succeeded"]), "{counts:?}");
}

#[tokio::test(start_paused = true)]
async fn stages_determine_the_lifecycle_of_nodes() {
    let cluster = Cluster::start();
    let template = "\
{{ $now := Now }}
conditions:
{{ range NodeConditions }}
- type: {{ .type | Quote }}
  status: {{ .status | Quote }}
  reason: {{ .reason | Quote }}
  lastHeartbeatTime: {{ $now | Quote }}
{{ end }}
phase: Running
";
    let ready = is(
        ".status.conditions.[] | select( .type == \"Ready\" ) | .status",
        "NotIn",
        &["True"],
    );
    let initialize = stage(
        "initialize",
        "Node",
        json!({"selector": {"matchExpressions": [ready]}, "next": {"statusTemplate": template}}),
    );
    cluster.0.kubelet().stages([initialize]).expect("the Stages are valid");
    cluster
        .create(json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "a"}}))
        .await;
    cluster.pass(1.0).await;
    let node = cluster.get("v1", "Node", "a").await;
    assert_eq!(node["status"]["phase"], "Running");
    assert_eq!(condition(&node, "NetworkUnavailable")[1], "RouteCreated");
    assert_eq!(node["spec"]["taints"], Value::Null);
}

#[tokio::test(start_paused = true)]
async fn stage_template_that_fails_is_reported_as_an_event() {
    let cluster = Cluster::start();
    let next = json!({"statusTemplate": "phase: {{ index .spec.containers 7 }}"});
    let stage = stage("broken", "Pod", json!({"selector": {}, "next": next}));
    cluster.0.kubelet().stages([stage]).expect("the Stages are valid");
    cluster.create(pod("one", json!({}))).await;
    cluster.pass(1.0).await;
    assert_eq!(cluster.events("StageFailed").await, ["broken: index out of range: 7"]);
}

#[rstest]
#[case::unsupported_kind(stage("s", "Service", json!({})),
    "stages of v1 Service are not supported, only stages of Pods and Nodes")]
#[case::cel_selector(
    stage("s", "Pod", json!({"selector": {"matchExpressions": [{"cel": {"expression": "true"}}]}})),
    "cel expressions are not supported, use jq",
)]
#[case::apply_step(stage("s", "Pod", json!({"selector": {}, "steps": [{"apply": {}}]})), "apply steps are not supported")]
#[case::template_function(
    stage("s", "Pod", json!({"selector": {}, "next": {"statusTemplate": "{{ env \"A\" }}"}})),
    "function \"env\" is not supported",
)]
#[case::unknown_field(stage("s", "Pod", json!({"selektor": {}})), "unknown field `selektor`")]
#[case::not_a_stage(json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "s"}}), "expected apiVersion kwok")]
#[tokio::test(start_paused = true)]
async fn error_for_an_unsupported_part_of_a_stage_contains_its_name(#[case] stage: Value, #[case] why: &str) {
    let cluster = Cluster::start();
    let error = cluster
        .0
        .kubelet()
        .stages([stage])
        .expect_err("the Stage is refused")
        .to_string();
    assert!(error.starts_with("Stage \"s\": ") && error.contains(why), "{error}");
}

#[tokio::test(start_paused = true)]
async fn stage_with_a_very_long_query_is_refused() {
    let cluster = Cluster::start();
    let key = ".a".repeat(200_000);
    let stage = stage(
        "s",
        "Pod",
        json!({"selector": {"matchExpressions": [is(&key, "Exists", &[])]}}),
    );
    let error = cluster.0.kubelet().stages([stage]).expect_err("the Stage is refused");
    assert!(error.to_string().contains("the query has more than"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn stage_weights_may_have_any_size() {
    let cluster = Cluster::start();
    let stages = ["a", "b", "c"].map(|name| {
        let next = json!({"statusTemplate": "phase: Succeeded"});
        let selector = json!({"matchExpressions": [is(".status.phase", "In", &["Pending"])]});
        stage(
            name,
            "Pod",
            json!({"selector": selector, "weight": i64::MAX, "next": next}),
        )
    });
    cluster.0.kubelet().stages(stages).expect("the Stages are valid");
    cluster.create(pod("one", json!({}))).await;
    cluster.pass(1.0).await;
    assert_eq!(cluster.get("v1", "Pod", "one").await["status"]["phase"], "Succeeded");
}
