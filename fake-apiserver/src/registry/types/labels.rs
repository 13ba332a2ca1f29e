//! Validation of labels, annotations and `LabelSelector` objects (rule B25).

use super::cursor::Cursor;
use super::names;
use crate::api::field::FieldErrors;

/// Maximum total size of the annotations of one object, in bytes.
const ANNOTATIONS_MAX: usize = 256 * 1024;

/// Checks a map of labels.
pub(crate) fn validate_labels(labels: &Cursor<'_>, errors: &mut FieldErrors) {
    for (key, value) in entries(labels) {
        if !names::is_qualified_name(key) {
            labels.refuse(key, names::qualified_name(key), errors);
        }
        if !names::is_label_value(value) {
            labels.refuse(value, names::label_value(value), errors);
        }
    }
}

/// Checks the keys of annotations, ignoring case, and the total size of keys and values.
pub(crate) fn validate_annotations(annotations: &Cursor<'_>, errors: &mut FieldErrors) {
    let mut size = 0;
    for (key, value) in entries(annotations) {
        size += key.len() + value.len();
        // A valid key is also valid in lower case, so it is not converted.
        if !names::is_qualified_name(key) {
            annotations.refuse(key, names::qualified_name(&key.to_lowercase()), errors);
        }
    }
    if size > ANNOTATIONS_MAX {
        errors.too_long(annotations, ANNOTATIONS_MAX);
    }
}

/// Checks the key of a label.
pub(crate) fn validate_key(key: &Cursor<'_>, errors: &mut FieldErrors) {
    key.check_name(names::qualified_name, errors);
}

/// Checks a `LabelSelector`. An absent selector is valid.
pub(crate) fn validate_selector(selector: &Cursor<'_>, errors: &mut FieldErrors) {
    validate_labels(&selector.at("matchLabels"), errors);
    for expression in selector.items("matchExpressions").filter(|it| it.map("").is_some()) {
        validate_expression(&expression, errors);
    }
}

fn validate_expression(expression: &Cursor<'_>, errors: &mut FieldErrors) {
    let values = expression.at("values");
    match expression.text("operator") {
        "In" | "NotIn" if values.is_empty("") => {
            errors.required(values, "must be specified when `operator` is 'In' or 'NotIn'");
        }
        "Exists" | "DoesNotExist" if !values.is_empty("") => {
            let detail = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
            errors.forbidden(values, detail);
        }
        "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
        operator => errors.invalid(expression.at("operator"), operator, "not a valid selector operator"),
    }
    validate_key(&expression.at("key"), errors);
    for value in values.items("") {
        value.check_name(names::label_value, errors);
    }
}

/// Returns the entries of a map of strings.
fn entries<'a>(map: &Cursor<'a>) -> impl Iterator<Item = (&'a str, &'a str)> + use<'a> {
    map.map("")
        .into_iter()
        .flatten()
        .map(|(key, value)| (key.as_str(), value.as_str().unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use crate::api::json::json;

    use super::*;
    use crate::api::field::FieldPath;

    fn texts(errors: &FieldErrors) -> Vec<String> {
        errors.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn b25_annotations_are_validated() {
        let mut errors = FieldErrors::new();
        let path = FieldPath::new("metadata.annotations");
        let right = json!({"Example.COM/X": "y", "a": "b c"});
        validate_annotations(&Cursor::value_at(Some(&right), &path), &mut errors);
        assert!(errors.is_empty());

        let long = json!({"a": "x".repeat(ANNOTATIONS_MAX)});
        validate_annotations(&Cursor::value_at(Some(&long), &path), &mut errors);
        let expected = "metadata.annotations: Too long: may not be more than 262144 bytes";
        assert_eq!(texts(&errors), [expected]);
    }

    #[test]
    fn label_selectors_are_validated() {
        let selector = json!({"matchLabels": {"a": "b"}, "matchExpressions": [
            {"key": "a", "operator": "In"},
            {"key": "a", "operator": "Exists", "values": ["x"]},
            {"key": "a", "operator": "Like"},
            5,
        ]});
        let (mut errors, path) = (FieldErrors::new(), FieldPath::new("spec.selector"));
        validate_selector(&Cursor::value_at(Some(&selector), &path), &mut errors);
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
