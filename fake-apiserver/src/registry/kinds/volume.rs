//! The strategies of VolumeAttachments and VolumeAttributesClasses. Follows `ValidateVolumeAttachment`,
//! `ValidateVolumeAttributesClass` and their counterparts for updates in `pkg/apis/storage/validation`.

use super::device::check_driver_name;
use super::facts::Facts;
use super::persistent_volume::{default_source, validate_inline_spec};
use super::persistent_volume_claim::protect;
use super::plain::restore_metadata;
use super::storage_class::{validate_parameters, validate_provisioner};
use super::strategy::{Context, Strategy};
use crate::api::field::FieldErrors;
use crate::api::object::Object;
use crate::registry::types::check::between;
use crate::registry::types::cursor::Cursor;
use crate::registry::types::edit::object_mut;
use crate::registry::types::names;

/// Finalizer that delays the deletion of a class while volumes or claims use it. The admission plugin
/// `StorageObjectInUseProtection` adds it.
const PROTECTION: &str = "kubernetes.io/vac-protection";
const METADATA_MAX_BYTES: usize = 256 * 1_024;
const MESSAGE_MAX_BYTES: usize = 1_024;

/// The strategy of VolumeAttachments.
#[derive(Debug)]
pub(crate) struct VolumeAttachment;

impl Strategy for VolumeAttachment {
    fn facts(&self) -> &Facts {
        &Facts {
            allows_unconditional_update: false,
            returns_deleted_object: true,
            ..Facts::DEFAULT
        }
    }

    fn default(&self, object: &mut Object) {
        if let Some(spec) = object_mut(object, "spec.source.inlineVolumeSpec") {
            default_source(spec);
        }
    }

    fn validate(&self, object: &Object, errors: &mut FieldErrors) {
        let object = Cursor::root(object);
        let spec = object.at("spec");
        check_driver_name(&spec.at("attacher"), errors);
        validate_source(&spec.at("source"), errors);
        let node = spec.at("nodeName");
        node.check_texts(names::dns1123_subdomain(node.as_text(), false), errors);
        validate_status(&object.at("status"), errors);
        let volume = spec.at("source.persistentVolumeName");
        if volume.is_set("") {
            volume.check_texts(names::dns1123_subdomain(volume.as_text(), false), errors);
        }
    }

    fn prepare_for_update(&self, object: &mut Object, old: &Object, context: &Context<'_>) {
        if context.subresource == "status" {
            restore_metadata(object, old);
        }
    }

    fn validate_update(&self, object: &Object, old: &Object, errors: &mut FieldErrors, _context: &Context<'_>) {
        self.validate(object, errors);
        let old = Cursor::root(old);
        Cursor::root(object).at("spec").check_unchanged(&old.at("spec"), errors);
    }
}

/// Checks the source of an attachment (`validateVolumeAttachmentSource`).
fn validate_source(source: &Cursor<'_>, errors: &mut FieldErrors) {
    const ONE: &str = "must specify exactly one of inlineVolumeSpec and persistentVolumeName";
    let (name, inline) = (source.at("persistentVolumeName"), source.at("inlineVolumeSpec"));
    match (name.is_set(""), inline.is_set("")) {
        (false, false) => errors.required(source, ONE),
        (true, true) => errors.forbidden(source, ONE),
        (true, false) => {
            if name.as_text().is_empty() {
                errors.required(name, "must specify non empty persistentVolumeName");
            }
        }
        (false, true) => validate_inline_spec(&inline, errors),
    }
}

/// Checks the status of an attachment (`validateVolumeAttachmentStatus`).
fn validate_status(status: &Cursor<'_>, errors: &mut FieldErrors) {
    let metadata = status.at("attachmentMetadata");
    let size: usize = metadata
        .entries("")
        .map(|(key, value)| key.len() + value.as_text().len())
        .sum();
    if size > METADATA_MAX_BYTES {
        errors.too_long(metadata, METADATA_MAX_BYTES);
    }
    for field in ["attachError", "detachError"] {
        let error = status.at(field);
        if error.text("message").len() > MESSAGE_MAX_BYTES {
            // As in kube-apiserver, the error contains the size limit of metadata.
            errors.too_long(error.at("message"), METADATA_MAX_BYTES);
        }
        if let Some(code) = error.integer("errorCode").filter(|it| *it < 0) {
            errors.invalid(error.at("errorCode"), code, between((0, i64::from(i32::MAX))));
        }
    }
}

/// The strategy of VolumeAttributesClasses.
#[derive(Debug)]
pub(crate) struct VolumeAttributesClass;

impl Strategy for VolumeAttributesClass {
    fn facts(&self) -> &Facts {
        &Facts {
            returns_deleted_object: true,
            ..Facts::DEFAULT
        }
    }

    fn admit(&self, object: &mut Object, old: Option<&Object>, context: &Context<'_>) -> Result<(), String> {
        protect(object, old, PROTECTION, context);
        Ok(())
    }

    fn validate(&self, object: &Object, errors: &mut FieldErrors) {
        let object = Cursor::root(object);
        validate_provisioner(&object.at("driverName"), errors);
        validate_parameters(&object.at("parameters"), false, errors);
    }

    fn validate_update(&self, object: &Object, old: &Object, errors: &mut FieldErrors, _context: &Context<'_>) {
        let (new, old) = (Cursor::root(object), Cursor::root(old));
        for field in ["driverName", "parameters"] {
            if !new.same(&old, field) {
                errors.forbidden(new.at(field), format!("updates to {field} are forbidden."));
            }
        }
        self.validate(object, errors);
    }
}
