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
#[case::two_pods_in_two_minutes(json!({"scaleUp": {"policies": [{"type": "Pods", "value": 1, "periodSeconds": 60}]}}),
    "1", 80.0, 6)]
#[case::scale_up_disabled(json!({"scaleUp": {"selectPolicy": "Disabled"}}), "1", 60.0, 4)]
#[case::scale_down_without_stabilization(json!({"scaleDown": {"stabilizationWindowSeconds": 0}}), "25m", 17.0, 2)]
#[case::lower_tolerance(json!({"scaleUp": {"tolerance": "50m"}}), "54m", 17.0, 5)]
#[case::higher_tolerance(json!({"scaleDown": {"tolerance": "500m", "stabilizationWindowSeconds": 0}}), "30m", 17.0, 4)]
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
    assert!(
        names.any(|it| it == "metrics.k8s.io"),
        "kubectl top requires the API group of metrics"
    );
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
#[case::resource_usage(cpu(json!({"type": "AverageValue", "averageValue": "1"})), "9E", 8)]
#[case::resource_target(cpu(json!({"type": "AverageValue", "averageValue": "9E"})), "100m", 4)]
#[case::utilization(half(), "9E", 8)]
#[case::external_value(
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
async fn missing_metric_of_a_pod_counts_as_its_whole_request_on_scale_down() {
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

async fn hpa(cluster: &Cluster) -> Value {
    cluster.get("autoscaling/v2", "HorizontalPodAutoscaler", "web").await
}

/// 66.75 % counts as 66 %, which is 1.5 times the target.
#[tokio::test(start_paused = true)]
async fn utilization_is_rounded_down_before_it_is_compared() {
    let target = json!({"type": "Utilization", "averageUtilization": 44});
    let cluster = scaled(cpu(target), Value::Null).await;
    for (number, pod) in cluster.pods().await.iter().enumerate() {
        let usage = if number == 0 { "66m" } else { "67m" };
        let selector = PodSelector::named("default", pod["metadata"]["name"].as_str().unwrap_or_default());
        cluster
            .0
            .kubelet()
            .script(selector, PodScript::default().uses("cpu", usage));
    }
    cluster.pass(17.0).await;
    assert_eq!(replicas(&cluster).await, 6);
}

#[tokio::test(start_paused = true)]
async fn conditions_of_an_autoscaler_keep_their_order() {
    let cluster = scaled(half(), Value::Null).await;
    let script = |usage: &str| {
        let script = PodScript::default().uses("cpu", usage);
        cluster.0.kubelet().script(PodSelector::all(), script);
    };
    for usage in ["100m", "50m", "20m"] {
        script(usage);
        cluster.pass(16.0).await;
        let hpa = hpa(&cluster).await;
        let list = hpa["status"]["conditions"].as_array().expect("the value is a list");
        let kinds: Vec<&Value> = list.iter().map(|it| &it["type"]).collect();
        assert_eq!(kinds, ["AbleToScale", "ScalingActive", "ScalingLimited"]);
        assert_eq!(hpa["status"].get("observedGeneration"), None);
    }
}

fn external(name: &str, target: Value) -> Value {
    json!({"type": "External", "external": {"metric": {"name": name}, "target": target}})
}

fn object(target: Value) -> Value {
    let described = json!({"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "name": "main"});
    json!({"type": "Object", "object": {"metric": {"name": "rps"}, "describedObject": described, "target": target}})
}

fn container(target: Value) -> Value {
    json!({"type": "ContainerResource", "containerResource": {"name": "cpu", "container": "main", "target": target}})
}

#[rstest]
#[case::resource(half()[0].clone(), "cpu resource utilization (percentage of request)")]
#[case::container(
    container(json!({"type": "Utilization", "averageUtilization": 50})),
    "cpu container resource utilization (percentage of request)")]
#[case::container_value(container(json!({"type": "AverageValue", "averageValue": "50m"})), "cpu resource")]
#[case::object(object(json!({"type": "Value", "value": "10"})), "Ingress metric rps")]
#[case::object_average(object(json!({"type": "AverageValue", "averageValue": "10"})), "external metric rps(nil)")]
#[case::external(external("rps", json!({"type": "Value", "value": "10"})), "external metric rps(nil)")]
#[case::external_with_selector(
    json!({"type": "External", "external": {
        "metric": {"name": "rps", "selector": {"matchLabels": {"a": "b"}}}, "target": {"type": "Value", "value": "10"}}}),
    "external metric rps(&LabelSelector{MatchLabels:map[string]string{a: b,},\
     MatchExpressions:[]LabelSelectorRequirement{},})")]
