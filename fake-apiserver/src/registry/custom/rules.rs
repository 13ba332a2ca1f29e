//! `x-kubernetes-validations`: which rules there are, and where in an object they hold (rules O8, O9).
//!
//! Rules are evaluated where the crate is built with the feature `cel`; without it a CRD with rules is answered with a
//! warning that names them.

use std::cell::OnceCell;

use serde_json::{Map, Value};

use super::path::Path;
use super::schema::{Additional, Structural};
use super::validate::{View, is_unchanged, old_item};
use crate::api::field::{FieldError, FieldErrorKind, FieldErrors, FieldPath, quote};

#[cfg(feature = "cel")]
use super::engine::{self, Operands, evaluate};

/// Set if rules are evaluated at all.
pub(super) const EVALUATED: bool = cfg!(feature = "cel");

/// One rule of a schema.
#[derive(Debug)]
pub(super) struct Rule {
    pub(super) text: String,
    message: String,
    pub(super) message_expression: String,
    kind: FieldErrorKind,
    field_path: String,
    /// Set if `oldSelf` is an optional, and the rule holds for new values too.
    pub(super) has_optional_old: bool,
    #[cfg(feature = "cel")]
    pub(super) compiled: engine::Compiled,
}

/// Result of a rule.
#[cfg_attr(
    not(feature = "cel"),
    expect(dead_code, reason = "without the library no rule has a verdict")
)]
pub(super) enum Verdict {
    Holds,
    /// It does not hold; the message that `messageExpression` made, if it made one.
    Fails(Option<String>),
    /// It could not be evaluated.
    Error(String),
    /// It costs more than one expression may; nothing more is evaluated.
    TooDear,
    /// The request may cost no more; nothing more is evaluated.
    OutOfBudget,
    /// It does not hold, and its `messageExpression` costs more than one expression may.
    MessageTooDear,
    /// It does not hold, and its `messageExpression` costs more than the request may.
    MessageOutOfBudget,
}

/// Most that all rules of a request may cost together, in units of CEL's cost.
const BUDGET: u64 = 10_000_000;

