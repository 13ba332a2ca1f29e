//! Writes of a Scale. Its metadata is validated but not stored.

use fake_apiserver::ApiServer;
use rstest::rstest;
use serde_json::{Value, json};

use crate::ask::{APPLY, MERGE, causes, get, post, send, warnings, warnings_of};

const SETS: &str = "/apis/apps/v1/namespaces/default/replicasets";

/// Returns a server with a ReplicaSet, and the uid of the ReplicaSet.
async fn server() -> (ApiServer, String) {
    let server = ApiServer::start();
    let body = json!({"metadata": {"name": "s"}, "spec": {
        "selector": {"matchLabels": {"a": "b"}},
        "template": {
            "metadata": {"labels": {"a": "b"}},
            "spec": {"containers": [{"name": "c", "image": "i"}]},
        },
    }});
    let (code, made) = post(&server, SETS, &body).await;
    assert_eq!(code, 201, "{made}");
    let uid = made["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
    (server, uid)
}

fn scale(metadata: &Value, replicas: i64) -> Value {
    let mut body = json!({"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": metadata,
        "spec": {"replicas": replicas}});
    body["metadata"]["name"] = json!("s");
    body
}

#[rstest]
#[case::invalid_annotation(json!({"annotations": {"a b": "c"}}), 1, &["metadata.annotations"])]
#[case::several_invalid_fields(
    json!({"generateName": "_", "labels": {"x y": "z"}, "finalizers": ["aa"],
        "ownerReferences": [{"apiVersion": "v1", "kind": "A", "name": "", "uid": "u"}]}), -2,
    &["metadata.generateName", "metadata.labels", "metadata.ownerReferences.name", "metadata.finalizers[0]",
        "spec.replicas"])]
#[tokio::test(start_paused = true)]
async fn metadata_of_a_scale_is_validated(
    #[case] metadata: Value,
    #[case] replicas: i64,
    #[case] fields: &[&str],
    #[values("PUT", "PATCH")] method: &str,
) {
    let (server, _) = server().await;
    let content_type = if method == "PUT" { "application/json" } else { MERGE };
    let path = format!("{SETS}/s/scale");
    let answer = send(&server, method, &path, content_type, &scale(&metadata, replicas)).await;
    let found = causes(&answer);
    let found: Vec<&str> = found.iter().filter_map(|it| it.split(':').next()).collect();
    assert_eq!((answer.0, found), (422, fields.to_vec()));
    let (_, kept) = get(&server, &path).await;
    assert_eq!(kept["spec"]["replicas"], 1);
}

#[rstest]
#[case::put("PUT", "application/json", "replicasets.apps", true)]
#[case::merge_patch("PATCH", MERGE, "replicasets/scale.apps", false)]
#[case::apply("PATCH", APPLY, "replicasets/scale.apps", false)]
#[tokio::test(start_paused = true)]
async fn uid_of_a_scale_is_a_precondition(
    #[case] method: &str,
    #[case] content_type: &str,
    #[case] resource: &str,
    #[case] of_storage: bool,
) {
    let (server, uid) = server().await;
    let path = format!("{SETS}/s/scale?fieldManager=m&force=true");
    let path = path
        .strip_suffix("&force=true")
        .filter(|_| content_type != APPLY)
        .unwrap_or(&path);
    let (code, answer) = send(&server, method, path, content_type, &scale(&json!({"uid": "x"}), 2)).await;
    let storage = match of_storage {
        true => {
            "StorageError: invalid object, Code: 4, Key: /registry/replicasets/default/s, ResourceVersion: 0, \
             AdditionalErrorMsg: "
        }
        false => "",
    };
    let why = format!(
        "Operation cannot be fulfilled on {resource} \"s\": {storage}Precondition failed: UID in precondition: x, UID \
         in object meta: {uid}"
    );
    assert_eq!((code, answer["message"].as_str()), (409, Some(&*why)));
    let (code, answer) = send(&server, method, path, content_type, &scale(&json!({"uid": uid}), 2)).await;
    assert_eq!((code, &answer["spec"]["replicas"]), (200, &json!(2)));
}

/// A Scale changes the object itself, whose Pod template is checked again.
#[tokio::test]
async fn write_to_scale_returns_the_warnings_of_the_pod_template() {
    let server = ApiServer::start();
    let path = "/apis/apps/v1/namespaces/default/deployments";
    let body = json!({"metadata": {"name": "s"}, "spec": {
        "selector": {"matchLabels": {"a": "b"}},
        "template": {
            "metadata": {"labels": {"a": "b"}},
            "spec": {"nodeSelector": {"beta.kubernetes.io/os": "linux"}, "containers": [{"name": "c", "image": "i"}]},
        },
    }});
    let expected = warnings(&server, path, &body).await;
    assert_eq!(expected.len(), 1, "{expected:?}");
    let path = format!("{path}/s/scale");
    assert_eq!(
        warnings_of(&server, "PUT", &path, &scale(&json!({}), 2)).await,
        expected
    );
    let none = Vec::<String>::new();
    assert_eq!(warnings_of(&server, "PUT", &path, &scale(&json!({}), 2)).await, none);
}
