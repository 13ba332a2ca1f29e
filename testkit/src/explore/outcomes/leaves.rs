//! The leaves of a value: its fields and items that are neither maps nor lists.

use std::collections::BTreeMap;

use serde_json::Value;

/// Returns the leaves of a value by their paths, without fields for which `is_left_out` returns `true`.
pub(crate) fn leaves(value: Value, is_left_out: &dyn Fn(&str) -> bool) -> BTreeMap<String, Value> {
    let mut leaves = BTreeMap::new();
    collect(String::new(), value, is_left_out, &mut leaves);
    leaves
}

fn collect(path: String, value: Value, is_left_out: &dyn Fn(&str) -> bool, leaves: &mut BTreeMap<String, Value>) {
    if is_left_out(&path) {
        return;
    }
    let below = |name: &str| match path.as_str() {
        "" => name.to_owned(),
        path => format!("{path}.{name}"),
    };
    match value {
        Value::Object(fields) => {
            for (name, field) in fields {
                collect(below(&name), field, is_left_out, leaves);
            }
        }
        Value::Array(items) => {
            for (at, item) in items.into_iter().enumerate() {
                collect(below(&at.to_string()), item, is_left_out, leaves);
            }
        }
        leaf => drop(leaves.insert(path, leaf)),
    }
}
