//! Parses expressions, after applying kube-apiserver's limits.

use super::ast::{EntryExpr, Expr, Expression};
use super::syntax::{self, Dialect, Parsed, Refused};
use super::{check, depth};
use crate::registry::types::names::CEL_RESERVED;

/// Maximum length of an expression, in characters.
const CHARS_MAX: usize = 100_000;

/// Maximum nesting depth of operators, brackets or selections.
const DEPTH_MAX: usize = 250;

/// Maximum length in bytes of a line that is printed with an error.
const SNIPPET_BYTES_MAX: usize = 16_384;

/// Maximum number of errors reported for one expression, because each is printed with its line.
pub(crate) const ERRORS_MAX: usize = 100;

/// Parses an expression. Fails with cel-go's messages.
pub(crate) fn parse(expression: &str) -> Result<Expression, String> {
    parse_source(expression).map(|it| it.expression)
}

/// Parses an expression, and keeps the positions of its nodes.
pub(crate) fn parse_source(expression: &str) -> Result<Parsed, String> {
    parse_source_of(expression, Dialect::STORED)
}

/// Parses an expression in a dialect, and keeps the positions of its nodes.
pub(crate) fn parse_source_of(expression: &str, dialect: Dialect) -> Result<Parsed, String> {
    check_size(expression)?;
    match syntax::parse(expression, dialect) {
        Ok(mut parsed) => {
            name_functions(&mut parsed.expression, dialect);
            Ok(parsed)
        }
        Err(Refused::Errors(errors)) => Err(show_errors(expression, errors).unwrap_or_default()),
        Err(Refused::Syntax) => Err(syntax_error(expression)),
    }
}

/// Returns the syntax errors of an expression.
fn syntax_error(expression: &str) -> String {
    let shown = show_errors(expression, syntax::syntax_errors(expression)).unwrap_or_default();
    match expression {
        // For an empty expression, cel-go reports an error in column 0 and does not print a line.
        "" => shown
            .lines()
            .next()
            .unwrap_or_default()
            .replacen("<input>:1:1:", "<input>:1:0:", 1),
        _ => shown,
    }
}

/// Replaces calls such as `ip.isCanonical(x)`, which are parsed as method calls on a variable `ip`, with calls of the
/// function `ip.isCanonical`.
fn name_functions(part: &mut Expression, dialect: Dialect) {
    if let Expr::Call(call) = &mut part.expr
        && let Some(target) = &call.target
        && let Expr::Ident(prefix) = &target.expr
    {
        let name = format!("{}.{}", prefix.trim_start_matches('.'), call.func_name);
        if check::is_function(&name, dialect.libraries) {
            call.func_name = name;
            call.target = None;
        }
    }
    stacker::maybe_grow(super::costs::STACK_LEFT, super::costs::STACK_MORE, || {
        visit_parts(part, &mut |part| name_functions(part, dialect));
    });
}

/// Formats up to [`ERRORS_MAX`] errors of an expression, sorted by offset, each with its line; returns `None` for an
/// empty list.
pub(crate) fn show_errors(expression: &str, mut errors: Vec<(usize, String)>) -> Option<String> {
    let more = errors.len().saturating_sub(ERRORS_MAX);
    errors.truncate(ERRORS_MAX);
    errors.sort_by_key(|(at, _)| *at);
    let mut shown: Vec<String> = errors.iter().map(|(at, what)| show_at(expression, *at, what)).collect();
    if more > 0 {
        shown.push(format!("{more} more errors were truncated"));
    }
    (!shown.is_empty()).then(|| shown.join("\n"))
}

