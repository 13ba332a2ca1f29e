//! Ownership of replicas across the scale subresource, and of lists and maps that have become atomic.

use super::{Manager, ScaleFields, Types, single_version, track_update};
use crate::api::json::{Value, json};
use crate::api::object::Object;
use crate::registry::custom::definition::CustomResource;
use crate::registry::types::schema::SchemaRef;
use crate::registry::types::schema::builtin::shape_of;

const DEPLOYMENTS: ScaleFields<'static> = ScaleFields {
    api_version: "apps/v1",
    paths: &[("apps/v1", &["spec", "replicas"])],
};

fn object(value: Value) -> Object {
    Object(value.as_object().cloned().unwrap_or_default())
}

fn entry(manager: &str, operation: &str, fields: Value) -> Value {
    json!({"manager": manager, "operation": operation, "apiVersion": "apps/v1", "time": "2026-01-01T00:00:00Z",
        "fieldsType": "FieldsV1", "fieldsV1": fields})
}

/// Writes `replicas` to a Scale with these entries as `name`.
fn write_scale(entries: Vec<Value>, replicas: u32, name: &str) -> Vec<Value> {
    let scale = |replicas: u32| {
        json!({"kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": {"name": "d", "uid": "u"},
            "spec": {"replicas": replicas}})
    };
    let mut live = object(scale(1));
    live.metadata_mut()
        .insert("managedFields".into(), Value::Array(entries));
    let mut new = object(scale(replicas));
    let types = Types {
        schema: SchemaRef::Builtin(shape_of("autoscaling", "v1", "Scale").expect("the kind is built in")),
        other: &single_version,
    };
    let manager = Manager {
        name,
        api_version: "autoscaling/v1",
        subresource: "scale",
        time: "2026-01-01T00:00:09Z",
        reset: &[],
    };
    track_update(&types, Some(&live), &mut new, &manager);
    let list = new.metadata().and_then(|it| it.get("managedFields")).cloned();
    list.and_then(|it| it.as_array().cloned()).unwrap_or_default()
}

#[test]
fn h15_scale_write_takes_over_the_replicas() {
    let parent = vec![
        entry("one", "Update", json!({"f:spec": {"f:paused": {}, "f:replicas": {}}})),
        entry("only", "Apply", json!({"f:spec": {"f:replicas": {}}})),
        entry("rest", "Apply", json!({"f:spec": {"f:paused": {}}})),
    ];
    let shown = DEPLOYMENTS.to_scale(&parent);
    let managers: Vec<&Value> = shown.iter().map(|it| &it["manager"]).collect();
    assert_eq!(managers, ["only", "one"]);
    assert_eq!(shown[0]["apiVersion"], "autoscaling/v1");

    let written = write_scale(shown, 3, "two");
    let parent = DEPLOYMENTS.to_parent(parent, &written);
    let two = json!({"manager": "two", "operation": "Update", "apiVersion": "apps/v1", "fieldsType": "FieldsV1",
        "fieldsV1": {"f:spec": {"f:replicas": {}}}, "subresource": "scale"});
    let one = entry("one", "Update", json!({"f:spec": {"f:paused": {}}}));
    let rest = entry("rest", "Apply", json!({"f:spec": {"f:paused": {}}}));
    assert_eq!(parent, [rest, two, one]);
}

#[test]
fn h15_no_op_scale_write_does_not_change_the_owner_of_the_replicas() {
    let parent = vec![entry(
        "one",
        "Apply",
        json!({"f:spec": {"f:paused": {}, "f:replicas": {}}}),
    )];
    let written = write_scale(DEPLOYMENTS.to_scale(&parent), 1, "two");
    assert_eq!(DEPLOYMENTS.to_parent(parent.clone(), &written), parent);
}

#[test]
fn h15_entries_of_unknown_versions_are_dropped() {
    let mut old = entry("one", "Apply", json!({"f:spec": {"f:replicas": {}}}));
    old["apiVersion"] = json!("apps/v1beta1");
    assert_eq!(DEPLOYMENTS.to_scale(std::slice::from_ref(&old)), Vec::<Value>::new());
    assert_eq!(DEPLOYMENTS.to_parent(vec![old], &[]), Vec::<Value>::new());
}

#[test]
fn h11_list_or_map_that_became_atomic_is_owned_as_a_whole() {
    let crd = json!({
        "status": {"conditions": [{"type": "Established", "status": "True"}]},
        "spec": {"group": "e.com", "scope": "Namespaced", "names": {"plural": "ws", "kind": "W"}, "versions": [{
            "name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object",
            "properties": {"spec": {"type": "object", "properties": {
                "list": {"type": "array", "items": {"type": "object", "properties": {"name": {"type": "string"}}}},
                "map": {"type": "object", "x-kubernetes-map-type": "atomic", "properties": {"a": {"type": "string"}}},
                "same": {"type": "object", "properties": {"a": {"type": "string"}}}
            }}}}}}]}
    });
    let custom = CustomResource::parse(&object(crd)).expect("the CRD is valid");
    let types = Types {
        schema: SchemaRef::Custom(&*custom.version("v1").expect("the version is served").schema),
        other: &single_version,
    };
    let manager = Manager {
        name: "two",
        api_version: "e.com/v1",
        subresource: "",
        time: "2026-01-01T00:00:09Z",
        reset: &[],
    };
    let mut old = entry(
        "one",
        "Apply",
        json!({"f:spec": {"f:list": {"k:{\"name\":\"x\"}": {".": {}, "f:name": {}}}, "f:map": {"f:a": {}},
            "f:same": {"f:a": {}}}}),
    );
    old["apiVersion"] = json!("e.com/v1");
    let body = json!({"apiVersion": "e.com/v1", "kind": "W", "metadata": {"name": "w", "uid": "u",
        "managedFields": [old]}, "spec": {"list": [{"name": "x"}], "map": {"a": "1"}, "same": {"a": "1"}}});
    let live = object(body);
    let mut new = live.clone();
    track_update(&types, Some(&live), &mut new, &manager);
    assert_eq!(
        new.0["metadata"]["managedFields"][0]["fieldsV1"],
        json!({"f:spec": {"f:list": {}, "f:map": {}, "f:same": {"f:a": {}}}})
    );
}
