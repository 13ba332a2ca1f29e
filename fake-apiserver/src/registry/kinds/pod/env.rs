//! Validation of environment variables: their names, and the source of each value.

use std::collections::BTreeMap;

use super::amount::read;
use super::mounts::no_backsteps;
use super::windows::containers;
use crate::api::field::FieldErrors;
use crate::registry::types::cursor::Cursor;
use crate::registry::types::names;

/// Pod fields that an environment variable may refer to.
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

/// Pod fields that are valid in a `fieldPath` of the downward API.
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

/// Container resources that the downward API supports, sorted.
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
pub(super) fn validate_env(container: &Cursor<'_>, errors: &mut FieldErrors) {
    for variable in container.items("env") {
        let name = variable.at("name");
        if name.check_required(errors) {
            name.check_name(names::env_var_name, errors);
        }
        if let Some(source) = variable.present("valueFrom") {
            validate_source(&source, variable.text("value"), errors);
        }
    }
}

fn validate_source(source: &Cursor<'_>, value: &str, errors: &mut FieldErrors) {
    let mut sources = 0;
    if let Some(field) = source.present("fieldRef") {
        sources += 1;
        validate_field_ref(&field, &ENV_FIELDS, errors);
    }
    if let Some(resource) = source.present("resourceFieldRef") {
        sources += 1;
        validate_resource_ref(&resource, false, errors);
    }
    for kind in ["configMapKeyRef", "secretKeyRef"] {
        if let Some(key) = source.present(kind) {
            sources += 1;
            validate_key_ref(&key, errors);
        }
    }
    if let Some(file) = source.present("fileKeyRef") {
        sources += 1;
        validate_file_ref(&file, errors);
    }
    let detail = match sources {
        0 => "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`",
        _ if !value.is_empty() => "may not be specified when `value` is not empty",
        1 => return,
        _ => "may not have more than one field specified at a time",
    };
    errors.invalid(source, "", detail);
}

fn validate_key_ref(reference: &Cursor<'_>, errors: &mut FieldErrors) {
    reference
        .at("name")
        .check_name(|it| names::dns1123_subdomain(it, false), errors);
    let key = reference.at("key");
    if key.check_required(errors) {
        key.check_name(names::config_map_key, errors);
    }
}

fn validate_file_ref(file: &Cursor<'_>, errors: &mut FieldErrors) {
    let key = file.at("key");
    if key.check_required(errors) {
        key.check_name(names::env_var_name, errors);
    }
    file.at("volumeName").check_required_label(errors);
    let path = file.at("path");
    if path.check_required(errors) {
        no_backsteps(&path, errors);
    }
}

/// Checks a reference to a field of the pod.
pub(super) fn validate_field_ref(field: &Cursor<'_>, allowed: &[&str], errors: &mut FieldErrors) {
    if !field.at("apiVersion").check_required(errors) || !field.at("fieldPath").check_required(errors) {
        return;
    }
    let (version, label) = (field.text("apiVersion"), field.text("fieldPath"));
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
        let detail = format!("error converting fieldPath: {trouble}");
        errors.invalid(field.at("fieldPath"), label, detail);
        return;
    }
    match subscript {
        Some(key) if name == "metadata.annotations" => {
            let key = key.to_lowercase();
            field.refuse(&key, names::qualified_name(&key), errors);
        }
        Some(key) => field.refuse(key, names::qualified_name(key), errors),
        None => {
            let name = if name == "spec.host" { "spec.nodeName" } else { name };
            if !allowed.contains(&name) {
                let mut sorted = allowed.to_vec();
                sorted.sort_unstable();
                errors.not_supported(field.at("fieldPath"), name, &sorted);
            }
        }
    }
}

/// Splits `path['key']` into path and key.
fn subscripted(label: &str) -> (&str, Option<&str>) {
    let parts = label.strip_suffix("']").and_then(|rest| rest.split_once("['"));
    match parts {
        Some((name, key)) if !name.is_empty() => (name, Some(key)),
        _ => (label, None),
    }
}

/// Checks a reference to a resource of a container. If `in_volume` is set, `containerName` is required.
pub(super) fn validate_resource_ref(reference: &Cursor<'_>, in_volume: bool, errors: &mut FieldErrors) {
    let resource = reference.text("resource");
    let huge = resource.starts_with("requests.hugepages-") || resource.starts_with("limits.hugepages-");
    if in_volume && reference.is_empty("containerName") {
        errors.required(reference.at("containerName"), "");
    } else if reference.at("resource").check_required(errors) && !huge {
        reference.at("resource").check_supported(&RESOURCES, errors);
    }
    let divisor = reference.text("divisor");
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
    errors.invalid(reference.at("divisor"), resource, detail);
}

/// Checks `envFrom` of a container.
pub(super) fn validate_env_from(container: &Cursor<'_>, errors: &mut FieldErrors) {
    let list = container.at("envFrom");
    for source in list.items("") {
        let prefix = source.at("prefix");
        if !prefix.is_empty("") {
            prefix.check_name(names::env_var_name, errors);
        }
        let mut sources = 0;
        for kind in ["configMapRef", "secretRef"] {
            let Some(reference) = source.present(kind) else {
                continue;
            };
            sources += 1;
            let name = reference.at("name");
            if name.check_required(errors) {
                name.check_name(|it| names::dns1123_subdomain(it, true), errors);
            }
        }
        match sources {
            0 => errors.invalid(list, "", "must specify one of: `configMapRef` or `secretRef`"),
            1 => {}
            _ => errors.invalid(list, "", "may not have more than one field specified at a time"),
        }
    }
}

/// Checks that all `fileKeyRef`s of containers refer to an `emptyDir` volume of the pod.
pub(super) fn validate_file_volumes(spec: &Cursor<'_>, errors: &mut FieldErrors) {
    let by_name = || {
        let mut volumes = BTreeMap::new();
        for volume in spec.items("volumes") {
            volumes.entry(volume.text("name")).or_insert(volume);
        }
        volumes
    };
    let mut volumes = None;
    for container in containers(spec) {
        for variable in container.items("env") {
            if !variable.is_set("valueFrom.fileKeyRef") {
                continue;
            }
            let wanted = variable.at("valueFrom.fileKeyRef.volumeName");
            match volumes.get_or_insert_with(by_name).get(wanted.as_text()) {
                None => errors.not_found(wanted, wanted.as_text()),
                Some(volume) if !volume.is_set("emptyDir") => {
                    let detail = "referenced volume must be of type emptyDir";
                    errors.invalid(wanted, wanted.as_text(), detail);
                }
                Some(_) => {}
            }
        }
    }
}
