//! Bodies that are nested too deeply to be read back are refused, with every verb.

use fake_apiserver::ApiServer;
use rstest::rstest;
use serde_json::{Value, json};

use crate::ask::{APPLY, JSON_PATCH, MERGE, get, post, send};

const FOOS: &str = "/apis/e.com/v1/namespaces/default/foos";

async fn server() -> ApiServer {
    let server = ApiServer::start();
    let schema = json!({"type": "object", "properties":
        {"spec": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}});
    let definition = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "foos.e.com"}, "spec": {"group": "e.com", "scope": "Namespaced",
            "names": {"plural": "foos", "kind": "Foo"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}]}});
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    assert_eq!(post(&server, path, &definition).await.0, 201);
    let made = json!({"apiVersion": "e.com/v1", "kind": "Foo", "metadata": {"name": "old"}});
    assert_eq!(post(&server, FOOS, &made).await.0, 201);
    server
}

fn nested(levels: usize) -> Value {
    (0..levels).fold(json!({}), |inner, _| json!({"a": inner}))
}

#[rstest]
#[case::create("POST", "", "application/json")]
#[case::update("PUT", "/old", "application/json")]
#[case::merge_patch("PATCH", "/old", MERGE)]
#[case::json_patch("PATCH", "/old", JSON_PATCH)]
#[case::creating_apply("PATCH", "/new?fieldManager=m", APPLY)]
#[case::apply("PATCH", "/old?fieldManager=m", APPLY)]
#[tokio::test]
async fn deeply_nested_objects_are_readable_or_refused(
    #[case] method: &str,
    #[case] path: &str,
    #[case] content_type: &str,
) {
    let server = server().await;
    let name = if path.starts_with("/old") { "old" } else { "new" };
    for levels in 116..=127 {
        let stored = get(&server, &format!("{FOOS}/{name}")).await;
        let mut body = json!({"apiVersion": "e.com/v1", "kind": "Foo", "metadata": {"name": name},
            "spec": nested(levels)});
        if method == "PUT" {
            body["metadata"]["resourceVersion"] = stored.1["metadata"]["resourceVersion"].clone();
        }
        if content_type == JSON_PATCH {
            body = json!([{"op": "add", "path": "/spec", "value": nested(levels)}]);
        }
        let (code, answer) = send(&server, method, &format!("{FOOS}{path}"), content_type, &body).await;
        let read = get(&server, &format!("{FOOS}/{name}")).await;
        if code < 300 {
            assert!(levels <= 120, "{levels}");
            assert_eq!((read.0, &read.1["spec"]), (200, &nested(levels)), "{levels}");
        } else if levels > 120 {
            assert!((400..500).contains(&code), "{levels}: {answer}");
            assert_eq!(read, stored, "a refused write changes nothing");
        }
        if method == "POST" {
            send(
                &server,
                "DELETE",
                &format!("{FOOS}/new"),
                "application/json",
                &Value::Null,
            )
            .await;
        }
    }
}
