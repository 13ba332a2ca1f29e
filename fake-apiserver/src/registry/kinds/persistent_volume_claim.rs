//! The strategy of PersistentVolumeClaims. Follows `ValidatePersistentVolumeClaim`,
//! `ValidatePersistentVolumeClaimUpdate` and `ValidatePersistentVolumeClaimStatusUpdate` of `pkg/apis/core/validation`.

use super::facts::Facts;
use super::pod::validate_claim_spec;
use super::strategy::{Context, Strategy};
use crate::api::field::{FieldErrors, FieldPath};
use crate::api::json::{Map, Value, json};
use crate::api::object::Object;
use crate::registry::types::check::IMMUTABLE;
use crate::registry::types::cursor::Cursor;
use crate::registry::types::edit::{copy_field, default_text, default_value, ensure_object};
use crate::registry::types::names;
use crate::registry::types::plugins::Plugin;
use crate::registry::types::quantity::Quantity;

/// Finalizer that delays the deletion of a claim while Pods use it.
const PROTECTION: &str = "kubernetes.io/pvc-protection";
/// Former annotation for the storage class of a claim; replaced by the field `storageClassName`.
const BETA_CLASS: &str = "volume.beta.kubernetes.io/storage-class";
const ACCESS_MODES: [&str; 4] = ["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"];
const RESIZE_STATUSES: [&str; 5] = [
    "ControllerResizeInProgress",
    "ControllerResizeInfeasible",
    "NodeResizeInProgress",
    "NodeResizeInfeasible",
    "NodeResizePending",
];

/// The strategy of PersistentVolumeClaims.
#[derive(Debug)]
pub(crate) struct PersistentVolumeClaim;

impl Strategy for PersistentVolumeClaim {
    fn facts(&self) -> &Facts {
        &Facts {
            returns_deleted_object: true,
            is_completed_on_read: true,
            ..Facts::DEFAULT
        }
    }

    fn default(&self, object: &mut Object) {
        let spec = ensure_object(object, "spec");
        default_value(spec, "volumeMode", "Filesystem");
        default_text(ensure_object(object, "status"), "phase", "Pending");
    }

    fn admit(&self, object: &mut Object, old: Option<&Object>, context: &Context<'_>) -> Result<(), String> {
        protect(object, old, PROTECTION, context);
        Ok(())
    }

    fn prepare_for_create(&self, object: &mut Object, _context: &Context<'_>) {
        object.insert("status".into(), json!({"phase": "Pending"}));
        prepare_sources(ensure_object(object, "spec"), None);
    }

    fn validate(&self, object: &Object, errors: &mut FieldErrors) {
        let object = Cursor::root(object);
        validate_claim_spec(&object.at("spec"), errors);
    }

    fn prepare_for_update(&self, object: &mut Object, old: &Object, context: &Context<'_>) {
        if context.subresource == "status" {
            copy_field(old, object, "spec");
        } else {
            prepare_sources(ensure_object(object, "spec"), Some(&Cursor::root(old).at("spec")));
        }
    }

    fn validate_update(&self, object: &Object, old: &Object, errors: &mut FieldErrors, context: &Context<'_>) {
        if !context.subresource.is_empty() {
            validate_status(&Cursor::root(object), errors);
            return;
        }
        self.validate(object, errors);
        let (new, old) = (Cursor::root(object), Cursor::root(old));
        validate_class_annotation(&new, &old, errors);
        if fixed_part(&new, &old) != with_volume_of(&new, &old) {
            let text = "spec is immutable after creation except resources.requests and volumeAttributesClassName for \
                        bound claims";
            errors.forbidden(new.at("spec"), text);
        }
        let size = |it: &Cursor<'_>, way: &str| amount(it.text(way));
        let asked = size(&new, "spec.resources.requests.storage");
        let compared_to = |way| asked.subtract(&size(&old, way)).signum();
        if compared_to("spec.resources.requests.storage") < 0 && compared_to("status.capacity.storage") <= 0 {
            let path = new.at("spec.resources.requests.storage");
            errors.forbidden(path, "field can not be less than status.capacity");
        }
        if !new.same(&old, "spec.volumeMode") {
            let mode = new.at("spec.volumeMode").to_value();
            errors.invalid(FieldPath::new("volumeMode"), mode, IMMUTABLE);
        }
        validate_attributes_class(&new, &old, errors);
    }

