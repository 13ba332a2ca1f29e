//! Validation of the request policies of device capacities (`validateRequestPolicy` in `pkg/apis/resource/validation`).

use crate::api::field::FieldErrors;
use crate::registry::types::cursor::Cursor;
use crate::registry::types::quantity::Quantity;

/// Maximum number of values in a policy.
const VALUES_MAX: usize = 10;

/// Checks a capacity with a request policy (`validateMultiAllocatableDeviceCapacity`).
pub(super) fn validate_policy(capacity: &Cursor<'_>, errors: &mut FieldErrors) {
    let policy = capacity.at("requestPolicy");
    let (values, range) = (policy.at("validValues"), policy.at("validRange"));
    let most = amount(&capacity.at("value"));
    let default = policy.at("default");
    match (values.is_empty(""), range.is_set("")) {
        (false, true) => {
            let text = "exactly one policy can be specified, cannot specify \"validValues\" and \"validRange\" at the \
                        same time";
            errors.forbidden(policy, text);
        }
        (false, false) if !default.is_set("") => errors.required(default, "required when validValues is defined"),
        (false, false) => validate_values(&values, &amount(&default), &most, errors),
        (true, true) if !default.is_set("") => errors.required(default, "required when validRange is defined"),
        (true, true) => validate_range(&range, &amount(&default), &most, errors),
        (true, false) => {}
    }
}

fn amount(at: &Cursor<'_>) -> Quantity {
    Quantity::parse(at.as_text()).unwrap_or_else(|_| Quantity::from_int(0))
}

/// Checks the valid values of a policy (`validateRequestPolicyValidValues`).
fn validate_values(values: &Cursor<'_>, default: &Quantity, most: &Quantity, errors: &mut FieldErrors) {
    let amounts: Vec<Quantity> = values.items("").map(|it| amount(&it)).collect();
    for (pair, second) in amounts.windows(2).zip(values.items("").skip(1)) {
        if pair[0] > pair[1] {
            errors.invalid(second, second.as_text(), "values must be sorted in ascending order");
        }
    }
    if amounts.len() > VALUES_MAX {
        errors.too_many(values, amounts.len(), VALUES_MAX);
    } else {
        for (item, value) in values.items("").zip(&amounts) {
            if value > most {
                let text = format!("option is larger than capacity value: {most}");
                errors.invalid(item, item.as_text(), text);
            }
        }
        for (index, item) in values.items("").enumerate() {
            // Like kube-apiserver, compares the values as integers.
            let whole = amounts[index].value();
            if amounts[..index].iter().any(|before| before.value() == whole) {
                errors.duplicate(item, whole.to_string());
            }
        }
    }
    if amounts.len() > VALUES_MAX || !amounts.contains(default) {
        let text = "default value is not valid according to the requestPolicy";
        errors.invalid(values, default.to_string(), text);
    }
}

/// Checks the valid range of a policy (`validateRequestPolicyRange`).
fn validate_range(range: &Cursor<'_>, default: &Quantity, most: &Quantity, errors: &mut FieldErrors) {
    let (min_at, max_at, step_at) = (range.at("min"), range.at("max"), range.at("step"));
    if !min_at.is_set("") {
        errors.required(min_at, "required when validRange is defined");
        return;
    }
    let min = amount(&min_at);
    let max = max_at.is_set("").then(|| amount(&max_at));
    if min > *most {
        let text = format!("min is larger than capacity value: {most}");
        errors.invalid(min_at, min.to_string(), text);
    }
    if *default < min {
        errors.invalid(min_at, default.to_string(), format!("default is less than min: {min}"));
    }
    if let Some(max) = &max {
        if min > *max {
            errors.invalid(max_at, min.to_string(), format!("min is larger than max: {max}"));
        }
        if max > most {
            let text = format!("max is larger than capacity value: {most}");
            errors.invalid(max_at, max.to_string(), text);
        }
        if default > max {
            errors.invalid(max_at, default.to_string(), format!("default is more than max: {max}"));
        }
    }
    if !step_at.is_set("") {
        return;
    }
    let step = amount(&step_at);
    let added = min.add(&step);
    if added > *most {
        let text = format!("one step {added} is larger than capacity value: {most}");
        errors.invalid(step_at, step.to_string(), text);
    }
    for value in std::iter::once(default).chain(&max) {
        let rest = value.value().saturating_sub(min.value()).checked_rem(step.value());
        if rest.is_some_and(|rest| rest != 0) {
            let text = format!("value is not a multiple of a given step ({step}) from ({min})");
            errors.invalid(step_at, value.to_string(), text);
        }
    }
}
