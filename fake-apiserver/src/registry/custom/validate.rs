//! Validation of a value against its schema, with kube-apiserver's errors (rule O7) and ratcheting (rule O9).

use std::collections::BTreeSet;

use serde_json::Number;

use super::json_type::JsonType;
use super::keyed_items::KeyedItems;
use super::number::{Problem, integer, is_whole, problems};
use super::path::Path;
use super::properties::FieldsInOrder;
use super::schema::{Additional, ListKind, Structural};
use crate::api::field::{FieldError, FieldErrorKind, FieldErrors, quote};
use crate::api::json::{Map, Value};
use crate::api::object::Beside;
use crate::registry::types::cursor::Cursor;

/// Checks the value at a cursor against `schema`. In an update, `old` is the stored value, and errors in unchanged
/// values are ignored.
pub(super) fn validate(schema: &Structural, value: &Cursor<'_>, old: Option<&Value>) -> FieldErrors {
    let mut outcome = Outcome::default();
    let view = value.get("").map_or(ValueView::Null, ValueView::from);
    check(schema, view, old.map(ValueView::from), &Path::Root, &mut outcome);
    outcome.into_errors(value)
}

/// Checks the default at a cursor against `schema`. As in Go, integers or strings have no type in this check.
pub(super) fn validate_default(schema: &Structural, default: &Cursor<'_>) -> FieldErrors {
    let mut outcome = Outcome {
        is_default: true,
        ..Outcome::default()
    };
    let view = default.get("").map_or(ValueView::Null, ValueView::from);
    check(schema, view, None, &Path::Root, &mut outcome);
    outcome.into_errors(default)
}

/// Checks a complete object against `schema`.
pub(super) fn validate_object(schema: &Structural, object: &Map, old: Option<&Map>) -> FieldErrors {
    let mut outcome = Outcome::default();
    check(
        schema,
        ValueView::Object(object),
        old.map(ValueView::Object),
        &Path::Root,
        &mut outcome,
    );
    outcome.into_errors(&Cursor::root(object))
}

