//! Evaluation of rules with the functions of the crate `kube-cel`. What it lacks is refused by name when the CRD is
//! written, as are the errors of type that `compile` finds.

use std::cell::OnceCell;
use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use base64::Engine as _;
use kube_cel::cel::Value as CelValue;
use kube_cel::cel::objects::{Key, Map as CelMap, OptionalValue};
use kube_cel::cel::parser::Expression;

use super::super::json_type::JsonType;
use super::super::properties::FieldsInOrder;
use super::super::rules::{Rule, RuleVerdict};
use super::super::schema::{Additional, ListKind, Structural, implied};
use super::super::validate::ValueView;
use crate::api::json::{Map, Value};
use crate::registry::cel::eval::{self, EvalFailure, Meter};
use crate::registry::cel::library::{DURATION, FUNCTIONS, TIMESTAMP};
use crate::registry::cel::parse::{escape, parse};

/// The longest message a `messageExpression` may make.
const MESSAGE_MAX: usize = 5 * 1024;

/// The programs of a rule, parsed when they are first needed.
#[derive(Default)]
pub(in super::super) struct Compiled {
    rule: OnceLock<Result<Expression, String>>,
    uses_old: OnceLock<bool>,
    message: OnceLock<Result<Expression, String>>,
}

impl Compiled {
    /// The rule as a program.
    fn rule(&self, text: &str) -> &Result<Expression, String> {
        self.rule.get_or_init(|| parse(text))
    }

    /// Returns `true` if the rule uses the old value.
    pub(in super::super) fn uses_old(&self, text: &str) -> bool {
        *self
            .uses_old
            .get_or_init(|| self.rule(text).as_ref().is_ok_and(uses_old))
    }
}

/// Returns `true` if a rule compares a value with the one before a change.
pub(in super::super) fn is_about_change(rule: &str) -> bool {
    parse(rule).as_ref().is_ok_and(uses_old)
}

/// Returns `true` if an expression names the value before a change.
fn uses_old(expression: &Expression) -> bool {
    expression.references().has_variable("oldSelf")
}

impl std::fmt::Debug for Compiled {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Compiled").finish_non_exhaustive()
    }
}

/// `self` and `oldSelf` of the rules of one value. They are converted once for all rules, and only where a rule needs
/// them: converting a large value takes longer than evaluating a rule.
pub(in super::super) struct Operands<'a> {
    node: &'a Structural,
    value: ValueView<'a>,
    old: Option<ValueView<'a>>,
    /// `self` as it is, and with sets and map-lists in one order.
    converted: [OnceCell<CelValue>; 2],
    /// `oldSelf` in the same two forms.
    converted_old: [OnceCell<CelValue>; 2],
}

impl<'a> Operands<'a> {
    pub(in super::super) fn new(node: &'a Structural, value: ValueView<'a>, old: Option<ValueView<'a>>) -> Self {
        Self {
            node,
            value,
            old,
            converted: Default::default(),
            converted_old: Default::default(),
        }
    }

    /// Sets and map-lists are equal in any order, which only a transition rule, one that `sorts`, can compare.
    fn value(&self, sorts: bool) -> CelValue {
        let convert = || to_cel(self.value, Some(self.node), sorts);
        self.converted[usize::from(sorts)].get_or_init(convert).clone()
    }

    fn old(&self, sorts: bool) -> Option<CelValue> {
        let old = self.old?;
        let convert = || to_cel(old, Some(self.node), sorts);
        Some(self.converted_old[usize::from(sorts)].get_or_init(convert).clone())
    }
}

/// Evaluates a rule on a value; the cost is taken from `budget`, which is that of the whole request.
pub(in super::super) fn evaluate(rule: &Rule, operands: &Operands<'_>, budget: &mut u64) -> RuleVerdict {
    let program = match rule.compiled.rule(&rule.text) {
        Ok(program) => program,
        Err(error) => return RuleVerdict::Error(error.clone()),
    };
    let sorts = rule.uses_old();
    let mut variables = vec![("self", operands.value(sorts))];
    // The expression of the message may name `oldSelf`, too.
    let needs_old = sorts || rule.has_optional_old || !rule.message_expression.is_empty();
    let optional = |value| CelValue::Opaque(Arc::new(value));
    let old = if needs_old { operands.old(sorts) } else { None };
    match (old, rule.has_optional_old) {
        (Some(old), false) => variables.push(("oldSelf", old)),
        (Some(old), true) => variables.push(("oldSelf", optional(OptionalValue::of(old)))),
        (None, true) => variables.push(("oldSelf", optional(OptionalValue::none()))),
        (None, false) => {}
    }
    match run(program, variables.clone(), budget) {
        Ok(Ok(CelValue::Bool(true))) => RuleVerdict::Holds,
        Ok(Ok(CelValue::Bool(false))) => message(rule, variables, budget),
        Ok(Ok(_)) => RuleVerdict::Error("cel expression must evaluate to a bool".into()),
        Ok(Err(EvalFailure::Error(error))) => RuleVerdict::Error(error),
        Ok(Err(EvalFailure::TooDear)) => RuleVerdict::TooDear,
        Err(OutOfBudget) => RuleVerdict::OutOfBudget,
    }
}

