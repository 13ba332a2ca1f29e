//! The check of a Job's status, which any controller may write: a Job that has ended stays so.

use serde_json::Value;

use super::job_policies::without_value;
use crate::api::field::{FieldErrors, FieldPath};
use crate::api::object::Object;
use crate::registry::types::check::not_negative;
use crate::registry::types::view::{
    JsonMap, flag, integer, is_set, items, object, object_or_empty, same, text, texts, value_of,
};

/// A Job's spec and status, before or after a write.
#[derive(Clone, Copy)]
struct Job<'a> {
    spec: &'a JsonMap,
    status: &'a JsonMap,
}

impl<'a> Job<'a> {
    fn of(object: &'a Object) -> Self {
        Self {
            spec: object_or_empty(object, "spec"),
            status: object_or_empty(object, "status"),
        }
    }

    fn has(self, condition: &str, status: &str) -> bool {
        items(self.status, "conditions").any(|(_, it)| text(it, "type") == condition && text(it, "status") == status)
    }

    fn is(self, condition: &str) -> bool {
        self.has(condition, "True")
    }

    fn is_finished(self) -> bool {
        self.is("Complete") || self.is("Failed")
    }

    fn count(self, field: &str) -> i64 {
        integer(self.status, field).unwrap_or(0)
    }

    fn is_indexed(self) -> bool {
        text(self.spec, "completionMode") == "Indexed"
    }
}

/// Checks a write of `/status`. Most rules hold only for what the write changed, so that a status that breaks one
/// can still be written.
pub(super) fn validate_status(object: &Object, old: &Object, errors: &mut FieldErrors) {
    let (job, old) = (Job::of(object), Job::of(old));
    let path = FieldPath::new("status");
    for count in ["active", "succeeded", "failed", "ready", "terminating"] {
        not_negative(job.status, count, &path, errors);
    }
    validate_uncounted(job.status, &path.child("uncountedTerminatedPods"), errors);
    validate_ends(job, old, &path, errors);
    validate_finished(job, old, &path, errors);
    validate_indexes(job, old, &path, errors);
    validate_rest(job, old, &path, errors);
    validate_success(job, &path, errors);
    validate_transitions(job, old, &path, errors);
}

fn validate_uncounted(status: &JsonMap, path: &FieldPath, errors: &mut FieldErrors) {
    let uncounted = object_or_empty(status, "uncountedTerminatedPods");
    let mut seen: Vec<&str> = Vec::new();
    for field in ["succeeded", "failed"] {
        for (index, uid) in texts(uncounted, field) {
            let at = || path.child(field).index(index);
            if uid.is_empty() {
                errors.invalid(at(), uid, "must not be empty");
            } else if seen.contains(&uid) {
                errors.duplicate(at(), uid);
            } else {
                seen.push(uid);
            }
        }
    }
}

/// Validates completion and failure against their times.
fn validate_ends(job: Job<'_>, old: Job<'_>, path: &FieldPath, errors: &mut FieldErrors) {
    let changed = |condition| job.is(condition) != old.is(condition);
    let conditions = || path.child("conditions");
    let (complete, failed) = (job.is("Complete"), job.is("Failed"));
    if (changed("Complete") || changed("Failed")) && complete && failed {
        without_value(
            conditions(),
            "cannot set Complete=True and Failed=true conditions",
            errors,
        );
    }
    if (changed("Complete") || changed("FailureTarget")) && complete && job.is("FailureTarget") {
        without_value(
            conditions(),
            "cannot set Complete=True and FailureTarget=true conditions",
            errors,
        );
    }
    let time_changed = !same(job.status, old.status, "completionTime");
    let timed = is_set(job.status, "completionTime");
    let at = || path.child("completionTime");
    if changed("Complete") || time_changed {
        if timed && !complete {
            let detail = "cannot set completionTime when there is no Complete=True condition";
            errors.invalid(at(), value_of(job.status, "completionTime"), detail);
        }
        if !timed && complete {
            errors.required(at(), "completionTime is required for Complete jobs");
        }
    }
    let start_changed = !same(job.status, old.status, "startTime");
    let (start, end) = (text(job.status, "startTime"), text(job.status, "completionTime"));
    // times of one form compare as text
    if (start_changed || time_changed) && !start.is_empty() && !end.is_empty() && end < start {
        errors.invalid(at(), end, "must be equal to or after `startTime`");
    }
    let failed_indexes_changed = !same(job.status, old.status, "failedIndexes");
    if (changed("Failed") || failed_indexes_changed) && failed && !job.is("FailureTarget") {
        let detail = "cannot set Failed=True condition without the FailureTarget=true condition";
        without_value(conditions(), detail, errors);
    }
    if (changed("Complete") || changed("SuccessCriteriaMet")) && complete && !job.is("SuccessCriteriaMet") {
        let detail = "cannot set Complete=True condition without the SuccessCriteriaMet=true condition";
        without_value(conditions(), detail, errors);
    }
}

