//! Definitions of custom kinds and of their lists, as in `pkg/controller/openapi/builder` of
//! `k8s.io/apiextensions-apiserver`.

use super::{CustomSchema, META, REF, description};
use crate::api::json::{Map, Value, json};

const ABOUT_METADATA: &str = "Standard object's metadata. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata";
const PRESERVES: &str = "x-kubernetes-preserve-unknown-fields";

/// Maximum depth of nested schemas; deeper ones are not changed. Stored schemas have fewer levels.
const LEVELS: usize = 100;

/// The document that contains a definition. References have the form of v3 in both cases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dialect {
    V2,
    V3,
}

/// Returns the schemas of a custom kind and of its list.
pub(super) fn schemas(custom: &CustomSchema<'_>, name: &str, dialect: Dialect) -> [(String, Value); 2] {
    let row = custom.row;
    let extend = |schema: &mut Map, kind: &str| {
        let kind = json!([{"group": row.group, "version": row.version, "kind": kind}]);
        schema.insert("x-kubernetes-group-version-kind".into(), kind);
        if !custom.selectable.is_empty() {
            let fields = custom.selectable.iter().map(|it| json!({"fieldPath": it.label}));
            schema.insert("x-kubernetes-selectable-fields".into(), fields.collect());
        }
    };
    let mut object = object(&custom.schema.text, dialect);
    extend(&mut object, &row.kind);
    let mut list = Map::new();
    add_type_meta(
        &mut list,
        "ListMeta",
        "Standard list metadata. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#types-kinds",
    );
    list["properties"]["items"] = json!({
        "description": format!("List of {}. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md", row.resource),
        "items": {"$ref": format!("{REF}{name}")},
        "type": "array",
    });
    list.insert(
        "description".into(),
        json!(format!("{} is a list of {}", row.list_kind, row.kind)),
    );
    list.insert("required".into(), json!(["items"]));
    list.insert("type".into(), json!("object"));
    extend(&mut list, &row.list_kind);
    // The definition of the list is in the package of the kind, regardless of the list kind in the CRD.
    let package = name.rsplit_once('.').map_or("", |(package, _)| package);
    [
        (name.to_owned(), Value::Object(object)),
        (format!("{package}.{}", row.list_kind), Value::Object(list)),
    ]
}

/// Returns the schema of a custom kind without the extensions of its root.
fn object(text: &str, dialect: Dialect) -> Map {
    let mut schema = match serde_json::from_str(text) {
        Ok(Value::Object(schema)) => schema,
        _ => Map::from_iter([(PRESERVES, json!(true))]),
    };
    if dialect == Dialect::V2 && is_set(&schema, PRESERVES) {
        // Old clients would refuse unknown fields if any field was declared.
        return Map::from_iter([("type", json!("object"))]);
    }
    unfold(&mut schema, 0);
    if dialect == Dialect::V2 {
        simplify(&mut schema, 0);
    }
    embed(&mut schema, dialect, 0);
    schema.insert("type".into(), json!("object"));
    add_type_meta(&mut schema, "ObjectMeta", ABOUT_METADATA);
    schema
}

fn is_set(schema: &Map, name: &str) -> bool {
    schema.get(name) == Some(&Value::Bool(true))
}

fn remove_all(schema: &mut Map, names: &[&str]) {
    for name in names {
        schema.remove(name);
    }
}

/// Calls a function for the schemas of properties, items and additional properties.
fn for_each_child(schema: &mut Map, visit: &mut dyn FnMut(&mut Map)) {
    if let Some(Value::Object(properties)) = schema.get_mut("properties") {
        for property in properties.values_mut() {
            if let Value::Object(property) = property {
                visit(property);
            }
        }
    }
    for name in ["items", "additionalProperties"] {
        if let Some(Value::Object(child)) = schema.get_mut(name) {
            visit(child);
        }
    }
}

/// Adds the types of values with `x-kubernetes-int-or-string`, unless the schema contains them (`Unfold`).
fn unfold(schema: &mut Map, level: usize) {
    if level > LEVELS {
        return;
    }
    if is_set(schema, "x-kubernetes-int-or-string") {
        let types = json!([{"type": "integer"}, {"type": "string"}]);
        let first = schema.get("allOf").and_then(|all| all.get(0)?.get("anyOf"));
        let has_types = first == Some(&types) || schema.get("anyOf") == Some(&types);
        match (has_types, schema.contains_key("anyOf")) {
            (true, _) => {}
            (false, false) => {
                schema.insert("anyOf".into(), types);
            }
            (false, true) => {
                let mut all = vec![json!({"anyOf": types})];
                if let Some(Value::Array(more)) = schema.remove("allOf") {
                    all.extend(more);
                }
                schema.insert("allOf".into(), all.into());
            }
        }
    }
    for_each_child(schema, &mut |child| unfold(child, level + 1));
}

/// Removes the parts of a schema that v2 does not have, or that old versions of kubectl cannot read
/// (`ToStructuralOpenAPIV2`).
fn simplify(schema: &mut Map, level: usize) {
    if level > LEVELS {
        return;
    }
    remove_all(schema, &["allOf", "anyOf", "oneOf", "not"]);
    if is_set(schema, "nullable") {
        remove_all(schema, &["type", "items", "properties"]);
    }
    schema.remove("nullable");
    let preserves = is_set(schema, PRESERVES);
    if preserves {
        remove_all(schema, &["items", "properties"]);
    }
    let drops_type = match schema.get("type").and_then(Value::as_str) {
        Some("array") => !schema.contains_key("items"),
        Some("object") => preserves,
        _ => false,
    };
    if drops_type {
        schema.remove("type");
    }
    if let Some(Value::Array(mut required)) = schema.remove("required") {
        let is_nullable = |schema: &Value| schema.get("nullable") == Some(&Value::Bool(true));
        let properties = schema.get("properties");
        let property = |name: &Value| properties?.get(name.as_str()?);
        required.retain(|name| !property(name).is_some_and(is_nullable));
        if !required.is_empty() && !schema.get("additionalProperties").is_some_and(is_nullable) {
            schema.insert("required".into(), required.into());
        }
    }
    for_each_child(schema, &mut |child| simplify(child, level + 1));
}

