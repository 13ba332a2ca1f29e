//! Parameters of operations: the parameters of each action, and parameters shared by all operations of a path. Their
//! descriptions are taken from `SwaggerDoc` of the options in Go.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use crate::api::json::{Map, SmolStr, Value, json};

/// Descriptions of parameters, by options type and name.
const DESCRIPTIONS: &str = include_str!("parameters.json");

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
/// Query parameters of deletes.
pub(super) const DELETE: [(&str, &str); 5] = [
    ("dryRun", "string"),
    ("gracePeriodSeconds", "integer"),
    ("ignoreStoreReadErrorWithClusterBreakingPotential", "boolean"),
    ("orphanDependents", "boolean"),
    ("propagationPolicy", "string"),
];
/// Query parameters of creates and updates.
pub(super) const WRITE: [(&str, &str); 3] = [
    ("dryRun", "string"),
    ("fieldManager", "string"),
    ("fieldValidation", "string"),
];
/// Parameters of `pods/exec`; `attach` has the same parameters except for the first.
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
/// Query parameters of patches.
pub(super) const PATCH: [(&str, &str); 4] = [
    ("dryRun", "string"),
    ("fieldManager", "string"),
    ("fieldValidation", "string"),
    ("force", "boolean"),
];

/// Returns the parameters of a subresource with its own options.
pub(super) fn of_subresource(resource: &str, name: &str) -> Vec<Value> {
    let options = match name {
        "proxy" => &[("path", "string")][..],
        "exec" => &EXEC,
        "attach" => &EXEC[1..],
        "portforward" => &[("ports", "integer")],
        "log" => &LOG,
        _ => &[],
    };
    match name {
        "proxy" => in_query(&format!("{resource}/{name}"), options),
        _ => in_query(name, options),
    }
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

/// Returns query parameters with the descriptions of the fields of the type `options`. `list` contains names and types.
pub(super) fn in_query(options: &str, list: &[(&str, &str)]) -> Vec<Value> {
    let about = descriptions().get(options);
    let parameter = |(name, kind): &(&str, &str)| {
        let about = about.and_then(|it| it.get(*name)).map_or("", String::as_str);
        query_parameter(name, kind, about)
    };
    list.iter().map(parameter).collect()
}

fn query_parameter(name: &str, kind: &str, about: &str) -> Value {
    json!({"name": name, "in": "query", "description": about, "schema": {"type": kind, "uniqueItems": true}})
}

fn descriptions() -> &'static BTreeMap<String, BTreeMap<String, String>> {
    static ALL: OnceLock<BTreeMap<String, BTreeMap<String, String>>> = OnceLock::new();
    ALL.get_or_init(|| serde_json::from_str(DESCRIPTIONS).expect("the descriptions are valid JSON"))
}

/// Returns a path parameter with its description.
pub(super) fn in_path(name: &str, about: &str) -> Value {
    let schema = json!({"type": "string", "uniqueItems": true});
    json!({"name": name, "in": "path", "required": true, "description": about, "schema": schema})
}

/// Returns the parameters of a path, shared by all of its operations. `kind` is the kind of the object, if the path
/// contains a name.
pub(super) fn of_path(namespaced: bool, kind: Option<&str>) -> Vec<Value> {
    let mut out = Vec::new();
    if let Some(kind) = kind {
        out.push(in_path("name", &format!("name of the {kind}")));
    }
    if namespaced {
        out.push(in_path(
            "namespace",
            "object name and auth scope, such as for teams and projects",
        ));
    }
    let about = "If 'true', then the output is pretty printed. Defaults to 'false' unless the user-agent indicates a \
                 browser or command-line HTTP tool (curl and wget).";
    out.push(query_parameter("pretty", "string", about));
    out
}
