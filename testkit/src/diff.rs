//! Differences between an expected and an actual object, by field.

use serde_json::Value;

/// Maximum number of characters of a value in a message.
const VALUE_CHARS: usize = 200;

/// Lists the fields of `expected` that are missing or different in `found`, one per line: `data.a: expected "1", found
/// nothing`. Ignores additional fields of `found`; lists must have the same length.
pub(crate) fn missing(expected: &Value, found: &Value) -> Vec<String> {
    let mut lines = Vec::new();
    // Sort the fields, because serde_json's `preserve_order` may be enabled.
    let mut expected = expected.clone();
    expected.sort_all_objects();
    compare("", &expected, Some(found), &mut lines);
    lines
}

fn compare(path: &str, expected: &Value, found: Option<&Value>, lines: &mut Vec<String>) {
    match (expected, found) {
        (Value::Object(expected), Some(Value::Object(found))) => {
            for (key, value) in expected {
                compare(&step(path, key), value, found.get(key), lines);
            }
        }
        (Value::Array(expected), Some(Value::Array(found))) if expected.len() == found.len() => {
            for (index, value) in expected.iter().enumerate() {
                compare(&step(path, &index.to_string()), value, found.get(index), lines);
            }
        }
        (Value::Null, None) => {}
        // An empty object in an expectation matches a missing field.
        (Value::Object(expected), None) if expected.is_empty() => {}
        (expected, Some(found)) if expected == found => {}
        (expected, found) => {
            let found = found.map_or_else(|| "nothing".to_owned(), show);
            lines.push(format!("{path}: expected {}, found {found}", show(expected)));
        }
    }
}

/// Appends a key to a path. Keys with dots, such as labels, are written in brackets.
fn step(path: &str, key: &str) -> String {
    match (path.is_empty(), key.contains('.')) {
        (_, true) => format!("{path}[{key}]"),
        (true, false) => key.to_owned(),
        (false, false) => format!("{path}.{key}"),
    }
}

fn show(value: &Value) -> String {
    crate::text::shortened(&value.to_string(), VALUE_CHARS)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    #[rstest]
    #[case::expected_fields_are_equal(json!({"a": 1}), json!({"a": 1, "b": 2}), &[])]
    #[case::value_of_another_type(json!({"a": {"b": 1}}), json!({"a": {"b": "1"}}), &["a.b: expected 1, found \"1\""])]
    #[case::absent_field(json!({"a": {"x.io/y": "z"}}), json!({"a": {}}),
        &["a[x.io/y]: expected \"z\", found nothing"])]
    #[case::item_of_a_list(json!({"l": [{"a": 1}]}), json!({"l": [{"a": 2, "b": 3}]}), &["l.0.a: expected 1, found 2"])]
    #[case::lists_of_different_lengths(json!({"l": [1]}), json!({"l": [1, 2]}), &["l: expected [1], found [1,2]"])]
    #[case::null(json!({"a": null}), json!({}), &[])]
    #[case::not_null(json!({"a": null}), json!({"a": 1}), &["a: expected null, found 1"])]
    fn differing_fields_are_reported_with_their_path(
        #[case] expected: Value,
        #[case] found: Value,
        #[case] lines: &[&str],
    ) {
        assert_eq!(missing(&expected, &found), lines);
    }
}
