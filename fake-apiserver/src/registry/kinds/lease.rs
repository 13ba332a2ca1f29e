//! Leases and LeaseCandidates (rule R8).

use serde_json::Value;

use super::strategy::{Context, Strategy};
use crate::api::field::{FieldErrors, FieldPath};
use crate::api::object::Object;
use crate::registry::types::access::{at, number, object_mut, text};

/// The strategy of Leases.
#[derive(Debug)]
pub(crate) struct Lease;

impl Strategy for Lease {
    fn prepare_for_create(&self, object: &mut Object, _context: &Context<'_>) {
        drop_coordinated(object, None);
    }

    fn prepare_for_update(&self, object: &mut Object, old: &Object, _context: &Context<'_>) {
        drop_coordinated(object, Some(old));
    }

    fn validate(&self, object: &Object, errors: &mut FieldErrors) {
        let path = |field| FieldPath::new("spec").child(field);
        if let Some(seconds) = number(object, "spec.leaseDurationSeconds").filter(|&it| it <= 0) {
            errors.invalid(path("leaseDurationSeconds"), seconds, "must be greater than 0");
        }
        if let Some(transitions) = number(object, "spec.leaseTransitions").filter(|&it| it < 0) {
            let text = "must be greater than or equal to 0";
            errors.invalid(path("leaseTransitions"), transitions, text);
        }
        if !text(object, "spec.preferredHolder").is_empty() && text(object, "spec.strategy").is_empty() {
            let text = "may only be specified if `strategy` is defined";
            errors.forbidden(path("preferredHolder"), text);
        }
    }

    fn allows_unconditional_update(&self) -> bool {
        false
    }

    fn allows_create_on_update(&self) -> bool {
        true
    }
}

/// Drops what is behind the gate CoordinatedLeaderElection, unless it is stored already.
fn drop_coordinated(lease: &mut Object, old: Option<&Object>) {
    for field in ["strategy", "preferredHolder"] {
        if old.and_then(|it| at(it, "spec")?.get(field)).is_none_or(Value::is_null)
            && let Some(spec) = object_mut(lease, "spec")
        {
            spec.remove(field);
        }
    }
}

/// The strategy of LeaseCandidates.
#[derive(Debug)]
pub(crate) struct LeaseCandidate;

impl Strategy for LeaseCandidate {
    fn validate(&self, object: &Object, errors: &mut FieldErrors) {
        let path = |field| FieldPath::new("spec").child(field);
        for field in ["leaseName", "strategy"] {
            if text(object, &format!("spec.{field}")).is_empty() {
                errors.required(path(field), "");
            }
        }
        if text(object, "spec.strategy") == "OldestEmulationVersion" {
            for field in ["binaryVersion", "emulationVersion"] {
                if text(object, &format!("spec.{field}")).is_empty() {
                    errors.required(
                        path(field),
                        "must be specified when `strategy` is 'OldestEmulationVersion'",
                    );
                }
            }
        }
    }

    fn validate_update(&self, object: &Object, old: &Object, errors: &mut FieldErrors, _context: &Context<'_>) {
        self.validate(object, errors);
        if at(object, "spec.leaseName") != at(old, "spec.leaseName") {
            let path = FieldPath::new("spec.leaseName");
            errors.invalid(path, text(object, "spec.leaseName"), "field is immutable");
        }
    }

    fn allows_unconditional_update(&self) -> bool {
        false
    }

    fn allows_create_on_update(&self) -> bool {
        true
    }
}
