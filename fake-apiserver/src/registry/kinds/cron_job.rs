//! The strategy of CronJobs.

use serde_json::{Value, json};

use super::cron::{is_time_zone, parse_schedule};
use super::job::{default_policies, validate_job_spec};
use super::metadata::invalid_printed;
use super::pod::defaults::default_template;
use super::pod::warnings;
use super::strategy::{Context, Strategy};
use super::workload_rules::print_selector;
use crate::api::field::{FieldErrors, FieldPath};
use crate::api::object::Object;
use crate::registry::types::check::{not_negative, required_one_of};
use crate::registry::types::view::{
    JsonMap, default_number, default_object, default_text, default_value, flag, is_set, object, object_made,
    object_or_empty, same, text,
};

/// The longest name, so that those of its Jobs, eleven characters longer, are labels.
const NAME_MAX: usize = 52;

/// Warning for a schedule with a time zone of its own, as old ones have it.
const OLD_ZONE: &str = "cannot use TZ or CRON_TZ in spec.spec.schedule, use timeZone instead, see \
    https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/ for more details";

/// CronJobs.
#[derive(Debug)]
pub(crate) struct CronJobStrategy;

impl Strategy for CronJobStrategy {
    fn default(&self, object: &mut Object) {
        if let Some(spec) = object_made(object, "spec") {
            if !is_set(spec, "schedule") {
                default_text(spec, "schedule", "");
            }
            default_text(spec, "concurrencyPolicy", "Allow");
            default_value(spec, "suspend", || Value::Bool(false));
            default_number(spec, "successfulJobsHistoryLimit", 3);
            default_number(spec, "failedJobsHistoryLimit", 1);
            if let Some(job) = object_made(spec, "jobTemplate") {
                default_object(job, "metadata");
                if let Some(job_spec) = object_made(job, "spec") {
                    default_template(job_spec);
                    default_policies(job_spec);
                }
            }
        }
        default_object(object, "status");
    }

    fn prepare_for_create(&self, object: &mut Object, _context: &Context<'_>) {
        object.insert("status".to_owned(), json!({}));
    }

    fn validate(&self, object: &Object, errors: &mut FieldErrors) {
        validate_spec(object_or_empty(object, "spec"), None, &FieldPath::new("spec"), errors);
        if object.name().len() > NAME_MAX {
            let detail = format!("must be no more than {NAME_MAX} characters");
            errors.invalid(FieldPath::new("metadata.name"), object.name(), detail);
        }
    }

    fn validate_update(&self, object: &Object, old: &Object, errors: &mut FieldErrors, context: &Context<'_>) {
        if context.subresource != "status" {
            let old_spec = object_or_empty(old, "spec");
            validate_spec(
                object_or_empty(object, "spec"),
                Some(old_spec),
                &FieldPath::new("spec"),
                errors,
            );
        }
    }

    fn warnings(&self, object: &Object, old: Option<&Object>) -> Vec<String> {
        let changed = |old: &Object| self.raises_generation(object, old);
        let path = "spec.jobTemplate.spec.template";
        let mut warnings = warnings::of_workload(object, old, path, warnings::NAMES_PODS, changed);
        if old.is_some() && text(object_or_empty(object, "spec"), "schedule").contains("TZ") {
            warnings.push(OLD_ZONE.to_owned());
        }
        warnings
    }

    fn has_generation(&self) -> bool {
        true
    }

    fn raises_generation(&self, object: &Object, old: &Object) -> bool {
        !same(object, old, "spec")
    }
}

fn validate_spec(spec: &JsonMap, old: Option<&JsonMap>, path: &FieldPath, errors: &mut FieldErrors) {
    let schedule = text(spec, "schedule");
    if schedule.is_empty() {
        errors.required(path.child("schedule"), "");
    } else {
        validate_schedule(spec, old, &path.child("schedule"), errors);
    }
    not_negative(spec, "startingDeadlineSeconds", path, errors);
    if old.is_none_or(|old| !same(spec, old, "timeZone")) {
        validate_time_zone(spec, &path.child("timeZone"), errors);
    }
    required_one_of(spec, "concurrencyPolicy", &["Allow", "Forbid", "Replace"], path, errors);
    let job = object_or_empty(object_or_empty(spec, "jobTemplate"), "spec");
    let job_path = path.child("jobTemplate.spec");
    validate_job_spec(job, &job_path, errors);
    if is_set(job, "selector") {
        let printed = print_selector(object(job, "selector"));
        invalid_printed(
            job_path.child("selector"),
            &printed,
            "`selector` will be auto-generated",
            errors,
        );
    }
    if flag(job, "manualSelector") == Some(true) {
        errors.not_supported(job_path.child("manualSelector"), true, &["nil", "false"]);
    }
    not_negative(spec, "successfulJobsHistoryLimit", path, errors);
    not_negative(spec, "failedJobsHistoryLimit", path, errors);
}

fn validate_schedule(spec: &JsonMap, old: Option<&JsonMap>, path: &FieldPath, errors: &mut FieldErrors) {
    let schedule = text(spec, "schedule");
    if let Err(trouble) = parse_schedule(schedule) {
        errors.invalid(path.clone(), schedule, trouble);
    }
    if !schedule.contains("TZ") {
        return;
    }
    let had_zone = old.is_some_and(|old| text(old, "schedule").contains("TZ"));
    if !had_zone {
        let detail = "cannot use TZ or CRON_TZ in schedule, use timeZone field instead";
        errors.invalid(path.clone(), schedule, detail);
    } else if is_set(spec, "timeZone") {
        let detail = "cannot use both timeZone field and TZ or CRON_TZ in schedule";
        errors.invalid(path.clone(), schedule, detail);
    }
}

fn validate_time_zone(spec: &JsonMap, path: &FieldPath, errors: &mut FieldErrors) {
    if !is_set(spec, "timeZone") {
        return;
    }
    let zone = text(spec, "timeZone");
    if zone.is_empty() {
        errors.invalid(path.clone(), zone, "timeZone must be nil or non-empty string");
        return;
    }
    if zone.eq_ignore_ascii_case("local") {
        let detail = "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones";
        errors.invalid(path.clone(), zone, detail);
    }
    if zone != "Local" && !is_time_zone(zone) {
        errors.invalid(path.clone(), zone, format!("unknown time zone {zone}"));
    }
}
