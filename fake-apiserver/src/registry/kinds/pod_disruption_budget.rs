//! The strategy of PodDisruptionBudgets.

use super::facts::{Facts, Generation};
use super::metadata::invalid_printed;
use super::strategy::{Context, Strategy};
use super::workload_rules::{validate_at_most_all, validate_number_or_percent};
use crate::api::field::FieldErrors;
use crate::api::json::Value;
use crate::api::object::Object;
use crate::registry::types::conditions::validate_conditions;
use crate::registry::types::cursor::Cursor;
use crate::registry::types::edit::{copy_field, object_mut};
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

    fn default(&self, object: &mut Object) {
        drop_empty_selector_label(object);
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

/// Removes requirements for the label with which `v1beta1` represents a selector of all or of no Pods, unless the
/// selector only requires its existence (`Convert_v1_PodDisruptionBudget_To_policy_PodDisruptionBudget`).
fn drop_empty_selector_label(object: &mut Object) {
    const SELECTOR: &str = "spec.selector";
    const LABEL: &str = "pdb.kubernetes.io/deprecated-v1beta1-empty-selector-match";
    let read = Cursor::root(object);
    let selector = read.at(SELECTOR);
    let requirements = selector.list("matchExpressions");
    let is_of_label = |it: &Value| it.get("key").is_some_and(|key| key == LABEL);
    let is_existence = |it: &Value| it.get("operator").is_some_and(|it| it == "Exists") && it.get("values").is_none();
    let selects_none =
        selector.is_empty("matchLabels") && matches!(requirements, [it] if is_of_label(it) && is_existence(it));
    if selects_none || !requirements.iter().any(is_of_label) {
        return;
    }
    let kept: Vec<Value> = requirements.iter().filter(|it| !is_of_label(it)).cloned().collect();
    if let Some(selector) = object_mut(object, SELECTOR) {
        match kept.is_empty() {
            true => selector.remove("matchExpressions"),
            false => selector.insert("matchExpressions".into(), kept.into()),
        };
    }
}

/// Checks a number or a percentage of Pods.
fn validate_count(count: &Cursor<'_>, errors: &mut FieldErrors) {
    validate_number_or_percent(count, errors);
    validate_at_most_all(count, errors);
}
