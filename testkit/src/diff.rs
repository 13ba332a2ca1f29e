//! The difference between an object as a test expects it and as it is, field by field.

use serde_json::Value;

/// The longest value shown.
const VALUE_CHARS: usize = 200;

/// Every field of `expected` that `found` has not, one a line: `data.a: expected "1", found nothing`. Fields that only
/// `found` has do not count; lists must have the same length.
pub(crate) fn missing(expected: &Value, found: &Value) -> Vec<String> {
    let mut lines = Vec::new();
    // In the same order in every build: serde_json's `preserve_order` may be on.
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
        // An empty object in an expectation asks for nothing.
        (Value::Object(expected), None) if expected.is_empty() => {}
        (expected, Some(found)) if expected == found => {}
        (expected, found) => {
            let found = found.map_or_else(|| "nothing".to_owned(), show);
            lines.push(format!("{path}: expected {}, found {found}", show(expected)));
        }
    }
}

/// Keys with dots, such as labels, stand in brackets.
fn step(path: &str, key: &str) -> String {
    match (path.is_empty(), key.contains('.')) {
        (_, true) => format!("{path}[{key}]"),
        (true, false) => key.to_owned(),
        (false, false) => format!("{path}.{key}"),
    }
}

fn show(value: &Value) -> String {
    crate::report::shortened(&value.to_string(), VALUE_CHARS)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    #[rstest]
    #[case::same(json!({"a": 1}), json!({"a": 1, "b": 2}), &[])]
    #[case::other(json!({"a": {"b": 1}}), json!({"a": {"b": "1"}}), &["a.b: expected 1, found \"1\""])]
    #[case::absent(json!({"a": {"x.io/y": "z"}}), json!({"a": {}}), &["a[x.io/y]: expected \"z\", found nothing"])]
    #[case::item(json!({"l": [{"a": 1}]}), json!({"l": [{"a": 2, "b": 3}]}), &["l.0.a: expected 1, found 2"])]
    #[case::length(json!({"l": [1]}), json!({"l": [1, 2]}), &["l: expected [1], found [1,2]"])]
    #[case::null(json!({"a": null}), json!({}), &[])]
    #[case::not_null(json!({"a": null}), json!({"a": 1}), &["a: expected null, found 1"])]
    fn a_missing_field_is_named_by_its_path(#[case] expected: Value, #[case] found: Value, #[case] lines: &[&str]) {
        assert_eq!(missing(&expected, &found), lines);
    }
}
