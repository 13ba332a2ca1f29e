//! Validation of volume mounts and block devices of a container, and of paths.

use std::collections::{BTreeMap, BTreeSet};

use crate::api::field::FieldErrors;
use crate::registry::types::cursor::Cursor;

/// The valid volumes of a pod by name. The flag is set for volumes from claims; block devices may only refer to these.
pub(super) type Volumes<'a> = BTreeMap<&'a str, bool>;

/// Checks `volumeMounts` of a container.
pub(super) fn validate_mounts(container: &Cursor<'_>, volumes: &Volumes<'_>, errors: &mut FieldErrors) {
    let mut seen = BTreeSet::new();
    let list = container.at("volumeMounts");
    let devices: BTreeSet<&str> = texts(container, "volumeDevices", "name");
    let device_paths: BTreeSet<&str> = texts(container, "volumeDevices", "devicePath");
    for mount in list.items("") {
        let (name, path) = (mount.at("name"), mount.at("mountPath"));
        name.check_required(errors);
        if !volumes.contains_key(name.as_text()) {
            errors.not_found(name, name.as_text());
        }
        path.check_required(errors);
        if !seen.insert(mount.text("mountPath")) {
            errors.invalid(path, path.as_text(), "must be unique");
        }
        if devices.contains(name.as_text()) {
            errors.invalid(name, name.as_text(), "must not already exist in volumeDevices");
        }
        if device_paths.contains(path.as_text()) {
            let detail = "must not already exist as a path in volumeDevices";
            errors.invalid(path, path.as_text(), detail);
        }
        // As in kube-apiserver, the paths of the other fields lack the index.
        let field = |name| list.at(name).in_other(mount.get(name));
        let (sub_path, expression) = (field("subPath"), field("subPathExpr"));
        descending(&sub_path, errors);
        if !expression.is_empty("") {
            if !sub_path.is_empty("") {
                let detail = "subPathExpr and subPath are mutually exclusive";
                errors.invalid(mount.at("subPathExpr"), expression.as_text(), detail);
            }
            descending(&expression, errors);
        }
        let is_privileged = container.flag("securityContext.privileged") == Some(true);
        validate_propagation(&field("mountPropagation"), is_privileged, errors);
        validate_recursive_read_only(&field("recursiveReadOnly"), &mount, errors);
    }
}

/// Returns the values of a field in the items of a list.
fn texts<'a>(container: &'a Cursor<'a>, list: &'a str, field: &str) -> BTreeSet<&'a str> {
    container.items(list).map(|it| it.text(field)).collect()
}

fn validate_propagation(mode: &Cursor<'_>, is_privileged: bool, errors: &mut FieldErrors) {
    mode.check_one_of(&["Bidirectional", "HostToContainer", "None"], errors);
    if mode.as_text() == "Bidirectional" && !is_privileged {
        let detail = "Bidirectional mount propagation is available only to privileged containers";
        errors.forbidden(mode, detail);
    }
}

fn validate_recursive_read_only(mode: &Cursor<'_>, mount: &Cursor<'_>, errors: &mut FieldErrors) {
    mode.check_one_of(&["Disabled", "Enabled", "IfPossible"], errors);
    if !matches!(mode.as_text(), "Enabled" | "IfPossible") {
        return;
    }
    if mount.flag("readOnly") != Some(true) {
        errors.forbidden(mode, "may only be specified when readOnly is true");
    }
    if !matches!(mount.text("mountPropagation"), "" | "None") {
        let detail = "may only be specified when mountPropagation is None or not specified";
        errors.forbidden(mode, detail);
    }
}

/// Checks `volumeDevices` of a container.
pub(super) fn validate_devices(container: &Cursor<'_>, volumes: &Volumes<'_>, errors: &mut FieldErrors) {
    if container.is_empty("volumeDevices") {
        return;
    }
    let (mut names, mut paths) = (BTreeSet::new(), BTreeSet::new());
    let mounts = texts(container, "volumeMounts", "name");
    let mount_paths = texts(container, "volumeMounts", "mountPath");
    for device in container.items("volumeDevices") {
        let (name, path) = (device.at("name"), device.at("devicePath"));
        let (name_text, path_text) = (device.text("name"), device.text("devicePath"));
        name.check_required(errors);
        if names.contains(name_text) {
            errors.invalid(name, name_text, "must be unique");
        }
        match volumes.get(name_text) {
            Some(true) => {}
            Some(false) => {
                let detail = "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode";
                errors.invalid(name, name_text, detail);
            }
            None => errors.not_found(name, name_text),
        }
        path.check_required(errors);
        if paths.contains(path_text) {
            errors.invalid(path, path_text, "must be unique");
        }
        if has_backsteps(path_text) {
            errors.invalid(path, path_text, "can not contain backsteps ('..')");
        } else {
            paths.insert(path_text);
        }
        if mounts.contains(name_text) {
            errors.invalid(name, name_text, "must not already exist in volumeMounts");
        }
        if mount_paths.contains(path_text) {
            let detail = "must not already exist as a path in volumeMounts";
            errors.invalid(path, path_text, detail);
        }
        if !name_text.is_empty() {
            names.insert(name_text);
        }
    }
}

fn has_backsteps(path: &str) -> bool {
    path.split('/').any(|step| step == "..")
}

/// Checks that a path does not contain `..`.
pub(crate) fn no_backsteps(path: &Cursor<'_>, errors: &mut FieldErrors) {
    if has_backsteps(path.as_text()) {
        errors.invalid(path, path.as_text(), "must not contain '..'");
    }
}

/// Checks that a path is relative and does not contain `..`.
pub(super) fn descending(path: &Cursor<'_>, errors: &mut FieldErrors) {
    if path.as_text().starts_with('/') {
        errors.invalid(path, path.as_text(), "must be a relative path");
    }
    no_backsteps(path, errors);
}

/// Checks that a path is relative and does not contain `..`, and that its first part does not begin with `..`, which is
/// reserved.
pub(super) fn not_reserved(path: &Cursor<'_>, errors: &mut FieldErrors) {
    descending(path, errors);
    if path.as_text().starts_with("..") && !path.as_text().starts_with("../") {
        errors.invalid(path, path.as_text(), "must not start with '..'");
    }
}