/// Adds `apiVersion`, `kind` and `metadata` to the embedded resources within a schema. Embedded resources with unknown
/// fields do not have them in v2, because old versions of kubectl would refuse all other fields.
fn embed(schema: &mut Map, dialect: Dialect, level: usize) {
    if level > LEVELS {
        return;
    }
    for_each_child(schema, &mut |child| embed(child, dialect, level + 1));
    let is_open = dialect == Dialect::V2 && is_set(schema, PRESERVES);
    if is_open || !is_set(schema, "x-kubernetes-embedded-resource") {
        return;
    }
    add_type_meta(schema, "ObjectMeta", ABOUT_METADATA);
    schema["properties"]["apiVersion"]["description"] = json!(
        "apiVersion defines the versioned schema of this representation of an object. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#resources"
    );
    schema["properties"]["kind"]["description"] = json!(
        "kind is a string value representing the type of this object. In CamelCase. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#types-kinds"
    );
    let required = schema.entry("required").or_insert_with(|| json!([]));
    if let Value::Array(required) = required {
        for name in ["kind", "apiVersion"] {
            if !required.iter().any(|it| *it == name) {
                required.push(json!(name));
            }
        }
    }
}

/// Adds `apiVersion`, `kind` and `metadata` to a schema.
fn add_type_meta(schema: &mut Map, meta: &str, about_meta: &str) {
    let text = |field: &str| description(&format!("{META}Status"), field).unwrap_or_default();
    let properties = schema.entry("properties").or_insert_with(|| json!({}));
    if !properties.is_object() {
        *properties = json!({});
    }
    properties["apiVersion"] = json!({"description": text("apiVersion"), "type": "string"});
    properties["kind"] = json!({"description": text("kind"), "type": "string"});
    properties["metadata"] = json!({"allOf": [{"$ref": format!("{REF}{META}{meta}")}], "description": about_meta});
}

#[cfg(test)]
mod tests {
    use super::*;

    #[rstest::rstest]
    #[case::int_or_string(json!({"x-kubernetes-int-or-string": true}),
        json!({"x-kubernetes-int-or-string": true, "anyOf": [{"type": "integer"}, {"type": "string"}]}))]
    #[case::int_or_string_with_types(
        json!({"x-kubernetes-int-or-string": true, "anyOf": [{"type": "integer"}, {"type": "string"}]}),
        json!({"x-kubernetes-int-or-string": true, "anyOf": [{"type": "integer"}, {"type": "string"}]}))]
    #[case::int_or_string_with_other_alternatives(
        json!({"x-kubernetes-int-or-string": true, "anyOf": [{"minimum": 1}], "allOf": [{"maximum": 5}]}),
        json!({"x-kubernetes-int-or-string": true, "anyOf": [{"minimum": 1}],
            "allOf": [{"anyOf": [{"type": "integer"}, {"type": "string"}]}, {"maximum": 5}]}))]
    #[case::items(json!({"type": "array", "items": {"x-kubernetes-int-or-string": true}}),
        json!({"type": "array", "items": {"x-kubernetes-int-or-string": true,
            "anyOf": [{"type": "integer"}, {"type": "string"}]}}))]
    #[case::other(json!({"type": "string", "nullable": true}), json!({"type": "string", "nullable": true}))]
    fn int_or_string_is_unfolded(#[case] schema: Value, #[case] expected: Value) {
        let Value::Object(mut schema) = schema else {
            panic!("the schema is an object");
        };
        unfold(&mut schema, 0);
        assert_eq!(Value::Object(schema), expected);
    }

    #[rstest::rstest]
    #[case::int_or_string(
        json!({"x-kubernetes-int-or-string": true, "anyOf": [{"type": "integer"}, {"type": "string"}]}),
        json!({"x-kubernetes-int-or-string": true}))]
    #[case::nullable(
        json!({"type": "object", "nullable": true, "properties": {"a": {}}, "required": ["a"]}),
        json!({"required": ["a"]}))]
    #[case::nullable_map(
        json!({"type": "object", "nullable": true, "additionalProperties": {"type": "string"}}),
        json!({"additionalProperties": {"type": "string"}}))]
    #[case::nullable_property(
        json!({"type": "object", "properties": {"a": {"type": "string", "nullable": true}, "b": {"type": "string"}},
            "required": ["a", "b"]}),
        json!({"type": "object", "properties": {"a": {}, "b": {"type": "string"}}, "required": ["b"]}))]
    #[case::unknown_fields(
        json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": {"a": {}}}),
        json!({"x-kubernetes-preserve-unknown-fields": true}))]
    #[case::list_of_unknown_items(
        json!({"type": "array", "x-kubernetes-preserve-unknown-fields": true, "items": {"type": "string"}}),
        json!({"x-kubernetes-preserve-unknown-fields": true}))]
    fn n6_custom_schemas_are_simplified_for_openapi_v2(#[case] schema: Value, #[case] expected: Value) {
        let Value::Object(mut schema) = schema else {
            panic!("the schema is an object");
        };
        simplify(&mut schema, 0);
        assert_eq!(Value::Object(schema), expected);
    }
}
