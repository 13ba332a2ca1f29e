//! Patches of all three types for objects with all kinds of lists.

use proptest::prelude::*;
use rstest::rstest;
use serde_json::{Value, json};

use crate::ask::Ask;
use crate::trial::{CONFIG_MAPS, ask_once, post, try_all};
use crate::values::{changed, objects, value};

fn created() -> Vec<Ask> {
    objects().iter().map(|(path, object)| post(path, object)).collect()
}

/// Generates an operation of a JSON patch.
fn operation() -> impl Strategy<Value = Value> {
    let pointers = prop::sample::select(vec![
        "",
        "/",
        "/metadata/labels/a",
        "/metadata/finalizers/0",
        "/metadata/finalizers/-",
        "/metadata/finalizers/99",
        "/spec/ports/1/port",
        "/spec",
        "/data",
        "/metadata/name",
        "/~2",
        "/a~1b",
        "/spec/template/spec/containers/0",
        "/metadata/finalizers/-1",
        "/metadata/finalizers/00",
        "/metadata/finalizers/18446744073709551616",
        "x",
    ]);
    let kinds = prop::sample::select(vec!["add", "remove", "replace", "move", "copy", "test", "", "Add"]);
    (kinds, pointers.clone(), pointers, prop::option::of(value())).prop_map(|(op, path, from, value)| {
        let mut made = json!({"op": op, "path": path, "from": from});
        if let Some(value) = value {
            made["value"] = value;
        }
        made
    })
}

#[test]
fn random_json_patches_do_not_break_the_server() {
    let patches = prop::collection::vec(operation(), 0..6);
    try_all(
        300,
        &created(),
        &(0..objects().len(), patches),
        |server, (at, patch)| async move {
            let path = format!("{}/a", objects()[at].0);
            let body = Value::from(patch).to_string();
            Ask::new("PATCH", &path, "application/json-patch+json", body)
                .check(&server)
                .await
                .map(drop)
        },
    );
}

#[test]
fn random_merge_patches_do_not_break_the_server() {
    let types = prop::sample::select(vec![
        "application/merge-patch+json",
        "application/strategic-merge-patch+json",
    ]);
    let changes = prop::collection::vec((any::<u16>(), value()), 0..4);
    let bodies = prop_oneof![value().prop_map(Ok), changes.prop_map(Err)];
    try_all(
        500,
        &created(),
        &(0..objects().len(), types, bodies),
        |server, (at, content_type, body)| async move {
            let (path, object) = objects().swap_remove(at);
            let body = body.unwrap_or_else(|changes| changed(object, &changes)).to_string();
            Ask::new("PATCH", &format!("{path}/a"), content_type, body)
                .check(&server)
                .await
                .map(drop)
        },
    );
}

/// Only the response to this body is checked.
#[rstest]
#[case::too_many_operations(
    "application/json-patch+json",
    format!("[{}]", vec![r#"{"op":"test","path":"/kind","value":"ConfigMap"}"#; 10_001].join(",")),
    413,
    "Request entity too large: The allowed maximum operations in a JSON patch is 10000, got 10001"
)]
#[case::maximum_number_of_operations(
    "application/json-patch+json",
    format!("[{}]", vec![r#"{"op":"test","path":"/kind","value":"ConfigMap"}"#; 10_000].join(",")),
    200,
    ""
)]
#[case::copies_of_copies(
    "application/json-patch+json",
    format!("[{{\"op\":\"add\",\"path\":\"/data/k\",\"value\":\"{}\"}},{}]", "x".repeat(1000), (0..40)
        .map(|i| format!(r#"{{"op":"copy","from":"/data","path":"/data/c{i}"}}"#)).collect::<Vec<_>>().join(",")),
    0,
    ""
)]
#[case::duplicate_keys(
    "application/merge-patch+json",
    r#"{"data":{"k":"1","k":"2"},"data":{"l":"3"}}"#.to_owned(),
    200,
    ""
)]
#[case::long_lists(
    "application/strategic-merge-patch+json",
    format!(r#"{{"metadata":{{"finalizers":[{}]}}}}"#, (0..20_000).map(|i| format!("\"a.b/c{i}\"")).collect::<Vec<_>>()
        .join(",")),
    0,
    ""
)]
#[case::element_order_of_missing_items(
    "application/strategic-merge-patch+json",
    r#"{"metadata":{"$setElementOrder/finalizers":["z","a.b/c"],"finalizers":null}}"#.to_owned(),
    0,
    ""
)]
fn large_patch_is_accepted_or_refused(
    #[case] content_type: &str,
    #[case] body: String,
    #[case] code: u16,
    #[case] message: &str,
) {
    let ask = Ask::new("PATCH", &format!("{CONFIG_MAPS}/a"), content_type, body);
    let answer = ask_once(&created(), &ask);
    let text = answer.message();
    assert!(code == 0 || answer.code == code, "{} {text:.300}", answer.code);
    assert!(text.contains(message), "{text:.300}");
    assert!(
        answer.body.len() < 4 * 1024 * 1024,
        "the response is too long: {} bytes",
        answer.body.len()
    );
}
