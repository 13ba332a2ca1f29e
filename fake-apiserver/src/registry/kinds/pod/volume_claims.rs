//! Claims that a pod or a StatefulSet makes from a template.

use serde_json::Value;

use super::amount::read;
use crate::api::field::{FieldErrors, FieldPath};
use crate::registry::types::check::{NOT_POSITIVE, optional_label, optional_one_of, optional_subdomain, required};
use crate::registry::types::labels;
use crate::registry::types::view::{JsonMap, is_set, object, object_or_empty, text, texts};

const ACCESS_MODES: [&str; 4] = ["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"];

/// The only metadata a template of a claim may have.
const TEMPLATE_METADATA: [&str; 2] = ["labels", "annotations"];

/// Checks the template of a claim that lives as long as its pod.
pub(super) fn validate_claim_template(template: &JsonMap, path: &FieldPath, errors: &mut FieldErrors) {
    let meta = object_or_empty(template, "metadata");
    let at = |field: &str| path.child("metadata").child(field);
    labels::validate_annotations(meta.get("annotations"), || at("annotations"), errors);
    labels::validate_labels(meta.get("labels"), || at("labels"), errors);
    for field in meta.keys().filter(|field| !TEMPLATE_METADATA.contains(&field.as_str())) {
        if super::env::is_given(meta, field) {
            errors.forbidden(at(field), "cannot be set");
        }
    }
    validate_claim_spec(object_or_empty(template, "spec"), &path.child("spec"), errors);
}

/// Checks the spec of a PersistentVolumeClaim.
pub(crate) fn validate_claim_spec(spec: &JsonMap, path: &FieldPath, errors: &mut FieldErrors) {
    let modes = || texts(spec, "accessModes").map(|(_, mode)| mode);
    if modes().next().is_none() {
        errors.required(path.child("accessModes"), "at least 1 access mode is required");
    }
    labels::validate_selector(spec.get("selector"), &path.child("selector"), errors);
    for mode in modes().filter(|mode| !ACCESS_MODES.contains(mode)) {
        errors.not_supported(path.child("accessModes"), mode, &ACCESS_MODES);
    }
    let once = modes().any(|mode| mode == "ReadWriteOncePod");
    if once && modes().any(|mode| mode != "ReadWriteOncePod" && ACCESS_MODES.contains(&mode)) {
        errors.forbidden(
            path.child("accessModes"),
            "may not use ReadWriteOncePod with other access modes",
        );
    }
    let storage = text(
        object_or_empty(object_or_empty(spec, "resources"), "requests"),
        "storage",
    );
    let at = || path.child("resources").key("storage");
    match read(storage) {
        None => errors.required(at(), ""),
        Some(amount) if amount.signum() <= 0 => errors.invalid(at(), storage, NOT_POSITIVE),
        Some(_) => {}
    }
    optional_subdomain(spec, "storageClassName", path, errors);
    optional_one_of(spec, "volumeMode", &["Block", "Filesystem"], path, errors);
    for field in ["dataSource", "dataSourceRef"] {
        if let Some(source) = object(spec, field) {
            validate_data_source(source, &path.child(field), errors);
            optional_label(source, "namespace", &path.child(field), errors);
        }
    }
    validate_both_sources(spec, path, errors);
    optional_subdomain(spec, "volumeAttributesClassName", path, errors);
}

fn validate_data_source(source: &JsonMap, path: &FieldPath, errors: &mut FieldErrors) {
    required(source, "name", path, errors);
    required(source, "kind", path, errors);
    let group = text(source, "apiGroup");
    if group.is_empty() && text(source, "kind") != "PersistentVolumeClaim" {
        let detail = "must be 'PersistentVolumeClaim' when referencing the default apiGroup";
        errors.invalid(path.clone(), text(source, "kind"), detail);
    }
    optional_subdomain(source, "apiGroup", path, errors);
}

fn validate_both_sources(spec: &JsonMap, path: &FieldPath, errors: &mut FieldErrors) {
    let (Some(source), Some(reference)) = (object(spec, "dataSource"), object(spec, "dataSourceRef")) else {
        return;
    };
    // Go shows a path as a struct without exported fields.
    let shown = || Value::Object(JsonMap::new());
    if is_set(reference, "namespace") && !text(reference, "namespace").is_empty() {
        let detail = "may not be specified when dataSourceRef.namespace is specified";
        errors.invalid(path.clone(), shown(), detail);
    } else if ["apiGroup", "kind", "name"]
        .iter()
        .any(|it| text(source, it) != text(reference, it))
    {
        errors.invalid(path.clone(), shown(), "must match dataSourceRef");
    }
}
