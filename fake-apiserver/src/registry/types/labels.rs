//! Labels, annotations and `LabelSelector` objects (rule B25).

use serde_json::{Map, Value};

use super::names;
use crate::api::field::{FieldErrors, FieldPath};

/// Bytes that all annotations of one object may have together.
const ANNOTATIONS_MAX: usize = 256 * 1024;

/// Checks a map of labels. `path` is made only where something is wrong, since this runs on every write.
pub(crate) fn validate_labels(labels: Option<&Value>, path: impl Fn() -> FieldPath, errors: &mut FieldErrors) {
    for (key, value) in entries(labels) {
        if !names::is_qualified_name(key) {
            validate_key(key, &path(), errors);
        }
        if !names::is_label_value(value) {
            for text in names::label_value(value) {
                errors.invalid(path(), value, text);
            }
        }
    }
}

/// Validates a map of annotations: their keys, ignoring case, and their size.
pub(crate) fn validate_annotations(
    annotations: Option<&Value>,
    path: impl Fn() -> FieldPath,
    errors: &mut FieldErrors,
) {
    let mut size = 0;
    for (key, value) in entries(annotations) {
        size += key.len() + value.len();
        // Case matters in the prefix alone, so a key that is right as it stands needs no copy.
        if !names::is_qualified_name(key) {
            for text in names::qualified_name(&key.to_lowercase()) {
                errors.invalid(path(), key, text);
            }
        }
    }
    if size > ANNOTATIONS_MAX {
        errors.too_long(path(), ANNOTATIONS_MAX);
    }
}

/// Checks the key of a label.
pub(crate) fn validate_key(key: &str, path: &FieldPath, errors: &mut FieldErrors) {
    for text in names::qualified_name(key) {
        errors.invalid(path.clone(), key, text);
    }
}

/// Checks a `LabelSelector`; none is right.
pub(crate) fn validate_selector(selector: Option<&Value>, path: &FieldPath, errors: &mut FieldErrors) {
    let Some(selector) = selector.and_then(Value::as_object) else {
        return;
    };
    validate_labels(selector.get("matchLabels"), || path.child("matchLabels"), errors);
    let expressions = selector.get("matchExpressions").and_then(Value::as_array);
    for (index, expression) in expressions.into_iter().flatten().enumerate() {
        if let Some(expression) = expression.as_object() {
            let path = path.child("matchExpressions").index(index);
            validate_expression(expression, &path, errors);
        }
    }
}

fn validate_expression(expression: &Map<String, Value>, path: &FieldPath, errors: &mut FieldErrors) {
    let text = |field| expression.get(field).and_then(Value::as_str).unwrap_or_default();
    let values = expression.get("values").and_then(Value::as_array);
    let values = values.map_or(&[][..], Vec::as_slice);
    match text("operator") {
        "In" | "NotIn" if values.is_empty() => {
            let detail = "must be specified when `operator` is 'In' or 'NotIn'";
            errors.required(path.child("values"), detail);
        }
        "Exists" | "DoesNotExist" if !values.is_empty() => {
            let detail = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
            errors.forbidden(path.child("values"), detail);
        }
        "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
        operator => errors.invalid(path.child("operator"), operator, "not a valid selector operator"),
    }
    validate_key(text("key"), &path.child("key"), errors);
    for (index, value) in values.iter().filter_map(Value::as_str).enumerate() {
        for text in names::label_value(value) {
            errors.invalid(path.child("values").index(index), value, text);
        }
    }
}

/// The entries of a map of strings.
fn entries(map: Option<&Value>) -> impl Iterator<Item = (&str, &str)> {
    map.and_then(Value::as_object)
        .into_iter()
        .flatten()
        .map(|(key, value)| (key.as_str(), value.as_str().unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn texts(errors: &FieldErrors) -> Vec<String> {
        errors.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn b25_annotations() {
        let mut errors = FieldErrors::new();
        let path = || FieldPath::new("metadata.annotations");
        let right = json!({"Example.COM/X": "y", "a": "b c"});
        validate_annotations(Some(&right), path, &mut errors);
        assert!(errors.is_empty());

        let long = json!({"a": "x".repeat(ANNOTATIONS_MAX)});
        validate_annotations(Some(&long), path, &mut errors);
        let expected = "metadata.annotations: Too long: may not be more than 262144 bytes";
        assert_eq!(texts(&errors), [expected]);
    }

    #[test]
    fn selectors() {
        let selector = json!({"matchLabels": {"a": "b"}, "matchExpressions": [
            {"key": "a", "operator": "In"},
            {"key": "a", "operator": "Exists", "values": ["x"]},
            {"key": "a", "operator": "Like"},
            5,
        ]});
        let mut errors = FieldErrors::new();
        validate_selector(Some(&selector), &FieldPath::new("spec.selector"), &mut errors);
        let expected = [
            "spec.selector.matchExpressions[0].values: Required value: must be specified when `operator` is 'In' or \
             'NotIn'",
            "spec.selector.matchExpressions[1].values: Forbidden: may not be specified when `operator` is 'Exists' or \
             'DoesNotExist'",
            "spec.selector.matchExpressions[2].operator: Invalid value: \"Like\": not a valid selector operator",
        ];
        assert_eq!(texts(&errors), expected);
    }
}
