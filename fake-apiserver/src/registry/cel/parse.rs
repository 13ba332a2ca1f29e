//! Reading an expression: the parser of the library, with the limits of a real server's before it.

use std::panic::{AssertUnwindSafe, catch_unwind};

use kube_cel::cel::common::ast::{CallExpr, EntryExpr, Expr};
use kube_cel::cel::parser::{Expression, ParseErrors, Parser};

use super::{depth, macros};
use crate::registry::types::names::CEL_RESERVED;

/// The longest expression, in characters.
const CHARS_MAX: usize = 100_000;

/// Most operators, brackets or selections nested within each other.
const DEPTH_MAX: usize = 250;

/// The stack that the parser may need for each bracket within another, in bytes, where it is not optimised.
const BRACKET_BYTES: usize = 256 * 1024;

/// The stack that it may need for each operator that follows another, in bytes. After an error it follows those, too,
/// which no expression has within each other.
const OPERATOR_BYTES: usize = 4 * 1024;

/// Most errors of an expression that are reported, as each shows its line.
pub(crate) const ERRORS_MAX: usize = 100;

/// Function names for `a.?b` and `a[?b]`.
pub(crate) const OPTIONAL_SELECT: &str = "optionalSelect__";

/// Namespaces of functions, which read as targets. The library has more of them than a real server.
const NAMESPACES: [&str; 7] = ["format", "ip", "jsonpatch", "lists", "optional", "sets", "strings"];

/// The namespace of a function that is called, such as `sets` of `sets.contains(…)`. A variable of that name hides it.
pub(crate) fn namespace(call: &CallExpr, is_variable: impl Fn(&str) -> bool) -> Option<&str> {
    match &call.target.as_deref()?.expr {
        Expr::Ident(name) if NAMESPACES.contains(&name.as_str()) && !is_variable(name) => Some(name),
        _ => None,
    }
}

/// Parses an expression; the error is the parser's. A parser that panics is one that found an error.
pub(crate) fn parse(expression: &str) -> Result<Expression, String> {
    let stack = check_size(expression)?;
    let parser = || {
        let limit = u16::try_from(DEPTH_MAX).unwrap_or(u16::MAX);
        Parser::new().enable_optional_syntax(true).max_recursion_depth(limit)
    };
    let parsed = catch_unwind(AssertUnwindSafe(|| {
        stacker::maybe_grow(stack, stack, || parser().parse(expression).map_err(show))
    }));
    let parsed = parsed.unwrap_or_else(|_| Err("the expression cannot be parsed".to_owned()));
    let mut program = parsed.map_err(|error| match expression {
        // The end of nothing lies before the first column.
        "" => error.replacen("<input>:1:1:", "<input>:1:0:", 1),
        _ => error,
    })?;
    let mut reserved = Vec::new();
    collect_reserved(&mut program, &mut reserved);
    if let Some(error) = show_reserved(expression, reserved) {
        return Err(error);
    }
    rewrite(&mut program);
    Ok(program)
}

/// The words that no variable may have as its name, which the library takes for one.
fn collect_reserved(expression: &mut Expression, found: &mut Vec<String>) {
    if let Expr::Ident(name) = &expression.expr
        && CEL_RESERVED.contains(&name.as_str())
    {
        found.push(name.as_str().to_owned());
    }
    visit_parts(expression, &mut |part| collect_reserved(part, found));
}

/// The errors of reserved words, each at its place in the expression.
fn show_reserved(expression: &str, mut words: Vec<String>) -> Option<String> {
    words.sort_unstable();
    words.dedup();
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let mut errors = Vec::new();
    for word in &words {
        let places = expression.match_indices(word.as_str()).filter(|(at, _)| {
            let (before, after) = (&expression[..*at], &expression[at + word.len()..]);
            !before.ends_with(|c| is_part(c) || c == '.') && !after.starts_with(is_part)
        });
        errors.extend(places.map(|(at, word)| (at, format!("reserved identifier: {word}"))));
    }
    show_errors(expression, errors)
}

/// The errors of an expression that has been parsed, in the order of their offsets, each with its line; `None` if there
/// are none.
pub(crate) fn show_errors(expression: &str, mut errors: Vec<(usize, String)>) -> Option<String> {
    errors.sort_by_key(|(at, _)| *at);
    let shown = errors.iter().map(|(at, what)| show_at(expression, *at, what));
    (!errors.is_empty()).then(|| first_errors(shown))
}

