//! Errors of a rule that are known before it is evaluated: syntax, names, and the plainest errors of type.

use kube_cel::cel::common::ast::{CallExpr, Expr, LiteralValue, SelectExpr};
use kube_cel::cel::parser::Expression;

use super::super::formats::Format;
use super::super::json_type::JsonType;
use super::super::schema::{Additional, Structural, implied};
use crate::registry::cel::names::{undeclared, unknown_function, unknown_structs, unknown_variable};
use crate::registry::cel::parse::{ERRORS_MAX, escape, parse, show_errors};
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
    if let Some(problem) = check.names(&program).or_else(|| check.all_types(&program)) {
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

/// Methods that only texts have.
const OF_TEXTS: [&str; 4] = ["startsWith", "endsWith", "contains", "matches"];

/// Something wrong with an expression, and the offset it is reported at.
type Problem = (usize, String);

struct Check<'a> {
    rule: &'a str,
    node: &'a Structural,
}

impl<'a> Check<'a> {
    fn failed(&self, problems: Vec<Problem>) -> Option<String> {
        show_errors(self.rule, problems).map(|it| format!("compilation failed: {it}"))
    }

    /// All errors of types, in the order of their places.
    fn all_types(&self, expression: &Expression) -> Option<String> {
        let mut problems = Vec::new();
        self.types(expression, &mut problems);
        self.failed(problems)
    }

    /// Returns the first function or variable that does not exist, and all structs that do not.
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
        let first = function.into_iter().chain(variable).min();
        let structs = unknown_structs(expression, self.rule, &|_| false);
        self.failed(first.into_iter().chain(structs).map(undeclared).collect())
    }

    /// Fields that the schema does not declare, and operands of another type than an operator takes.
    fn types(&self, expression: &Expression, problems: &mut Vec<Problem>) {
        match &expression.expr {
            Expr::Select(select) => {
                let before = problems.len();
                self.types(&select.operand, problems);
                // A part of something undefined may be anything.
                if problems.len() == before {
                    problems.extend(self.undefined_field(select, problems));
                }
            }
            Expr::Call(call) => {
                let below = call.target.as_deref().into_iter().chain(&call.args);
                below.for_each(|it| self.types(it, problems));
                problems.extend(self.comparison(&call.func_name, &call.args));
                problems.extend(self.method(call));
            }
            Expr::Comprehension(it) => [&it.iter_range, &it.loop_cond, &it.loop_step, &it.result]
                .into_iter()
                .for_each(|it| self.types(it, problems)),
            Expr::List(list) => list.elements.iter().for_each(|it| self.types(it, problems)),
            Expr::Unspecified | Expr::Ident(_) | Expr::Literal(_) | Expr::Map(_) | Expr::Struct(_) => {}
        }
    }

    /// A field that the schema lacks, or that expressions cannot see.
    fn undefined_field(&self, select: &SelectExpr, problems: &[Problem]) -> Option<Problem> {
        let node = self.node_of(&select.operand)?;
        let field = &select.field;
        if !is_closed(node) || field_of(node, field).is_some_and(is_exposed) {
            return None;
        }
        let what = format!("undefined field '{field}'");
        if problems.len() >= ERRORS_MAX {
            // It is only counted.
            return Some((self.rule.len(), what));
        }
        let path = path_of(&select.operand).map(|operand| format!("{operand}.{field}"));
        let places = path.map(|path| self.places(&path, field, select.test));
        let is_free = |at: &usize| !problems.iter().any(|(taken, _)| taken == at);
        let offset = places.into_iter().flatten().find(is_free);
        let offset = offset.or_else(|| self.rule.find(&format!(".{field}")));
        Some((offset.unwrap_or(0), what))
    }

    /// The places at which the selection of a field is reported: its dot, or the parenthesis of `has()`.
    fn places(&self, path: &str, field: &str, is_test: bool) -> Vec<usize> {
        let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let found = self.rule.match_indices(path).filter_map(|(at, _)| {
            let (before, after) = (&self.rule[..at], &self.rule[at + path.len()..]);
            let is_whole = !before.ends_with(|c| is_part(c) || c == '.') && !after.starts_with(is_part);
            let is_tested = before.ends_with("has(") && after.starts_with(')');
            let offset = match is_tested {
                true => at - 1,
                false => at + path.len() - field.len() - 1,
            };
            (is_whole && is_tested == is_test).then_some(offset)
        });
        found.collect()
    }

    fn comparison(&self, function: &str, args: &[Expression]) -> Option<Problem> {
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
        let text = format!("found no matching overload for '{function}' applied to '({a}, {b})'");
        Some((self.rule.find(operator).unwrap_or(0), text))
    }

    /// A function of texts on a value that is none, such as one with the format of a duration.
    fn method(&self, call: &CallExpr) -> Option<Problem> {
        let name = call.func_name.as_str();
        let args: Option<Vec<&str>> = call.args.iter().map(|it| self.type_of(it)).collect();
        let args = args?;
        let (taker, prefix) = match call.target.as_deref() {
            Some(target) => {
                let target = self.type_of(target)?;
                (target, format!("{target}."))
            }
            None => (*args.first()?, String::new()),
        };
        let is_right = match name {
            "size" => matches!(taker, "string" | "bytes"),
            _ => taker == "string" || prefix.is_empty() || !OF_TEXTS.contains(&name),
        };
        if is_right {
            return None;
        }
        let args = args.join(", ");
        let text = format!("found no matching overload for '{name}' applied to '{prefix}({args})'");
        let offset = self.rule.find(&format!("{name}(")).map(|at| at + name.len());
        Some((offset.unwrap_or(0), text))
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
            // The difference of two timestamps is none.
            let is_kept = !matches!(first, "timestamp" | "duration");
            return (is_kept && kinds.all(|it| it == Some(first))).then_some(first);
        }
        let node = self.node_of(expression)?;
        if node.int_or_string {
            return None;
        }
        match node.kind? {
            JsonType::Boolean => Some("bool"),
            JsonType::Integer => Some("int"),
            JsonType::Number => Some("double"),
            JsonType::String => Some(text_type(node)),
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

/// The type of texts of this schema, after their format.
fn text_type(node: &Structural) -> &'static str {
    match node.checks.format.as_ref().map(Format::name) {
        Some("duration") => "duration",
        Some("date" | "date-time") => "timestamp",
        Some("byte") => "bytes",
        Some(_) | None => "string",
    }
}

/// Returns `true` if expressions see the values of a schema, after `SchemaDeclType` of
/// `k8s.io/apiserver/pkg/cel/common`: values without a type are not seen, nor are lists and maps of them.
fn is_exposed(node: &Structural) -> bool {
    if node.int_or_string {
        return true;
    }
    match node.kind {
        Some(JsonType::Array) => node.items.as_deref().is_some_and(is_exposed),
        Some(JsonType::Object) => match &node.additional {
            Additional::Schema(values) => is_exposed(values),
            Additional::Unset | Additional::Bool(_) => true,
        },
        Some(JsonType::Boolean | JsonType::Integer | JsonType::Number | JsonType::String) => true,
        None => false,
    }
}

/// The text of an expression such as `self.a.b`.
fn path_of(expression: &Expression) -> Option<String> {
    match &expression.expr {
        Expr::Ident(name) => Some(name.as_str().to_owned()),
        Expr::Select(select) if !select.test => Some(format!("{}.{}", path_of(&select.operand)?, select.field)),
        _ => None,
    }
}
