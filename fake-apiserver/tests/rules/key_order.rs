//! The order of keys in responses: the order of Go's structs for built-in objects, and sorted for maps and custom
//! objects (rule A32).

use fake_apiserver::ApiServer;
use http::Request;
use rstest::rstest;
use serde_json::{Value, json};

use crate::ask::post;

const PODS: &str = "/api/v1/namespaces/default/pods";
const WIDGETS: &str = "/apis/example.com/v1/namespaces/default/widgets";

async fn server() -> ApiServer {
    let server = ApiServer::start();
    let version = json!({
        "name": "v1", "served": true, "storage": true,
        "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
    });
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced", "versions": [version],
            "names": {"plural": "widgets", "kind": "Widget"},
        },
    });
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    assert_eq!(post(&server, path, &definition).await.0, 201);
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "p", "labels": {"b": "1", "a": "2"}, "annotations": {"x": "y"}, "finalizers": ["e.com/f"]},
        "spec": {
            "volumes": [{"emptyDir": {}, "name": "v"}], "nodeName": "n",
            "containers": [{"image": "i", "args": ["x"], "name": "c", "env": [{"value": "1", "name": "E"}]}],
        },
    });
    assert_eq!(post(&server, PODS, &pod).await.0, 201);
    let widget = json!({
        "apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w", "labels": {"b": "1", "a": "2"}},
        "spec": {"size": 1, "color": "red"},
    });
    assert_eq!(post(&server, WIDGETS, &widget).await.0, 201);
    server
}

/// Returns the response body of a GET; for a watch, its first event.
async fn text(server: &ApiServer, path: &str) -> String {
    let request = Request::get(path).body("").expect("the request is valid");
    let answer = server.call(request).await;
    let text = std::str::from_utf8(answer.body()).expect("the text is UTF-8");
    text.to_owned()
}

/// Returns the keys of a JSON string at one depth, in their order, excluding keys inside `managedFields`.
fn keys(text: &str, depth: usize) -> Vec<String> {
    let (mut level, mut found, mut in_text, mut word) = (0, Vec::new(), false, String::new());
    let mut characters = text.chars().peekable();
    while let Some(character) = characters.next() {
        match (in_text, character) {
            (true, '"') => {
                in_text = false;
                if level == depth && characters.peek() == Some(&':') {
                    found.push(word.clone());
                }
            }
            (true, '\\') => drop(characters.next()),
            (true, other) => word.push(other),
            (false, '"') => {
                in_text = true;
                word.clear();
            }
            (false, '{' | '[') => level += 1,
            (false, '}' | ']') => level -= 1,
            (false, _) => {}
        }
    }
    found
}

/// Returns the value of the first field called `name`, an object or an array, in compact JSON.
fn part<'a>(text: &'a str, name: &str) -> &'a str {
    let mark = format!("\"{name}\":");
    let at = text
        .find(&mark)
        .unwrap_or_else(|| panic!("{name} is missing in {text}"))
        + mark.len();
    let mut level = 0;
    for (offset, character) in text[at..].char_indices() {
        match character {
            '{' | '[' => level += 1,
            '}' | ']' => level -= 1,
            _ => {}
        }
        if level == 0 {
            return &text[at..=at + offset];
        }
    }
    panic!("the end of {name} is missing in {text}");
}

#[rstest]
#[case::compact("", 1)]
#[case::indented("?pretty=true", 1)]
#[tokio::test]
async fn built_in_objects_have_the_field_order_of_go_structs(#[case] query: &str, #[case] depth: usize) {
    let whole = text(&server().await, &format!("{PODS}/p{query}")).await;
    // White space between tokens is ignored.
    let compact = whole.replace("\n", "").replace("  ", "").replace("\": ", "\":");
    assert_eq!(
        keys(&compact, depth),
        ["kind", "apiVersion", "metadata", "spec", "status"]
    );
    let expected = [
        "name",
        "namespace",
        "uid",
        "resourceVersion",
        "generation",
        "creationTimestamp",
        "labels",
        "annotations",
        "finalizers",
        "managedFields",
    ];
    assert_eq!(keys(part(&compact, "metadata"), 1), expected);
    assert_eq!(keys(part(&compact, "labels"), 1), ["a", "b"]);
    let containers = part(&compact, "containers");
    assert_eq!(keys(containers, 2)[..5], ["name", "image", "args", "env", "resources"]);
    assert_eq!(keys(containers, 4), ["name", "value"]);
    let spec = keys(part(&compact, "spec"), 1);
    assert_eq!(
        spec[..4],
        [
            "volumes",
            "containers",
            "restartPolicy",
            "terminationGracePeriodSeconds"
        ]
    );
}

#[tokio::test]
async fn lists_of_built_in_objects_have_the_field_order_of_go_structs() {
    let whole = text(&server().await, &format!("{PODS}?limit=5")).await;
    assert_eq!(keys(&whole, 1), ["kind", "apiVersion", "metadata", "items"]);
    assert_eq!(keys(&whole, 3), ["metadata", "spec", "status"]);
}

#[tokio::test]
async fn fields_of_custom_resources_are_sorted() {
    let server = server().await;
    let whole = text(&server, &format!("{WIDGETS}/w")).await;
    assert_eq!(keys(&whole, 1), ["apiVersion", "kind", "metadata", "spec"]);
    let expected = [
        "creationTimestamp",
        "generation",
        "labels",
        "managedFields",
        "name",
        "namespace",
        "resourceVersion",
        "uid",
    ];
    assert_eq!(keys(part(&whole, "metadata"), 1), expected);
    assert_eq!(keys(part(&whole, "spec"), 1), ["color", "size"]);
    let list = text(&server, WIDGETS).await;
    assert_eq!(keys(&list, 1), ["apiVersion", "items", "kind", "metadata"]);
    assert_eq!(keys(&list, 3), ["apiVersion", "kind", "metadata", "spec"]);
}

#[tokio::test]
async fn other_versions_and_virtual_objects_have_the_field_order_of_go_structs() {
    let server = server().await;
    let review = json!({"spec": {"nonResourceAttributes": {"verb": "get", "path": "/"}}});
    let request = Request::post("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews")
        .header("content-type", "application/json")
        .body(review.to_string())
        .expect("the request is valid");
    let answer = server.call(request).await;
    let whole = std::str::from_utf8(answer.body()).expect("the text is UTF-8");
    assert_eq!(keys(whole, 1), ["kind", "apiVersion", "metadata", "spec", "status"]);
    assert_eq!(keys(part(whole, "nonResourceAttributes"), 1), ["path", "verb"]);
    let scaler = json!({"metadata": {"name": "h"}, "spec": {
        "maxReplicas": 3, "minReplicas": 1, "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"},
    }});
    let path = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers";
    assert_eq!(post(&server, path, &scaler).await.0, 201);
    let whole = text(&server, &format!("{}/h", path.replace("v2", "v1"))).await;
    assert_eq!(keys(part(&whole, "scaleTargetRef"), 1), ["kind", "name", "apiVersion"]);
    let _: Value = serde_json::from_str(&whole).expect("the text is valid JSON");
}
