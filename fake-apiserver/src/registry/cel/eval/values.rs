//! Values and failures of an evaluation, and functions that create them.

use std::sync::Arc;

use crate::registry::cel::objects::{Opaque, OptionalValue, Value as CelValue};

/// A value, or the reason for a failed evaluation.
pub(crate) type Evaluated = Result<CelValue, EvalFailure>;

/// Reason why an evaluation failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum EvalFailure {
    /// The expression has an error. Contains cel-go's message, if it is implemented here.
    Error(String),
    /// The expression exceeds its cost limit.
    TooDear,
}

/// Error for an operator or a function called with unsupported types.
pub(super) const NO_OVERLOAD: &str = "no such overload";

pub(crate) fn overload() -> EvalFailure {
    EvalFailure::Error(NO_OVERLOAD.to_owned())
}

/// Creates an optional value.
pub(super) fn optional(value: Option<CelValue>) -> CelValue {
    CelValue::Opaque(Arc::new(value.map_or_else(OptionalValue::none, OptionalValue::of)))
}

pub(super) fn list(items: Vec<CelValue>) -> CelValue {
    CelValue::List(Arc::new(items))
}

/// A placeholder for a value that could not be computed. The evaluation fails when it is read.
#[derive(Debug, PartialEq, Eq)]
struct Broken(String);

impl Opaque for Broken {
    fn runtime_type_name(&self) -> &str {
        "error"
    }
}

/// Creates a value that fails with `error` when it is read as a variable, a field or an item, or from an optional
/// value.
pub(crate) fn broken(error: String) -> CelValue {
    CelValue::Opaque(Arc::new(Broken(error)))
}

/// Returns a copy of the value; fails if it was created by [`broken`].
pub(super) fn whole(value: &CelValue) -> Evaluated {
    match value {
        CelValue::Opaque(opaque) => match opaque.downcast_ref::<Broken>() {
            Some(Broken(error)) => Err(EvalFailure::Error(error.clone())),
            None => Ok(value.clone()),
        },
        _ => Ok(value.clone()),
    }
}
