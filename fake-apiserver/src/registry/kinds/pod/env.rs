//! Environment variables: names, and the one source each value may come from.

use serde_json::Value;

use super::amount::read;
use super::mounts::no_backsteps;
use crate::api::field::{FieldErrors, FieldPath};
use crate::registry::types::check::{required, required_label, wrong};
use crate::registry::types::names;
use crate::registry::types::view::{JsonMap, is_set, items, object, text};

/// Fields of the pod that an env variable may show.
const ENV_FIELDS: [&str; 9] = [
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
];

/// The fields of a Pod that have a name in the downward API.
const POD_FIELDS: [&str; 14] = [
    "metadata.annotations",
    "metadata.labels",
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.restartPolicy",
    "spec.serviceAccountName",
    "spec.schedulerName",
    "status.phase",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
];

/// The resources of a container that can be shown, sorted.
const RESOURCES: [&str; 6] = [
    "limits.cpu",
    "limits.ephemeral-storage",
    "limits.memory",
    "requests.cpu",
    "requests.ephemeral-storage",
    "requests.memory",
];

const BYTE_DIVISORS: [&str; 13] = [
    "1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei",
];

/// Checks `env` of a container.
pub(super) fn validate_env(container: &JsonMap, path: &FieldPath, errors: &mut FieldErrors) {
    for (index, variable) in items(container, "env") {
        let name = text(variable, "name");
        let path = || path.child("env").index(index);
        if name.is_empty() {
            errors.required(path().child("name"), "");
        } else {
            wrong(names::env_var_name(name), name, || path().child("name"), errors);
        }
        if let Some(source) = object(variable, "valueFrom") {
            validate_source(source, text(variable, "value"), &path().child("valueFrom"), errors);
        }
    }
}

fn validate_source(source: &JsonMap, value: &str, path: &FieldPath, errors: &mut FieldErrors) {
    let mut sources = 0;
    if let Some(field) = object(source, "fieldRef") {
        sources += 1;
        validate_field_ref(field, &ENV_FIELDS, &path.child("fieldRef"), errors);
    }
    if let Some(resource) = object(source, "resourceFieldRef") {
        sources += 1;
        validate_resource_ref(resource, false, &path.child("resourceFieldRef"), errors);
    }
    for kind in ["configMapKeyRef", "secretKeyRef"] {
        if let Some(key) = object(source, kind) {
            sources += 1;
            validate_key_ref(key, &path.child(kind), errors);
        }
    }
    if let Some(file) = object(source, "fileKeyRef") {
        sources += 1;
        validate_file_ref(file, &path.child("fileKeyRef"), errors);
    }
    let detail = match sources {
        0 => "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`",
        _ if !value.is_empty() => "may not be specified when `value` is not empty",
        1 => return,
        _ => "may not have more than one field specified at a time",
    };
    errors.invalid(path.clone(), "", detail);
}

fn validate_key_ref(key: &JsonMap, path: &FieldPath, errors: &mut FieldErrors) {
    let name = text(key, "name");
    wrong(
        names::dns1123_subdomain(name, false),
        name,
        || path.child("name"),
        errors,
    );
    if required(key, "key", path, errors) {
        let key = text(key, "key");
        wrong(names::config_map_key(key), key, || path.child("key"), errors);
    }
}

fn validate_file_ref(file: &JsonMap, path: &FieldPath, errors: &mut FieldErrors) {
    if required(file, "key", path, errors) {
        let key = text(file, "key");
        wrong(names::env_var_name(key), key, || path.child("key"), errors);
    }
    required_label(file, "volumeName", path, errors);
    if required(file, "path", path, errors) {
        no_backsteps(text(file, "path"), || path.child("path"), errors);
    }
}

/// Checks a reference to a field of the pod.
pub(super) fn validate_field_ref(field: &JsonMap, allowed: &[&str], path: &FieldPath, errors: &mut FieldErrors) {
    if !required(field, "apiVersion", path, errors) || !required(field, "fieldPath", path, errors) {
        return;
    }
    let (version, label) = (text(field, "apiVersion"), text(field, "fieldPath"));
    let (name, subscript) = subscripted(label);
    let trouble = if version != "v1" {
        format!("unsupported pod version: {version}")
    } else if subscript.is_some() && !matches!(name, "metadata.annotations" | "metadata.labels") {
        format!("field label does not support subscript: {label}")
    } else if subscript.is_none() && label != "spec.host" && !POD_FIELDS.contains(&label) {
        format!("field label not supported: {label}")
    } else {
        String::new()
    };
    if !trouble.is_empty() {
        errors.invalid(
            path.child("fieldPath"),
            label,
            format!("error converting fieldPath: {trouble}"),
        );
        return;
    }
    match subscript {
        Some(key) if name == "metadata.annotations" => {
            let key = key.to_lowercase();
            wrong(names::qualified_name(&key), &key, || path.clone(), errors);
        }
        Some(key) => wrong(names::qualified_name(key), key, || path.clone(), errors),
        None => {
            let name = if name == "spec.host" { "spec.nodeName" } else { name };
            if !allowed.contains(&name) {
                let mut sorted = allowed.to_vec();
                sorted.sort_unstable();
                errors.not_supported(path.child("fieldPath"), name, &sorted);
            }
        }
    }
}

