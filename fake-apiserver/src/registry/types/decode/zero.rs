//! Zero values of Go's types: when they are encoded, and how.

use crate::api::json::{Map, Value};
use crate::registry::types::schema::builtin::{Field, Kind, Shape, StructType};

/// Returns `true` if Go's `omitempty` considers the value empty. Structs and `null` are never empty.
pub(super) fn is_empty(kind: Kind, value: &Value) -> bool {
    has_empty_value(kind)
        && match value {
            Value::Null => false,
            Value::Bool(flag) => !flag,
            Value::Number(number) => number.as_f64() == Some(0.0),
            Value::String(text) => text.is_empty(),
            Value::Array(items) => items.is_empty(),
            Value::Object(map) => map.is_empty(),
        }
}

/// Returns `true` if Go's `omitempty` can omit a value of the type.
fn has_empty_value(kind: Kind) -> bool {
    match kind {
        Kind::String
        | Kind::Bool
        | Kind::Int32
        | Kind::Int64
        | Kind::Float64
        | Kind::Bytes
        | Kind::List(_)
        | Kind::Map(_) => true,
        Kind::Quantity
        | Kind::IntOrString
        | Kind::Time
        | Kind::MicroTime
        | Kind::Raw
        | Kind::Json
        | Kind::SchemaOrArray(_)
        | Kind::SchemaOrBool(_)
        | Kind::SchemaOrStrings(_)
        | Kind::Struct(_) => false,
    }
}

/// Lists and maps with `omitempty` for which validation distinguishes empty from nil. Empty values of these fields are
/// not omitted. An entry contains the name of a struct, the name of the field that contains the struct (empty for any
/// field), and the names of fields in the struct.
const TOLD_EMPTY: [(&str, &str, &[&str]); 5] = [
    ("HPAScalingRules", "", &["policies"]),
    (
        "EphemeralContainer",
        "",
        &["ports", "resizePolicy", "restartPolicyRules"],
    ),
    ("JSONSchemaProps", "", &["dependencies"]),
    ("ServiceCIDRSpec", "", &["cidrs"]),
    ("JSONSchemaProps", "openAPIV3Schema", &ROOT_KEYWORDS),
];

/// Keywords that may be empty but present at the root of a schema, because validation distinguishes this from absence.
pub(crate) const ROOT_KEYWORDS: [&str; 7] = [
    "allOf",
    "anyOf",
    "definitions",
    "enum",
    "oneOf",
    "patternProperties",
    "x-kubernetes-list-map-keys",
];

/// Returns `true` if validation distinguishes an empty value of a field from an absent one. `reached` is the field that
/// contains the struct.
pub(super) fn tells_empty(structure: &str, reached: &str, field: &str) -> bool {
    TOLD_EMPTY
        .iter()
        .any(|(name, place, fields)| *name == structure && ["", reached].contains(place) && fields.contains(&field))
}

/// Returns `true` if Go encodes the field even if it is unset.
pub(super) fn is_always_shown(field: &Field) -> bool {
    if !field.omits_empty() && !field.omits_zero() {
        return true;
    }
    // `omitempty` does not omit a struct.
    !field.is_pointer() && !field.omits_zero() && !has_empty_value(field.shape().kind())
}

pub(super) fn add_shown_fields(structure: &'static StructType, map: &mut Map) {
    for field in structure.fields() {
        if is_always_shown(field) && !map.contains_key(field.name()) {
            map.insert(field.name().into(), zero_of_field(field));
        }
    }
}

pub(super) fn zero_of_field(field: &'static Field) -> Value {
    if field.is_pointer() {
        return Value::Null;
    }
    match field.shape().kind() {
        Kind::List(_) | Kind::Map(_) | Kind::Bytes => Value::Null,
        _ => zero(field.shape()),
    }
}

/// Returns the zero value of a type, as it is encoded in lists and maps.
pub(super) fn zero(shape: &'static Shape) -> Value {
    match shape.kind() {
        Kind::String | Kind::Bytes => Value::String(String::new().into()),
        Kind::Bool => Value::Bool(false),
        Kind::Int32 | Kind::Int64 | Kind::Float64 | Kind::IntOrString => Value::from(0),
        Kind::Quantity => Value::from("0"),
        Kind::Time
        | Kind::MicroTime
        | Kind::Raw
        | Kind::Json
        | Kind::SchemaOrArray(_)
        | Kind::SchemaOrBool(_)
        | Kind::SchemaOrStrings(_)
        | Kind::List(_)
        | Kind::Map(_) => Value::Null,
        Kind::Struct(_) => {
            let mut map = Map::new();
            if let Some(structure) = shape.structure() {
                add_shown_fields(structure, &mut map);
            }
            Value::Object(map)
        }
    }
}
