//! Creation of objects of each kind, compared with recorded responses of kube-apiserver.

use jiff::Timestamp;
use rstest::rstest;

use super::metadata;
use super::metadata_checks::metadata_checks;
use super::strategy::Context;
use crate::api::field::FieldErrors;
use crate::api::json::{Map, Value, json};
use crate::api::object::Object;
use crate::entropy::Entropy;
use crate::registry::cel::IS_EVALUATED;
use crate::registry::scheme::builtins::strategy;

const CASES: &str = include_str!("../../../tests/data/created_kinds.json");

/// Creates an object. Returns the stored object, or the validation errors.
fn create(case: &Value) -> Result<Object, String> {
    let entropy = Entropy::new(1, Timestamp::UNIX_EPOCH);
    let context = Context {
        entropy: &entropy,
        stored: &|_, _| Vec::new(),
        subresource: "",
        user: None,
        dry_run: false,
        hidden: &crate::registry::types::hidden::NONE,
        plugins: crate::registry::types::plugins::PluginSet::default(),
    };
    let field = |name: &str| case[name].as_str().unwrap_or_default();
    let (strategy, namespace) = (strategy(field("group"), field("resource")), field("namespace"));
    let mut object = Object(case["body"].as_object().cloned().unwrap_or_default());
    let mut errors = FieldErrors::new();
    let served = object.api_version().to_owned();
    strategy.default(&mut object);
    let stored = strategy.facts().stored_api_version.unwrap_or(&served);
    strategy.convert(&mut object, stored);
    metadata::fill_namespace(&mut object, namespace).map_err(|status| status.message)?;
    strategy.admit(&mut object, None, &context)?;
    metadata::begin_lifetime(&mut object, strategy, &entropy);
    if !strategy.facts().keeps_status_on_create {
        object.remove("status");
    }
    assert_eq!(strategy.allocate(&mut object, None, &mut errors, &context), Ok(()));
    if errors.is_empty() {
        strategy.prepare_for_create(&mut object, &context);
        let checks = metadata_checks(field("group"), field("resource"), "");
        metadata::validate_create(&object, !namespace.is_empty(), strategy, &checks, &mut errors);
        strategy.validate(&object, &mut errors);
    }
    let mut texts: Vec<String> = Vec::new();
    for error in errors.iter().map(ToString::to_string) {
        if !texts.contains(&error) {
            texts.push(error);
        }
    }
    strategy.convert(&mut object, &served);
    match texts.len() {
        0 => Ok(object),
        1 => Err(texts.remove(0)),
        _ => Err(format!("[{}]", texts.join(", "))),
    }
}

/// Returns `true` if `found` equals `expected`, except for masked values and for zero values that encoding adds.
fn agree(found: Option<&Value>, expected: &Value) -> bool {
    match (found, expected) {
        (_, Value::String(text)) if text.starts_with('<') => true,
        (Some(Value::Object(found)), Value::Object(expected)) => {
            let all = expected.iter().all(|(key, value)| agree(found.get(key), value));
            all && found
                .iter()
                .all(|(key, value)| expected.contains_key(key) || is_zero(value))
        }
        (Some(Value::Array(found)), Value::Array(expected)) => {
            found.len() == expected.len() && found.iter().zip(expected).all(|(a, b)| agree(Some(a), b))
        }
        (Some(found), expected) => found == expected || (is_zero(found) && is_zero(expected)),
        (None, expected) => is_zero(expected),
    }
}

fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Object(fields) => fields.values().all(is_zero),
        Value::Array(items) => items.is_empty(),
        other => *other == json!(0) || *other == json!(""),
    }
}