impl Rule {
    pub(super) fn parse(rule: &Value) -> Self {
        let text = |key: &str| rule.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
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
            has_optional_old: rule.get("optionalOldSelf") == Some(&Value::Bool(true)),
            text: text("rule"),
            #[cfg(feature = "cel")]
            compiled: engine::Compiled::default(),
        }
    }

    /// Returns `true` if the rule uses the old value.
    #[cfg(feature = "cel")]
    pub(super) fn uses_old(&self) -> bool {
        self.compiled.uses_old(&self.text)
    }

    /// Nothing is known of a rule that is not evaluated.
    #[cfg(not(feature = "cel"))]
    #[expect(clippy::unused_self, reason = "with the library there is something to ask")]
    fn uses_old(&self) -> bool {
        false
    }

    fn error(&self, verdict: Verdict, node: &Structural, value: View<'_>, path: &Path<'_>) -> Option<FieldError> {
        let base = FieldPath::new(&path.text());
        let is_scalar = !matches!(value, View::Object(_) | View::Array(_));
        let described = match self.message.as_str() {
            "" => self.text.trim(),
            message => message,
        };
        let (kind, value, detail) = match verdict {
            Verdict::Holds => return None,
            Verdict::Error(error) => {
                let detail = match error.starts_with("no such overload") {
                    true => format!(
                        "'{error}': call arguments did not match a supported operator, function or macro signature for \
                         rule: {described}"
                    ),
                    false => format!("{error} evaluating rule: {described}"),
                };
                return Some(of_type(base, node, detail));
            }
            Verdict::TooDear => {
                let detail = format!(
                    "'operation cancelled: actual cost limit exceeded': no further validation rules will be run due to \
                     call cost exceeds limit for rule: {described}"
                );
                return Some(of_type(base, node, detail));
            }
            Verdict::OutOfBudget => {
                let detail = "validation failed due to running out of cost budget, no further validation rules will be \
                              run";
                return Some(of_type(base, node, detail.to_owned()));
            }
            Verdict::MessageTooDear => {
                let detail = format!(
                    "no further validation rules will be run due to call cost exceeds limit for messageExpression: {}",
                    quote(&self.message_expression)
                );
                return Some(of_type(below(base, &self.field_path), node, detail));
            }
            Verdict::MessageOutOfBudget => {
                let detail = "messageExpression evaluation failed due to running out of cost budget, no further \
                              validation rules will be run";
                return Some(of_type(below(base, &self.field_path), node, detail.to_owned()));
            }
            Verdict::Fails(message) => {
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
        let path = below(base, &self.field_path);
        Some(FieldError {
            path,
            kind,
            value,
            detail,
        })
    }
}

/// An error that shows the type of a value instead of it.
pub(super) fn of_type(path: FieldPath, node: &Structural, detail: String) -> FieldError {
    let type_name = node.kind.map_or("", |kind| kind.name());
    FieldError {
        path,
        kind: FieldErrorKind::Invalid,
        value: Some(type_name.into()),
        detail,
    }
}

impl Verdict {
    /// Returns `true` if the rule was evaluated and does not hold, which is a warning where the old value was invalid,
    /// too.
    fn is_failure(&self) -> bool {
        match self {
            Self::Fails(_) | Self::MessageTooDear | Self::MessageOutOfBudget => true,
            Self::Holds | Self::Error(_) | Self::TooDear | Self::OutOfBudget => false,
        }
    }

    /// Returns `true` if nothing more is evaluated after it.
    fn ends(&self) -> bool {
        match self {
            Self::Holds | Self::Fails(_) | Self::Error(_) => false,
            Self::TooDear | Self::OutOfBudget | Self::MessageTooDear | Self::MessageOutOfBudget => true,
        }
    }
}

/// The field a rule's `fieldPath` leads to, such as `.a.b` or `.m['x.y']`.
fn below(mut path: FieldPath, field_path: &str) -> FieldPath {
    let mut rest = field_path.trim();
    while !rest.is_empty() {
        if let Some(after) = rest.strip_prefix("['") {
            let (key, tail) = after.split_once("']").unwrap_or((after, ""));
            path = path.key(key);
            rest = tail;
        } else {
            let after = rest.strip_prefix('.').unwrap_or(rest);
            let end = after.find(['.', '[']).unwrap_or(after.len());
            // A bracket that opens no key ends the path.
            if end == 0 {
                break;
            }
            path = path.child(&after[..end]);
            rest = &after[end..];
        }
    }
    path
}

/// Checks the rules of a whole object, unless the errors found so far make that unsafe. Of an update, failures of what
/// did not change are `ratcheted` rather than errors.
pub(super) fn validate(
    schema: &Structural,
    object: &Map<String, Value>,
    old: Option<&Map<String, Value>>,
    errors: &mut FieldErrors,
    ratcheted: &mut Vec<String>,
) {
    if !schema.below.rules {
        return;
    }
    use FieldErrorKind as Kind;
    let is_blocking = |error: &FieldError| match error.kind {
        Kind::NotSupported | Kind::Required | Kind::TooLong | Kind::TooMany | Kind::TypeInvalid => true,
        Kind::Invalid | Kind::Forbidden | Kind::Duplicate | Kind::NotFound | Kind::TooFew | Kind::Internal => false,
    };
    if errors.iter().any(is_blocking) {
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
    let stored = old.map(View::Object);
    run.walk(schema, View::Object(object), Stored::root(stored), &Path::Root);
}

/// Returns the failures of rules in the unchanged parts of an updated object.
pub(super) fn ratcheted(schema: &Structural, object: &Map<String, Value>, old: &Map<String, Value>) -> Vec<String> {
    let mut found = Vec::new();
    let mut run = Run {
        errors: &mut FieldErrors::new(),
        ratcheted: &mut found,
        only_unchanged: true,
        budget: BUDGET,
        has_ended: false,
    };
    let stored = Some(View::Object(old));
    run.walk(schema, View::Object(object), Stored::root(stored), &Path::Root);
    found
}

/// The stored object in the place of a value.
#[derive(Clone, Copy)]
struct Stored<'a> {
    /// The value of `oldSelf`; `None` inside of what is replaced as a whole.
    old: Option<View<'a>>,
    /// The corresponding stored value; `None` if there is none, as for items of lists without keys.
    same: Option<View<'a>>,
    /// The nearest enclosing value that has a corresponding one.
    around: Option<&'a Around<'a>>,
}

/// A value beside the stored one.
struct Around<'a> {
    node: &'a Structural,
    value: View<'a>,
    stored: View<'a>,
    is_unchanged: OnceCell<bool>,
}

impl<'a> Stored<'a> {
    fn root(stored: Option<View<'a>>) -> Self {
        Self {
            old: stored,
            same: stored,
            around: None,
        }
    }

    /// Returns `true` if failures of rules on `value` were there before, as `shouldRatchetError` of
    /// k8s.io/apiextensions-apiserver tells.
    fn is_unchanged(self, node: &Structural, value: View<'_>) -> bool {
        match (self.same, self.around) {
            (Some(stored), _) => is_unchanged(node, value, stored),
            (None, Some(it)) => *it
                .is_unchanged
                .get_or_init(|| is_unchanged(it.node, it.value, it.stored)),
            (None, None) => false,
        }
    }
}

/// One evaluation of all rules.
struct Run<'a> {
    errors: &'a mut FieldErrors,
    ratcheted: &'a mut Vec<String>,
    /// Rules of what has changed are not evaluated.
    only_unchanged: bool,
    /// Budget left for the rules.
    budget: u64,
    /// Set if nothing more is evaluated.
    has_ended: bool,
}

