//! Converts unstructured values to Go types (`runtime.FromUnstructured`), for the results of strategic merge patches
//! and applies. The conversion accepts more numbers than the JSON decoder, and has different errors.

use super::convert::error_of;
use super::time::canonical_base64;
use crate::api::json::{Map, Value};
use crate::registry::types::schema::builtin::{Kind, Shape};

/// Converts the numbers in a struct's fields. Stops at the first error, in the order of the fields
/// (`structFromUnstructured`).
pub(super) fn restore_struct(shape: &'static Shape, map: &mut Map) -> Result<(), String> {
    let Some(structure) = shape.structure() else {
        return Ok(());
    };
    let mut fields: Vec<_> = structure
        .fields()
        .iter()
        .filter(|it| map.contains_key(it.name()))
        .collect();
    fields.sort_by_key(|field| field.place());
    for field in fields {
        if let Some(value) = map.get_mut(field.name()) {
            restore(field.shape(), value)?;
        }
    }
    Ok(())
}

fn restore(shape: &'static Shape, value: &mut Value) -> Result<(), String> {
    let from = kind_of(value);
    match (shape.kind(), &mut *value) {
        (_, Value::Null) => Ok(()),
        (Kind::String | Kind::Bool | Kind::Int32 | Kind::Int64 | Kind::Float64, _) => restore_scalar(shape, value),
        (Kind::Bytes, Value::String(text)) => match canonical_base64(text) {
            Ok(_) => Ok(()),
            Err(offset) => Err(format!(
                "error decoding from json: illegal base64 data at input byte {offset}"
            )),
        },
        (Kind::Bytes, Value::Array(items)) => match items.iter().find(|it| !it.is_null() && !it.is_number()) {
            Some(_) => Err("unrecognized type: uint8".to_owned()),
            None => Ok(()),
        },
        (Kind::List(_), Value::Array(items)) => {
            let shape = shape.items();
            items
                .iter_mut()
                .try_for_each(|item| shape.map_or(Ok(()), |shape| restore(shape, item)))
        }
        (Kind::Map(_), Value::Object(entries)) => {
            let shape = shape.values();
            let mut values = entries.iter_mut().map(|(_, value)| value);
            values.try_for_each(|value| shape.map_or(Ok(()), |shape| restore(shape, value)))
        }
        (Kind::Struct(_), Value::Object(map)) => restore_struct(shape, map),
        (Kind::Bytes | Kind::List(_), _) => Err(format!("cannot restore slice from {from}")),
        (Kind::Map(_), _) => Err(format!("cannot restore map from {from}")),
        (Kind::Struct(_), _) => Err(format!("cannot restore struct from: {from}")),
        (
            Kind::Quantity
            | Kind::IntOrString
            | Kind::Time
            | Kind::MicroTime
            | Kind::Raw
            | Kind::Json
            | Kind::SchemaOrArray(_)
            | Kind::SchemaOrBool(_)
            | Kind::SchemaOrStrings(_),
            _,
        ) => error_of(shape, value).map_or(Ok(()), Err),
    }
}

/// Converts a scalar. Like Go, converts between numeric types, but not between numbers and other types.
fn restore_scalar(shape: &'static Shape, value: &mut Value) -> Result<(), String> {
    let to = shape.kind();
    let from = kind_of(value);
    let whole = match (&*value, to) {
        (Value::String(_), Kind::String) | (Value::Bool(_), Kind::Bool) | (Value::Number(_), Kind::Float64) => {
            return Ok(());
        }
        (Value::Number(number), Kind::Int32 | Kind::Int64) => match (number.as_i64(), number.as_f64()) {
            (Some(whole), _) => whole,
            (None, Some(whole)) if whole.fract() == 0.0 => wrapped(whole),
            _ => return Err(format!("cannot convert {from} to {}", shape.go_type())),
        },
        // In Go, integers are convertible to strings (as a character), so the error message differs.
        (Value::Number(number), Kind::String) if number.is_i64() => {
            return Err(format!("cannot convert {from} to {}", shape.go_type()));
        }
        _ => return Err(format!("unrecognized type: {}", name_of(to))),
    };
    *value = match to {
        // Only the lower 32 bits are kept, as in Go.
        Kind::Int32 => Value::from(whole as i32),
        _ => Value::from(whole),
    };
    Ok(())
}

/// Converts a float to an integer like Go on x86-64: numbers outside of the range become the minimum integer.
fn wrapped(number: f64) -> i64 {
    const LIMIT: f64 = 9_223_372_036_854_775_808.0;
    if (-LIMIT..LIMIT).contains(&number) {
        number as i64
    } else {
        i64::MIN
    }
}

/// Returns the name of Go's `reflect.Kind` for a value of an unstructured object.
fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "invalid",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_i64() => "int64",
        Value::Number(_) => "float64",
        Value::String(_) => "string",
        Value::Array(_) => "slice",
        Value::Object(_) => "map",
    }
}

/// Returns the name of Go's `reflect.Kind` for a scalar type.
fn name_of(kind: Kind) -> &'static str {
    match kind {
        Kind::Bool => "bool",
        Kind::Int32 => "int32",
        Kind::Int64 => "int64",
        Kind::Float64 => "float64",
        _ => "string",
    }
}