    fn warnings(&self, object: &Object, _old: Option<&Object>) -> Vec<String> {
        let object = Cursor::root(object);
        let mut warnings = Vec::new();
        if object
            .map("metadata.annotations")
            .is_some_and(|it| it.contains_key(BETA_CLASS))
        {
            warnings.push(format!(
                "metadata.annotations[{BETA_CLASS}]: deprecated since v1.8; use \"storageClassName\" attribute instead"
            ));
        }
        for list in ["requests", "limits"] {
            let way = format!("spec.resources.{list}.storage");
            let text = object.text(&way);
            if amount(text).milli_value() % 1_000 != 0 {
                warnings.push(format!(
                    "spec.resources.{list}[storage]: fractional byte value {text:?} is invalid, must be an integer"
                ));
            }
        }
        warnings
    }
}

fn amount(text: &str) -> Quantity {
    Quantity::parse(text).unwrap_or_else(|_| Quantity::from_int(0))
}

/// Drops data sources that are not permitted, then copies `dataSource` to `dataSourceRef` or vice versa
/// (`DropDisabledFields`, `EnforceDataSourceBackwardsCompatibility` and `NormalizeDataSources`).
fn prepare_sources(spec: &mut Map, old: Option<&Cursor<'_>>) {
    let had = |field| old.is_some_and(|it| it.is_set(field));
    let path = FieldPath::root();
    let here = Cursor::map_at(spec, &path);
    // Namespaces of data sources depend on the gate CrossNamespaceVolumeDataSource, which is disabled.
    let drops_reference = !here.text("dataSourceRef.namespace").is_empty() && !had("dataSourceRef");
    if drops_reference {
        spec.remove("dataSourceRef");
    }
    let here = Cursor::map_at(spec, &path);
    let kind = (here.text("dataSource.apiGroup"), here.text("dataSource.kind"));
    let is_known = matches!(
        kind,
        ("", "PersistentVolumeClaim") | ("snapshot.storage.k8s.io", "VolumeSnapshot")
    );
    if !had("dataSource") && !had("dataSourceRef") && !here.is_set("dataSourceRef") && !is_known {
        spec.remove("dataSource");
    }
    let here = Cursor::map_at(spec, &path);
    let (source, reference) = (here.at("dataSource"), here.at("dataSourceRef"));
    let (field, from) = match (source.is_set(""), reference.is_set("")) {
        (true, false) => ("dataSourceRef", source),
        (false, true) if reference.text("namespace").is_empty() => ("dataSource", reference),
        _ => return,
    };
    let mut copy = from.map("").cloned().unwrap_or_default();
    copy.remove("namespace");
    spec.insert(field.into(), Value::Object(copy));
}

/// Returns `true` if the class was moved from the annotation to the field
/// (`validateStorageClassUpgradeFromAnnotation`).
fn moves_class(new: &Cursor<'_>, old: &Cursor<'_>) -> bool {
    let (Some(before), after) = (annotated_class(old), annotated_class(new)) else {
        return false;
    };
    !old.is_set("spec.storageClassName")
        && new.get("spec.storageClassName").and_then(Value::as_str) == Some(before)
        && after.is_none_or(|it| it == before)
}

fn annotated_class<'a>(claim: &Cursor<'a>) -> Option<&'a str> {
    claim.map("metadata.annotations")?.get(BETA_CLASS)?.as_str()
}

fn validate_class_annotation(new: &Cursor<'_>, old: &Cursor<'_>, errors: &mut FieldErrors) {
    let (before, after) = (annotated_class(old), annotated_class(new));
    if !moves_class(new, old) && before.unwrap_or_default() != after.unwrap_or_default() {
        let path = new.at("metadata.annotations").path().key(BETA_CLASS);
        errors.invalid(path, after.unwrap_or_default(), IMMUTABLE);
    }
}

/// Returns the new spec, in which the fields that this update may change have their old values.
fn fixed_part(new: &Cursor<'_>, old: &Cursor<'_>) -> Map {
    let mut spec = spec_of(new);
    let is_first_class = new.is_set("spec.storageClassName")
        && !old.is_set("spec.storageClassName")
        && annotated_class(old).is_none_or(|it| it == new.text("spec.storageClassName"));
    if is_first_class || moves_class(new, old) {
        spec.remove("storageClassName");
    }
    if new.text("status.phase") == "Bound" {
        put(
            &mut spec,
            "volumeAttributesClassName",
            old.get("spec.volumeAttributesClassName"),
        );
        let requests = spec.get_mut("resources").and_then(|it| it.get_mut("requests"));
        if let Some(requests) = requests.and_then(Value::as_object_mut) {
            put(requests, "storage", old.get("spec.resources.requests.storage"));
        }
    }
    spec
}

/// Returns the old spec. If its `volumeName` is unset, it gets the new value, because an update may set it once.
fn with_volume_of(new: &Cursor<'_>, old: &Cursor<'_>) -> Map {
    let mut spec = spec_of(old);
    if old.text("spec.volumeName").is_empty() {
        put(&mut spec, "volumeName", new.get("spec.volumeName"));
    }
    spec
}

