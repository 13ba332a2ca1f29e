//! Evaluates rules. Rules with type errors cannot occur here, because they are refused when the CRD is written.

use std::cell::OnceCell;
use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use base64::engine::{GeneralPurpose, GeneralPurposeConfig};
use base64::{DecodeError, Engine as _, alphabet};

use super::super::formats::parse_duration;
use super::super::json_type::JsonType;
use super::super::properties::FieldsInOrder;
use super::super::rules::{Rule, RuleVerdict};
use super::super::schema::{Additional, ListKind, Structural, implied};
use super::super::validate::ValueView;
use crate::api::json::{Map, Value};
use crate::registry::cel::ast::Expression;
use crate::registry::cel::eval::{
    self, EvalFailure, ItemType, ListType, Merging, Meter, Plan, TypedLists, no_more_functions, plan_of, stored_keys,
};
use crate::registry::cel::objects::{Key, Map as CelMap, OptionalValue, Value as CelValue};
use crate::registry::cel::parse::{escape, names_variable, parse};
use crate::registry::cel::times::{Duration, Time};

/// Maximum length of the result of a `messageExpression` in bytes.
const MESSAGE_MAX: usize = 5 * 1024;

/// The parsed expressions of a rule, parsed on first use.
#[derive(Default)]
pub(in super::super) struct Compiled {
    rule: OnceLock<Result<Plan, String>>,
    uses_old: OnceLock<bool>,
    message: OnceLock<Result<Plan, String>>,
}

impl Compiled {
    /// Returns the parsed rule.
    fn rule(&self, text: &str) -> &Result<Plan, String> {
        self.rule.get_or_init(|| planned(text))
    }

    /// Returns `true` if the rule uses `oldSelf`.
    pub(in super::super) fn uses_old(&self, text: &str) -> bool {
        *self
            .uses_old
            .get_or_init(|| self.rule(text).as_ref().is_ok_and(|it| uses_old(&it.expression)))
    }
}

/// Parses and plans an expression.
pub(super) fn planned(text: &str) -> Result<Plan, String> {
    let program = parse(text)?;
    plan_of(program, no_more_functions)
}

/// Returns `true` if a rule uses `oldSelf`.
pub(in super::super) fn is_about_change(rule: &str) -> bool {
    parse(rule).as_ref().is_ok_and(uses_old)
}

/// Returns `true` if an expression contains `oldSelf`.
fn uses_old(expression: &Expression) -> bool {
    names_variable(expression, "oldSelf")
}

impl std::fmt::Debug for Compiled {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Compiled").finish_non_exhaustive()
    }
}

/// `self` and `oldSelf` for the rules of one value. Each is converted at most once, and `oldSelf` only if a rule
/// uses it, because converting a large value takes longer than evaluating a rule.
pub(in super::super) struct Operands<'a> {
    node: &'a Structural,
    value: ValueView<'a>,
    old: Option<ValueView<'a>>,
    /// `self`, with the types of its lists.
    converted: OnceCell<Converted>,
    /// `oldSelf`, with the types of its lists.
    converted_old: OnceCell<Converted>,
}

/// A value converted for rules, with the types of its lists.
type Converted = (CelValue, TypedLists);

impl<'a> Operands<'a> {
    pub(in super::super) fn new(node: &'a Structural, value: ValueView<'a>, old: Option<ValueView<'a>>) -> Self {
        Self {
            node,
            value,
            old,
            converted: OnceCell::new(),
            converted_old: OnceCell::new(),
        }
    }

    fn value(&self) -> &Converted {
        self.converted.get_or_init(|| converted(self.value, self.node))
    }

    fn old(&self) -> Option<&Converted> {
        let old = self.old?;
        Some(self.converted_old.get_or_init(|| converted(old, self.node)))
    }
}

fn converted(value: ValueView<'_>, node: &Structural) -> Converted {
    let mut typed = TypedLists::default();
    let value = to_cel(value, Some(node), &mut typed);
    (value, typed)
}

