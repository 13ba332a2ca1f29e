//! Undeclared names of an expression.

use kube_cel::cel::common::ast::{EntryExpr, Expr};
use kube_cel::cel::parser::Expression;

use super::library::{TYPE_NAMES, is_function};
use super::parse::namespace;

/// Types that read as variables and have no value here, beside those that have one.
const TYPES: [&str; 3] = ["type", "duration", "timestamp"];

/// The first variable that is neither known nor bound by a macro.
pub(crate) fn unknown_variable<'e>(expression: &'e Expression, known: &[&str]) -> Option<&'e str> {
    let mut ask = |expression: &'e Expression, bound: &[&str]| match &expression.expr {
        Expr::Ident(name) => {
            let name = name.as_str();
            let is_type = TYPE_NAMES.contains(&name) || TYPES.contains(&name);
            let is_known = known.contains(&name) || bound.contains(&name) || is_type;
            (!is_known && !name.starts_with('@')).then_some(name)
        }
        _ => None,
    };
    find(expression, &mut Vec::new(), &mut ask)
}

/// The first field that is taken of the variable `of` and that it lacks.
pub(crate) fn unknown_field<'e>(
    expression: &'e Expression,
    of: &str,
    is_field: &dyn Fn(&str) -> bool,
) -> Option<&'e str> {
    let mut ask = |expression: &'e Expression, bound: &[&str]| match &expression.expr {
        Expr::Select(select) => match &select.operand.expr {
            Expr::Ident(name) if name.as_str() == of && !bound.contains(&of) => {
                Some(select.field.as_str()).filter(|field| !is_field(field))
            }
            _ => None,
        },
        _ => None,
    };
    find(expression, &mut Vec::new(), &mut ask)
}

/// The first function there is none of, or the namespace that has none like it.
pub(crate) fn unknown_function<'e>(expression: &'e Expression) -> Option<&'e str> {
    let is_name = |name: &str| name.chars().all(|c| c.is_alphanumeric() || c == '_');
    let mut ask = |expression: &'e Expression, bound: &[&str]| match &expression.expr {
        Expr::Call(call) if is_name(&call.func_name) => {
            let prefix = namespace(call, |name| bound.contains(&name));
            let is_known = is_function(prefix, &call.func_name);
            (!is_known).then(|| prefix.unwrap_or(&call.func_name))
        }
        _ => None,
    };
    find(expression, &mut Vec::new(), &mut ask)
}

/// The structs of an expression that are not known, each with the place in its text where the fields begin. Those of
/// messages of protobuf are values of CEL itself.
pub(crate) fn unknown_structs<'e>(
    expression: &'e Expression,
    text: &str,
    is_known: &dyn Fn(&str) -> bool,
) -> Vec<(usize, &'e str)> {
    let (mut found, mut from) = (Vec::new(), 0);
    let mut ask = |expression: &'e Expression, _: &[&str]| {
        if let Expr::Struct(made) = &expression.expr {
            let name = made.type_name.as_str();
            let place = fields_of(name, text, from);
            from = place.unwrap_or(from);
            if !is_known(name) && !name.starts_with("google.protobuf.") {
                found.push((from, name));
            }
        }
        None::<()>
    };
    find(expression, &mut Vec::new(), &mut ask);
    found
}

/// The error of a name that is not known, at its place.
pub(crate) fn undeclared((at, name): (usize, &str)) -> (usize, String) {
    (at, format!("undeclared reference to '{name}' (in container '')"))
}

/// The place of the brace behind a name, from some place on.
fn fields_of(name: &str, text: &str, from: usize) -> Option<usize> {
    let mut names = text.get(from..)?.match_indices(name);
    names.find_map(|(at, _)| {
        let end = from + at + name.len();
        let rest = text.get(end..)?;
        let behind = rest.trim_start();
        behind.starts_with('{').then_some(end + rest.len() - behind.len())
    })
}

/// Returns the first result of `ask`, which sees each part of an expression with the variables that macros bind there.
/// Namespaces of functions are no parts.
fn find<'e, T>(
    expression: &'e Expression,
    bound: &mut Vec<&'e str>,
    ask: &mut dyn FnMut(&'e Expression, &[&str]) -> Option<T>,
) -> Option<T> {
    if let Some(found) = ask(expression, bound) {
        return Some(found);
    }
    match &expression.expr {
        Expr::Call(call) => {
            let prefix = namespace(call, |name| bound.contains(&name));
            let target = call.target.as_deref().filter(|_| prefix.is_none());
            target.into_iter().chain(&call.args).find_map(|it| find(it, bound, ask))
        }
        Expr::Select(select) => find(&select.operand, bound, ask),
        Expr::List(list) => list.elements.iter().find_map(|it| find(it, bound, ask)),
        Expr::Map(map) => map.entries.iter().find_map(|entry| match &entry.expr {
            EntryExpr::MapEntry(entry) => find(&entry.key, bound, ask).or_else(|| find(&entry.value, bound, ask)),
            EntryExpr::StructField(field) => find(&field.value, bound, ask),
        }),
        Expr::Struct(made) => made.entries.iter().find_map(|entry| match &entry.expr {
            EntryExpr::MapEntry(entry) => find(&entry.value, bound, ask),
            EntryExpr::StructField(field) => find(&field.value, bound, ask),
        }),
        Expr::Comprehension(it) => {
            let found = find(&it.iter_range, bound, ask).or_else(|| find(&it.accu_init, bound, ask));
            let depth = bound.len();
            bound.extend([it.iter_var.as_str(), it.accu_var.as_str()]);
            bound.extend(it.iter_var2.as_deref());
            let found = found.or_else(|| {
                [&it.loop_cond, &it.loop_step, &it.result]
                    .into_iter()
                    .find_map(|part| find(part, bound, ask))
            });
            bound.truncate(depth);
            found
        }
        Expr::Unspecified | Expr::Ident(_) | Expr::Literal(_) => None,
    }
}
