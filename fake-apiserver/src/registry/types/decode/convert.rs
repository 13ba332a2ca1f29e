//! Converts a JSON value as if it were decoded into the Go type and encoded again. Drops unknown fields, checks types,
//! converts numbers, quantities, times and bytes to their canonical form, and omits or encodes empty fields as the Go
//! type requires.

use std::fmt::Write;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::scan::{Order, number_at};
use super::time::{Canonical, Precision, canonical_base64, canonical_time};
use super::zero::{add_shown_fields, is_always_shown, is_empty, tells_empty, zero, zero_of_field};
use crate::api::field::FieldPath;
use crate::api::json::type_name;
use crate::api::json::{Map, Value};
use crate::registry::types::edit::keep_entries;
use crate::registry::types::hidden::Hidden;
use crate::registry::types::quantity;
use crate::registry::types::schema::builtin::{Field, Kind, Shape, StructType};

/// Maximum nesting depth of values, which also limits recursion. Deeper documents are refused.
const MOST_LEVELS: usize = 200;
/// Maximum number of unknown fields that are reported, as in kube-apiserver.
const MOST_UNKNOWN: usize = 100;

/// Maximum number of errors that are collected to find the first error in the document.
const MOST_ERRORS: usize = 100;

/// One step of the path to the current value.
#[derive(Clone)]
pub(super) enum Step {
    /// A field of a struct.
    Field(&'static StructType, &'static Field),
    /// A key of a map.
    Key(String),
    /// An item of a list.
    Index(usize),
}

/// Errors about values of the wrong type; never empty.
pub(super) struct Misfits(Vec<Misfit>);

/// Parts that a conversion removed from an object.
#[derive(Default)]
pub(super) struct Removed {
    /// The paths of removed unknown fields.
    pub(super) unknown: Vec<String>,
    /// The removed empty lists and maps.
    pub(super) hidden: Hidden,
}

/// A value of the wrong type.
struct Misfit {
    /// The path of the value.
    path: Vec<Step>,
    /// Go's error message.
    error: String,
    /// Set for errors that stop Go's decoder, such as errors of types with a custom decoder. Go continues after other
    /// errors.
    ends: bool,
}

impl Misfits {
    /// Returns the first error in the order of sorted keys. Errors that stop decoding take precedence.
    pub(super) fn first(self) -> String {
        self.first_by(|_| ()).map(|it| it.error).unwrap_or_default()
    }

    /// Returns the first error in the order of the keys in the document. Errors that stop decoding take precedence.
    pub(super) fn first_in(self, raw: &[u8]) -> String {
        let order = if self.0.len() > 1 { Order::of(raw) } else { None };
        let first = match order {
            Some(order) => self.first_by(|path| order.place(path)),
            None => self.first_by(|_| ()),
        };
        first.map(|it| it.told_of(raw)).unwrap_or_default()
    }

    fn first_by<T: Ord>(self, place: impl Fn(&[Step]) -> T) -> Option<Misfit> {
        self.0.into_iter().min_by_key(|it| (!it.ends, place(&it.path)))
    }
}

impl Misfit {
    /// Returns the error message. A number in the message is replaced with its spelling in the document.
    fn told_of(self, raw: &[u8]) -> String {
        const NUMBER: &str = "json: cannot unmarshal number ";
        let rest = self.error.strip_prefix(NUMBER).and_then(|it| it.split_once(" into "));
        let Some((_, rest)) = rest else { return self.error };
        match number_at(raw, &self.path) {
            Some(number) => format!("{NUMBER}{number} into {rest}"),
            None => self.error,
        }
    }
}

/// Formats a path for errors.
fn field_path(path: &[Step]) -> FieldPath {
    path.iter().fold(FieldPath::root(), |path, step| match step {
        Step::Field(_, field) => path.child(field.name()),
        Step::Key(key) => path.key(key),
        Step::Index(index) => path.index(*index),
    })
}

#[derive(Default)]
pub(super) struct Converter<'a> {
    /// An object of the same type that is already converted, such as the object before a patch. Top-level fields that
    /// are equal in both are not converted again.
    before: Option<&'a Map>,
    path: Vec<Step>,
    /// Number of enclosing values with a custom decoder. Unknown fields within these values are not reported.
    opaque: usize,
    /// Length of the path of the outermost value with a custom decoder. Go's errors within this value contain the name
    /// of the struct outside of it.
    opaque_from: usize,
    level: usize,
    removed: Removed,
    /// The values of the wrong type found so far.
    misfits: Vec<Misfit>,
}

