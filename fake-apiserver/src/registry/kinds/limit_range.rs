//! The strategy of LimitRanges. Follows `ValidateLimitRange` of `pkg/apis/core/validation`.

use std::collections::BTreeSet;

use super::facts::Facts;
use super::pod::resources::{is_overcommit_allowed, validate_container_resource_name, validate_resource_name};
use super::strategy::{Context, Strategy};
use crate::api::field::FieldErrors;
use crate::api::json::{Map, Value};
use crate::api::object::Object;
use crate::registry::types::cursor::Cursor;
use crate::registry::types::edit::{ensure_object, items_mut};
use crate::registry::types::names;
use crate::registry::types::quantity::Quantity;

/// The strategy of LimitRanges.
#[derive(Debug)]
pub(crate) struct LimitRange;

impl Strategy for LimitRange {
    fn facts(&self) -> &Facts {
        &Facts {
            allows_create_on_update: true,
            ..Facts::DEFAULT
        }
    }

    fn default(&self, object: &mut Object) {
        for limit in items_mut(object, "spec.limits") {
            if limit.get("type").is_some_and(|it| it == "Container") {
                // A missing default is set to the maximum. A missing default request is set to the default, or else to
                // the minimum.
                fill(limit, "default", "max");
                fill(limit, "defaultRequest", "default");
                fill(limit, "defaultRequest", "min");
            }
        }
    }

    fn prepare_for_create(&self, object: &mut Object, context: &Context<'_>) {
        if object.name().is_empty() {
            object
                .metadata_mut()
                .insert("name".into(), context.entropy.uid().into());
        }
    }

    fn validate(&self, object: &Object, errors: &mut FieldErrors) {
        let mut seen = BTreeSet::new();
        for limit in Cursor::root(object).items("spec.limits") {
            let kind = limit.at("type");
            validate_type(&kind, errors);
            if !seen.insert(kind.as_text().to_owned()) {
                errors.duplicate(kind, kind.as_text());
            }
            validate_limit(&limit, errors);
        }
    }

    fn validate_update(&self, object: &Object, _old: &Object, errors: &mut FieldErrors, _context: &Context<'_>) {
        self.validate(object, errors);
    }
}

/// Checks the type of a limit (`validateLimitRangeTypeName`).
fn validate_type(kind: &Cursor<'_>, errors: &mut FieldErrors) {
    let name = kind.as_text();
    let texts = names::qualified_name(name);
    let is_standard = matches!(name, "Pod" | "Container" | "PersistentVolumeClaim");
    if texts.is_empty() && !name.contains('/') && !is_standard {
        errors.invalid(kind, name, "must be a standard limit type or fully qualified");
    }
    kind.check_texts(texts, errors);
}

fn validate_limit(limit: &Cursor<'_>, errors: &mut FieldErrors) {
    let kind = limit.text("type");
    let mut resources = BTreeSet::new();
    for field in ["max", "min", "default", "defaultRequest", "maxLimitRequestRatio"] {
        let values = limit.at(field);
        if kind == "Pod" && field.starts_with("default") {
            if !values.is_empty("") {
                errors.forbidden(values, "may not be specified when `type` is 'Pod'");
            }
            continue;
        }
        for (resource, value) in values.entries("") {
            match kind {
                "Pod" | "Container" => validate_container_resource_name(resource, &value, errors),
                _ => validate_resource_name(resource, &value, errors),
            }
            resources.insert(resource.to_owned());
        }
    }
    if kind == "PersistentVolumeClaim" && !limit.is_set("min.storage") && !limit.is_set("max.storage") {
        let text = "either minimum or maximum storage value is required, but neither was provided";
        errors.required(limit.at("limits"), text);
    }
    for resource in &resources {
        compare(limit, resource, errors);
        compare_ratio(limit, resource, errors);
    }
}

/// Returns the amount of a resource in a map of a limit, as a string and as a parsed quantity.
fn amount<'a>(limit: &Cursor<'a>, field: &str, resource: &str) -> Option<(&'a str, Quantity)> {
    let text = limit.map(field)?.get(resource)?.as_str()?;
    Some((text, Quantity::parse(text).ok()?))
}

/// Checks that the minimum, maximum and defaults of one resource are consistent.
fn compare(limit: &Cursor<'_>, resource: &str, errors: &mut FieldErrors) {
    let amount = |field| match (limit.text("type"), field) {
        ("Pod", "default" | "defaultRequest") => None,
        _ => amount(limit, field, resource),
    };
    let [min, max, default, request] = ["min", "max", "default", "defaultRequest"].map(amount);
    let words = ["min value", "max value", "default value", "default request value"];
    // The field with the error, the value that the error shows, and the amounts to compare.
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
            errors.invalid(limit.at(field).path().key(resource), shown, text);
        }
    }
    if let (Some((default_text, default)), Some((request_text, request))) = (default, request)
        && !is_overcommit_allowed(resource)
        && default != request
    {
        let text =
            format!("default value {default_text} must equal to defaultRequest value {request_text} in {resource}");
        errors.invalid(limit.at("defaultRequest").path().key(resource), request_text, text);
    }
}

/// Checks that `maxLimitRequestRatio` is at least 1, and at most `max` divided by `min`.
fn compare_ratio(limit: &Cursor<'_>, resource: &str, errors: &mut FieldErrors) {
    let Some((text, ratio)) = amount(limit, "maxLimitRequestRatio", resource) else {
        return;
    };
    let path = || limit.at("maxLimitRequestRatio").path().key(resource);
    if ratio < Quantity::from_int(1) {
        errors.invalid(path(), text, format!("ratio {text} is less than 1"));
    }
    let bounds = (amount(limit, "min", resource), amount(limit, "max", resource));
    let (Some((_, min)), Some((_, max))) = bounds else {
        return;
    };
    let is_small = [&ratio, &min, &max].iter().all(|it| it.value() < i64::MAX / 1_000);
    // kube-apiserver divides floats, so a minimum of zero results in an infinite ratio.
    let as_float = |it: &Quantity| {
        if is_small {
            it.milli_value() as f64
        } else {
            it.value() as f64
        }
    };
    let asked = if is_small {
        as_float(&ratio) / 1_000.0
    } else {
        as_float(&ratio)
    };
    let most = as_float(&max) / as_float(&min);
    if asked > most {
        let shown = go_float(most);
        errors.invalid(path(), text, format!("ratio {text} is greater than max/min = {shown}"));
    }
}

/// Formats a number like Go's `%f`.
fn go_float(value: f64) -> String {
    match value {
        it if it == f64::NEG_INFINITY => "-Inf".to_owned(),
        it => format!("{it:.6}"),
    }
}

/// Copies entries of the map `source` to the map `target`, unless `target` already has the key.
fn fill(limit: &mut Map, target: &str, source: &str) {
    let Some(values) = limit.get(source).and_then(Value::as_object).cloned() else {
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