fn show_at(expression: &str, at: usize, what: &str) -> String {
    let read = expression.get(..at).unwrap_or(expression);
    let (line, before) = (read.matches('\n').count(), read.rsplit('\n').next().unwrap_or_default());
    let (column, dots) = (before.chars().count() + 1, ".".repeat(before.chars().count()));
    let text = expression.lines().nth(line).unwrap_or_default();
    format!("ERROR: <input>:{}:{column}: {what}\n | {text}\n | {dots}^", line + 1)
}

/// The errors. Each shows its line, and so all of those in a long line are more than a server can hold.
fn show(found: ParseErrors) -> String {
    first_errors(found.errors.into_iter().map(|it| it.to_string()))
}

fn first_errors(mut errors: impl ExactSizeIterator<Item = String>) -> String {
    let mut texts: Vec<String> = errors.by_ref().take(ERRORS_MAX).collect();
    match errors.len() {
        0 => {}
        more => texts.push(format!("{more} more errors were truncated")),
    }
    texts.join("\n")
}

/// Refuses what would be too long or too deep for a parser that calls itself; else says how much stack it needs.
fn check_size(expression: &str) -> Result<usize, String> {
    let length = expression.chars().count();
    if length > CHARS_MAX {
        let text = "ERROR: <input>:-1:0: expression code point size exceeds limit: size:";
        return Err(format!("{text} {length}, limit {CHARS_MAX}"));
    }
    let depth = depth::depth_of(expression);
    match depth.deepest > DEPTH_MAX {
        true => Err(format!(
            "ERROR: <input>:-1:0: expression recursion limit exceeded: {DEPTH_MAX}"
        )),
        false => Ok(BRACKET_BYTES * (depth.brackets + 2) + OPERATOR_BYTES * depth.parts),
    }
}

/// Turns `a.?b` and `a[?b]` into calls of a function of ours: the library parses them, but fails where `b` is absent.
/// Expands the macros it does not know.
fn rewrite(expression: &mut Expression) {
    if let Expr::Call(call) = &mut expression.expr {
        if matches!(call.func_name.as_str(), "_?._" | "_[?_]") {
            OPTIONAL_SELECT.clone_into(&mut call.func_name);
        } else if let Some(expanded) = macros::expand(call) {
            expression.expr = expanded;
        }
    }
    visit_parts(expression, &mut rewrite);
}

/// Calls `visit` with each part of an expression but those of a struct, which no expression of ours makes.
pub(crate) fn visit_parts(expression: &mut Expression, visit: &mut dyn FnMut(&mut Expression)) {
    match &mut expression.expr {
        Expr::Call(call) => {
            let target = call.target.as_deref_mut().into_iter();
            target.chain(&mut call.args).for_each(visit);
        }
        Expr::Comprehension(it) => {
            let it = &mut **it;
            for part in [
                &mut it.iter_range,
                &mut it.accu_init,
                &mut it.loop_cond,
                &mut it.loop_step,
                &mut it.result,
            ] {
                visit(part);
            }
        }
        Expr::List(list) => list.elements.iter_mut().for_each(visit),
        Expr::Select(select) => visit(&mut select.operand),
        Expr::Map(map) => {
            for entry in &mut map.entries {
                if let EntryExpr::MapEntry(entry) = &mut entry.expr {
                    visit(&mut entry.key);
                    visit(&mut entry.value);
                }
            }
        }
        Expr::Unspecified | Expr::Ident(_) | Expr::Literal(_) | Expr::Struct(_) => {}
    }
}

/// The name of a field in expressions.
pub(crate) fn escape(name: &str) -> String {
    if CEL_RESERVED.contains(&name) {
        return format!("__{name}__");
    }
    // Nearly all names are fine as they are, and this is asked for every field of every object that has rules.
    if !name.contains(['.', '-', '/']) && !name.contains("__") {
        return name.to_owned();
    }
    name.replace("__", "\0")
        .replace('.', "__dot__")
        .replace('-', "__dash__")
        .replace('/', "__slash__")
        .replace('\0', "__underscores__")
}
