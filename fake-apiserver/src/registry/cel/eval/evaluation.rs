//! `Evaluation`: traverses an expression and evaluates it, with its variables.

use std::collections::HashMap;
use std::sync::Arc;

use super::attributes::is_attribute;
use super::meter::Meter;
use super::operators;
use super::plan::Plan;
use super::values::{EvalFailure, Evaluated, overload, whole};
use crate::registry::cel::ast::{CallExpr, EntryExpr, Expr, Expression, ListExpr, LiteralValue, MapExpr};
use crate::registry::cel::costs;
use crate::registry::cel::library::{TYPE_NAMES, type_value};
use crate::registry::cel::objects::{Key, Map as CelMap, OptionalValue, Value as CelValue};
use crate::registry::cel::syntax::OPTIONAL_TARGET;

/// Calls a function that is only available to some expressions. For a method, the first argument is the target. Returns
/// `None` for other functions.
pub(crate) type MoreFunctions = fn(name: &str, args: &[CelValue]) -> Option<Evaluated>;

/// Returns `None` for every function. Used if there are no additional functions.
pub(crate) fn no_more_functions(_: &str, _: &[CelValue]) -> Option<Evaluated> {
    None
}

/// Evaluates an expression with these variables and additional functions.
pub(crate) fn evaluate<'a>(
    plan: &'a Plan,
    functions: MoreFunctions,
    variables: Vec<(&'a str, CelValue)>,
    meter: &mut Meter,
) -> Evaluated {
    let scope = variables
        .into_iter()
        .map(|(name, value)| Slot::new(name, Ok(value)))
        .collect();
    let mut evaluation = Evaluation {
        functions,
        constants: &plan.constants,
        scope,
        meter,
    };
    evaluation.value(&plan.expression)
}

/// Evaluates a part of an expression that does not contain variables.
pub(super) fn evaluate_part<'a>(
    part: &'a Expression,
    constants: &'a HashMap<u64, CelValue>,
    functions: MoreFunctions,
    meter: &mut Meter,
) -> Evaluated {
    let mut evaluation = Evaluation {
        functions,
        constants,
        scope: Vec::new(),
        meter,
    };
    evaluation.value(part)
}

/// The state of one evaluation.
pub(crate) struct Evaluation<'a, 'm> {
    pub(crate) functions: MoreFunctions,
    /// Values of constant parts, which cost nothing.
    pub(super) constants: &'a HashMap<u64, CelValue>,
    /// The variables in scope, innermost last.
    pub(super) scope: Vec<Slot<'a>>,
    pub(crate) meter: &'m mut Meter,
}

/// A variable in scope.
pub(super) struct Slot<'a> {
    pub(super) name: &'a str,
    pub(super) value: SlotValue<'a>,
    /// Cost of computing the value.
    pub(super) cost: u64,
}

/// The value of a variable. The variable of a macro may contain an error.
pub(super) enum SlotValue<'a> {
    Known(Result<CelValue, String>),
    /// The variable is evaluated on first use.
    Later(&'a Expression),
}

impl<'a> Slot<'a> {
    pub(super) fn new(name: &'a str, value: Result<CelValue, String>) -> Self {
        Self {
            name,
            value: SlotValue::Known(value),
            cost: 0,
        }
    }
}

