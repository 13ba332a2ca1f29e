//! The operators, and what they cost.

use std::cmp::Ordering;
use std::sync::Arc;

use kube_cel::cel::Value as CelValue;
use kube_cel::cel::common::ast::Expr;
use kube_cel::cel::objects::{Key, OptionalValue};
use kube_cel::cel::parser::Expression;

use super::evaluation::{Evaluated, overload};
use super::functions::optional;
use super::meter::{EvalFailure, Meter, size};

/// Error for an operator on types it does not support.
pub(crate) const NO_OVERLOAD: &str = "no such overload";

/// The longest list an expression may make; a real server shares what two lists have in common, and so knows no end.
const ITEMS_MAX: usize = 2_000_000;

/// Returns `true` if an expression is a literal value, so that it costs nothing.
pub(crate) fn is_constant(expression: &Expression) -> bool {
    matches!(expression.expr, Expr::Literal(_))
}

pub(crate) fn is_binary(name: &str) -> bool {
    matches!(
        name,
        "_==_" | "_!=_" | "_<_" | "_<=_" | "_>_" | "_>=_" | "_+_" | "_-_" | "_*_" | "_/_" | "_%_" | "_[_]"
    )
}

pub(crate) fn unary(name: &str, value: CelValue, meter: &mut Meter) -> Evaluated {
    meter.charge(1)?;
    match (name, value) {
        ("!_", CelValue::Bool(value)) => Ok(CelValue::Bool(!value)),
        ("-_", CelValue::Int(value)) => match value.checked_neg() {
            Some(value) => Ok(CelValue::Int(value)),
            None => Err(EvalFailure::Error("integer overflow".into())),
        },
        ("-_", CelValue::Float(value)) => Ok(CelValue::Float(-value)),
        _ => Err(overload()),
    }
}

pub(crate) fn binary(name: &str, left: CelValue, right: CelValue, meter: &mut Meter) -> Evaluated {
    match name {
        "_==_" | "_!=_" => {
            meter.charge_traversal(size(&left).min(size(&right)), 1)?;
            Ok(CelValue::Bool(equal(&left, &right, meter)? == (name == "_==_")))
        }
        "_<_" | "_<=_" | "_>_" | "_>=_" => {
            meter.charge_traversal(size(&left).min(size(&right)), 1)?;
            let order = match (&left, &right) {
                (CelValue::Bytes(left), CelValue::Bytes(right)) => Some(left.cmp(right)),
                (CelValue::Float(left), CelValue::Float(right)) if left.is_nan() || right.is_nan() => {
                    return Ok(CelValue::Bool(false));
                }
                (CelValue::Null, _) => None,
                (left, right) => left.partial_cmp(right),
            };
            let order = order.ok_or_else(overload)?;
            Ok(CelValue::Bool(match name {
                "_<_" => order == Ordering::Less,
                "_<=_" => order != Ordering::Greater,
                "_>_" => order == Ordering::Greater,
                _ => order != Ordering::Less,
            }))
        }
        "_+_" => add(left, right, meter),
        "_[_]" => {
            meter.charge(1)?;
            index(&left, &right)
        }
        _ => {
            meter.charge(1)?;
            Ok(match name {
                "_-_" => left - right,
                "_*_" => left * right,
                "_/_" => left / right,
                _ => left % right,
            }?)
        }
    }
}

/// Compares two values. Shared parts are walked again and again, and so every part of them is counted.
fn equal(left: &CelValue, right: &CelValue, meter: &mut Meter) -> Result<bool, EvalFailure> {
    let optional = |value| <&OptionalValue>::try_from(value).ok();
    match (left, right) {
        (CelValue::List(left), CelValue::List(right)) if left.len() == right.len() => {
            meter.work(1 + left.len())?;
            for (left, right) in left.iter().zip(right.iter()) {
                if !equal(left, right, meter)? {
                    return Ok(false);
                }
            }
            Ok(true)
        }
        (CelValue::Map(left), CelValue::Map(right)) if left.map.len() == right.map.len() => {
            meter.work(1 + left.map.len())?;
            for (key, left) in left.map.iter() {
                match right.map.get(key) {
                    Some(right) if equal(left, right, meter)? => {}
                    _ => return Ok(false),
                }
            }
            Ok(true)
        }
        (CelValue::List(_) | CelValue::Map(_), CelValue::List(_) | CelValue::Map(_)) => Ok(false),
        (left, right) => match (optional(left), optional(right)) {
            (Some(left), Some(right)) => match (left.value(), right.value()) {
                (Some(left), Some(right)) => equal(left, right, meter),
                (left, right) => Ok(left.is_none() && right.is_none()),
            },
            _ => {
                meter.work(if size(left) == size(right) { size(left) / 16 } else { 0 })?;
                Ok(left == right)
            }
        },
    }
}

