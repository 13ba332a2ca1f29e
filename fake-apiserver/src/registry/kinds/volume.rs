//! VolumeAttachments and VolumeAttributesClasses.

use super::persistent_volume_claim::add_finalizer;
use super::plain::restore_metadata;
use super::strategy::{Context, Strategy};
use crate::api::field::{FieldErrors, FieldPath};
use crate::api::object::Object;
use crate::registry::types::access::{at, text};
use crate::registry::types::cursor::Cursor;
use crate::registry::types::names;

/// Keeps a class that volumes or claims still use; the admission plugin `StorageObjectInUseProtection` adds it.
const PROTECTION: &str = "kubernetes.io/vac-protection";

/// The strategy of VolumeAttachments.
#[derive(Debug)]
pub(crate) struct VolumeAttachment;

impl Strategy for VolumeAttachment {
    fn validate(&self, object: &Object, errors: &mut FieldErrors) {
        for field in ["attacher", "nodeName"] {
            if text(object, &format!("spec.{field}")).is_empty() {
                errors.required(FieldPath::new("spec").child(field), "");
            }
        }
        let source = FieldPath::new("spec.source");
        let name = at(object, "spec.source.persistentVolumeName");
        match (name.is_some(), at(object, "spec.source.inlineVolumeSpec").is_some()) {
            (false, false) => errors.required(
                source,
                "must specify exactly one of inlineVolumeSpec and persistentVolumeName",
            ),
            (true, true) => {
                errors.forbidden(
                    source,
                    "must specify exactly one of inlineVolumeSpec and persistentVolumeName",
                );
            }
            _ => {}
        }
    }

    fn prepare_for_update(&self, object: &mut Object, old: &Object, context: &Context<'_>) {
        if context.subresource == "status" {
            restore_metadata(object, old);
        }
    }

    fn validate_update(&self, object: &Object, old: &Object, errors: &mut FieldErrors, context: &Context<'_>) {
        if context.subresource.is_empty() && object.get("spec") != old.get("spec") {
            let spec = object.get("spec").cloned().unwrap_or_default();
            errors.invalid(FieldPath::new("spec"), spec, "field is immutable");
        }
    }

    fn allows_unconditional_update(&self) -> bool {
        false
    }

    fn returns_deleted_object(&self) -> bool {
        true
    }
}

/// The strategy of VolumeAttributesClasses.
#[derive(Debug)]
pub(crate) struct VolumeAttributesClass;

impl Strategy for VolumeAttributesClass {
    fn prepare_for_create(&self, object: &mut Object, _context: &Context<'_>) {
        add_finalizer(object, PROTECTION);
    }

    fn validate(&self, object: &Object, errors: &mut FieldErrors) {
        let object = Cursor::root(object);
        let driver = object.at("driverName");
        if driver.check_required(errors) {
            driver.check_texts(names::qualified_name(&driver.as_text().to_lowercase()), errors);
        }
        if object.is_empty("parameters") {
            errors.required(object.at("parameters"), "must contain at least one key/value pair");
        }
    }

    fn validate_update(&self, object: &Object, old: &Object, errors: &mut FieldErrors, _context: &Context<'_>) {
        self.validate(object, errors);
        if text(object, "driverName") != text(old, "driverName") {
            errors.forbidden(FieldPath::new("driverName"), "updates to driverName are forbidden.");
        }
        if at(object, "parameters") != at(old, "parameters") {
            errors.forbidden(FieldPath::new("parameters"), "updates to parameters are forbidden.");
        }
    }

    fn returns_deleted_object(&self) -> bool {
        true
    }
}
