//! StorageClasses.

use super::strategy::{Context, Strategy};
use crate::api::field::{FieldErrors, FieldPath};
use crate::api::object::Object;
use crate::registry::types::access::{at, default_to, text};

/// The strategy of StorageClasses.
#[derive(Debug)]
pub(crate) struct StorageClass;

impl Strategy for StorageClass {
    fn default(&self, object: &mut Object) {
        default_to(object, "reclaimPolicy", "Delete");
        default_to(object, "volumeBindingMode", "Immediate");
    }

    fn validate(&self, object: &Object, errors: &mut FieldErrors) {
        let provisioner = text(object, "provisioner");
        if provisioner.is_empty() {
            errors.required(FieldPath::new("provisioner"), "");
        } else {
            crate::registry::types::labels::validate_key(
                &provisioner.to_lowercase(),
                &FieldPath::new("provisioner"),
                errors,
            );
        }
        for (field, supported) in [
            ("reclaimPolicy", ["Delete", "Retain"]),
            ("volumeBindingMode", ["Immediate", "WaitForFirstConsumer"]),
        ] {
            let value = text(object, field);
            if !supported.contains(&value) {
                errors.not_supported(FieldPath::new(field), value, &supported);
            }
        }
    }

    fn validate_update(&self, object: &Object, old: &Object, errors: &mut FieldErrors, _context: &Context<'_>) {
        for field in ["parameters", "provisioner"] {
            if at(object, field) != at(old, field) {
                errors.forbidden(FieldPath::new(field), format!("updates to {field} are forbidden."));
            }
        }
        for field in ["reclaimPolicy", "volumeBindingMode"] {
            if at(object, field) != at(old, field) {
                errors.invalid(FieldPath::new(field), text(object, field), "field is immutable");
            }
        }
    }

    fn returns_deleted_object(&self) -> bool {
        true
    }
}
