//! `Evaluation`: the walk over an expression, with its variables.

use std::collections::HashMap;
use std::sync::Arc;

use kube_cel::cel::common::ast::{
    CallExpr, ComprehensionExpr, EntryExpr, Expr, ListExpr, LiteralValue, MapExpr, SelectExpr,
};
use kube_cel::cel::objects::{Key, Map as CelMap, OptionalValue};
use kube_cel::cel::parser::Expression;
use kube_cel::cel::{Context, Value as CelValue};

use super::functions;
use super::meter::{EvalFailure, Meter};
use super::operators::{self, NO_OVERLOAD, is_constant};
use crate::registry::cel::costs;
use crate::registry::cel::macros::MAP_INSERT;

/// A value, or why there is none.
pub(crate) type Evaluated = Result<CelValue, EvalFailure>;

/// Evaluates an expression that sees these variables and the functions of `functions`.
pub(crate) fn evaluate<'a>(
    program: &'a Expression,
    functions: &'a Context<'a>,
    variables: Vec<(&'a str, CelValue)>,
    meter: &mut Meter,
) -> Evaluated {
    let scope = variables.into_iter().map(|(name, value)| (name, Ok(value))).collect();
    let mut evaluation = Evaluation {
        functions,
        scope,
        meter,
    };
    evaluation.value(program)
}

/// One evaluation.
pub(crate) struct Evaluation<'a, 'm> {
    pub(crate) functions: &'a Context<'a>,
    /// Variables, the innermost last. That of a macro may hold an error.
    pub(crate) scope: Vec<(&'a str, Result<CelValue, String>)>,
    pub(crate) meter: &'m mut Meter,
}

impl<'a> Evaluation<'a, '_> {
    pub(crate) fn value(&mut self, expression: &'a Expression) -> Evaluated {
        match &expression.expr {
            Expr::Literal(literal) => Ok(self::literal(literal)),
            Expr::Ident(name) => {
                self.meter.charge(1)?;
                match self.scope.iter().rev().find(|(it, _)| it == name) {
                    Some((_, Ok(value))) => Ok(value.clone()),
                    Some((_, Err(error))) => Err(EvalFailure::Error(error.clone())),
                    None => Ok(CelValue::resolve(expression, self.functions)?),
                }
            }
            Expr::Select(select) => self.select(select),
            Expr::Call(call) => stacker::maybe_grow(costs::STACK_LEFT, costs::STACK_MORE, || self.call(call)),
            Expr::List(list) => self.list(list),
            Expr::Map(map) => self.map(map),
            Expr::Comprehension(it) => self.comprehension(it),
            Expr::Struct(_) | Expr::Unspecified => Err(EvalFailure::Error("the expression cannot be evaluated".into())),
        }
    }

    /// The value of a branch of a condition, or of a key: where it is a variable or within one, it costs nothing.
    fn attribute(&mut self, expression: &'a Expression) -> Evaluated {
        let spent = self.meter.spent();
        let value = self.value(expression)?;
        if is_attribute(expression) {
            self.meter.forget_since(spent);
        }
        Ok(value)
    }

    fn select(&mut self, select: &'a SelectExpr) -> Evaluated {
        let operand = self.value(&select.operand)?;
        if !select.test {
            self.meter.charge(1)?;
        }
        if let Ok(optional) = <&OptionalValue>::try_from(&operand) {
            let field = optional.value().and_then(|it| field(it, &select.field));
            return Ok(match select.test {
                true => CelValue::Bool(field.is_some()),
                false => functions::optional(field),
            });
        }
        let field = field(&operand, &select.field);
        match (select.test, field) {
            (true, field) => Ok(CelValue::Bool(field.is_some())),
            (false, Some(value)) => Ok(value),
            (false, None) => Err(EvalFailure::Error(format!("no such key: {}", select.field))),
        }
    }

    fn list(&mut self, list: &'a ListExpr) -> Evaluated {
        if !list.elements.iter().all(is_constant) {
            self.meter.charge(costs::LIST)?;
        }
        self.meter.work(list.elements.len())?;
        Ok(CelValue::List(Arc::new(self.elements(list)?)))
    }

    fn elements(&mut self, list: &'a ListExpr) -> Result<Vec<CelValue>, EvalFailure> {
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
        let is_constant =
            |it: &EntryExpr| matches!(it, EntryExpr::MapEntry(it) if is_constant(&it.key) && is_constant(&it.value));
        if !map.entries.iter().all(|it| is_constant(&it.expr)) {
            self.meter.charge(costs::MAP)?;
        }
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
        Ok(CelValue::Map(CelMap { map: Arc::new(fields) }))
    }

