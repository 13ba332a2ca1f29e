//! Validation of a Job's status.

use std::collections::BTreeSet;

use super::job_indexes::{common_index, count_indexes};
use super::job_policies::without_value;
use super::pod::go_names;
use crate::api::field::FieldErrors;
use crate::api::object::Object;
use crate::registry::types::check::IMMUTABLE;
use crate::registry::types::cursor::Cursor;

/// A Job's spec and status, before or after a write.
#[derive(Clone, Copy)]
struct Job<'a> {
    spec: Cursor<'a>,
    status: Cursor<'a>,
}

impl<'a> Job<'a> {
    fn of(object: &'a Cursor<'a>) -> Self {
        Self {
            spec: object.at("spec"),
            status: object.at("status"),
        }
    }

    fn has(&self, condition: &str, status: &str) -> bool {
        let mut conditions = self.status.items("conditions");
        conditions.any(|it| it.text("type") == condition && it.text("status") == status)
    }

    fn is(&self, condition: &str) -> bool {
        self.has(condition, "True")
    }

    fn is_finished(&self) -> bool {
        self.is("Complete") || self.is("Failed")
    }

    fn count(&self, field: &str) -> i64 {
        self.status.integer(field).unwrap_or(0)
    }

    fn is_indexed(&self) -> bool {
        self.spec.text("completionMode") == "Indexed"
    }
}

/// A write of a Job's status, and the errors found in it.
struct Check<'a> {
    job: Job<'a>,
    old: Job<'a>,
    errors: &'a mut FieldErrors,
}

/// Checks a write of `/status`. Most rules only apply to changed fields, so that a Job with an invalid stored status
/// can still be updated.
pub(super) fn validate_status(object: &Object, old: &Object, errors: &mut FieldErrors) {
    let (object, old) = (Cursor::root(object), Cursor::root(old));
    let (job, old) = (Job::of(&object), Job::of(&old));
    for count in ["active", "succeeded", "failed", "ready", "terminating"] {
        job.status.at(count).check_not_negative(errors);
    }
    validate_uncounted(&job.status.at("uncountedTerminatedPods"), errors);
    let mut check = Check { job, old, errors };
    check.validate_ends();
    check.validate_finished();
    check.validate_indexes();
    check.validate_rest();
    check.validate_success();
    check.validate_transitions();
}

fn validate_uncounted(uncounted: &Cursor<'_>, errors: &mut FieldErrors) {
    let mut seen: BTreeSet<&str> = BTreeSet::new();
    for uid in ["succeeded", "failed"].iter().flat_map(|field| uncounted.items(field)) {
        let text = uid.as_text();
        if text.is_empty() {
            errors.invalid(uid, text, "must not be empty");
        } else if seen.contains(&text) {
            errors.duplicate(uid, text);
        } else {
            seen.insert(text);
        }
    }
}

