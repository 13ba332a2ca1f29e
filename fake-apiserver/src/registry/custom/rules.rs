//! `x-kubernetes-validations`: finds the rules that apply to the values of an object, and reports violations (rules O8,
//! O9).
//!
//! Rules are only evaluated with the feature `cel`. Without it, the response to a CRD with rules contains a warning for
//! each rule.

use std::cell::OnceCell;

use super::engine::{Compiled, Operands, evaluate};
use super::path::Path;
use super::properties::FieldsInOrder;
use super::schema::{Additional, Structural};
use super::validate::{ValueView, is_unchanged, old_items};
use crate::api::field::{FieldError, FieldErrorKind, FieldErrors, FieldPath, quote};
use crate::api::json::{Map, Value};
use crate::registry::types::cursor::Cursor;

/// A rule of a schema.
#[derive(Debug)]
pub(super) struct Rule {
    pub(super) text: String,
    message: String,
    pub(super) message_expression: String,
    kind: FieldErrorKind,
    field_path: String,
    /// Set if `oldSelf` is an optional value, so that the rule also applies to new values.
    pub(super) has_optional_old: bool,
    pub(super) compiled: Compiled,
}

/// Result of evaluating a rule.
pub(super) enum RuleVerdict {
    Holds,
    /// The rule is violated; contains the result of `messageExpression`, if it returned one.
    Fails(Option<String>),
    /// The rule could not be evaluated.
    Error(String),
    /// The rule exceeds the cost limit of an expression; evaluation stops.
    TooDear,
    /// The budget of the request is used up; evaluation stops.
    OutOfBudget,
    /// The rule is violated, and its `messageExpression` exceeds the cost limit of an expression.
    MessageTooDear,
    /// The rule is violated, and its `messageExpression` exceeds the remaining budget of the request.
    MessageOutOfBudget,
}

/// Maximum total cost of all rules for a request, in units of CEL's cost.
const BUDGET: u64 = 10_000_000;

impl Rule {
    pub(super) fn parse(rule: &Cursor<'_>) -> Self {
        let text = |key: &str| rule.text(key).to_owned();
        Self {
            message: text("message").trim().to_owned(),
            message_expression: text("messageExpression"),
            kind: match text("reason").as_str() {
                "FieldValueForbidden" => FieldErrorKind::Forbidden,
                "FieldValueRequired" => FieldErrorKind::Required,
                "FieldValueDuplicate" => FieldErrorKind::Duplicate,
                _ => FieldErrorKind::Invalid,
            },
            field_path: text("fieldPath"),
            has_optional_old: rule.is_true("optionalOldSelf"),
            text: text("rule"),
            compiled: Compiled::default(),
        }
    }

    /// Returns `true` if the rule uses `oldSelf`.
    pub(super) fn uses_old(&self) -> bool {
        self.compiled.uses_old(&self.text)
    }

