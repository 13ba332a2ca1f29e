//! HorizontalPodAutoscalers: replica counts computed from metrics.

use fake_apiserver::{PodScript, PodSelector, Worker};
use rstest::rstest;
use serde_json::{Value, json};

use crate::cluster::{Cluster, condition, deployment};

/// Returns a cluster with a Deployment of four Pods that request 100m CPU, and an autoscaler from 1 to 10 replicas.
async fn scaled(metrics: Value, behavior: Value) -> Cluster {
    let cluster = Cluster::start();
    let mut web = deployment("web", 4);
    web["spec"]["template"]["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": "100m"}});
    cluster.create(web).await;
    cluster.pass(3.0).await;
    let mut autoscaler = json!({
        "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "web"},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}, "minReplicas": 1,
            "maxReplicas": 10, "metrics": metrics,
        },
    });
    if !behavior.is_null() {
        autoscaler["spec"]["behavior"] = behavior;
    }
    cluster.create(autoscaler).await;
    cluster
}

fn cpu(target: Value) -> Value {
    json!([{"type": "Resource", "resource": {"name": "cpu", "target": target}}])
}

fn half() -> Value {
    cpu(json!({"type": "Utilization", "averageUtilization": 50}))
}

async fn replicas(cluster: &Cluster) -> Value {
    cluster.get("apps/v1", "Deployment", "web").await["spec"]["replicas"].clone()
}

#[rstest]
#[case::usage_above_the_target("100m", half(), 17.0, 8)]
#[case::usage_within_the_tolerance("53m", half(), 60.0, 4)]
#[case::usage_far_above_the_target("1", half(), 17.0, 8)]
#[case::usage_far_above_the_target_later("1", half(), 32.0, 10)]
#[case::usage_below_the_target_at_first("25m", half(), 60.0, 4)]
#[case::usage_below_the_target_after_five_minutes("25m", half(), 320.0, 2)]
#[case::average_value("150m", cpu(json!({"type": "AverageValue", "averageValue": "100m"})), 17.0, 6)]
#[tokio::test(start_paused = true)]
async fn autoscaler_scales_a_deployment_by_cpu_usage(
    #[case] usage: &str,
    #[case] metrics: Value,
    #[case] after: f64,
    #[case] expected: i64,
) {
    let cluster = scaled(metrics, Value::Null).await;
    let script = PodScript::default().uses("cpu", usage);
    cluster.0.kubelet().script(PodSelector::all(), script);
    cluster.pass(after).await;
    assert_eq!(replicas(&cluster).await, expected);
    let autoscaler = cluster.get("autoscaling/v2", "HorizontalPodAutoscaler", "web").await;
    assert_eq!(
        condition(&autoscaler, "ScalingActive")[..2],
        ["True", "ValidMetricFound"]
    );
    assert_eq!(condition(&autoscaler, "AbleToScale")[0], "True");
    assert_eq!(autoscaler["status"]["desiredReplicas"], expected);
    assert!(autoscaler["status"]["currentMetrics"][0]["resource"]["current"]["averageValue"].is_string());
}

#[rstest]
#[case::value(json!({"type": "Value", "value": "10"}), "30", 10)]
#[case::average(json!({"type": "AverageValue", "averageValue": "10"}), "60", 6)]
#[tokio::test(start_paused = true)]
async fn autoscaler_scales_a_deployment_by_an_external_metric(
    #[case] target: Value,
    #[case] value: &str,
    #[case] expected: i64,
) {
    let metric = json!([{"type": "External", "external": {"metric": {"name": "queue_length"}, "target": target}}]);
    let cluster = scaled(metric, Value::Null).await;
    cluster.0.kubelet().metric("queue_length", value);
    cluster.pass(40.0).await;
    assert_eq!(replicas(&cluster).await, expected);
}

#[rstest]
#[case::one_pod_per_minute(json!({"scaleUp": {"policies": [{"type": "Pods", "value": 1, "periodSeconds": 60}]}}), "1",
    47.0, 5)]
#[case::one_pod_in_each_minute(json!({"scaleUp": {"policies": [{"type": "Pods", "value": 1, "periodSeconds": 60}]}}),
    "1", 80.0, 6)]
#[case::scale_up_disabled(json!({"scaleUp": {"selectPolicy": "Disabled"}}), "1", 60.0, 4)]
#[case::scale_down_without_stabilization(json!({"scaleDown": {"stabilizationWindowSeconds": 0}}), "25m", 17.0, 2)]
#[tokio::test(start_paused = true)]
async fn behavior_of_an_autoscaler_determines_scaling(
    #[case] behavior: Value,
    #[case] usage: &str,
    #[case] after: f64,
    #[case] expected: i64,
) {
    let cluster = scaled(half(), behavior).await;
    cluster
        .0
        .kubelet()
        .script(PodSelector::all(), PodScript::default().uses("cpu", usage));
    cluster.pass(after).await;
    assert_eq!(replicas(&cluster).await, expected);
}

