//! Options of deletes: types of fields, propagation, and deletes of objects that are being deleted.

use fake_apiserver::ApiServer;
use http::Request;
use rstest::rstest;
use serde_json::{Value, json};

use crate::ask::{config_map, get, message, post, send};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// Sends a DELETE with this body, unchanged. Returns the status and the message of the response.
async fn delete(server: &ApiServer, path: &str, body: &'static str) -> (u16, String) {
    let request = Request::delete(path)
        .header("content-type", "application/json")
        .body(body.to_owned())
        .expect("the request is valid");
    let answer = server.call(request).await;
    let code = answer.status().as_u16();
    let answer: Value = serde_json::from_slice(answer.body()).unwrap_or_default();
    (code, message(&answer).to_owned())
}

#[rstest]
#[case::item_of_dry_run(
    r#"{"dryRun":["All",1]}"#,
    "number into Go struct field DeleteOptions.dryRun of type string"
)]
#[case::uid(
    r#"{"preconditions":{"uid":5}}"#,
    "number into Go struct field Preconditions.preconditions.uid of type types.UID"
)]
#[case::version(
    r#"{"preconditions":{"resourceVersion":{}}}"#,
    "object into Go struct field Preconditions.preconditions.resourceVersion of type string"
)]
#[case::ignored_read_errors(
    r#"{"ignoreStoreReadErrorWithClusterBreakingPotential":1}"#,
    "number into Go struct field DeleteOptions.ignoreStoreReadErrorWithClusterBreakingPotential of type bool"
)]
#[tokio::test(start_paused = true)]
async fn options_of_wrong_types_are_refused(#[case] body: &'static str, #[case] why: &str) {
    let server = ApiServer::start();
    assert_eq!(post(&server, MAPS, &config_map("a", json!({}))).await.0, 201);
    let refusal = (400, format!("json: cannot unmarshal {why}"));
    for path in [MAPS, &format!("{MAPS}/a")] {
        assert_eq!(delete(&server, path, body).await, refusal);
    }
    assert_eq!(get(&server, &format!("{MAPS}/a")).await.0, 200);
}

#[rstest]
#[case::null_dry_run(
    r#"{"dryRun":null,"propagationPolicy":null,"preconditions":{"uid":null,"x":5}}"#,
    200,
    ""
)]
#[case::null_in_a_list(
    r#"{"dryRun":[null]}"#,
    422,
    "DeleteOptions.meta.k8s.io \"\" is invalid: dryRun: Unsupported value: [\"\"]: supported values: \"All\""
)]
#[tokio::test(start_paused = true)]
async fn null_options_are_treated_as_empty(#[case] body: &'static str, #[case] code: u16, #[case] why: &str) {
    let server = ApiServer::start();
    assert_eq!(post(&server, MAPS, &config_map("a", json!({}))).await.0, 201);
    let answer = delete(&server, &format!("{MAPS}/a"), body).await;
    assert_eq!(answer, (code, why.to_owned()));
}

#[rstest]
#[case::orphan_dependents(json!({"orphanDependents": true}), json!(["orphan"]))]
#[case::orphan_dependents_false(json!({"orphanDependents": false}), json!(["foregroundDeletion"]))]
#[case::background_policy(json!({"propagationPolicy": "Background"}), Value::Null)]
#[tokio::test(start_paused = true)]
async fn delete_options_determine_the_finalizers_of_a_namespace(#[case] options: Value, #[case] finalizers: Value) {
    let server = ApiServer::start();
    let namespace = json!({"metadata": {"name": "n"}});
    assert_eq!(post(&server, "/api/v1/namespaces", &namespace).await.0, 201);
    let path = "/api/v1/namespaces/n";
    send(&server, "DELETE", path, "application/json", &options).await;
    let (_, left) = get(&server, path).await;
    assert_eq!(left["metadata"]["finalizers"], finalizers, "{left}");
}

#[tokio::test(start_paused = true)]
async fn second_delete_of_a_crd_does_not_increment_its_generation() {
    let server = ApiServer::start();
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let definition = json!({
        "metadata": {"name": "foos.example.com", "finalizers": ["example.com/f"]},
        "spec": {"group": "example.com", "scope": "Namespaced", "names": {"plural": "foos", "kind": "Foo"},
            "versions": [{"name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object"}}}]},
    });
    assert_eq!(post(&server, path, &definition).await.0, 201);
    let path = format!("{path}/foos.example.com");
    for grace in [Value::Null, json!(0)] {
        send(&server, "DELETE", &path, "application/json", &Value::Null).await;
        let (_, left) = get(&server, &path).await;
        let meta = &left["metadata"];
        assert_eq!(
            (&meta["generation"], &meta["deletionGracePeriodSeconds"]),
            (&json!(1), &grace)
        );
    }
}
