//! Tests of conversions of HorizontalPodAutoscalers between autoscaling/v1 and autoscaling/v2.

use super::*;

const AUTOSCALER: HorizontalPodAutoscaler = HorizontalPodAutoscaler {
    version: KubernetesVersion::V1_36,
};

fn object(value: Value) -> Object {
    Object(value.as_object().cloned().unwrap_or_default())
}

#[test]
fn v2_autoscaler_round_trips_through_v1() {
    let mut it = object(
        json!({"apiVersion": V2, "metadata": {"name": "b"}, "spec": {"maxReplicas": 3,
        "behavior": {"scaleDown": {"policies": [{"type": "Pods", "value": 1, "periodSeconds": 60}]}},
        "metrics": [{"type": "Resource", "resource": {"name": "memory",
            "target": {"type": "AverageValue", "averageValue": "500Mi"}}}]}}),
    );
    AUTOSCALER.default(&mut it);
    let stored = it.clone();
    AUTOSCALER.convert(&mut it, V1);
    let behavior = "{\"ScaleUp\":{\"StabilizationWindowSeconds\":0,\"SelectPolicy\":\"Max\",\"Policies\":[{\"Type\":\
        \"Pods\",\"Value\":4,\"PeriodSeconds\":15},{\"Type\":\"Percent\",\"Value\":100,\"PeriodSeconds\":15}],\
        \"Tolerance\":null},\"ScaleDown\":{\"StabilizationWindowSeconds\":null,\"SelectPolicy\":\"Max\",\"Policies\":\
        [{\"Type\":\"Pods\",\"Value\":1,\"PeriodSeconds\":60}],\"Tolerance\":null}}";
    let metrics = "[{\"type\":\"Resource\",\"resource\":{\"name\":\"memory\",\"targetAverageValue\":\"500Mi\"}}]";
    let expected = json!({"apiVersion": V1, "metadata": {"name": "b", "annotations": {
        "autoscaling.alpha.kubernetes.io/behavior": behavior, "autoscaling.alpha.kubernetes.io/metrics": metrics}},
        "spec": {"maxReplicas": 3, "minReplicas": 1}});
    assert_eq!(Value::Object(it.0.clone()), expected);

    AUTOSCALER.convert(&mut it, V2);
    assert_eq!(it, stored);
}

#[test]
fn cpu_percentage_of_a_v1_autoscaler_becomes_a_metric() {
    let mut it = object(json!({"apiVersion": V1, "spec": {"maxReplicas": 3, "targetCPUUtilizationPercentage": 50}}));
    let written = it.clone();
    AUTOSCALER.convert(&mut it, V2);
    assert_eq!(it["spec"]["metrics"], json!([cpu_metric(json!(50))]));
    AUTOSCALER.convert(&mut it, V1);
    assert_eq!(it, written);
}

#[test]
fn autoscaler_status_round_trips_through_v1() {
    let mut it = object(
        json!({"apiVersion": V2, "metadata": {}, "spec": {"metrics": [cpu_metric(json!(50))]}, "status": {
        "conditions": [{"type": "AbleToScale", "status": "True", "lastTransitionTime": null}],
        "currentMetrics": [{"type": "Resource", "resource": {"name": "cpu", "current":
            {"averageUtilization": 7, "averageValue": "3m"}}}]}}),
    );
    let stored = it.clone();
    AUTOSCALER.convert(&mut it, V1);
    assert_eq!(
        it["status"],
        json!({"currentCPUUtilizationPercentage": 7, "currentReplicas": 0})
    );
    AUTOSCALER.convert(&mut it, V2);
    assert_eq!(it, stored);
}
