//! Ownership by create, update and patch, as recorded from kube-apiserver.

use rstest::rstest;

use super::{Manager, Types, restore_times, single_version, track_update};
use crate::api::json::{Value, json};
use crate::api::object::Object;
use crate::registry::types::schema::SchemaRef;

const TYPES: Types<'static, 'static> = Types {
    schema: SchemaRef::Deduced,
    other: &single_version,
};

fn object(value: Value) -> Object {
    match value {
        Value::Object(map) => Object(map),
        _ => Object::default(),
    }
}

fn manager<'a>(name: &'a str, time: &'a str) -> Manager<'a> {
    Manager {
        name,
        api_version: "v1",
        subresource: "",
        time,
        reset: &[],
    }
}

/// Replaces `live` with `body` as the manager `name`, with `second` as the seconds of the time. The result has the uid
/// of a stored object.
fn write(live: Option<&Object>, body: Value, name: &str, second: usize) -> Object {
    let mut new = object(body);
    let time = format!("2026-01-01T00:00:{second:02}Z");
    track_update(&TYPES, live, &mut new, &manager(name, &time));
    new.metadata_mut().insert("uid".into(), "u".into());
    new
}

fn config_map(data: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "n"}, "data": data})
}

/// Returns the manager and `fieldsV1` of each entry.
fn owners(object: &Object) -> Vec<(String, Value)> {
    let list = object.metadata().and_then(|it| it.get("managedFields")).cloned();
    let list = list.and_then(|it| it.as_array().cloned()).unwrap_or_default();
    list.iter()
        .map(|it| {
            (
                it["manager"].as_str().unwrap_or_default().to_owned(),
                it["fieldsV1"].clone(),
            )
        })
        .collect()
}

fn owned(name: &str, fields: Value) -> (String, Value) {
    (name.to_owned(), fields)
}

#[test]
fn h6_managed_fields_entry_has_all_fields() {
    let made = write(None, config_map(json!({"k": "v"})), "one", 1);
    let entry = json!([{
        "manager": "one", "operation": "Update", "apiVersion": "v1", "time": "2026-01-01T00:00:01Z",
        "fieldsType": "FieldsV1", "fieldsV1": {"f:data": {".": {}, "f:k": {}}}
    }]);
    assert_eq!(made.0["metadata"]["managedFields"], entry);
}

#[test]
fn h9_identity_and_server_fields_are_not_owned() {
    let body = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {
        "name": "a", "namespace": "n", "generateName": "g-", "labels": {"x": "y"}, "annotations": {"a": "b"},
        "creationTimestamp": "2026-01-01T00:00:00Z", "generation": 1, "resourceVersion": "1", "selfLink": "/"}});
    let made = write(None, body, "one", 1);
    let fields = json!({"f:metadata": {
        "f:annotations": {".": {}, "f:a": {}}, "f:generateName": {}, "f:labels": {".": {}, "f:x": {}}}});
    assert_eq!(owners(&made), [owned("one", fields)]);
}

#[test]
fn h17_object_without_fields_has_no_managed_fields() {
    let made = write(
        None,
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}),
        "one",
        1,
    );
    assert_eq!(owners(&made), []);
}

#[test]
fn h17_updater_owns_the_fields_that_it_changes() {
    let made = write(None, config_map(json!({"k": "v", "l": "v"})), "one", 1);
    let changed = write(Some(&made), config_map(json!({"k": "w", "l": "v", "m": "v"})), "two", 2);
    assert_eq!(
        owners(&changed),
        [
            owned("one", json!({"f:data": {".": {}, "f:l": {}}})),
            owned("two", json!({"f:data": {"f:k": {}, "f:m": {}}})),
        ]
    );
    let last = write(Some(&changed), config_map(json!({"m": "v"})), "two", 3);
    assert_eq!(
        owners(&last),
        [
            owned("one", json!({"f:data": {}})),
            owned("two", json!({"f:data": {"f:m": {}}}))
        ]
    );
}

