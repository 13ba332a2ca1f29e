//! Converts CustomResourceDefinitions of `apiextensions.k8s.io/v1beta1` to v1. Kubernetes no longer serves v1beta1, but
//! the manifests of old operators use it.

use serde_json::{Map, Value, json};

/// Version of the definitions that are converted.
const OLD: &str = "apiextensions.k8s.io/v1beta1";

/// The schema field that makes the server keep undeclared fields.
const PRESERVE: &str = "x-kubernetes-preserve-unknown-fields";

/// Schema field for the type of a list: `atomic`, `set` or `map`.
const LIST_TYPE: &str = "x-kubernetes-list-type";
/// Schema field for the keys of a list that is treated as a map.
const LIST_KEYS: &str = "x-kubernetes-list-map-keys";

/// Fields that occur once per definition in v1beta1, and in each version in v1.
const PER_VERSION: [&str; 2] = ["subresources", "additionalPrinterColumns"];

/// Converts a definition from v1beta1; does not change other objects. In v1beta1, unknown fields are kept unless the
/// definition sets `preserveUnknownFields: false`. The converted definition keeps them as well, at every level.
pub(crate) fn as_v1(mut object: Value) -> Value {
    if object["apiVersion"] != OLD || object["kind"] != "CustomResourceDefinition" {
        return object;
    }
    object["apiVersion"] = "apiextensions.k8s.io/v1".into();
    let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) else {
        return object;
    };
    let preserves = spec.remove("preserveUnknownFields") != Some(json!(false));
    let schema = spec.remove("validation").unwrap_or_default()["openAPIV3Schema"].take();
    let version = spec.remove("version");
    let versions = spec.entry("versions").or_insert_with(|| json!([]));
    if versions.as_array().is_none_or(Vec::is_empty) {
        *versions = json!([{"name": version, "served": true, "storage": true}]);
    }
    let shared: Vec<(&str, Value)> = PER_VERSION
        .into_iter()
        .filter_map(|field| Some((field, spec.remove(field)?)))
        .collect();
    let versions = spec.get_mut("versions").and_then(Value::as_array_mut);
    for version in versions.into_iter().flatten().filter_map(Value::as_object_mut) {
        for (field, value) in &shared {
            version.entry(*field).or_insert_with(|| value.clone());
        }
        let columns = version
            .get_mut("additionalPrinterColumns")
            .and_then(Value::as_array_mut);
        for column in columns.into_iter().flatten().filter_map(Value::as_object_mut) {
            if let Some(path) = column.remove("JSONPath") {
                column.insert("jsonPath".to_owned(), path);
            }
        }
        let own = version
            .entry("schema")
            .or_insert_with(|| json!({"openAPIV3Schema": schema}));
        let schema = &mut own["openAPIV3Schema"];
        if !schema.is_object() {
            *schema = json!({});
        }
        if let Some(schema) = schema.as_object_mut() {
            schema.entry("type").or_insert_with(|| "object".into());
            // The server itself defines these fields, so only their types are kept.
            for field in ["apiVersion", "kind", "metadata"] {
                if let Some(known) = schema.get_mut("properties").and_then(|it| it.get_mut(field)) {
                    *known = json!({"type": if field == "metadata" { "object" } else { "string" }});
                }
            }
            structural(schema, preserves || schema.len() == 1);
        }
    }
    convert_webhook(spec);
    object
}

/// Adds the types that v1 requires, removes list keys that v1 refuses, and permits unknown fields in objects if
/// `preserves` is set.
fn structural(schema: &mut Map<String, Value>, preserves: bool) {
    let has_fields = schema.contains_key("properties") || schema.contains_key("additionalProperties");
    if has_fields && !schema.contains_key("type") {
        schema.insert("type".to_owned(), "object".into());
    }
    let is_object = schema.get("type").is_some_and(|it| it == "object");
    if preserves && is_object && !schema.contains_key("additionalProperties") {
        schema.insert(PRESERVE.to_owned(), true.into());
    }
    if has_optional_key(schema) {
        for field in [LIST_TYPE, LIST_KEYS] {
            schema.remove(field);
        }
    }
    let fields = schema.get_mut("properties").and_then(Value::as_object_mut);
    for (name, field) in fields.into_iter().flatten() {
        // The server itself defines the metadata at the top level.
        if let Some(field) = field.as_object_mut().filter(|_| name != "metadata") {
            structural(field, preserves);
        }
    }
    for name in ["items", "additionalProperties"] {
        if let Some(inner) = schema.get_mut(name).and_then(Value::as_object_mut) {
            structural(inner, preserves);
        }
    }
}

