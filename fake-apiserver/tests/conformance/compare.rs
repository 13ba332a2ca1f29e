//! Compares responses, describes the differences, and maintains the list of known differences.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use serde_json::Value;

use crate::scenario::folder;

/// Maximum number of differences shown for a scenario.
const SHOWN: usize = 6;

/// Maximum number of characters shown for a value.
const SHOWN_CHARS: usize = 300;

/// A field in which a response differs from the recorded one.
#[derive(Debug)]
pub(crate) struct Difference {
    place: String,
    recorded: String,
    got: String,
}

impl Difference {
    pub(crate) fn new(place: impl Into<String>, recorded: impl ToString, got: impl ToString) -> Self {
        Self {
            place: place.into(),
            recorded: recorded.to_string(),
            got: got.to_string(),
        }
    }
}

/// Returns all differences between two runs, step by step.
pub(crate) fn compare(recorded: &[(usize, Value)], got: &[(usize, Value)]) -> Vec<Difference> {
    let mut found = Vec::new();
    let got: BTreeMap<usize, &Value> = got.iter().map(|(step, answer)| (*step, answer)).collect();
    for (step, answer) in recorded {
        differ(
            answer,
            got.get(step).copied().unwrap_or(&Value::Null),
            &format!("step {step}"),
            &mut found,
        );
    }
    found
}

fn differ(recorded: &Value, got: &Value, place: &str, found: &mut Vec<Difference>) {
    match (recorded, got) {
        (Value::Object(left), Value::Object(right)) => {
            let keys: BTreeSet<&String> = left.keys().chain(right.keys()).collect();
            for key in keys {
                let place = format!("{place}.{key}");
                match (left.get(key), right.get(key)) {
                    (Some(left), Some(right)) => differ(left, right, &place, found),
                    (Some(left), None) => found.push(Difference::new(place, left, "absent")),
                    (None, Some(right)) => found.push(Difference::new(place, "absent", right)),
                    (None, None) => {}
                }
            }
        }
        (Value::Array(left), Value::Array(right)) => {
            if left.len() != right.len() {
                found.push(Difference::new(format!("length of {place}"), left.len(), right.len()));
            }
            for (at, (left, right)) in left.iter().zip(right).enumerate() {
                differ(left, right, &format!("{place}[{at}]"), found);
            }
        }
        (left, right) if left != right => found.push(Difference::new(place, left, right)),
        _ => {}
    }
}

/// Formats the differences of a scenario as text.
pub(crate) fn report(name: &str, about: &str, differences: &[Difference]) -> String {
    let shown = std::env::var("CONFORMANCE_DIFFS")
        .ok()
        .and_then(|it| it.parse().ok())
        .unwrap_or(SHOWN);
    let mut text = format!("{name}: {about}\n");
    for Difference { place, recorded, got } in differences.iter().take(shown) {
        let (recorded, got) = (clip(recorded), clip(got));
        let _ = writeln!(text, "  {place}\n    recorded {recorded}\n    got      {got}");
    }
    if let Some(more @ 1..) = differences.len().checked_sub(shown) {
        let _ = writeln!(text, "  and {more} more");
    }
    text
}

fn clip(text: &str) -> String {
    match text.char_indices().nth(SHOWN_CHARS) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// Returns the scenarios with known differences, by `area/name`, with the reason.
pub(crate) fn known_differences() -> BTreeMap<String, String> {
    let file = folder().join("known_differences.txt");
    let text = std::fs::read_to_string(&file).unwrap_or_else(|why| panic!("{}: {why}", file.display()));
    let is_entry = |line: &&str| !line.trim().is_empty() && !line.starts_with('#');
    let entry = |line: &str| {
        let (name, reason) = line
            .split_once(": ")
            .unwrap_or_else(|| panic!("a known difference needs a reason: {line}"));
        (name.to_owned(), reason.to_owned())
    };
    text.lines().filter(is_entry).map(entry).collect()
}
