//! PersistentVolumeClaims.

use serde_json::{Map, Value, json};

use super::strategy::{Context, Strategy};
use crate::api::field::{FieldErrors, FieldPath};
use crate::api::object::Object;
use crate::registry::types::access::{at, default_to, ensure_object, is_empty, list, restore, text};
use crate::registry::types::{labels, names};

/// Keeps a claim that Pods still use.
const PROTECTION: &str = "kubernetes.io/pvc-protection";
const ACCESS_MODES: [&str; 4] = ["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"];

/// The strategy of PersistentVolumeClaims.
#[derive(Debug)]
pub(crate) struct PersistentVolumeClaim;

impl Strategy for PersistentVolumeClaim {
    fn default(&self, object: &mut Object) {
        let spec = ensure_object(object, "spec");
        default_to(spec, "volumeMode", "Filesystem");
        default_to(ensure_object(object, "status"), "phase", "Pending");
    }

    fn prepare_for_create(&self, object: &mut Object, _context: &Context<'_>) {
        object.insert("status".into(), json!({"phase": "Pending"}));
        add_finalizer(object, PROTECTION);
        default_data_sources(ensure_object(object, "spec"));
    }

    fn validate(&self, object: &Object, errors: &mut FieldErrors) {
        let spec = FieldPath::new("spec");
        validate_access_modes(object, "at least 1 access mode is required", errors);
        labels::validate_selector(at(object, "spec.selector"), &spec.child("selector"), errors);
        if at(object, "spec.resources.requests.storage").is_none() {
            errors.required(spec.child("resources").key("storage"), "");
        }
        let class = text(object, "spec.storageClassName");
        for text in names::dns1123_subdomain(class, false)
            .into_iter()
            .filter(|_| !class.is_empty())
        {
            errors.invalid(spec.child("storageClassName"), class, text);
        }
        let mode = text(object, "spec.volumeMode");
        if !matches!(mode, "" | "Block" | "Filesystem") {
            errors.not_supported(spec.child("volumeMode"), mode, &["Block", "Filesystem"]);
        }
    }

    fn prepare_for_update(&self, object: &mut Object, old: &Object, context: &Context<'_>) {
        if context.subresource == "status" {
            restore(object, old, "spec");
        } else {
            default_data_sources(ensure_object(object, "spec"));
        }
    }

    fn validate_update(&self, object: &Object, old: &Object, errors: &mut FieldErrors, context: &Context<'_>) {
        if !context.subresource.is_empty() {
            return;
        }
        self.validate(object, errors);
        let is_unbound = text(old, "spec.volumeName").is_empty();
        let fixed = |it: &Object| {
            let mut spec = at(it, "spec").and_then(Value::as_object).cloned().unwrap_or_default();
            // Requests may grow, and a claim that is not bound yet may be bound and given a class.
            if let Some(resources) = spec.get_mut("resources").and_then(Value::as_object_mut) {
                resources.remove("requests");
            }
            spec.remove("volumeAttributesClassName");
            if is_unbound {
                spec.remove("volumeName");
                if text(old, "spec.storageClassName").is_empty() && at(old, "spec.storageClassName").is_none() {
                    spec.remove("storageClassName");
                }
            }
            spec
        };
        if fixed(object) != fixed(old) {
            let text = "spec is immutable after creation except resources.requests and volumeAttributesClassName for \
                        bound claims";
            errors.forbidden(FieldPath::new("spec"), text);
        }
    }

    fn returns_deleted_object(&self) -> bool {
        true
    }
}

/// The older and the newer field of where the data come from say the same.
fn default_data_sources(spec: &mut Map<String, Value>) {
    if is_empty(spec, "dataSourceRef") {
        if let Some(source) = at(spec, "dataSource").cloned() {
            spec.insert("dataSourceRef".into(), source);
        }
        return;
    }
    let kind = (text(spec, "dataSourceRef.apiGroup"), text(spec, "dataSourceRef.kind"));
    let fits = matches!(
        kind,
        ("", "PersistentVolumeClaim") | ("snapshot.storage.k8s.io", "VolumeSnapshot")
    );
    if fits && is_empty(spec, "dataSource") && text(spec, "dataSourceRef.namespace").is_empty() {
        let source = at(spec, "dataSourceRef").cloned().unwrap_or_default();
        spec.insert("dataSource".into(), source);
    }
}

/// Adds a finalizer the server itself sets.
pub(crate) fn add_finalizer(object: &mut Object, name: &str) {
    if object.finalizers().any(|it| it == name) {
        return;
    }
    let finalizers = object.metadata_mut().entry("finalizers").or_insert_with(|| json!([]));
    match finalizers.as_array_mut() {
        Some(list) => list.push(name.into()),
        None => *finalizers = json!([name]),
    }
}

/// Checks `spec.accessModes` of a claim or a volume; `missing` is the text where there are none.
pub(crate) fn validate_access_modes(object: &Object, missing: &str, errors: &mut FieldErrors) {
    let path = FieldPath::new("spec.accessModes");
    let modes = list(object, "spec.accessModes");
    if modes.is_empty() {
        errors.required(path.clone(), missing);
    }
    for mode in modes.iter().filter_map(Value::as_str) {
        if !ACCESS_MODES.contains(&mode) {
            errors.not_supported(path.clone(), mode, &ACCESS_MODES);
        }
    }
    if modes.len() > 1 && modes.iter().any(|mode| mode == "ReadWriteOncePod") {
        errors.forbidden(path, "may not use ReadWriteOncePod with other access modes");
    }
}
