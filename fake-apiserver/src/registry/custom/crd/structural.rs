//! Structural schemas (rule O4): every value has one declared type, outside of logical junctors.

use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut};

use serde_json::{Map, Value, json};

use super::node::Node;
use crate::api::field::{FieldErrors, FieldPath};
use crate::registry::types::pattern::Pattern;

/// Checks a root schema; the errors are sorted by their text.
pub(super) fn validate(schema: &Map<String, Value>, path: &FieldPath) -> FieldErrors {
    let mut errors = Found::default();
    let node = Node(schema);
    invariants(node, Level::Root, path, &mut errors);
    completeness(node, Some(node), path, path, &mut errors);
    let mut sorted: Vec<_> = errors.iter().map(|error| (error.to_string(), error.clone())).collect();
    sorted.sort_by(|a, b| a.0.cmp(&b.0));
    let mut errors = FieldErrors::new();
    sorted.into_iter().for_each(|(_, error)| errors.push(error));
    errors
}

/// Findings so far.
#[derive(Default)]
struct Found {
    errors: FieldErrors,
    /// Error of each pattern; the same few stand in many places.
    patterns: BTreeMap<String, Option<String>>,
}

impl Found {
    fn pattern_error(&mut self, pattern: &str) -> Option<String> {
        if let Some(error) = self.patterns.get(pattern) {
            return error.clone();
        }
        let error = Pattern::new(pattern).error().map(str::to_owned);
        self.patterns.insert(pattern.to_owned(), error.clone());
        error
    }
}

impl Deref for Found {
    type Target = FieldErrors;
    fn deref(&self) -> &FieldErrors {
        &self.errors
    }
}

impl DerefMut for Found {
    fn deref_mut(&mut self) -> &mut FieldErrors {
        &mut self.errors
    }
}

/// Position of a schema.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Level {
    Root,
    Item,
    Field,
}

fn invariants(node: Node<'_>, level: Level, path: &FieldPath, errors: &mut Found) {
    let kind = node.text("type");
    match node.schema("items") {
        Some(items) => invariants(items, Level::Item, &path.child("items"), errors),
        None if kind == "array" => errors.required(path.child("items"), "must be specified"),
        None => {}
    }
    for (name, property) in node.properties() {
        invariants(property, Level::Field, &path.child("properties").key(name), errors);
    }
    if node.has_additional() {
        let additional = path.child("additionalProperties");
        if level == Level::Root {
            errors.forbidden(additional.clone(), "must not be used at the root");
        }
        if let Some(schema) = node.schema("additionalProperties") {
            invariants(schema, Level::Field, &additional, errors);
        }
    }
    extensions(node, path, errors);
    let int_or_string = |list: &[Value]| list == int_or_string_branches();
    let skips_any_of = int_or_string(node.list("anyOf"));
    let first_all_of = node.list("allOf").first().and_then(Value::as_object).map(Node);
    let skips_first = first_all_of.is_some_and(|it| int_or_string(it.list("anyOf")));
    value_validation(node, skips_any_of, skips_first, path, errors);
    let embedded = node.flag("x-kubernetes-embedded-resource");
    check_type(node, level, path, errors);
    if embedded && node.has_additional() {
        let text = "must not be used if x-kubernetes-embedded-resource is set";
        errors.forbidden(path.child("additionalProperties"), text);
    }
    if level == Level::Root && !kind.is_empty() && kind != "object" {
        errors.invalid(path.child("type"), kind, "must be object at the root");
    }
    check_metadata(node, level, path, errors);
    let preserves = node.flag("x-kubernetes-preserve-unknown-fields");
    if embedded && !preserves && node.properties().next().is_none() {
        let text = "must not be empty if x-kubernetes-embedded-resource is true without \
                    x-kubernetes-preserve-unknown-fields";
        errors.required(path.child("properties"), text);
    }
}

fn int_or_string_branches() -> [Value; 2] {
    [json!({"type": "integer"}), json!({"type": "string"})]
}

fn check_type(node: Node<'_>, level: Level, path: &FieldPath, errors: &mut Found) {
    let kind = node.text("type");
    let path = path.child("type");
    if node.flag("x-kubernetes-embedded-resource") && kind != "object" {
        let text = "must be object if x-kubernetes-embedded-resource is true";
        if kind.is_empty() {
            errors.required(path, text);
        } else {
            errors.invalid(path, kind, text);
        }
    } else if kind.is_empty()
        && !node.flag("x-kubernetes-int-or-string")
        && !node.flag("x-kubernetes-preserve-unknown-fields")
    {
        let text = match level {
            Level::Root => "must not be empty at the root",
            Level::Item => "must not be empty for specified array items",
            Level::Field => "must not be empty for specified object fields",
        };
        errors.required(path, text);
    }
}

