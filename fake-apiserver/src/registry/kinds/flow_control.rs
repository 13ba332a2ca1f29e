//! FlowSchemas and PriorityLevelConfigurations.

use super::plain::restore_metadata;
use super::strategy::{Context, Strategy};
use crate::api::field::{FieldErrors, FieldPath};
use crate::api::object::Object;
use crate::registry::types::access::{at, default_to, ensure_object, number, object_mut, text};
use crate::registry::types::names;

const PRECEDENCE: i64 = 1_000;
const PRECEDENCE_MAX: i64 = 10_000;

/// The strategy of FlowSchemas.
#[derive(Debug)]
pub(crate) struct FlowSchema;

impl Strategy for FlowSchema {
    fn default(&self, object: &mut Object) {
        let spec = ensure_object(object, "spec");
        if number(spec, "matchingPrecedence").unwrap_or(0) == 0 {
            spec.insert("matchingPrecedence".into(), PRECEDENCE.into());
        }
    }

    fn validate(&self, object: &Object, errors: &mut FieldErrors) {
        let path = FieldPath::new("spec");
        let precedence = number(object, "spec.matchingPrecedence").unwrap_or(0);
        if precedence <= 0 {
            errors.invalid(path.child("matchingPrecedence"), precedence, "must be a positive value");
        } else if precedence > PRECEDENCE_MAX {
            let text = format!("must not be greater than {PRECEDENCE_MAX}");
            errors.invalid(path.child("matchingPrecedence"), precedence, text);
        }
        let level = text(object, "spec.priorityLevelConfiguration.name");
        let path = path.child("priorityLevelConfiguration.name");
        if level.is_empty() {
            errors.required(path, "must reference a priority level");
        } else {
            for problem in names::dns1123_subdomain(level, false) {
                errors.invalid(path.clone(), level, problem);
            }
        }
    }

    fn prepare_for_update(&self, object: &mut Object, old: &Object, context: &Context<'_>) {
        if context.subresource == "status" {
            restore_metadata(object, old);
        }
    }

    fn has_generation(&self) -> bool {
        true
    }
}

/// The strategy of PriorityLevelConfigurations.
#[derive(Debug)]
pub(crate) struct PriorityLevelConfiguration;

impl Strategy for PriorityLevelConfiguration {
    fn default(&self, object: &mut Object) {
        if let Some(exempt) = object_mut(object, "spec.exempt") {
            default_to(exempt, "nominalConcurrencyShares", 0);
            default_to(exempt, "lendablePercent", 0);
        }
        if let Some(limited) = object_mut(object, "spec.limited") {
            default_to(limited, "nominalConcurrencyShares", 30);
            default_to(limited, "lendablePercent", 0);
            if let Some(queuing) = object_mut(limited, "limitResponse.queuing") {
                for (field, value) in [("handSize", 8), ("queues", 64), ("queueLengthLimit", 50)] {
                    if number(queuing, field).unwrap_or(0) == 0 {
                        queuing.insert(field.into(), value.into());
                    }
                }
            }
        }
    }

    fn validate(&self, object: &Object, errors: &mut FieldErrors) {
        let path = FieldPath::new("spec");
        let has = |field: &str| at(object, &format!("spec.{field}")).is_some();
        match text(object, "spec.type") {
            "Limited" => {
                if !has("limited") {
                    errors.required(path.child("limited"), "must not be empty when type is Limited");
                }
                if has("exempt") {
                    errors.forbidden(path.child("exempt"), "must be nil if the type is Limited");
                }
            }
            "Exempt" => {
                if has("limited") {
                    errors.forbidden(path.child("limited"), "must be nil if the type is not Limited");
                }
            }
            other => errors.not_supported(path.child("type"), other, &["Exempt", "Limited"]),
        }
    }

    fn prepare_for_update(&self, object: &mut Object, old: &Object, context: &Context<'_>) {
        if context.subresource == "status" {
            restore_metadata(object, old);
        }
    }

    fn has_generation(&self) -> bool {
        true
    }
}
