//! The strategy of PodDisruptionBudgets.

use super::facts::{Facts, Generation};
use super::metadata::invalid_printed;
use super::strategy::{Context, Strategy};
use super::workload_rules::{validate_at_most_all, validate_number_or_percent};
use crate::api::field::FieldErrors;
use crate::api::object::Object;
use crate::registry::types::conditions::validate_conditions;
use crate::registry::types::cursor::Cursor;
use crate::registry::types::edit::copy_field;
use crate::registry::types::labels;

/// The strategy of PodDisruptionBudgets.
#[derive(Debug)]
pub(crate) struct PodDisruptionBudget;

impl Strategy for PodDisruptionBudget {
    fn facts(&self) -> &Facts {
        &Facts {
            allows_unconditional_update: false,
            generation: Generation::FromCreate,
            ..Facts::DEFAULT
        }
    }

    fn validate(&self, object: &Object, errors: &mut FieldErrors) {
        let object = Cursor::root(object);
        let spec = object.at("spec");
        let (min, max) = (spec.at("minAvailable"), spec.at("maxUnavailable"));
        if min.is_set("") && max.is_set("") {
            // The error prints the fields in the order of kube-apiserver's internal type.
            let show = |name| spec.at(name).to_value().to_string();
            let printed = format!(
                "{{\"MinAvailable\":{},\"Selector\":{},\"MaxUnavailable\":{},\"UnhealthyPodEvictionPolicy\":{}}}",
                show("minAvailable"),
                show("selector"),
                show("maxUnavailable"),
                show("unhealthyPodEvictionPolicy")
            );
            let text = "minAvailable and maxUnavailable cannot be both set";
            invalid_printed(spec, &printed, text, errors);
        }
        validate_count(&min, errors);
        validate_count(&max, errors);
        labels::validate_selector(&spec.at("selector"), errors);
        let policies = ["AlwaysAllow", "IfHealthyBudget"];
        spec.at("unhealthyPodEvictionPolicy").check_one_of(&policies, errors);
    }

    fn prepare_for_update(&self, object: &mut Object, old: &Object, context: &Context<'_>) {
        if context.subresource == "status" {
            copy_field(old, object, "spec");
        }
    }

    fn validate_update(&self, object: &Object, _old: &Object, errors: &mut FieldErrors, context: &Context<'_>) {
        if context.subresource.is_empty() {
            self.validate(object, errors);
        }
        let object = Cursor::root(object);
        let status = object.at("status");
        if !context.subresource.is_empty() {
            validate_conditions(&status.at("conditions"), errors);
        }
        for field in ["disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods"] {
            status.at(field).check_not_negative(errors);
        }
    }
}

/// Checks a number or a percentage of Pods.
fn validate_count(count: &Cursor<'_>, errors: &mut FieldErrors) {
    validate_number_or_percent(count, errors);
    validate_at_most_all(count, errors);
}
