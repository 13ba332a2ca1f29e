//! Parses literals like cel-go.

use std::num::IntErrorKind;

use crate::registry::cel::ast::LiteralValue;

/// Parses an integer and its sign.
pub(super) fn int(sign: &str, text: &str) -> Result<LiteralValue, String> {
    let (digits, base) = based(text);
    let value = i64::from_str_radix(&format!("{sign}{digits}"), base);
    let value = value.map_err(|_| "invalid int literal".to_owned())?;
    Ok(LiteralValue::Int(value))
}

/// Parses an unsigned integer, which ends with `u`.
pub(super) fn uint(text: &str) -> Result<LiteralValue, String> {
    let (digits, base) = based(&text[..text.len() - 1]);
    let value = u64::from_str_radix(digits, base).map_err(|_| "invalid uint literal".to_owned())?;
    Ok(LiteralValue::UInt(value))
}

/// Parses a floating-point number.
pub(super) fn double(sign: &str, text: &str) -> Result<LiteralValue, String> {
    let value: Option<f64> = format!("{sign}{text}").parse().ok();
    // Go refuses numbers that would be infinite.
    let value = value.filter(|it| it.is_finite());
    let value = value.ok_or_else(|| "invalid double literal".to_owned())?;
    Ok(LiteralValue::Double(value))
}

fn based(text: &str) -> (&str, u32) {
    match text.strip_prefix("0x") {
        Some(digits) => (digits, 16),
        None => (text, 10),
    }
}

/// Parses a string literal, including its quotes.
pub(super) fn string(text: &str) -> Result<LiteralValue, String> {
    let mut value = String::with_capacity(text.len());
    unquote(text, &mut |it| match it {
        Piece::Text(text) => {
            value.push_str(text);
            Ok(())
        }
        Piece::Code(code, _) => {
            let it = char::from_u32(code).ok_or_else(|| "invalid unicode code point".to_owned())?;
            value.push(it);
            Ok(())
        }
    })?;
    Ok(LiteralValue::String(value))
}

/// Parses a bytes literal without its prefix `b`.
pub(super) fn bytes(text: &str) -> Result<LiteralValue, String> {
    let mut value = Vec::with_capacity(text.len());
    unquote(text, &mut |it| match it {
        Piece::Text(text) => {
            value.extend_from_slice(text.as_bytes());
            Ok(())
        }
        Piece::Code(code, 'u' | 'U') => Err(format!("unable to unescape string: {code}")),
        Piece::Code(code, _) => {
            value.push(u8::try_from(code).unwrap_or_default());
            Ok(())
        }
    })
    .map_err(|error| match error.starts_with("unable to unescape string") {
        true => "unable to unescape string".to_owned(),
        false => error,
    })?;
    Ok(LiteralValue::Bytes(value))
}

/// A part of a string or bytes literal.
enum Piece<'a> {
    Text(&'a str),
    /// An escaped character, and the letter after the backslash.
    Code(u32, char),
}

/// Calls `add` with the parts of a literal.
fn unquote(text: &str, add: &mut dyn FnMut(Piece<'_>) -> Result<(), String>) -> Result<(), String> {
    let text = &text.replace("\r\n", "\n").replace('\r', "\n");
    let raw = text.strip_prefix(['r', 'R']);
    let quoted = raw.unwrap_or(text);
    let is_long = quoted.len() >= 6 && (quoted.starts_with("'''") || quoted.starts_with("\"\"\""));
    let quotes = if is_long { 3 } else { 1 };
    let mut rest = &quoted[quotes..quoted.len() - quotes];
    if raw.is_some() {
        return add(Piece::Text(rest));
    }
    while let Some(at) = rest.find('\\') {
        add(Piece::Text(&rest[..at]))?;
        let (code, letter, length) = escaped(&rest[at + 1..])?;
        add(Piece::Code(code, letter))?;
        rest = &rest[at + 1 + length..];
    }
    add(Piece::Text(rest))
}

/// Parses an escape without its backslash: returns the character, the letter of the escape, and its length.
fn escaped(text: &str) -> Result<(u32, char, usize), String> {
    let letter = text.chars().next().unwrap_or_default();
    let code = |digits: Option<&str>, base: u32| {
        let read = digits.map(|it| u32::from_str_radix(it, base));
        match read {
            Some(Ok(code)) => Ok(code),
            Some(Err(error)) if *error.kind() == IntErrorKind::PosOverflow => {
                Err("invalid unicode code point".to_owned())
            }
            _ => Err("unable to unescape string".to_owned()),
        }
    };
    Ok(match letter {
        'a' => (7, letter, 1),
        'b' => (8, letter, 1),
        't' => (9, letter, 1),
        'n' => (10, letter, 1),
        'v' => (11, letter, 1),
        'f' => (12, letter, 1),
        'r' => (13, letter, 1),
        'x' | 'X' => (code(text.get(1..3), 16)?, letter, 3),
        'u' => (code(text.get(1..5), 16)?, letter, 5),
        'U' => (code(text.get(1..9), 16)?, letter, 9),
        '0'..='3' => (code(text.get(..3), 8)?, letter, 3),
        other => (u32::from(other), other, other.len_utf8()),
    })
}
