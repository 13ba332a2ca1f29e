//! `x-kubernetes-validations`: what can be checked of a rule without evaluating it (rule O8).

use serde_json::Value;

use super::super::rules::mentions;
use super::node::Node;
use crate::api::field::{FieldErrors, FieldPath};
use crate::registry::metadata::invalid_printed;

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

/// Checks what rules mean, once nothing else is wrong with the schema: what cannot be parsed or evaluated is refused,
/// as is `oldSelf` where a value cannot be told from its neighbours over time.
pub(super) fn validate_meaning(node: Node<'_>, path: &FieldPath, lost: Option<&FieldPath>, errors: &mut FieldErrors) {
    let problem = problems(node);
    for (index, rule) in node.list("x-kubernetes-validations").iter().enumerate() {
        let path = path.child("x-kubernetes-validations").index(index).child("rule");
        let text = rule.get("rule").and_then(Value::as_str).unwrap_or_default();
        if let Some(lost) = lost.filter(|_| mentions(text, "oldSelf")) {
            let detail = format!("oldSelf cannot be used on the uncorrelatable portion of the schema within {lost}");
            errors.invalid(path.clone(), text, detail);
        }
        if let Some(problem) = problem(text) {
            invalid_printed(path, &print(rule), &problem, errors);
        }
    }
    let own = Some(path);
    if let Some(additional) = node.schema("additionalProperties") {
        validate_meaning(additional, &path.child("additionalProperties"), lost, errors);
    }
    let lost_in_map = lost.or(own.filter(|_| node.text("x-kubernetes-map-type") == "atomic"));
    for (name, property) in node.properties() {
        validate_meaning(property, &path.child("properties").key(name), lost_in_map, errors);
    }
    if let Some(items) = node.schema("items") {
        let lost = lost.or(own.filter(|_| node.text("x-kubernetes-list-type") != "map"));
        validate_meaning(items, &path.child("items"), lost, errors);
    }
}

/// What is wrong with a rule of this schema, which is read once for all of them.
#[cfg(feature = "cel")]
fn problems(node: Node<'_>) -> impl Fn(&str) -> Option<String> {
    use super::super::{compile, schema::Structural};
    let schema = std::cell::LazyCell::new(move || Structural::parse(&Value::Object(node.0.clone())));
    move |rule| compile::problem(rule, &schema)
}

#[cfg(not(feature = "cel"))]
fn problems(_: Node<'_>) -> impl Fn(&str) -> Option<String> {
    |_| None
}

/// A rule as Go prints its internal form.
fn print(rule: &Value) -> String {
    let json = |key: &str, absent: &str| {
        let text = rule.get(key).map_or_else(|| absent.to_owned(), Value::to_string);
        text.replace('<', "\\u003c")
            .replace('>', "\\u003e")
            .replace('&', "\\u0026")
    };
    format!(
        "{{\"Rule\":{},\"Message\":{},\"MessageExpression\":{},\"Reason\":{},\"FieldPath\":{},\"OptionalOldSelf\":{}}}",
        json("rule", "\"\""),
        json("message", "\"\""),
        json("messageExpression", "\"\""),
        json("reason", "null"),
        json("fieldPath", "\"\""),
        json("optionalOldSelf", "null"),
    )
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