#[tokio::test(start_paused = true)]
async fn created_objects_equal_objects_recorded_from_kube_apiserver() {
    let cases: Vec<Value> = serde_json::from_str(CASES).unwrap();
    let mut wrong = Vec::new();
    // Without CEL, expressions are refused.
    let can_be_created = |case: &&Value| IS_EVALUATED || case["resource"] != "validatingadmissionpolicies";
    for case in cases.iter().filter(can_be_created) {
        let result = create(case);
        let name = format!("{} {} {}", case["from"], case["resource"], case["body"]);
        match (&result, case.get("created"), case.get("invalid")) {
            (Ok(object), Some(expected), _) => {
                let mut rest: Map = object.0.clone();
                rest.retain(|key, _| !matches!(key.as_str(), "kind" | "apiVersion" | "metadata" | "status"));
                let rest = Value::Object(rest);
                if !agree(Some(&rest), expected) {
                    wrong.push(format!("{name}\n  found    {rest}\n  expected {expected}"));
                }
            }
            (Err(found), _, Some(expected)) if expected == found => {}
            (found, created, invalid) => wrong.push(format!(
                "{name}\n  found    {found:?}\n  expected {created:?} {invalid:?}"
            )),
        }
    }
    assert!(
        wrong.is_empty(),
        "{} answers differ:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

/// Returns the errors of an update of one object to another.
fn update(group: &str, resource: &str, subresource: &str, old: &Value, new: &Value) -> Vec<String> {
    let entropy = Entropy::new(1, Timestamp::UNIX_EPOCH);
    let context = Context {
        entropy: &entropy,
        stored: &|_, _| Vec::new(),
        subresource,
        user: None,
        dry_run: false,
        hidden: &crate::registry::types::hidden::NONE,
        plugins: crate::registry::types::plugins::PluginSet::default(),
    };
    let strategy = strategy(group, resource);
    let [mut old, mut new] = [old, new].map(|it| Object(it.as_object().cloned().unwrap_or_default()));
    strategy.default(&mut old);
    strategy.default(&mut new);
    let mut errors = FieldErrors::new();
    assert_eq!(strategy.allocate(&mut new, Some(&old), &mut errors, &context), Ok(()));
    strategy.prepare_for_update(&mut new, &old, &context);
    strategy.validate_update(&new, &old, &mut errors, &context);
    errors.iter().map(ToString::to_string).collect()
}

#[rstest]
#[case("", "configmaps", json!({"immutable": true, "data": {"a": "b"}}), json!({"data": {"a": "c"}}),
    &["immutable: Forbidden: field is immutable when `immutable` is set",
        "data: Forbidden: field is immutable when `immutable` is set"])]
#[case("", "configmaps", json!({"immutable": true}), json!({"immutable": true, "data": {}}), &[])]
#[case("", "secrets", json!({}), json!({"type": "a/b"}), &["type: Invalid value: \"a/b\": field is immutable"])]
#[case("discovery.k8s.io", "endpointslices", json!({"addressType": "IPv4"}), json!({"addressType": "IPv6"}),
    &["addressType: Invalid value: \"IPv6\": field is immutable"])]
#[case("storage.k8s.io", "storageclasses", json!({"provisioner": "a"}), json!({"provisioner": "b",
    "reclaimPolicy": "Retain"}), &["provisioner: Invalid value: \"b\": field is immutable",
    "reclaimPolicy: Invalid value: \"Retain\": field is immutable"])]
#[case("scheduling.k8s.io", "priorityclasses", json!({"value": 1}), json!({"value": 2}),
    &["value: Forbidden: may not be changed in an update."])]
#[case("node.k8s.io", "runtimeclasses", json!({"handler": "a"}), json!({"handler": "b"}),
    &["handler: Invalid value: \"b\": field is immutable"])]
#[case("rbac.authorization.k8s.io", "rolebindings", json!({"roleRef": {"kind": "Role", "name": "a"}}),
    json!({"roleRef": {"kind": "Role", "name": "b"}}), &["roleRef: Invalid value: {\"APIGroup\":\
    \"rbac.authorization.k8s.io\",\"Kind\":\"Role\",\"Name\":\"b\"}: cannot change roleRef"])]