/// Evaluates a rule for a value. The cost is subtracted from `budget`, the remaining budget of the request.
pub(in super::super) fn evaluate(rule: &Rule, operands: &Operands<'_>, budget: &mut u64) -> RuleVerdict {
    let program = match rule.compiled.rule(&rule.text) {
        Ok(program) => program,
        Err(error) => return RuleVerdict::Error(error.clone()),
    };
    match run(program, variables_of(rule, operands), budget) {
        Ok(Ok(CelValue::Bool(true))) => RuleVerdict::Holds,
        Ok(Ok(CelValue::Bool(false))) => message(rule, operands, budget),
        Ok(Ok(_)) => RuleVerdict::Error("cel expression must evaluate to a bool".into()),
        Ok(Err(EvalFailure::Error(error))) => RuleVerdict::Error(error),
        Ok(Err(EvalFailure::TooDear)) => RuleVerdict::TooDear,
        Err(OutOfBudget) => RuleVerdict::OutOfBudget,
    }
}

/// The variables of an expression, with the types of their lists.
type Variables = (Vec<(&'static str, CelValue)>, Vec<TypedLists>);

/// Returns the variables of a rule.
fn variables_of(rule: &Rule, operands: &Operands<'_>) -> Variables {
    let (mut variables, typed) = variables(operands, rule.uses_old());
    if rule.has_optional_old {
        let old = variables.iter().position(|(name, _)| *name == "oldSelf");
        let old = old.map(|at| variables.remove(at).1);
        let old = old.map_or_else(OptionalValue::none, OptionalValue::of);
        variables.push(("oldSelf", CelValue::Opaque(Arc::new(old))));
    }
    (variables, typed)
}

/// Returns the variables of a `messageExpression`, which are the same for all rules of a value. `oldSelf` is never
/// optional, and only set if one of these rules uses it.
fn variables_of_message(operands: &Operands<'_>) -> Variables {
    variables(operands, operands.node.rules.iter().any(|rule| rule.uses_old()))
}

/// Returns `self`, and `oldSelf` if it exists and `needs_old` is set.
fn variables(operands: &Operands<'_>, needs_old: bool) -> Variables {
    let (value, typed) = operands.value();
    let (mut variables, mut typed) = (vec![("self", value.clone())], vec![typed.clone()]);
    if let Some((old, typed_old)) = needs_old.then(|| operands.old()).flatten() {
        typed.push(typed_old.clone());
        variables.push(("oldSelf", old.clone()));
    }
    (variables, typed)
}

/// Returns the value of a rule's expression or its error, and the cost.
#[cfg(test)]
pub(super) fn value_of(rule: &Rule, operands: &Operands<'_>) -> (Result<CelValue, String>, u64) {
    let (variables, typed) = variables_of(rule, operands);
    let program = match rule.compiled.rule(&rule.text) {
        Ok(program) => program,
        Err(error) => return (Err(error.clone()), 0),
    };
    let mut meter = Meter::new(Meter::CALL).with_typed(typed);
    let result = eval::evaluate(program, no_more_functions, variables, &mut meter);
    let result = result.map_err(|failure| match failure {
        EvalFailure::Error(error) => error,
        EvalFailure::TooDear => "operation cancelled: actual cost limit exceeded".to_owned(),
    });
    (result, meter.spent())
}

/// Error: the request has used up its budget.
struct OutOfBudget;

/// Evaluates an expression within the limits of one expression and of the request.
fn run(
    program: &Plan,
    (variables, typed): Variables,
    budget: &mut u64,
) -> Result<Result<CelValue, EvalFailure>, OutOfBudget> {
    let mut meter = Meter::new(Meter::CALL).with_typed(typed);
    let result = eval::evaluate(program, no_more_functions, variables, &mut meter);
    *budget = budget.checked_sub(meter.spent()).ok_or(OutOfBudget)?;
    Ok(result)
}

/// Returns the result for a violated rule, with the message from `messageExpression` if it is valid.
fn message(rule: &Rule, operands: &Operands<'_>, budget: &mut u64) -> RuleVerdict {
    if rule.message_expression.is_empty() {
        return RuleVerdict::Fails(None);
    }
    let program = rule.compiled.message.get_or_init(|| planned(&rule.message_expression));
    let Ok(program) = program else {
        return RuleVerdict::Fails(None);
    };
    match run(program, variables_of_message(operands), budget) {
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

/// Converts a value for rules: field names are escaped, undeclared and null fields are hidden, and strings with a
/// format such as `date-time` become values of the corresponding type. A value without a type can only be compared, so
/// it is converted like a value without a schema.
///
/// If the type of a value differs from its schema, such as a list for a string with a format, the result is an error
/// that is returned when the value is read.
fn to_cel(value: ValueView<'_>, node: Option<&Structural>, typed: &mut TypedLists) -> CelValue {
    if let Some(error) = node.and_then(|node| misfit(value, node)) {
        return eval::broken(error);
    }
    let node = node.filter(|node| node.kind.is_some() || node.int_or_string);
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
            let kind = node.map(|node| list_type(list, node));
            let items = node.and_then(|node| node.items.as_deref());
            let items = list.iter().map(|item| to_cel(item.into(), items, typed));
            let list = Arc::new(items.collect());
            if let Some(kind) = kind {
                typed.insert(&list, kind);
            }
            CelValue::List(list)
        }
        ValueView::Object(map) => map_to_cel(map, node, typed),
    }
}

/// Returns the type of a list with this schema.
fn list_type(list: &[Value], node: &Structural) -> ListType {
    let items = node.items.as_deref();
    let merging = match &node.list {
        ListKind::Atomic => Merging::Atomic,
        ListKind::Set => Merging::Set(items.is_some_and(is_converted).then(|| stored_keys(list))),
        ListKind::Map(keys) => {
            let keys = keys.iter().map(|key| (escape(key) == *key).then(|| key.clone()));
            Merging::Map(keys.collect())
        }
    };
    ListType {
        merging,
        items: items.map_or(ItemType::Other, item_type),
    }
}

fn item_type(node: &Structural) -> ItemType {
    if node.int_or_string {
        return ItemType::IntOrString;
    }
    match node.kind {
        Some(JsonType::Boolean) => ItemType::Bool,
        Some(JsonType::Integer) => ItemType::Int,
        Some(JsonType::Number) => ItemType::Double,
        Some(JsonType::String) => ItemType::String,
        Some(JsonType::Array | JsonType::Object) | None => ItemType::Other,
    }
}

/// Returns `true` if expressions read values of another type than the stored values: whole numbers as doubles, and
/// strings with a format as times, durations or bytes.
fn is_converted(node: &Structural) -> bool {
    node.kind == Some(JsonType::Number) || PARSED_FORMATS.contains(&format_name(node))
}

/// Formats of strings that expressions read as values of another type.
const PARSED_FORMATS: [&str; 4] = ["date-time", "date", "duration", "byte"];

/// Returns the name of a node's format, or an empty string.
fn format_name(node: &Structural) -> &str {
    node.checks.format.as_ref().map_or("", |format| format.name())
}

/// Returns the error for a value with a type that differs from its schema (`UnstructuredToVal` of
/// `k8s.io/apiserver/pkg/cel/common`).
fn misfit(value: ValueView<'_>, node: &Structural) -> Option<String> {
    use ValueView as View;
    if value == View::Null {
        return (!node.nullable).then(|| "invalid data, got null for schema with nullable=false".to_owned());
    }
    if node.int_or_string {
        let fits = match value {
            View::String(_) => true,
            View::Number(number) => number.as_i64().is_some(),
            View::Null | View::Bool(_) | View::Array(_) | View::Object(_) => false,
        };
        let error = "invalid data, expected XIntOrString value to be either a string or integer";
        return (!fits).then(|| error.to_owned());
    }
    let expected = match (node.kind?, value) {
        (_, View::Null)
        | (JsonType::String, View::String(_))
        | (JsonType::Boolean, View::Bool(_))
        | (JsonType::Number, View::Number(_))
        | (JsonType::Array, View::Array(_))
        | (JsonType::Object, View::Object(_)) => return None,
        (JsonType::Integer, View::Number(number)) if number.as_i64().is_some() => return None,
        (JsonType::Object, _) => {
            return Some("invalid data, expected a map for the provided schema with type=object".to_owned());
        }
        (JsonType::Array, _) => {
            return Some("invalid data, expected an array for the provided schema with type=array".to_owned());
        }
        (JsonType::String, _) => "string",
        (JsonType::Boolean, _) => "bool",
        (JsonType::Integer, _) => "int",
        (JsonType::Number, _) => "float",
    };
    let found = match value {
        View::Null => "<nil>",
        View::Bool(_) => "bool",
        View::Number(number) if number.as_i64().is_some() => "int64",
        View::Number(_) => "float64",
        View::String(_) => "string",
        View::Array(_) => "[]interface {}",
        View::Object(_) => "map[string]interface {}",
    };
    Some(format!("invalid data, expected {expected}, got {found}"))
}

/// Converts a map. The undeclared fields of an object are hidden, and so are null fields, because rules treat them like
/// absent fields.
fn map_to_cel(map: &Map, node: Option<&Structural>, typed: &mut TypedLists) -> CelValue {
    let key = |name: String| Key::String(Arc::new(name));
    let mut fields = HashMap::with_capacity(map.len());
    let mut hidden = HashMap::new();
    let mut declared = node.map(FieldsInOrder::of);
    for (name, value) in map {
        let (Some(node), Some(declared)) = (node, &mut declared) else {
            fields.insert(key(name.to_string()), to_cel(value.into(), None, typed));
            continue;
        };
        let implied = implied(name).filter(|_| node.is_resource);
        match (implied.or_else(|| declared.declared(name)), &node.additional) {
            (Some(child), _) if !value.is_null() => {
                fields.insert(key(escape(name)), to_cel(value.into(), Some(child), typed));
            }
            (None, Additional::Schema(child)) => {
                fields.insert(key(name.to_string()), to_cel(value.into(), Some(child), typed));
            }
            (Some(_), _) | (None, Additional::Unset | Additional::Bool(_)) => {
                hidden.insert(key(escape(name)), to_cel(value.into(), None, typed));
            }
        }
    }
    CelValue::Map(CelMap {
        map: Arc::new(fields),
        hidden: (!hidden.is_empty()).then(|| Arc::new(hidden)),
    })
}

fn text_to_cel(text: &str, node: Option<&Structural>) -> CelValue {
    let plain = || CelValue::String(Arc::new(text.to_owned()));
    match node.map_or("", format_name) {
        "date-time" => Time::parse(text).map_or_else(plain, CelValue::Timestamp),
        "date" => Time::parse(&format!("{text}T00:00:00Z")).map_or_else(plain, CelValue::Timestamp),
        "duration" => match parse_duration(text) {
            Ok(nanoseconds) => CelValue::Duration(Duration::from_nanoseconds(nanoseconds)),
            Err(error) => eval::broken(format!("Invalid duration {text}: {error}")),
        },
        "byte" => match URL_ENCODING.decode(text) {
            Ok(bytes) => CelValue::Bytes(Arc::new(bytes)),
            Err(error) => {
                // Go reports the start of an incomplete group of four characters.
                let at = match error {
                    DecodeError::InvalidByte(at, _) => at,
                    _ => text.len() - text.len() % 4,
                };
                let error = format!("Invalid byte formatted string {text}: illegal base64 data at input byte {at}");
                eval::broken(error)
            }
        },
        _ => plain(),
    }
}

/// `base64.URLEncoding` of Go. Rules cannot read strings that contain `+` or `/`, although the format permits them.
const URL_ENCODING: GeneralPurpose = GeneralPurpose::new(
    &alphabet::URL_SAFE,
    GeneralPurposeConfig::new().with_decode_allow_trailing_bits(true),
);
