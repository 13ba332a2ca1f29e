//! Validation of an applied object against its type (rule H12), and the set of its fields.

use std::collections::BTreeSet;

use super::element::Element;
use super::items::item_element;
use super::set::FieldSet;
use crate::api::json::{Map, SmolStr, Value};
use crate::registry::types::go_text::go_text;
use crate::registry::types::schema::{Form, ListType, SchemaRef};

/// Checks an applied object. Fails with the part of the message after `failed to create typed patch object (…): `.
pub(super) fn validate(schema: SchemaRef<'_>, object: &Map) -> Result<(), String> {
    let mut errors = Vec::new();
    check_map(schema, object, &Path::Root, &mut errors);
    match errors.len() {
        0 => Ok(()),
        1 => Err(errors.remove(0)),
        _ => Err(format!("errors:\n  {}", errors.join("\n  "))),
    }
}

/// Returns `true` if the values of an object have the types of the current schema. Repeated keys of lists and unknown
/// fields are accepted, because they are checked elsewhere.
pub(super) fn fits(schema: SchemaRef<'_>, object: &Map) -> bool {
    let mut fields = schema.walk();
    let mut entries = object.iter();
    entries.all(|(name, value)| fields.field(name).is_none_or(|field| value_fits(field, value)))
}

/// Returns `true` if the schema declares every field of an object.
pub(super) fn declares(schema: SchemaRef<'_>, object: &Map) -> bool {
    let mut fields = schema.walk();
    let mut entries = object.iter();
    entries.all(|(name, value)| fields.field(name).is_some_and(|field| declares_value(field, value)))
}

fn declares_value(schema: SchemaRef<'_>, value: &Value) -> bool {
    match (schema.form(), value) {
        (Form::Map, Value::Object(map)) => declares(schema, map),
        (Form::List, Value::Array(items)) => items.iter().all(|item| declares_value(schema.items(), item)),
        _ => true,
    }
}

fn value_fits(schema: SchemaRef<'_>, value: &Value) -> bool {
    match (schema.form(), value) {
        (_, Value::Null) | (Form::Any, _) => true,
        (Form::Map, Value::Object(map)) => fits(schema, map),
        (Form::List, Value::Array(items)) => {
            let is_atomic = schema.list_type() == ListType::Atomic;
            let mut items = items.iter();
            items.all(|item| value_fits(schema.items(), item) && (is_atomic || item_element(schema, item).is_ok()))
        }
        (Form::String | Form::Scalar, Value::String(_))
        | (Form::Numeric | Form::Scalar, Value::Number(_))
        | (Form::Boolean | Form::Scalar, Value::Bool(_)) => true,
        (Form::Map | Form::List | Form::String | Form::Numeric | Form::Boolean | Form::Scalar, _) => false,
    }
}

/// Path of the checked value. It is only formatted for an error.
#[derive(Clone, Copy)]
enum Path<'a> {
    Root,
    Field(&'a Path<'a>, &'a str),
    Element(&'a Path<'a>, &'a Element<'a>),
}

impl std::fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Path::Root => Ok(()),
            Path::Field(parent, name) => write!(f, "{parent}.{name}"),
            Path::Element(parent, element) => write!(f, "{parent}{element}"),
        }
    }
}

fn check(schema: SchemaRef<'_>, value: &Value, path: &Path<'_>, errors: &mut Vec<String>) {
    let text = match (schema.form(), value) {
        (_, Value::Null) | (Form::Any, _) => return,
        (Form::Map, Value::Object(map)) => return check_map(schema, map, path, errors),
        (Form::List, Value::Array(items)) => return check_list(schema, items, path, errors),
        (Form::String | Form::Scalar, Value::String(_)) => return,
        (Form::Numeric | Form::Scalar, Value::Number(_)) => return,
        (Form::Boolean | Form::Scalar, Value::Bool(_)) => return,
        (Form::Map, other) => format!("expected map, got &{{{}}}", go_text(other)),
        (Form::List, other) => format!("expected list, got &{{{}}}", go_text(other)),
        (Form::String, other) => {
            format!(
                "expected string, got &value.valueUnstructured{{Value:{}}}",
                go_syntax(other)
            )
        }
        (Form::Numeric, other) => format!("expected numeric (int or float), got {}", go_kind(other)),
        (Form::Boolean, other) => format!("expected boolean, got &{{{}}}", go_text(other)),
        (Form::Scalar, other) => format!("expected any scalar, got &{{{}}}", go_text(other)),
    };
    errors.push(format!("{path}: {text}"));
}