/// `kind`, `apiVersion` and `metadata` of a whole object are implied; little may be said about them.
fn check_metadata(node: Node<'_>, level: Level, path: &FieldPath, errors: &mut Found) {
    let is_object = level == Level::Root || node.flag("x-kubernetes-embedded-resource");
    let properties = path.child("properties");
    for name in ["kind", "apiVersion"] {
        if let Some(kind) = node.property(name).map(|it| it.text("type"))
            && is_object
            && kind != "string"
        {
            errors.invalid(properties.key(name).child("type"), kind, "must be string");
        }
    }
    let Some(metadata) = node.property("metadata") else {
        return;
    };
    let path = properties.key("metadata");
    let kind = metadata.text("type");
    if is_object && kind != "object" {
        errors.invalid(path.child("type"), kind, "must be object");
    }
    let is_allowed = |(key, value): (&String, &Value)| match key.as_str() {
        "type" | "default" => true,
        "properties" => metadata
            .properties()
            .all(|(name, _)| matches!(name, "name" | "generateName")),
        _ => is_zero(value),
    };
    if level == Level::Root && !metadata.0.iter().all(is_allowed) {
        let text = "must not specify anything other than name and generateName, but metadata is implicitly specified";
        errors.forbidden(path, text);
    }
}

fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        Value::Object(map) => map.is_empty(),
        Value::Bool(true) | Value::Number(_) => false,
    }
}

fn extensions(node: Node<'_>, path: &FieldPath, errors: &mut Found) {
    for key in ["x-kubernetes-preserve-unknown-fields", "x-kubernetes-embedded-resource"] {
        if node.flag("x-kubernetes-int-or-string") && node.flag(key) {
            errors.invalid(
                path.child(key),
                true,
                "must be false if x-kubernetes-int-or-string is true",
            );
        }
    }
}

fn value_validation(
    node: Node<'_>,
    skips_any_of: bool,
    skips_first_all_of: bool,
    path: &FieldPath,
    errors: &mut Found,
) {
    for (junctor, index, branch) in node.branches() {
        let path = match index {
            Some(index) => path.child(junctor).index(index),
            None => path.child(junctor),
        };
        match junctor {
            "anyOf" if skips_any_of => {}
            "allOf" => nested(branch, skips_first_all_of && index == Some(0), &path, errors),
            _ => nested(branch, false, &path, errors),
        }
    }
    let pattern = node.text("pattern");
    if !pattern.is_empty()
        && let Some(error) = errors.pattern_error(pattern)
    {
        let text = format!("must be a valid regular expression, but isn't: {error}");
        errors.invalid(path.child("pattern"), pattern, text);
    }
}

/// Checks a schema inside a junctor: values are restricted there, not declared.
fn nested(node: Node<'_>, skips_any_of: bool, path: &FieldPath, errors: &mut Found) {
    value_validation(node, skips_any_of, false, path, errors);
    if let Some(items) = node.schema("items") {
        nested(items, false, &path.child("items"), errors);
    }
    for (name, property) in node.properties() {
        nested(property, false, &path.child("properties").key(name), errors);
    }
    const FORBIDDEN: [(&str, &str); 13] = [
        ("type", "must be empty to be structural"),
        ("additionalProperties", "must be undefined to be structural"),
        ("default", "must be undefined to be structural"),
        ("title", "must be empty to be structural"),
        ("description", "must be empty to be structural"),
        ("nullable", "must be false to be structural"),
        ("x-kubernetes-preserve-unknown-fields", "must be false to be structural"),
        ("x-kubernetes-embedded-resource", "must be false to be structural"),
        ("x-kubernetes-int-or-string", "must be false to be structural"),
        ("x-kubernetes-list-map-keys", "must be empty to be structural"),
        ("x-kubernetes-list-type", "must be undefined to be structural"),
        ("x-kubernetes-map-type", "must be undefined to be structural"),
        ("x-kubernetes-validations", "must be empty to be structural"),
    ];
    for (key, text) in FORBIDDEN {
        let counts_when_set = matches!(key, "default" | "additionalProperties");
        if node
            .0
            .get(key)
            .is_some_and(|it| !it.is_null() && (counts_when_set || !is_zero(it)))
        {
            errors.forbidden(path.child(key), text);
        }
    }
    if node.property("metadata").is_some() {
        let text = "must not be specified in a nested context";
        errors.forbidden(path.child("properties").key("metadata"), text);
    }
}

/// Checks that every value restricted by a junctor is declared outside of it.
fn completeness(
    node: Node<'_>,
    declared: Option<Node<'_>>,
    declared_path: &FieldPath,
    path: &FieldPath,
    errors: &mut Found,
) {
    for (junctor, index, branch) in node.branches() {
        let path = match index {
            Some(index) => path.child(junctor).index(index),
            None => path.child(junctor),
        };
        nested_completeness(branch, declared, declared_path, &path, errors);
    }
}

fn nested_completeness(
    node: Node<'_>,
    declared: Option<Node<'_>>,
    declared_path: &FieldPath,
    path: &FieldPath,
    errors: &mut Found,
) {
    let Some(declared) = declared else {
        return errors.required(declared_path.clone(), format!("because it is defined in {path}"));
    };
    completeness(node, Some(declared), declared_path, path, errors);
    if let Some(items) = node.schema("items") {
        let (there, here) = (declared_path.child("items"), path.child("items"));
        nested_completeness(items, declared.schema("items"), &there, &here, errors);
    }
    for (name, property) in node.properties() {
        let there = declared_path.child("properties").key(name);
        let here = path.child("properties").key(name);
        nested_completeness(property, declared.property(name), &there, &here, errors);
    }
}
