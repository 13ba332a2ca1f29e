//! Details of a body that the parsed object does not contain: an omitted empty list, and labels filled in by default.

use fake_apiserver::ApiServer;
use rstest::rstest;
use serde_json::{Value, json};

use crate::ask::{APPLY, JSON_PATCH, MERGE, STRATEGIC, causes, post, put, send};

const JOBS: &str = "/apis/batch/v1/namespaces/default/jobs";
const POLICIES: &str = "/apis/networking.k8s.io/v1/namespaces/default/networkpolicies";

fn job(name: &str, labels: &Value, of_template: &Value) -> Value {
    json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name, "labels": labels},
        "spec": {"template": {
            "metadata": {"labels": of_template},
            "spec": {"restartPolicy": "Never", "containers": [{"name": "a", "image": "b"}]},
        }},
    })
}

#[rstest]
#[case::default_labels(&json!(null), true)]
#[case::explicit_labels(&json!({"a": "b"}), false)]
#[tokio::test(start_paused = true)]
async fn default_labels_include_the_generated_labels_of_the_template(#[case] labels: &Value, #[case] are_shared: bool) {
    let server = ApiServer::start();
    let body = job("j", labels, &json!({"a": "b"}));
    let (code, made) = post(&server, JOBS, &body).await;
    assert_eq!(code, 201, "{made}");
    let path = format!("{JOBS}/i?fieldManager=m");
    let (code, applied) = send(&server, "PATCH", &path, APPLY, &job("i", labels, &json!({"a": "b"}))).await;
    assert_eq!(code, 201, "{applied}");
    for job in [made, applied] {
        let of_template = &job["spec"]["template"]["metadata"]["labels"];
        assert_eq!(of_template.as_object().map(serde_json::Map::len), Some(5));
        let expected = if are_shared { of_template } else { labels };
        assert_eq!(&job["metadata"]["labels"], expected);
    }
}

#[rstest]
#[case::labels_of_the_template(&json!({"a": "b"}),
    &["metadata.labels", "metadata.labels", "spec.template.labels", "spec.template.labels"])]
#[case::labels_of_the_object(&json!(null), &["spec.template.labels", "spec.template.labels"])]
#[tokio::test(start_paused = true)]
async fn default_labels_are_validated_in_the_object_and_the_template(
    #[case] of_template: &Value,
    #[case] fields: &[&str],
) {
    let name = "n".repeat(64);
    let answer = post(&ApiServer::start(), JOBS, &job(&name, &Value::Null, of_template)).await;
    let found: Vec<String> = causes(&answer)
        .iter()
        .map(|it| it.split(':').next().unwrap_or_default().to_owned())
        .collect();
    assert_eq!(
        (answer.0, found),
        (422, fields.iter().map(|it| (*it).to_owned()).collect())
    );
}

#[rstest]
#[case::unchanged_by_admission(false)]
#[case::changed_by_admission(true)]
#[tokio::test(start_paused = true)]
async fn objects_changed_by_admission_are_decoded_again(#[case] is_changed: bool) {
    let server = ApiServer::builder()
        .mutate("a.example.com", move |request| {
            let mut object = request.object.clone();
            if is_changed {
                object["metadata"]["annotations"] = json!({"x": "y"});
            }
            object
        })
        .start();
    let (_, job) = post(&server, JOBS, &job("j", &Value::Null, &json!({"a": "b"}))).await;
    let expected = if is_changed {
        &json!({"a": "b"})
    } else {
        &job["spec"]["template"]["metadata"]["labels"]
    };
    assert_eq!(&job["metadata"]["labels"], expected);
    let body = policy(&json!({"podSelector": {}, "ingress": []}));
    assert_eq!(post(&server, POLICIES, &body).await.0, 201);
    let (_, policy) = put(&server, &format!("{POLICIES}/n"), &body).await;
    assert_eq!(policy["metadata"]["generation"], if is_changed { 1 } else { 2 });
}

fn policy(spec: &Value) -> Value {
    json!({"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": {"name": "n"}, "spec": spec})
}

#[rstest]
#[case::put("PUT", "application/json", &policy(&json!({"podSelector": {}, "ingress": []})), 2)]
#[case::put_of_an_empty_selector("PUT", "application/json", &policy(&json!({"podSelector": {"matchLabels": {}}})), 2)]
#[case::merge_patch("PATCH", MERGE, &json!({"spec": {"ingress": []}}), 2)]
#[case::strategic_merge_patch("PATCH", STRATEGIC, &json!({"spec": {"ingress": []}}), 2)]
#[case::json_patch("PATCH", JSON_PATCH, &json!([{"op": "add", "path": "/spec/ingress", "value": []}]), 2)]
#[case::apply("PATCH", APPLY, &policy(&json!({"podSelector": {}, "ingress": []})), 2)]
#[case::null_does_not_count("PUT", "application/json", &policy(&json!({"podSelector": {}, "ingress": null})), 1)]
#[case::metadata_does_not_count("PATCH", MERGE, &json!({"metadata": {"labels": {}}}), 1)]
#[tokio::test(start_paused = true)]
async fn sending_an_empty_list_of_rules_again_increments_the_generation(
    #[case] method: &str,
    #[case] content_type: &str,
    #[case] body: &Value,
    #[case] generation: u64,
) {
    let server = ApiServer::start();
    let made = policy(&json!({"podSelector": {}, "ingress": []}));
    assert_eq!(post(&server, POLICIES, &made).await.1["metadata"]["generation"], 1);
    let path = format!("{POLICIES}/n?fieldManager=m");
    let (code, answer) = send(&server, method, &path, content_type, body).await;
    assert_eq!((code, &answer["metadata"]["generation"]), (200, &json!(generation)));
    assert_eq!(answer["spec"].get("ingress"), None);
}

#[rstest]
#[case::binary_data_of_a_config_map("configmaps", "binaryData")]
#[case::data_of_a_secret("secrets", "data")]
#[tokio::test(start_paused = true)]
async fn unset_data_of_an_immutable_object_cannot_become_empty(#[case] resource: &str, #[case] field: &str) {
    let server = ApiServer::start();
    let path = format!("/api/v1/namespaces/default/{resource}");
    let body = |data: Value| json!({"metadata": {"name": "i"}, "immutable": true, field: data});
    assert_eq!(post(&server, &path, &body(json!({}))).await.0, 201);
    let item = format!("{path}/i");
    assert_eq!(put(&server, &item, &body(Value::Null)).await.0, 200);
    let answer = put(&server, &item, &body(json!({}))).await;
    let why = format!("{field}: Forbidden: field is immutable when `immutable` is set");
    assert_eq!((answer.0, causes(&answer)), (422, vec![why]));
}
