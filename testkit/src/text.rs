//! Strings for messages: shortened values, and the fields that a write changed.

use fake_apiserver::trace::Step;

/// Maximum number of fields that are listed for a write.
const FIELDS: usize = 6;

/// Lists the fields that a write changed, in parentheses.
pub(crate) fn fields(step: &Step) -> String {
    let shown: Vec<String> = step.changes.iter().take(FIELDS).map(ToString::to_string).collect();
    let more = match step.changes.len().checked_sub(FIELDS) {
        Some(more) if more > 0 => format!(", and {more} more"),
        Some(_) | None => String::new(),
    };
    match shown.is_empty() {
        true => String::new(),
        false => format!(" ({}{more})", shown.join(", ")),
    }
}

/// Truncates a string after `most` characters and appends `…`. Shorter strings are returned unchanged.
pub(crate) fn shortened(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.to_owned(),
    }
}

/// Returns the last `most` characters of a string, after `…`. Shorter strings are returned unchanged.
#[cfg(all(feature = "processes", unix))]
pub(crate) fn last(text: &str, most: usize) -> String {
    let start = text
        .char_indices()
        .rev()
        .take(most)
        .last()
        .map_or(text.len(), |(at, _)| at);
    match start {
        0 => text.to_owned(),
        start => format!("…{}", &text[start..]),
    }
}

/// Returns the error message for a kind that the server does not serve.
pub(crate) fn not_served(api_version: &str, kind: &str) -> String {
    let hint = format!("if it is a custom resource, call `cluster.crd::<{kind}>()` first");
    format!("no kind {kind} is served in {api_version}; {hint}")
}
