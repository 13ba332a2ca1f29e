//! Reading an expression: the parser of the library, with the limits of a real server's before it.

use std::panic::{AssertUnwindSafe, catch_unwind};

use kube_cel::cel::common::ast::{CallExpr, EntryExpr, Expr};
use kube_cel::cel::parser::{Expression, Parser};

/// The longest expression, in characters.
const CHARS_MAX: usize = 100_000;

/// How many operators, brackets or selections may follow each other into the depth.
const DEPTH_MAX: usize = 250;

/// The stack that the parser may need for each bracket within another, in bytes, where it is not optimised.
const BRACKET_BYTES: usize = 256 * 1024;

/// What calls of `a.?b` and of `a[?b]` become.
pub(super) const OPTIONAL_SELECT: &str = "optionalSelect__";

/// Namespaces of functions, which read as targets.
const NAMESPACES: [&str; 9] = [
    "base64",
    "format",
    "ip",
    "jsonpatch",
    "lists",
    "math",
    "optional",
    "sets",
    "strings",
];

/// The namespace of a function that is called, such as `sets` of `sets.contains(…)`. A variable of that name hides it.
pub(super) fn namespace(call: &CallExpr, is_variable: impl Fn(&str) -> bool) -> Option<&str> {
    match &call.target.as_deref()?.expr {
        Expr::Ident(name) if NAMESPACES.contains(&name.as_str()) && !is_variable(name) => Some(name),
        _ => None,
    }
}

/// Parses an expression; the error is the parser's. A parser that panics is one that found an error.
pub(super) fn parse(expression: &str) -> Result<Expression, String> {
    let brackets = check_size(expression)?;
    let parser = || {
        let limit = u16::try_from(DEPTH_MAX).unwrap_or(u16::MAX);
        Parser::new().enable_optional_syntax(true).max_recursion_depth(limit)
    };
    let stack = BRACKET_BYTES * (brackets + 2);
    let parsed = catch_unwind(AssertUnwindSafe(|| {
        stacker::maybe_grow(stack, stack, || {
            parser().parse(expression).map_err(|error| error.to_string())
        })
    }));
    let mut expression = parsed.unwrap_or_else(|_| Err("the expression cannot be parsed".to_owned()))?;
    rewrite_optional(&mut expression);
    Ok(expression)
}

/// Refuses what would be too long or too deep for a parser that calls itself; else says how many brackets are open at
/// most.
fn check_size(expression: &str) -> Result<usize, String> {
    let length = expression.chars().count();
    if length > CHARS_MAX {
        let text = "ERROR: <input>:-1:0: expression code point size exceeds limit: size:";
        return Err(format!("{text} {length}, limit {CHARS_MAX}"));
    }
    let (deepest, brackets) = depth(expression);
    match deepest > DEPTH_MAX {
        true => Err(format!(
            "ERROR: <input>:-1:0: expression recursion limit exceeded: {DEPTH_MAX}"
        )),
        false => Ok(brackets),
    }
}

/// How deep operators, selections and conditions are within each other.
#[derive(Clone, Copy, Default)]
struct Depth {
    operators: usize,
    selections: usize,
    conditions: usize,
}

impl Depth {
    fn most(self) -> usize {
        self.operators.max(self.selections).max(self.conditions)
    }

    fn inside(self) -> Self {
        Self {
            operators: self.operators + 1,
            selections: self.selections + 1,
            conditions: self.conditions + 1,
        }
    }
}

/// How deep an expression is at most, with all that associates to one side; and its brackets alone.
fn depth(expression: &str) -> (usize, usize) {
    let (mut deepest, mut brackets, mut outer) = (0, 0, Vec::new());
    // Where the bracket began that is open, and here.
    let (mut base, mut here) = (Depth::default(), Depth::default());
    let bytes = expression.as_bytes();
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        let before = at.checked_sub(1).map_or(b' ', |at| bytes[at]);
        at += 1;
        match byte {
            b'"' | b'\'' => at = after_text(bytes, at - 1),
            b'(' | b'[' | b'{' => {
                // It may select of what is before it, as in `a[0][0]`.
                here.selections += 1;
                outer.push((base, here));
                brackets = brackets.max(outer.len() + here.conditions);
                base = here.inside();
                here = base;
            }
            b')' | b']' | b'}' => (base, here) = outer.pop().unwrap_or_default(),
            b'.' => here.selections += 1,
            // An operator of two characters is one.
            b'=' if b"<>=!".contains(&before) => {}
            b'+' | b'-' | b'*' | b'/' | b'%' | b'<' | b'>' | b'=' | b'!' => {
                here.operators += 1;
                here.selections = base.selections;
            }
            b'?' if before != b'.' && before != b'[' => {
                here = Depth {
                    conditions: here.conditions + 1,
                    ..base
                };
            }
            b',' => here = base,
            b'&' | b'|' | b':' => {
                here = Depth {
                    conditions: here.conditions,
                    ..base
                };
            }
            _ => {}
        }
        brackets = brackets.max(here.conditions);
        deepest = deepest.max(here.most());
    }
    (deepest, brackets)
}

/// Where a text that begins at `at` ends.
fn after_text(bytes: &[u8], at: usize) -> usize {
    let quote = bytes[at];
    let is_long = bytes.get(at + 1) == Some(&quote) && bytes.get(at + 2) == Some(&quote);
    let is_raw = at > 0 && matches!(bytes[at - 1], b'r' | b'R');
    let length = if is_long { 3 } else { 1 };
    let mut at = at + length;
    while at < bytes.len() {
        match bytes[at] {
            b'\\' if !is_raw => at += 2,
            byte if byte == quote && (!is_long || bytes[at..].starts_with(&[quote; 3])) => return at + length,
            _ => at += 1,
        }
    }
    at
}

/// Turns `a.?b` and `a[?b]` into calls of a function of ours: the library parses them, but fails where `b` is absent.
fn rewrite_optional(expression: &mut Expression) {
    if let Expr::Call(call) = &mut expression.expr
        && matches!(call.func_name.as_str(), "_?._" | "_[?_]")
    {
        OPTIONAL_SELECT.clone_into(&mut call.func_name);
    }
    visit_parts(expression, &mut rewrite_optional);
}

/// Calls `visit` with each part of an expression but those of a struct, which no expression of ours makes.
pub(super) fn visit_parts(expression: &mut Expression, visit: &mut dyn FnMut(&mut Expression)) {
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
pub(super) fn escape(name: &str) -> String {
    const RESERVED: [&str; 21] = [
        "true",
        "false",
        "null",
        "in",
        "as",
        "break",
        "const",
        "continue",
        "else",
        "for",
        "function",
        "if",
        "import",
        "let",
        "loop",
        "package",
        "namespace",
        "return",
        "var",
        "void",
        "while",
    ];
    if RESERVED.contains(&name) {
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
