//! Warnings about deprecated or unusual fields of single kinds.

use fake_apiserver::ApiServer;
use rstest::rstest;
use serde_json::{Value, json};

use crate::ask::{get, put, warnings, warnings_of, with};

const ACCOUNTS: &str = "/api/v1/namespaces/default/serviceaccounts";
const QUOTAS: &str = "/api/v1/namespaces/default/resourcequotas";
const ADMISSION: &str = "/apis/admissionregistration.k8s.io/v1";

/// Changes an object with a PUT, and returns the warnings.
async fn change(server: &ApiServer, path: &str, changes: Value) -> Vec<String> {
    let (_, object) = get(server, path).await;
    warnings_of(server, "PUT", path, &with(&object, &changes)).await
}

#[tokio::test(start_paused = true)]
async fn setting_enforce_mountable_secrets_causes_a_deprecation_warning() {
    let server = ApiServer::start();
    let annotation = |value: Value| json!({"annotations": {"kubernetes.io/enforce-mountable-secrets": value}});
    let text = "metadata.annotations[kubernetes.io/enforce-mountable-secrets]: deprecated in v1.32+; prefer separate \
                namespaces to isolate access to mounted secrets";
    let mut account = json!({"metadata": annotation(json!("x"))});
    account["metadata"]["name"] = json!("s");
    assert_eq!(warnings(&server, ACCOUNTS, &account).await, [text]);
    let path = format!("{ACCOUNTS}/s");
    for (value, is_new) in [(json!("y"), false), (Value::Null, false), (json!("z"), true)] {
        let expected: Vec<&str> = is_new.then_some(text).into_iter().collect();
        assert_eq!(
            change(&server, &path, json!({"metadata": annotation(value)})).await,
            expected
        );
    }
}

#[rstest]
#[case::requests(json!({"requests.cpu": "2", "cpu": "3", "limits.cpu": "1"}),
    &["ResourceQuota requests.cpu (2) should be less than limits.cpu (1)"])]
#[case::bare_name(json!({"memory": "2Gi", "limits.memory": "1Gi"}),
    &["ResourceQuota memory (2Gi) should be less than limits.memory (1Gi)"])]
#[case::bare_ephemeral_storage(json!({"ephemeral-storage": "2", "limits.ephemeral-storage": "1"}), &[])]
#[case::ephemeral_storage(json!({"requests.ephemeral-storage": "2", "limits.ephemeral-storage": "1"}),
    &["ResourceQuota requests.ephemeral-storage (2) should be less than limits.ephemeral-storage (1)"])]
#[case::equal(json!({"cpu": "1", "limits.cpu": "1000m"}), &[])]
#[tokio::test(start_paused = true)]
async fn quota_with_requests_above_its_limits_causes_a_warning(#[case] hard: Value, #[case] expected: &[&str]) {
    let server = ApiServer::start();
    let quota = json!({"metadata": {"name": "q"}, "spec": {"hard": hard}});
    assert_eq!(warnings(&server, QUOTAS, &quota).await, expected);
    let label = json!({"metadata": {"labels": {"a": "b"}}});
    let none: [&str; 0] = [];
    assert_eq!(change(&server, &format!("{QUOTAS}/q"), label).await, none);
}

#[tokio::test(start_paused = true)]
async fn uppercase_driver_of_a_resource_slice_causes_a_warning() {
    let server = ApiServer::start();
    let path = "/apis/resource.k8s.io/v1/resourceslices";
    let pool = json!({"name": "p", "generation": 1, "resourceSliceCount": 1});
    let slice = json!({"metadata": {"name": "s"}, "spec": {"driver": "Driver.example.com", "pool": pool,
        "allNodes": true}});
    let text = "spec.driver: driver names should be lowercase; \"Driver.example.com\" contains uppercase characters";
    assert_eq!(warnings(&server, path, &slice).await, [text]);
    let label = json!({"metadata": {"labels": {"a": "b"}}});
    assert_eq!(change(&server, &format!("{path}/s"), label).await, [text]);
}

#[rstest]
#[case::validating_webhooks("validatingwebhookconfigurations", Value::Null)]
#[case::mutating_webhooks("mutatingwebhookconfigurations", Value::Null)]
#[case::validating_policy("validatingadmissionpolicies", json!({"validations": [{"expression": "true"}],
    "matchConstraints": {"resourceRules": [rule()]}}))]
#[case::mutating_policy("mutatingadmissionpolicies", json!({"reinvocationPolicy": "Never",
    "matchConstraints": {"resourceRules": [rule()]},
    "mutations": [{"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": "Object{}"}}]}))]
#[case::validating_binding("validatingadmissionpolicybindings", json!({"policyName": "p",
    "validationActions": ["Deny"]}))]
#[case::mutating_binding("mutatingadmissionpolicybindings", json!({"policyName": "p"}))]
#[tokio::test(start_paused = true)]
async fn names_of_static_configurations_are_reserved(#[case] resource: &str, #[case] spec: Value) {
    let server = ApiServer::start();
    let path = format!("{ADMISSION}/{resource}");
    let mut object = json!({"metadata": {"name": "a.static.k8s.io"}});
    if !spec.is_null() {
        object["spec"] = spec;
    }
    let text = "metadata.name: names ending with \".static.k8s.io\" are reserved for static manifest-based \
                configurations and cannot be managed via the API";
    assert_eq!(warnings(&server, &path, &object).await, [text]);
    let label = json!({"metadata": {"labels": {"a": "b"}}});
    assert_eq!(change(&server, &format!("{path}/a.static.k8s.io"), label).await, [text]);
}

fn rule() -> Value {
    json!({"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]})
}

/// Slices are compared before fields of disabled features are dropped.
#[tokio::test(start_paused = true)]
async fn dropped_fields_of_a_resource_slice_increment_its_generation() {
    let server = ApiServer::start();
    let path = "/apis/resource.k8s.io/v1/resourceslices";
    let pool = json!({"name": "p", "generation": 1, "resourceSliceCount": 1});
    let device = json!({"name": "d", "attributes": {"x": {"int": 1}}});
    let slice = json!({"metadata": {"name": "s"}, "spec": {"driver": "d.example.com", "pool": pool, "allNodes": true,
        "devices": [device]}});
    assert_eq!(crate::ask::post(&server, path, &slice).await.0, 201);
    let path = format!("{path}/s");
    let (_, stored) = get(&server, &path).await;
    let mut changed = stored.clone();
    changed["spec"]["devices"][0]["attributes"]["x"]["ints"] = json!([1]);
    let (code, answer) = put(&server, &path, &changed).await;
    assert_eq!((code, &answer["metadata"]["generation"]), (200, &json!(2)), "{answer}");
    assert_eq!(answer["spec"], stored["spec"]);
}