    fn call(&mut self, call: &'a CallExpr) -> Evaluated {
        match (call.func_name.as_str(), call.args.as_slice()) {
            ("_&&_", [left, right]) => self.junction(left, right, false),
            ("_||_", [left, right]) => self.junction(left, right, true),
            ("_?_:_", [condition, yes, no]) => match self.value(condition)? {
                CelValue::Bool(true) => self.attribute(yes),
                CelValue::Bool(false) => self.attribute(no),
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
                let (item, container) = (self.value(item)?, self.value(list)?);
                let is_free = matches!(&list.expr, Expr::List(list) if list.elements.iter().all(is_constant));
                operators::contains(&item, &container, is_free, self.meter)
            }
            (name, [arg]) if matches!(name, "!_" | "-_") => {
                let value = self.value(arg)?;
                operators::unary(name, value, self.meter)
            }
            ("_[_]", [container, key]) => {
                let (container, key) = (self.value(container)?, self.attribute(key)?);
                operators::binary("_[_]", container, key, self.meter)
            }
            (name, [left, right]) if operators::is_binary(name) => {
                let (left, right) = (self.value(left)?, self.value(right)?);
                operators::binary(name, left, right, self.meter)
            }
            _ => self.function(call),
        }
    }

    /// `&&` and `||`: what one side decides, an error of the other does not undo.
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

    fn comprehension(&mut self, it: &'a ComprehensionExpr) -> Evaluated {
        let range = self.value(&it.iter_range)?;
        let items = match &range {
            CelValue::List(items) => Arc::clone(items),
            CelValue::Map(map) => {
                self.meter.work(map.map.len())?;
                let mut keys: Vec<&Key> = map.map.keys().collect();
                keys.sort();
                Arc::new(keys.into_iter().map(CelValue::from).collect())
            }
            _ => return Err(overload()),
        };
        let start = self.value(&it.accu_init)?;
        let depth = self.scope.len();
        self.scope.push((&it.accu_var, Ok(start)));
        self.scope.push((&it.iter_var, Ok(CelValue::Null)));
        if let Some(second) = &it.iter_var2 {
            self.scope.push((second, Ok(CelValue::Null)));
        }
        let result = self.iterate(it, &range, &items, depth);
        self.scope.truncate(depth + 1);
        let result = result.and_then(|()| self.value(&it.result));
        self.scope.truncate(depth);
        result
    }

    /// Makes all steps; the result so far is the variable at `at`, those of the item are the next ones.
    fn iterate(
        &mut self,
        it: &'a ComprehensionExpr,
        range: &CelValue,
        items: &[CelValue],
        at: usize,
    ) -> Result<(), EvalFailure> {
        let collects = matches!(it.accu_init.expr, Expr::List(_) | Expr::Map(_));
        for (index, item) in items.iter().enumerate() {
            self.meter.work(1)?;
            let (first, second) = match (&it.iter_var2, range) {
                (None, _) => (item.clone(), None),
                (Some(_), CelValue::Map(_)) => (item.clone(), Some(operators::entry(range, item)?)),
                (Some(_), _) => {
                    let index = i64::try_from(index).unwrap_or(i64::MAX);
                    (CelValue::Int(index), Some(item.clone()))
                }
            };
            self.scope[at + 1].1 = Ok(first);
            if let Some(second) = second {
                self.scope[at + 2].1 = Ok(second);
            }
            if let CelValue::Bool(false) = self.value(&it.loop_cond)? {
                break;
            }
            let collected = match collects {
                true => self.collect(&it.loop_step, &it.accu_var, at),
                false => None,
            };
            let next = match collected {
                Some(Ok(())) => continue,
                Some(Err(error)) => Err(error),
                None => self.value(&it.loop_step),
            };
            self.scope[at].1 = match next {
                Ok(value) => Ok(value),
                Err(EvalFailure::TooDear) => return Err(EvalFailure::TooDear),
                Err(error) if collects => return Err(error),
                Err(EvalFailure::Error(error)) => Err(error),
            };
        }
        Ok(())
    }

