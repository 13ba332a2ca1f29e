//! The type checker of CEL, modelled on cel-go's: declared variables, fields and functions, type parameters, overload
//! resolution, and the messages and order of errors.
//!
//! `declarations.txt` lists the functions of CEL and of Kubernetes' libraries; newer functions are marked with the
//! first version of Kubernetes in which they are available. The checker does not depend on schemas or objects: the
//! caller declares the types of variables.

mod checked;
mod checker;
mod declarations;
mod environment;
mod formats;
mod literals;
mod overloads;
mod types;
mod unify;

#[cfg(test)]
mod tests;

pub(crate) use checker::check;
pub(crate) use declarations::{Mismatch, has_overload, is_function, mismatch};
pub(crate) use environment::Environment;
pub(crate) use types::{StructType, Type};
