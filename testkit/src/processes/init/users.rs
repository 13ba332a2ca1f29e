//! Writes the steps of users: they create the custom resources of the manifests, change them, and delete them.

use std::fmt::Write as _;

use fake_apiserver::load;
use serde_json::Value;

use super::rendered::{Manifests, namespace_of, text};
use super::yaml::quoted;
use super::{Files, MISSING};

/// Endings of the names of fields that contain a number of replicas.
const NUMBERS: [&str; 6] = ["replicas", "size", "instances", "nodes", "members", "workers"];

/// A field of an object, and its new value.
struct Change {
    /// Names of the fields from the root to the field.
    path: Vec<String>,
    value: Value,
}

pub(super) fn write(manifests: &Manifests, steps: &mut String, files: &mut Files) {
    if manifests.custom.is_empty() {
        let _ = writeln!(
            steps,
            "  {MISSING}an object for the controller, as a user creates it: write it to example.yaml"
        );
        steps.push_str("  - apply: example.yaml\n");
    }
    let all = manifests.custom.iter().chain(&manifests.further).enumerate();
    for (at, object) in all {
        let (kind, name) = (text(&object["kind"]).to_lowercase(), text(&object["metadata"]["name"]));
        let file = format!("samples/{}-{kind}-{name}.yaml", at + 1);
        if at == manifests.custom.len() {
            steps.push_str("  # further objects of the same kinds\n");
        }
        let mark = if at < manifests.custom.len() { "" } else { "# " };
        let _ = writeln!(steps, "  {mark}- apply: {}", quoted(&file));
        files.push((file, load::to_text([object])));
    }
    let named = || manifests.custom.iter().filter(|it| it["metadata"]["name"].is_string());
    for object in named() {
        change(manifests, object, steps);
    }
    if manifests.custom.is_empty() {
        steps.push_str("  # further changes that users make, for instance\n");
        steps.push_str("  # - patch: {object: RESOURCE/NAME, merge: {spec: {replicas: 3}}}\n");
        steps.push_str("  # - delete: RESOURCE/NAME\n");
    }
    for object in named().rev() {
        let _ = writeln!(
            steps,
            "  - delete: {}{}",
            quoted(&reference(manifests, object)),
            namespace(object)
        );
    }
}

/// Writes a step that changes a number of replicas, or a comment that suggests a change.
fn change(manifests: &Manifests, object: &Value, steps: &mut String) {
    let mut changes = Vec::new();
    find_changes(&object["spec"], &mut vec!["spec".to_owned()], &mut changes);
    let is_number_of_replicas = |it: &Change| {
        let name = it.path.last().map(|it| it.to_lowercase()).unwrap_or_default();
        it.value.is_number() && NUMBERS.iter().any(|number| name.ends_with(number))
    };
    let sure = changes.iter().find(|it| is_number_of_replicas(it));
    let Some(change) = sure.or(changes.first()) else { return };
    let nested = change.path.iter().rev();
    let merge = nested.fold(change.value.to_string(), |value, name| {
        format!("{{{}: {value}}}", quoted(name))
    });
    let mark = if sure.is_some() { "" } else { "# " };
    let reference = quoted(&reference(manifests, object));
    let step = format!("- patch: {{object: {reference}, merge: {merge}}}{}", namespace(object));
    for line in step.lines() {
        let line = line.strip_prefix("  ").unwrap_or(line);
        let _ = writeln!(steps, "  {mark}{line}");
    }
}

/// Collects a change for each integer and boolean of an object, sorted by the names of fields: integers are increased,
/// and booleans are inverted. Lists are skipped, because a merge patch replaces them.
fn find_changes(value: &Value, path: &mut Vec<String>, changes: &mut Vec<Change>) {
    let new = match value {
        Value::Number(number) => number.as_i64().map(|it| Value::from(it.saturating_add(1))),
        Value::Bool(value) => Some(Value::from(!value)),
        _ => None,
    };
    if let Some(value) = new {
        let path = path.clone();
        changes.push(Change { path, value });
    }
    for (name, value) in value.as_object().into_iter().flatten() {
        path.push(name.clone());
        find_changes(value, path, changes);
        path.pop();
    }
}

/// Returns the reference `RESOURCE.GROUP/NAME`.
fn reference(manifests: &Manifests, object: &Value) -> String {
    let spec = manifests.definition(object).map_or(&Value::Null, |it| &it["spec"]);
    let (plural, group) = (text(&spec["names"]["plural"]), text(&spec["group"]));
    format!("{plural}.{group}/{}", text(&object["metadata"]["name"]))
}

/// Returns the line of a step for the namespace of its object, unless it is `default`.
fn namespace(object: &Value) -> String {
    match namespace_of(object) {
        "default" => String::new(),
        other => format!("\n    namespace: {}", quoted(other)),
    }
}
