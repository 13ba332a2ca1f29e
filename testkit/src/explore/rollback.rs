//! Fields that return to an earlier value, as after a decision based on an old state.

use std::collections::BTreeMap;

use fake_apiserver::{ApiServer, StoredObject};
use serde_json::Value;

use super::identities::resource;
use crate::report::shortened;
use crate::work::Work;

/// The longest value shown.
const VALUE_CHARS: usize = 60;

/// Parts of an object in which values may return.
const STATUS: [&str; 4] = ["metadata", "status", "kind", "apiVersion"];

/// Returns object and field of all values that returned since a revision, and how they changed. `metadata` and
/// `status` are left out.
pub(crate) fn returned(server: &ApiServer, since: u64, work: &Work) -> BTreeMap<(String, String), String> {
    let mut versions: BTreeMap<String, Vec<StoredObject>> = BTreeMap::new();
    for object in server.written_objects(since) {
        if !work.is_beside(object.group(), object.resource()) {
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
            // A missing field counts as a value.
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
            // Entries of lists and maps may come, go, and come again.
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
