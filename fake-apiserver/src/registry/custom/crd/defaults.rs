//! Checks that the defaults in a CRD's schemas are valid (rule O4).

use super::super::embedded;
use super::super::engine::{Declared, problem_of_rule};
use super::super::prune::prune_value;
use super::super::rules::{of_type, validate_default};
use super::super::schema::{Structural, is_meta_field};
use super::super::validate;
use crate::api::field::{FieldError, FieldErrorKind, FieldErrors, quote};
use crate::api::json::{Map, Value};
use crate::api::kubernetes_version::KubernetesVersion;
use crate::registry::types::cursor::Cursor;

/// Checks the defaults of a structural root schema, except in `additionalProperties`.
pub(super) fn validate(version: KubernetesVersion, schema: &Cursor<'_>) -> FieldErrors {
    let mut checks = Checks {
        version,
        errors: FieldErrors::new(),
    };
    let root = Structural::parse_root(schema);
    if root.below.defaults {
        checks.walk(&root, schema, false);
    }
    checks.errors
}

/// Decodes the metadata of embedded objects in the defaults of a schema. kube-apiserver's validation does this in
/// place, so that unknown fields are not stored.
pub(super) fn decode_embedded(schema: &mut Map) {
    let root = Structural::parse_root(&Cursor::root(schema));
    if root.below.defaults && root.below.embedded {
        decode(&root, schema, false);
    }
}

fn decode(node: &Structural, raw: &mut Map, in_metadata: bool) {
    let in_metadata = in_metadata && !node.is_embedded;
    if let (false, Some(default)) = (in_metadata, raw.get_mut("default")) {
        embedded::decode_default(default, node);
    }
    if let (Some(items), Some(Value::Object(raw))) = (&node.items, raw.get_mut("items")) {
        decode(items, raw, in_metadata);
    }
    let Some(Value::Object(properties)) = raw.get_mut("properties") else {
        return;
    };
    for (name, property) in node.properties.iter() {
        let in_metadata = in_metadata || (node.is_resource && is_meta_field(name));
        if let Some(Value::Object(raw)) = properties.get_mut(name) {
            decode(property, raw, in_metadata);
        }
    }
}

/// Checks the defaults of one schema, and collects the errors.
struct Checks {
    version: KubernetesVersion,
    errors: FieldErrors,
}

impl Checks {
    fn walk(&mut self, node: &Structural, raw: &Cursor<'_>, in_metadata: bool) {
        let in_metadata = in_metadata && !node.is_embedded;
        if let Some(default) = &node.default {
            self.check(node, raw, default, in_metadata);
        }
        if let (Some(items), Some(raw)) = (&node.items, raw.schema("items")) {
            self.walk(items, &raw, in_metadata);
        }
        for (name, property) in node.properties.iter() {
            let in_metadata = in_metadata || (node.is_resource && is_meta_field(name));
            if let Some(raw) = raw.property(name) {
                self.walk(property, &raw, in_metadata);
            }
        }
    }

    fn check(&mut self, node: &Structural, raw: &Cursor<'_>, default: &Value, in_metadata: bool) {
        let at = raw.at("default");
        if !in_metadata && !prune_value(&mut default.clone(), node).is_empty() {
            self.errors.invalid(at, default.clone(), "must not have unknown fields");
        }
        if !raw.text("type").is_empty() && node.kind.is_none() {
            return check_unknown_type(raw, default, &mut self.errors);
        }
        let mut found = FieldErrors::new();
        if !in_metadata {
            embedded::validate(&at, node, &mut found);
        }
        if found.is_empty() {
            found = validate::validate_default(node, &at);
        }
        if found.is_empty() {
            check_rules(self.version, node, raw, default, &mut found);
        }
        self.errors.extend(found);
    }
}

/// Refuses a default of a node with an unknown type. As in Go (`typeValidator` of `kube-openapi`), null is accepted, as
/// are strings and lists if a format is set. The error contains the format if it does not match, otherwise the type.
fn check_unknown_type(raw: &Cursor<'_>, default: &Value, errors: &mut FieldErrors) {
    let (kind, format) = (raw.text("type"), raw.text("format"));
    let (found, found_format) = match default {
        Value::Null => return,
        Value::Bool(_) => ("boolean", ""),
        Value::Number(number) if number.is_f64() => ("number", "float64"),
        Value::Number(_) => ("integer", "int64"),
        Value::String(_) => ("string", ""),
        Value::Array(_) => ("array", ""),
        Value::Object(_) => ("object", ""),
    };
    let has_format = !format.is_empty();
    let (wanted, found) = match default {
        Value::String(_) | Value::Array(_) if has_format => return,
        _ if has_format && format != found_format => (format, found_format),
        _ => (kind, found),
    };
    errors.push(FieldError {
        path: raw.at("default").path(),
        kind: FieldErrorKind::TypeInvalid,
        value: Some(found.into()),
        detail: format!(" in body must be of type {wanted}: {}", quote(found)),
    });
}

/// Checks a default against the rules of its schema, unless a rule does not compile.
fn check_rules(
    version: KubernetesVersion,
    node: &Structural,
    raw: &Cursor<'_>,
    default: &Value,
    errors: &mut FieldErrors,
) {
    if !node.below.rules {
        return;
    }
    let at = raw.at("default");
    let declared = (!node.rules.is_empty()).then(|| Declared::of_node(raw, node.is_resource, version));
    let mut has_problem = false;
    for rule in node.rules.iter().filter(|rule| !rule.text.trim().is_empty()) {
        let problem = declared
            .as_ref()
            .and_then(|it| problem_of_rule(&rule.text, rule.has_optional_old, it));
        if let Some(problem) = problem {
            has_problem = true;
            errors.push(of_type(at.path(), node, format!("rule compile error: {problem}")));
        }
    }
    if !has_problem {
        validate_default(node, default, &at.path(), errors);
    }
}