impl Check<'_> {
    /// Returns `true` if a field of the status has changed.
    fn changed(&self, field: &str) -> bool {
        !self.job.status.same(&self.old.status, field)
    }

    /// Returns `true` if the condition is `True` either before or after the write, but not both.
    fn turned(&self, condition: &str) -> bool {
        self.job.is(condition) != self.old.is(condition)
    }

    fn refuse_conditions(&mut self, detail: &str) {
        without_value(&self.job.status.at("conditions"), detail, self.errors);
    }

    /// Checks that the conditions for completion and failure are consistent with each other and with the times.
    fn validate_ends(&mut self) {
        let job = self.job;
        let (complete, failed) = (job.is("Complete"), job.is("Failed"));
        if (self.turned("Complete") || self.turned("Failed")) && complete && failed {
            self.refuse_conditions("cannot set Complete=True and Failed=true conditions");
        }
        if (self.turned("Complete") || self.turned("FailureTarget")) && complete && job.is("FailureTarget") {
            self.refuse_conditions("cannot set Complete=True and FailureTarget=true conditions");
        }
        let (start, end) = (job.status.at("startTime"), job.status.at("completionTime"));
        if self.turned("Complete") || self.changed("completionTime") {
            if end.is_set("") && !complete {
                let detail = "cannot set completionTime when there is no Complete=True condition";
                self.errors.invalid(end, end.to_value(), detail);
            }
            if !end.is_set("") && complete {
                self.errors
                    .required(end, "completionTime is required for Complete jobs");
            }
        }
        // Times in the same format can be compared as strings.
        let is_reversed = !start.is_empty("") && !end.is_empty("") && end.as_text() < start.as_text();
        if (self.changed("startTime") || self.changed("completionTime")) && is_reversed {
            self.errors
                .invalid(end, end.as_text(), "must be equal to or after `startTime`");
        }
        if (self.turned("Failed") || self.changed("failedIndexes")) && failed && !job.is("FailureTarget") {
            self.refuse_conditions("cannot set Failed=True condition without the FailureTarget=true condition");
        }
        if (self.turned("Complete") || self.turned("SuccessCriteriaMet")) && complete && !job.is("SuccessCriteriaMet") {
            self.refuse_conditions("cannot set Complete=True condition without the SuccessCriteriaMet=true condition");
        }
    }

    /// Checks the fields that a finished Job must or must not have.
    fn validate_finished(&mut self) {
        let job = self.job;
        if !job.is_finished() {
            return;
        }
        let ended = !self.old.is_finished();
        if (ended || self.changed("active")) && job.count("active") > 0 {
            let detail = "active>0 is invalid for finished job";
            self.errors
                .invalid(job.status.at("active"), job.count("active"), detail);
        }
        let never_runs = job.spec.flag("suspend") == Some(true) && job.spec.integer("completions") == Some(0);
        if (ended || self.changed("startTime")) && !never_runs && !job.status.is_set("startTime") {
            let detail = "startTime is required for finished job";
            self.errors.required(job.status.at("startTime"), detail);
        }
        let uncounted = job.status.at("uncountedTerminatedPods");
        let is_left = !uncounted.is_empty("failed") || !uncounted.is_empty("succeeded");
        if (ended || self.changed("uncountedTerminatedPods")) && is_left {
            let shown = go_names(&uncounted.to_value());
            self.errors.invalid(uncounted, shown, "must be empty for finished job");
        }
    }

    fn validate_indexes(&mut self) {
        let (job, completions) = (self.job, self.job.spec.integer("completions"));
        let (completed_at, failed_at) = (job.status.at("completedIndexes"), job.status.at("failedIndexes"));
        let (completed, failed) = (completed_at.as_text(), failed_at.as_text());
        let per_index = job.spec.is_set("backoffLimitPerIndex");
        if let Some(completions) = completions {
            if self.changed("completedIndexes")
                && let Err(trouble) = count_indexes(completed, completions)
            {
                let detail = format!("error parsing completedIndexes: {trouble}");
                self.errors.invalid(completed_at, completed, detail);
            }
            if self.changed("failedIndexes")
                && per_index
                && failed_at.is_set("")
                && let Err(trouble) = count_indexes(failed, completions)
            {
                let detail = format!("error parsing failedIndexes: {trouble}");
                self.errors.invalid(failed_at, failed, detail);
            }
        }
        if self.changed("completedIndexes") && !completed.is_empty() && !job.is_indexed() {
            let detail = "cannot set non-empty completedIndexes when non-indexed completion mode";
            self.errors.invalid(completed_at, completed, detail);
        }
        if self.changed("failedIndexes") && !per_index && failed_at.is_set("") {
            let detail = "cannot set non-null failedIndexes when backoffLimitPerIndex is null";
            self.errors.invalid(failed_at, failed, detail);
        }
        if (self.changed("failedIndexes") || self.changed("completedIndexes"))
            && let Some(completions) = completions
            && let Some(index) = common_index(completed, failed, completions)
        {
            let detail = format!("failedIndexes and completedIndexes overlap at index: {index}");
            self.errors.invalid(failed_at, failed, detail);
        }
    }

    fn validate_rest(&mut self) {
        let job = self.job;
        let (terminating, ready) = (job.status.at("terminating"), job.status.at("ready"));
        let ended = job.is_finished() != self.old.is_finished();
        if (ended || self.changed("terminating")) && job.count("terminating") > 0 && job.is_finished() {
            let detail = "terminating>0 is invalid for finished job";
            self.errors.invalid(terminating, job.count("terminating"), detail);
        }
        let is_more = ready.is_set("") && job.count("ready") > job.count("active");
        if (self.changed("ready") || self.changed("active")) && is_more {
            let detail = "cannot set more ready pods than active";
            self.errors.invalid(ready, job.count("ready"), detail);
        }
    }

    fn validate_success(&mut self) {
        let job = self.job;
        let met = job.is("SuccessCriteriaMet");
        if met && job.is("Failed") {
            self.refuse_conditions("cannot set SuccessCriteriaMet=True and Failed=true conditions");
        }
        if met && job.is("FailureTarget") {
            self.refuse_conditions("cannot set SuccessCriteriaMet=True and FailureTarget=true conditions");
        }
        if job.spec.is_set("successPolicy") && !met && job.is("Complete") {
            let detail = "cannot set Complete=True for Job with SuccessPolicy unless SuccessCriteriaMet=True";
            self.refuse_conditions(detail);
        }
    }

    fn validate_transitions(&mut self) {
        let (job, old) = (self.job, self.old);
        for condition in ["Failed", "Complete", "FailureTarget"] {
            if old.is(condition) && !job.is(condition) {
                self.refuse_conditions(&format!("cannot disable the terminal {condition}=True condition"));
            }
        }
        if job.count("failed") < old.count("failed") {
            let detail = "cannot decrease the failed counter";
            self.errors
                .invalid(job.status.at("failed"), job.count("failed"), detail);
        }
        let scalable = job.is_indexed() && job.spec.integer("completions") == job.spec.integer("parallelism");
        if !scalable && job.count("succeeded") < old.count("succeeded") {
            let detail = "cannot decrease the succeeded counter";
            self.errors
                .invalid(job.status.at("succeeded"), job.count("succeeded"), detail);
        }
        let end = job.status.at("completionTime");
        if end.is_set("") && old.status.is_set("completionTime") && self.changed("completionTime") {
            self.errors.invalid(end, end.to_value(), IMMUTABLE);
        }
        let resuming = old.is("Suspended") && job.has("Suspended", "False");
        let suspended = job.spec.flag("suspend") == Some(true);
        if self.changed("startTime") && !resuming && old.status.is_set("startTime") && !suspended {
            let start = job.status.at("startTime");
            let detail = "field is immutable for unsuspended job once set";
            self.errors.invalid(start, start.to_value(), detail);
        }
        let [was_met, met] = [old, job].map(|job| job.is("SuccessCriteriaMet"));
        if was_met && !met {
            self.refuse_conditions("cannot disable the SuccessCriteriaMet=True condition");
        }
        if old.is("Complete") && !was_met && met {
            let detail = "cannot set SuccessCriteriaMet=True for Job already has Complete=true conditions";
            self.refuse_conditions(detail);
        }
    }
}
