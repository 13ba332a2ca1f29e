//! `x-kubernetes-validations`: what can be checked of a rule without evaluating it (rule O8).

use serde_json::Value;

use super::node::Node;
use crate::api::field::{FieldErrors, FieldPath};

const REASONS: [&str; 4] = [
    "FieldValueDuplicate",
    "FieldValueForbidden",
    "FieldValueInvalid",
    "FieldValueRequired",
];

/// Checks the rules of one schema.
pub(super) fn validate(node: Node<'_>, path: &FieldPath, errors: &mut FieldErrors) {
    for (index, rule) in node.list("x-kubernetes-validations").iter().enumerate() {
        let Some(rule) = rule.as_object().map(Node) else {
            continue;
        };
        check(rule, &path.child("x-kubernetes-validations").index(index), errors);
    }
}

fn check(rule: Node<'_>, path: &FieldPath, errors: &mut FieldErrors) {
    let is_blank = |text: &str| !text.is_empty() && text.trim().is_empty();
    let has_break = |text: &str| text.contains(['\n', '\r']);
    let (expression, message) = (rule.text("rule"), rule.text("message"));
    if expression.trim().is_empty() {
        errors.required(path.child("rule"), "rule is not specified");
    } else if is_blank(message) {
        errors.invalid(path.child("message"), message, "must be non-empty if specified");
    } else if has_break(message.trim()) {
        errors.invalid(path.child("message"), message, "must not contain line breaks");
    } else if has_break(expression.trim()) && message.trim().is_empty() {
        let text = "message must be specified if rule contains line breaks";
        errors.required(path.child("message"), text);
    }
    if is_blank(rule.text("messageExpression")) {
        let text = "messageExpression must be non-empty if specified";
        errors.required(path.child("messageExpression"), text);
    }
    if rule.has("reason") && !REASONS.contains(&rule.text("reason")) {
        errors.not_supported(path.child("reason"), rule.text("reason"), &REASONS);
    }
    let field_path = rule.text("fieldPath");
    if is_blank(field_path) {
        errors.invalid(path.child("fieldPath"), field_path, "must be non-empty if specified");
    }
    if has_break(field_path) {
        errors.invalid(path.child("fieldPath"), field_path, "must not contain line breaks");
    }
}

/// The rules of a schema and all below.
pub(super) fn all<'a>(schema: &'a Value, out: &mut Vec<&'a str>) {
    let Some(node) = schema.as_object().map(Node) else {
        return;
    };
    node.visit(&mut |node| {
        let rules = node.list("x-kubernetes-validations").iter();
        out.extend(rules.filter_map(|rule| rule.get("rule")?.as_str()));
    });
}
