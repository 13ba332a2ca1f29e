//! Random JSON, and valid objects that are changed at random.

use proptest::prelude::*;
use serde_json::{Value, json};

use crate::mutation::{nth, places};

/// Keys that are fields of some kind, and other keys.
const KEYS: [&str; 24] = [
    "a",
    "b",
    "",
    "metadata",
    "spec",
    "name",
    "labels",
    "annotations",
    "containers",
    "ports",
    "data",
    "$patch",
    "$retainKeys",
    "$setElementOrder/containers",
    "$deleteFromPrimitiveList/finalizers",
    "finalizers",
    "status",
    "managedFields",
    "f:a",
    "k:{\"name\":\"c\"}",
    "resources",
    "limits",
    "template",
    "é\u{0}",
];

fn scalar() -> impl Strategy<Value = Value> {
    prop_oneof![
        3 => prop::sample::select(vec![
            json!(null), json!(true), json!(0), json!(-1), json!(1.5), json!(i64::MAX), json!(u64::MAX), json!(1e300),
            json!(""), json!("a"), json!("delete"), json!("replace"), json!("merge"), json!("c"), json!("100m"),
            json!("2020-01-01T00:00:00Z"), json!("\u{1f980}"),
        ]),
        1 => any::<i64>().prop_map(Value::from),
        1 => "[ -~]{0,12}".prop_map(Value::from),
    ]
}

/// Generates random JSON of limited depth.
pub(crate) fn value() -> impl Strategy<Value = Value> {
    scalar().prop_recursive(5, 40, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            prop::collection::vec((prop::sample::select(&KEYS[..]), inner), 0..6)
                .prop_map(|entries| Value::Object(entries.into_iter().map(|(k, v)| (k.to_owned(), v)).collect())),
        ]
    })
}

/// Returns an object with some values replaced.
pub(crate) fn changed(mut object: Value, changes: &[(u16, Value)]) -> Value {
    for (at, value) in changes {
        let count = places(&object);
        let mut left = usize::from(*at) % count;
        if let Some(place) = nth(&mut object, &mut left) {
            *place = value.clone();
        }
    }
    object
}

/// Returns collections, each with an object; together the objects have all kinds of lists.
pub(crate) fn objects() -> Vec<(&'static str, Value)> {
    let template = json!({"metadata": {"labels": {"app": "a"}}, "spec": {"containers": [
        {"name": "c", "image": "i", "ports": [{"containerPort": 80, "protocol": "TCP"}],
            "env": [{"name": "A", "value": "b"}], "resources": {"limits": {"cpu": "1"}}}]}});
    vec![
        (
            "/api/v1/namespaces/default/configmaps",
            json!({"apiVersion": "v1", "kind": "ConfigMap",
                "metadata": {"name": "a", "labels": {"a": "b"}, "finalizers": ["a.b/c", "a.b/d"]}, "data": {"k": "v"}}),
        ),
        (
            "/apis/apps/v1/namespaces/default/deployments",
            json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "a"},
                "spec": {"selector": {"matchLabels": {"app": "a"}}, "template": template}}),
        ),
        (
            "/api/v1/namespaces/default/services",
            json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a"},
                "spec": {"selector": {"app": "a"}, "ports": [{"name": "a", "port": 80}, {"name": "b", "port": 81}]}}),
        ),
    ]
}