#[tokio::test(start_paused = true)]
async fn autoscaler_without_metrics_reports_the_reason() {
    let cluster = scaled(half(), Value::Null).await;
    cluster.pass(16.0).await;
    let autoscaler = cluster.get("autoscaling/v2", "HorizontalPodAutoscaler", "web").await;
    let [status, reason, message] = condition(&autoscaler, "ScalingActive");
    assert_eq!([status, reason], ["False", "FailedGetResourceMetric"]);
    assert!(
        message.contains("no metrics returned from resource metrics API"),
        "{message}"
    );
    assert_eq!(replicas(&cluster).await, 4);
    let found = cluster.events("FailedGetResourceMetric").await;
    assert_eq!(found.len(), 1, "{found:?}");
}

/// Returns the code and the JSON of a GET.
async fn read(cluster: &Cluster, path: &str) -> (u16, Value) {
    let request = http::Request::get(path)
        .body(String::new())
        .expect("the request is valid");
    let answer = cluster.0.call(request).await;
    let code = answer.status().as_u16();
    (code, serde_json::from_slice(answer.body()).unwrap_or(Value::Null))
}

#[tokio::test(start_paused = true)]
async fn metrics_api_returns_the_usage_set_by_pod_scripts() {
    let cluster = scaled(half(), Value::Null).await;
    let script = PodScript::default().uses("cpu", "50m").uses("memory", "32Mi");
    cluster.0.kubelet().script(PodSelector::all(), script);
    let root = "/apis/metrics.k8s.io/v1beta1";
    let (_, groups) = read(&cluster, "/apis").await;
    let mut names = groups["groups"].as_array().into_iter().flatten().map(|it| &it["name"]);
    assert!(names.any(|it| it == "metrics.k8s.io"), "kubectl top requires the group");
    let (code, resources) = read(&cluster, root).await;
    assert_eq!((code, &resources["resources"][1]["kind"]), (200, &json!("PodMetrics")));

    let (code, pods) = read(
        &cluster,
        &format!("{root}/namespaces/default/pods?labelSelector=app%3Dweb"),
    )
    .await;
    assert_eq!((code, pods["items"].as_array().map(Vec::len)), (200, Some(4)), "{pods}");
    let usage = json!({"cpu": "50m", "memory": "32Mi"});
    assert_eq!(pods["items"][0]["containers"][0]["usage"], usage);
    let (_, others) = read(&cluster, &format!("{root}/pods?labelSelector=app%3Dother")).await;
    assert_eq!(others["items"], json!([]));
    let (code, missing) = read(&cluster, &format!("{root}/namespaces/default/pods/none")).await;
    let text = json!("podmetrics.metrics.k8s.io \"default/none\" not found");
    assert_eq!((code, &missing["message"]), (404, &text));

    let (_, nodes) = read(&cluster, &format!("{root}/nodes")).await;
    assert_eq!(
        nodes["items"][0]["usage"],
        json!({"cpu": "200m", "memory": "128Mi"}),
        "{nodes}"
    );
}

#[rstest]
#[case::used(cpu(json!({"type": "AverageValue", "averageValue": "1"})), "9E", 8)]
#[case::targets(cpu(json!({"type": "AverageValue", "averageValue": "9E"})), "100m", 4)]
#[case::utilization(half(), "9E", 8)]
#[case::external(
    json!([{"type": "External", "external": {"metric": {"name": "queue_length"},
        "target": {"type": "Value", "value": "1"}}}]), "1", 8)]
#[case::external_average(
    json!([{"type": "External", "external": {"metric": {"name": "queue_length"},
        "target": {"type": "AverageValue", "averageValue": "10E"}}}]), "1", 4)]
#[tokio::test(start_paused = true)]
async fn autoscaler_handles_huge_quantities(#[case] metrics: Value, #[case] usage: &str, #[case] expected: i64) {
    let cluster = scaled(metrics, Value::Null).await;
    let kubelet = cluster.0.kubelet();
    kubelet.script(PodSelector::all(), PodScript::default().uses("cpu", usage));
    kubelet.metric("queue_length", "10E");
    cluster.pass(17.0).await;
    assert_eq!(replicas(&cluster).await, expected);
    let autoscaler = cluster.get("autoscaling/v2", "HorizontalPodAutoscaler", "web").await;
    assert_eq!(condition(&autoscaler, "ScalingActive")[0], "True", "{autoscaler:#}");
}

