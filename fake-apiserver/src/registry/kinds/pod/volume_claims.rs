//! Validation of the specs of PersistentVolumeClaims, and of claim templates in pods and StatefulSets.

use super::amount::read;
use crate::api::field::FieldErrors;
use crate::api::json::Map;
use crate::registry::types::check::NOT_POSITIVE;
use crate::registry::types::cursor::Cursor;
use crate::registry::types::labels;

const ACCESS_MODES: [&str; 4] = ["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"];

/// Metadata that a claim template may not have, in the order of the fields in Go, with the field names in errors.
const FORBIDDEN_METADATA: [(&str, &str); 13] = [
    ("name", "name"),
    ("generateName", "generateName"),
    ("namespace", "namespace"),
    ("selfLink", "selfLink"),
    ("uid", "uID"),
    ("resourceVersion", "resourceVersion"),
    ("generation", "generation"),
    ("creationTimestamp", "creationTimestamp"),
    ("deletionTimestamp", "deletionTimestamp"),
    ("deletionGracePeriodSeconds", "deletionGracePeriodSeconds"),
    ("ownerReferences", "ownerReferences"),
    ("finalizers", "finalizers"),
    ("managedFields", "managedFields"),
];

/// Checks the claim template of an ephemeral volume.
pub(super) fn validate_claim_template(template: &Cursor<'_>, errors: &mut FieldErrors) {
    validate_template_meta(&template.at("metadata"), errors);
    validate_claim_spec(&template.at("spec"), errors);
}

/// Checks the metadata of a claim template, which may only have labels and annotations (`ValidateTemplateObjectMeta`).
pub(crate) fn validate_template_meta(meta: &Cursor<'_>, errors: &mut FieldErrors) {
    labels::validate_annotations(&meta.at("annotations"), errors);
    labels::validate_labels(&meta.at("labels"), errors);
    for (field, called) in FORBIDDEN_METADATA {
        // A generation of 0 is treated as unset, but a grace period of 0 as set, because it is a pointer in Go.
        let is_zero = field == "generation" && meta.integer(field) == Some(0);
        if !meta.is_empty(field) && !is_zero {
            errors.forbidden(meta.at(called), "cannot be set");
        }
    }
}

/// Checks the spec of a PersistentVolumeClaim.
pub(crate) fn validate_claim_spec(spec: &Cursor<'_>, errors: &mut FieldErrors) {
    let modes = spec.at("accessModes");
    if modes.is_empty("") {
        errors.required(modes, "at least 1 access mode is required");
    }
    labels::validate_selector(&spec.at("selector"), errors);
    for mode in modes.texts("").filter(|mode| !ACCESS_MODES.contains(mode)) {
        errors.not_supported(modes, mode, &ACCESS_MODES);
    }
    let is_once = |mode: &str| mode == "ReadWriteOncePod";
    if modes.texts("").any(is_once) && modes.texts("").any(|it| !is_once(it) && ACCESS_MODES.contains(&it)) {
        errors.forbidden(modes, "may not use ReadWriteOncePod with other access modes");
    }
    let storage = spec.text("resources.requests.storage");
    let at = || spec.at("resources").entry("storage").path();
    match read(storage) {
        None => errors.required(at(), ""),
        Some(amount) if amount.signum() <= 0 => errors.invalid(at(), storage, NOT_POSITIVE),
        Some(_) => {}
    }
    spec.at("storageClassName").check_subdomain(errors);
    spec.at("volumeMode").check_one_of(&["Block", "Filesystem"], errors);
    for field in ["dataSource", "dataSourceRef"] {
        if let Some(source) = spec.present(field) {
            validate_data_source(&source, errors);
            source.at("namespace").check_label(errors);
        }
    }
    if spec.is_set("dataSource") && spec.is_set("dataSourceRef") {
        validate_both_sources(spec, errors);
    }
    spec.at("volumeAttributesClassName").check_subdomain(errors);
}

fn validate_data_source(source: &Cursor<'_>, errors: &mut FieldErrors) {
    source.at("name").check_required(errors);
    source.at("kind").check_required(errors);
    let kind = source.text("kind");
    if source.is_empty("apiGroup") && kind != "PersistentVolumeClaim" {
        let detail = "must be 'PersistentVolumeClaim' when referencing the default apiGroup";
        errors.invalid(source, kind, detail);
    }
    source.at("apiGroup").check_subdomain(errors);
}

fn validate_both_sources(spec: &Cursor<'_>, errors: &mut FieldErrors) {
    let (source, reference) = (spec.at("dataSource"), spec.at("dataSourceRef"));
    // As in kube-apiserver, the value in the error is a path, which is a struct without exported fields and printed as
    // `{}`.
    let shown = Map::new;
    if !reference.is_empty("namespace") {
        let detail = "may not be specified when dataSourceRef.namespace is specified";
        errors.invalid(spec, shown(), detail);
    } else if !source.same(&reference, "apiGroup")
        || ["kind", "name"].iter().any(|it| source.text(it) != reference.text(it))
    {
        errors.invalid(spec, shown(), "must match dataSourceRef");
    }
}