/// A borrowed JSON value. Complete objects are a `Map` instead of a `Value`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum ValueView<'a> {
    Null,
    Bool(bool),
    Number(&'a Number),
    String(&'a str),
    Array(&'a [Value]),
    Object(&'a Map),
}

impl<'a> From<&'a Value> for ValueView<'a> {
    fn from(value: &'a Value) -> Self {
        match value {
            Value::Null => ValueView::Null,
            Value::Bool(value) => ValueView::Bool(*value),
            Value::Number(number) => ValueView::Number(number),
            Value::String(text) => ValueView::String(text),
            Value::Array(list) => ValueView::Array(list),
            Value::Object(map) => ValueView::Object(map),
        }
    }
}

impl<'a> ValueView<'a> {
    pub(super) fn to_value(self) -> Value {
        match self {
            ValueView::Null => Value::Null,
            ValueView::Bool(value) => Value::Bool(value),
            ValueView::Number(number) => Value::Number(number.clone()),
            ValueView::String(text) => Value::from(text),
            ValueView::Array(list) => Value::from(list),
            ValueView::Object(map) => Value::Object(map.clone()),
        }
    }

    pub(super) fn get(self, name: &str) -> Option<&'a Value> {
        match self {
            ValueView::Object(map) => map.get(name),
            ValueView::Null
            | ValueView::Bool(_)
            | ValueView::Number(_)
            | ValueView::String(_)
            | ValueView::Array(_) => None,
        }
    }
}

/// The errors found in a value, and the number of passed checks.
#[derive(Debug, Default)]
struct Outcome {
    findings: Vec<Finding>,
    /// Number of passed checks. `anyOf` and `oneOf` report the errors of the branch with the highest number.
    matches: u32,
    /// Set if the value is a default.
    is_default: bool,
}

#[derive(Debug)]
struct Finding {
    /// Path within the validated value; `None` if the error does not contain a path.
    path: Option<String>,
    kind: FieldErrorKind,
    value: Option<Value>,
    text: String,
}

impl Finding {
    fn field_error(&self, base: &Cursor<'_>) -> FieldError {
        let path = match self.path.as_deref() {
            None | Some("") => base.path(),
            Some(path) => base.path().child(path.trim_start_matches('.')),
        };
        let detail = match self.kind {
            FieldErrorKind::Required => String::new(),
            _ => self.text.clone(),
        };
        match self.kind {
            FieldErrorKind::NotSupported | FieldErrorKind::TooLong | FieldErrorKind::TooMany => FieldError {
                path,
                kind: self.kind,
                value: self.value.clone(),
                // The part before the separator only distinguishes errors.
                detail: detail
                    .split_once('\0')
                    .map_or_else(String::new, |(_, shown)| shown.to_owned()),
            },
            kind => FieldError {
                path,
                kind,
                value: self.value.clone(),
                detail,
            },
        }
    }
}

impl Outcome {
    fn into_errors(self, base: &Cursor<'_>) -> FieldErrors {
        let mut errors = FieldErrors::new();
        // Errors with the same message are only reported once, even for different values.
        let mut seen: BTreeSet<&str> = BTreeSet::new();
        for finding in &self.findings {
            if seen.insert(&finding.text) {
                errors.push(finding.field_error(base));
            }
        }
        errors
    }

    fn find(&mut self, path: String, kind: FieldErrorKind, value: Option<Value>, text: String) {
        let path = Some(path);
        self.findings.push(Finding {
            path,
            kind,
            value,
            text,
        });
    }

    fn invalid(&mut self, path: &Path<'_>, value: Value, what: &str) {
        let path = path.text();
        let text = format!("{path} in body {what}");
        self.find(path, FieldErrorKind::Invalid, Some(value), text);
    }

    fn type_invalid(&mut self, path: &Path<'_>, wanted: &str, found: &str) {
        let path = path.text();
        let text = format!("{path} in body must be of type {wanted}: {}", quote(found));
        self.find(path, FieldErrorKind::TypeInvalid, Some(Value::from(found)), text);
    }

    /// Adds an error that is printed without the path of the field.
    fn plain(&mut self, text: String) {
        self.findings.push(Finding {
            path: None,
            kind: FieldErrorKind::Invalid,
            value: Some(Value::from("")),
            text,
        });
    }

    fn too_many(&mut self, path: &Path<'_>, found: usize, most: u64, things: &str) {
        let path = path.text();
        let items = if most == 1 { "item" } else { "items" };
        let text = format!("{path} in body should have at most {most} {things}\0must have at most {most} {items}");
        self.find(path, FieldErrorKind::TooMany, Some(found.into()), text);
    }

    fn absorb(&mut self, other: Outcome) {
        self.findings.extend(other.findings);
        self.matches += other.matches;
    }
}

fn check(node: &Structural, value: ValueView<'_>, old: Option<ValueView<'_>>, path: &Path<'_>, out: &mut Outcome) {
    let before = out.findings.len();
    check_type(node, value, path, out);
    if value == ValueView::Null {
        check_allowed(node, value, path, out);
    } else {
        out.matches += 3 + u32::from(node.kind.is_some() || node.int_or_string);
        check_junctors(node, value, path, out);
        match value {
            ValueView::String(text) => check_string(node, text, path, out),
            ValueView::Number(number) => check_number(node, number, path, out),
            ValueView::Array(list) => check_list(node, list, old, path, out),
            ValueView::Object(_) | ValueView::Bool(_) | ValueView::Null => {}
        }
        check_allowed(node, value, path, out);
        if let ValueView::Object(map) = value {
            check_object(node, map, old, path, out);
        }
    }
    if out.findings.len() > before && old.is_some_and(|old| is_unchanged(node, value, old)) {
        out.findings.truncate(before);
    }
}

fn check_type(node: &Structural, value: ValueView<'_>, path: &Path<'_>, out: &mut Outcome) {
    let names = match node.int_or_string {
        true if out.is_default => "",
        true => "integer,string",
        false => node.kind.map_or("", JsonType::name),
    };
    let accepts = |kind: JsonType| match node.int_or_string {
        true => matches!(kind, JsonType::Integer | JsonType::String),
        false => node.kind == Some(kind),
    };
    let format = node.checks.format.as_ref();
    let (kind, found_format) = match value {
        ValueView::Null => {
            if !names.is_empty() && !node.nullable {
                out.type_invalid(path, names, "null");
            }
            return;
        }
        ValueView::Bool(_) => (JsonType::Boolean, ""),
        ValueView::String(_) => (JsonType::String, ""),
        ValueView::Array(_) => (JsonType::Array, ""),
        ValueView::Object(_) => (JsonType::Object, ""),
        // As in Go, numbers that do not fit into a signed 64-bit integer are floats.
        ValueView::Number(number) if integer(number).is_some() => (JsonType::Integer, "int64"),
        ValueView::Number(_) => (JsonType::Number, "float64"),
    };
    if names.is_empty() && format.is_none() {
        return;
    }
    let whole = match value {
        ValueView::Number(number) => kind == JsonType::Number && number.as_f64().is_some_and(is_whole),
        _ => false,
    };
    let fits = accepts(kind)
        || (whole && accepts(JsonType::Integer))
        || (kind == JsonType::Integer && accepts(JsonType::Number));
    if let Some(format) = format {
        let is_text = matches!(kind, JsonType::String | JsonType::Array);
        if !is_text && !fits && format.name() != found_format {
            return out.type_invalid(path, format.name(), found_format);
        }
        if is_text && !accepts(JsonType::Number) && !accepts(JsonType::Integer) {
            out.matches += 1;
            return;
        }
    }
    if fits {
        out.matches += 1;
    } else {
        out.type_invalid(path, names, kind.name());
    }
}

/// Checks `anyOf`, `oneOf`, `allOf` and `not`. Errors inside them are not ratcheted.
fn check_junctors(node: &Structural, value: ValueView<'_>, path: &Path<'_>, out: &mut Outcome) {
    let checks = &node.checks;
    let branch = |schema: &Structural| {
        let mut outcome = Outcome::default();
        check(schema, value, None, path, &mut outcome);
        outcome
    };
    if !checks.any_of.is_empty() {
        let outcomes = checks.any_of.iter().map(branch);
        let (valid, shown) = best(outcomes, true);
        if valid == 0 {
            out.plain(format!(
                "{} must validate at least one schema (anyOf)",
                quote(&path.text())
            ));
        }
        out.absorb(shown);
    }
    if !checks.one_of.is_empty() {
        let (valid, shown) = best(checks.one_of.iter().map(branch), false);
        if valid != 1 {
            let found = if valid == 0 {
                "Found none valid".to_owned()
            } else {
                format!("Found {valid} valid alternatives")
            };
            let path = quote(&path.text());
            out.plain(format!("{path} must validate one and only one schema (oneOf). {found}"));
        }
        if valid < 2 {
            out.absorb(shown);
        }
    }
    if !checks.all_of.is_empty() {
        let outcomes: Vec<Outcome> = checks.all_of.iter().map(branch).collect();
        let valid = outcomes.iter().filter(|it| it.findings.is_empty()).count();
        let total = outcomes.len();
        outcomes.into_iter().for_each(|it| out.absorb(it));
        if valid != total {
            let none = if valid == 0 { ". None validated" } else { "" };
            let path = quote(&path.text());
            out.plain(format!("{path} must validate all the schemas (allOf){none}"));
        }
    }
    if let Some(not) = &checks.not
        && branch(not).findings.is_empty()
    {
        out.plain(format!("{} must not validate the schema (not)", quote(&path.text())));
    }
}

/// Returns the number of valid branches, and the outcome to report: of the first valid branch, or else of the branch
/// with the most passed checks.
fn best(outcomes: impl Iterator<Item = Outcome>, stop_at_first: bool) -> (usize, Outcome) {
    let mut valid = 0;
    let mut shown: Option<Outcome> = None;
    for outcome in outcomes {
        if outcome.findings.is_empty() {
            valid += 1;
            if valid == 1 {
                shown = Some(outcome);
            }
            if stop_at_first {
                break;
            }
        } else if valid == 0 && shown.as_ref().is_none_or(|it| outcome.matches > it.matches) {
            shown = Some(outcome);
        }
    }
    (valid, shown.unwrap_or_default())
}

fn check_string(node: &Structural, text: &str, path: &Path<'_>, out: &mut Outcome) {
    let checks = &node.checks;
    let length = if checks.max_length.is_some() || checks.min_length.is_some() {
        text.chars().count() as u64
    } else {
        0
    };
    if let Some(most) = checks.max_length.filter(|most| length > *most) {
        let path = path.text();
        let text = format!("{path} in body should be at most {most} chars long\0may not be more than {most} bytes");
        out.find(path, FieldErrorKind::TooLong, None, text);
    } else if let Some(least) = checks.min_length.filter(|least| length < *least) {
        out.invalid(path, text.into(), &format!("should be at least {least} chars long"));
    } else if let Some(pattern) = &checks.pattern {
        match pattern.is_match(text) {
            Ok(true) => {}
            Ok(false) => out.invalid(path, text.into(), &format!("should match '{}'", pattern.text())),
            Err(error) => {
                let what = format!("should match '{}, but pattern is invalid: {error}'", pattern.text());
                out.invalid(path, text.into(), &what);
            }
        }
    }
    if let Some(format) = &checks.format
        && format.is_for_strings()
        && !format.accepts(text)
    {
        out.type_invalid(path, format.name(), text);
    }
}

fn check_number(node: &Structural, number: &Number, path: &Path<'_>, out: &mut Outcome) {
    let kind = node.kind.filter(|_| !node.int_or_string);
    for problem in problems(&node.checks, kind, number) {
        match problem {
            Problem::Range(text) => out.plain(text + &path.text()),
            Problem::Bound(what) => out.invalid(path, Value::Number(number.clone()), &what),
            Problem::Factor(factor) => {
                let path = path.text();
                let text = format!("factor MultipleOf declared for {path} must be positive: {factor}");
                // The error contains the factor as its value.
                let shown = serde_json::from_str(&factor).unwrap_or(Value::Null);
                out.find(path, FieldErrorKind::Invalid, Some(shown), text);
            }
        }
    }
}

fn check_list(node: &Structural, list: &[Value], old: Option<ValueView<'_>>, path: &Path<'_>, out: &mut Outcome) {
    let checks = &node.checks;
    if let Some(items) = &node.items {
        let stored = old.and_then(|old| old_items(node, old));
        for (index, item) in list.iter().enumerate() {
            let old_item = stored.as_ref().and_then(|it| it.get(index, item));
            check(
                items,
                item.into(),
                old_item.map(ValueView::from),
                &path.index(index),
                out,
            );
        }
    }
    if let Some(least) = checks.min_items.filter(|least| (list.len() as u64) < *least) {
        out.invalid(path, list.len().into(), &format!("should have at least {least} items"));
    }
    if let Some(most) = checks.max_items.filter(|most| list.len() as u64 > *most) {
        out.too_many(path, list.len(), most, "items");
    }
    out.matches += 1;
}

fn check_object(node: &Structural, map: &Map, old: Option<ValueView<'_>>, path: &Path<'_>, out: &mut Outcome) {
    let checks = &node.checks;
    if let Some(least) = checks.min_properties.filter(|least| (map.len() as u64) < *least) {
        out.invalid(
            path,
            map.len().into(),
            &format!("should have at least {least} properties"),
        );
    }
    if let Some(most) = checks.max_properties.filter(|most| map.len() as u64 > *most) {
        out.too_many(path, map.len(), most, "properties");
    }
    let mut fields = FieldsInOrder::of(node);
    let old_map = match old {
        Some(ValueView::Object(old)) => Some(old),
        Some(
            ValueView::Null | ValueView::Bool(_) | ValueView::Number(_) | ValueView::String(_) | ValueView::Array(_),
        )
        | None => None,
    };
    let mut old_fields = old_map.map(Beside::new);
    for (name, value) in map.iter() {
        let (child, below) = match (fields.declared(name), &node.additional) {
            (Some(child), _) => (child, path.field(name)),
            (None, Additional::Schema(child)) => (&**child, path.entry(name)),
            (None, Additional::Bool(false)) => {
                let text = format!("{}.{name} in body is a forbidden property", path.text());
                out.find(path.text(), FieldErrorKind::Invalid, Some(name.as_str().into()), text);
                continue;
            }
            (None, Additional::Unset | Additional::Bool(true)) => continue,
        };
        let is_type_meta = path.is_root() && matches!(name.as_str(), "kind" | "apiVersion");
        let old_value = old_fields
            .as_mut()
            .and_then(|old| old.get(name))
            .filter(|_| !is_type_meta);
        check(child, value.into(), old_value.map(ValueView::from), &below, out);
    }
    for name in &checks.required {
        if !map.contains_key(name) {
            let path = path.field(name).text();
            let text = format!("{path} in body is required");
            out.find(path, FieldErrorKind::Required, None, text);
        }
    }
}

/// Checks `enum`.
fn check_allowed(node: &Structural, value: ValueView<'_>, path: &Path<'_>, out: &mut Outcome) {
    let allowed = &node.checks.allowed;
    if allowed.is_empty() || allowed.iter().any(|it| is_same(it, value)) {
        return;
    }
    let shown: Vec<String> = allowed
        .iter()
        .map(|it| quote(&it.as_str().map_or_else(|| it.to_string(), str::to_owned)))
        .collect();
    let path = path.text();
    let text = format!(
        "{path} in body should be one of\0supported values: {}",
        shown.join(", ")
    );
    out.find(path, FieldErrorKind::NotSupported, Some(value.to_value()), text);
}

/// Returns `true` if a value equals a value in the schema; null does not equal anything. As in Go, the value is first
/// converted to the type of the value in the schema: a number to an integer, and an integer to a character.
#[expect(clippy::cast_possible_truncation, reason = "Go truncates as well")]
fn is_same(allowed: &Value, value: ValueView<'_>) -> bool {
    match (ValueView::from(allowed), value) {
        (ValueView::Null, _) => false,
        (ValueView::Number(a), ValueView::Number(b)) => match (a.as_i64(), b.as_i64()) {
            (Some(a), Some(b)) => a == b,
            (Some(a), None) => b.as_f64().is_some_and(|b| a == b as i64),
            (None, _) => a.as_f64() == b.as_f64(),
        },
        (ValueView::String(text), ValueView::Number(number)) => number.as_i64().is_some_and(|number| {
            let character = u32::try_from(number).ok().and_then(char::from_u32);
            text == character
                .unwrap_or(char::REPLACEMENT_CHARACTER)
                .encode_utf8(&mut [0; 4])
        }),
        (allowed, value) => allowed == value,
    }
}

/// Returns the stored items of a list of type `map`. Items of other lists are not matched to stored items.
pub(super) fn old_items<'a>(node: &'a Structural, old: ValueView<'a>) -> Option<KeyedItems<'a>> {
    let (ListKind::Map(keys), ValueView::Array(old)) = (&node.list, old) else {
        return None;
    };
    Some(KeyedItems::new(keys, old))
}

/// Returns `true` if a value is unchanged, as far as the schema permits the comparison. An undeclared field, or an item
/// with new keys, is treated as a change.
pub(super) fn is_unchanged(node: &Structural, value: ValueView<'_>, old: ValueView<'_>) -> bool {
    match (value, old) {
        (ValueView::Object(map), ValueView::Object(old_map)) => {
            let mut fields = FieldsInOrder::of(node);
            let mut both = map.iter().zip(old_map.iter());
            map.len() == old_map.len()
                && both.all(|((name, value), (old_name, old))| {
                    let child = fields.child(name).filter(|_| name == old_name);
                    child.is_some_and(|child| is_unchanged(child, value.into(), old.into()))
                })
        }
        (ValueView::Array(list), ValueView::Array(old_list)) => match (&node.list, node.items.as_deref()) {
            (ListKind::Map(keys), Some(items)) => {
                let stored = KeyedItems::new(keys, old_list);
                let is_unchanged = |(index, item): (usize, &Value)| {
                    let old = stored.get(index, item);
                    old.is_some_and(|old| is_unchanged(items, item.into(), old.into()))
                };
                list.len() == old_list.len() && list.iter().enumerate().all(is_unchanged)
            }
            _ => list == old_list,
        },
        (value, old) => value == old,
    }
}

#[cfg(test)]
mod tests {
    use crate::api::json::json;

    use super::*;

    fn errors(schema: Value, value: Value) -> Vec<String> {
        let schema = Structural::parse_root(&Cursor::document(&schema));
        let found = validate(&schema, &Cursor::document(&value), None);
        found.iter().map(ToString::to_string).collect()
    }

    fn spec_errors(spec: Value, value: Value) -> Vec<String> {
        errors(
            json!({"type": "object", "properties": {"spec": {"type": "object", "properties": spec}}}),
            json!({"apiVersion": "a/v1", "kind": "K", "metadata": {"name": "a"}, "spec": value}),
        )
    }

    #[rstest::rstest]
    #[case(json!("x"), &["spec.i: Invalid value: \"string\": spec.i in body must be of type integer: \"string\""])]
    #[case(json!(true), &["spec.i: Invalid value: \"boolean\": spec.i in body must be of type integer: \"boolean\""])]
    #[case(json!(null), &["spec.i: Invalid value: \"null\": spec.i in body must be of type integer: \"null\""])]
    #[case(json!(1.5), &["spec.i: Invalid value: \"number\": spec.i in body must be of type integer: \"number\"",
        "<nil>: Invalid value: \"\": Checked value must be of type integer (default format) in spec.i"])]
    fn o7_wrong_types_are_errors(#[case] value: Value, #[case] expected: &[&str]) {
        assert_eq!(
            spec_errors(json!({"i": {"type": "integer"}}), json!({"i": value})),
            expected
        );
    }

    #[rstest::rstest]
    #[case(json!({"a": 0}), "spec.a: Invalid value: 0: spec.a in body should be greater than or equal to 1")]
    #[case(json!({"a": 11}), "spec.a: Invalid value: 11: spec.a in body should be less than or equal to 10")]
    #[case(json!({"x": 0}), "spec.x: Invalid value: 0: spec.x in body should be greater than 0")]
    #[case(json!({"x": 1}), "spec.x: Invalid value: 1: spec.x in body should be less than 1")]
    #[case(json!({"m": 7}), "spec.m: Invalid value: 7: spec.m in body should be a multiple of 5")]
    #[case(json!({"f": 2147483648u64}),
        "<nil>: Invalid value: \"\": Checked value must be of type integer with format int32 in spec.f")]
    #[case(json!({"s": "x"}), "spec.s: Invalid value: \"x\": spec.s in body should be at least 2 chars long")]
    #[case(json!({"s": "xxxxx"}), "spec.s: Too long: may not be more than 4 bytes")]
    #[case(json!({"p": "A1"}), "spec.p: Invalid value: \"A1\": spec.p in body should match '^[a-z]+$'")]
    #[case(json!({"e": "z"}), "spec.e: Unsupported value: \"z\": supported values: \"a\", \"b\"")]
    #[case(json!({"l": [1, 2]}), "spec.l: Too many: 2: must have at most 1 item")]
    #[case(json!({"l": []}), "spec.l: Invalid value: 0: spec.l in body should have at least 1 items")]
    #[case(json!({"d": "x"}), "spec.d: Invalid value: \"x\": spec.d in body must be of type date: \"x\"")]
    #[case(json!({"t": {"a.b/c": {"v": 7}}}),
        "spec.t.a.b/c.v: Invalid value: 7: spec.t.a.b/c.v in body should be less than or equal to 3")]
    #[case(json!({"r": [{"n": "a"}, {}]}), "spec.r[1].n: Required value")]
    fn o7_violations_have_the_same_messages_as_in_kube_openapi(#[case] value: Value, #[case] expected: &str) {
        let schema = json!({
            "a": {"type": "integer", "minimum": 1, "maximum": 10},
            "x": {"type": "number", "minimum": 0, "exclusiveMinimum": true, "maximum": 1, "exclusiveMaximum": true},
            "m": {"type": "integer", "multipleOf": 5},
            "f": {"type": "integer", "format": "int32"},
            "s": {"type": "string", "minLength": 2, "maxLength": 4},
            "p": {"type": "string", "pattern": "^[a-z]+$"},
            "e": {"type": "string", "enum": ["a", "b"]},
            "l": {"type": "array", "items": {"type": "integer"}, "maxItems": 1, "minItems": 1},
            "d": {"type": "string", "format": "date"},
            "t": {"type": "object", "additionalProperties":
                {"type": "object", "properties": {"v": {"type": "integer", "maximum": 3}}}},
            "r": {"type": "array", "items":
                {"type": "object", "properties": {"n": {"type": "string"}}, "required": ["n"]}},
        });
        assert_eq!(spec_errors(schema, value), [expected]);
    }

    #[test]
    fn o7_errors_have_the_same_order_as_in_kube_openapi() {
        let schema = json!({"l": {"type": "array", "items": {"type": "object", "required": ["a"], "properties": {
            "a": {"type": "integer", "minimum": 5, "multipleOf": 3},
            "c": {"type": "string", "enum": ["x"], "minLength": 2, "pattern": "^x"},
        }}}});
        let value = json!({"l": [{"a": 4}, {}, {"a": 6, "c": "y"}]});
        assert_eq!(
            spec_errors(schema, value),
            [
                "spec.l[0].a: Invalid value: 4: spec.l[0].a in body should be a multiple of 3",
                "spec.l[0].a: Invalid value: 4: spec.l[0].a in body should be greater than or equal to 5",
                "spec.l[1].a: Required value",
                "spec.l[2].c: Invalid value: \"y\": spec.l[2].c in body should be at least 2 chars long",
                "spec.l[2].c: Unsupported value: \"y\": supported values: \"x\"",
            ]
        );
    }

    #[test]
    fn o9_errors_in_unchanged_parts_are_ignored() {
        let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
            "a": {"type": "integer", "minimum": 5}, "c": {"type": "string"},
        }, "oneOf": [{"required": ["a"]}, {"required": ["b"]}]}}});
        let schema = Structural::parse_root(&Cursor::document(&schema));
        let check = |old: Value, new: Value| {
            let found = validate(&schema, &Cursor::document(&new), Some(&old));
            found.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        let old = json!({"spec": {"a": 1}});
        assert!(check(old.clone(), json!({"spec": {"a": 1, "c": "x"}})).is_empty());
        assert_eq!(check(old, json!({"spec": {"a": 2}})).len(), 1);
        let both = json!({"spec": {"c": "x"}});
        assert!(check(both.clone(), both.clone()).is_empty());
        assert_eq!(
            check(both, json!({"spec": {"c": "y"}})),
            [
                "<nil>: Invalid value: \"\": \"spec\" must validate one and only one schema (oneOf). Found none valid",
                "spec.a: Required value",
            ]
        );
    }
}