    fn error(
        &self,
        verdict: RuleVerdict,
        node: &Structural,
        value: ValueView<'_>,
        path: &Path<'_>,
    ) -> Option<FieldError> {
        let base = FieldPath::new(&path.text());
        let is_scalar = !matches!(value, ValueView::Object(_) | ValueView::Array(_));
        let described = match self.message.as_str() {
            "" => self.text.trim(),
            message => message,
        };
        let (kind, value, detail) = match verdict {
            RuleVerdict::Holds => return None,
            RuleVerdict::Error(error) => {
                let detail = match error.starts_with("no such overload") {
                    true => format!(
                        "'{error}': call arguments did not match a supported operator, function or macro signature for \
                         rule: {described}"
                    ),
                    false => format!("{error} evaluating rule: {described}"),
                };
                return Some(of_type(base, node, detail));
            }
            RuleVerdict::TooDear => {
                let detail = format!(
                    "'operation cancelled: actual cost limit exceeded': no further validation rules will be run due to \
                     call cost exceeds limit for rule: {described}"
                );
                return Some(of_type(base, node, detail));
            }
            RuleVerdict::OutOfBudget => {
                let detail = "validation failed due to running out of cost budget, no further validation rules will be \
                              run";
                return Some(of_type(base, node, detail.to_owned()));
            }
            RuleVerdict::MessageTooDear => {
                let detail = format!(
                    "no further validation rules will be run due to call cost exceeds limit for messageExpression: {}",
                    quote(&self.message_expression)
                );
                return Some(of_type(below(base, &self.field_path, node), node, detail));
            }
            RuleVerdict::MessageOutOfBudget => {
                let detail = "messageExpression evaluation failed due to running out of cost budget, no further \
                              validation rules will be run";
                return Some(of_type(below(base, &self.field_path, node), node, detail.to_owned()));
            }
            RuleVerdict::Fails(message) => {
                let default = match self.message.as_str() {
                    "" => format!("failed rule: {}", self.text.trim()),
                    message => message.to_owned(),
                };
                let shows_value = matches!(self.kind, FieldErrorKind::Invalid | FieldErrorKind::Duplicate) && is_scalar;
                let detail = match self.kind {
                    FieldErrorKind::Duplicate => String::new(),
                    _ => message.unwrap_or(default),
                };
                (self.kind, shows_value.then(|| value.to_value()), detail)
            }
        };
        let path = below(base, &self.field_path, node);
        Some(FieldError {
            path,
            kind,
            value,
            detail,
        })
    }
}

/// Creates an error that contains the type of a value instead of the value.
pub(super) fn of_type(path: FieldPath, node: &Structural, detail: String) -> FieldError {
    let type_name = node.kind.map_or("", |kind| kind.name());
    FieldError {
        path,
        kind: FieldErrorKind::Invalid,
        value: Some(type_name.into()),
        detail,
    }
}

impl RuleVerdict {
    /// Returns `true` if the rule was evaluated and is violated. If the value is unchanged, the violation is only a
    /// warning, unless the rule uses `oldSelf`.
    fn is_failure(&self) -> bool {
        match self {
            Self::Fails(_) | Self::MessageTooDear | Self::MessageOutOfBudget => true,
            Self::Holds | Self::Error(_) | Self::TooDear | Self::OutOfBudget => false,
        }
    }

    /// Returns `true` if evaluation stops after this result.
    fn ends(&self) -> bool {
        match self {
            Self::Holds | Self::Fails(_) | Self::Error(_) => false,
            Self::TooDear | Self::OutOfBudget | Self::MessageTooDear | Self::MessageOutOfBudget => true,
        }
    }
}

/// Returns the path of the field selected by a rule's `fieldPath`, such as `.a.b` or `.m['x.y']`. As in Go, the schema
/// determines the notation of each step, and the first step is always appended with a dot.
fn below(base: FieldPath, field_path: &str, node: &Structural) -> FieldPath {
    let mut path = FieldPath::root();
    let mut node = Some(node);
    let mut rest = field_path.trim();
    while !rest.is_empty() {
        let (name, tail) = match rest.strip_prefix("['") {
            Some(after) => after.split_once("']").unwrap_or((after, "")),
            None => {
                let after = rest.strip_prefix('.').unwrap_or(rest);
                after.split_at(after.find(['.', '[']).unwrap_or(after.len()))
            }
        };
        // The path ends at a bracket without a quoted key.
        if name.is_empty() {
            break;
        }
        let entries = node.and_then(|it| match &it.additional {
            Additional::Schema(entries) if it.properties.is_empty() => Some(&**entries),
            Additional::Schema(_) | Additional::Unset | Additional::Bool(_) => None,
        });
        path = match entries {
            Some(_) => path.key(name),
            None => path.child(name),
        };
        node = entries.or_else(|| node?.properties.get(name));
        rest = tail;
    }
    match path.to_string().as_str() {
        "" | "<nil>" => base,
        path => base.child(path),
    }
}

