//! Custom resources in several versions: field owners, first writes, and watches while the definition changes.

use std::time::Duration;

use fake_apiserver::ApiServer;
use rstest::rstest;
use serde_json::{Value, json};

use crate::ask::{APPLY, MERGE, Watch, get, message, post, put, send, with};

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const DEFINITION: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/foos.e.com";
const CLAIMS: &str = "/api/v1/namespaces/default/persistentvolumeclaims";

fn foos(version: &str) -> String {
    format!("/apis/e.com/{version}/namespaces/default/foos")
}

/// Returns a version with these properties in its spec.
fn version(name: &str, is_stored: bool, spec: &Value) -> Value {
    json!({"name": name, "served": true, "storage": is_stored, "subresources": {"status": {}},
        "schema": {"openAPIV3Schema": {"type": "object", "properties": {
            "spec": {"type": "object", "properties": spec, "default": {}},
            "status": {"type": "object", "properties": {"n": {"type": "integer"}}}}}}})
}

fn definition(versions: &Value) -> Value {
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "foos.e.com"}, "spec": {"group": "e.com", "scope": "Namespaced",
            "names": {"plural": "foos", "kind": "Foo"}, "versions": versions}})
}

async fn server(versions: &Value) -> ApiServer {
    let server = ApiServer::start();
    let (code, answer) = post(&server, DEFINITIONS, &definition(versions)).await;
    assert_eq!(code, 201, "{answer}");
    server
}

fn foo(version: &str, spec: &Value) -> Value {
    json!({"apiVersion": format!("e.com/{version}"), "kind": "Foo", "metadata": {"name": "a"}, "spec": spec})
}

/// The definition is established by a write to its status, because the controllers do not establish it. kube-apiserver
/// treats white space like an empty bundle.
#[rstest]
#[case::invalid("Zm9v", 500)]
#[case::white_space("Cg==", 200)]
#[tokio::test]
async fn established_definition_with_an_invalid_ca_bundle_is_not_served(#[case] bundle: &str, #[case] expected: u16) {
    let mut definition = definition(&json!([version("v1", true, &json!({}))]));
    let client = json!({"url": "https://x.example/y", "caBundle": bundle});
    definition["spec"]["conversion"] = json!({"strategy": "Webhook",
        "webhook": {"clientConfig": client, "conversionReviewVersions": ["v1"]}});
    let server = ApiServer::start();
    let (code, answer) = post(&server, DEFINITIONS, &definition).await;
    assert_eq!(code, 201, "{answer}");

    let condition = |kind: &str| {
        json!({"type": kind, "status": "True", "reason": "R", "message": "m",
            "lastTransitionTime": "2026-01-01T00:00:00Z"})
    };
    let status = json!({"status": {"conditions": [condition("NamesAccepted"), condition("Established")]}});
    let (code, answer) = send(&server, "PATCH", &format!("{DEFINITION}/status"), MERGE, &status).await;
    assert_eq!(code, 200, "{answer}");
    for path in [
        foos("v1"),
        format!("{}/a", foos("v1")),
        format!("{}/a/status", foos("v1")),
    ] {
        let (code, answer) = get(&server, &path).await;
        if expected == 500 {
            let text = "Internal error occurred: error resolving resource";
            assert_eq!((code, message(&answer)), (500, text), "{path}");
        } else {
            assert_ne!(code, 500, "{path}");
        }
    }
    assert_eq!(get(&server, &foos("v1")).await.0, expected);
}

/// Changes the schema of the definition.
async fn change(server: &ApiServer, property: &str) {
    let properties = json!({property: {"type": "string"}});
    let patch = json!({"spec": {"versions": [version("v1", true, &properties)]}});
    let (code, answer) = send(server, "PATCH", DEFINITION, MERGE, &patch).await;
    assert_eq!(code, 200, "{answer}");
}

async fn label(server: &ApiServer, value: &str) {
    let patch = json!({"metadata": {"labels": {"l": value}}});
    let path = format!("{}/a", foos("v1"));
    assert_eq!(send(server, "PATCH", &path, MERGE, &patch).await.0, 200);
}

fn kinds(events: &[Value]) -> Vec<&str> {
    events
        .iter()
        .map(|it| it["type"].as_str().unwrap_or_default())
        .collect()
}