fn spec_of(claim: &Cursor<'_>) -> Map {
    let mut spec = claim.map("spec").cloned().unwrap_or_default();
    // Claims that were stored by older versions may have data sources that are not normalised.
    prepare_sources(&mut spec, Some(&claim.at("spec")));
    spec
}

fn put(map: &mut Map, field: &str, value: Option<&Value>) {
    match value {
        Some(value) => map.insert(field.into(), value.clone()),
        None => map.remove(field),
    };
}

fn validate_attributes_class(new: &Cursor<'_>, old: &Cursor<'_>, errors: &mut FieldErrors) {
    let class = new.at("spec.volumeAttributesClassName");
    let is_applied = old.is_set("status.currentVolumeAttributesClassName");
    if new.same(old, "spec.volumeAttributesClassName") || !is_applied {
        return;
    }
    let what = match class.is_set("") {
        false => "nil",
        true if class.as_text().is_empty() => "empty string",
        true => return,
    };
    let text = format!("update to {what} is forbidden when status.currentVolumeAttributesClassName is not nil");
    errors.forbidden(class, text);
}

/// Checks an updated status (`ValidatePersistentVolumeClaimStatusUpdate`).
fn validate_status(claim: &Cursor<'_>, errors: &mut FieldErrors) {
    if claim.is_empty("spec.accessModes") {
        errors.required(FieldPath::new("Spec.accessModes"), "");
    }
    for (_, given) in claim.at("status.capacity").entries("") {
        check_basic(&given, errors);
    }
    let statuses = claim.at("status.allocatedResourceStatuses");
    for (resource, status) in statuses.entries("") {
        check_resource_key(resource, &statuses, errors);
        if !RESIZE_STATUSES.contains(&status.as_text()) {
            errors.not_supported(statuses, resource, &RESIZE_STATUSES);
        }
    }
    let allocated = claim.at("status.allocatedResources");
    for (resource, given) in allocated.entries("") {
        if check_resource_key(resource, &allocated, errors) {
            check_basic(&given, errors);
        }
    }
}

/// Checks the name of a resource in a status (`validatePersistentVolumeClaimResourceKey`). Returns `true` if it is
/// valid.
fn check_resource_key(resource: &str, at: &Cursor<'_>, errors: &mut FieldErrors) -> bool {
    let texts = names::qualified_name(resource);
    let is_native = !resource.contains('/') || resource.contains("kubernetes.io/");
    if texts.is_empty() && is_native && resource != "storage" {
        errors.not_supported(at, resource, &["storage"]);
        return false;
    }
    let is_right = texts.is_empty();
    for text in texts {
        errors.invalid(at, resource, text);
    }
    is_right
}

/// Checks that a quantity is not negative (`validateBasicResource`).
pub(super) fn check_basic(given: &Cursor<'_>, errors: &mut FieldErrors) {
    let value = amount(given.as_text()).value();
    if value < 0 {
        errors.invalid(given, value, "must be a valid resource quantity");
    }
}

/// Adds the finalizer `name` to a new object, unless the admission plugin `StorageObjectInUseProtection` is disabled.
pub(crate) fn protect(object: &mut Object, old: Option<&Object>, name: &str, context: &Context<'_>) {
    let is_enabled = context.plugins.has(Plugin::StorageObjectInUseProtection);
    if old.is_some() || !is_enabled || object.finalizers().any(|it| it == name) {
        return;
    }
    let finalizers = object.metadata_mut().entry("finalizers").or_insert_with(|| json!([]));
    match finalizers.as_array_mut() {
        Some(list) => list.push(name.into()),
        None => *finalizers = json!([name]),
    }
}

/// Checks the access modes of a claim or a volume. `missing` is the error message for an empty list.
pub(crate) fn validate_access_modes(modes: &Cursor<'_>, missing: &str, errors: &mut FieldErrors) {
    if modes.is_empty("") {
        errors.required(modes, missing);
    }
    for mode in modes.items("") {
        if !ACCESS_MODES.contains(&mode.as_text()) {
            errors.not_supported(modes, mode.as_text(), &ACCESS_MODES);
        }
    }
    let is_alone = |mode: &&Value| mode.as_str() == Some("ReadWriteOncePod");
    let is_another = |mode: &&Value| !is_alone(mode) && mode.as_str().is_some_and(|it| ACCESS_MODES.contains(&it));
    let list = modes.list("");
    if list.iter().any(|it| is_alone(&it)) && list.iter().any(|it| is_another(&it)) {
        errors.forbidden(modes, "may not use ReadWriteOncePod with other access modes");
    }
}
