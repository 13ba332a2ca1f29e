//! `x-kubernetes-validations`: what can be checked of a rule without evaluating it (rule O8).

use super::super::engine::{is_about_change, problem_of_message, problem_of_rule};
use super::super::schema::Structural;
use super::budget::{Costs, Scope};
use super::field_path;
use crate::api::field::FieldErrors;
use crate::api::json::Value;
use crate::api::json::escape_html;
use crate::registry::cel;
use crate::registry::kinds::metadata::invalid_printed;
use crate::registry::types::cursor::Cursor;

const REASONS: [&str; 4] = [
    "FieldValueDuplicate",
    "FieldValueForbidden",
    "FieldValueInvalid",
    "FieldValueRequired",
];

/// Checks the rules of one schema.
pub(super) fn validate(node: &Cursor<'_>, errors: &mut FieldErrors) {
    for rule in node.items("x-kubernetes-validations") {
        check(&rule, errors);
        let field_path = rule.at("fieldPath");
        if !field_path.is_empty("") && field_path::find(field_path.as_text(), node, true).is_err() {
            errors.invalid(field_path, field_path.as_text(), "must be a valid path");
        }
    }
}

fn check(rule: &Cursor<'_>, errors: &mut FieldErrors) {
    let is_blank = |text: &str| !text.is_empty() && text.trim().is_empty();
    let has_break = |text: &str| text.contains(['\n', '\r']);
    let (expression, message) = (rule.text("rule"), rule.text("message"));
    if expression.trim().is_empty() {
        errors.required(rule.at("rule"), "rule is not specified");
    } else if is_blank(message) {
        errors.invalid(rule.at("message"), message, "must be non-empty if specified");
    } else if has_break(message.trim()) {
        errors.invalid(rule.at("message"), message, "must not contain line breaks");
    } else if has_break(expression.trim()) && message.trim().is_empty() {
        let text = "message must be specified if rule contains line breaks";
        errors.required(rule.at("message"), text);
    }
    if is_blank(rule.text("messageExpression")) {
        let text = "messageExpression must be non-empty if specified";
        errors.required(rule.at("messageExpression"), text);
    }
    if rule.is_set("reason") && !REASONS.contains(&rule.text("reason")) {
        errors.not_supported(rule.at("reason"), rule.text("reason"), &REASONS);
    }
    let field_path = rule.text("fieldPath");
    if is_blank(field_path) {
        errors.invalid(rule.at("fieldPath"), field_path, "must be non-empty if specified");
    }
    if has_break(field_path) {
        errors.invalid(rule.at("fieldPath"), field_path, "must not contain line breaks");
    }
}

/// Context of a schema while its rules are checked.
#[derive(Clone)]
struct Around<'a> {
    /// The schema above within which values cannot be correlated over time.
    lost: Option<&'a Cursor<'a>>,
    is_root: bool,
    scope: Scope,
}

/// Validates the rules of a schema that is otherwise valid: rules that cannot be parsed or evaluated are refused, as is
/// `oldSelf` where a value cannot be correlated over time, and rules that cost too much. In a schema that is stored
/// already the cost of single rules is unlimited.
pub(super) fn validate_meaning(node: &Cursor<'_>, is_stored: bool, errors: &mut FieldErrors) {
    let mut costs = Costs::new(is_stored);
    let around = Around {
        lost: None,
        is_root: true,
        scope: Scope::root(),
    };
    walk(node, &around, &mut costs, errors);
    costs.finish(node, errors);
}

fn walk(node: &Cursor<'_>, around: &Around<'_>, costs: &mut Costs, errors: &mut FieldErrors) {
    let around = Around {
        scope: around.scope.clone().with_types(node),
        ..*around
    };
    if let Some(additional) = node.schema("additionalProperties") {
        let around = around.element(node, &additional, around.lost);
        walk(&additional, &around, costs, errors);
    }
    for (name, property) in node.properties() {
        let around = around.property(node, name, &property);
        walk(&property, &around, costs, errors);
    }
    if let Some(items) = node.schema("items") {
        let is_list = node.text("x-kubernetes-list-type") != "map";
        let lost = around.lost.or(Some(node).filter(|_| is_list));
        let around = around.element(node, &items, lost);
        walk(&items, &around, costs, errors);
    }
    let problems = Problems::of(node, around.is_root);
    for rule in node.items("x-kubernetes-validations") {
        check_meaning(&rule, &problems, &around, costs, errors);
    }
}

fn check_meaning(
    rule: &Cursor<'_>,
    problems: &Problems<'_>,
    around: &Around<'_>,
    costs: &mut Costs,
    errors: &mut FieldErrors,
) {
    let text = rule.text("rule");
    let problem = problems.of_rule(text);
    let is_about_change = problem.is_none() && is_about_change(text);
    if let Some(problem) = problem {
        invalid_printed(rule.at("rule"), &print(rule), &problem, errors);
    } else {
        costs.add_rule(rule, &around.scope, errors);
        let message = rule.at("messageExpression");
        match problems.of_message(message.as_text()).filter(|_| !message.is_empty("")) {
            Some(problem) => invalid_printed(message, &print(rule), &problem, errors),
            None => costs.add_message(rule, &around.scope, errors),
        }
    }
    if let Some(lost) = around.lost.filter(|_| is_about_change) {
        let lost = lost.path();
        let detail = format!("oldSelf cannot be used on the uncorrelatable portion of the schema within {lost}");
        errors.invalid(rule.at("rule"), text, detail);
    }
    let optional = rule.at("optionalOldSelf");
    if optional.is_set("") && cel::IS_EVALUATED && !is_about_change {
        let text = "may not be set if oldSelf is not used in rule";
        errors.invalid(optional, optional.to_value(), text);
    }
}

impl<'a> Around<'a> {
    /// Fields have names, by which their values are found in an earlier object, even those of an atomic map.
    fn property(&self, node: &Cursor<'_>, name: &str, child: &Cursor<'_>) -> Self {
        Self {
            lost: self.lost,
            is_root: false,
            scope: self.scope.property(node, name, child),
        }
    }

    fn element(&self, node: &Cursor<'_>, child: &Cursor<'_>, lost: Option<&'a Cursor<'a>>) -> Self {
        Self {
            lost,
            is_root: false,
            scope: self.scope.element(node, child),
        }
    }
}

/// Errors of the rules of one schema, which is read once for all of them.
struct Problems<'a> {
    node: &'a Cursor<'a>,
    is_root: bool,
    schema: std::cell::OnceCell<Structural>,
}

impl<'a> Problems<'a> {
    fn of(node: &'a Cursor<'a>, is_root: bool) -> Self {
        let schema = std::cell::OnceCell::new();
        Self { node, is_root, schema }
    }

    fn schema(&self) -> &Structural {
        self.schema.get_or_init(|| match self.is_root {
            true => Structural::parse_root(self.node),
            false => Structural::parse(self.node),
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
fn print(rule: &Cursor<'_>) -> String {
    let json = |key: &str, absent: &str| {
        let text = rule
            .map_or_empty("")
            .get(key)
            .map_or_else(|| absent.to_owned(), Value::to_string);
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

/// Calls `visit` on the expressions of the rules of a schema and all below.
pub(super) fn visit(schema: &Cursor<'_>, visit: &mut dyn FnMut(&str)) {
    schema.visit(&mut |node| {
        let rules = node.items("x-kubernetes-validations");
        rules.for_each(|rule| visit(rule.text("rule")));
    });
}
