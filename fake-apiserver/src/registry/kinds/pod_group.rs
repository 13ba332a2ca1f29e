//! The strategies of Workloads and PodGroups. Follows `Validate_Workload` and `Validate_PodGroup` of
//! `pkg/apis/scheduling/v1alpha2` and `ValidatePodGroupStatusUpdate` of `pkg/apis/scheduling/validation`. Fields of
//! disabled feature gates are dropped before validation.

use std::collections::BTreeSet;

use super::plain::restore_metadata;
use super::strategy::{Context, Strategy};
use crate::api::field::FieldErrors;
use crate::api::json::{Map, Value};
use crate::api::object::Object;
use crate::registry::types::check::IMMUTABLE;
use crate::registry::types::conditions::validate_conditions;
use crate::registry::types::cursor::Cursor;
use crate::registry::types::edit::{default_value, ensure_object, items_mut};
use crate::registry::types::names;

/// Maximum number of templates in a Workload.
const TEMPLATES_MAX: usize = 8;

/// The default disruption mode of a PodGroup.
const DISRUPTION: &str = "Pod";

/// The strategy of Workloads.
#[derive(Debug)]
pub(crate) struct Workload;

impl Strategy for Workload {
    fn prepare_for_create(&self, object: &mut Object, _context: &Context<'_>) {
        items_mut(object, "spec.podGroupTemplates").for_each(drop_disabled);
    }

    fn prepare_for_update(&self, object: &mut Object, _old: &Object, _context: &Context<'_>) {
        items_mut(object, "spec.podGroupTemplates").for_each(drop_disabled);
    }

    fn validate(&self, object: &Object, errors: &mut FieldErrors) {
        let object = Cursor::root(object);
        if let Some(controller) = object.present("spec.controllerRef") {
            let group = controller.at("apiGroup");
            if !group.as_text().is_empty() {
                check_declared(&group, names::dns1123_subdomain, errors);
            }
            for field in ["kind", "name"] {
                let value = controller.at(field);
                if value.check_required(errors) {
                    value.check_name(|it| names::path_segment(it, false), errors);
                }
            }
        }
        let templates = object.at("spec.podGroupTemplates");
        if !check_count(&templates, errors) {
            return;
        }
        let mut seen = BTreeSet::new();
        for template in templates.items("") {
            if !seen.insert(template.text("name")) {
                errors.duplicate(template, template.to_value());
            }
        }
        for template in templates.items("") {
            check_required_name(&template.at("name"), names::dns1123_label, errors);
            validate_policy(&template.at("schedulingPolicy"), errors);
        }
    }

    fn validate_update(&self, object: &Object, old: &Object, errors: &mut FieldErrors, _context: &Context<'_>) {
        let (new, old) = (Cursor::root(object), Cursor::root(old));
        check_kept(&new.at("spec.controllerRef"), &old, errors);
        let templates = new.at("spec.podGroupTemplates");
        if !check_kept(&templates, &old, errors) {
            check_count(&templates, errors);
        }
    }
}

/// The strategy of PodGroups.
#[derive(Debug)]
pub(crate) struct PodGroup;

impl Strategy for PodGroup {
    fn default(&self, object: &mut Object) {
        default_value(ensure_object(object, "spec"), "disruptionMode", DISRUPTION);
    }

    fn prepare_for_create(&self, object: &mut Object, _context: &Context<'_>) {
        let spec = ensure_object(object, "spec");
        drop_disabled(spec);
        // The gate is disabled, so a set value is replaced by the default.
        spec.insert("disruptionMode".into(), DISRUPTION.into());
    }

    fn validate(&self, object: &Object, errors: &mut FieldErrors) {
        let object = Cursor::root(object);
        if let Some(reference) = object.present("spec.podGroupTemplateRef")
            && check_union(&reference, &["workload"], errors)
        {
            let workload = reference.at("workload");
            check_required_name(&workload.at("workloadName"), names::dns1123_subdomain, errors);
            check_required_name(&workload.at("podGroupTemplateName"), names::dns1123_label, errors);
        }
        validate_policy(&object.at("spec.schedulingPolicy"), errors);
    }

    fn prepare_for_update(&self, object: &mut Object, old: &Object, context: &Context<'_>) {
        if context.subresource == "status" {
            restore_metadata(object, old);
        }
    }

