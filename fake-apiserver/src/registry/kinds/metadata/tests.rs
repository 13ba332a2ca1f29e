//! Tests of the metadata rules, with requests and error messages recorded from kube-apiserver.

use jiff::Timestamp;
use rstest::rstest;

use super::*;
use crate::api::json::{Value, json};
use crate::registry::kinds::metadata_checks::metadata_checks;
use crate::registry::scheme::builtins::strategy;

fn object(value: Value) -> Object {
    value.as_object().cloned().map(Object).unwrap_or_default()
}

fn texts(errors: &FieldErrors) -> Vec<String> {
    errors.iter().map(ToString::to_string).collect()
}

fn create(meta: Value) -> Vec<String> {
    let mut errors = FieldErrors::new();
    let object = object(json!({"metadata": meta}));
    let checks = metadata_checks("", "configmaps", "");
    validate_create(&object, true, strategy("", "configmaps"), &checks, &mut errors);
    texts(&errors)
}

fn update(old: Value, new: Value) -> (Object, Vec<String>) {
    let (mut old, mut new) = (object(json!({"metadata": old})), object(json!({"metadata": new})));
    for it in [&mut old, &mut new] {
        it.metadata_mut().entry("name").or_insert("a".into());
    }
    let strategy = strategy("", "configmaps");
    let mut errors = FieldErrors::new();
    prepare_update(
        &mut new,
        &old,
        strategy,
        "",
        &crate::registry::types::hidden::NONE,
        false,
    );
    validate_update(
        &new,
        &old,
        strategy,
        &metadata_checks("", "configmaps", ""),
        &mut errors,
    );
    (new, texts(&errors))
}

#[tokio::test(start_paused = true)]
async fn b1_create_sets_uid_and_creation_time() {
    let epoch = Timestamp::from_second(1_700_000_000).unwrap();
    let entropy = Entropy::new(1, epoch);
    let mut it = object(
        json!({"metadata": {"name": "a", "uid": "x", "creationTimestamp": "y", "generation": 9,
        "deletionTimestamp": "z", "deletionGracePeriodSeconds": 5, "selfLink": "/a"}}),
    );
    begin_lifetime(&mut it, strategy("", "configmaps"), &entropy);
    assert_eq!(it.uid().len(), 36);
    let mut expected = json!({"name": "a", "creationTimestamp": "2023-11-14T22:13:20Z", "generation": 9,
        "deletionTimestamp": "z", "deletionGracePeriodSeconds": 5});
    expected["uid"] = json!(it.uid());
    assert_eq!(it["metadata"], expected);

    begin_lifetime(&mut it, strategy("networking.k8s.io", "ingresses"), &entropy);
    assert_eq!(it["metadata"]["generation"], 1);
}

#[tokio::test(start_paused = true)]
async fn b2_name_is_generated_from_the_prefix() {
    let entropy = Entropy::new(1, Timestamp::UNIX_EPOCH);
    let mut it = object(json!({"metadata": {"generateName": "abcdefghij".repeat(7)}}));
    generate_name(&mut it, &entropy);
    assert_eq!((it.name().len(), &it.name()[50..58]), (63, "abcdefgh"));

    let mut named = object(json!({"metadata": {"generateName": "a-", "name": "b"}}));
    generate_name(&mut named, &entropy);
    assert_eq!(named.name(), "b");
}

#[rstest]
#[case("", json!({"namespace": "other"}), Ok(""))]
#[case("shop", json!({}), Ok("shop"))]
#[case("shop", json!({"namespace": "shop"}), Ok("shop"))]
#[case("shop", json!({"namespace": "other"}),
    Err("the namespace of the provided object does not match the namespace sent on the request"))]
fn b4_namespace_is_taken_from_the_url(#[case] url: &str, #[case] meta: Value, #[case] expected: Result<&str, &str>) {
    let mut it = object(json!({"metadata": meta}));
    let result = fill_namespace(&mut it, url).map_err(|status| status.message);
    assert_eq!(result.map(|()| it.namespace()), expected.map_err(str::to_owned));
}

#[rstest]
#[case(json!({"name": "b"}), "the name of the object (b) does not match the name on the URL (a)")]
#[case(json!({}), "the name of the object (a based on URL) was undeterminable: name must be provided")]
fn b5_name_must_match_the_url(#[case] meta: Value, #[case] expected: &str) {
    let it = object(json!({"metadata": meta}));
    assert_eq!(check_name(&it, "a").unwrap_err().message, expected);
}

const UNQUALIFIED: &str =
    "Invalid value: \"plain\": name is neither a standard finalizer name nor is it fully qualified";

#[rstest]
#[case(json!({"finalizers": ["plain"]}), format!("metadata.finalizers[0]: {UNQUALIFIED}"))]
#[case(json!({"finalizers": ["example.com/f", "example.com/f", "orphan"]}), String::new())]
#[case(json!({"finalizers": ["orphan", "foregroundDeletion"]}),
    "metadata.finalizers: Invalid value: [\"orphan\",\"foregroundDeletion\"]: finalizer orphan and foregroundDeletion \
     cannot be both set".to_owned())]
#[case(json!({"ownerReferences": [{"apiVersion": "v1", "kind": "Secret", "name": "s"}]}),
    "metadata.ownerReferences.uid: Invalid value: \"\": must not be empty".to_owned())]
