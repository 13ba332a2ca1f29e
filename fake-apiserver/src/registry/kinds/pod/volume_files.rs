//! Validation of the files in a pod's volumes: keys, paths, modes and fields of the downward API.

use super::env::{validate_field_ref, validate_resource_ref};
use super::mounts::not_reserved;
use crate::api::field::FieldErrors;
use crate::registry::types::cursor::Cursor;

/// Pod fields that a downward API volume may refer to.
const VOLUME_FIELDS: [&str; 5] = [
    "metadata.name",
    "metadata.namespace",
    "metadata.labels",
    "metadata.annotations",
    "metadata.uid",
];

/// Checks the keys, paths and modes in `items` of a Secret or ConfigMap.
pub(super) fn validate_key_paths(settings: &Cursor<'_>, errors: &mut FieldErrors) {
    for item in settings.items("items") {
        item.at("key").check_required(errors);
        item.at("path").check_required(errors);
        not_reserved(&item.at("path"), errors);
        validate_mode(&item.at("mode"), errors);
    }
}

/// Checks the permission bits of a file.
pub(super) fn validate_mode(mode: &Cursor<'_>, errors: &mut FieldErrors) {
    if let Some(bits) = mode.integer("").filter(|bits| !(0..=0o777).contains(bits)) {
        let detail = "must be a number between 0 and 0777 (octal), both inclusive";
        errors.invalid(mode, bits, detail);
    }
}

/// Checks one file of the downward API. As in kube-apiserver, errors have the path of `owner`, which contains the list.
pub(super) fn validate_downward_file(file: &Cursor<'_>, owner: &Cursor<'_>, errors: &mut FieldErrors) {
    let file = owner.in_other(file.get(""));
    file.at("path").check_required(errors);
    not_reserved(&file.at("path"), errors);
    match (file.present("fieldRef"), file.present("resourceFieldRef")) {
        (Some(field), resource) => {
            validate_field_ref(&field, &VOLUME_FIELDS, errors);
            if resource.is_some() {
                let detail = "fieldRef and resourceFieldRef can not be specified simultaneously";
                errors.invalid(file, "resource", detail);
            }
        }
        (None, Some(resource)) => validate_resource_ref(&resource, true, errors),
        (None, None) => errors.required(file, "one of fieldRef and resourceFieldRef is required"),
    }
    validate_mode(&file.at("mode"), errors);
}