/// Checks the rules for a complete object, unless earlier errors make that unsafe. In an update, violations in
/// unchanged values are added to `ratcheted` instead of the errors, except for rules that use `oldSelf`.
pub(super) fn validate(
    schema: &Structural,
    object: &Map,
    old: Option<&Map>,
    errors: &mut FieldErrors,
    ratcheted: &mut Vec<String>,
) {
    if !schema.below.rules {
        return;
    }
    if are_blocking(errors) {
        let text = "some validation rules were not checked because the object was invalid; correct the existing \
                    errors to complete validation";
        return errors.invalid(FieldPath::root(), Value::Null, text);
    }
    let mut run = Run {
        errors,
        ratcheted,
        only_unchanged: false,
        budget: BUDGET,
        has_ended: false,
    };
    let stored = old.map(ValueView::Object);
    run.walk(schema, ValueView::Object(object), Stored::root(stored), &Path::Root);
}

/// Returns `true` if the errors of an object make it unsafe to evaluate rules.
fn are_blocking(errors: &FieldErrors) -> bool {
    use FieldErrorKind as Kind;
    errors.iter().any(|error| match error.kind {
        Kind::NotSupported | Kind::Required | Kind::TooLong | Kind::TooMany | Kind::TypeInvalid => true,
        Kind::Invalid | Kind::Forbidden | Kind::Duplicate | Kind::NotFound | Kind::Internal => false,
    })
}

/// Checks the rules for a default at the path `at`: first as an unchanged value, then as a new one.
pub(super) fn validate_default(schema: &Structural, default: &Value, at: &FieldPath, errors: &mut FieldErrors) {
    let value = ValueView::from(default);
    for old in [Some(value), None] {
        let mut found = FieldErrors::new();
        let mut run = Run {
            errors: &mut found,
            ratcheted: &mut Vec::new(),
            only_unchanged: false,
            budget: BUDGET,
            has_ended: false,
        };
        // No value is stored yet, so all violations are errors.
        let stored = Stored {
            old,
            same: None,
            around: None,
        };
        run.walk(schema, value, stored, &Path::Root);
        if !found.is_empty() {
            return found.iter().for_each(|error| errors.push(within(at, error.clone())));
        }
    }
}

/// Prefixes the path of an error with the path of the value.
fn within(at: &FieldPath, mut error: FieldError) -> FieldError {
    let inner = error.path.to_string();
    let inner = inner.trim_start_matches('.');
    error.path = match inner {
        "" | "<nil>" => at.clone(),
        _ if inner.starts_with('[') => FieldPath::new(&format!("{at}{inner}")),
        _ => at.child(inner),
    };
    error
}

/// Returns the violations of rules in the unchanged parts of an updated object. `errors` are the other errors of the
/// object; if they make it unsafe to evaluate rules, returns no violations.
pub(super) fn ratcheted(schema: &Structural, object: &Map, old: &Map, errors: &FieldErrors) -> Vec<String> {
    let mut found = Vec::new();
    if !schema.below.rules || are_blocking(errors) {
        return found;
    }
    let mut run = Run {
        errors: &mut FieldErrors::new(),
        ratcheted: &mut found,
        only_unchanged: true,
        budget: BUDGET,
        has_ended: false,
    };
    let stored = Some(ValueView::Object(old));
    run.walk(schema, ValueView::Object(object), Stored::root(stored), &Path::Root);
    found
}

/// The stored value that corresponds to a value.
#[derive(Clone, Copy)]
struct Stored<'a> {
    /// The value of `oldSelf`; `None` for new values, and for items of lists without keys.
    old: Option<ValueView<'a>>,
    /// The corresponding stored value; `None` for values without one, such as items of lists without keys.
    same: Option<ValueView<'a>>,
    /// The nearest enclosing value for which there is a stored value.
    around: Option<&'a Around<'a>>,
}

/// A value and the corresponding stored value.
struct Around<'a> {
    node: &'a Structural,
    value: ValueView<'a>,
    stored: ValueView<'a>,
    is_unchanged: OnceCell<bool>,
}

impl<'a> Stored<'a> {
    fn root(stored: Option<ValueView<'a>>) -> Self {
        Self {
            old: stored,
            same: stored,
            around: None,
        }
    }

