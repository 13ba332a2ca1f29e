//! Quantities, modelled on `k8s.io/apiserver/pkg/cel/library/quantity.go`.

use std::sync::Arc;

use super::values::{EvalFailure, Evaluated, overload};
use crate::registry::cel::objects::{Opaque, Value as CelValue};
use crate::registry::types::quantity::Quantity;

impl Opaque for Quantity {
    fn runtime_type_name(&self) -> &str {
        "kubernetes.Quantity"
    }
}

/// Calls a function of quantities; returns `None` for other functions.
pub(super) fn call(name: &str, is_method: bool, args: &[CelValue]) -> Option<Evaluated> {
    let (quantity, rest) = args.split_first()?;
    if let (false, CelValue::String(text)) = (is_method, quantity) {
        return match name {
            "quantity" => Some(match Quantity::parse(text) {
                Ok(quantity) => Ok(made(quantity)),
                Err(error) => Err(EvalFailure::Error(error.to_owned())),
            }),
            "isQuantity" => Some(Ok(CelValue::Bool(Quantity::parse(text).is_ok()))),
            _ => None,
        };
    }
    let quantity = of(quantity)?;
    match (name, rest) {
        ("sign", []) => Some(Ok(CelValue::Int(quantity.signum().into()))),
        ("isInteger", []) => Some(Ok(CelValue::Bool(quantity.as_int().is_some()))),
        ("asInteger", []) => Some(match quantity.as_int() {
            Some(number) => Ok(CelValue::Int(number)),
            None => Err(EvalFailure::Error("cannot convert value to integer".to_owned())),
        }),
        ("asApproximateFloat", []) => Some(Ok(CelValue::Float(quantity.approximate()))),
        ("add", [other]) => Some(amount(other).map(|it| made(quantity.add(&it)))),
        ("sub", [other]) => Some(amount(other).map(|it| made(quantity.subtract(&it)))),
        ("isGreaterThan", [other]) => Some(compared(other).map(|it| CelValue::Bool(quantity > it))),
        ("isLessThan", [other]) => Some(compared(other).map(|it| CelValue::Bool(quantity < it))),
        ("compareTo", [other]) => Some(compared(other).map(|it| CelValue::Int(quantity.cmp(it) as i64))),
        _ => None,
    }
}

fn made(quantity: Quantity) -> CelValue {
    CelValue::Opaque(Arc::new(quantity))
}

fn of(value: &CelValue) -> Option<&Quantity> {
    match value {
        CelValue::Opaque(opaque) => opaque.downcast_ref(),
        _ => None,
    }
}

fn compared(value: &CelValue) -> Result<&Quantity, EvalFailure> {
    of(value).ok_or_else(overload)
}

/// Converts a quantity or an integer to a quantity.
fn amount(value: &CelValue) -> Result<Quantity, EvalFailure> {
    match value {
        CelValue::Int(number) => Ok(Quantity::from_int(*number)),
        other => compared(other).copied(),
    }
}
