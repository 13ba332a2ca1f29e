//! Computes the difference between two versions of an object, field by field.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::Serialize;
use serde_json::Value;

/// Maximum number of characters of a printed value.
const VALUE_CHARS: usize = 120;

/// Fields of `metadata` that the server maintains.
const BOOKKEEPING: [&str; 4] = ["managedFields", "resourceVersion", "generation", "selfLink"];

/// Fields of `metadata` that a server fills in when it creates an object.
const GIVEN: [&str; 2] = ["uid", "creationTimestamp"];

/// Fields that identify the items of a list, in order of preference.
const KEYS: [&str; 8] = ["type", "name", "key", "uid", "containerPort", "port", "ip", "mountPath"];

/// A field that differs between two versions of an object.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Change {
    /// Path of the field, such as `status.conditions[Ready].status`.
    pub path: String,
    /// The value before the change; `None` if the field was absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<Value>,
    /// The value after the change; `None` if the field is absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<Value>,
}

/// Returns the fields in which two versions of an object differ, in the order of their paths. A version is `None` if
/// the object does not exist. Items of lists are matched by their `type`, `name`, `key` or similar fields, if these are
/// unique, otherwise by index; a list without objects is compared as a whole. Omits `resourceVersion`, `generation`,
/// `managedFields` and `selfLink`, and for a created or deleted object its type, name, namespace, uid and creation
/// time.
///
/// ```
/// use fake_apiserver::trace::changes;
/// use serde_json::json;
///
/// let before = json!({"status": {"phase": "", "conditions": [{"type": "Ready", "status": "False"}]}});
/// let after = json!({"status": {"phase": "Progressing", "conditions": [{"type": "Ready", "status": "True"}]}});
/// let lines: Vec<_> = changes(Some(&before), Some(&after)).iter().map(ToString::to_string).collect();
/// assert_eq!(lines, [
///     r#"status.conditions[Ready].status: "False" → "True""#,
///     r#"status.phase: "" → "Progressing""#,
/// ]);
/// ```
pub fn changes(before: Option<&Value>, after: Option<&Value>) -> Vec<Change> {
    let is_born_or_gone = before.is_none() != after.is_none();
    let [before, after] = [before, after].map(|it| it.map(|it| bare(it, is_born_or_gone)));
    let mut found = Vec::new();
    let nothing = Value::Object(serde_json::Map::new());
    let (before, after) = (before.unwrap_or_else(|| nothing.clone()), after.unwrap_or(nothing));
    compare(String::new(), Some(&before), Some(&after), &mut found);
    found.sort_by(|a, b| a.path.cmp(&b.path));
    found
}

/// Returns the object without the fields that [`changes`] omits.
fn bare(object: &Value, is_born_or_gone: bool) -> Value {
    let mut object = object.clone();
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.retain(|name, _| {
            let is_given = is_born_or_gone && (GIVEN.contains(&&**name) || matches!(&**name, "name" | "namespace"));
            !BOOKKEEPING.contains(&&**name) && !is_given
        });
    }
    if is_born_or_gone && let Some(fields) = object.as_object_mut() {
        let is_empty = |it: &Value| it.as_object().is_some_and(|it| it.is_empty());
        fields.retain(|name, it| match &**name {
            "apiVersion" | "kind" => false,
            "metadata" => !is_empty(it),
            _ => true,
        });
    }
    object
}

fn compare(path: String, before: Option<&Value>, after: Option<&Value>, found: &mut Vec<Change>) {
    if before == after {
        return;
    }
    match (before, after) {
        (Some(Value::Object(_)) | None, Some(Value::Object(_))) | (Some(Value::Object(_)), None) => {
            let fields = |it: Option<&Value>| -> BTreeMap<String, Value> {
                let fields = it.and_then(Value::as_object).into_iter().flatten();
                fields.map(|(name, value)| (name.clone(), value.clone())).collect()
            };
            let (before_fields, after_fields) = (fields(before), fields(after));
            let names: BTreeSet<&String> = before_fields.keys().chain(after_fields.keys()).collect();
            // An empty object that was added or removed is shown as a whole.
            if names.is_empty() {
                return push(path, before, after, found);
            }
            for name in names {
                compare(
                    step(&path, name),
                    before_fields.get(name),
                    after_fields.get(name),
                    found,
                );
            }
        }
        (Some(Value::Array(_)) | None, Some(Value::Array(_))) | (Some(Value::Array(_)), None) => {
            let items = |it: Option<&Value>| it.and_then(Value::as_array).cloned().unwrap_or_default();
            let (before_items, after_items) = (items(before), items(after));
            match key_of(&before_items, &after_items) {
                Some(key) => by_key(&path, key, &before_items, &after_items, found),
                None if before_items.iter().chain(&after_items).any(Value::is_object) => {
                    for at in 0..before_items.len().max(after_items.len()) {
                        let place = format!("{path}[{at}]");
                        compare(place, before_items.get(at), after_items.get(at), found);
                    }
                }
                None => push(path, before, after, found),
            }
        }
        _ => push(path, before, after, found),
    }
}