/// Formats an error with its line and a mark below its position. Multi-byte characters are shown as wide dots and
/// marks.
fn show_at(expression: &str, at: usize, what: &str) -> String {
    let read = expression.get(..at).unwrap_or(expression);
    let (line, before) = (read.matches('\n').count(), read.rsplit('\n').next().unwrap_or_default());
    let column = before.chars().count() + 1;
    let shown = format!("ERROR: <input>:{}:{column}: {what}", line + 1);
    let text = expression.split('\n').nth(line).unwrap_or_default();
    if text.len() > SNIPPET_BYTES_MAX {
        return shown;
    }
    let dots: String = before
        .chars()
        .map(|it| if it.is_ascii() { '.' } else { '．' })
        .collect();
    let mark = match text[before.len()..].chars().next() {
        Some(it) if !it.is_ascii() => '＾',
        _ => '^',
    };
    format!("{shown}\n | {}\n | {dots}{mark}", text.replace('\t', " "))
}

/// Refuses an expression that is too long, or too deep for a recursive parser.
fn check_size(expression: &str) -> Result<(), String> {
    let length = expression.chars().count();
    if length > CHARS_MAX {
        let text = "ERROR: <input>:-1:0: expression code point size exceeds limit: size:";
        return Err(format!("{text} {length}, limit {CHARS_MAX}"));
    }
    match depth::depth_of(expression) > DEPTH_MAX {
        true => Err(format!(
            "ERROR: <input>:-1:0: expression recursion limit exceeded: {DEPTH_MAX}"
        )),
        false => Ok(()),
    }
}

/// Returns `true` if an expression contains the variable `name`.
pub(crate) fn names_variable(expression: &Expression, name: &str) -> bool {
    if let Expr::Ident(it) = &expression.expr
        && it == name
    {
        return true;
    }
    let mut is_named = false;
    parts(expression, &mut |part| {
        is_named = is_named
            || stacker::maybe_grow(super::costs::STACK_LEFT, super::costs::STACK_MORE, || {
                names_variable(part, name)
            });
    });
    is_named
}

/// Calls `visit` for each direct subexpression of an expression.
pub(crate) fn parts(expression: &Expression, visit: &mut dyn FnMut(&Expression)) {
    let entry = |entry: &EntryExpr, visit: &mut dyn FnMut(&Expression)| match entry {
        EntryExpr::MapEntry(entry) => {
            visit(&entry.key);
            visit(&entry.value);
        }
        EntryExpr::StructField(field) => visit(&field.value),
    };
    match &expression.expr {
        Expr::Call(call) => call.target.as_deref().into_iter().chain(&call.args).for_each(visit),
        Expr::Comprehension(it) => {
            let start = [&it.iter_range, &it.accu_init];
            let turn = [&it.loop_cond, &it.loop_step, &it.result];
            start.into_iter().chain(turn).for_each(visit);
        }
        Expr::List(list) => list.elements.iter().for_each(visit),
        Expr::Select(select) => visit(&select.operand),
        Expr::Map(map) => map.entries.iter().for_each(|it| entry(&it.expr, visit)),
        Expr::Struct(made) => made.entries.iter().for_each(|it| entry(&it.expr, visit)),
        Expr::Unspecified | Expr::Ident(_) | Expr::Literal(_) => {}
    }
}

/// Calls `visit` with a mutable reference to each direct subexpression of an expression.
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
        Expr::Struct(made) => {
            for entry in &mut made.entries {
                if let EntryExpr::StructField(field) = &mut entry.expr {
                    visit(&mut field.value);
                }
            }
        }
        Expr::Unspecified | Expr::Ident(_) | Expr::Literal(_) => {}
    }
}

/// Escapes a field name for use in expressions.
pub(crate) fn escape(name: &str) -> String {
    if CEL_RESERVED.contains(&name) {
        return format!("__{name}__");
    }
    // Fast path: called for every field of every object that has rules, and almost no name needs escaping.
    if !name.contains(['.', '-', '/']) && !name.contains("__") {
        return name.to_owned();
    }
    name.replace("__", "\0")
        .replace('.', "__dot__")
        .replace('-', "__dash__")
        .replace('/', "__slash__")
        .replace('\0', "__underscores__")
}
