//! CSIDrivers.

use serde_json::{Value, json};

use super::strategy::{Context, Strategy};
use crate::api::field::{FieldErrors, FieldPath};
use crate::api::object::Object;
use crate::registry::types::access::{at, default_to, ensure_object, is_empty, text};

/// The strategy of CSIDrivers.
#[derive(Debug)]
pub(crate) struct CsiDriver;

impl Strategy for CsiDriver {
    fn default(&self, object: &mut Object) {
        let spec = ensure_object(object, "spec");
        default_to(spec, "attachRequired", true);
        default_to(spec, "fsGroupPolicy", "ReadWriteOnceWithFSType");
        for field in ["podInfoOnMount", "storageCapacity", "requiresRepublish", "seLinuxMount"] {
            default_to(spec, field, false);
        }
        if is_empty(spec, "volumeLifecycleModes") {
            spec.insert("volumeLifecycleModes".into(), json!(["Persistent"]));
        }
    }

    fn validate(&self, object: &Object, errors: &mut FieldErrors) {
        let policy = text(object, "spec.fsGroupPolicy");
        let supported = ["ReadWriteOnceWithFSType", "File", "None"];
        if !supported.contains(&policy) {
            errors.not_supported(FieldPath::new("spec.fsGroupPolicy"), policy, &supported);
        }
    }

    fn validate_update(&self, object: &Object, old: &Object, errors: &mut FieldErrors, _context: &Context<'_>) {
        self.validate(object, errors);
        for field in ["attachRequired", "volumeLifecycleModes"] {
            let value = |it| at(it, "spec").and_then(|spec| spec.get(field)).cloned();
            if value(object) != value(old) {
                let path = FieldPath::new("spec").child(field);
                errors.invalid(path, value(object).unwrap_or(Value::Null), "field is immutable");
            }
        }
    }

    fn allows_unconditional_update(&self) -> bool {
        false
    }

    fn returns_deleted_object(&self) -> bool {
        true
    }
}
