//! `Plan`: an expression with the values of its constant parts. The constant parts are evaluated in advance and cost
//! nothing later.

use std::collections::HashMap;

use crate::registry::cel::ast::Expression;
use crate::registry::cel::objects::Value as CelValue;

/// An expression that is ready to be evaluated.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) expression: Expression,
    /// Values of the constant parts, by node number.
    pub(crate) constants: HashMap<u64, CelValue>,
}