/// Converts an object. `before` is a converted object of the same type, such as the object before a patch. Returns the
/// removed parts, or errors for values of the wrong type.
pub(super) fn convert(shape: &'static Shape, object: &mut Map, before: Option<&Map>) -> Result<Removed, Misfits> {
    let mut it = Converter {
        before,
        ..Converter::default()
    };
    match shape.structure() {
        Some(structure) => it.structure(structure, object),
        None => it.end(format!("{} is not an object", shape.go_type())),
    }
    it.finish()
}

/// Returns Go's error for a single value of a type with a custom decoder.
pub(super) fn error_of(shape: &'static Shape, value: &Value) -> Option<String> {
    let mut it = Converter::default();
    it.value(shape, &mut value.clone());
    it.finish().err().map(Misfits::first)
}

impl Converter<'_> {
    fn finish(self) -> Result<Removed, Misfits> {
        match self.misfits.is_empty() {
            true => Ok(self.removed),
            false => Err(Misfits(self.misfits)),
        }
    }

    fn structure(&mut self, structure: &'static StructType, map: &mut Map) {
        let mut fields = structure.fields_in_order();
        keep_entries(map, |name, value| {
            let Some(field) = fields.find(name) else {
                self.report_unknown(name);
                return false;
            };
            if self.is_unchanged(name, value) {
                return true;
            }
            self.path.push(Step::Field(structure, field));
            let kept = self.field(field, value);
            self.path.pop();
            kept
        });
        add_shown_fields(structure, map);
    }

    /// Returns `true` if a top-level field of the object is unchanged.
    fn is_unchanged(&self, name: &str, value: &Value) -> bool {
        self.path.is_empty() && self.before.is_some_and(|before| before.get(name) == Some(value))
    }

    /// Converts a field's value; returns `true` if the field is kept.
    fn field(&mut self, field: &'static Field, value: &mut Value) -> bool {
        if value.is_null() {
            *value = zero_of_field(field);
            return is_always_shown(field);
        }
        let shape = field.shape();
        self.value(shape, value);
        if field.is_pointer() {
            return true;
        }
        if field.omits_zero() && value.is_null() {
            return false;
        }
        let is_empty = is_empty(shape.kind(), value);
        if is_empty && matches!(shape.kind(), Kind::List(_) | Kind::Map(_) | Kind::Bytes) {
            let path = &self.path;
            self.removed.hidden.note_empty(|| field_path(path), value);
        }
        if !is_empty || !field.omits_empty() || self.is_told_empty(field) {
            return true;
        }
        if let (Value::Array(_) | Value::Object(_), Some(Step::Field(_, whole))) = (&*value, self.path.first()) {
            self.removed.hidden.left_out(whole.name());
        }
        false
    }

    /// Returns `true` if validation distinguishes an empty value of the current field from an absent one.
    fn is_told_empty(&self, field: &Field) -> bool {
        let [.., before, Step::Field(structure, _)] = self.path.as_slice() else {
            return false;
        };
        let reached = match before {
            Step::Field(_, field) => field.name(),
            Step::Key(_) | Step::Index(_) => "",
        };
        tells_empty(structure.name(), reached, field.name())
    }

    fn value(&mut self, shape: &'static Shape, value: &mut Value) {
        self.level += 1;
        if self.level > MOST_LEVELS {
            self.end("exceeded max depth".to_owned());
        } else {
            self.value_of_kind(shape, value);
        }
        self.level -= 1;
    }

    fn value_of_kind(&mut self, shape: &'static Shape, value: &mut Value) {
        match (shape.kind(), &mut *value) {
            (Kind::String, Value::String(_)) | (Kind::Bool, Value::Bool(_)) | (Kind::Raw | Kind::Json, _) => {}
            (Kind::Int32 | Kind::Int64, Value::Number(_)) => self.integer(shape, value),
            (Kind::Float64, Value::Number(number)) => {
                if let Some(whole) = number.as_f64().filter(|it| it.fract() == 0.0 && it.abs() < 9e15) {
                    // Go encodes floats with integer values without a decimal point.
                    *value = Value::from(whole as i64);
                }
            }
            (Kind::Bytes, Value::String(_) | Value::Array(_)) => self.bytes(value),
            (Kind::Quantity, _) => self.quantity(value, false),
            (Kind::IntOrString, Value::String(_)) => {}
            (Kind::IntOrString, _) => self.int_or_string(value),
            (Kind::Time, _) => self.time(value, Precision::Seconds),
            (Kind::MicroTime, _) => self.time(value, Precision::Micros),
            (Kind::SchemaOrArray(_) | Kind::SchemaOrBool(_) | Kind::SchemaOrStrings(_), _) => {
                // The type has a custom decoder, which stops at the first error.
                let before = self.misfits.len();
                if self.opaque == 0 {
                    self.opaque_from = self.path.len();
                }
                self.opaque += 1;
                self.schema(shape, value);
                self.opaque -= 1;
                for inner in &mut self.misfits[before..] {
                    inner.ends = true;
                }
            }
            (Kind::List(_), Value::Array(items)) => self.list(shape, items),
            (Kind::Map(_), Value::Object(entries)) => self.map(shape, entries),
            (Kind::Struct(_), Value::Object(map)) => {
                if let Some(structure) = shape.structure() {
                    self.structure(structure, map);
                }
            }
            (
                Kind::String
                | Kind::Bool
                | Kind::Int32
                | Kind::Int64
                | Kind::Float64
                | Kind::Bytes
                | Kind::List(_)
                | Kind::Map(_)
                | Kind::Struct(_),
                _,
            ) => {
                self.wrong_type(type_name(value), shape.go_type());
            }
        }
    }

    fn list(&mut self, shape: &'static Shape, items: &mut [Value]) {
        let Some(item_shape) = shape.items() else {
            return;
        };
        for (at, item) in items.iter_mut().enumerate() {
            if item.is_null() {
                *item = zero(item_shape);
                continue;
            }
            self.path.push(Step::Index(at));
            self.value(item_shape, item);
            self.path.pop();
        }
    }

    fn map(&mut self, shape: &'static Shape, entries: &mut Map) {
        let Some(value_shape) = shape.values() else {
            return;
        };
        let of_resources = shape.go_type() == "v1.ResourceList";
        // Only values of these types can contain unknown fields, whose paths contain the key of the map.
        let named = matches!(value_shape.kind(), Kind::Struct(_) | Kind::List(_) | Kind::Map(_));
        for (key, value) in entries.iter_mut() {
            if value.is_null() {
                *value = zero(value_shape);
                continue;
            }
            if of_resources {
                self.quantity(value, true);
                continue;
            }
            if named {
                self.path.push(Step::Key(key.to_string()));
            }
            self.value(value_shape, value);
            if named {
                self.path.pop();
            }
        }
    }

    fn integer(&mut self, shape: &'static Shape, value: &Value) {
        let fits = match (shape.kind(), value.as_i64()) {
            (_, None) => false,
            (Kind::Int32, Some(number)) => i32::try_from(number).is_ok(),
            (_, Some(_)) => true,
        };
        if !fits {
            self.wrong_type(&format!("number {value}"), shape.go_type());
        }
    }

    /// Converts bytes, which are a base64 string or a list of integers, to canonical base64.
    fn bytes(&mut self, value: &mut Value) {
        match value {
            Value::String(text) => match canonical_base64(text) {
                Ok(None) => {}
                Ok(Some(respelled)) => *text = respelled.into(),
                Err(offset) => self.misfit(format!("illegal base64 data at input byte {offset}"), false),
            },
            Value::Array(items) => {
                let numbers = items.iter().map(|item| match item {
                    Value::Null => Ok(0),
                    item => item.as_u64().and_then(|it| u8::try_from(it).ok()).ok_or(item),
                });
                match numbers.collect::<Result<Vec<u8>, &Value>>() {
                    Ok(bytes) => *value = Value::String(STANDARD.encode(bytes).into()),
                    Err(item @ Value::Number(_)) => self.wrong_type(&format!("number {item}"), "uint8"),
                    Err(item) => self.wrong_type(type_name(item), "uint8"),
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => {}
        }
    }

    fn int_or_string(&mut self, value: &Value) {
        match value {
            Value::Number(number) if number.as_i64().is_some_and(|it| i32::try_from(it).is_ok()) => {}
            Value::Number(number) => self.wrong_type_ends(&format!("number {number}"), "int32"),
            other => self.wrong_type_ends(type_name(other), "int32"),
        }
    }

    fn quantity(&mut self, value: &mut Value, to_milli: bool) {
        let canonical = match &*value {
            Value::String(text) => {
                let trimmed = text.trim();
                match quantity::canonical(trimmed, to_milli) {
                    Ok(None) if trimmed.len() != text.len() => Ok(Some(trimmed.to_owned())),
                    other => other,
                }
            }
            Value::Number(number) => {
                let text = number.to_string();
                quantity::canonical(&text, to_milli).map(|spelled| Some(spelled.unwrap_or(text)))
            }
            other => quantity::canonical(&other.to_string(), to_milli),
        };
        match canonical {
            Ok(None) => {}
            Ok(Some(spelled)) => *value = Value::String(spelled.into()),
            Err(error) => self.end(error.to_owned()),
        }
    }

    fn time(&mut self, value: &mut Value, precision: Precision) {
        let Value::String(text) = &*value else {
            return self.wrong_type_ends(type_name(value), "string");
        };
        match canonical_time(text, precision) {
            Ok(Canonical::Same) => {}
            Ok(Canonical::Other(spelled)) => *value = Value::String(spelled.into()),
            Ok(Canonical::Zero) => *value = Value::Null,
            Err(error) => self.end(error),
        }
    }

    /// Converts a part of a CRD's schema that may be a schema or another value.
    fn schema(&mut self, shape: &'static Shape, value: &mut Value) {
        let Some(schema) = shape.alternative() else {
            return;
        };
        match (shape.kind(), &mut *value) {
            (_, Value::Object(_)) => self.value(schema, value),
            (Kind::SchemaOrBool(_), Value::Bool(_)) => {}
            (Kind::SchemaOrBool(_), _) => self.end("boolean or JSON schema expected".to_owned()),
            (Kind::SchemaOrArray(_), Value::Array(items)) => {
                for item in items {
                    if item.is_null() {
                        *item = zero(schema);
                    } else {
                        self.value(schema, item);
                    }
                }
            }
            (Kind::SchemaOrStrings(_), Value::Array(items)) => {
                for item in items {
                    match item {
                        Value::String(_) => {}
                        Value::Null => *item = Value::String(String::new().into()),
                        other => self.wrong_type(type_name(other), "string"),
                    }
                }
            }
            // Go ignores values of other types, and encodes the unset field as null.
            _ => *value = Value::Null,
        }
    }

    fn report_unknown(&mut self, name: &str) {
        if self.opaque > 0 || self.removed.unknown.len() >= MOST_UNKNOWN {
            return;
        }
        let mut path = String::new();
        for step in &self.path {
            match step {
                Step::Field(_, field) => push_name(&mut path, field.name()),
                Step::Key(name) => push_name(&mut path, name),
                Step::Index(at) => {
                    // Writing into a String cannot fail.
                    let _ = write!(path, "[{at}]");
                }
            }
        }
        push_name(&mut path, name);
        self.removed.unknown.push(path);
    }

    fn misfit(&mut self, error: String, ends: bool) {
        if self.misfits.len() < MOST_ERRORS {
            let path = self.path.clone();
            self.misfits.push(Misfit { path, error, ends });
        }
    }

    /// Records an error that stops decoding.
    fn end(&mut self, error: String) {
        self.misfit(error, true);
    }

    /// Records a value of the wrong type, and continues.
    fn wrong_type(&mut self, what: &str, wanted: &str) {
        // Skips creating further messages, because a body may contain millions of errors.
        if self.misfits.len() < MOST_ERRORS {
            self.misfit(self.type_error(what, wanted), false);
        }
    }

    /// Records a value of the wrong type for a type with a custom decoder, which stops decoding.
    fn wrong_type_ends(&mut self, what: &str, wanted: &str) {
        if self.misfits.len() < MOST_ERRORS {
            self.end(self.type_error(what, wanted));
        }
    }

    fn type_error(&self, what: &str, wanted: &str) -> String {
        let mut fields = String::new();
        let mut owner = None;
        for (at, step) in self.path.iter().enumerate() {
            if let Step::Field(structure, field) = step {
                if self.opaque == 0 || at < self.opaque_from {
                    owner = Some(structure.name());
                }
                if !field.via().is_empty() {
                    push_name(&mut fields, field.via());
                }
                push_name(&mut fields, field.name());
            }
        }
        match owner {
            Some(owner) => {
                format!("json: cannot unmarshal {what} into Go struct field {owner}.{fields} of type {wanted}")
            }
            None => format!("json: cannot unmarshal {what} into Go value of type {wanted}"),
        }
    }
}

fn push_name(path: &mut String, name: &str) {
    if !path.is_empty() {
        path.push('.');
    }
    path.push_str(name);
}

/// Sets empty lists, maps and bytes to `null` if Go always encodes the field, because kube-apiserver's storage cannot
/// represent empty lists. Must be called after field ownership is determined, because an empty list is a value there.
pub(super) fn settle(shape: &'static Shape, value: &mut Value) {
    match value {
        Value::Object(map) => settle_map(shape, map),
        Value::Array(items) => {
            if let Some(item) = shape.items() {
                items.iter_mut().for_each(|value| settle(item, value));
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

pub(super) fn settle_map(shape: &'static Shape, map: &mut Map) {
    let Some(structure) = shape.structure() else {
        return;
    };
    let mut fields = structure.fields_in_order();
    for (name, value) in map {
        if !(value.is_object() || value.is_array() || *value == "") {
            continue;
        }
        let Some(field) = fields.find(name) else {
            continue;
        };
        let kind = field.shape().kind();
        if !matches!(kind, Kind::List(_) | Kind::Map(_) | Kind::Bytes) || field.is_pointer() || !is_empty(kind, value) {
            settle(field.shape(), value);
        } else if !field.omits_empty() {
            *value = Value::Null;
        }
    }
}