#[tokio::test(start_paused = true)]
async fn watch_continues_for_a_second_after_a_crd_change() {
    let server = server(&json!([version("v1", true, &json!({}))])).await;
    assert_eq!(post(&server, &foos("v1"), &foo("v1", &json!({}))).await.0, 201);
    let from = server.resource_version();
    let mut watch = Watch::open(&server, &format!("{}?watch=1&resourceVersion={from}", foos("v1"))).await;
    change(&server, "x").await;
    label(&server, "one").await;
    assert_eq!(kinds(&watch.told()), ["MODIFIED"]);
    tokio::time::sleep(Duration::from_millis(900)).await;
    label(&server, "two").await;
    assert_eq!(kinds(&watch.told()), ["MODIFIED"]);
    assert!(!watch.has_ended());
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!(watch.told(), Vec::<Value>::new());
    assert!(watch.has_ended());
}

#[tokio::test(start_paused = true)]
async fn watch_ends_if_the_crd_changes_twice() {
    let server = server(&json!([version("v1", true, &json!({}))])).await;
    let from = server.resource_version();
    let mut watch = Watch::open(&server, &format!("{}?watch=1&resourceVersion={from}", foos("v1"))).await;
    change(&server, "x").await;
    assert_eq!(watch.told(), Vec::<Value>::new());
    assert!(!watch.has_ended());
    change(&server, "y").await;
    assert_eq!(watch.told(), Vec::<Value>::new());
    assert!(watch.has_ended());
}

#[tokio::test(start_paused = true)]
async fn watch_continues_while_the_crd_is_terminating() {
    let server = server(&json!([version("v1", true, &json!({}))])).await;
    let held = with(
        &foo("v1", &json!({})),
        &json!({"metadata": {"finalizers": ["e.com/x"]}}),
    );
    assert_eq!(post(&server, &foos("v1"), &held).await.0, 201);
    let from = server.resource_version();
    let mut watch = Watch::open(&server, &format!("{}?watch=1&resourceVersion={from}", foos("v1"))).await;
    send(&server, "DELETE", DEFINITION, "application/json", &Value::Null).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(kinds(&watch.told()), ["MODIFIED"]);
    assert!(!watch.has_ended());
    let freed = json!({"metadata": {"finalizers": null}});
    send(&server, "PATCH", &format!("{}/a", foos("v1")), MERGE, &freed).await;
    assert_eq!(kinds(&watch.told()), ["DELETED"]);
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(watch.told(), Vec::<Value>::new());
    assert!(watch.has_ended());
}

/// If managed fields contain a field that their version lacks, updates drop them and applies fail.
#[tokio::test]
async fn managed_fields_with_undeclared_fields_are_dropped_by_updates_and_refused_by_applies() {
    let text = json!({"type": "string"});
    let server = server(&json!([
        version("v1", true, &json!({"a": text, "b": {"type": "string", "default": "x"}})),
        version("v2", false, &json!({"a": text})),
    ]))
    .await;
    assert_eq!(post(&server, &foos("v1"), &foo("v1", &json!({}))).await.0, 201);
    let (code, made) = send(
        &server,
        "PATCH",
        &format!("{}/a?fieldManager=m", foos("v2")),
        MERGE,
        &json!({"metadata": {"labels": {"l": "x"}}}),
    )
    .await;
    assert_eq!(code, 200, "{made}");
    assert_eq!(made["metadata"]["managedFields"].as_array().map(Vec::len), Some(2));

    let path = format!("{}/a?fieldManager=n", foos("v1"));
    let applied = with(
        &foo("v1", &json!({"a": "x"})),
        &json!({"metadata": {"managedFields": null}}),
    );
    let (code, answer) = send(&server, "PATCH", &path, APPLY, &applied).await;
    assert_eq!((code, message(&answer)), (500, ".spec.b: field not declared in schema"));
    let (code, answer) = send(&server, "PATCH", &path, MERGE, &json!({"spec": {"a": "y"}})).await;
    assert_eq!((code, &answer["metadata"]["managedFields"]), (200, &Value::Null));
}

