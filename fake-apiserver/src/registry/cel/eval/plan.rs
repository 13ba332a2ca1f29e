//! `Plan`: an expression with the values of its constant parts. They are computed in advance and cost nothing in an
//! evaluation.

use std::collections::HashMap;

use crate::registry::cel::ast::Expression;
use crate::registry::cel::objects::Value as CelValue;

/// An expression that is ready to be evaluated.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) expression: Expression,
    /// Values of constant lists, maps and conversions, by node number.
    pub(crate) constants: HashMap<u64, CelValue>,
}