fn add(left: CelValue, right: CelValue, meter: &mut Meter) -> Evaluated {
    match (left, right) {
        (CelValue::String(mut left), CelValue::String(right)) => {
            let sizes = left.chars().count() + right.chars().count();
            meter.charge_traversal(sizes, 1)?;
            Arc::make_mut(&mut left).push_str(&right);
            Ok(CelValue::String(left))
        }
        (CelValue::Bytes(mut left), CelValue::Bytes(right)) => {
            meter.charge_traversal(left.len() + right.len(), 1)?;
            Arc::make_mut(&mut left).extend_from_slice(&right);
            Ok(CelValue::Bytes(left))
        }
        (CelValue::List(left), CelValue::List(right)) => {
            meter.charge(1)?;
            if left.len() + right.len() > ITEMS_MAX {
                return Err(meter.exhaust());
            }
            meter.work(left.len() + right.len())?;
            Ok((CelValue::List(left) + CelValue::List(right))?)
        }
        (left, right) => {
            meter.charge(1)?;
            Ok((left + right)?)
        }
    }
}

/// Returns `true` if a list has an item, or a map a key.
pub(crate) fn contains(item: &CelValue, container: &CelValue, is_free: bool, meter: &mut Meter) -> Evaluated {
    match container {
        CelValue::List(items) => {
            if !is_free {
                meter.charge(items.len() as u64)?;
            }
            meter.work(items.len())?;
            for other in items.iter() {
                if equal(other, item, meter)? {
                    return Ok(CelValue::Bool(true));
                }
            }
            Ok(CelValue::Bool(false))
        }
        CelValue::Map(map) => {
            meter.charge(1)?;
            let key: Result<Key, _> = item.clone().try_into();
            Ok(CelValue::Bool(key.is_ok_and(|key| map.map.contains_key(&key))))
        }
        _ => Err(overload()),
    }
}

/// `container[key]`; of an optional container an optional value.
fn index(container: &CelValue, key: &CelValue) -> Evaluated {
    if let Ok(inner) = <&OptionalValue>::try_from(container) {
        return Ok(optional(inner.value().and_then(|it| entry(it, key).ok())));
    }
    entry(container, key)
}

/// The value of a key of a map, or of an index of a list.
pub(crate) fn entry(container: &CelValue, key: &CelValue) -> Evaluated {
    let show = |key: &CelValue| match key {
        CelValue::Int(key) => key.to_string(),
        CelValue::UInt(key) => key.to_string(),
        CelValue::Bool(key) => key.to_string(),
        CelValue::String(key) => key.to_string(),
        other => format!("{other:?}"),
    };
    match (container, key) {
        (CelValue::Map(map), key) => {
            let found: Key = key.clone().try_into().map_err(|_| overload())?;
            let value = map.map.get(&found).cloned();
            value.ok_or_else(|| EvalFailure::Error(format!("no such key: {}", show(key))))
        }
        (CelValue::List(items), CelValue::Int(_) | CelValue::UInt(_)) => {
            let at = match key {
                CelValue::Int(at) => usize::try_from(*at).ok(),
                CelValue::UInt(at) => usize::try_from(*at).ok(),
                _ => None,
            };
            let value = at.and_then(|at| items.get(at)).cloned();
            value.ok_or_else(|| EvalFailure::Error(format!("index out of bounds: {}", show(key))))
        }
        _ => Err(overload()),
    }
}

/// The entry `key` of a map or a list, or of an optional one of these, as an optional.
pub(crate) fn optional_entry(container: &CelValue, key: &CelValue) -> CelValue {
    let inner = match <&OptionalValue>::try_from(container) {
        Ok(optional) => optional.value(),
        Err(_) => Some(container),
    };
    optional(inner.and_then(|it| entry(it, key).ok()))
}
