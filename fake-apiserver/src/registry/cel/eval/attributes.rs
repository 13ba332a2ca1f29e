//! Attributes in the sense of cel-go: variables, and fields and items of values.

use crate::registry::cel::ast::{Expr, Expression};
use crate::registry::cel::syntax::{OPTIONAL_INDEX, OPTIONAL_SELECT};

/// Returns the cost of an operand from which a field or an item is selected, in addition to the cost of its evaluation:
/// 0 for attributes and conditionals, otherwise 1.
pub(super) fn base_cost(operand: &Expression) -> u64 {
    let is_conditional = matches!(&operand.expr, Expr::Call(call) if call.func_name == "_?_:_");
    u64::from(!is_conditional && !is_attribute(operand))
}

/// Returns `true` if an expression is an attribute: a variable, or a field or an item of a value.
pub(super) fn is_attribute(expression: &Expression) -> bool {
    match &expression.expr {
        Expr::Ident(_) => true,
        Expr::Select(select) => !select.test,
        Expr::Call(call) => matches!(call.func_name.as_str(), "_[_]" | OPTIONAL_SELECT | OPTIONAL_INDEX),
        _ => false,
    }
}