/// Formats a value like Go's `%#v`.
fn go_syntax(value: &Value) -> String {
    match value {
        Value::Null => "interface {}(nil)".to_owned(),
        Value::String(text) => crate::api::field::quote(text),
        Value::Bool(_) | Value::Number(_) => go_text(value),
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(go_syntax).collect();
            format!("[]interface {{}}{{{}}}", items.join(", "))
        }
        Value::Object(map) => {
            let field =
                |(key, value): (&SmolStr, &Value)| format!("{}:{}", crate::api::field::quote(key), go_syntax(value));
            let fields: Vec<String> = map.iter().map(field).collect();
            format!("map[string]interface {{}}{{{}}}", fields.join(", "))
        }
    }
}

fn go_kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "<nil>",
        Value::Bool(_) => "bool",
        Value::Number(_) => "int64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}

fn check_map(schema: SchemaRef<'_>, map: &Map, path: &Path<'_>, errors: &mut Vec<String>) {
    let mut fields = schema.walk();
    for (name, value) in map {
        let path = Path::Field(path, name);
        match fields.field(name) {
            Some(field) => check(field, value, &path, errors),
            None => {
                errors.push(format!("{path}: field not declared in schema"));
                return;
            }
        }
    }
}

fn check_list(schema: SchemaRef<'_>, items: &[Value], path: &Path<'_>, errors: &mut Vec<String>) {
    let item_schema = schema.items();
    if schema.list_type() == ListType::Atomic {
        for (i, item) in (0i64..).zip(items) {
            check(item_schema, item, &Path::Element(path, &Element::Index(i)), errors);
        }
        return;
    }
    let mut seen = BTreeSet::new();
    for (i, item) in items.iter().enumerate() {
        let element = match item_element(schema, item) {
            Ok(element) => element,
            Err(text) => {
                errors.push(format!("{path}: element {i}: {text}"));
                return;
            }
        };
        check(item_schema, item, &Path::Element(path, &element), errors);
        if let Some(element) = seen.replace(element) {
            errors.push(format!("{path}: duplicate entries for key {element}"));
        }
    }
}

/// Returns the fields of an object: every leaf, every list item, every empty map, and every field that the schema does
/// not declare.
pub(super) fn field_set<'a>(schema: SchemaRef<'_>, object: &'a Map) -> FieldSet<'a> {
    let mut set = FieldSet::with_capacity(object.len());
    let mut fields = schema.walk();
    for (name, value) in object.iter() {
        let (field, declared) = fields.declared(name);
        let (leaf, children) = fields_of(field.unwrap_or(SchemaRef::Deduced), value);
        let empty = value.is_null() || value.as_object().is_some_and(Map::is_empty);
        let member = leaf || empty || !declared;
        set.push(Element::field(name), member, children);
    }
    set
}

/// Returns a flag that is set if the value is a leaf, and the fields below the value.
fn fields_of<'a>(schema: SchemaRef<'_>, value: &'a Value) -> (bool, FieldSet<'a>) {
    match value {
        Value::Object(_) if schema.is_atomic_map() => (true, FieldSet::new()),
        Value::Object(map) => (false, field_set(schema, map)),
        Value::Array(_) if schema.list_type() == ListType::Atomic => (true, FieldSet::new()),
        Value::Array(items) => (false, items_of(schema, items)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => (true, FieldSet::new()),
    }
}

fn items_of<'a>(schema: SchemaRef<'_>, items: &'a [Value]) -> FieldSet<'a> {
    let item_schema = schema.items();
    let mut elements: Vec<(Element<'a>, &'a Value)> = items
        .iter()
        .filter_map(|item| Some((item_element(schema, item).ok()?, item)))
        .collect();
    elements.sort_by(|(a, _), (b, _)| a.cmp(b));
    let mut set = FieldSet::with_capacity(elements.len());
    for group in elements.chunk_by(|(a, _), (b, _)| a == b) {
        // Duplicates are owned together, without their fields.
        let children = match group {
            [(_, only)] => fields_of(item_schema, only).1,
            _ => FieldSet::new(),
        };
        set.push(group[0].0.clone(), true, children);
    }
    set
}
