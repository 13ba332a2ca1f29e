//! `Deciders`: distinguishes fields written by the controllers under test from fields that the server's workers
//! derived, by the owners in `metadata.managedFields`.

use fake_apiserver::{ApiServer, Worker};
use serde_json::Value;

/// Field managers of the server's workers.
const WORKERS: [&str; 3] = ["kube-controller-manager", "kube-scheduler", "kubelet"];

/// Placeholder for the node that the scheduler chose.
const CHOSEN: &str = "chosen by kube-scheduler";

/// The enabled workers of the server that set fields, such as the scheduler.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Deciders {
    has_workers: bool,
    has_scheduler: bool,
}

impl Deciders {
    pub(crate) fn of(server: &ApiServer) -> Self {
        Self {
            has_workers: server.has_workers(),
            has_scheduler: server.runs(Worker::Kubelet),
        }
    }

    /// Returns `true` if only workers wrote a field, or the whole object if the path is empty.
    pub(crate) fn is_derived(self, object: &Value, path: &str) -> bool {
        if !self.has_workers {
            return false;
        }
        let steps = steps(object, path);
        let mut managers = managers(object, &steps).peekable();
        managers.peek().is_some() && managers.all(|it| WORKERS.contains(&it))
    }

    /// Replaces the node that the scheduler chose for a Pod, and the address of that node.
    pub(crate) fn hide_choice(self, resource: &str, object: &mut Value) {
        if !self.has_scheduler || resource != "pods" || object["spec"].get("nodeName").is_none() {
            return;
        }
        if managers(object, &["spec", "nodeName"]).any(|it| !WORKERS.contains(&it)) {
            return;
        }
        object["spec"]["nodeName"] = CHOSEN.into();
        for field in ["hostIP", "hostIPs"] {
            if let Some(address) = object["status"].get_mut(field) {
                *address = CHOSEN.into();
            }
        }
    }
}

/// Splits a path into names and list indexes. Names may contain dots: `metadata.annotations.example.com/size`.
fn steps<'a>(object: &Value, path: &'a str) -> Vec<&'a str> {
    let (mut steps, mut value, mut rest) = (Vec::new(), object, path);
    while !rest.is_empty() {
        let is_next = |name: &&String| {
            rest.strip_prefix(name.as_str())
                .is_some_and(|it| it.is_empty() || it.starts_with('.'))
        };
        let names = value.as_object().into_iter().flat_map(|it| it.keys());
        let known = names.filter(is_next).map(String::len).max();
        // If the object does not have the field, the rest of the path is a single name, except for list indexes.
        let end = known
            .or_else(|| value.is_array().then(|| rest.find('.')).flatten())
            .unwrap_or(rest.len());
        let step = &rest[..end];
        value = match step.parse::<usize>() {
            Ok(place) if value.is_array() => &value[place],
            Ok(_) | Err(_) => &value[step],
        };
        steps.push(step);
        rest = rest[end..].trim_start_matches('.');
    }
    steps
}

/// Returns the managers of a field, or all managers of the object if `steps` is empty.
fn managers<'a>(object: &'a Value, steps: &'a [&'a str]) -> impl Iterator<Item = &'a str> {
    let entries = object["metadata"]["managedFields"].as_array().into_iter().flatten();
    let owning = entries.filter(move |entry| owns(&entry["fieldsV1"], object, steps));
    owning.filter_map(|entry| entry["manager"].as_str())
}

/// Returns `true` if a set of managed fields contains the field at `steps`, or a field below it.
fn owns(fields: &Value, value: &Value, steps: &[&str]) -> bool {
    let Some(fields) = fields.as_object() else { return false };
    let [step, rest @ ..] = steps else { return true };
    if fields.is_empty() {
        // The manager owns the whole field, such as a string or an atomic list.
        return true;
    }
    let Some(place) = step.parse::<usize>().ok().filter(|_| value.is_array()) else {
        let field = fields.get(&format!("f:{step}"));
        return field.is_some_and(|field| owns(field, &value[*step], rest));
    };
    let item = &value[place];
    fields.iter().any(|(name, field)| match name.split_once(':') {
        Some(("k", key)) => is_keyed(item, key) && owns(field, item, rest),
        Some(("v", text)) => serde_json::from_str::<Value>(text).is_ok_and(|it| it == *item),
        _ => false,
    })
}

/// Returns `true` if an item of a list has this key: `{"name":"web"}`.
fn is_keyed(item: &Value, key: &str) -> bool {
    let key: Value = serde_json::from_str(key).unwrap_or_default();
    let mut fields = key.as_object().into_iter().flatten();
    fields.all(|(name, value)| item.get(name) == Some(value))
}
