//! Errors in `'…'.format([…])` that can be found without evaluating the call, such as a clause that does not accept the
//! type of its argument.

use super::checked::Checked;
use super::types::Type;
use crate::registry::cel::ast::{CallExpr, EntryExpr, Expr, Expression, LiteralValue};

/// Returns the error in a call of `format` with a literal string and a literal list, and the node at which it is
/// reported.
pub(super) fn problem(id: u64, call: &CallExpr, checked: &Checked) -> Option<(u64, String)> {
    let text = match &call.target.as_deref()?.expr {
        Expr::Literal(LiteralValue::String(text)) => text,
        _ => return None,
    };
    let args = match call.args.as_slice() {
        [only] => match &only.expr {
            Expr::List(list) => list.elements.as_slice(),
            _ => return None,
        },
        _ => return None,
    };
    let mut rest = text.as_str();
    let mut used = 0;
    while let Some(at) = rest.find('%') {
        rest = &rest[at + 1..];
        if let Some(after) = rest.strip_prefix('%') {
            rest = after;
            continue;
        }
        if rest.is_empty() {
            return Some((id, "unexpected end of string".to_owned()));
        }
        let Some(arg) = args.get(used) else {
            return Some((id, format!("index {used} out of range")));
        };
        used += 1;
        match clause(rest) {
            Ok((verb, length)) => {
                if let Some((part, error)) = mismatch(verb, arg, checked) {
                    return Some((part, format!("error during formatting: {error}")));
                }
                rest = &rest[length..];
            }
            Err(error) => return Some((id, format!("could not parse formatting clause: {error}"))),
        }
    }
    let count = args.len();
    let has_more = count > used;
    has_more.then(|| {
        let text = format!("too many arguments supplied to string.format (expected {used}, got {count})");
        (id, text)
    })
}

/// Returns the letter of a clause, and the length of the clause after its percent sign.
fn clause(text: &str) -> Result<(char, usize), String> {
    let mut length = 0;
    if let Some(precision) = text.strip_prefix('.') {
        let digits = precision.bytes().take_while(u8::is_ascii_digit).count();
        if digits == precision.len() {
            return Err("error while parsing precision: could not find end of precision specifier".to_owned());
        }
        if digits == 0 {
            let error = "error while converting precision to integer: strconv.Atoi: parsing \"\": invalid syntax";
            return Err(format!("error while parsing precision: {error}"));
        }
        length = digits + 1;
    }
    let verb = text[length..].chars().next().unwrap_or_default();
    match verb {
        's' | 'd' | 'f' | 'e' | 'b' | 'x' | 'X' | 'o' => Ok((verb, length + 1)),
        other => Err(format!("unrecognized formatting clause \"{other}\"")),
    }
}

/// Returns the node of an argument that a clause cannot format, and the error.
fn mismatch(verb: char, arg: &Expression, checked: &Checked) -> Option<(u64, String)> {
    let kind = checked.type_of(arg.id);
    if kind.is_exactly(&Type::Dyn) {
        return None;
    }
    let (is_valid, text) = match verb {
        's' => return unshown(arg, checked).map(|(id, name)| (id, of_string(&name))),
        'd' => (
            matches!(kind, Type::Int | Type::Uint),
            "decimal clause can only be used on integers",
        ),
        'f' => (
            matches!(kind, Type::Double | Type::String),
            "fixed-point clause can only be used on doubles",
        ),
        'e' => (
            matches!(kind, Type::Double | Type::String),
            "scientific clause can only be used on doubles",
        ),
        'b' => (
            matches!(kind, Type::Int | Type::Uint | Type::Bool),
            "only integers and bools can be formatted as binary",
        ),
        'o' => (
            matches!(kind, Type::Int | Type::Uint),
            "octal clause can only be used on integers",
        ),
        _ => (
            matches!(kind, Type::Int | Type::Uint | Type::String | Type::Bytes),
            "only integers, byte buffers, and strings can be formatted as hex",
        ),
    };
    (!is_valid).then(|| (arg.id, format!("{text}, was given {}", kind.base_name())))
}

fn of_string(name: &str) -> String {
    format!(
        "string clause can only be used on strings, bools, bytes, ints, doubles, maps, lists, types, durations, and \
         timestamps, was given {name}"
    )
}

/// Returns the first node of a value that `%s` cannot format, and the name of its type.
fn unshown(arg: &Expression, checked: &Checked) -> Option<(u64, String)> {
    let kind = checked.type_of(arg.id);
    if let Type::Opaque(..) | Type::Struct(_) | Type::Any = kind {
        return Some((arg.id, kind.base_name()));
    }
    match &arg.expr {
        Expr::List(list) => list.elements.iter().find_map(|it| unshown(it, checked)),
        Expr::Map(map) => map.entries.iter().find_map(|entry| match &entry.expr {
            EntryExpr::MapEntry(entry) => unshown(&entry.key, checked).or_else(|| unshown(&entry.value, checked)),
            EntryExpr::StructField(_) => None,
        }),
        _ => None,
    }
}
