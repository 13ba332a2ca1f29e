//! Volume mounts and devices of a container, and the paths that they allow.

use std::collections::{BTreeMap, BTreeSet};

use crate::api::field::{FieldErrors, FieldPath};
use crate::registry::types::view::{JsonMap, flag, is_set, items, object_or_empty, text};

/// The right volumes of a pod by name; whether each is a claim, which a device needs.
pub(super) type Volumes<'a> = BTreeMap<&'a str, bool>;

/// Checks `volumeMounts` of a container.
pub(super) fn validate_mounts(container: &JsonMap, volumes: &Volumes<'_>, path: &FieldPath, errors: &mut FieldErrors) {
    let mut seen = BTreeSet::new();
    let list = || path.child("volumeMounts");
    for (index, mount) in items(container, "volumeMounts") {
        let at = |field: &str| list().index(index).child(field);
        let (name, mount_path) = (text(mount, "name"), text(mount, "mountPath"));
        if name.is_empty() {
            errors.required(at("name"), "");
        }
        if !volumes.contains_key(name) {
            errors.not_found(at("name"), name);
        }
        if mount_path.is_empty() {
            errors.required(at("mountPath"), "");
        }
        if !seen.insert(mount_path) {
            errors.invalid(at("mountPath"), mount_path, "must be unique");
        }
        if items(container, "volumeDevices").any(|(_, device)| text(device, "name") == name) {
            errors.invalid(at("name"), name, "must not already exist in volumeDevices");
        }
        if items(container, "volumeDevices").any(|(_, device)| text(device, "devicePath") == mount_path) {
            let detail = "must not already exist as a path in volumeDevices";
            errors.invalid(at("mountPath"), mount_path, detail);
        }
        // The paths of these lack the index, as the server's do.
        let (sub_path, expression) = (text(mount, "subPath"), text(mount, "subPathExpr"));
        if !sub_path.is_empty() {
            descending(sub_path, || list().child("subPath"), errors);
        }
        if !expression.is_empty() {
            if !sub_path.is_empty() {
                let detail = "subPathExpr and subPath are mutually exclusive";
                errors.invalid(at("subPathExpr"), expression, detail);
            }
            descending(expression, || list().child("subPathExpr"), errors);
        }
        validate_propagation(mount, container, &list, errors);
        validate_recursive_read_only(mount, &list, errors);
    }
}

fn validate_propagation(mount: &JsonMap, container: &JsonMap, list: &impl Fn() -> FieldPath, errors: &mut FieldErrors) {
    const SUPPORTED: [&str; 3] = ["Bidirectional", "HostToContainer", "None"];
    if !is_set(mount, "mountPropagation") {
        return;
    }
    let mode = text(mount, "mountPropagation");
    if !SUPPORTED.contains(&mode) {
        errors.not_supported(list().child("mountPropagation"), mode, &SUPPORTED);
    }
    let privileged = flag(object_or_empty(container, "securityContext"), "privileged") == Some(true);
    if mode == "Bidirectional" && !privileged {
        let detail = "Bidirectional mount propagation is available only to privileged containers";
        errors.forbidden(list().child("mountPropagation"), detail);
    }
}

fn validate_recursive_read_only(mount: &JsonMap, list: &impl Fn() -> FieldPath, errors: &mut FieldErrors) {
    const SUPPORTED: [&str; 3] = ["Disabled", "Enabled", "IfPossible"];
    if !is_set(mount, "recursiveReadOnly") {
        return;
    }
    let path = || list().child("recursiveReadOnly");
    match text(mount, "recursiveReadOnly") {
        "Disabled" => {}
        "Enabled" | "IfPossible" => {
            if flag(mount, "readOnly") != Some(true) {
                errors.forbidden(path(), "may only be specified when readOnly is true");
            }
            if !matches!(text(mount, "mountPropagation"), "" | "None") {
                let detail = "may only be specified when mountPropagation is None or not specified";
                errors.forbidden(path(), detail);
            }
        }
        other => errors.not_supported(path(), other, &SUPPORTED),
    }
}

/// Checks `volumeDevices` of a container.
pub(super) fn validate_devices(container: &JsonMap, volumes: &Volumes<'_>, path: &FieldPath, errors: &mut FieldErrors) {
    let (mut names, mut paths) = (BTreeSet::new(), BTreeSet::new());
    for (index, device) in items(container, "volumeDevices") {
        let at = |field: &str| path.child("volumeDevices").index(index).child(field);
        let (name, device_path) = (text(device, "name"), text(device, "devicePath"));
        let claim = volumes.get(name).copied();
        if name.is_empty() {
            errors.required(at("name"), "");
        }
        if names.contains(name) {
            errors.invalid(at("name"), name, "must be unique");
        }
        match claim {
            Some(true) => {}
            Some(false) => {
                let detail = "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode";
                errors.invalid(at("name"), name, detail);
            }
            None => errors.not_found(at("name"), name),
        }
        if device_path.is_empty() {
            errors.required(at("devicePath"), "");
        }
        if paths.contains(device_path) {
            errors.invalid(at("devicePath"), device_path, "must be unique");
        }
        if has_backsteps(device_path) {
            errors.invalid(at("devicePath"), device_path, "can not contain backsteps ('..')");
        } else {
            paths.insert(device_path);
        }
        if items(container, "volumeMounts").any(|(_, mount)| text(mount, "name") == name) {
            errors.invalid(at("name"), name, "must not already exist in volumeMounts");
        }
        if items(container, "volumeMounts").any(|(_, mount)| text(mount, "mountPath") == device_path) {
            let detail = "must not already exist as a path in volumeMounts";
            errors.invalid(at("devicePath"), device_path, detail);
        }
        if !name.is_empty() {
            names.insert(name);
        }
    }
}

fn has_backsteps(path: &str) -> bool {
    path.split('/').any(|step| step == "..")
}

/// A path without `..`.
pub(crate) fn no_backsteps(path: &str, at: impl Fn() -> FieldPath, errors: &mut FieldErrors) {
    if has_backsteps(path) {
        errors.invalid(at(), path, "must not contain '..'");
    }
}

/// A relative path without `..`.
pub(super) fn descending(path: &str, at: impl Fn() -> FieldPath, errors: &mut FieldErrors) {
    if path.starts_with('/') {
        errors.invalid(at(), path, "must be a relative path");
    }
    no_backsteps(path, at, errors);
}

/// A relative path that leads to no file of the server's own.
pub(super) fn not_reserved(path: &str, at: impl Fn() -> FieldPath, errors: &mut FieldErrors) {
    descending(path, &at, errors);
    if path.starts_with("..") && !path.starts_with("../") {
        errors.invalid(at(), path, "must not start with '..'");
    }
}