/// Validates the fields that a finished Job no longer has.
fn validate_finished(job: Job<'_>, old: Job<'_>, path: &FieldPath, errors: &mut FieldErrors) {
    if !job.is_finished() {
        return;
    }
    let ended = !old.is_finished();
    let changed = |field: &str| !same(job.status, old.status, field);
    if (ended || changed("active")) && job.count("active") > 0 {
        errors.invalid(
            path.child("active"),
            job.count("active"),
            "active>0 is invalid for finished job",
        );
    }
    let never_runs = flag(job.spec, "suspend") == Some(true) && integer(job.spec, "completions") == Some(0);
    if (ended || changed("startTime")) && !never_runs && !is_set(job.status, "startTime") {
        errors.required(path.child("startTime"), "startTime is required for finished job");
    }
    if ended || changed("uncountedTerminatedPods") {
        let uncounted = object(job.status, "uncountedTerminatedPods");
        let left = |uncounted: &&JsonMap| {
            ["failed", "succeeded"]
                .iter()
                .any(|it| texts(uncounted, it).count() > 0)
        };
        if let Some(uncounted) = uncounted.filter(left) {
            let shown = super::pod::go_names(&Value::Object(uncounted.clone()));
            errors.invalid(
                path.child("uncountedTerminatedPods"),
                shown,
                "must be empty for finished job",
            );
        }
    }
}

fn validate_indexes(job: Job<'_>, old: Job<'_>, path: &FieldPath, errors: &mut FieldErrors) {
    let changed = |field: &str| !same(job.status, old.status, field);
    let (completed, failed) = (text(job.status, "completedIndexes"), text(job.status, "failedIndexes"));
    let completions = integer(job.spec, "completions");
    let per_index = is_set(job.spec, "backoffLimitPerIndex");
    let failed_set = is_set(job.status, "failedIndexes");
    let completed_at = || path.child("completedIndexes");
    let failed_at = || path.child("failedIndexes");
    if let Some(completions) = completions {
        if changed("completedIndexes")
            && let Err(trouble) = count_indexes(completed, completions)
        {
            errors.invalid(
                completed_at(),
                completed,
                format!("error parsing completedIndexes: {trouble}"),
            );
        }
        if changed("failedIndexes")
            && per_index
            && failed_set
            && let Err(trouble) = count_indexes(failed, completions)
        {
            errors.invalid(failed_at(), failed, format!("error parsing failedIndexes: {trouble}"));
        }
    }
    if changed("completedIndexes") && !completed.is_empty() && !job.is_indexed() {
        let detail = "cannot set non-empty completedIndexes when non-indexed completion mode";
        errors.invalid(completed_at(), completed, detail);
    }
    if changed("failedIndexes") && !per_index && failed_set {
        let detail = "cannot set non-null failedIndexes when backoffLimitPerIndex is null";
        errors.invalid(failed_at(), failed, detail);
    }
    if (changed("failedIndexes") || changed("completedIndexes"))
        && let Some(completions) = completions
        && let Some(index) = common_index(completed, failed, completions)
    {
        let detail = format!("failedIndexes and completedIndexes overlap at index: {index}");
        errors.invalid(failed_at(), failed, detail);
    }
}

fn validate_rest(job: Job<'_>, old: Job<'_>, path: &FieldPath, errors: &mut FieldErrors) {
    let changed = |field: &str| !same(job.status, old.status, field);
    let (terminating, ready) = (job.count("terminating"), job.count("ready"));
    let ended = job.is_finished() != old.is_finished();
    if (ended || changed("terminating")) && terminating > 0 && job.is_finished() {
        errors.invalid(
            path.child("terminating"),
            terminating,
            "terminating>0 is invalid for finished job",
        );
    }
    if (changed("ready") || changed("active")) && is_set(job.status, "ready") && ready > job.count("active") {
        errors.invalid(path.child("ready"), ready, "cannot set more ready pods than active");
    }
}

fn validate_success(job: Job<'_>, path: &FieldPath, errors: &mut FieldErrors) {
    let conditions = || path.child("conditions");
    let met = job.is("SuccessCriteriaMet");
    if met && job.is("Failed") {
        without_value(
            conditions(),
            "cannot set SuccessCriteriaMet=True and Failed=true conditions",
            errors,
        );
    }
    if met && job.is("FailureTarget") {
        let detail = "cannot set SuccessCriteriaMet=True and FailureTarget=true conditions";
        without_value(conditions(), detail, errors);
    }
    if is_set(job.spec, "successPolicy") && !met && job.is("Complete") {
        let detail = "cannot set Complete=True for Job with SuccessPolicy unless SuccessCriteriaMet=True";
        without_value(conditions(), detail, errors);
    }
}

