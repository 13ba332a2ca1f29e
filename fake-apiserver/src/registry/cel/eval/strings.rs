//! Functions of strings, modelled on cel-go's library `strings` and Kubernetes' library of regular expressions.

use std::sync::Arc;

use super::meter::Meter;
use super::patterns::pattern;
use super::values::{EvalFailure, Evaluated, list, overload};
use crate::registry::cel::objects::Value as CelValue;

/// Maximum length of a string that a function may return, in bytes.
const TEXT_MAX: usize = 64 * 1024 * 1024;

/// Calls a method of a string; returns `None` for other methods.
pub(super) fn call(name: &str, text: &str, args: &[CelValue], meter: &mut Meter) -> Option<Evaluated> {
    Some(match (name, args) {
        ("charAt", [CelValue::Int(at)]) => char_at(text, *at),
        ("indexOf", [CelValue::String(part)]) => index_of(text, part, 0),
        ("indexOf", [CelValue::String(part), CelValue::Int(from)]) => index_of(text, part, *from),
        ("lastIndexOf", [CelValue::String(part)]) => {
            let length = text.chars().count();
            match part.is_empty() {
                true => Ok(int(length)),
                false if text.len() < part.len() => Ok(CelValue::Int(-1)),
                false => last_index_of(text, part, i64::try_from(length).unwrap_or(i64::MAX) - 1),
            }
        }
        ("lastIndexOf", [CelValue::String(part), CelValue::Int(from)]) => last_index_of(text, part, *from),
        ("lowerAscii", []) => Ok(made(text.to_ascii_lowercase())),
        ("upperAscii", []) => Ok(made(text.to_ascii_uppercase())),
        // Like Rust, Go trims Unicode white space.
        ("trim", []) => Ok(made(text.trim().to_owned())),
        ("replace", [CelValue::String(from), CelValue::String(to)]) => replace(text, from, to, -1, meter),
        ("replace", [CelValue::String(from), CelValue::String(to), CelValue::Int(most)]) => {
            replace(text, from, to, *most, meter)
        }
        ("split", [CelValue::String(separator)]) => split(text, separator, -1, meter),
        ("split", [CelValue::String(separator), CelValue::Int(most)]) => split(text, separator, *most, meter),
        ("substring", [CelValue::Int(start)]) => {
            let length = text.chars().count();
            match within(*start, length) {
                Some(start) => Ok(made(text.chars().skip(start).collect())),
                None => out_of_range(*start),
            }
        }
        ("substring", [CelValue::Int(start), CelValue::Int(end)]) => substring(text, *start, *end),
        ("find", [CelValue::String(regex)]) => find_all(text, regex, 1, meter).map(|mut found| {
            let first = if found.is_empty() {
                String::new()
            } else {
                found.swap_remove(0)
            };
            made(first)
        }),
        ("findAll", [CelValue::String(regex)]) => find_all(text, regex, -1, meter).map(texts),
        ("findAll", [CelValue::String(regex), CelValue::Int(most)]) => find_all(text, regex, *most, meter).map(texts),
        _ => return None,
    })
}

fn made(text: String) -> CelValue {
    CelValue::String(Arc::new(text))
}

fn texts(found: Vec<String>) -> CelValue {
    list(found.into_iter().map(made).collect())
}

fn int(number: usize) -> CelValue {
    CelValue::Int(i64::try_from(number).unwrap_or(i64::MAX))
}

fn out_of_range(at: i64) -> Evaluated {
    Err(EvalFailure::Error(format!("index out of range: {at}")))
}

/// Converts an argument to an index; `None` if it is negative or greater than the length of the string.
fn within(at: i64, length: usize) -> Option<usize> {
    usize::try_from(at).ok().filter(|at| *at <= length)
}

fn char_at(text: &str, at: i64) -> Evaluated {
    match within(at, text.chars().count()) {
        Some(found) => Ok(made(text.chars().skip(found).take(1).collect())),
        None => out_of_range(at),
    }
}

fn index_of(text: &str, part: &str, from: i64) -> Evaluated {
    if part.is_empty() {
        return Ok(CelValue::Int(from));
    }
    let Ok(start) = usize::try_from(from) else {
        return out_of_range(from);
    };
    let Some((byte, _)) = text.char_indices().nth(start) else {
        return Ok(CelValue::Int(-1));
    };
    Ok(match text[byte..].find(part) {
        Some(found) => int(start + text[byte..byte + found].chars().count()),
        None => CelValue::Int(-1),
    })
}