/// Error for a request whose budget is spent.
struct OutOfBudget;

/// Evaluates a program within the limits of one expression and of the request.
fn run(
    program: &Expression,
    variables: Vec<(&str, CelValue)>,
    budget: &mut u64,
) -> Result<Result<CelValue, EvalFailure>, OutOfBudget> {
    let mut meter = Meter::new(Meter::CALL);
    let result = FUNCTIONS.with(|functions| eval::evaluate(program, functions, variables, &mut meter));
    *budget = budget.checked_sub(meter.spent()).ok_or(OutOfBudget)?;
    Ok(result)
}

/// A rule that does not hold, with what `messageExpression` makes, if that can be shown.
fn message(rule: &Rule, variables: Vec<(&str, CelValue)>, budget: &mut u64) -> RuleVerdict {
    if rule.message_expression.is_empty() {
        return RuleVerdict::Fails(None);
    }
    let program = rule.compiled.message.get_or_init(|| parse(&rule.message_expression));
    let Ok(program) = program else {
        return RuleVerdict::Fails(None);
    };
    match run(program, variables, budget) {
        Ok(Ok(CelValue::String(text))) => {
            let text = text.trim();
            let is_fit = !text.is_empty() && text.len() <= MESSAGE_MAX && !text.contains(['\n', '\r']);
            RuleVerdict::Fails(is_fit.then(|| text.to_owned()))
        }
        Ok(Ok(_) | Err(EvalFailure::Error(_))) => RuleVerdict::Fails(None),
        Ok(Err(EvalFailure::TooDear)) => RuleVerdict::MessageTooDear,
        Err(OutOfBudget) => RuleVerdict::MessageOutOfBudget,
    }
}

/// A value as rules see it: fields by their escaped names, undeclared fields and nulls hidden, formats converted.
fn to_cel(value: ValueView<'_>, node: Option<&Structural>, sorts: bool) -> CelValue {
    match value {
        ValueView::Null => CelValue::Null,
        ValueView::Bool(value) => CelValue::Bool(value),
        ValueView::Number(number) => {
            let is_real = node.is_some_and(|node| node.kind == Some(JsonType::Number));
            match number.as_i64().filter(|_| !is_real) {
                Some(number) => CelValue::Int(number),
                None => CelValue::Float(number.as_f64().unwrap_or(f64::NAN)),
            }
        }
        ValueView::String(text) => text_to_cel(text, node),
        ValueView::Array(list) => {
            let items = node.and_then(|node| node.items.as_deref());
            let mut order: Vec<&Value> = list.iter().collect();
            if sorts && node.is_some_and(|node| node.list != ListKind::Atomic) {
                order.sort_by_cached_key(|item| item.to_string());
            }
            let items = order.into_iter().map(|item| to_cel(item.into(), items, sorts));
            CelValue::List(Arc::new(items.collect()))
        }
        ValueView::Object(map) => map_to_cel(map, node, sorts),
    }
}

fn map_to_cel(map: &Map, node: Option<&Structural>, sorts: bool) -> CelValue {
    let mut fields = HashMap::with_capacity(map.len());
    let mut insert = |name: String, value: CelValue| {
        fields.insert(Key::String(Arc::new(name)), value);
    };
    let mut declared = node.map(FieldsInOrder::of);
    for (name, value) in map.iter().filter(|(_, value)| !value.is_null()) {
        let (Some(node), Some(declared)) = (node, &mut declared) else {
            insert(name.to_string(), to_cel(value.into(), None, sorts));
            continue;
        };
        let implied = implied(name).filter(|_| node.is_resource);
        match (implied.or_else(|| declared.declared(name)), &node.additional) {
            (Some(child), _) => insert(escape(name), to_cel(value.into(), Some(child), sorts)),
            (None, Additional::Schema(child)) => insert(name.to_string(), to_cel(value.into(), Some(child), sorts)),
            (None, Additional::Unset | Additional::Bool(_)) => {}
        }
    }
    CelValue::Map(CelMap { map: Arc::new(fields) })
}

fn text_to_cel(text: &str, node: Option<&Structural>) -> CelValue {
    let plain = || CelValue::String(Arc::new(text.to_owned()));
    let format = node.and_then(|node| node.checks.format.as_ref());
    match format.map_or("", |format| format.name()) {
        "date-time" | "datetime" => TIMESTAMP.of(text).unwrap_or_else(plain),
        "date" => TIMESTAMP.of(&format!("{text}T00:00:00Z")).unwrap_or_else(plain),
        "duration" => DURATION.of(text).unwrap_or_else(plain),
        "byte" => {
            let bytes = base64::engine::general_purpose::STANDARD.decode(text);
            bytes.map_or_else(|_| plain(), |bytes| CelValue::Bytes(Arc::new(bytes)))
        }
        _ => plain(),
    }
}
