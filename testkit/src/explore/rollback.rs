//! Fields that take a value again which they had left, as after a decision by an old view.

use std::collections::BTreeMap;

use fake_apiserver::{ApiServer, StoredObject};
use serde_json::Value;

use super::identities::resource;
use crate::report::shortened;

/// The longest value shown.
const VALUE_CHARS: usize = 60;

/// The parts of an object in which values come and go.
const STATUS: [&str; 4] = ["metadata", "status", "kind", "apiVersion"];

/// By-products of a run.
const NOT_STATE: [&str; 2] = ["events", "leases"];

/// Object and field of all values that were left and taken again since a revision, and how they changed. What
/// `metadata` and `status` say does not count.
pub(crate) fn returned(server: &ApiServer, since: u64) -> BTreeMap<(String, String), String> {
    let mut versions: BTreeMap<String, Vec<StoredObject>> = BTreeMap::new();
    for object in server.written_objects(since) {
        if !NOT_STATE.contains(&object.resource()) {
            versions.entry(object.uid().to_owned()).or_default().push(object);
        }
    }
    let mut returned = BTreeMap::new();
    for versions in versions.into_values().filter(|it| it.len() > 2) {
        let object = format!(
            "{} {}/{}",
            resource(&versions[0]),
            versions[0].namespace(),
            versions[0].name()
        );
        let mut values: BTreeMap<String, Vec<Value>> = BTreeMap::new();
        for (nth, version) in versions.iter().enumerate() {
            let mut leaves = BTreeMap::new();
            if let Value::Object(mut fields) = version.value() {
                fields.retain(|name, _| !STATUS.contains(&name.as_str()));
                collect("", Value::Object(fields), &mut leaves);
            }
            // A field that is not there has a value, too.
            for (path, taken) in &mut values {
                let now = leaves.remove(path).unwrap_or_default();
                if taken.last() != Some(&now) {
                    taken.push(now);
                }
            }
            for (path, now) in leaves {
                let before = (nth > 0).then_some(Value::Null);
                values.entry(path).or_default().extend(before.into_iter().chain([now]));
            }
        }
        for (path, taken) in values {
            let last = taken
                .iter()
                .enumerate()
                .find(|(at, value)| taken[..*at].contains(value));
            // To be there, not to be there, and to be there again is what lists and maps do.
            if let Some((at, value)) = last.filter(|(at, _)| !taken[..*at].contains(&Value::Null)) {
                let left = shortened(&taken[at - 1].to_string(), VALUE_CHARS);
                let how = format!(
                    "was {0}, then {left}, then {0} again",
                    shortened(&value.to_string(), VALUE_CHARS)
                );
                returned.insert((object.replace(" /", " "), path), how);
            }
        }
    }
    returned
}

fn collect(path: &str, value: Value, leaves: &mut BTreeMap<String, Value>) {
    let step = |name: &str| match path {
        "" => name.to_owned(),
        _ => format!("{path}.{name}"),
    };
    match value {
        Value::Object(fields) => {
            for (name, field) in fields {
                collect(&step(&name), field, leaves);
            }
        }
        Value::Array(items) => {
            for (at, item) in items.into_iter().enumerate() {
                collect(&step(&at.to_string()), item, leaves);
            }
        }
        leaf => drop(leaves.insert(path.to_owned(), leaf)),
    }
}
