//! Parameters of operations: parameters of each action, and parameters shared by all operations of a path.

use crate::api::json::{Map, SmolStr, Value, json};

/// Parameters of lists and watches, in addition to the common ones.
pub(super) const LIST: [(&str, &str); 11] = [
    ("allowWatchBookmarks", "boolean"),
    ("continue", "string"),
    ("fieldSelector", "string"),
    ("labelSelector", "string"),
    ("limit", "integer"),
    ("resourceVersion", "string"),
    ("resourceVersionMatch", "string"),
    ("sendInitialEvents", "boolean"),
    ("shardSelector", "string"),
    ("timeoutSeconds", "integer"),
    ("watch", "boolean"),
];
/// Parameters of deletes.
pub(super) const DELETE: [(&str, &str); 5] = [
    ("dryRun", "string"),
    ("gracePeriodSeconds", "integer"),
    ("ignoreStoreReadErrorWithClusterBreakingPotential", "boolean"),
    ("orphanDependents", "boolean"),
    ("propagationPolicy", "string"),
];
/// Parameters of creates, updates and patches.
pub(super) const WRITE: [(&str, &str); 3] = [
    ("dryRun", "string"),
    ("fieldManager", "string"),
    ("fieldValidation", "string"),
];
/// Parameters of `pods/exec`; the parameters of `attach` start with the second.
const EXEC: [(&str, &str); 6] = [
    ("command", "string"),
    ("container", "string"),
    ("stderr", "boolean"),
    ("stdin", "boolean"),
    ("stdout", "boolean"),
    ("tty", "boolean"),
];
/// Parameters of `pods/log`, in addition to the common ones.
const LOG: [(&str, &str); 9] = [
    ("container", "string"),
    ("follow", "boolean"),
    ("insecureSkipTLSVerifyBackend", "boolean"),
    ("limitBytes", "integer"),
    ("previous", "boolean"),
    ("sinceSeconds", "integer"),
    ("stream", "string"),
    ("tailLines", "integer"),
    ("timestamps", "boolean"),
];
/// The additional parameter of patches.
pub(super) const FORCE: (&str, &str) = ("force", "boolean");

/// The parameters of a subresource with its own options.
pub(super) fn of_subresource(name: &str) -> Vec<Value> {
    let options = match name {
        "proxy" => &[("path", "string")][..],
        "exec" => &EXEC,
        "attach" => &EXEC[1..],
        "portforward" => &[("ports", "integer")],
        "log" => &LOG,
        _ => &[],
    };
    in_query(options.to_vec())
}

/// Moves parameters shared by all operations of a path to the path.
pub(super) fn share(entry: &mut Map) {
    let is_operation = |name: &&SmolStr| *name != "parameters";
    let mut methods = entry
        .keys()
        .filter(is_operation)
        .cloned()
        .collect::<Vec<_>>()
        .into_iter();
    let listed = |entry: &Map, method: &str| -> Vec<Value> {
        entry[method]["parameters"].as_array().cloned().unwrap_or_default()
    };
    let Some(first) = methods.next() else { return };
    let rest: Vec<SmolStr> = methods.collect();
    let mut shared = listed(entry, &first);
    shared.retain(|it| rest.iter().all(|method| listed(entry, method).contains(it)));
    for method in rest.iter().chain([&first]) {
        if let Some(Value::Object(operation)) = entry.get_mut(method) {
            let own = operation.get_mut("parameters").and_then(Value::as_array_mut);
            let is_empty = own.is_none_or(|own| {
                own.retain(|it| !shared.contains(it));
                own.is_empty()
            });
            if is_empty {
                operation.remove("parameters");
            }
        }
    }
    if let Some(Value::Array(all)) = entry.get_mut("parameters") {
        all.extend(shared);
        all.sort_by(|one, other| one["name"].as_str().cmp(&other["name"].as_str()));
    }
}

/// Parameters of the query.
pub(super) fn in_query(list: Vec<(&str, &str)>) -> Vec<Value> {
    list.iter()
        .map(|(name, kind)| json!({"name": name, "in": "query", "schema": {"type": kind, "uniqueItems": true}}))
        .collect()
}

/// A parameter of the path.
pub(super) fn in_path(name: &str) -> Value {
    json!({"name": name, "in": "path", "required": true, "schema": {"type": "string", "uniqueItems": true}})
}

/// The parameters of a path, shared by all of its operations.
pub(super) fn of_path(namespaced: bool, item: bool) -> Vec<Value> {
    let mut out = Vec::new();
    if item {
        out.push(in_path("name"));
    }
    if namespaced {
        out.push(in_path("namespace"));
    }
    out.push(json!({"name": "pretty", "in": "query", "schema": {"type": "string", "uniqueItems": true}}));
    out
}