#[tokio::test(start_paused = true)]
async fn conditions_describe_metrics_as_in_kubernetes(#[case] metric: Value, #[case] name: &str) {
    let cluster = scaled(
        json!([external("other", json!({"type": "Value", "value": "1"}))]),
        Value::Null,
    )
    .await;
    let kubelet = cluster.0.kubelet();
    kubelet.script(PodSelector::all(), PodScript::default().uses("cpu", "50m"));
    kubelet.metric("rps", "10");
    kubelet.metric("other", "1");
    cluster.pass(16.0).await;
    let patch = json!({"spec": {"metrics": [metric.clone()]}});
    cluster
        .patch("autoscaling/v2", "HorizontalPodAutoscaler", "web", patch)
        .await;
    cluster.pass(16.0).await;
    let hpa = hpa(&cluster).await;
    let message = format!("the HPA was able to successfully calculate a replica count from {name}");
    assert_eq!(condition(&hpa, "ScalingActive")[2], message);
    let field = if metric["type"] == "Object" {
        "object"
    } else {
        "external"
    };
    let identifier = hpa["status"]["currentMetrics"][0][field].get("metric");
    assert_eq!(identifier, metric[field].get("metric"), "{:#}", hpa["status"]);
}

const UNREPORTED: &str = "failed to get cpu utilization: unable to get metrics for resource cpu: no metrics returned \
                          from resource metrics API";

#[tokio::test(start_paused = true)]
async fn autoscaler_reports_a_failed_metric_and_computes_no_replicas_if_all_failed() {
    let cluster = scaled(half(), Value::Null).await;
    cluster.pass(16.0).await;
    assert_eq!(cluster.events("FailedGetResourceMetric").await, [UNREPORTED]);
    assert_eq!(
        cluster.events("FailedComputeMetricsReplicas").await,
        [format!(
            "invalid metrics (1 invalid out of 1), first error is: failed to get cpu resource metric value: {UNREPORTED}"
        )]
    );
    let hpa = hpa(&cluster).await;
    assert_eq!(hpa["status"]["currentMetrics"], json!([{"type": ""}]));
    assert_eq!(
        condition(&hpa, "ScalingActive")[2],
        format!("the HPA was unable to compute the replica count: {UNREPORTED}")
    );
}

#[tokio::test(start_paused = true)]
async fn autoscaler_scales_up_by_the_metrics_that_did_not_fail() {
    let mut metrics = half();
    let list = metrics.as_array_mut().expect("the value is a list");
    list.push(external("rps", json!({"type": "AverageValue", "averageValue": "10"})));
    let cluster = scaled(metrics, Value::Null).await;
    cluster.0.kubelet().metric("rps", "60");
    cluster.pass(17.0).await;
    assert_eq!(replicas(&cluster).await, 6);
    assert_eq!(cluster.events("FailedGetResourceMetric").await, [UNREPORTED]);
    assert_eq!(
        cluster.events("FailedComputeMetricsReplicas").await,
        Vec::<String>::new()
    );
    let current = hpa(&cluster).await["status"]["currentMetrics"].clone();
    assert_eq!(
        (&current[0], &current[1]["type"]),
        (&json!({"type": ""}), &json!("External"))
    );
}

#[tokio::test(start_paused = true)]
async fn autoscalers_of_the_same_pods_do_not_scale() {
    let cluster = scaled(half(), Value::Null).await;
    let mut other = hpa(&cluster).await;
    other["metadata"] = json!({"name": "web-2"});
    cluster.create(other).await;
    cluster
        .0
        .kubelet()
        .script(PodSelector::all(), PodScript::default().uses("cpu", "50m"));
    cluster.pass(32.0).await;
    cluster
        .0
        .kubelet()
        .script(PodSelector::all(), PodScript::default().uses("cpu", "1"));
    cluster.pass(32.0).await;
    assert_eq!(replicas(&cluster).await, 4);
    let why = "pods by selector app=web are controlled by multiple HPAs: [{web default} {web-2 default}]";
    assert_eq!(
        condition(&hpa(&cluster).await, "ScalingActive"),
        ["False", "AmbiguousSelector", why]
    );
    assert!(cluster.events("AmbiguousSelector").await.contains(&why.to_owned()));
    assert!(
        cluster
            .events("FailedComputeMetricsReplicas")
            .await
            .contains(&why.to_owned())
    );
}