#[case(json!({"ownerReferences": [
        {"apiVersion": "v1", "kind": "Secret", "name": "s", "uid": "u1", "controller": true},
        {"apiVersion": "v1", "kind": "Secret", "name": "t", "uid": "u2", "controller": true}]}),
    "metadata.ownerReferences: Invalid value: [{\"apiVersion\":\"v1\",\"kind\":\"Secret\",\"name\":\"s\",\"uid\":\"u1\",\
     \"controller\":true},{\"apiVersion\":\"v1\",\"kind\":\"Secret\",\"name\":\"t\",\"uid\":\"u2\",\"controller\":true}]: \
     Only one reference can have Controller set to true. Found \"true\" in references for Secret/s and Secret/t"
        .to_owned())]
#[case(json!({"generation": -1}), "metadata.generation: Invalid value: -1: must be greater than or equal to 0".to_owned())]
fn b23_to_b25_metadata_is_validated_on_create(#[case] mut meta: Value, #[case] expected: String) {
    meta["name"] = json!("a");
    meta["namespace"] = json!("shop");
    assert_eq!(create(meta).join("; "), expected);
}

#[test]
fn b3_missing_name_is_refused() {
    let expected = ["metadata.name: Required value: name or generateName is required"];
    assert_eq!(create(json!({"namespace": "shop"})), expected);
}

#[test]
fn metadata_of_wrong_types_does_not_panic() {
    create(
        json!({"name": 5, "namespace": {}, "labels": ["x"], "annotations": {"a": {}}, "finalizers": {"a": 1},
        "ownerReferences": [5, {"uid": {}}], "managedFields": [null, 7], "generation": "x"}),
    );
    create(json!(null));
}

#[test]
fn b11_b12_server_managed_metadata_is_restored_on_update() {
    let old = json!({"name": "a", "uid": "u", "creationTimestamp": "c", "generation": 3, "deletionTimestamp": "d",
        "deletionGracePeriodSeconds": 0});
    let new = json!({"name": "a", "generation": 9, "creationTimestamp": "x", "deletionTimestamp": "y",
        "selfLink": "/a"});
    let (new, errors) = update(old.clone(), new);
    assert_eq!(errors, [""; 0]);
    assert_eq!(new["metadata"], old);
}

#[rstest]
#[case(json!({"deletionTimestamp": "2030-01-01T00:00:00Z"}),
    "metadata.deletionTimestamp: Invalid value: \"2030-01-01T00:00:00Z\": field is immutable")]
#[case(json!({"deletionGracePeriodSeconds": 5}),
    "metadata.deletionGracePeriodSeconds: Invalid value: 5: field is immutable")]
#[case(json!({"uid": "v"}), "metadata.uid: Invalid value: \"v\": field is immutable")]
fn b12_uid_and_deletion_fields_are_immutable(#[case] mut new: Value, #[case] expected: &str) {
    new["name"] = json!("a");
    let (_, errors) = update(json!({"name": "a", "uid": "u"}), new);
    assert_eq!(errors, [expected, expected]);
}

#[test]
fn b15_finalizers_cannot_be_added_to_a_terminating_object() {
    let old = json!({"deletionTimestamp": "d", "finalizers": ["example.com/f"]});
    let (_, errors) = update(old, json!({"finalizers": ["example.com/h", "example.com/g"]}));
    let expected = "metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted, \
                    found new finalizers []string{\"example.com/g\", \"example.com/h\"}";
    assert_eq!(errors, [expected, expected]);
}

#[test]
fn b24_duplicate_owner_references_are_dropped_with_a_warning() {
    let owner = json!({"apiVersion": "v1", "kind": "Secret", "name": "s", "uid": "u1"});
    let mut other = owner.clone();
    other["name"] = json!("other");
    let mut it = object(json!({"metadata": {"ownerReferences": [owner, owner, other]}}));
    let warning = dedupe_owner_references(&mut it, false).unwrap();
    assert!(warning.ends_with("duplicate UID(s) observed: u1"), "{warning}");
    assert_eq!(it["metadata"]["ownerReferences"], json!([owner, other]));
    assert_eq!(dedupe_owner_references(&mut it, false), None);
}

#[test]
fn b25_unqualified_finalizers_cause_warnings() {
    let old = object(json!({"metadata": {"finalizers": ["plain"]}}));
    let new = object(json!({"metadata": {"finalizers": ["plain", "other", "a.b/c", "orphan", "a.example.com"]}}));
    let warning = |name: &str, path: &str| {
        format!(
            "metadata.finalizers: \"{name}\": prefer a domain-qualified finalizer name{path} to avoid accidental \
             conflicts with other finalizer writers"
        )
    };
    let expected = [warning("a.example.com", " including a path (/)"), warning("other", "")];
    assert_eq!(finalizer_warnings(&new, Some(&old)), expected);
}

#[test]
fn b8_generation_increases_with_the_spec() {
    let ingress = strategy("networking.k8s.io", "ingresses");
    let old = object(json!({"metadata": {"generation": 2}, "spec": {"a": 1}, "status": {}}));
    let mut same = object(json!({"metadata": {"labels": {"x": "y"}}, "spec": {"a": 1}, "status": {"b": 1}}));
    prepare_update(
        &mut same,
        &old,
        ingress,
        "",
        &crate::registry::types::hidden::NONE,
        false,
    );
    assert_eq!(same["metadata"]["generation"], 2);
    let mut changed = object(json!({"spec": {"a": 2}}));
    prepare_update(
        &mut changed,
        &old,
        ingress,
        "",
        &crate::registry::types::hidden::NONE,
        false,
    );
    assert_eq!(changed["metadata"]["generation"], 3);
}
