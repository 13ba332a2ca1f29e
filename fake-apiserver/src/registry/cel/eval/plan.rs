//! `Plan`: an expression with the values of its constant parts, which are computed in advance and free.

use std::collections::HashMap;

use crate::registry::cel::ast::Expression;
use crate::registry::cel::objects::Value as CelValue;

/// An expression that is ready to be evaluated.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) expression: Expression,
    /// The values of constant lists, maps and conversions, by the number of the part.
    pub(crate) constants: HashMap<u64, CelValue>,
}