#[tokio::test(start_paused = true)]
async fn refused_scaling_is_reported_by_the_autoscaler() {
    let cluster = scaled(half(), Value::Null).await;
    let group = "admissionregistration.k8s.io/v1";
    let rule = json!({"apiGroups": ["apps"], "apiVersions": ["v1"], "operations": ["UPDATE"],
        "resources": ["deployments/scale"]});
    cluster
        .create(json!({
            "apiVersion": group, "kind": "ValidatingAdmissionPolicy", "metadata": {"name": "fixed"},
            "spec": {
                "matchConstraints": {"resourceRules": [rule]}, "validations": [{"expression": "false"}],
            },
        }))
        .await;
    cluster
        .create(json!({
            "apiVersion": group, "kind": "ValidatingAdmissionPolicyBinding", "metadata": {"name": "fixed"},
            "spec": {"policyName": "fixed", "validationActions": ["Deny"]},
        }))
        .await;
    cluster
        .0
        .kubelet()
        .script(PodSelector::all(), PodScript::default().uses("cpu", "100m"));
    cluster.pass(16.0).await;
    let hpa = hpa(&cluster).await;
    let [status, reason, message] = condition(&hpa, "AbleToScale");
    assert_eq!([status, reason], ["False", "FailedUpdateScale"], "{:#}", hpa["status"]);
    let error = message.strip_prefix("the HPA controller was unable to update the target scale: ");
    let error = error.expect("the message contains the error");
    let event =
        format!("New size: 8; reason: cpu resource utilization (percentage of request) above target; error: {error}");
    assert_eq!(cluster.events("FailedRescale").await, [event]);
    assert_eq!(cluster.events("SuccessfulRescale").await, Vec::<String>::new());
    assert_eq!(hpa["status"].get("lastScaleTime"), None);
}

#[rstest]
#[case::external(json!([external("rps", json!({"type": "AverageValue", "averageValue": "3"}))]),
    "/external/current/averageValue", "2501m")]
#[case::memory(
    json!([{"type": "Resource", "resource": {"name": "memory",
        "target": {"type": "AverageValue", "averageValue": "100Mi"}}}]),
    "/resource/current/averageValue", "100Mi")]
#[tokio::test(start_paused = true)]
async fn averages_in_the_status_are_rounded_up_and_bytes_are_binary(
    #[case] metrics: Value,
    #[case] path: &str,
    #[case] average: &str,
) {
    let cluster = scaled(metrics, Value::Null).await;
    cluster.0.kubelet().metric("rps", "10001m");
    cluster
        .0
        .kubelet()
        .script(PodSelector::all(), PodScript::default().uses("memory", "100Mi"));
    cluster.pass(16.0).await;
    let status = hpa(&cluster).await["status"].clone();
    assert_eq!(
        status["currentMetrics"][0].pointer(path),
        Some(&json!(average)),
        "{status:#}"
    );
    let fewer = json!({"spec": {"maxReplicas": 2}});
    cluster
        .patch("autoscaling/v2", "HorizontalPodAutoscaler", "web", fewer)
        .await;
    cluster.pass(15.0).await;
    let status = hpa(&cluster).await["status"].clone();
    assert_eq!(
        status["currentMetrics"],
        Value::Null,
        "no metric was needed: {status:#}"
    );
}

/// Every resource with the subresource `scale` can be scaled.
#[tokio::test(start_paused = true)]
async fn custom_resource_with_the_scale_subresource_is_scaled() {
    let cluster = scaled(half(), Value::Null).await;
    let scale = json!({"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas",
        "labelSelectorPath": ".status.selector"});
    cluster
        .create(json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": "widgets.example.com"},
            "spec": {
                "group": "example.com", "scope": "Namespaced", "names": {"kind": "Widget", "plural": "widgets"},
                "versions": [{
                    "name": "v1", "served": true, "storage": true, "subresources": {"status": {}, "scale": scale},
                    "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
                }],
            },
        }))
        .await;
    cluster.pass(0.1).await;
    cluster.delete("autoscaling/v2", "HorizontalPodAutoscaler", "web").await;
    let widget = json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "one"},
        "spec": {"replicas": 4}});
    cluster.create(widget).await;
    let path = "/apis/example.com/v1/namespaces/default/widgets/one/status";
    let status = json!({"status": {"replicas": 4, "selector": "app=web"}});
    assert_eq!(cluster.send("PATCH", path, &status).await.0, 200);
    cluster
        .create(json!({
            "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "one"},
            "spec": {
                "scaleTargetRef": {"apiVersion": "example.com/v1", "kind": "Widget", "name": "one"},
                "maxReplicas": 10, "metrics": half(),
            },
        }))
        .await;
    cluster
        .0
        .kubelet()
        .script(PodSelector::all(), PodScript::default().uses("cpu", "75m"));
    cluster.pass(17.0).await;
    let hpa = cluster.get("autoscaling/v2", "HorizontalPodAutoscaler", "one").await;
    assert_eq!(hpa["status"]["desiredReplicas"], 6, "{hpa:#}");
    assert_eq!(
        cluster.get("example.com/v1", "Widget", "one").await["spec"]["replicas"],
        6
    );
}
