//! What can be known to be wrong with a rule before it is evaluated: syntax, names, and the plainest errors of type.

use kube_cel::cel::common::ast::{Expr, LiteralValue};
use kube_cel::cel::parser::Expression;

use super::engine::is_function;
use super::parse::{escape, parse};
use super::rules::mentions;
use super::schema::{Additional, JsonType, Structural};

/// What is wrong with a rule of `node`, in the words of the real server where it says the same.
pub(super) fn problem(rule: &str, node: &Structural) -> Option<String> {
    let expression = match parse(rule) {
        Ok(expression) => expression,
        Err(error) => return Some(format!("compilation failed: {}", error.replace("\n|", "\n |"))),
    };
    let check = Check { rule, node };
    if let Some(problem) = check.names(&expression).or_else(|| check.types(&expression)) {
        return Some(problem);
    }
    const ARITHMETIC: [&str; 5] = ["_+_", "_-_", "_*_", "_/_", "_%_"];
    match &expression.expr {
        Expr::Call(call) if ARITHMETIC.contains(&call.func_name.as_str()) => {
            Some("cel expression must evaluate to a bool".into())
        }
        _ => None,
    }
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

    /// Functions and variables that do not exist.
    fn names(&self, expression: &Expression) -> Option<String> {
        let references = expression.references();
        let mut functions: Vec<&str> = references.functions();
        functions.sort_unstable();
        let is_name = |name: &str| name.chars().all(|c| c.is_alphanumeric() || c == '_');
        if let Some(name) = functions.into_iter().find(|name| is_name(name) && !is_function(name)) {
            const LACKING: [&str; 4] = ["sortBy", "bind", "transformList", "transformMap"];
            if LACKING.contains(&name) {
                return Some(format!("the function '{name}' is not supported by this server"));
            }
            let offset = self.rule.find(&format!("{name}(")).map_or(0, |at| at + name.len());
            return Some(self.at(offset, &format!("undeclared reference to '{name}' (in container '')")));
        }
        let mut variables: Vec<&str> = references.variables();
        variables.sort_unstable();
        // Types and the prefixes of functions read as variables, too; macros declare theirs before a comma.
        let is_known = |name: &str| {
            matches!(
                name,
                "self" | "oldSelf" | "format" | "math" | "sets" | "optional" | "base64" | "strings"
            ) || is_function(name)
                || matches!(name, "list" | "map" | "null_type")
                || name.starts_with(['@', '_'])
                || self.rule.contains(&format!("({name},"))
        };
        let name = variables
            .into_iter()
            .find(|name| !is_known(name) && mentions(self.rule, name))?;
        let offset = self.rule.find(name).unwrap_or(0);
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
                if !is_closed(node) || node.properties.keys().any(|name| escape(name) == select.field) {
                    return None;
                }
                let field = &select.field;
                let is_meta = node.is_resource && super::schema::is_meta_field(field);
                let offset = self.rule.find(&format!(".{field}")).unwrap_or(0);
                (!is_meta).then(|| self.at(offset, &format!("undefined field '{field}'")))
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
                let declared = node.properties.iter().find(|(name, _)| escape(name) == select.field);
                declared.map(|(_, child)| child)
            }
            _ => None,
        }
    }
}

/// Whether all fields of an object are declared.
fn is_closed(node: &Structural) -> bool {
    node.kind == Some(JsonType::Object) && matches!(node.additional, Additional::Unset)
}