fn by_key(path: &str, key: &str, before: &[Value], after: &[Value], found: &mut Vec<Change>) {
    let named =
        |items: &[Value]| -> BTreeMap<String, Value> { items.iter().map(|it| (label(&it[key]), it.clone())).collect() };
    let (before, after) = (named(before), named(after));
    let names: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    for name in names {
        compare(format!("{path}[{name}]"), before.get(name), after.get(name), found);
    }
}

/// Returns the field that identifies the items of two lists: the first field that all items have and that has unique
/// values.
fn key_of(before: &[Value], after: &[Value]) -> Option<&'static str> {
    if before.is_empty() && after.is_empty() {
        return None;
    }
    let is_unique = |items: &[Value], key: &str| {
        let values: BTreeSet<String> = items.iter().map(|it| label(&it[key])).collect();
        values.len() == items.len() && items.iter().all(|it| it.get(key).is_some_and(is_plain))
    };
    KEYS.into_iter()
        .find(|key| is_unique(before, key) && is_unique(after, key))
}

fn is_plain(value: &Value) -> bool {
    value.is_string() || value.is_number()
}

fn label(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn push(path: String, before: Option<&Value>, after: Option<&Value>, found: &mut Vec<Change>) {
    found.push(Change {
        path,
        before: before.cloned(),
        after: after.cloned(),
    });
}

/// Appends a key to a path. Keys with dots, such as labels, are enclosed in brackets.
fn step(path: &str, key: &str) -> String {
    match (path.is_empty(), key.contains('.')) {
        (_, true) => format!("{path}[{key}]"),
        (true, false) => key.to_owned(),
        (false, false) => format!("{path}.{key}"),
    }
}

impl fmt::Display for Change {
    /// Formats the change like `status.phase: "" → "Progressing"`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.before, &self.after) {
            (None, Some(after)) => write!(f, "+ {}: {}", self.path, shown(after)),
            (Some(before), None) => write!(f, "- {}: {}", self.path, shown(before)),
            (Some(before), Some(after)) => write!(f, "{}: {} → {}", self.path, shown(before), shown(after)),
            (None, None) => f.write_str(&self.path),
        }
    }
}

fn shown(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(VALUE_CHARS) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    #[rstest]
    #[case::no_change(json!({"a": 1}), json!({"a": 1}), &[])]
    #[case::value(json!({"a": {"b": 1}}), json!({"a": {"b": 2}}), &["a.b: 1 → 2"])]
    #[case::new_field(json!({}), json!({"a": {"b": 1, "c": 2}}), &["+ a.b: 1", "+ a.c: 2"])]
    #[case::removed_field(json!({"a": "x"}), json!({}), &["- a: \"x\""])]
    #[case::empty_object(json!({}), json!({"spec": {}}), &["+ spec: {}"])]
    #[case::label(json!({"l": {"x.io/y": "a"}}), json!({"l": {"x.io/y": "b"}}), &["l[x.io/y]: \"a\" → \"b\""])]
    #[case::list_of_plain_values(json!({"f": ["a"]}), json!({"f": ["a", "b"]}), &["f: [\"a\"] → [\"a\",\"b\"]"])]
    #[case::items_with_a_type(
        json!({"c": [{"type": "A", "s": 1}, {"type": "B", "s": 1}]}),
        json!({"c": [{"type": "B", "s": 2}, {"type": "A", "s": 1}]}),
        &["c[B].s: 1 → 2"]
    )]
    #[case::items_without_a_key(
        json!({"c": [{"s": 1}, {"s": 1}]}),
        json!({"c": [{"s": 1}]}),
        &["- c[1].s: 1"]
    )]
    #[case::version_and_generation_are_ignored(
        json!({"metadata": {"resourceVersion": "1", "generation": 1}}),
        json!({"metadata": {"resourceVersion": "2", "generation": 2}}),
        &[]
    )]
    #[case::another_type(json!({"a": {"b": 1}}), json!({"a": [1]}), &["a: {\"b\":1} → [1]"])]
    fn change_contains_the_path_and_both_values(#[case] before: Value, #[case] after: Value, #[case] lines: &[&str]) {
        let found: Vec<_> = changes(Some(&before), Some(&after))
            .iter()
            .map(ToString::to_string)
            .collect();
        assert_eq!(found, lines);
    }

    #[test]
    fn changes_of_a_new_object_omit_name_and_uid() {
        let object = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "data": {"a": "1"},
            "metadata": {
                "name": "a", "namespace": "default", "uid": "u", "creationTimestamp": "t", "labels": {"l": "v"},
            },
        });
        let found: Vec<_> = changes(None, Some(&object)).iter().map(ToString::to_string).collect();
        assert_eq!(found, ["+ data.a: \"1\"", "+ metadata.labels.l: \"v\""]);
    }
}
