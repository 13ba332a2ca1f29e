//! Server-side apply with random objects and random managed fields, in JSON and in YAML.

use proptest::prelude::*;
use rstest::rstest;
use serde_json::{Value, json};

use crate::ask::Ask;
use crate::trial::{CONFIG_MAPS, ask_once, post, try_all};
use crate::values::{changed, objects, value};

/// An entry of `managedFields`, usually an invalid one.
fn manager() -> impl Strategy<Value = Value> {
    let fields = prop_oneof![
        value(),
        Just(json!({"f:data": {"f:k": {}, ".": {}}})),
        Just(json!({"f:metadata": {"f:finalizers": {"v:\"a.b/c\"": {}}}})),
        Just(json!({"f:spec": {"f:ports": {"k:{\"port\":80,\"protocol\":\"TCP\"}": {".": {}, "f:port": {}}}}})),
        Just(json!({"k:{": {}, "v:": {}, "i:x": {}, "f:": {}, "": {}, "x:y": {}, "i:99999999999999999999": {}})),
    ];
    let operations = prop::sample::select(vec!["Apply", "Update", "", "Delete"]);
    let versions = prop::sample::select(vec!["v1", "apps/v1", "nope/v9", ""]);
    (operations, versions, fields).prop_map(|(operation, version, fields)| {
        json!({"manager": "m", "operation": operation, "apiVersion": version, "fieldsType": "FieldsV1",
            "fieldsV1": fields})
    })
}

#[test]
fn random_applies_with_managed_fields_do_not_break_the_server() {
    let changes = prop::collection::vec((any::<u16>(), value()), 0..3);
    let managers = prop::option::of(prop::collection::vec(manager(), 0..3));
    let flags = (any::<bool>(), any::<bool>(), any::<bool>());
    let created: Vec<Ask> = objects().iter().map(|(path, object)| post(path, object)).collect();
    let strategy = (0..objects().len(), changes, managers, flags);
    try_all(
        400,
        &created,
        &strategy,
        |server, (at, changes, managers, (force, is_update, is_yaml))| async move {
            let (path, object) = objects().swap_remove(at);
            let mut body = changed(object, &changes);
            if let (Some(managers), Some(metadata)) =
                (managers, body.get_mut("metadata").and_then(Value::as_object_mut))
            {
                metadata.insert("managedFields".to_owned(), managers.into());
            }
            let ask = if is_update {
                Ask::new("PUT", &format!("{path}/a"), "application/json", body.to_string())
            } else {
                let path = format!("{path}/a?fieldManager=m&force={force}");
                // JSON is also valid YAML. A comment at the start makes it valid only as YAML.
                let start = if is_yaml { "# applied\n---\n" } else { "" };
                Ask::new("PATCH", &path, "application/apply-patch+yaml", format!("{start}{body}"))
            };
            ask.check(&server).await?;
            let again = Ask::new(
                "PATCH",
                &format!("{path}/a?fieldManager=n&force=true"),
                "application/apply-patch+yaml",
                json!({"apiVersion": body["apiVersion"], "kind": body["kind"], "metadata": {"name": "a"}}).to_string(),
            );
            again.check(&server).await.map(drop)
        },
    );
}

#[rstest]
#[case::aliases(format!("a: &a [{}]\nb: &b [{}]\nc: &c [{}]\nd: &d [{}]\ne: &e [{}]\nf: &f [{}]\ng: [{}]\n",
    "x,".repeat(100), "*a,".repeat(100), "*b,".repeat(100), "*c,".repeat(100), "*d,".repeat(100), "*e,".repeat(100),
    "*f,".repeat(100)), 400, "excessive aliasing")]
#[case::alias_of_itself("a: &a [*a]\n".to_owned(), 400, "")]
#[case::deep_lists(String::from("a:\n 1") + &"[".repeat(20_000), 400, "")]
#[case::deep_flow_maps(format!("a: {}", "{a: ".repeat(20_000)), 400, "")]
#[case::unterminated_long_string(format!("a: \"{}", "x".repeat(1_000_000)), 400, "")]
#[case::merge_keys("a: &a {b: 1}\nc:\n  <<: [*a, *a, 1]\n".to_owned(), 400, "")]
#[case::many_anchors((0..20_000).map(|i| format!("a{i}: &a{i} 1\n")).collect::<String>(), 0, "")]
fn hostile_document_does_not_break_apply(#[case] body: String, #[case] code: u16, #[case] message: &str) {
    let path = format!("{CONFIG_MAPS}/a?fieldManager=m");
    let answer = ask_once(&[], &Ask::new("PATCH", &path, "application/apply-patch+yaml", body));
    let text = answer.message();
    assert!(
        answer.code >= 400 && (code == 0 || answer.code == code),
        "{} {text:.300}",
        answer.code
    );
    assert!(text.contains(message), "{text:.300}");
}
