//! PriorityClasses.

use super::strategy::{Context, Strategy};
use crate::api::field::{FieldErrors, FieldPath};
use crate::api::object::Object;
use crate::registry::types::access::{default_to, number, text};

/// The highest priority a user may define.
const USER_MAX: i64 = 1_000_000_000;
/// Classes of the system and their values.
const SYSTEM: [(&str, i64); 2] = [
    ("system-node-critical", 2_000_001_000),
    ("system-cluster-critical", 2_000_000_000),
];

/// The strategy of PriorityClasses.
#[derive(Debug)]
pub(crate) struct PriorityClass;

impl Strategy for PriorityClass {
    fn default(&self, object: &mut Object) {
        default_to(object, "preemptionPolicy", "PreemptLowerPriority");
    }

    fn validate(&self, object: &Object, errors: &mut FieldErrors) {
        let (name, value) = (object.name(), number(object, "value").unwrap_or(0));
        if name.starts_with("system-") {
            if !SYSTEM.contains(&(name, value)) {
                let text = "priority class names with 'system-' prefix are reserved for system use only";
                errors.forbidden(FieldPath::new("metadata.name"), text);
            }
        } else if value > USER_MAX {
            let text = format!("maximum allowed value of a user defined priority is {USER_MAX}");
            errors.forbidden(FieldPath::new("value"), text);
        }
        let policy = text(object, "preemptionPolicy");
        let supported = ["Never", "PreemptLowerPriority"];
        if !policy.is_empty() && !supported.contains(&policy) {
            errors.not_supported(FieldPath::new("preemptionPolicy"), policy, &supported);
        }
    }

    fn validate_update(&self, object: &Object, old: &Object, errors: &mut FieldErrors, _context: &Context<'_>) {
        if number(object, "value").unwrap_or(0) != number(old, "value").unwrap_or(0) {
            errors.forbidden(FieldPath::new("value"), "may not be changed in an update.");
        }
        if text(object, "preemptionPolicy") != text(old, "preemptionPolicy") {
            let value = text(object, "preemptionPolicy");
            errors.invalid(FieldPath::new("preemptionPolicy"), value, "field is immutable");
        }
    }

    fn has_generation(&self) -> bool {
        true
    }

    fn raises_generation(&self, _object: &Object, _old: &Object) -> bool {
        false
    }
}
