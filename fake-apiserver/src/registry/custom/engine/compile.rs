//! Errors of a rule that are known before it is evaluated: syntax, names, and the plainest errors of type.

use kube_cel::cel::common::ast::{Expr, LiteralValue};
use kube_cel::cel::parser::Expression;

use super::super::json_type::JsonType;
use super::super::schema::{Additional, Structural, implied};
use crate::registry::cel::names::{unknown_function, unknown_variable};
use crate::registry::cel::parse::{escape, parse};
use crate::registry::cel::program::static_type;

const ARITHMETIC: [&str; 5] = ["_+_", "_-_", "_*_", "_/_", "_%_"];

/// Returns the error of a rule of `node`, in the words of the real server where it says the same.
pub(in super::super) fn problem_of_rule(rule: &str, node: &Structural) -> Option<String> {
    match kind_of(rule, node) {
        Ok(None | Some("bool")) => None,
        Ok(Some(_)) => Some("cel expression must evaluate to a bool".to_owned()),
        Err(problem) => Some(problem),
    }
}

/// Returns the error of the `messageExpression` of a rule of `node`.
pub(in super::super) fn problem_of_message(expression: &str, node: &Structural) -> Option<String> {
    match kind_of(expression, node) {
        // Sums may be texts.
        Ok(None | Some("string" | "_+_")) => None,
        Ok(Some(_)) => Some("messageExpression must evaluate to a string".to_owned()),
        Err(problem) => Some(format!("messageExpression {problem}")),
    }
}

/// The type of what an expression on a value of `node` makes, as far as it is known, or the operator that makes it;
/// else what is wrong with it.
fn kind_of(expression: &str, node: &Structural) -> Result<Option<&'static str>, String> {
    let program = parse(expression).map_err(|error| format!("compilation failed: {}", error.replace("\n|", "\n |")))?;
    let check = Check { rule: expression, node };
    if let Some(problem) = check.names(&program).or_else(|| check.types(&program)) {
        return Err(problem);
    }
    let arithmetic = || match &program.expr {
        Expr::Call(call) => ARITHMETIC.into_iter().find(|it| *it == call.func_name),
        _ => None,
    };
    Ok(check
        .type_of(&program)
        .or_else(|| static_type(&program))
        .or_else(arithmetic))
}

struct Check<'a> {
    rule: &'a str,
    node: &'a Structural,
}

impl<'a> Check<'a> {
    fn at(&self, offset: usize, what: &str) -> String {
        let (rule, column, dots) = (self.rule, offset + 1, ".".repeat(offset));
        format!("compilation failed: ERROR: <input>:1:{column}: {what}\n | {rule}\n | {dots}^")
    }

    /// Returns the first function or variable that does not exist.
    fn names(&self, expression: &Expression) -> Option<String> {
        const LACKING: [&str; 5] = ["sortBy", "optMap", "optFlatMap", "unwrap", "unwrapOpt"];
        let function = unknown_function(expression);
        if let Some(name) = function.filter(|name| LACKING.contains(name)) {
            return Some(format!("the function '{name}' is not supported by this server"));
        }
        let function = function.map(|name| {
            let call = self.rule.find(&format!("{name}(")).map(|at| at + name.len());
            (call.or_else(|| self.rule.find(name)).unwrap_or_default(), name)
        });
        let variable = unknown_variable(expression, &["self", "oldSelf"]);
        let variable = variable.map(|name| (self.rule.find(name).unwrap_or_default(), name));
        let (offset, name) = function.into_iter().chain(variable).min()?;
        Some(self.at(offset, &format!("undeclared reference to '{name}' (in container '')")))
    }

