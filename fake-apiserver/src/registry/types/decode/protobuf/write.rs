//! Encodes values of built-in types as protobuf messages.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;

use super::MAGIC;
use crate::api::json::{Map, Value};
use crate::api::protobuf::{write_bytes, write_number, write_varint};
use crate::registry::types::schema::builtin::{Kind, Shape, StructType, shape_of};

/// Encodes an object and its kind as a complete body; `None` for kinds that are not built in.
pub(crate) fn encode_value(value: &Value) -> Option<Vec<u8>> {
    let object = value.as_object()?;
    let text = |name: &str| object.get(name).and_then(Value::as_str).unwrap_or_default();
    let (group, version) = text("apiVersion").split_once('/').unwrap_or(("", text("apiVersion")));
    encode(group, version, text("kind"), object)
}

/// Encodes a built-in object, or a list of such objects, as a complete body; `None` for any other kind.
pub(super) fn encode(group: &str, version: &str, kind: &str, object: &Map) -> Option<Vec<u8>> {
    let message = match shape_of(group, version, kind) {
        Some(shape) => write_struct(shape.structure()?, object, 0),
        None => {
            let item = shape_of(group, version, kind.strip_suffix("List")?)?;
            let meta = shape_of("meta.k8s.io", "v1", "ListMeta")?;
            let mut out = Vec::new();
            if let Some(value) = object.get("metadata") {
                write_value(&mut out, 1, meta, value);
            }
            for value in object.get("items").and_then(Value::as_array).into_iter().flatten() {
                write_value(&mut out, 2, item, value);
            }
            out
        }
    };
    let api_version = crate::registry::types::decode::join(group, version);
    let mut names = Vec::new();
    write_bytes(&mut names, 1, api_version.as_bytes());
    write_bytes(&mut names, 2, kind.as_bytes());
    let mut out = MAGIC.to_vec();
    write_bytes(&mut out, 1, &names);
    write_bytes(&mut out, 2, &message);
    write_bytes(&mut out, 3, b"");
    write_bytes(&mut out, 4, b"");
    Some(out)
}

/// Encodes the fields of a struct that belong to the message at `prefix`, in the order of their field numbers.
fn write_struct(structure: &'static StructType, map: &Map, prefix: u32) -> Vec<u8> {
    let mut fields: Vec<(u8, bool, &str, &'static Shape)> = structure
        .fields()
        .iter()
        .filter_map(|field| {
            let (number, last) = field.protobuf(prefix)?;
            Some((number, last, field.name(), field.shape()))
        })
        .collect();
    fields.sort_by_key(|field| field.0);
    // The fields of an inlined struct are written as one message.
    fields.dedup_by(|a, b| a.0 == b.0 && !a.1);
    let mut out = Vec::new();
    for (number, last, name, shape) in fields {
        if last {
            if let Some(value) = map.get(name) {
                write_value(&mut out, number.into(), shape, value);
            }
        } else {
            let inner = write_struct(structure, map, prefix << 8 | u32::from(number));
            write_bytes(&mut out, number.into(), &inner);
        }
    }
    out
}

/// Encodes a value. Values of the wrong type, which decoded objects never contain, are omitted.
fn write_value(out: &mut Vec<u8>, field: u64, shape: &'static Shape, value: &Value) {
    match (shape.kind(), value) {
        (_, Value::Null) => {}
        (Kind::String, Value::String(text)) => write_bytes(out, field, text.as_bytes()),
        (Kind::Bool, Value::Bool(value)) => write_number(out, field, u64::from(*value)),
        (Kind::Int32 | Kind::Int64, Value::Number(number)) => {
            write_number(out, field, number.as_i64().unwrap_or(0).cast_unsigned());
        }
        (Kind::Float64, Value::Number(number)) => {
            write_varint(out, field << 3 | 1);
            out.extend_from_slice(&number.as_f64().unwrap_or(0.0).to_le_bytes());
        }
        (Kind::Bytes, Value::String(text)) => write_bytes(out, field, &STANDARD.decode(text).unwrap_or_default()),
        (Kind::Quantity, Value::String(text)) => {
            let mut inner = Vec::new();
            write_bytes(&mut inner, 1, text.as_bytes());
            write_bytes(out, field, &inner);
        }
        (Kind::IntOrString, value) => {
            let number = value.as_i64().unwrap_or(0).cast_unsigned();
            let mut inner = Vec::new();
            write_number(&mut inner, 1, u64::from(value.is_string()));
            write_number(&mut inner, 2, number);
            write_bytes(&mut inner, 3, value.as_str().unwrap_or_default().as_bytes());
            write_bytes(out, field, &inner);
        }
        (Kind::Time | Kind::MicroTime, Value::String(text)) => {
            let time: Timestamp = text.parse().unwrap_or_default();
            let mut inner = Vec::new();
            write_number(&mut inner, 1, time.as_second().cast_unsigned());
            write_number(&mut inner, 2, i64::from(time.subsec_nanosecond()).cast_unsigned());
            write_bytes(out, field, &inner);
        }
        (Kind::Raw | Kind::Json, value) => {
            let mut inner = Vec::new();
            write_bytes(&mut inner, 1, value.to_string().as_bytes());
            write_bytes(out, field, &inner);
        }
        (Kind::SchemaOrArray(_) | Kind::SchemaOrBool(_) | Kind::SchemaOrStrings(_), value) => {
            write_bytes(out, field, &alternative(shape, value));
        }
        (Kind::List(_), Value::Array(items)) => write_list(out, field, shape, items),
        (Kind::Map(_), Value::Object(entries)) => {
            let Some(values) = shape.values() else { return };
            for (key, value) in entries {
                let mut inner = Vec::new();
                write_bytes(&mut inner, 1, key.as_bytes());
                write_value(&mut inner, 2, values, value);
                write_bytes(out, field, &inner);
            }
        }
        (Kind::Struct(_), Value::Object(map)) => {
            if let Some(structure) = shape.structure() {
                write_bytes(out, field, &write_struct(structure, map, 0));
            }
        }
        _ => {}
    }
}

fn write_list(out: &mut Vec<u8>, field: u64, shape: &'static Shape, items: &[Value]) {
    let Some(item) = shape.items() else { return };
    if shape.is_wrapped() {
        let mut inner = Vec::new();
        for value in items {
            write_value(&mut inner, 1, item, value);
        }
        return write_bytes(out, field, &inner);
    }
    for value in items {
        write_value(out, field, item, value);
    }
}

fn alternative(shape: &'static Shape, value: &Value) -> Vec<u8> {
    let mut inner = Vec::new();
    let Some(schema) = shape.alternative() else {
        return inner;
    };
    match (shape.kind(), value) {
        (Kind::SchemaOrBool(_), Value::Bool(allows)) => write_number(&mut inner, 1, u64::from(*allows)),
        (Kind::SchemaOrBool(_), value) => {
            write_number(&mut inner, 1, 1);
            write_value(&mut inner, 2, schema, value);
        }
        (Kind::SchemaOrArray(_), Value::Array(items)) => {
            items.iter().for_each(|item| write_value(&mut inner, 2, schema, item));
        }
        (_, Value::Array(items)) => {
            for text in items.iter().filter_map(Value::as_str) {
                write_bytes(&mut inner, 2, text.as_bytes());
            }
        }
        (_, value) => write_value(&mut inner, 1, schema, value),
    }
    inner
}
