//! Differences between two responses.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use http::HeaderMap;
use regex::Regex;
use serde::Deserialize;
use serde_json::Value;

/// A normalised response.
#[derive(Debug, Deserialize)]
pub(crate) struct Answer {
    #[serde(rename = "s")]
    pub(crate) status: u16,
    /// The compared headers; `warning` is a sorted list.
    #[serde(rename = "a")]
    pub(crate) headers: BTreeMap<String, Value>,
    #[serde(rename = "r")]
    pub(crate) body: Value,
}

/// Extracts the compared headers.
pub(crate) fn headers(all: &HeaderMap) -> BTreeMap<String, Value> {
    let text = |name: &str| -> Vec<String> {
        // Decodes like an HTTP/1.1 client: each byte is a character.
        let values = all.get_all(name).iter();
        let text = values.map(|it| it.as_bytes().iter().map(|byte| char::from(*byte)).collect());
        text.collect()
    };
    let mut kept = BTreeMap::new();
    for name in ["content-type", "allow", "retry-after"] {
        if let Some(last) = text(name).pop() {
            kept.insert(name.to_owned(), last.into());
        }
    }
    let mut warnings = text("warning");
    warnings.sort();
    if !warnings.is_empty() {
        kept.insert("warning".to_owned(), warnings.into());
    }
    kept
}

/// Returns the most important difference in one line; `None` if the responses are equal. Values that an error prints as
/// a Go struct, as JSON or as a diff may differ, because clients do not parse them.
pub(crate) fn difference(want: &Answer, got: &Answer) -> Option<String> {
    let message = |answer: &Answer| match answer.body["message"].as_str() {
        Some(text) => text.to_owned(),
        None => answer.body.to_string(),
    };
    if (want.status < 400) != (got.status < 400) {
        let what = if want.status < 400 { "is refused" } else { "is accepted" };
        let text = if want.status < 400 { message(got) } else { message(want) };
        return Some(format!("{what}: {text}"));
    }
    if want.status != got.status || want.status >= 400 && want.body["reason"] != got.body["reason"] {
        let (a, b) = (message(want), message(got));
        return Some(format!("status or reason: {} {a}, not {} {b}", want.status, got.status));
    }
    let body = match want.status >= 400 && want.body.is_object() && got.body.is_object() {
        true => of_errors(&want.body, &got.body),
        false => of_values(&want.body, &got.body, "").map(|place| format!("field: {place}")),
    };
    body.or_else(|| of_headers(want, got))
}

fn of_headers(want: &Answer, got: &Answer) -> Option<String> {
    let names = ["warning", "content-type", "allow", "retry-after"];
    let name = names
        .into_iter()
        .find(|name| want.headers.get(*name) != got.headers.get(*name))?;
    let text = |answer: &Answer| answer.headers.get(name).map(Value::to_string).unwrap_or_default();
    Some(format!("header {name}: {}, not {}", text(want), text(got)))
}

/// Compares causes as a set, then the message, then the rest.
fn of_errors(want: &Value, got: &Value) -> Option<String> {
    let causes = |body: &Value| -> Vec<(String, String)> {
        let list = body["details"]["causes"].as_array();
        let text = |cause: &Value, name: &str| cause[name].as_str().unwrap_or_default().to_owned();
        let mut causes: Vec<_> = list
            .into_iter()
            .flatten()
            .map(|it| {
                let head = format!("{} {}", text(it, "reason"), text(it, "field"));
                (head, text(it, "message"))
            })
            .collect();
        causes.sort();
        causes
    };
    let (wanted, given) = (causes(want), causes(got));
    if wanted != given {
        let shown = |causes: &[(String, String)]| -> Vec<(String, String)> {
            let mut causes: Vec<_> = causes
                .iter()
                .map(|(head, text)| (head.clone(), undumped(text)))
                .collect();
            causes.sort();
            causes
        };
        let (wanted, given) = (shown(&wanted), shown(&given));
        // Causes and messages that only differ in a printed value count as equal.
        return (wanted != given).then(|| format!("causes: {wanted:?}, not {given:?}"));
    }
    if want["message"] != got["message"] {
        return Some(format!("message: {}, not {}", want["message"], got["message"]));
    }
    of_values(want, got, "").map(|place| format!("field: {place}"))
}

/// Returns the first line of a message, without long strings and without values printed as JSON or as a Go struct.
fn undumped(text: &str) -> String {
    static BRACES: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"(?s)[{\[].*[}\]]").expect("the pattern is valid"));
    static LONG: LazyLock<Regex> =
        LazyLock::new(|| Regex::new(r#""(?:[^"\\]|\\.){200,}""#).expect("the pattern is valid"));
    let line = text.split('\n').next().unwrap_or_default();
    let text = BRACES.replace_all(line, "{…}");
    LONG.replace_all(&text, "\"…\"").into_owned()
}

/// Returns the first path at which two values differ.
fn of_values(want: &Value, got: &Value, path: &str) -> Option<String> {
    match (want, got) {
        (Value::Object(want), Value::Object(got)) => {
            let mut names: Vec<&String> = want.keys().chain(got.keys()).collect();
            names.sort();
            names.dedup();
            names.into_iter().find_map(|name| {
                let path = format!("{path}.{name}");
                match (want.get(name), got.get(name)) {
                    (Some(want), Some(got)) => of_values(want, got, &path),
                    (Some(want), None) => Some(format!("{path} is missing: {want}")),
                    (None, got) => Some(format!("{path} is too many: {}", got.unwrap_or(&Value::Null))),
                }
            })
        }
        (Value::Array(want), Value::Array(got)) if want.len() == got.len() => {
            let mut pairs = want.iter().zip(got).enumerate();
            pairs.find_map(|(index, (want, got))| of_values(want, got, &format!("{path}[{index}]")))
        }
        (Value::Number(a), Value::Number(b)) if a.as_f64() == b.as_f64() => None,
        _ if want == got => None,
        _ => Some(format!("{path}: {want}, not {got}")),
    }
}