/// `path['key']` taken apart.
fn subscripted(label: &str) -> (&str, Option<&str>) {
    let parts = label.strip_suffix("']").and_then(|rest| rest.split_once("['"));
    match parts {
        Some((name, key)) if !name.is_empty() => (name, Some(key)),
        _ => (label, None),
    }
}

/// Checks a reference to a resource of a container; in a volume the container must be named.
pub(super) fn validate_resource_ref(reference: &JsonMap, in_volume: bool, path: &FieldPath, errors: &mut FieldErrors) {
    let resource = text(reference, "resource");
    let huge = resource.starts_with("requests.hugepages-") || resource.starts_with("limits.hugepages-");
    if in_volume && text(reference, "containerName").is_empty() {
        errors.required(path.child("containerName"), "");
    } else if resource.is_empty() {
        errors.required(path.child("resource"), "");
    } else if !huge && !RESOURCES.contains(&resource) {
        errors.not_supported(path.child("resource"), resource, &RESOURCES);
    }
    let divisor = text(reference, "divisor");
    if divisor.is_empty() || read(divisor).is_some_and(|divisor| divisor.signum() == 0) {
        return;
    }
    let kind = resource.split_once('.').map_or("", |(_, kind)| kind);
    let bytes = "only divisor's values 1, 1k, 1M, 1G, 1T, 1P, 1E, 1Ki, 1Mi, 1Gi, 1Ti, 1Pi, 1Ei are supported with the";
    let detail = match kind {
        "cpu" if !["1m", "1"].contains(&divisor) => {
            "only divisor's values 1m and 1 are supported with the cpu resource".to_owned()
        }
        "cpu" => return,
        _ if BYTE_DIVISORS.contains(&divisor) => return,
        "memory" => format!("{bytes} memory resource"),
        "ephemeral-storage" => format!("{bytes} local ephemeral storage resource"),
        _ if huge => format!("{bytes} hugepages resource"),
        _ => return,
    };
    errors.invalid(path.child("divisor"), resource, detail);
}

/// Checks `envFrom` of a container.
pub(super) fn validate_env_from(container: &JsonMap, path: &FieldPath, errors: &mut FieldErrors) {
    for (index, source) in items(container, "envFrom") {
        let list = || path.child("envFrom");
        let prefix = text(source, "prefix");
        if !prefix.is_empty() {
            wrong(
                names::env_var_name(prefix),
                prefix,
                || list().index(index).child("prefix"),
                errors,
            );
        }
        let mut sources = 0;
        for kind in ["configMapRef", "secretRef"] {
            let Some(reference) = object(source, kind) else {
                continue;
            };
            sources += 1;
            let path = list().index(index).child(kind);
            if required(reference, "name", &path, errors) {
                let name = text(reference, "name");
                wrong(
                    names::dns1123_subdomain(name, true),
                    name,
                    || path.child("name"),
                    errors,
                );
            }
        }
        match sources {
            0 => errors.invalid(list(), "", "must specify one of: `configMapRef` or `secretRef`"),
            1 => {}
            _ => errors.invalid(list(), "", "may not have more than one field specified at a time"),
        }
    }
}

/// Checks that `fileKeyRef`s of all containers name an `emptyDir` of the pod.
pub(super) fn validate_file_volumes(spec: &JsonMap, path: &FieldPath, errors: &mut FieldErrors) {
    for list in super::defaults::CONTAINER_LISTS {
        for (place, container) in items(spec, list) {
            for (index, variable) in items(container, "env") {
                let Some(file) = object(variable, "valueFrom").and_then(|source| object(source, "fileKeyRef")) else {
                    continue;
                };
                let wanted = text(file, "volumeName");
                let volume = items(spec, "volumes").find(|(_, volume)| text(volume, "name") == wanted);
                let path = || {
                    let env = path.child(list).index(place).child("env").index(index);
                    env.child("valueFrom.fileKeyRef.volumeName")
                };
                match volume {
                    None => errors.not_found(path(), wanted),
                    Some((_, volume)) if !is_set(volume, "emptyDir") => {
                        errors.invalid(path(), wanted, "referenced volume must be of type emptyDir");
                    }
                    Some(_) => {}
                }
            }
        }
    }
}

/// Returns `true` if a value of any type is present; for lists of fields that may not be set.
pub(super) fn is_given(map: &JsonMap, key: &str) -> bool {
    match map.get(key) {
        None | Some(Value::Null) => false,
        Some(Value::Object(fields)) => !fields.is_empty(),
        Some(Value::Array(items)) => !items.is_empty(),
        Some(Value::String(text)) => !text.is_empty(),
        Some(_) => true,
    }
}
