//! `x-kubernetes-validations`: checks rules without evaluating them (rule O8).

use std::collections::BTreeSet;

use super::super::engine::{Declared, is_about_change, problem_of_message, problem_of_rule};
use super::super::json_type::JsonType;
use super::budget::{Costs, Scope};
use super::field_path;
use crate::api::field::{FieldError, FieldErrorKind, FieldErrors};
use crate::api::json::Value;
use crate::api::json::escape_html;
use crate::api::kubernetes_version::KubernetesVersion;
use crate::registry::cel;
use crate::registry::kinds::metadata::invalid_printed;
use crate::registry::types::cursor::Cursor;

const REASONS: [&str; 4] = [
    "FieldValueDuplicate",
    "FieldValueForbidden",
    "FieldValueInvalid",
    "FieldValueRequired",
];

/// Error for rules of a schema that has an unknown type, or is inside such a schema.
const UNTYPED: &str = "internal error: failed to construct type information for x-kubernetes-validations rules: unable \
                       to convert structural schema to CEL declarations";

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

/// State inherited from the enclosing schemas while rules are checked.
#[derive(Clone)]
struct Around<'a> {
    /// The enclosing schema, if any, in which new values cannot be matched to stored values.
    lost: Option<&'a Cursor<'a>>,
    scope: Scope,
    /// Set if this or an enclosing schema has rules.
    is_ruled: bool,
    /// Set if this or an enclosing schema has an unknown type, and has rules or is inside a schema with rules.
    is_untyped: bool,
}

/// State shared by the checks of all rules of a schema.
struct Checks<'a> {
    costs: Costs,
    /// Paths with errors in the schema itself.
    wrong: &'a BTreeSet<String>,
}

impl Checks<'_> {
    /// Returns `true` if this schema or a schema inside it has an error. Its rules are then not checked.
    fn is_wrong(&self, node: &Cursor<'_>) -> bool {
        let path = node.path().to_string();
        let from = self.wrong.range(path.clone()..);
        // All paths with this prefix are adjacent. They also include fields with longer names that start with the same
        // string.
        let below = |it: &String| {
            it.strip_prefix(&path)
                .map(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
        };
        from.map_while(below).any(|it| it)
    }
}

/// Validates the rules of a structural schema. Refuses rules that do not compile or cost too much, and `oldSelf` for
/// values that cannot be matched to stored values. The cost of single rules is unlimited in a stored schema. `wrong`
/// contains the paths with errors in the schema itself.
pub(super) fn validate_meaning(
    version: KubernetesVersion,
    node: &Cursor<'_>,
    is_stored: bool,
    wrong: &BTreeSet<String>,
    errors: &mut FieldErrors,
) {
    let mut checks = Checks {
        costs: Costs::new(is_stored),
        wrong,
    };
    let around = Around {
        lost: None,
        scope: Scope::root(version),
        is_ruled: false,
        is_untyped: false,
    };
    walk(node, &around, &mut checks, errors);
    checks.costs.finish(node, errors);
}

fn walk(node: &Cursor<'_>, around: &Around<'_>, checks: &mut Checks<'_>, errors: &mut FieldErrors) {
    let has_rules = !node.is_empty("x-kubernetes-validations");
    let is_ruled = around.is_ruled || has_rules;
    let kind = node.text("type");
    let around = Around {
        scope: around.scope.clone().with_types(node),
        is_ruled,
        is_untyped: around.is_untyped || (is_ruled && !kind.is_empty() && JsonType::parse(kind).is_none()),
        ..*around
    };
    if let Some(additional) = node.schema("additionalProperties") {
        let around = around.element(node, &additional, around.lost);
        walk(&additional, &around, checks, errors);
    }
    for (name, property) in node.properties() {
        let around = around.property(node, name, &property);
        walk(&property, &around, checks, errors);
    }
    if let Some(items) = node.schema("items") {
        let is_list = node.text("x-kubernetes-list-type") != "map";
        let lost = around.lost.or(Some(node).filter(|_| is_list));
        let around = around.element(node, &items, lost);
        walk(&items, &around, checks, errors);
    }
    if !has_rules || checks.is_wrong(node) {
        return;
    }
    if around.is_untyped {
        errors.push(FieldError {
            path: node.at("x-kubernetes-validations").into(),
            kind: FieldErrorKind::Internal,
            value: None,
            detail: UNTYPED.to_owned(),
        });
        return;
    }
    let declared = around.scope.declared();
    for rule in node.items("x-kubernetes-validations") {
        check_meaning(&rule, &declared, &around, &mut checks.costs, errors);
    }
}

fn check_meaning(
    rule: &Cursor<'_>,
    declared: &Declared,
    around: &Around<'_>,
    costs: &mut Costs,
    errors: &mut FieldErrors,
) {
    let text = rule.text("rule");
    let has_optional_old = rule.is_true("optionalOldSelf");
    let problem = problem_of_rule(text, has_optional_old, declared);
    let is_about_change = problem.is_none() && is_about_change(text);
    if let Some(problem) = problem {
        invalid_printed(rule.at("rule"), &print(rule), &problem, errors);
    } else {
        costs.add_rule(rule, &around.scope, errors);
        let message = rule.at("messageExpression");
        let problem =
            (!message.is_empty("")).then(|| problem_of_message(message.as_text(), has_optional_old, declared));
        match problem.flatten() {
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
    /// Returns the state for a field. Fields are matched to stored fields by name, even inside an atomic map.
    fn property(&self, node: &Cursor<'_>, name: &str, child: &Cursor<'_>) -> Self {
        Self {
            lost: self.lost,
            scope: self.scope.property(node, name, child),
            ..*self
        }
    }

    fn element(&self, node: &Cursor<'_>, child: &Cursor<'_>, lost: Option<&'a Cursor<'a>>) -> Self {
        Self {
            lost,
            scope: self.scope.element(node, child),
            ..*self
        }
    }
}

/// Formats a rule in the way Go prints its internal type.
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

/// Calls `visit` with the expression of each rule in a schema.
pub(super) fn visit(schema: &Cursor<'_>, visit: &mut dyn FnMut(&str)) {
    schema.visit(&mut |node| {
        let rules = node.items("x-kubernetes-validations");
        rules.for_each(|rule| visit(rule.text("rule")));
    });
}
