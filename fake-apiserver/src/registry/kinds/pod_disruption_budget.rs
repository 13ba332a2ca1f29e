//! PodDisruptionBudgets.

use serde_json::Value;

use super::metadata::invalid_printed;
use super::strategy::{Context, Strategy};
use crate::api::field::{FieldErrors, FieldPath};
use crate::api::object::Object;
use crate::registry::types::access::{at, restore};
use crate::registry::types::conditions::validate_conditions;
use crate::registry::types::cursor::Cursor;
use crate::registry::types::{labels, names};

/// The strategy of PodDisruptionBudgets.
#[derive(Debug)]
pub(crate) struct PodDisruptionBudget;

impl Strategy for PodDisruptionBudget {
    fn validate(&self, object: &Object, errors: &mut FieldErrors) {
        let path = FieldPath::new("spec");
        let field = |name: &str| at(object, &format!("spec.{name}"));
        let (min, max) = (field("minAvailable"), field("maxUnavailable"));
        if min.is_some() && max.is_some() {
            // The fields of the server's own type, in its order.
            let show = |name| field(name).map_or_else(|| "null".to_owned(), ToString::to_string);
            let printed = format!(
                "{{\"MinAvailable\":{},\"Selector\":{},\"MaxUnavailable\":{},\"UnhealthyPodEvictionPolicy\":{}}}",
                show("minAvailable"),
                show("selector"),
                show("maxUnavailable"),
                show("unhealthyPodEvictionPolicy")
            );
            let text = "minAvailable and maxUnavailable cannot be both set";
            invalid_printed(path.clone(), &printed, text, errors);
        }
        validate_count(min, &path.child("minAvailable"), errors);
        validate_count(max, &path.child("maxUnavailable"), errors);
        labels::validate_selector(field("selector"), &path.child("selector"), errors);
        if let Some(policy) = field("unhealthyPodEvictionPolicy").and_then(Value::as_str)
            && !matches!(policy, "AlwaysAllow" | "IfHealthyBudget")
        {
            let supported = ["AlwaysAllow", "IfHealthyBudget"];
            errors.not_supported(path.child("unhealthyPodEvictionPolicy"), policy, &supported);
        }
    }

    fn prepare_for_update(&self, object: &mut Object, old: &Object, context: &Context<'_>) {
        if context.subresource == "status" {
            restore(object, old, "spec");
        }
    }

    fn validate_update(&self, object: &Object, _old: &Object, errors: &mut FieldErrors, context: &Context<'_>) {
        if context.subresource.is_empty() {
            self.validate(object, errors);
        }
        if !context.subresource.is_empty() {
            validate_conditions(&Cursor::root(object).at("status.conditions"), errors);
        }
        let status = FieldPath::new("status");
        for field in ["disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods"] {
            let value = at(object, &format!("status.{field}")).and_then(Value::as_i64);
            if let Some(value) = value.filter(|&it| it < 0) {
                errors.invalid(status.child(field), value, "must be greater than or equal to 0");
            }
        }
    }

    fn allows_unconditional_update(&self) -> bool {
        false
    }

    fn has_generation(&self) -> bool {
        true
    }
}

/// Checks a number of Pods, given as such or as a percentage of all.
fn validate_count(count: Option<&Value>, path: &FieldPath, errors: &mut FieldErrors) {
    match count {
        Some(Value::String(text)) => match names::percent(text) {
            Some(problem) => errors.invalid(path.clone(), text.as_str(), problem),
            None => {
                let percent: u64 = text.trim_end_matches('%').parse().unwrap_or(u64::MAX);
                if percent > 100 {
                    errors.invalid(path.clone(), text.as_str(), "must not be greater than 100%");
                }
            }
        },
        Some(number) => {
            if let Some(count) = number.as_i64().filter(|&it| it < 0) {
                errors.invalid(path.clone(), count, "must be greater than or equal to 0");
            }
        }
        None => {}
    }
}