/// A write without changes creates a new version if the stored object lacks defaults that are added when it is read.
#[rstest]
#[case::without_defaults(json!([version("v1", true, &json!({}))]), "v1", false)]
#[case::with_a_default_status(
    json!([with(&version("v1", true, &json!({})), &json!({"schema": {"openAPIV3Schema": {"properties": {"status":
        {"type": "object", "default": {"n": 1}}}}}}))]), "v1", true)]
#[case::with_defaults_of_the_stored_version(
    json!([version("v1", true, &json!({"a": {"type": "string", "default": "d"}})),
        version("v2", false, &json!({"a": {"type": "string"}}))]), "v2", true)]
#[case::with_defaults_of_another_version(
    json!([version("v1", true, &json!({"a": {"type": "string", "default": "d"}})),
        version("v2", false, &json!({}))]), "v2", false)]
#[tokio::test]
async fn first_no_op_update_of_a_custom_resource_creates_a_version_if_stored_defaults_are_missing(
    #[case] versions: Value,
    #[case] name: &str,
    #[case] makes_a_version: bool,
) {
    let server = server(&versions).await;
    let (code, made) = post(&server, &foos(name), &foo(name, &json!({}))).await;
    assert_eq!(code, 201, "{made}");
    identical_writes(&server, &format!("{}/a", foos(name)), &made, makes_a_version).await;
}

#[tokio::test]
async fn first_no_op_update_of_a_volume_claim_creates_a_version() {
    let server = ApiServer::start();
    let claim = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "a"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}});
    let (code, made) = post(&server, CLAIMS, &claim).await;
    assert_eq!(code, 201, "{made}");
    identical_writes(&server, &format!("{CLAIMS}/a"), &made, true).await;
}

#[tokio::test]
async fn apply_with_null_annotations_always_creates_a_version() {
    let server = server(&json!([version("v1", true, &json!({}))])).await;
    let path = format!("{}/a?fieldManager=m", foos("v1"));
    let mut applied = foo("v1", &json!({}));
    applied["metadata"]["annotations"] = Value::Null;
    let mut seen = Vec::new();
    for _ in 0..3 {
        let (code, answer) = send(&server, "PATCH", &path, APPLY, &applied).await;
        assert!(code < 300, "{answer}");
        seen.push(answer["metadata"]["resourceVersion"].clone());
    }
    seen.dedup();
    assert_eq!(seen.len(), 3);
}

/// Writes an object twice unchanged; the second write never creates a version.
async fn identical_writes(server: &ApiServer, path: &str, made: &Value, makes_a_version: bool) {
    let rv = |object: &Value| object["metadata"]["resourceVersion"].clone();
    let (code, first) = put(server, path, made).await;
    assert_eq!(code, 200, "{first}");
    assert_eq!(rv(&first) != rv(made), makes_a_version);
    let (code, second) = put(server, path, &first).await;
    assert_eq!((code, rv(&second)), (200, rv(&first)));
}

#[rstest]
#[case::served(true, json!("XgnXlqn3xQU="))]
#[case::not_served(false, Value::Null)]
#[tokio::test]
async fn storage_version_hash_requires_a_served_storage_version(#[case] served: bool, #[case] expected: Value) {
    let server = server(&json!([
        with(&version("v1", true, &json!({})), &json!({"served": served})),
        version("v2", false, &json!({})),
    ]))
    .await;
    let (_, listed) = get(&server, "/apis/e.com/v2").await;
    assert_eq!(listed["resources"][0]["storageVersionHash"], expected);
}

const MISSING: &str = "Object 'Kind' is missing in '{\"spec\":{}}'";

#[rstest]
#[case::lenient("Ignore", "Foo in version \"v1\" cannot be handled as a Foo: ", "")]
#[case::strict(
    "Strict",
    "the object provided is unrecognized (must be of type Foo): ",
    " ({\"spec\":{}})"
)]
#[tokio::test]
async fn body_without_a_kind_is_refused(#[case] validation: &str, #[case] before: &str, #[case] after: &str) {
    let server = server(&json!([version("v1", true, &json!({}))])).await;
    let path = format!("{}?fieldValidation={validation}", foos("v1"));
    let (code, answer) = post(&server, &path, &json!({"spec": {}})).await;
    assert_eq!((code, message(&answer)), (400, &*format!("{before}{MISSING}{after}")));
}
