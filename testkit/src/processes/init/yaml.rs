//! Formats parts of a scenario as YAML.

use std::fmt::Write as _;

use serde_json::Value;

/// Appends a YAML list of strings, one per line.
pub(super) fn list(text: &mut String, field: &str, items: impl Iterator<Item = String>) {
    let indent = " ".repeat(field.len() - field.trim_start().len() + 2);
    let _ = writeln!(text, "{field}:");
    for item in items {
        let _ = writeln!(text, "{indent}- {}", quoted(&item));
    }
}

/// Formats a string as a YAML scalar, quoted if YAML would parse it as a different value.
pub(super) fn quoted(text: &str) -> String {
    let is_plain = |it: char| it.is_ascii_alphanumeric() || matches!(it, '.' | '/' | '_' | '-' | '=');
    let is_word = text.starts_with(|it: char| it.is_ascii_alphabetic() || matches!(it, '.' | '/'));
    let is_value = ["true", "false", "null", "yes", "no", "on", "off"].contains(&text.to_lowercase().as_str());
    match is_word && !is_value && text.chars().all(is_plain) {
        true => text.to_owned(),
        false => Value::from(text).to_string(),
    }
}
