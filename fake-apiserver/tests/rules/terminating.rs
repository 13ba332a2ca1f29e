//! Requests that create subresources in namespaces that are being deleted or do not exist.

use fake_apiserver::ApiServer;
use rstest::rstest;
use serde_json::{Value, json};

use crate::ask::{message, post, send};

fn eviction() -> Value {
    json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "other"}})
}

fn binding(name: &str) -> Value {
    json!({"metadata": {"name": name}, "target": {"name": "n"}})
}

#[rstest]
#[case::eviction("pods/p/eviction", eviction(), "pods", "p")]
#[case::binding("pods/p/binding", binding("other"), "pods", "p")]
#[case::legacy_binding("bindings", binding("p"), "bindings", "p")]
#[case::token("serviceaccounts/s/token", json!({"spec": {}}), "serviceaccounts", "s")]
#[case::token_of_a_missing_account("serviceaccounts/none/token", json!({"spec": {}}), "serviceaccounts", "none")]
#[tokio::test(start_paused = true)]
async fn subresources_cannot_be_created_in_a_terminating_namespace(
    #[case] path: &str,
    #[case] body: Value,
    #[case] resource: &str,
    #[case] name: &str,
) {
    let server = ApiServer::start();
    let namespace = json!({"metadata": {"name": "a", "finalizers": ["example.com/f"]}});
    assert_eq!(post(&server, "/api/v1/namespaces", &namespace).await.0, 201);
    let root = "/api/v1/namespaces/a";
    let pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    assert_eq!(post(&server, &format!("{root}/pods"), &pod).await.0, 201);
    let account = json!({"metadata": {"name": "s"}});
    assert_eq!(post(&server, &format!("{root}/serviceaccounts"), &account).await.0, 201);
    send(&server, "DELETE", root, "application/json", &Value::Null).await;

    let (code, answer) = post(&server, &format!("{root}/{path}"), &body).await;
    let why = format!(
        "{resource} \"{name}\" is forbidden: unable to create new content in namespace a because it is being terminated"
    );
    assert_eq!((code, message(&answer)), (403, why.as_str()));
    let causes = json!([{"reason": "NamespaceTerminating", "message": "namespace a is being terminated",
        "field": "metadata.namespace"}]);
    assert_eq!(answer["details"]["causes"], causes);

    let missing = format!("/api/v1/namespaces/none/{path}");
    let (code, answer) = post(&server, &missing, &body).await;
    assert_eq!((code, message(&answer)), (404, "namespaces \"none\" not found"));
}

#[rstest]
#[case::eviction("pods/other/eviction", eviction())]
#[case::binding("pods/other/binding", binding("other"))]
#[case::token("serviceaccounts/other/token", json!({"spec": {}}))]
#[tokio::test(start_paused = true)]
async fn objects_loaded_without_their_namespace_have_subresources(#[case] path: &str, #[case] body: Value) {
    let server = ApiServer::start();
    let metadata = json!({"name": "other", "namespace": "none"});
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata,
        "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata});
    server.load([pod, account]).expect("the objects are valid");
    let (code, answer) = post(&server, &format!("/api/v1/namespaces/none/{path}"), &body).await;
    assert_eq!((code, message(&answer)), (201, ""));
}
