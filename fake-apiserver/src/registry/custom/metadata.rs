//! Metadata of custom resources, decoded like Go's `ObjectMeta`: unknown fields are dropped, wrong types are errors,
//! and empty values are omitted (rule O18).

use crate::api::json::type_name;
use crate::api::json::{Map, Value};
use crate::registry::types::decode::canonical_seconds;
use crate::registry::types::edit::keep_entries;

/// The Go type of a field.
#[derive(Clone, Copy)]
enum Type {
    /// A string type; contains the name of the Go type.
    Text(&'static str),
    Int64,
    Bool,
    Time,
    /// Any JSON value, without type checks.
    Raw,
    TextMap,
    TextList,
    /// A list of structs: the struct's name and fields.
    Structs(&'static str, &'static [Field]),
}

struct Field {
    name: &'static str,
    kind: Type,
    /// Set if Go encodes the field even if it is unset.
    always: bool,
}

const fn field(name: &'static str, kind: Type) -> Field {
    Field {
        name,
        kind,
        always: false,
    }
}

const STRING: Type = Type::Text("string");

const OBJECT_META: &[Field] = &[
    field("name", STRING),
    field("generateName", STRING),
    field("namespace", STRING),
    field("selfLink", STRING),
    field("uid", Type::Text("types.UID")),
    field("resourceVersion", STRING),
    field("generation", Type::Int64),
    field("creationTimestamp", Type::Time),
    field("deletionTimestamp", Type::Time),
    field("deletionGracePeriodSeconds", Type::Int64),
    field("labels", Type::TextMap),
    field("annotations", Type::TextMap),
    field("ownerReferences", Type::Structs("OwnerReference", OWNER_REFERENCE)),
    field("finalizers", Type::TextList),
    field(
        "managedFields",
        Type::Structs("ManagedFieldsEntry", MANAGED_FIELDS_ENTRY),
    ),
];

const OWNER_REFERENCE: &[Field] = &[
    always("apiVersion", STRING),
    always("kind", STRING),
    always("name", STRING),
    always("uid", Type::Text("types.UID")),
    field("controller", Type::Bool),
    field("blockOwnerDeletion", Type::Bool),
];

const MANAGED_FIELDS_ENTRY: &[Field] = &[
    field("manager", STRING),
    field("operation", Type::Text("v1.ManagedFieldsOperationType")),
    field("apiVersion", STRING),
    field("time", Type::Time),
    field("fieldsType", STRING),
    field("fieldsV1", Type::Raw),
    field("subresource", STRING),
];

const fn always(name: &'static str, kind: Type) -> Field {
    Field {
        name,
        kind,
        always: true,
    }
}

/// Decodes `metadata`. Adds the paths of unknown fields, with `prefix`, to `unknown`. Fails with Go's message.
pub(super) fn decode(metadata: &mut Value, prefix: &str, unknown: &mut Vec<String>) -> Result<(), String> {
    if metadata.is_null() {
        *metadata = Value::Object(Map::new());
    }
    let Some(map) = metadata.as_object_mut() else {
        let found = type_name(metadata);
        return Err(format!(
            "json: cannot unmarshal {found} into Go value of type v1.ObjectMeta"
        ));
    };
    let place = Place {
        go_struct: "ObjectMeta",
        path: "",
        prefix,
    };
    decode_struct(map, OBJECT_META, &place, unknown)?;
    // In Go this field is a pointer, so it is encoded even if the value is zero.
    keep_entries(map, |name, value| {
        name == "deletionGracePeriodSeconds" || !is_empty(value)
    });
    Ok(())
}

/// Position of a struct that is being decoded, in Go's types and in the object.
struct Place<'a> {
    go_struct: &'a str,
    /// Path of JSON names within the metadata, with a trailing dot unless it is empty.
    path: &'a str,
    prefix: &'a str,
}

fn decode_struct(map: &mut Map, fields: &[Field], place: &Place<'_>, unknown: &mut Vec<String>) -> Result<(), String> {
    let mut first_error = None;
    keep_entries(map, |name, value| {
        let Some(field) = fields.iter().find(|field| field.name == name) else {
            unknown.push(format!("{}.{name}", place.prefix));
            return false;
        };
        if value.is_null() {
            return false;
        }
        if let Err(error) = decode_field(value, field, place, unknown) {
            first_error.get_or_insert(error);
        }
        true
    });
    match first_error {
        Some(error) => Err(error),
        None => Ok(()),
    }
}