#[test]
fn h17_entries_without_fields_are_removed() {
    let made = write(None, config_map(json!({"k": "v"})), "one", 1);
    let changed = write(Some(&made), config_map(json!({"k": "w"})), "two", 2);
    let body = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "n"}});
    assert_eq!(owners(&write(Some(&changed), body, "two", 3)), []);
}

#[rstest]
#[case::absent(None)]
#[case::null(Some(Value::Null))]
#[case::not_a_list(Some(json!("x")))]
#[case::invalid_entry(Some(json!([{"manager": "x", "operation": "Steal", "apiVersion": "v1"}])))]
#[case::invalid_fields(Some(json!([{"manager": "x", "operation": "Apply", "apiVersion": "v1", "fieldsType": "FieldsV1",
    "fieldsV1": {"nothing": {}}}])))]
fn h16_invalid_managed_fields_in_a_write_are_ignored(#[case] sent: Option<Value>) {
    let made = write(None, config_map(json!({"k": "v"})), "one", 1);
    let mut body = config_map(json!({"k": "v"}));
    if let Some(sent) = sent {
        body["metadata"]["managedFields"] = sent;
    }
    let kept = write(Some(&made), body, "two", 2);
    assert_eq!(kept, made);
}

#[rstest]
#[case(json!([]))]
#[case(json!([{}]))]
fn h16_clearing_managed_fields_ends_tracking(#[case] sent: Value) {
    let made = write(None, config_map(json!({"k": "v"})), "one", 1);
    let mut body = config_map(json!({"k": "v"}));
    body["metadata"]["managedFields"] = sent;
    let reset = write(Some(&made), body, "two", 2);
    assert_eq!(owners(&reset), []);
    assert!(
        !reset.0["metadata"]
            .as_object()
            .is_some_and(|it| it.contains_key("managedFields"))
    );
    let later = write(Some(&reset), config_map(json!({"k": "w"})), "two", 3);
    assert_eq!(owners(&later), []);
}

#[test]
fn h16_managed_fields_in_a_write_replace_the_stored_entries() {
    let made = write(None, config_map(json!({"k": "v", "l": "v"})), "one", 1);
    let mut body = config_map(json!({"k": "v", "l": "v"}));
    body["metadata"]["managedFields"] = json!([{"manager": "other", "operation": "Apply", "apiVersion": "v1",
        "fieldsType": "FieldsV1", "time": "2020-01-01T01:00:00+01:00", "fieldsV1": {"f:data": {"f:k": {}}}}]);
    let edited = write(Some(&made), body, "two", 2);
    assert_eq!(
        edited.0["metadata"]["managedFields"],
        json!([{"manager": "other", "operation": "Apply", "apiVersion": "v1", "fieldsType": "FieldsV1",
            "time": "2020-01-01T00:00:00Z", "fieldsV1": {"f:data": {"f:k": {}}}}])
    );
}

#[test]
fn b7_write_without_changes_keeps_the_managed_fields() {
    let made = write(None, config_map(json!({"k": "v"})), "one", 1);
    assert_eq!(write(Some(&made), config_map(json!({"k": "v"})), "one", 2), made);
    assert_eq!(write(Some(&made), config_map(json!({"k": "v"})), "two", 2), made);
}

#[test]
fn h8_oldest_updaters_are_merged_if_there_are_more_than_ten() {
    let data = |n: usize| {
        let entries = (0..=n).map(|i| (format!("k{i:02}"), json!("v")));
        Value::Object(entries.collect())
    };
    let mut live = write(None, config_map(data(0)), "m00", 0);
    for n in 1..=11 {
        live = write(Some(&live), config_map(data(n)), &format!("m{n:02}"), n);
    }
    let owners = owners(&live);
    let names: Vec<&str> = owners.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(
        names,
        [
            "ancient-changes",
            "m03",
            "m04",
            "m05",
            "m06",
            "m07",
            "m08",
            "m09",
            "m10",
            "m11"
        ]
    );
    assert_eq!(
        owners[0].1,
        json!({"f:data": {".": {}, "f:k00": {}, "f:k01": {}, "f:k02": {}}})
    );
    assert_eq!(live.0["metadata"]["managedFields"][0]["time"], "2026-01-01T00:00:02Z");
}

