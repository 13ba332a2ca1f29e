//! Arithmetic with numbers, times and durations, with the errors of cel-go's `common/types/overflow.go`.

use super::values::{EvalFailure, Evaluated, overload};
use crate::registry::cel::objects::Value as CelValue;

const INT_OVERFLOW: &str = "integer overflow";
const UINT_OVERFLOW: &str = "unsigned integer overflow";
const TIMESTAMP_OVERFLOW: &str = "timestamp overflow";

/// Computes `left + right` or another arithmetic operation; `name` is the operator.
pub(super) fn compute(name: &str, left: &CelValue, right: &CelValue) -> Evaluated {
    match (left, right) {
        (CelValue::Int(left), CelValue::Int(right)) => int(name, *left, *right),
        (CelValue::UInt(left), CelValue::UInt(right)) => uint(name, *left, *right),
        (CelValue::Float(left), CelValue::Float(right)) => float(name, *left, *right),
        _ => time(name, left, right),
    }
}

fn error(text: &str) -> EvalFailure {
    EvalFailure::Error(text.to_owned())
}

/// Defines a function for the arithmetic of one integer type.
macro_rules! integer {
    ($name:ident, $type:ty, $value:path, $overflow:expr) => {
        fn $name(name: &str, left: $type, right: $type) -> Evaluated {
            let value = match (name, right) {
                ("_+_", _) => left.checked_add(right),
                ("_-_", _) => left.checked_sub(right),
                ("_*_", _) => left.checked_mul(right),
                ("_/_", 0) => return Err(error("division by zero")),
                ("_/_", _) => left.checked_div(right),
                (_, 0) => return Err(error("modulus by zero")),
                (_, _) => left.checked_rem(right),
            };
            value.map($value).ok_or_else(|| error($overflow))
        }
    };
}

integer!(int, i64, CelValue::Int, INT_OVERFLOW);
integer!(uint, u64, CelValue::UInt, UINT_OVERFLOW);

fn float(name: &str, left: f64, right: f64) -> Evaluated {
    Ok(CelValue::Float(match name {
        "_+_" => left + right,
        "_-_" => left - right,
        "_*_" => left * right,
        "_/_" => left / right,
        _ => return Err(overload()),
    }))
}

fn time(name: &str, left: &CelValue, right: &CelValue) -> Evaluated {
    let duration = |value: Option<_>| value.map(CelValue::Duration).ok_or_else(|| error(INT_OVERFLOW));
    let timestamp = |value: Option<_>| value.map(CelValue::Timestamp).ok_or_else(|| error(TIMESTAMP_OVERFLOW));
    match (name, left, right) {
        ("_+_", CelValue::Duration(left), CelValue::Duration(right)) => duration(left.checked_add(*right)),
        ("_-_", CelValue::Duration(left), CelValue::Duration(right)) => duration(left.checked_sub(*right)),
        ("_+_", CelValue::Timestamp(at), CelValue::Duration(length))
        | ("_+_", CelValue::Duration(length), CelValue::Timestamp(at)) => timestamp(at.checked_add(*length)),
        ("_-_", CelValue::Timestamp(at), CelValue::Duration(length)) => timestamp(at.checked_sub(*length)),
        ("_-_", CelValue::Timestamp(left), CelValue::Timestamp(right)) => duration(left.since(right)),
        _ => Err(overload()),
    }
}