#[case("", "nodes", json!({"spec": {"podCIDR": "10.0.0.0/24"}}), json!({"spec": {"podCIDR": "10.0.1.0/24",
    "taints": [{"key": "a", "effect": "Odd"}]}}), &[
        "metadata.taints[0].effect: Unsupported value: \"Odd\": supported values: \"NoSchedule\", \
         \"PreferNoSchedule\", \"NoExecute\"",
        "spec.podCIDRs: Forbidden: node updates may not change podCIDR except from \"\" to valid",
        "metadata.taints[0].effect: Unsupported value: \"Odd\": supported values: \"NoSchedule\", \
         \"PreferNoSchedule\", \"NoExecute\""])]
#[case("", "resourcequotas", json!({"spec": {"scopes": ["BestEffort"]}}), json!({"spec": {}}),
    &["spec.scopes: Invalid value: null: field is immutable"])]
#[tokio::test(start_paused = true)]
async fn c8_changes_of_immutable_fields_are_errors(
    #[case] group: &str,
    #[case] resource: &str,
    #[case] old: Value,
    #[case] new: Value,
    #[case] expected: &[&str],
) {
    assert_eq!(update(group, resource, "", &old, &new), expected);
}

#[rstest]
#[case(json!({}), "Terminating", &["status.Phase: Invalid value: \"Terminating\": may only be 'Active' if \
    `deletionTimestamp` is empty"])]
#[case(json!({"deletionTimestamp": "x"}), "Terminating", &[])]
#[tokio::test(start_paused = true)]
async fn r4_only_namespaces_with_a_deletion_timestamp_may_be_terminating(
    #[case] meta: Value,
    #[case] phase: &str,
    #[case] expected: &[&str],
) {
    let (old, new) = (
        json!({"metadata": meta}),
        json!({"metadata": meta, "status": {"phase": phase}}),
    );
    assert_eq!(update("", "namespaces", "status", &old, &new), expected);
}

#[test]
fn f7_f8_field_selectors_match_event_and_node_fields() {
    let event = json!({"involvedObject": {"kind": "Pod"}, "reportingComponent": "c", "type": "Normal"});
    let event = Object(event.as_object().cloned().unwrap_or_default());
    for (group, kind, reporter) in [
        ("", "involvedObject.kind", "source"),
        ("events.k8s.io", "regarding.kind", "reportingController"),
    ] {
        let values = strategy(group, "events").selectable_fields(&event);
        let value = |label: &str| {
            values
                .iter()
                .find(|(it, _)| *it == label)
                .map(|(_, value)| value.as_str())
        };
        assert_eq!((value(kind), value(reporter)), (Some("Pod"), Some("c")), "{group}");
    }
    let node = strategy("", "nodes").selectable_fields(&Object::default());
    assert_eq!(node, [("spec.unschedulable".into(), "false".to_owned())]);
}