    /// Fields the schema does not declare, and comparisons of a field with a literal of another type.
    fn types(&self, expression: &Expression) -> Option<String> {
        match &expression.expr {
            Expr::Select(select) => {
                if let Some(problem) = self.types(&select.operand) {
                    return Some(problem);
                }
                let node = self.node_of(&select.operand)?;
                let field = &select.field;
                if !is_closed(node) || field_of(node, field).is_some() {
                    return None;
                }
                let offset = self.rule.find(&format!(".{field}")).unwrap_or(0);
                Some(self.at(offset, &format!("undefined field '{field}'")))
            }
            Expr::Call(call) => {
                let below = call.target.as_deref().into_iter().chain(&call.args);
                let found = below.into_iter().find_map(|it| self.types(it));
                found.or_else(|| self.comparison(&call.func_name, &call.args))
            }
            Expr::Comprehension(it) => [&it.iter_range, &it.loop_cond, &it.loop_step, &it.result]
                .into_iter()
                .find_map(|it| self.types(it)),
            Expr::List(list) => list.elements.iter().find_map(|it| self.types(it)),
            Expr::Unspecified | Expr::Ident(_) | Expr::Literal(_) | Expr::Map(_) | Expr::Struct(_) => None,
        }
    }

    fn comparison(&self, function: &str, args: &[Expression]) -> Option<String> {
        let operator = function.strip_prefix('_')?.strip_suffix('_')?;
        let [left, right] = args else { return None };
        if !matches!(operator, "==" | "!=" | "<" | "<=" | ">" | ">=") {
            return None;
        }
        let (a, b) = (self.type_of(left)?, self.type_of(right)?);
        let is_number = |name: &str| matches!(name, "int" | "double");
        if a == b || (is_number(a) && is_number(b)) {
            return None;
        }
        let offset = self.rule.find(operator).unwrap_or(0);
        let text = format!("found no matching overload for '{function}' applied to '({a}, {b})'");
        Some(self.at(offset, &text))
    }

    fn type_of(&self, expression: &Expression) -> Option<&'static str> {
        if let Expr::Literal(literal) = &expression.expr {
            return match literal {
                LiteralValue::Boolean(_) => Some("bool"),
                LiteralValue::Double(_) => Some("double"),
                LiteralValue::Int(_) => Some("int"),
                LiteralValue::String(_) => Some("string"),
                LiteralValue::Bytes(_) | LiteralValue::Null | LiteralValue::UInt(_) => None,
            };
        }
        if let Expr::Call(call) = &expression.expr
            && ARITHMETIC.contains(&call.func_name.as_str())
        {
            let mut kinds = call.args.iter().map(|it| self.type_of(it));
            let first = kinds.next()??;
            return kinds.all(|it| it == Some(first)).then_some(first);
        }
        let node = self.node_of(expression)?;
        if node.int_or_string
            || node
                .checks
                .format
                .as_ref()
                .is_some_and(|format| format.is_for_strings())
        {
            return None;
        }
        match node.kind? {
            JsonType::Boolean => Some("bool"),
            JsonType::Integer => Some("int"),
            JsonType::Number => Some("double"),
            JsonType::String => Some("string"),
            JsonType::Array | JsonType::Object => None,
        }
    }

    /// The schema of the field that an expression such as `self.a.b` selects.
    fn node_of(&self, expression: &Expression) -> Option<&'a Structural> {
        match &expression.expr {
            Expr::Ident(name) if name == "self" => Some(self.node),
            Expr::Select(select) => {
                let node = self.node_of(&select.operand)?;
                field_of(node, &select.field)
            }
            _ => None,
        }
    }
}

/// The schema of a field by its escaped name.
fn field_of<'a>(node: &'a Structural, name: &str) -> Option<&'a Structural> {
    implied(name).filter(|_| node.is_resource).or_else(|| {
        let declared = node.properties.iter().find(|(it, _)| escape(it) == name);
        declared.map(|(_, child)| child)
    })
}

/// Returns `true` if all fields of an object are declared.
fn is_closed(node: &Structural) -> bool {
    node.kind == Some(JsonType::Object) && matches!(node.additional, Additional::Unset)
}
