//! Validation of `resource.k8s.io`: request policies, and the device statuses that drivers write into claims.

use fake_apiserver::ApiServer;
use rstest::rstest;
use serde_json::{Value, json};

use crate::ask::{MERGE, causes, post, put, send, with};

const GROUP: &str = "/apis/resource.k8s.io/v1";
const POLICY: &str = "spec.devices[0].capacity[c].requestPolicy";

#[rstest]
#[case(json!({"validValues": ["1", "2"], "validRange": {"min": "1"}}), &[("", "Forbidden: exactly one policy can be \
    specified, cannot specify \"validValues\" and \"validRange\" at the same time")])]
#[case(json!({"validValues": ["1"]}), &[(".default", "Required value: required when validValues is defined")])]
#[case(json!({"validRange": {"min": "1"}}), &[(".default", "Required value: required when validRange is defined")])]
#[case(json!({"default": "3", "validValues": ["2", "1", "20", "1"]}), &[
    (".validValues[1]", "Invalid value: \"1\": values must be sorted in ascending order"),
    (".validValues[3]", "Invalid value: \"1\": values must be sorted in ascending order"),
    (".validValues[2]", "Invalid value: \"20\": option is larger than capacity value: 10"),
    (".validValues[3]", "Duplicate value: \"1\""),
    (".validValues", "Invalid value: \"3\": default value is not valid according to the requestPolicy")])]
#[case(json!({"default": "1", "validRange": {}}),
    &[(".validRange.min", "Required value: required when validRange is defined")])]
#[case(json!({"default": "1", "validRange": {"min": "2", "max": "20", "step": "9"}}), &[
    (".validRange.min", "Invalid value: \"1\": default is less than min: 2"),
    (".validRange.max", "Invalid value: \"20\": max is larger than capacity value: 10"),
    (".validRange.step", "Invalid value: \"9\": one step 11 is larger than capacity value: 10"),
    (".validRange.step", "Invalid value: \"1\": value is not a multiple of a given step (9) from (2)")])]
#[case(json!({"default": "3", "validRange": {"min": "1", "max": "5", "step": "2"}}), &[])]
#[tokio::test]
async fn device_request_policies_are_validated(#[case] policy: Value, #[case] expected: &[(&str, &str)]) {
    let device = json!({"name": "d", "allowMultipleAllocations": true,
        "capacity": {"c": {"value": "10", "requestPolicy": policy}}});
    let slice = json!({"metadata": {"name": "s"}, "spec": {"driver": "a.b", "allNodes": true, "devices": [device],
        "pool": {"name": "p", "resourceSliceCount": 1}}});
    let answer = post(&ApiServer::start(), &format!("{GROUP}/resourceslices"), &slice).await;
    let expected: Vec<String> = expected
        .iter()
        .map(|(at, text)| format!("{POLICY}{at}: {text}"))
        .collect();
    assert_eq!(causes(&answer), expected, "{}", answer.1);
}

/// Creates a claim for one device and writes its status.
async fn put_status(server: &ApiServer, status: &Value) -> (u16, Value) {
    let claims = format!("{GROUP}/namespaces/default/resourceclaims");
    let (_, made) = post(
        server,
        &claims,
        &json!({"metadata": {"name": "c"}, "spec": {"devices": {"requests": [
        {"name": "r", "exactly": {"deviceClassName": "k"}}]}}}),
    )
    .await;
    put(
        server,
        &format!("{claims}/c/status"),
        &with(&made, &json!({"status": status})),
    )
    .await
}

#[rstest]
#[case(json!({"shareID": "x"}), &["shareID: Invalid value: \"x\": error validating uid: invalid UUID length: 1"])]
#[case(json!({"shareID": "11111111-1111-1111-1111-11111111111A"}), &["shareID: Invalid value: \
    \"11111111-1111-1111-1111-11111111111A\": uid must be in RFC 4122 normalized form, \
    `xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx` with lowercase hexadecimal characters"])]
#[case(json!({"data": {"a": 1}, "networkData": {"ips": ["10.0.0.1/24", "2001:db8::1/64"], "interfaceName": "eth0"}}),
    &[])]
