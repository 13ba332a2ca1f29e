//! Errors of functions and operators for arguments of unsupported types, according to the table of functions.

use super::values::{EvalFailure, NO_OVERLOAD, overload};
use crate::registry::cel::check::{Mismatch, Type, has_overload, mismatch};
use crate::registry::cel::library::{TYPE_START, type_name};
use crate::registry::cel::objects::Value as CelValue;

/// Returns the error of a function that is not implemented for its arguments.
pub(super) fn of_function(name: &str, args: &[CelValue]) -> EvalFailure {
    match mismatch(name) {
        Mismatch::Types => of_types(name, args),
        Mismatch::Named => of_name(name),
        Mismatch::Plain => overload(),
    }
}

/// Returns the error of a function that does not support its arguments. The error contains their types if no overload
/// is declared for them.
pub(super) fn within_function(name: &str, is_method: bool, args: &[CelValue]) -> EvalFailure {
    let fits = |kind: &Type, at: usize| args.get(at).is_some_and(|it| is_of(it, kind));
    match mismatch(name) {
        Mismatch::Types if !has_overload(name, is_method, args.len(), fits) => of_types(name, args),
        Mismatch::Types | Mismatch::Named | Mismatch::Plain => overload(),
    }
}

/// Returns the error of an operator for unsupported operands. As in cel-go, the message contains the operator if no
/// overload accepts the left operand, except for strings, which report unsupported operators themselves.
pub(super) fn of_operator(name: &str, left: &CelValue) -> EvalFailure {
    let is_string = matches!(left, CelValue::String(_));
    match is_string || has_overload(name, false, 1, |kind, _| is_of(left, kind)) {
        true => overload(),
        false => of_name(name),
    }
}

fn of_types(name: &str, args: &[CelValue]) -> EvalFailure {
    let types: Vec<&str> = args.iter().map(type_name).collect();
    EvalFailure::Error(format!("{NO_OVERLOAD}: {name}({})", types.join(", ")))
}

fn of_name(name: &str) -> EvalFailure {
    EvalFailure::Error(format!("{NO_OVERLOAD}: {name}"))
}

/// Returns `true` if a value has a declared type. Only the first entry of a list or map is checked, as in cel-go.
fn is_of(value: &CelValue, kind: &Type) -> bool {
    match (kind, value) {
        (Type::Dyn | Type::Any | Type::Error | Type::Param(_), _)
        | (Type::Null, CelValue::Null)
        | (Type::Bool, CelValue::Bool(_))
        | (Type::Int, CelValue::Int(_))
        | (Type::Uint, CelValue::UInt(_))
        | (Type::Double, CelValue::Float(_))
        | (Type::Bytes, CelValue::Bytes(_))
        | (Type::Duration, CelValue::Duration(_))
        | (Type::Timestamp, CelValue::Timestamp(_))
        | (Type::Struct(_), CelValue::Map(_)) => true,
        (Type::String, CelValue::String(text)) => !text.starts_with(TYPE_START),
        (Type::Type(_), CelValue::String(text)) => text.starts_with(TYPE_START),
        (Type::List(item), CelValue::List(items)) => items.first().is_none_or(|it| is_of(it, item)),
        (Type::Map(key, value), CelValue::Map(map)) => {
            let mut entries = map.map.iter();
            entries
                .next()
                .is_none_or(|(it, entry)| is_of(&CelValue::from(it), key) && is_of(entry, value))
        }
        (Type::Opaque(name, _), CelValue::Opaque(opaque)) => opaque.runtime_type_name() == &**name,
        _ => false,
    }
}
