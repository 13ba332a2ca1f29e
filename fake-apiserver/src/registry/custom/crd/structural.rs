//! Structural schemas (rule O4): every value has exactly one type, declared outside of `allOf`, `anyOf`, `oneOf` and
//! `not`.

use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut};

use crate::api::field::FieldErrors;
use crate::api::json::{SmolStr, Value, json};
use crate::registry::types::cursor::Cursor;
use crate::registry::types::pattern::Pattern;

/// Checks a root schema. Returns the errors sorted by message.
pub(super) fn validate(node: &Cursor<'_>) -> FieldErrors {
    let mut errors = Found::default();
    invariants(node, Level::Root, &mut errors);
    completeness(node, node, &mut errors);
    let mut sorted: Vec<_> = errors.iter().map(|error| (error.to_string(), error.clone())).collect();
    sorted.sort_by(|a, b| a.0.cmp(&b.0));
    let mut errors = FieldErrors::new();
    sorted.into_iter().for_each(|(_, error)| errors.push(error));
    errors
}

/// Errors found so far, with a cache for patterns.
#[derive(Default)]
struct Found {
    errors: FieldErrors,
    /// Errors of patterns; cached, because schemas often repeat a pattern.
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

fn invariants(node: &Cursor<'_>, level: Level, errors: &mut Found) {
    let kind = node.text("type");
    match node.schema("items") {
        Some(items) => invariants(&items, Level::Item, errors),
        None if kind == "array" => errors.required(node.at("items"), "must be specified"),
        None => {}
    }
    for (_, property) in node.properties() {
        invariants(&property, Level::Field, errors);
    }
    let additional = node.at("additionalProperties");
    if additional.is_set("") && level == Level::Root {
        errors.forbidden(additional, "must not be used at the root");
    }
    if let Some(schema) = node.schema("additionalProperties") {
        invariants(&schema, Level::Field, errors);
    }
    extensions(node, errors);
    let int_or_string = |list: &[Value]| list == int_or_string_branches();
    let skips_any_of = int_or_string(node.list("anyOf"));
    let first_all_of = node.items("allOf").next();
    let skips_first = first_all_of.is_some_and(|it| int_or_string(it.list("anyOf")));
    value_validation(node, skips_any_of, skips_first, errors);
    let embedded = node.is_true("x-kubernetes-embedded-resource");
    check_type(node, level, errors);
    if embedded && additional.is_set("") {
        let text = "must not be used if x-kubernetes-embedded-resource is set";
        errors.forbidden(additional, text);
    }
    if level == Level::Root && !kind.is_empty() && kind != "object" {
        errors.invalid(node.at("type"), kind, "must be object at the root");
    }
    check_metadata(node, level, errors);
    let preserves = node.is_true("x-kubernetes-preserve-unknown-fields");
    if embedded && !preserves && node.properties().next().is_none() {
        let text = "must not be empty if x-kubernetes-embedded-resource is true without \
                    x-kubernetes-preserve-unknown-fields";
        errors.required(node.at("properties"), text);
    }
}

fn int_or_string_branches() -> [Value; 2] {
    [json!({"type": "integer"}), json!({"type": "string"})]
}

fn check_type(node: &Cursor<'_>, level: Level, errors: &mut Found) {
    let kind = node.text("type");
    let path = node.at("type");
    if node.is_true("x-kubernetes-embedded-resource") && kind != "object" {
        let text = "must be object if x-kubernetes-embedded-resource is true";
        if kind.is_empty() {
            errors.required(path, text);
        } else {
            errors.invalid(path, kind, text);
        }
    } else if kind.is_empty()
        && !node.is_true("x-kubernetes-int-or-string")
        && !node.is_true("x-kubernetes-preserve-unknown-fields")
    {
        let text = match level {
            Level::Root => "must not be empty at the root",
            Level::Item => "must not be empty for specified array items",
            Level::Field => "must not be empty for specified object fields",
        };
        errors.required(path, text);
    }
}

/// Checks the schemas of `kind`, `apiVersion` and `metadata` of the root or of an embedded resource. These fields are
/// declared implicitly, and schemas may only restrict them slightly.
fn check_metadata(node: &Cursor<'_>, level: Level, errors: &mut Found) {
    let is_object = level == Level::Root || node.is_true("x-kubernetes-embedded-resource");
    for name in ["kind", "apiVersion"] {
        if let Some(property) = node.property(name).filter(|_| is_object)
            && property.text("type") != "string"
        {
            errors.invalid(property.at("type"), property.text("type"), "must be string");
        }
    }
    let Some(metadata) = node.property("metadata") else {
        return;
    };
    let kind = metadata.text("type");
    if is_object && kind != "object" {
        errors.invalid(metadata.at("type"), kind, "must be object");
    }
    let is_allowed = |(key, value): (&SmolStr, &Value)| match key.as_str() {
        "type" | "default" => true,
        "properties" => metadata
            .properties()
            .all(|(name, _)| matches!(name, "name" | "generateName")),
        _ => is_zero(value),
    };
    if level == Level::Root && !metadata.map_or_empty("").iter().all(is_allowed) {
        let text = "must not specify anything other than name and generateName, but metadata is implicitly specified";
        errors.forbidden(metadata, text);
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

fn extensions(node: &Cursor<'_>, errors: &mut Found) {
    for key in ["x-kubernetes-preserve-unknown-fields", "x-kubernetes-embedded-resource"] {
        if node.is_true("x-kubernetes-int-or-string") && node.is_true(key) {
            errors.invalid(
                node.at(key),
                true,
                "must be false if x-kubernetes-int-or-string is true",
            );
        }
    }
}

fn value_validation(node: &Cursor<'_>, skips_any_of: bool, skips_first_all_of: bool, errors: &mut Found) {
    for (junctor, index, branch) in node.branches() {
        match junctor {
            "anyOf" if skips_any_of => {}
            "allOf" => nested(&branch, skips_first_all_of && index == Some(0), errors),
            _ => nested(&branch, false, errors),
        }
    }
    let pattern = node.text("pattern");
    if !pattern.is_empty()
        && let Some(error) = errors.pattern_error(pattern)
    {
        let text = format!("must be a valid regular expression, but isn't: {error}");
        errors.invalid(node.at("pattern"), pattern, text);
    }
}

/// Checks a schema inside a junctor (such as `allOf`), which may restrict values but not declare them.
fn nested(node: &Cursor<'_>, skips_any_of: bool, errors: &mut Found) {
    value_validation(node, skips_any_of, false, errors);
    if let Some(items) = node.schema("items") {
        nested(&items, false, errors);
    }
    for (_, property) in node.properties() {
        nested(&property, false, errors);
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
        if node.get(key).is_some_and(|it| counts_when_set || !is_zero(it)) {
            errors.forbidden(node.at(key), text);
        }
    }
    if let Some(metadata) = node.property("metadata") {
        errors.forbidden(metadata, "must not be specified in a nested context");
    }
}

/// Checks that every value restricted inside a junctor (such as `allOf`) is declared outside of it.
fn completeness(node: &Cursor<'_>, declared: &Cursor<'_>, errors: &mut Found) {
    for (_, _, branch) in node.branches() {
        nested_completeness(&branch, declared, errors);
    }
}

fn nested_completeness(node: &Cursor<'_>, declared: &Cursor<'_>, errors: &mut Found) {
    if declared.map("").is_none() {
        return errors.required(declared, format!("because it is defined in {}", node.path()));
    }
    completeness(node, declared, errors);
    if let Some(items) = node.schema("items") {
        nested_completeness(&items, &declared.at("items"), errors);
    }
    for (name, property) in node.properties() {
        nested_completeness(&property, &declared.entry_of("properties", name), errors);
    }
}