    fn validate_update(&self, object: &Object, old: &Object, errors: &mut FieldErrors, context: &Context<'_>) {
        let (new, old) = (Cursor::root(object), Cursor::root(old));
        if context.subresource == "status" {
            return validate_conditions(&new.at("status.conditions"), errors);
        }
        check_kept(&new.at("spec.podGroupTemplateRef"), &old, errors);
        check_kept(&new.at("spec.schedulingPolicy"), &old, errors);
        if new.text("spec.disruptionMode") != old.text("spec.disruptionMode") {
            errors.forbidden(new.at("spec.disruptionMode"), "");
        }
    }
}

/// Drops the fields of the feature gate `WorkloadAwarePreemption`, which is disabled.
fn drop_disabled(spec: &mut Map) {
    for field in ["disruptionMode", "priorityClassName", "priority"] {
        spec.remove(field);
    }
}

/// Checks a name with a rule of declarative validation.
pub(super) fn check_declared(name: &Cursor<'_>, rule: fn(&str, bool) -> Vec<String>, errors: &mut FieldErrors) {
    name.check_texts(declared(rule(name.as_text(), false)), errors);
}

/// Converts the error messages of a name rule to those of declarative validation, in which limits are in bytes.
pub(super) fn declared(texts: Vec<String>) -> Vec<String> {
    let in_bytes = |text: String| match text.strip_suffix(" characters") {
        Some(start) => format!("{start} bytes"),
        None => text,
    };
    texts.into_iter().map(in_bytes).collect()
}

fn check_required_name(name: &Cursor<'_>, rule: fn(&str, bool) -> Vec<String>, errors: &mut FieldErrors) {
    if name.check_required(errors) {
        check_declared(name, rule, errors);
    }
}

/// Checks the number of templates; returns `true` if it is valid.
fn check_count(templates: &Cursor<'_>, errors: &mut FieldErrors) -> bool {
    let count = templates.list("").len();
    if count > TEMPLATES_MAX {
        errors.too_many(templates, count, TEMPLATES_MAX);
    } else if count == 0 {
        errors.required(templates, "");
    }
    (1..=TEMPLATES_MAX).contains(&count)
}

/// Checks that a field is unchanged, and returns `true` if so (`validate.Immutable`). The error does not show the
/// value.
pub(super) fn check_kept(field: &Cursor<'_>, old: &Cursor<'_>, errors: &mut FieldErrors) -> bool {
    let path = field.path().to_string();
    let is_kept = field.same(&old.at(&path), "");
    if !is_kept {
        errors.invalid(field, Value::Null, IMMUTABLE);
    }
    is_kept
}

/// Checks that exactly one of these fields is set (`validate.Union`). Returns `true` if at least one is set.
fn check_union(union: &Cursor<'_>, members: &[&str], errors: &mut FieldErrors) -> bool {
    let set: Vec<&str> = members.iter().copied().filter(|it| union.is_set(it)).collect();
    let all = members
        .iter()
        .map(|it| format!("`{it}`"))
        .collect::<Vec<_>>()
        .join(", ");
    match set.len() {
        0 => errors.invalid(union, "", format!("must specify one of: {all}")),
        1 => {}
        _ => {
            let text = format!("must specify exactly one of: {all}");
            errors.invalid(union, format!("{{{}}}", set.join(", ")), text);
        }
    }
    !set.is_empty()
}

/// Checks a scheduling policy (`Validate_PodGroupSchedulingPolicy`).
fn validate_policy(policy: &Cursor<'_>, errors: &mut FieldErrors) {
    check_union(policy, &["basic", "gang"], errors);
    if let Some(gang) = policy.present("gang") {
        check_minimum(&gang.at("minCount"), 1, true, errors);
    }
}

/// Checks that a number is at least `min` (`validate.Minimum`). If the number is required, 0 is treated as absent.
pub(super) fn check_minimum(number: &Cursor<'_>, min: i64, is_required: bool, errors: &mut FieldErrors) {
    let value = number.integer("");
    if is_required && value.unwrap_or(0) == 0 {
        errors.required(number, "");
    } else if let Some(value) = value.filter(|it| *it < min) {
        errors.invalid(number, value, format!("must be greater than or equal to {min}"));
    }
}