fn last_index_of(text: &str, part: &str, from: i64) -> Evaluated {
    if part.is_empty() {
        return Ok(CelValue::Int(from));
    }
    let Ok(start) = usize::try_from(from) else {
        return out_of_range(from);
    };
    let Some((byte, _)) = text.char_indices().nth(start) else {
        return Ok(CelValue::Int(-1));
    };
    // The last match can start at `byte`, and therefore ends here at the latest.
    let end = (byte + part.len()).min(text.len());
    let mut searched = text.get(..end);
    let mut last = end;
    while searched.is_none() {
        last += 1;
        searched = text.get(..last);
    }
    let found = searched.and_then(|it| it.rfind(part)).filter(|at| *at <= byte);
    Ok(found.map_or(CelValue::Int(-1), |at| int(text[..at].chars().count())))
}

fn substring(text: &str, start: i64, end: i64) -> Evaluated {
    let length = text.chars().count();
    if start > end {
        let error = format!("invalid substring range. start: {start}, end: {end}");
        return Err(EvalFailure::Error(error));
    }
    match (within(start, length), within(end, length)) {
        (None, _) => out_of_range(start),
        (_, None) => out_of_range(end),
        (Some(start), Some(end)) => Ok(made(text.chars().skip(start).take(end - start).collect())),
    }
}

fn replace(text: &str, from: &str, to: &str, most: i64, meter: &mut Meter) -> Evaluated {
    let all = match from.is_empty() {
        true => text.chars().count() + 1,
        false => text.len() / from.len(),
    };
    let count = usize::try_from(most).map_or(all, |most| most.min(all));
    if text.len().saturating_add(count.saturating_mul(to.len())) > TEXT_MAX {
        return Err(meter.exhaust());
    }
    meter.work((text.len() + count.saturating_mul(to.len())) / 16)?;
    Ok(made(match usize::try_from(most) {
        Ok(most) => text.replacen(from, to, most),
        Err(_) => text.replace(from, to),
    }))
}

/// Splits a string like Go's `strings.SplitN`.
fn split(text: &str, separator: &str, most: i64, meter: &mut Meter) -> Evaluated {
    meter.work(text.len())?;
    let most = usize::try_from(most).unwrap_or(usize::MAX);
    let parts: Vec<String> = match (most, separator.is_empty()) {
        (0, _) => Vec::new(),
        (_, false) => text.splitn(most, separator).map(str::to_owned).collect(),
        (_, true) => {
            let count = text.chars().count().min(most);
            let mut rest = text;
            let mut parts = Vec::with_capacity(count);
            for index in 0..count {
                let length = match index + 1 == count {
                    true => rest.len(),
                    false => rest.chars().next().map_or(0, char::len_utf8),
                };
                parts.push(rest[..length].to_owned());
                rest = &rest[length..];
            }
            parts
        }
    };
    Ok(texts(parts))
}

fn find_all(text: &str, regex: &str, most: i64, meter: &mut Meter) -> Result<Vec<String>, EvalFailure> {
    let most = usize::try_from(most).unwrap_or(usize::MAX);
    let pattern = pattern(regex, meter)?;
    meter.work(text.len())?;
    let found = pattern.find_all(text, most);
    found.map_err(|error| EvalFailure::Error(format!("Illegal regex: {error}")))
}

/// Joins the items of a list. The size of the result is checked before it is built.
pub(super) fn join(items: &[CelValue], separator: &str, meter: &mut Meter) -> Evaluated {
    meter.work(items.len())?;
    let mut parts = Vec::with_capacity(items.len());
    for item in items {
        let CelValue::String(text) = item else {
            return Err(overload());
        };
        parts.push(text.as_str());
    }
    let separators = separator.len().saturating_mul(parts.len().saturating_sub(1));
    let bytes = parts
        .iter()
        .fold(separators, |sum, text| sum.saturating_add(text.len()));
    if bytes > TEXT_MAX {
        return Err(meter.exhaust());
    }
    Ok(made(parts.join(separator)))
}

/// Implements `strings.quote`.
pub(super) fn quote(text: &str) -> CelValue {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for it in text.chars() {
        match it {
            '\u{7}' => quoted.push_str("\\a"),
            '\u{8}' => quoted.push_str("\\b"),
            '\u{c}' => quoted.push_str("\\f"),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            '\u{b}' => quoted.push_str("\\v"),
            '\\' => quoted.push_str("\\\\"),
            '"' => quoted.push_str("\\\""),
            other => quoted.push(other),
        }
    }
    quoted.push('"');
    made(quoted)
}

/// Implements `jsonpatch.escapeKey`: escapes a key for use in a JSON pointer.
pub(super) fn escape_key(text: &str) -> CelValue {
    made(text.replace('~', "~0").replace('/', "~1"))
}