#[tokio::test(start_paused = true)]
async fn autoscaler_without_ready_pods_has_no_metrics() {
    let cluster = scaled(half(), Value::Null).await;
    let script = PodScript::default().uses("cpu", "100m").never_ready();
    cluster.0.kubelet().script(PodSelector::all(), script);
    cluster.pass(17.0).await;
    let autoscaler = cluster.get("autoscaling/v2", "HorizontalPodAutoscaler", "web").await;
    let [status, reason, message] = condition(&autoscaler, "ScalingActive");
    assert_eq!([status, reason], ["False", "FailedGetResourceMetric"]);
    assert!(
        message.contains("did not receive metrics for targeted pods (pods might be unready)"),
        "{message}"
    );
    assert_eq!(replicas(&cluster).await, 4);
}

/// A Pod without a value counts with its whole request, so that usage of 20m by the three others needs four replicas.
#[tokio::test(start_paused = true)]
async fn pod_without_a_value_counts_with_its_request_on_scale_down() {
    let behavior = json!({"scaleDown": {"stabilizationWindowSeconds": 0}});
    let cluster = scaled(half(), behavior).await;
    let names: Vec<String> = cluster
        .pods()
        .await
        .iter()
        .map(|it| it["metadata"]["name"].as_str().unwrap_or_default().to_owned())
        .collect();
    for name in &names[1..] {
        let script = PodScript::default().uses("cpu", "20m");
        cluster.0.kubelet().script(PodSelector::named("default", name), script);
    }
    cluster.pass(17.0).await;
    assert_eq!(replicas(&cluster).await, 4);
}

/// The period starts with four replicas. Two of them were removed in it and count for the next increase.
#[tokio::test(start_paused = true)]
async fn scaling_period_includes_changes_in_both_directions() {
    let up = json!({"policies": [{"type": "Pods", "value": 1, "periodSeconds": 60}]});
    let behavior = json!({"scaleUp": up, "scaleDown": {"stabilizationWindowSeconds": 0}});
    let cluster = scaled(half(), behavior).await;
    let script = |usage: &str| {
        let script = PodScript::default().uses("cpu", usage);
        cluster.0.kubelet().script(PodSelector::all(), script);
    };
    script("25m");
    cluster.pass(17.0).await;
    assert_eq!(replicas(&cluster).await, 2);
    script("1");
    cluster.pass(15.0).await;
    assert_eq!(replicas(&cluster).await, 5);
}

#[tokio::test(start_paused = true)]
async fn stabilized_recommendation_is_not_reported_as_limited() {
    let behavior = json!({"scaleUp": {"stabilizationWindowSeconds": 600}});
    let cluster = scaled(half(), behavior).await;
    let script = PodScript::default().uses("cpu", "1");
    cluster.0.kubelet().script(PodSelector::all(), script);
    cluster.pass(17.0).await;
    let autoscaler = cluster.get("autoscaling/v2", "HorizontalPodAutoscaler", "web").await;
    assert_eq!(replicas(&cluster).await, 4);
    assert_eq!(condition(&autoscaler, "AbleToScale")[1], "ScaleUpStabilized");
    assert_eq!(
        condition(&autoscaler, "ScalingLimited")[..2],
        ["False", "DesiredWithinRange"]
    );
}

/// Without `behavior`, the highest recommendation of the last five minutes applies, even if it is above the current
/// number.
#[tokio::test(start_paused = true)]
async fn highest_recent_recommendation_applies_without_behavior() {
    let cluster = scaled(half(), Value::Null).await;
    let script = |usage: &str| {
        let script = PodScript::default().uses("cpu", usage);
        cluster.0.kubelet().script(PodSelector::all(), script);
    };
    script("1");
    cluster.pass(17.0).await;
    assert_eq!(replicas(&cluster).await, 8);
    script("50m");
    cluster.pass(30.0).await;
    assert_eq!(replicas(&cluster).await, 10);
}

#[tokio::test(start_paused = true)]
async fn autoscaler_reports_the_replicas_of_the_target_spec() {
    let cluster = Cluster::with(&[Worker::HorizontalPodAutoscaler]);
    cluster.create(deployment("web", 4)).await;
    cluster
        .create(json!({
            "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "web"},
            "spec": {
                "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
                "maxReplicas": 10, "metrics": half(),
            },
        }))
        .await;
    cluster.pass(17.0).await;
    let autoscaler = cluster.get("autoscaling/v2", "HorizontalPodAutoscaler", "web").await;
    assert_eq!(autoscaler["status"]["currentReplicas"], 4);
}