impl Run<'_> {
    fn walk(&mut self, node: &Structural, value: View<'_>, stored: Stored<'_>, path: &Path<'_>) {
        if !node.below.rules || value == View::Null || self.has_ended {
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
            View::Object(map) => {
                let old = stored.old.filter(|_| !node.is_atomic_map);
                for (name, value) in map {
                    let stored = Stored {
                        old: old.and_then(|it| it.get(name)).map(View::from),
                        same: stored.same.and_then(|it| it.get(name)).map(View::from),
                        around,
                    };
                    match (node.properties.get(name), &node.additional) {
                        (Some(child), _) => self.walk(child, value.into(), stored, &path.field(name)),
                        (None, Additional::Schema(child)) => self.walk(child, value.into(), stored, &path.key(name)),
                        (None, Additional::Unset | Additional::Bool(_)) => {}
                    }
                }
            }
            View::Array(list) => {
                let Some(items) = &node.items else { return };
                for (index, item) in list.iter().enumerate() {
                    let old = stored.old.and_then(|it| old_item(node, index, item, it));
                    let same = stored.same.and_then(|it| old_item(node, index, item, it));
                    let stored = Stored {
                        old: old.map(View::from),
                        same: same.map(View::from),
                        around,
                    };
                    self.walk(items, item.into(), stored, &path.index(index));
                }
            }
            View::Null | View::Bool(_) | View::Number(_) | View::String(_) => {}
        }
    }

    /// Evaluates the rules of one value.
    fn evaluate(&mut self, node: &Structural, value: View<'_>, stored: Stored<'_>, path: &Path<'_>) {
        let is_unchanged = || stored.is_unchanged(node, value);
        let old = stored.old;
        if node.rules.is_empty() || self.only_unchanged && !is_unchanged() {
            return;
        }
        let operands = Operands::new(node, value, old);
        for rule in &node.rules {
            if old.is_none() && rule.uses_old() && !rule.has_optional_old {
                continue;
            }
            let verdict = match self.budget {
                0 => Verdict::OutOfBudget,
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

/// Without the library nothing is converted, and all rules hold.
#[cfg(not(feature = "cel"))]
struct Operands;

#[cfg(not(feature = "cel"))]
impl Operands {
    fn new(_: &Structural, _: View<'_>, _: Option<View<'_>>) -> Self {
        Self
    }
}

#[cfg(not(feature = "cel"))]
fn evaluate(_: &Rule, _: &Operands, _: &mut u64) -> Verdict {
    Verdict::Holds
}

#[cfg(all(test, feature = "cel"))]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(spec: Value) -> Map<String, Value> {
        json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "a"}, "spec": spec})
            .as_object()
            .expect("an object")
            .clone()
    }

    fn schema(spec: Value) -> Structural {
        Structural::parse_root(&json!({"type": "object", "properties": {"spec": spec}}))
    }

    /// A spec of integers `a` and `b`, a set, a map and an optional object, under one rule.
    fn spec(rule: Value) -> Value {
        json!({
            "type": "object", "x-kubernetes-validations": [rule],
            "properties": {
                "a": {"type": "integer"}, "b": {"type": "integer", "nullable": true}, "x-y": {"type": "integer"},
                "n": {"type": "number"}, "q": {"type": "string"}, "t": {"type": "string", "format": "date-time"},
                "s": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"},
                "m": {"type": "object", "additionalProperties": {"type": "string"}},
                "o": {"type": "object", "properties": {"x": {"type": "integer"}}},
                "p": {"x-kubernetes-int-or-string": true},
            },
        })
    }

    fn check(rule: Value, value: Value, old: Option<Value>) -> (Vec<String>, Vec<String>) {
        let (mut errors, mut ratcheted) = (FieldErrors::new(), Vec::new());
        let (value, old) = (object(value), old.map(object));
        validate(&schema(spec(rule)), &value, old.as_ref(), &mut errors, &mut ratcheted);
        (errors.iter().map(ToString::to_string).collect(), ratcheted)
    }

    #[rstest::rstest]
    #[case("self.a < 5", json!({"a": 4}), true)]
    #[case("self.a < 5", json!({"a": 5}), false)]
    #[case("self.n < 2.5", json!({"n": 2}), true)]
    #[case("!has(self.b) || self.b > 0", json!({"b": null}), true)]
    #[case("self.x__dash__y > 0", json!({"x-y": 1}), true)]
    #[case("self.?o.?x.orValue(1) > 0", json!({}), true)]
    #[case("self.?o.?x.orValue(1) > 0", json!({"o": {"x": 0}}), false)]
    #[case("type(self.p) == int ? self.p > 0 : self.p.matches('^[0-9]+%$')", json!({"p": "5%"}), true)]
    #[case("type(self.p) == int ? self.p > 0 : self.p.matches('^[0-9]+%$')", json!({"p": 0}), false)]
    #[case("quantity(self.q).isLessThan(quantity('1'))", json!({"q": "100m"}), true)]
    #[case("self.t < timestamp('2024-01-01T00:00:00Z')", json!({"t": "2023-01-01T00:00:00Z"}), true)]
    #[case("self.m.all(k, k.startsWith('a'))", json!({"m": {"a-b": "x"}}), true)]
    #[case("self.s.exists_one(x, x == 'a')", json!({"s": ["a", "b"]}), true)]
    fn o8_rules(#[case] rule: &str, #[case] value: Value, #[case] holds: bool) {
        let (errors, _) = check(json!({"rule": rule}), value, None);
        let expected = format!("spec: Invalid value: failed rule: {rule}");
        assert_eq!(errors, Vec::from_iter((!holds).then_some(expected)));
    }

    #[rstest::rstest]
    #[case(json!({"rule": "false", "message": "m", "fieldPath": ".m['a.b']"}), "spec.m[a.b]: Invalid value: m")]
    #[case(json!({"rule": "false", "message": "m", "fieldPath": ".o.x", "reason": "FieldValueForbidden"}),
        "spec.o.x: Forbidden: m")]
    #[case(json!({"rule": "false", "message": "m", "reason": "FieldValueRequired"}), "spec: Required value: m")]
    #[case(json!({"rule": "false", "message": "m", "reason": "FieldValueDuplicate"}), "spec: Duplicate value")]
    #[case(json!({"rule": "false", "message": "m", "messageExpression": "'a is %d'.format([self.a])"}),
        "spec: Invalid value: a is 1")]
    #[case(json!({"rule": "false", "message": "m", "messageExpression": "'a\\nb'"}), "spec: Invalid value: m")]
    #[case(json!({"rule": "self.a / 0 > 0", "message": "m"}),
        "spec: Invalid value: \"object\": division by zero evaluating rule: m")]
    fn o8_messages(#[case] rule: Value, #[case] expected: &str) {
        assert_eq!(check(rule, json!({"a": 1}), None).0, [expected]);
    }

    #[test]
    fn o8_rules_about_changes() {
        let same = || json!({"rule": "self.s == oldSelf.s", "message": "m"});
        assert!(check(same(), json!({"s": ["a"]}), None).0.is_empty());
        // The order of a set is nothing.
        assert!(
            check(same(), json!({"s": ["b", "a"]}), Some(json!({"s": ["a", "b"]})))
                .0
                .is_empty()
        );
        assert_eq!(
            check(same(), json!({"s": ["a"]}), Some(json!({"s": ["a", "b"]})))
                .0
                .len(),
            1
        );
        let optional = || json!({"rule": "oldSelf.hasValue() || self.a == 0", "optionalOldSelf": true});
        assert_eq!(check(optional(), json!({"a": 1}), None).0.len(), 1);
        assert!(check(optional(), json!({"a": 1}), Some(json!({"a": 0}))).0.is_empty());
    }

    #[test]
    fn o9_unchanged_failures_are_warnings() {
        let rule = || json!({"rule": "self.a > 5", "message": "small"});
        let (errors, ratcheted) = check(rule(), json!({"a": 1}), Some(json!({"a": 1})));
        assert!(errors.is_empty());
        assert_eq!(ratcheted, ["spec: Invalid value: small"]);
        assert_eq!(check(rule(), json!({"a": 2}), Some(json!({"a": 1}))).0.len(), 1);
    }

    #[rstest::rstest]
    #[case("self.zz > 1", "<input>:1:5: undefined field 'zz'")]
    #[case("frob(self.a)", "<input>:1:5: undeclared reference to 'frob' (in container '')")]
    #[case("other.a > 1", "<input>:1:1: undeclared reference to 'other' (in container '')")]
    #[case(
        "self.a == 'x'",
        "<input>:1:8: found no matching overload for '_==_' applied to '(int, string)'"
    )]
    #[case("self.a >", "<input>:1:9: Syntax error: mismatched input '<EOF>'")]
    #[case("self.a + 1", "cel expression must evaluate to a bool")]
    #[case(
        "self.s.sortBy(x, x) == self.s",
        "the function 'sortBy' is not supported by this server"
    )]
    fn o8_rules_that_are_refused(#[case] rule: &str, #[case] expected: &str) {
        let node = Structural::parse(&spec(json!({})));
        let problem = crate::registry::custom::compile::problem_of_rule(rule, &node);
        assert!(
            problem.as_deref().is_some_and(|text| text.contains(expected)),
            "{problem:?}"
        );
    }
}