    /// Returns `true` if `value` is unchanged, so that violations of its rules are ratcheted (`shouldRatchetError` of
    /// k8s.io/apiextensions-apiserver).
    fn is_unchanged(self, node: &Structural, value: ValueView<'_>) -> bool {
        match (self.same, self.around) {
            (Some(stored), _) => is_unchanged(node, value, stored),
            (None, Some(it)) => *it
                .is_unchanged
                .get_or_init(|| is_unchanged(it.node, it.value, it.stored)),
            (None, None) => false,
        }
    }
}

/// The state of evaluating all rules for an object.
struct Run<'a> {
    errors: &'a mut FieldErrors,
    ratcheted: &'a mut Vec<String>,
    /// Set to skip the rules of changed values.
    only_unchanged: bool,
    /// Remaining budget for the rules of the request.
    budget: u64,
    /// Set if the evaluation of rules has stopped.
    has_ended: bool,
}

impl Run<'_> {
    fn walk(&mut self, node: &Structural, value: ValueView<'_>, stored: Stored<'_>, path: &Path<'_>) {
        if !node.below.rules || value == ValueView::Null || self.has_ended {
            return;
        }
        self.evaluate(node, value, stored, path);
        let here = stored.same.map(|same| Around {
            node,
            value,
            stored: same,
            is_unchanged: OnceCell::new(),
        });
        let around = here.as_ref().or(stored.around);
        match value {
            ValueView::Object(map) => {
                // Fields are matched to stored fields by name, even inside an atomic map (`MapIsCorrelatable`).
                let old = stored.old;
                let mut fields = FieldsInOrder::of(node);
                for (name, value) in map {
                    let (child, path) = match (fields.declared(name), &node.additional) {
                        (Some(child), _) => (child, path.field(name)),
                        (None, Additional::Schema(child)) => (&**child, path.key(name)),
                        (None, Additional::Unset | Additional::Bool(_)) => continue,
                    };
                    if !child.below.rules {
                        continue;
                    }
                    let stored = Stored {
                        old: old.and_then(|it| it.get(name)).map(ValueView::from),
                        same: stored.same.and_then(|it| it.get(name)).map(ValueView::from),
                        around,
                    };
                    self.walk(child, value.into(), stored, &path);
                }
            }
            ValueView::Array(list) => {
                let Some(items) = &node.items else { return };
                let old = stored.old.and_then(|it| old_items(node, it));
                let same = stored.same.and_then(|it| old_items(node, it));
                for (index, item) in list.iter().enumerate() {
                    let old = old.as_ref().and_then(|it| it.get(index, item));
                    let same = same.as_ref().and_then(|it| it.get(index, item));
                    let stored = Stored {
                        old: old.map(ValueView::from),
                        same: same.map(ValueView::from),
                        around,
                    };
                    self.walk(items, item.into(), stored, &path.index(index));
                }
            }
            ValueView::Null | ValueView::Bool(_) | ValueView::Number(_) | ValueView::String(_) => {}
        }
    }

    /// Evaluates the rules for one value.
    fn evaluate(&mut self, node: &Structural, value: ValueView<'_>, stored: Stored<'_>, path: &Path<'_>) {
        let is_unchanged = || stored.is_unchanged(node, value);
        // A stored null is like an absent value.
        let old = stored.old.filter(|old| *old != ValueView::Null);
        if node.rules.is_empty() || self.only_unchanged && !is_unchanged() {
            return;
        }
        let operands = Operands::new(node, value, old);
        for rule in &node.rules {
            let is_of_change = old.is_none() && rule.uses_old() && !rule.has_optional_old;
            // Empty rules are skipped, because the validation of the CRD already reports them.
            if is_of_change || rule.text.trim().is_empty() {
                continue;
            }
            let verdict = match self.budget {
                0 => RuleVerdict::OutOfBudget,
                _ => evaluate(rule, &operands, &mut self.budget),
            };
            self.has_ended = verdict.ends();
            let may_stay = verdict.is_failure();
            let Some(error) = rule.error(verdict, node, value, path) else {
                continue;
            };
            if may_stay && !rule.uses_old() && is_unchanged() {
                self.ratcheted.push(error.to_string());
            } else {
                self.errors.push(error);
            }
            if self.has_ended {
                return;
            }
        }
    }
}
