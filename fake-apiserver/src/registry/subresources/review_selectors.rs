//! Selectors in access reviews (`validateResourceAttributes` of `pkg/apis/authorization/validation`,
//! `pkg/registry/authorization/util`). RBAC ignores selectors, so only malformed ones are reported.

use crate::api::field::FieldErrors;
use crate::api::selector::{FieldSelector, LabelSelector};
use crate::registry::types::cursor::Cursor;
use crate::registry::types::{labels, names};

const FIELDS: &str = "fieldSelector";
const LABELS: &str = "labelSelector";

/// Checks the selectors of `spec.resourceAttributes`. `attributes` is the cursor at that field.
pub(super) fn validate(attributes: &Cursor<'_>, errors: &mut FieldErrors) {
    for name in [FIELDS, LABELS] {
        let selector = attributes.at(name);
        if !attributes.is_set(name) {
            continue;
        }
        let (has_raw, has_requirements) = (!selector.is_empty("rawSelector"), !selector.is_empty("requirements"));
        if has_raw && has_requirements {
            let text = "may not specified at the same time as requirements";
            errors.invalid(selector.at("rawSelector"), selector.text("rawSelector"), text);
        }
        if !has_raw && !has_requirements {
            let path = selector.path();
            let text = format!("when {path} is specified, requirements or rawSelector is required");
            errors.required(selector.at("requirements"), text);
        }
        for requirement in selector.items("requirements") {
            validate_requirement(&requirement, name == LABELS, errors);
        }
    }
}

/// Checks a requirement. Unknown operators are accepted, because later versions may add them.
fn validate_requirement(requirement: &Cursor<'_>, is_label: bool, errors: &mut FieldErrors) {
    if !is_label && requirement.is_empty("key") {
        errors.required(requirement.at("key"), "must be specified");
    }
    let has_values = !requirement.is_empty("values");
    match requirement.text("operator") {
        "In" | "NotIn" if !has_values => {
            let text = "must be specified when `operator` is 'In' or 'NotIn'";
            errors.required(requirement.at("values"), text);
        }
        "Exists" | "DoesNotExist" if has_values => {
            let text = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
            errors.forbidden(requirement.at("values"), text);
        }
        _ => {}
    }
    if is_label {
        labels::validate_key(&requirement.at("key"), errors);
        for value in requirement.items("values") {
            value.check_texts(names::label_value(value.as_text()), errors);
        }
    }
}

/// Returns the `status.evaluationError` for selectors and requirements that cannot be parsed; empty if there are none.
pub(super) fn evaluation_error(attributes: &Cursor<'_>) -> String {
    let mut texts = Vec::new();
    for name in [FIELDS, LABELS] {
        let selector = attributes.at(name);
        let raw = selector.text("rawSelector");
        let requirements = selector.items("requirements");
        let (read, total) = if requirements.len() > 0 {
            let total = requirements.len();
            let is_known: fn(&Cursor<'_>) -> bool = if name == LABELS { is_known_label } else { is_known_field };
            (requirements.filter(is_known).count(), total)
        } else {
            let is_read = match name {
                _ if raw.is_empty() => true,
                LABELS => LabelSelector::parse(raw).is_ok(),
                _ => FieldSelector::parse(raw).is_ok(),
            };
            (usize::from(is_read), 1)
        };
        if read < total {
            let partially = if read > 0 { "partially " } else { "" };
            texts.push(format!("{} {partially}ignored due to parse error", selector.path()));
        }
    }
    texts.join("; ")
}

fn is_known_label(requirement: &Cursor<'_>) -> bool {
    matches!(requirement.text("operator"), "In" | "NotIn" | "Exists" | "DoesNotExist")
}

fn is_known_field(requirement: &Cursor<'_>) -> bool {
    matches!(requirement.text("operator"), "In" | "NotIn") && requirement.list("values").len() == 1
}