impl<'a> Evaluation<'a, '_> {
    pub(crate) fn value(&mut self, expression: &'a Expression) -> Evaluated {
        match &expression.expr {
            Expr::Literal(literal) => return Ok(self::literal(literal)),
            Expr::List(_) | Expr::Map(_) | Expr::Call(_) => {
                if let Some(value) = self.constants.get(&expression.id) {
                    return Ok(value.clone());
                }
            }
            _ => {}
        }
        match &expression.expr {
            Expr::Ident(name) => self.ident(name),
            Expr::Select(select) => self.select(select),
            Expr::Call(call) => stacker::maybe_grow(costs::STACK_LEFT, costs::STACK_MORE, || self.call(call)),
            Expr::List(list) => self.list(list),
            Expr::Map(map) => self.map(map),
            Expr::Comprehension(it) => self.comprehension(it),
            Expr::Literal(_) | Expr::Struct(_) | Expr::Unspecified => {
                Err(EvalFailure::Error("the expression cannot be evaluated".into()))
            }
        }
    }

    pub(super) fn ident(&mut self, name: &str) -> Evaluated {
        let name = name.strip_prefix('.').unwrap_or(name);
        let Some(at) = self.scope.iter().rposition(|it| it.name == name) else {
            // Reading a type name costs nothing.
            return match TYPE_NAMES.contains(&name) {
                true => Ok(type_value(name)),
                false => Err(EvalFailure::Error(format!("no such attribute(s): {name}"))),
            };
        };
        if name != OPTIONAL_TARGET {
            self.meter.charge(1)?;
        }
        if let SlotValue::Later(init) = self.scope[at].value {
            let inner = self.scope.split_off(at);
            let value = self.value(init);
            self.scope.extend(inner);
            let known = match value {
                Ok(value) => Ok(value),
                Err(EvalFailure::Error(error)) => Err(error),
                Err(EvalFailure::TooDear) => return Err(EvalFailure::TooDear),
            };
            self.scope[at].value = SlotValue::Known(known);
        }
        match &self.scope[at].value {
            SlotValue::Known(Ok(value)) => whole(value),
            SlotValue::Known(Err(error)) => Err(EvalFailure::Error(error.clone())),
            SlotValue::Later(_) => Err(overload()),
        }
    }

    /// Evaluates a branch of a conditional, or a key. If it is an attribute, reading its variable costs nothing.
    pub(super) fn attribute(&mut self, expression: &'a Expression) -> Evaluated {
        let value = self.value(expression);
        if is_attribute(expression) {
            self.meter.refund(1);
        }
        value
    }

    fn list(&mut self, list: &'a ListExpr) -> Evaluated {
        self.meter.work(list.elements.len())?;
        self.meter.charge(costs::LIST)?;
        Ok(CelValue::List(Arc::new(self.elements(list)?)))
    }

    pub(super) fn elements(&mut self, list: &'a ListExpr) -> Result<Vec<CelValue>, EvalFailure> {
        let mut items = Vec::with_capacity(list.elements.len());
        for (index, element) in list.elements.iter().enumerate() {
            let value = self.value(element)?;
            match (
                list.optional_indices.contains(&index),
                <&OptionalValue>::try_from(&value),
            ) {
                (true, Ok(optional)) => items.extend(optional.value().cloned()),
                _ => items.push(value),
            }
        }
        Ok(items)
    }

    fn map(&mut self, map: &'a MapExpr) -> Evaluated {
        self.meter.charge(costs::MAP)?;
        self.meter.work(map.entries.len())?;
        let mut fields = HashMap::with_capacity(map.entries.len());
        for entry in &map.entries {
            let EntryExpr::MapEntry(entry) = &entry.expr else {
                return Err(EvalFailure::Error("the expression cannot be evaluated".into()));
            };
            let key: Key = self.value(&entry.key)?.try_into().map_err(|_| overload())?;
            let value = self.value(&entry.value)?;
            match (entry.optional, <&OptionalValue>::try_from(&value)) {
                (true, Ok(optional)) => fields.extend(optional.value().map(|value| (key, value.clone()))),
                _ => {
                    fields.insert(key, value);
                }
            }
        }
        Ok(CelValue::Map(CelMap::from(fields)))
    }

    fn call(&mut self, call: &'a CallExpr) -> Evaluated {
        match (call.func_name.as_str(), call.args.as_slice()) {
            ("_&&_", [left, right]) => self.junction(left, right, false),
            ("_||_", [left, right]) => self.junction(left, right, true),
            ("_?_:_", [condition, yes, no]) => match self.value(condition)? {
                CelValue::Bool(true) => self.branch(yes),
                CelValue::Bool(false) => self.branch(no),
                _ => Err(overload()),
            },
            ("@not_strictly_false", [arg]) => {
                self.meter.charge(1)?;
                match self.value(arg) {
                    Ok(CelValue::Bool(value)) => Ok(CelValue::Bool(value)),
                    Ok(_) | Err(EvalFailure::Error(_)) => Ok(CelValue::Bool(true)),
                    Err(EvalFailure::TooDear) => Err(EvalFailure::TooDear),
                }
            }
            ("@in" | "_in_", [item, list]) => {
                let (item, container) = match self.both(item, list)? {
                    Ok(both) => both,
                    Err(error) => {
                        self.meter.charge(1)?;
                        return Err(EvalFailure::Error(error));
                    }
                };
                let is_free = matches!(self.constants.get(&list.id), Some(CelValue::List(items)) if is_set(items));
                operators::contains(&item, &container, is_free, self.meter)
            }
            (name, [arg]) if matches!(name, "!_" | "-_") => match self.value(arg) {
                Err(EvalFailure::Error(error)) => {
                    self.meter.charge(1)?;
                    Err(EvalFailure::Error(error))
                }
                value => operators::unary(name, value?, self.meter),
            },
            ("_[_]", [container, key]) => self.index(container, key),
            (name, [left, right]) if operators::is_binary(name) => match self.both(left, right)? {
                Ok((left, right)) => operators::binary(name, left, right, self.meter),
                Err(error) => {
                    self.meter.charge(1)?;
                    Err(EvalFailure::Error(error))
                }
            },
            _ => self.function(call),
        }
    }

    /// Evaluates both operands, even if the first one fails, and returns the first error.
    fn both(
        &mut self,
        left: &'a Expression,
        right: &'a Expression,
    ) -> Result<Result<(CelValue, CelValue), String>, EvalFailure> {
        let (left, right) = (self.value(left), self.value(right));
        Ok(match (left, right) {
            (Err(EvalFailure::TooDear), _) | (_, Err(EvalFailure::TooDear)) => return Err(EvalFailure::TooDear),
            (Err(EvalFailure::Error(error)), _) | (_, Err(EvalFailure::Error(error))) => Err(error),
            (Ok(left), Ok(right)) => Ok((left, right)),
        })
    }

    /// Evaluates `&&` and `||`. If one side determines the result, an error on the other side is ignored.
    fn junction(&mut self, left: &'a Expression, right: &'a Expression, decides: bool) -> Evaluated {
        let left = match self.value(left) {
            Ok(CelValue::Bool(value)) if value == decides => return Ok(CelValue::Bool(decides)),
            Ok(CelValue::Bool(_)) => Ok(()),
            Ok(_) => Err(overload()),
            Err(EvalFailure::TooDear) => return Err(EvalFailure::TooDear),
            Err(error) => Err(error),
        };
        match (left, self.value(right)) {
            (_, Err(EvalFailure::TooDear)) => Err(EvalFailure::TooDear),
            (_, Ok(CelValue::Bool(value))) if value == decides => Ok(CelValue::Bool(decides)),
            (Err(error), _) => Err(error),
            (Ok(()), Ok(CelValue::Bool(value))) => Ok(CelValue::Bool(value)),
            (Ok(()), Ok(_)) => Err(overload()),
            (Ok(()), Err(error)) => Err(error),
        }
    }
}

/// Returns `true` if a constant list is treated as a set, in which lookups cost nothing.
fn is_set(items: &[CelValue]) -> bool {
    items.iter().all(|it| {
        matches!(
            it,
            CelValue::Bool(_) | CelValue::Int(_) | CelValue::UInt(_) | CelValue::Float(_) | CelValue::String(_)
        )
    })
}

fn literal(literal: &LiteralValue) -> CelValue {
    match literal {
        LiteralValue::Boolean(value) => CelValue::Bool(*value),
        LiteralValue::Bytes(bytes) => CelValue::Bytes(Arc::new(bytes.clone())),
        LiteralValue::Double(value) => CelValue::Float(*value),
        LiteralValue::Int(value) => CelValue::Int(*value),
        LiteralValue::Null => CelValue::Null,
        LiteralValue::String(text) => CelValue::String(Arc::new(text.clone())),
        LiteralValue::UInt(value) => CelValue::UInt(*value),
    }
}