/// Returns `true` if a key field of a list's items is optional and has no default, which v1 refuses.
fn has_optional_key(schema: &Map<String, Value>) -> bool {
    let items = schema.get("items").unwrap_or(&Value::Null);
    let required = items["required"].as_array();
    let keys = schema.get(LIST_KEYS).and_then(Value::as_array);
    let is_optional = |key: &Value| {
        let property = key.as_str().map(|it| &items["properties"][it]);
        let has_default = property.is_some_and(|it| it.get("default").is_some());
        !has_default && !required.is_some_and(|it| it.contains(key))
    };
    keys.is_some_and(|it| it.iter().any(is_optional))
}

/// Moves the settings of the conversion webhook to the fields that v1 uses.
fn convert_webhook(spec: &mut Map<String, Value>) {
    let Some(conversion) = spec.get_mut("conversion").and_then(Value::as_object_mut) else {
        return;
    };
    let versions = conversion.remove("conversionReviewVersions");
    if let Some(client) = conversion.remove("webhookClientConfig") {
        let versions = versions.unwrap_or_else(|| json!(["v1beta1"]));
        let webhook = json!({"clientConfig": client, "conversionReviewVersions": versions});
        conversion.insert("webhook".to_owned(), webhook);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn definition(spec: Value) -> Value {
        json!({"apiVersion": OLD, "kind": "CustomResourceDefinition", "metadata": {"name": "a.b"}, "spec": spec})
    }

    #[rstest::rstest]
    #[case::without_a_schema(
        json!({"version": "v1"}),
        json!([{"name": "v1", "served": true, "storage": true,
            "schema": {"openAPIV3Schema": {"type": "object", PRESERVE: true}}}]),
    )]
    #[case::schema_and_columns_of_all_versions(
        json!({
            "versions": [{"name": "v1", "served": true, "storage": true}],
            "additionalPrinterColumns": [{"name": "Age", "type": "date", "JSONPath": ".metadata.creationTimestamp"}],
            "subresources": {"status": {}},
            "validation": {"openAPIV3Schema": {"properties": {"spec": {"properties": {"size": {"type": "integer"}}}}}},
        }),
        json!([{"name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
            "additionalPrinterColumns": [{"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}],
            "schema": {"openAPIV3Schema": {"type": "object", PRESERVE: true, "properties": {
                "spec": {"type": "object", PRESERVE: true, "properties": {"size": {"type": "integer"}}}}}}}]),
    )]
    #[case::pruned_fields(
        json!({
            "version": "v1", "preserveUnknownFields": false,
            "validation": {"openAPIV3Schema": {"type": "object", "properties": {"a": {"type": "string"}}}},
        }),
        json!([{"name": "v1", "served": true, "storage": true,
            "schema": {"openAPIV3Schema": {"type": "object", "properties": {"a": {"type": "string"}}}}}]),
    )]
    #[case::list_with_an_optional_key(
        json!({"version": "v1", "preserveUnknownFields": false, "validation": {"openAPIV3Schema": {"properties": {
            "ports": {"type": "array", LIST_TYPE: "map", LIST_KEYS: ["port", "protocol"],
                "items": {"type": "object", "required": ["port"]}},
            "names": {"type": "array", LIST_TYPE: "map", LIST_KEYS: ["name"],
                "items": {"type": "object", "required": ["name"]}}}}}}),
        json!([{"name": "v1", "served": true, "storage": true,
            "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                "ports": {"type": "array", "items": {"type": "object", "required": ["port"]}},
                "names": {"type": "array", LIST_TYPE: "map", LIST_KEYS: ["name"],
                    "items": {"type": "object", "required": ["name"]}}}}}}]),
    )]
    fn v1beta1_crds_are_converted_to_v1(#[case] spec: Value, #[case] versions: Value) {
        let converted = as_v1(definition(spec));
        assert_eq!(converted["apiVersion"], "apiextensions.k8s.io/v1");
        assert_eq!(converted["spec"], json!({"versions": versions}));
    }

    #[test]
    fn v1_crds_are_unchanged() {
        let mut definition = definition(json!({"version": "v1"}));
        definition["apiVersion"] = "apiextensions.k8s.io/v1".into();
        assert_eq!(as_v1(definition.clone()), definition);
    }
}
