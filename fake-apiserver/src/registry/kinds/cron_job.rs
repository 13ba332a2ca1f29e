//! The strategy of CronJobs.

use super::cron::{is_time_zone, parse_schedule};
use super::facts::{Facts, Generation};
use super::job::{default_policies, validate_job_spec, warn_of_indexes};
use super::pod::defaults::default_template;
use super::pod::warnings;
use super::strategy::{Context, Strategy};
use super::workload_rules::wrong_selector;
use crate::api::field::{FieldErrors, FieldPath};
use crate::api::json::json;
use crate::api::object::Object;
use crate::registry::types::cursor::Cursor;
use crate::registry::types::edit::{default_object, default_text, default_value, ensure_object};

/// Maximum length of a name. The names of the Jobs are eleven characters longer, and must be valid labels.
const NAME_MAX: usize = 52;

/// Warning for updates of a CronJob with a time zone in its schedule. Such CronJobs can no longer be created.
const OLD_ZONE: &str = "cannot use TZ or CRON_TZ in spec.spec.schedule, use timeZone instead, see \
    https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/ for more details";

/// The strategy of CronJobs.
#[derive(Debug)]
pub(crate) struct CronJobStrategy;

impl Strategy for CronJobStrategy {
    fn facts(&self) -> &Facts {
        &Facts {
            generation: Generation::FromCreate,
            ..Facts::DEFAULT
        }
    }

    fn default(&self, object: &mut Object) {
        let spec = ensure_object(object, "spec");
        default_value(spec, "schedule", "");
        default_text(spec, "concurrencyPolicy", "Allow");
        default_value(spec, "suspend", false);
        default_value(spec, "successfulJobsHistoryLimit", 3);
        default_value(spec, "failedJobsHistoryLimit", 1);
        let job = ensure_object(spec, "jobTemplate");
        default_object(job, "metadata");
        let job_spec = ensure_object(job, "spec");
        default_template(job_spec);
        default_policies(job_spec);
        default_object(object, "status");
    }

    fn prepare_for_create(&self, object: &mut Object, _context: &Context<'_>) {
        object.insert("status".into(), json!({}));
    }

    fn validate(&self, object: &Object, errors: &mut FieldErrors) {
        validate_spec(&Cursor::root(object).at("spec"), None, errors);
        if object.name().len() > NAME_MAX {
            let detail = format!("must be no more than {NAME_MAX} characters");
            errors.invalid(FieldPath::new("metadata.name"), object.name(), detail);
        }
    }

    fn validate_update(&self, object: &Object, old: &Object, errors: &mut FieldErrors, context: &Context<'_>) {
        if context.subresource != "status" {
            let (new, was) = (Cursor::root(object), Cursor::root(old));
            validate_spec(&new.at("spec"), Some(&was.at("spec")), errors);
        }
    }

    fn warnings(&self, object: &Object, old: Option<&Object>) -> Vec<String> {
        let changed = |old: &Object| self.raises_generation(object, old);
        let path = "spec.jobTemplate.spec.template";
        let mut warnings = warnings::of_workload(object, old, path, warnings::NAMES_PODS, changed);
        let root = Cursor::root(object);
        if old.is_none_or(changed) {
            warn_of_indexes(&root.at("spec.jobTemplate.spec"), &mut warnings);
        }
        if old.is_some() && root.text("spec.schedule").contains("TZ") {
            warnings.push(OLD_ZONE.to_owned());
        }
        warnings
    }

    fn raises_generation(&self, object: &Object, old: &Object) -> bool {
        !Cursor::root(object).same(&Cursor::root(old), "spec")
    }
}

fn validate_spec(spec: &Cursor<'_>, old: Option<&Cursor<'_>>, errors: &mut FieldErrors) {
    let (schedule, zone) = (spec.at("schedule"), spec.at("timeZone"));
    if schedule.check_required(errors) {
        let had_zone = old.is_some_and(|old| old.text("schedule").contains("TZ"));
        validate_schedule(&schedule, had_zone, zone.is_set(""), errors);
    }
    spec.at("startingDeadlineSeconds").check_not_negative(errors);
    if zone.is_set("") && old.is_none_or(|old| !spec.same(old, "timeZone")) {
        validate_time_zone(&zone, errors);
    }
    let policies = ["Allow", "Forbid", "Replace"];
    spec.at("concurrencyPolicy").check_required_one_of(&policies, errors);
    let job = spec.at("jobTemplate.spec");
    validate_job_spec(&job, errors);
    if let Some(selector) = job.present("selector") {
        wrong_selector(&selector, "`selector` will be auto-generated", errors);
    }
    if job.flag("manualSelector") == Some(true) {
        errors.not_supported(job.at("manualSelector"), true, &["nil", "false"]);
    }
    spec.at("successfulJobsHistoryLimit").check_not_negative(errors);
    spec.at("failedJobsHistoryLimit").check_not_negative(errors);
}

fn validate_schedule(at: &Cursor<'_>, had_zone: bool, has_time_zone: bool, errors: &mut FieldErrors) {
    let schedule = at.as_text();
    if let Err(trouble) = parse_schedule(schedule) {
        errors.invalid(at, schedule, trouble);
    }
    if !schedule.contains("TZ") {
        return;
    }
    if !had_zone {
        let detail = "cannot use TZ or CRON_TZ in schedule, use timeZone field instead";
        errors.invalid(at, schedule, detail);
    } else if has_time_zone {
        let detail = "cannot use both timeZone field and TZ or CRON_TZ in schedule";
        errors.invalid(at, schedule, detail);
    }
}

fn validate_time_zone(at: &Cursor<'_>, errors: &mut FieldErrors) {
    let zone = at.as_text();
    if zone.is_empty() {
        errors.invalid(at, zone, "timeZone must be nil or non-empty string");
        return;
    }
    if zone.eq_ignore_ascii_case("local") {
        let detail = "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones";
        errors.invalid(at, zone, detail);
    }
    if zone != "Local" && !is_time_zone(zone) {
        errors.invalid(at, zone, format!("unknown time zone {zone}"));
    }
}
