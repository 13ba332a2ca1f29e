//! `x-kubernetes-validations`: what can be checked of a rule without evaluating it (rule O8).

use serde_json::Value;

use super::super::engine::{is_about_change, problem_of_message, problem_of_rule};
use super::super::schema::Structural;
use super::budget::{Costs, Scope};
use super::field_path;
use super::node::Node;
use crate::api::field::{FieldErrors, FieldPath};
use crate::api::json::escape_html;
use crate::registry::cel;
use crate::registry::kinds::metadata::invalid_printed;

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
        let path = path.child("x-kubernetes-validations").index(index);
        check(rule, &path, errors);
        let field_path = rule.text("fieldPath");
        if !field_path.is_empty() && field_path::find(field_path, node, true).is_err() {
            errors.invalid(path.child("fieldPath"), field_path, "must be a valid path");
        }
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

/// Context of a schema while its rules are checked.
#[derive(Clone)]
struct Around<'a> {
    /// The schema above within which values cannot be correlated over time.
    lost: Option<&'a FieldPath>,
    is_root: bool,
    scope: Scope,
}

/// Validates the rules of a schema that is otherwise valid: rules that cannot be parsed or evaluated are refused, as is
/// `oldSelf` where a value cannot be correlated over time, and rules that cost too much. In a schema that is stored
/// already the cost of single rules is unlimited.
pub(super) fn validate_meaning(node: Node<'_>, path: &FieldPath, is_stored: bool, errors: &mut FieldErrors) {
    let mut costs = Costs::new(is_stored);
    let around = Around {
        lost: None,
        is_root: true,
        scope: Scope::root(),
    };
    walk(node, path, around, &mut costs, errors);
    costs.finish(path, errors);
}

fn walk(node: Node<'_>, path: &FieldPath, around: Around<'_>, costs: &mut Costs, errors: &mut FieldErrors) {
    let around = Around {
        scope: around.scope.with_types(node),
        ..around
    };
    if let Some(additional) = node.schema("additionalProperties") {
        let path = path.child("additionalProperties");
        walk(
            additional,
            &path,
            around.element(node, additional, around.lost),
            costs,
            errors,
        );
    }
    let is_atomic = node.text("x-kubernetes-map-type") == "atomic";
    let lost = around.lost.or(Some(path).filter(|_| is_atomic));
    for (name, property) in node.properties() {
        let path = path.child("properties").key(name);
        walk(
            property,
            &path,
            around.property(node, name, property, lost),
            costs,
            errors,
        );
    }
    if let Some(items) = node.schema("items") {
        let is_list = node.text("x-kubernetes-list-type") != "map";
        let lost = around.lost.or(Some(path).filter(|_| is_list));
        walk(
            items,
            &path.child("items"),
            around.element(node, items, lost),
            costs,
            errors,
        );
    }
    let problems = Problems::of(node, around.is_root);
    for (index, rule) in node.list("x-kubernetes-validations").iter().enumerate() {
        if let Some(rule) = rule.as_object() {
            let path = path.child("x-kubernetes-validations").index(index);
            check_meaning(Node(rule), &problems, &path, &around, costs, errors);
        }
    }
}

fn check_meaning(
    rule: Node<'_>,
    problems: &Problems<'_>,
    path: &FieldPath,
    around: &Around<'_>,
    costs: &mut Costs,
    errors: &mut FieldErrors,
) {
    let text = rule.text("rule");
    let problem = problems.of_rule(text);
    let is_about_change = problem.is_none() && is_about_change(text);
    if let Some(problem) = problem {
        invalid_printed(path.child("rule"), &print(rule), &problem, errors);
    } else {
        costs.add_rule(rule, &around.scope, path, errors);
        let message = rule.text("messageExpression");
        match problems.of_message(message).filter(|_| !message.is_empty()) {
            Some(problem) => invalid_printed(path.child("messageExpression"), &print(rule), &problem, errors),
            None => costs.add_message(rule, &around.scope, path, errors),
        }
    }
    if let Some(lost) = around.lost.filter(|_| is_about_change) {
        let detail = format!("oldSelf cannot be used on the uncorrelatable portion of the schema within {lost}");
        errors.invalid(path.child("rule"), text, detail);
    }
    let optional = rule.0.get("optionalOldSelf").filter(|it| !it.is_null());
    if let Some(value) = optional.filter(|_| cel::IS_EVALUATED && !is_about_change) {
        let text = "may not be set if oldSelf is not used in rule";
        errors.invalid(path.child("optionalOldSelf"), value.clone(), text);
    }
}

impl<'a> Around<'a> {
    fn property(&self, node: Node<'_>, name: &str, child: Node<'_>, lost: Option<&'a FieldPath>) -> Self {
        Self {
            lost,
            is_root: false,
            scope: self.scope.property(node, name, child),
        }
    }

    fn element(&self, node: Node<'_>, child: Node<'_>, lost: Option<&'a FieldPath>) -> Self {
        Self {
            lost,
            is_root: false,
            scope: self.scope.element(node, child),
        }
    }
}

/// Errors of the rules of one schema, which is read once for all of them.
struct Problems<'a> {
    node: Node<'a>,
    is_root: bool,
    schema: std::cell::OnceCell<Structural>,
}

impl<'a> Problems<'a> {
    fn of(node: Node<'a>, is_root: bool) -> Self {
        let schema = std::cell::OnceCell::new();
        Self { node, is_root, schema }
    }

    fn schema(&self) -> &Structural {
        self.schema.get_or_init(|| {
            let schema = Value::Object(self.node.0.clone());
            match self.is_root {
                true => Structural::parse_root(&schema),
                false => Structural::parse(&schema),
            }
        })
    }

    fn of_rule(&self, rule: &str) -> Option<String> {
        problem_of_rule(rule, self.schema())
    }

    fn of_message(&self, expression: &str) -> Option<String> {
        problem_of_message(expression, self.schema())
    }
}

/// A rule as Go prints its internal form.
fn print(rule: Node<'_>) -> String {
    let json = |key: &str, absent: &str| {
        let text = rule.0.get(key).map_or_else(|| absent.to_owned(), Value::to_string);
        escape_html(&text)
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