#[test]
fn h8_entries_are_sorted_by_time() {
    let made = write(None, config_map(json!({"k": "v"})), "zzz", 1);
    let second = write(Some(&made), config_map(json!({"k": "v", "l": "v"})), "aaa", 2);
    let names = |it: &Object| owners(it).into_iter().map(|(name, _)| name).collect::<Vec<_>>();
    assert_eq!(names(&second), ["zzz", "aaa"]);
    let third = write(
        Some(&second),
        config_map(json!({"k": "v", "l": "v", "m": "v"})),
        "zzz",
        3,
    );
    assert_eq!(names(&third), ["aaa", "zzz"]);
}

#[test]
fn h10_reset_fields_are_not_owned() {
    let body = json!({"apiVersion": "v1", "kind": "W", "metadata": {"name": "a", "labels": {"l": "v"}},
        "spec": {"a": 1}, "status": {"n": 1}});
    let mut main = object(body.clone());
    let reset: &[&[&str]] = &[&["status"]];
    track_update(
        &TYPES,
        None,
        &mut main,
        &Manager {
            reset,
            ..manager("one", "t")
        },
    );
    let fields = json!({"f:metadata": {"f:labels": {".": {}, "f:l": {}}}, "f:spec": {".": {}, "f:a": {}}});
    assert_eq!(owners(&main), [owned("one", fields)]);

    let mut status = object(body);
    let reset: &[&[&str]] = &[&["spec"], &["metadata", "labels"]];
    let through = Manager {
        reset,
        subresource: "status",
        ..manager("one", "t")
    };
    track_update(&TYPES, None, &mut status, &through);
    assert_eq!(
        owners(&status),
        [owned("one", json!({"f:status": {".": {}, "f:n": {}}}))]
    );
    assert_eq!(status.0["metadata"]["managedFields"][0]["subresource"], "status");
}

#[test]
fn b7_managed_fields_times_are_kept_if_nothing_else_changed() {
    let made = write(None, config_map(json!({"k": "v"})), "one", 1);
    let mut again = write(None, config_map(json!({"k": "v"})), "one", 9);
    again.metadata_mut().insert("resourceVersion".into(), "7".into());
    let mut changed = write(None, config_map(json!({"k": "w"})), "one", 9);
    restore_times(&made, &mut again);
    again.metadata_mut().remove("resourceVersion");
    assert_eq!(again, made);
    restore_times(&made, &mut changed);
    assert_eq!(
        changed.0["metadata"]["managedFields"][0]["time"],
        "2026-01-01T00:00:09Z"
    );
}

#[rstest]
#[case(Some("alpha"), Some("agent/1"), "alpha")]
#[case(Some(""), Some("my-operator/v1.2.3 (linux/amd64)"), "my-operator")]
#[case(None, Some("plain agent"), "plain agent")]
#[case(None, Some("/v1"), "unknown")]
#[case(None, None, "unknown")]
#[case(None, Some("tab\tbed/1"), "tabbed")]
fn h7_manager_name_comes_from_the_user_agent(
    #[case] parameter: Option<&str>,
    #[case] agent: Option<&str>,
    #[case] name: &str,
) {
    assert_eq!(super::manager_name(parameter, agent), name);
}

#[test]
fn h7_long_manager_names_are_truncated() {
    assert_eq!(super::manager_name(None, Some(&"a".repeat(140))), "a".repeat(128));
    assert_eq!(super::manager_name(None, Some(&"ä".repeat(65))), "ä".repeat(64));
}