fn decode_field(value: &mut Value, field: &Field, place: &Place<'_>, unknown: &mut Vec<String>) -> Result<(), String> {
    let wrong = |found: &Value, wanted: &str| {
        let (found, at) = (
            type_name(found),
            format!("{}.{}{}", place.go_struct, place.path, field.name),
        );
        Err(format!(
            "json: cannot unmarshal {found} into Go struct field {at} of type {wanted}"
        ))
    };
    match (field.kind, value) {
        (Type::Raw, _) | (Type::Text(_), Value::String(_)) | (Type::Bool, Value::Bool(_)) => Ok(()),
        (Type::Text(name), value) => wrong(value, name),
        (Type::Bool, value) => wrong(value, "bool"),
        (Type::Int64, Value::Number(number)) if number.is_i64() => Ok(()),
        (Type::Int64, Value::Number(number)) => {
            let at = format!("{}.{}{}", place.go_struct, place.path, field.name);
            Err(format!(
                "json: cannot unmarshal number {number} into Go struct field {at} of type int64"
            ))
        }
        (Type::Int64, value) => wrong(value, "int64"),
        (Type::Time, value) => decode_time(value),
        (Type::TextMap, Value::Object(map)) => {
            map.values_mut()
                .filter(|it| it.is_null())
                .for_each(|it| *it = Value::from(""));
            map.values()
                .find(|it| !it.is_string())
                .map_or(Ok(()), |it| wrong(it, "string"))
        }
        (Type::TextMap, value) => wrong(value, "map[string]string"),
        (Type::TextList, Value::Array(list)) => {
            list.iter_mut()
                .filter(|it| it.is_null())
                .for_each(|it| *it = Value::from(""));
            list.iter()
                .find(|it| !it.is_string())
                .map_or(Ok(()), |it| wrong(it, "string"))
        }
        (Type::TextList, value) => wrong(value, "[]string"),
        (Type::Structs(name, fields), Value::Array(list)) => {
            for (index, item) in list.iter_mut().enumerate() {
                if item.is_null() {
                    *item = Value::Object(Map::new());
                }
                let Some(map) = item.as_object_mut() else {
                    return wrong(item, &format!("v1.{name}"));
                };
                let place = Place {
                    go_struct: name,
                    path: &format!("{}{}.", place.path, field.name),
                    prefix: &format!("{}.{}[{index}]", place.prefix, field.name),
                };
                decode_struct(map, fields, &place, unknown)?;
                keep_entries(map, |name, value| {
                    fields.iter().any(|it| it.name == name && it.always) || value.is_boolean() || !is_empty(value)
                });
                for field in fields.iter().filter(|field| field.always) {
                    map.entry(field.name).or_insert_with(|| Value::from(""));
                }
            }
            Ok(())
        }
        (Type::Structs(name, _), value) => wrong(value, &format!("[]v1.{name}")),
    }
}

fn decode_time(value: &mut Value) -> Result<(), String> {
    let Value::String(text) = value else {
        let found = type_name(value);
        return Err(format!("json: cannot unmarshal {found} into Go value of type string"));
    };
    match canonical_seconds(text)? {
        Some(time) => *text = time.into(),
        None => *value = Value::Null,
    }
    Ok(())
}

/// Returns `true` if Go omits the value when encoding it.
fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(value) => !value,
        Value::Number(number) => number.as_i64() == Some(0),
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        Value::Object(map) => map.is_empty(),
    }
}

#[cfg(test)]
mod tests {
    use crate::api::json::json;

    use super::*;

    #[rstest::rstest]
    #[case(json!("x"), "json: cannot unmarshal string into Go value of type v1.ObjectMeta")]
    #[case(json!({"name": 5}), "json: cannot unmarshal number into Go struct field ObjectMeta.name of type string")]
    #[case(json!({"labels": {"a": 1}}),
        "json: cannot unmarshal number into Go struct field ObjectMeta.labels of type string")]
    #[case(json!({"labels": "x"}),
        "json: cannot unmarshal string into Go struct field ObjectMeta.labels of type map[string]string")]
    #[case(json!({"finalizers": "x"}),
        "json: cannot unmarshal string into Go struct field ObjectMeta.finalizers of type []string")]
    #[case(json!({"deletionTimestamp": "2024-05-01 12:00:00Z"}),
        "parsing time \"2024-05-01 12:00:00Z\" as \"2006-01-02T15:04:05Z07:00\": cannot parse \" 12:00:00Z\" as \"T\"")]
    #[case(json!({"deletionTimestamp": "2024-13-01T00:00:00Z"}),
        "parsing time \"2024-13-01T00:00:00Z\": month out of range")]
    #[case(json!({"ownerReferences": [{"name": 1}]}),
        "json: cannot unmarshal number into Go struct field OwnerReference.ownerReferences.name of type string")]
    fn o18_metadata_fields_of_wrong_types_are_refused(#[case] mut metadata: Value, #[case] error: &str) {
        assert_eq!(
            decode(&mut metadata, "metadata", &mut Vec::new()),
            Err(error.to_owned())
        );
    }

    #[test]
    fn o18_unknown_metadata_fields_are_reported_and_empty_fields_dropped() {
        let mut metadata = json!({
            "creationTimestamp": "0001-01-01T00:00:00Z",
            "name": "a", "color": "red", "labels": {}, "generation": 0, "deletionGracePeriodSeconds": 0,
            "ownerReferences": [{"kind": "K", "size": 1}],
        });
        let mut unknown = Vec::new();
        assert_eq!(decode(&mut metadata, "metadata", &mut unknown), Ok(()));
        assert_eq!(unknown, ["metadata.color", "metadata.ownerReferences[0].size"]);
        let owner = json!({"apiVersion": "", "kind": "K", "name": "", "uid": ""});
        let expected = json!({"name": "a", "deletionGracePeriodSeconds": 0, "ownerReferences": [owner]});
        assert_eq!(metadata, expected);
    }
}