    /// The step of a macro that adds to the list or the map that is there; `None` if the step is another one.
    fn collect(&mut self, step: &'a Expression, accu: &str, at: usize) -> Option<Result<(), EvalFailure>> {
        let Expr::Call(call) = &step.expr else { return None };
        match (call.func_name.as_str(), call.args.as_slice()) {
            ("_?_:_", [condition, yes, no]) if is_ident(no, accu) && collects(yes, accu) => {
                match self.value(condition) {
                    Ok(CelValue::Bool(true)) => self.collect(yes, accu, at),
                    Ok(CelValue::Bool(false)) => Some(Ok(())),
                    Ok(_) => Some(Err(overload())),
                    Err(error) => Some(Err(error)),
                }
            }
            ("_+_", [list, more]) if is_ident(list, accu) => match &more.expr {
                Expr::List(more) => Some(self.append(more, at)),
                _ => None,
            },
            (MAP_INSERT, [map, entry @ ..]) if is_ident(map, accu) => Some(self.insert(entry, at)),
            _ => None,
        }
    }

    /// Adds items to the list that is there.
    fn append(&mut self, more: &'a ListExpr, at: usize) -> Result<(), EvalFailure> {
        self.meter.charge(costs::LIST + 2)?;
        let items = self.elements(more)?;
        if let Ok(CelValue::List(list)) = &mut self.scope[at].1 {
            Arc::make_mut(list).extend(items);
        }
        Ok(())
    }

    /// Adds a key with its value, or all entries of a map, to the map that is there.
    fn insert(&mut self, entry: &'a [Expression], at: usize) -> Result<(), EvalFailure> {
        self.meter.charge(2)?;
        let entries: Vec<(Key, CelValue)> = match entry {
            [key, value] => {
                let key = self.value(key)?.try_into().map_err(|_| overload())?;
                vec![(key, self.value(value)?)]
            }
            [map] => match self.value(map)? {
                CelValue::Map(map) => {
                    self.meter.work(map.map.len())?;
                    map.map
                        .iter()
                        .map(|(key, value)| (key.clone(), value.clone()))
                        .collect()
                }
                _ => return Err(overload()),
            },
            _ => return Err(overload()),
        };
        let Ok(CelValue::Map(map)) = &mut self.scope[at].1 else {
            return Err(overload());
        };
        let map = Arc::make_mut(&mut map.map);
        for (key, value) in entries {
            if map.contains_key(&key) {
                return Err(EvalFailure::Error(format!("insert failed: key {key} already exists")));
            }
            map.insert(key, value);
        }
        Ok(())
    }
}

/// Returns `true` if an expression is a variable, or a place within one.
fn is_attribute(expression: &Expression) -> bool {
    match &expression.expr {
        Expr::Ident(_) => true,
        Expr::Select(select) => !select.test && is_attribute(&select.operand),
        Expr::Call(call) => match (call.func_name.as_str(), call.args.as_slice()) {
            ("_[_]", [container, key]) => is_attribute(container) && (is_attribute(key) || is_constant(key)),
            _ => false,
        },
        _ => false,
    }
}

fn is_ident(expression: &Expression, name: &str) -> bool {
    matches!(&expression.expr, Expr::Ident(it) if it == name)
}

/// Returns `true` if a step adds to the accumulator.
fn collects(step: &Expression, accu: &str) -> bool {
    let Expr::Call(call) = &step.expr else { return false };
    match (call.func_name.as_str(), call.args.as_slice()) {
        ("_+_", [list, more]) => is_ident(list, accu) && matches!(more.expr, Expr::List(_)),
        (MAP_INSERT, [map, ..]) => is_ident(map, accu),
        _ => false,
    }
}

/// A field of a value, if it has fields.
fn field(value: &CelValue, name: &str) -> Option<CelValue> {
    match value {
        CelValue::Map(map) => map.map.get(&Key::String(Arc::new(name.to_owned()))).cloned(),
        _ => None,
    }
}

fn literal(literal: &LiteralValue) -> CelValue {
    match literal {
        LiteralValue::Boolean(value) => CelValue::Bool(*value.inner()),
        LiteralValue::Bytes(bytes) => CelValue::Bytes(Arc::new(bytes.inner().to_vec())),
        LiteralValue::Double(value) => CelValue::Float(*value.inner()),
        LiteralValue::Int(value) => CelValue::Int(*value.inner()),
        LiteralValue::Null => CelValue::Null,
        LiteralValue::String(text) => CelValue::String(Arc::new(text.inner().to_owned())),
        LiteralValue::UInt(value) => CelValue::UInt(*value.inner()),
    }
}

pub(crate) fn overload() -> EvalFailure {
    EvalFailure::Error(NO_OVERLOAD.to_owned())
}
