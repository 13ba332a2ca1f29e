//! The strategies of Workloads and PodGroups. Follows `Validate_Workload` and `Validate_PodGroup` of
//! `pkg/apis/scheduling/v1alpha2` and `ValidatePodGroupStatusUpdate` of `pkg/apis/scheduling/validation`. Fields of
//! disabled feature gates are dropped before validation.

use std::collections::BTreeSet;

use super::plain::restore_metadata;
use super::strategy::{Context, Strategy};
use crate::api::field::FieldErrors;
use crate::api::json::Map;
use crate::api::object::Object;
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
                group.check_declared_name(names::dns1123_subdomain, errors);
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
            template.at("name").check_required_name(names::dns1123_label, errors);
            validate_policy(&template.at("schedulingPolicy"), errors);
        }
    }

    fn validate_update(&self, object: &Object, old: &Object, errors: &mut FieldErrors, _context: &Context<'_>) {
        let (new, old) = (Cursor::root(object), Cursor::root(old));
        new.at("spec.controllerRef").check_immutable(&old, errors);
        let templates = new.at("spec.podGroupTemplates");
        if !templates.check_immutable(&old, errors) {
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
            && reference.check_union(&["workload"], errors)
        {
            let workload = reference.at("workload");
            workload
                .at("workloadName")
                .check_required_name(names::dns1123_subdomain, errors);
            workload
                .at("podGroupTemplateName")
                .check_required_name(names::dns1123_label, errors);
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
        new.at("spec.podGroupTemplateRef").check_immutable(&old, errors);
        new.at("spec.schedulingPolicy").check_immutable(&old, errors);
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

/// Checks a scheduling policy (`Validate_PodGroupSchedulingPolicy`).
fn validate_policy(policy: &Cursor<'_>, errors: &mut FieldErrors) {
    policy.check_union(&["basic", "gang"], errors);
    if let Some(gang) = policy.present("gang") {
        gang.at("minCount").check_minimum(1, true, errors);
    }
}