#[case(json!({"networkData": {"ips": ["10.0.0.1", "010.0.0.1/24", "10.0.0.1/24", "10.0.0.1/24"]}}), &[
    "networkData.ips[0]: Invalid value: \"10.0.0.1\": must be a valid address in CIDR form, (e.g. 10.9.8.7/24 or \
     2001:db8::1/64)",
    "networkData.ips[1]: Invalid value: \"010.0.0.1/24\": must be in canonical form (\"10.0.0.1/24\")",
    "networkData.ips[3]: Duplicate value: \"10.0.0.1/24\""])]
#[case(json!({"conditions": [{"type": "a", "status": "x", "reason": "r", "message": "",
    "lastTransitionTime": "2020-01-01T00:00:00Z"}]}),
    &["conditions[0].status: Unsupported value: \"x\": supported values: \"False\", \"True\", \"Unknown\""])]
#[tokio::test]
async fn device_statuses_are_validated(#[case] device_status: Value, #[case] expected: &[&str]) {
    let server = ApiServer::start();
    let device = json!({"driver": "a.b", "pool": "p", "device": "d"});
    let mut result = with(&device, &json!({"request": "r"}));
    if let Some(share) = device_status.get("shareID") {
        result["shareID"] = share.clone();
    }
    let status = json!({"devices": [with(&device, &device_status)], "allocation": {"devices": {"results": [result]}}});
    let answer = put_status(&server, &status).await;
    let texts = causes(&answer);
    let of_device = |it: &String| it.strip_prefix("status.devices[0].").map(str::to_owned);
    let found: Vec<String> = texts.iter().filter_map(of_device).collect();
    assert_eq!(found, expected, "{texts:?}");
    assert_eq!(texts.is_empty(), expected.is_empty(), "{texts:?}");
}

#[tokio::test]
async fn statuses_of_devices_that_are_no_longer_allocated_are_dropped() {
    let server = ApiServer::start();
    let device = |name: &str| json!({"driver": "a.b", "pool": "p", "device": name});
    let result = |name: &str| with(&device(name), &json!({"request": "r"}));
    let status = json!({"devices": [device("d"), device("e")],
        "allocation": {"devices": {"results": [result("d"), result("e")]}}});
    let (code, made) = put_status(&server, &status).await;
    assert_eq!(code, 200, "{made}");
    let path = format!("{GROUP}/namespaces/default/resourceclaims/c/status");
    let none = json!({"status": {"allocation": null, "reservedFor": null}});
    let (code, answer) = send(&server, "PATCH", &path, MERGE, &none).await;
    assert_eq!((code, answer["status"].get("devices")), (200, None), "{answer}");
}

#[tokio::test]
async fn device_binding_conditions_require_binding_failure_conditions() {
    let server = ApiServer::start();
    let result = json!({"request": "r", "driver": "a.b", "pool": "p", "device": "d", "bindingConditions": ["a"]});
    let status = json!({"allocation": {"devices": {"results": [result]}}});
    let answer = put_status(&server, &status).await;
    let expected = "status.allocation.devices.results[0].bindingFailureConditions: Invalid value: null: \
                    bindingFailureConditions are required to use bindingConditions";
    assert_eq!(causes(&answer), [expected], "{}", answer.1);
}

#[tokio::test]
async fn claim_metadata_in_templates_may_only_have_labels_and_annotations() {
    let metadata = json!({"labels": {"a": "b"}, "annotations": {"c": "d"}, "name": "n", "namespace": "x", "uid": "u",
        "finalizers": ["a.b/c"], "deletionTimestamp": "2024-01-02T03:04:05Z"});
    let request = json!({"name": "r", "exactly": {"deviceClassName": "c"}});
    let template = json!({"metadata": {"name": "t"},
        "spec": {"metadata": metadata, "spec": {"devices": {"requests": [request]}}}});
    let path = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaimtemplates";
    let answer = post(&ApiServer::start(), path, &template).await;
    let fields = ["name", "namespace", "uID", "deletionTimestamp", "finalizers"];
    let expected = fields.map(|field| format!("spec.metadata.{field}: Forbidden: cannot be set"));
    assert_eq!(causes(&answer), expected);
}
