//! Limits of the server that clients can reach, tested with the greatest valid value and with a greater value.

use rstest::rstest;
use serde_json::{Value, json};

use crate::ask::Ask;
use crate::trial::{CONFIG_MAPS, CRDS, ask_once, post, widgets};

fn named(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}})
}

fn with_meta(key: &str, value: Value) -> Value {
    let mut object = named("a");
    object["metadata"][key] = value;
    object
}

fn with_data(bytes: usize) -> Value {
    let mut object = named("a");
    object["data"] = json!({"k": "x".repeat(bytes)});
    object
}

const KEY_RULE: &str = "name part must be no more than 63 bytes";

#[rstest]
#[case::longest_name(named(&"a".repeat(253)), 201, "")]
#[case::name_that_is_too_long(named(&"a".repeat(254)), 422, "must be no more than 253 characters")]
#[case::longest_label(with_meta("labels", json!({"a".repeat(63): "b".repeat(63)})), 201, "")]
#[case::label_that_is_too_long(with_meta("labels", json!({"a": "b".repeat(64)})), 422, "must be no more than 63 bytes")]
#[case::label_key_that_is_too_long(with_meta("labels", json!({"a".repeat(64): "b"})), 422, KEY_RULE)]
#[case::largest_annotations(with_meta("annotations", json!({"a": "b".repeat(256 * 1024 - 1)})), 201, "")]
#[case::annotations_that_are_too_large(
    with_meta("annotations", json!({"a": "b".repeat(256 * 1024)})),
    422,
    "metadata.annotations: Too long: may not be more than 262144 bytes"
)]
#[case::largest_data(with_data(1024 * 1024), 201, "")]
#[case::data_that_is_too_large(with_data(1024 * 1024 + 1), 422, "Too long: may not be more than 1048576 bytes")]
fn object_at_a_size_limit_is_accepted_or_refused(#[case] object: Value, #[case] code: u16, #[case] message: &str) {
    let answer = ask_once(&[], &post(CONFIG_MAPS, &object));
    assert_eq!(answer.code, code, "{:.300}", answer.message());
    assert!(answer.message().contains(message), "{:.300}", answer.message());
}

#[rstest]
#[case::create("POST", "application/json", 413, "Request entity too large: limit is 3145728")]
#[case::patch(
    "PATCH",
    "application/merge-patch+json",
    413,
    "Request entity too large: limit is 3145728"
)]
#[case::apply(
    "PATCH",
    "application/apply-patch+yaml",
    413,
    "Request entity too large: limit is 3145728"
)]
fn body_above_the_limit_is_refused(
    #[case] verb: &str,
    #[case] content_type: &str,
    #[case] code: u16,
    #[case] message: &str,
) {
    let path = if verb == "POST" {
        CONFIG_MAPS.to_owned()
    } else {
        format!("{CONFIG_MAPS}/a?fieldManager=m")
    };
    let answer = ask_once(
        &[],
        &Ask::new(verb, &path, content_type, with_data(3 * 1024 * 1024).to_string()),
    );
    assert_eq!((answer.code, answer.message().as_str()), (code, message));
}

/// Dry runs are not limited, because they do not reach etcd.
#[rstest]
#[case::create("", 500, "etcdserver: request is too large")]
#[case::dry_run("?dryRun=All", 201, "")]
fn object_above_the_size_limit_of_etcd_is_only_refused_without_dry_run(
    #[case] query: &str,
    #[case] code: u16,
    #[case] message: &str,
) {
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let object = json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "a"},
        "spec": {"t": "x".repeat(1_600_000)}});
    let answer = ask_once(
        &[post(CRDS, &widgets(&schema))],
        &post(
            &format!("/apis/example.com/v1/namespaces/default/widgets{query}"),
            &object,
        ),
    );
    assert!(
        answer.code == code && answer.message().starts_with(message),
        "{:.300}",
        answer.message()
    );
    let pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i",
        "args": ["x".repeat(1_600_000)]}]}});
    let answer = ask_once(&[], &post(&format!("/api/v1/namespaces/default/pods{query}"), &pod));
    assert!(
        answer.code == code && answer.message().starts_with(message),
        "{:.300}",
        answer.message()
    );
}

/// The managed fields of an object with many keys may be larger than its data.
#[rstest]
#[case::create("POST", "application/json", 201)]
#[case::update("PUT", "application/json", 200)]
#[case::patch("PATCH", "application/merge-patch+json", 200)]
#[case::apply("PATCH", "application/apply-patch+yaml", 500)]
fn managed_fields_that_exceed_the_size_limit_of_etcd_are_dropped(
    #[case] verb: &str,
    #[case] content_type: &str,
    #[case] code: u16,
) {
    let mut object = named("a");
    let keys = (0..25_000).map(|it| (format!("key-with-a-long-name-{it:05}"), json!("")));
    object["data"] = Value::Object(keys.collect());
    let before = (verb != "POST").then(|| post(CONFIG_MAPS, &named("a")));
    let path = match verb {
        "POST" => CONFIG_MAPS.to_owned(),
        _ => format!("{CONFIG_MAPS}/a?fieldManager=m"),
    };
    let answer = ask_once(
        before.as_slice(),
        &Ask::new(verb, &path, content_type, object.to_string()),
    );
    assert_eq!(answer.code, code, "{:.300}", answer.message());
    assert!(code == 500 || !String::from_utf8_lossy(&answer.body).contains("managedFields"));
}

#[rstest]
#[case(128, 201)]
#[case(129, 422)]
fn field_manager_name_is_validated(#[case] length: usize, #[case] code: u16) {
    let path = format!("{CONFIG_MAPS}?fieldManager={}", "m".repeat(length));
    let answer = ask_once(&[], &post(&path, &named("a")));
    assert_eq!(answer.code, code, "{:.300}", answer.message());
}
