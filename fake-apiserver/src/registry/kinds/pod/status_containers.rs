//! Validation of container statuses: their users, and the health of their devices.

use std::collections::{BTreeMap, BTreeSet};

use super::security::IDS;
use crate::api::field::FieldErrors;
use crate::registry::types::cursor::Cursor;

/// The lists of container statuses, with the corresponding lists of containers in the spec.
const LISTS: [(&str, &str); 3] = [
    ("containerStatuses", "containers"),
    ("initContainerStatuses", "initContainers"),
    ("ephemeralContainerStatuses", ""),
];

/// Maximum length of a device health message, in bytes.
const MESSAGE_MAX: usize = 1024;

/// Checks the users and devices in a status written by a kubelet.
pub(super) fn validate_container_statuses(status: &Cursor<'_>, spec: &Cursor<'_>, errors: &mut FieldErrors) {
    for (list, _) in LISTS {
        for container in status.items(list) {
            validate_user(&container.at("user"), spec, errors);
        }
    }
    for (list, containers) in LISTS {
        let mut by_name = BTreeMap::new();
        if !containers.is_empty() {
            for container in spec.items(containers) {
                by_name.entry(container.text("name")).or_insert(container);
            }
        }
        for container in status.items(list) {
            let devices = container.at("allocatedResourcesStatus");
            if containers.is_empty() {
                if !devices.is_empty("") {
                    errors.forbidden(devices, "must not be specified in container status");
                }
                continue;
            }
            let known = by_name.get(container.text("name"));
            for device in devices.items("") {
                // The status may contain containers that are not in the spec.
                if let Some(known) = known {
                    validate_device_name(&device.at("name"), &known.at("resources"), errors);
                }
                validate_health(&device, errors);
            }
        }
    }
}

/// Checks the user in a container status (`validateContainerStatusUsers`).
fn validate_user(user: &Cursor<'_>, spec: &Cursor<'_>, errors: &mut FieldErrors) {
    let Some(linux) = user.present("linux") else {
        return;
    };
    let system = match spec.is_set("os") {
        true => spec.text("os.name"),
        false => "linux",
    };
    match system {
        "windows" => errors.forbidden(linux, "cannot be set for a windows pod"),
        "linux" => {
            for field in ["uid", "gid"] {
                linux.at(field).check_range(IDS, errors);
            }
            for group in linux.items("supplementalGroups") {
                group.check_range(IDS, errors);
            }
        }
        _ => {}
    }
}

fn validate_device_name(name: &Cursor<'_>, resources: &Cursor<'_>, errors: &mut FieldErrors) {
    let written = name.as_text();
    let (found, detail) = match written.strip_prefix("claim:") {
        Some(wanted) => {
            let mut claims = resources.items("claims");
            let found = claims.any(|claim| match (claim.text("name"), claim.text("request")) {
                (name, "") => name == wanted,
                (name, request) => wanted.split_once('/') == Some((name, request)),
            });
            let detail = "must match one of the container's resource claims in a format 'claim:<claimName>/<request>' \
                          or 'claim:<claimName>' if request is empty";
            (found, detail)
        }
        None => {
            let found = resources.at("requests").has_entry(written);
            (found, "must match one of the container's resource requests")
        }
    };
    if !found {
        errors.invalid(name, written, detail);
    }
}

fn validate_health(device: &Cursor<'_>, errors: &mut FieldErrors) {
    let mut seen = BTreeSet::new();
    for unit in device.items("resources") {
        unit.at("health")
            .check_supported(&["Healthy", "Unhealthy", "Unknown"], errors);
        if let Some(message) = unit.present("message") {
            match message.as_text().len() {
                0 => errors.required(message, "must be non-empty if specified"),
                length if length > MESSAGE_MAX => errors.too_long(message, MESSAGE_MAX),
                _ => {}
            }
        }
        let id = unit.text("resourceID");
        if !seen.insert(id) {
            errors.duplicate(unit.at("resourceID"), id);
        }
    }
}