fn validate_transitions(job: Job<'_>, old: Job<'_>, path: &FieldPath, errors: &mut FieldErrors) {
    for condition in ["Failed", "Complete", "FailureTarget"] {
        if old.is(condition) && !job.is(condition) {
            let detail = format!("cannot disable the terminal {condition}=True condition");
            without_value(path.child("conditions"), &detail, errors);
        }
    }
    if job.count("failed") < old.count("failed") {
        errors.invalid(
            path.child("failed"),
            job.count("failed"),
            "cannot decrease the failed counter",
        );
    }
    let scalable = job.is_indexed() && same(job.spec, job.spec, "completions") && {
        integer(job.spec, "completions") == integer(job.spec, "parallelism")
    };
    if !scalable && job.count("succeeded") < old.count("succeeded") {
        let detail = "cannot decrease the succeeded counter";
        errors.invalid(path.child("succeeded"), job.count("succeeded"), detail);
    }
    let set = |job: Job<'_>, field: &str| is_set(job.status, field);
    let changed = |field: &str| !same(job.status, old.status, field);
    if set(job, "completionTime") && set(old, "completionTime") && changed("completionTime") {
        let shown = value_of(job.status, "completionTime");
        errors.invalid(
            path.child("completionTime"),
            shown,
            crate::registry::types::check::IMMUTABLE,
        );
    }
    let resuming = old.is("Suspended") && job.has("Suspended", "False");
    let suspended = flag(job.spec, "suspend") == Some(true);
    if changed("startTime") && !resuming && set(old, "startTime") && !suspended {
        let shown = value_of(job.status, "startTime");
        errors.invalid(
            path.child("startTime"),
            shown,
            "field is immutable for unsuspended job once set",
        );
    }
    let met = |job: Job<'_>| job.is("SuccessCriteriaMet");
    if met(old) && !met(job) {
        let detail = "cannot disable the SuccessCriteriaMet=True condition";
        without_value(path.child("conditions"), detail, errors);
    }
    if old.is("Complete") && !met(old) && met(job) {
        let detail = "cannot set SuccessCriteriaMet=True for Job already has Complete=true conditions";
        without_value(path.child("conditions"), detail, errors);
    }
}

/// Counts the indexes that a list such as `1,3-5` names, all below `completions` and rising.
pub(super) fn count_indexes(indexes: &str, completions: i64) -> Result<i64, String> {
    let mut total = 0;
    let mut last: Option<i64> = None;
    for interval in indexes.split(',').filter(|_| !indexes.is_empty()) {
        let (first, end) = parse_interval(interval, completions)?;
        if let Some(last) = last.filter(|last| *last >= first) {
            return Err(format!("non-increasing order, previous: {last}, current: {first}"));
        }
        total += end - first + 1;
        last = Some(end);
    }
    Ok(total)
}

fn parse_interval(interval: &str, completions: i64) -> Result<(i64, i64), String> {
    let ends: Vec<&str> = interval.split('-').collect();
    if ends.len() > 2 {
        return Err(format!(
            "the fragment {interval:?} violates the requirement that an index interval can have at most two parts \
             separated by '-'"
        ));
    }
    let index = |text: &str| match text.parse::<i64>() {
        Err(_) => Err(format!("cannot convert string to integer for index: {text:?}")),
        Ok(index) if index >= completions => Err(format!("too large index: {text:?}")),
        Ok(index) => Ok(index),
    };
    let first = index(ends[0])?;
    let end = match ends.get(1) {
        None => return Ok((first, first)),
        Some(end) => index(end)?,
    };
    if first >= end {
        return Err(format!("non-increasing order, previous: {first}, current: {end}"));
    }
    Ok((first, end))
}

/// The first index that both lists name; parts that are no intervals are passed over.
fn common_index(one: &str, other: &str, completions: i64) -> Option<i64> {
    let intervals = |list: &str| -> Vec<(i64, i64)> {
        let parsed = list.split(',').map(|it| parse_interval(it, completions));
        parsed.filter_map(Result::ok).collect()
    };
    let (one, other) = (intervals(one), intervals(other));
    let (mut left, mut right) = (one.iter().peekable(), other.iter().peekable());
    while let (Some(a), Some(b)) = (left.peek(), right.peek()) {
        if a.0 <= b.1 && b.0 <= a.1 {
            return Some(a.0.max(b.0));
        }
        if a.0 <= b.0 {
            left.next();
        } else {
            right.next();
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::{common_index, count_indexes};
    use rstest::rstest;

    #[rstest]
    #[case("", Ok(0))]
    #[case("0,2-4", Ok(4))]
    #[case("3,1", Err("non-increasing order, previous: 3, current: 1"))]
    #[case("9", Err("too large index: \"9\""))]
    #[case("x", Err("cannot convert string to integer for index: \"x\""))]
    fn indexes(#[case] list: &str, #[case] expected: Result<i64, &str>) {
        assert_eq!(count_indexes(list, 5), expected.map_err(str::to_owned));
    }

    #[test]
    fn overlaps() {
        assert_eq!(common_index("0-2,4", "3,4", 5), Some(4));
        assert_eq!(common_index("0-2", "3-4", 5), None);
    }
}