#[test]
fn every_supported_field_label_has_a_value() {
    for (group, resource) in [
        ("", "namespaces"),
        ("", "nodes"),
        ("", "secrets"),
        ("", "services"),
        ("", "events"),
        ("events.k8s.io", "events"),
        ("certificates.k8s.io", "certificatesigningrequests"),
        ("certificates.k8s.io", "podcertificaterequests"),
        ("resource.k8s.io", "resourceslices"),
    ] {
        let strategy = strategy(group, resource);
        let labels = strategy.facts().fields.own();
        assert!(!labels.is_empty(), "{resource} has no field labels");
        let values = strategy.selectable_fields(&Object::default());
        let found: Vec<&str> = values.iter().map(|(label, _)| label.as_ref()).collect();
        if resource == "events" {
            // Events have values for the labels of both groups.
            assert!(labels.iter().all(|it| found.contains(it)), "{group}");
        } else {
            assert_eq!(found, labels, "{resource}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn values_of_wrong_types_do_not_panic() {
    let odd = [
        json!(null),
        json!(5),
        json!("x"),
        json!([]),
        json!([5, {}, [], null]),
        json!({}),
        json!({"a": {"b": [1]}}),
    ];
    let cases: Vec<Value> = serde_json::from_str(CASES).unwrap();
    for case in &cases {
        // Replaces every value in every body with each of the unusual values.
        for path in paths(&case["body"], "") {
            for value in &odd {
                let mut case = case.clone();
                if let Some(slot) = case["body"].pointer_mut(&path) {
                    *slot = value.clone();
                }
                let _ = create(&case);
                let (group, resource) = (&case["group"], &case["resource"]);
                let (group, resource) = (group.as_str().unwrap(), resource.as_str().unwrap());
                let clean = &cases[0]["body"];
                update(group, resource, "", clean, &case["body"]);
                update(group, resource, "status", &case["body"], clean);
            }
        }
    }
}

/// Returns the JSON pointers of all values within `value`.
fn paths(value: &Value, prefix: &str) -> Vec<String> {
    let children: Vec<(String, &Value)> = match value {
        Value::Object(fields) => fields
            .iter()
            .map(|(key, it)| (key.replace('~', "~0").replace('/', "~1"), it))
            .collect(),
        Value::Array(items) => items
            .iter()
            .enumerate()
            .map(|(index, it)| (index.to_string(), it))
            .collect(),
        _ => Vec::new(),
    };
    let mut all = Vec::new();
    for (key, child) in children {
        let path = format!("{prefix}/{key}");
        all.extend(paths(child, &path));
        all.push(path);
    }
    all
}

#[test]
fn r7_events_of_both_groups_are_converted() {
    let core = json!({"apiVersion": "v1", "kind": "Event", "involvedObject": {"kind": "Pod", "name": "p"}, "reason": "R",
        "message": "m", "type": "Normal", "source": {"component": "c"}, "firstTimestamp": "t", "count": 1,
        "eventTime": null, "reportingComponent": "", "reportingInstance": ""});
    let mut event = Object(core.as_object().cloned().unwrap_or_default());
    let strategy = strategy("events.k8s.io", "events");
    assert_eq!(
        (strategy.facts().stored_as, strategy.facts().stored_api_version),
        (Some(("", "events")), Some("v1"))
    );
    strategy.convert(&mut event, "events.k8s.io/v1");
    let expected = json!({"apiVersion": "events.k8s.io/v1", "kind": "Event", "regarding": {"kind": "Pod", "name": "p"},
        "eventTime": null, "reason": "R", "note": "m", "type": "Normal", "deprecatedSource": {"component": "c"},
        "deprecatedFirstTimestamp": "t", "deprecatedCount": 1});
    assert_eq!(Value::Object(event.0.clone()), expected);
    strategy.convert(&mut event, "v1");
    assert!(agree(Some(&Value::Object(event.0)), &core));
}

/// `v1alpha3` and `v1beta1` have the same form, except for capacities.
#[test]
fn capacities_are_converted_between_v1alpha3_and_v1beta1() {
    let slice = |version: &str, capacity: Value| {
        let device = json!({"name": "d", "basic": {"capacity": {"m": capacity}}});
        json!({"apiVersion": format!("resource.k8s.io/{version}"), "spec": {"devices": [device]}})
    };
    let (alpha, beta) = (
        slice("v1alpha3", json!("1Gi")),
        slice("v1beta1", json!({"value": "1Gi"})),
    );
    let strategy = strategy("resource.k8s.io", "resourceslices");
    let mut object = Object(alpha.as_object().cloned().unwrap_or_default());
    strategy.convert(&mut object, "resource.k8s.io/v1beta1");
    assert_eq!(Value::Object(object.0.clone()), beta);
    strategy.convert(&mut object, "resource.k8s.io/v1alpha3");
    assert_eq!(Value::Object(object.0), alpha);
}
