//! LimitRanges.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::strategy::{Context, Strategy};
use crate::api::field::{FieldErrors, FieldPath};
use crate::api::object::Object;
use crate::registry::types::access::{at, ensure_object, objects, objects_mut, text};
use crate::registry::types::labels;
use crate::registry::types::quantity::Quantity;

/// The strategy of LimitRanges.
#[derive(Debug)]
pub(crate) struct LimitRange;

impl Strategy for LimitRange {
    fn default(&self, object: &mut Object) {
        for limit in objects_mut(object, "spec.limits") {
            if text(limit, "type") == "Container" {
                // A missing default is the maximum; a missing request the default, else the minimum.
                fill(limit, "default", "max");
                fill(limit, "defaultRequest", "default");
                fill(limit, "defaultRequest", "min");
            }
        }
    }

    fn validate(&self, object: &Object, errors: &mut FieldErrors) {
        let mut seen: Vec<&str> = Vec::new();
        for (index, limit) in objects(object, "spec.limits") {
            let path = FieldPath::new("spec.limits").index(index);
            let limit_type = text(limit, "type");
            validate_type(limit_type, &path.child("type"), errors);
            if seen.contains(&limit_type) {
                errors.duplicate(path.child("type"), limit_type);
            }
            seen.push(limit_type);
            validate_limit(limit, &path, errors);
        }
    }

    fn validate_update(&self, object: &Object, _old: &Object, errors: &mut FieldErrors, _context: &Context<'_>) {
        self.validate(object, errors);
    }

    fn allows_create_on_update(&self) -> bool {
        true
    }
}

fn validate_type(limit_type: &str, path: &FieldPath, errors: &mut FieldErrors) {
    labels::validate_key(limit_type, path, errors);
    let is_right = limit_type.contains('/') || limit_type.is_empty();
    if !is_right && !matches!(limit_type, "Pod" | "Container" | "PersistentVolumeClaim") {
        let text = "must be a standard limit type or fully qualified";
        errors.invalid(path.clone(), limit_type, text);
    }
}

fn validate_limit(limit: &Map<String, Value>, path: &FieldPath, errors: &mut FieldErrors) {
    let limit_type = text(limit, "type");
    let mut resources: BTreeSet<&str> = BTreeSet::new();
    for field in ["max", "min", "default", "defaultRequest", "maxLimitRequestRatio"] {
        let values = at(limit, field).and_then(Value::as_object);
        if limit_type == "Pod" && field.starts_with("default") {
            if values.is_some_and(|values| !values.is_empty()) {
                errors.forbidden(path.child(field), "may not be specified when `type` is 'Pod'");
            }
            continue;
        }
        for resource in values.into_iter().flatten().map(|(resource, _)| resource) {
            labels::validate_key(resource, &path.child(field).key(resource), errors);
            resources.insert(resource);
        }
    }
    let bounds = ["min", "max"].map(|field| at(limit, field).is_some_and(|it| it.get("storage").is_some()));
    if limit_type == "PersistentVolumeClaim" && bounds == [false, false] {
        let text = "either minimum or maximum storage value is required, but neither was provided";
        errors.required(path.child("limits"), text);
    }
    for resource in resources {
        compare(limit, resource, path, errors);
    }
}

/// Checks the amounts of one resource against each other.
fn compare(limit: &Map<String, Value>, resource: &str, path: &FieldPath, errors: &mut FieldErrors) {
    let amount = |field: &str| {
        let text = at(limit, field)?.get(resource)?.as_str()?;
        Some((text, Quantity::parse(text).ok()?))
    };
    let [min, max, default, request] = ["min", "max", "default", "defaultRequest"].map(amount);
    let words = ["min value", "max value", "default value", "default request value"];
    // Where the error is, whose value it shows, and what must not be greater than what.
    for (field, shown, (low, low_words), (high, high_words)) in [
        ("min", min, (min, words[0]), (max, words[1])),
        ("defaultRequest", request, (min, words[0]), (request, words[3])),
        ("defaultRequest", request, (request, words[3]), (max, words[1])),
        (
            "defaultRequest",
            request,
            (request, words[3]),
            (default, "default limit value"),
        ),
        ("default", min, (min, words[0]), (default, words[2])),
        ("default", max, (default, words[2]), (max, words[1])),
    ] {
        if let (Some((low_text, low)), Some((high_text, high)), Some((shown, _))) = (low, high, shown)
            && low > high
        {
            let text = format!("{low_words} {low_text} is greater than {high_words} {high_text}");
            errors.invalid(path.child(field).key(resource), shown, text);
        }
    }
    if let Some((text, ratio)) = amount("maxLimitRequestRatio")
        && ratio < Quantity::from_int(1)
    {
        let path = path.child("maxLimitRequestRatio").key(resource);
        errors.invalid(path, text, format!("ratio {text} is less than 1"));
    }
}

/// Copies the entries of one map that another lacks.
fn fill(limit: &mut Map<String, Value>, target: &str, source: &str) {
    let Some(values) = at(limit, source).and_then(Value::as_object).cloned() else {
        return;
    };
    if values.is_empty() {
        return;
    }
    let target = ensure_object(limit, target);
    for (resource, value) in values {
        target.entry(resource).or_insert(value);
    }
}
