//! CronJobs: creates a Job at each scheduled time.

use std::sync::Arc;

use jiff::Timestamp;
use jiff::tz::TimeZone;

use super::controller::WorkloadController;
use super::plan::{Plan, Regarding, Told, Write, controller_reference};
use super::pods::{annotation, created, plus, spec, status, time};
use super::resource::{Resource, Target};
use super::schedule::Schedule;
use super::sees::{Sees, find_condition};
use crate::api::json::{Map, Value, json};
use crate::api::object::Object;
use crate::api::options::PropagationPolicy;
use crate::entropy;
use crate::registry::types::cursor::Cursor;
use crate::workers::WorkerRow;

const COMPONENT: &str = "cronjob-controller";
pub(crate) const ROW: WorkerRow = WorkerRow::workloads(
    "cronjob",
    &[WorkloadController {
        owns: true,
        ..WorkloadController::new(Resource::CronJob, COMPONENT, sync)
    }],
);

const SCHEDULED: &str = "batch.kubernetes.io/cronjob-scheduled-timestamp";

/// Number of missed start times above which the CronJob gets an Event about possible clock skew.
const MISSED_MOST: usize = 100;

/// Plans the work for a CronJob.
pub(crate) fn sync(cron: &Object, sees: &Sees<'_>) -> Plan {
    let mut plan = Plan::default();
    let jobs: Vec<&Arc<Object>> = sees.cluster.owned_by(Resource::Job, cron.uid()).collect();
    let mut next = status(cron).clone();
    note_finished(cron, &jobs, &mut next, &mut plan);
    let unfinished = jobs.iter().copied().filter(|it| outcome(it).is_none());
    let (mut active, unexpected): (Vec<_>, Vec<_>) = unfinished.partition(|it| is_own(cron, it));
    for job in unexpected {
        let message = format!("Saw a job that the controller did not create or forgot: {}", job.name());
        plan.warn((Resource::CronJob, cron), COMPONENT, "UnexpectedJob", message);
    }
    active.sort_by_key(|it| (created(it), it.name().to_owned()));
    note_missing(cron, &jobs, sees, &mut plan);
    put_active(&active, &mut next);
    if !cron.is_terminating() {
        clean_up(cron, &jobs, &mut plan);
        if Cursor::root(cron).flag("spec.suspend") != Some(true) {
            schedule(cron, &active, &mut next, sees, &mut plan);
        }
    }
    plan.status(Resource::CronJob, cron, next);
    plan
}

/// Returns `Complete` or `Failed`, if the Job has ended.
fn outcome(job: &Object) -> Option<&'static str> {
    ["Complete", "Failed"]
        .into_iter()
        .find(|kind| find_condition(status(job), kind).is_some_and(|it| Cursor::root(it).text("status") == "True"))
}

/// Returns `true` if a Job is known as active, or if this controller created it.
fn is_own(cron: &Object, job: &Object) -> bool {
    let mut known = Cursor::root(cron).maps("status.active");
    known.any(|it| Cursor::root(it).text("uid") == job.uid()) || annotation(job, SCHEDULED).is_some()
}

/// Writes Events about active Jobs that no longer exist.
fn note_missing(cron: &Object, jobs: &[&Arc<Object>], sees: &Sees<'_>, plan: &mut Plan) {
    for known in Cursor::root(cron).maps("status.active").map(Cursor::root) {
        let name = known.text("name");
        let is_owned = jobs.iter().any(|it| it.uid() == known.text("uid"));
        if !is_owned && sees.cluster.find(Resource::Job, cron.namespace(), name).is_none() {
            let message = format!("Active job went missing: {name}");
            plan.note((Resource::CronJob, cron), COMPONENT, "MissingJob", message);
        }
    }
}

/// Writes Events about Jobs that ended since the last sync.
fn note_finished(cron: &Object, jobs: &[&Arc<Object>], next: &mut Map, plan: &mut Plan) {
    for job in jobs {
        let Some(outcome) = outcome(job) else { continue };
        let was_active = Cursor::root(cron)
            .maps("status.active")
            .any(|it| Cursor::root(it).text("uid") == job.uid());
        if was_active {
            let message = format!("Saw completed job: {}, condition: {outcome}", job.name());
            plan.note((Resource::CronJob, cron), COMPONENT, "SawCompletedJob", message);
        }
        let at = Cursor::root(job).text("status.completionTime");
        if outcome == "Complete" && at > Cursor::root(next).text("lastSuccessfulTime") {
            next.insert("lastSuccessfulTime".into(), at.into());
        }
    }
}

fn put_active(active: &[&Arc<Object>], next: &mut Map) {
    let reference = |job: &&Arc<Object>| {
        json!({
            "apiVersion": "batch/v1", "kind": "Job", "name": job.name(), "namespace": job.namespace(),
            "uid": job.uid(), "resourceVersion": known_version(job),
        })
    };
    // References to Jobs are written once and not updated afterwards.
    let old = next
        .remove("active")
        .and_then(|it| it.as_array().cloned())
        .unwrap_or_default();
    let list: Vec<Value> = active
        .iter()
        .map(|job| {
            old.iter()
                .find(|it| it["uid"] == job.uid())
                .cloned()
                .unwrap_or_else(|| reference(job))
        })
        .collect();
    if !list.is_empty() {
        next.insert("active".into(), list.into());
    }
}

fn known_version(job: &Object) -> &str {
    job.meta_str("resourceVersion")
}

/// Deletes the oldest finished Jobs beyond the history limits.
fn clean_up(cron: &Object, jobs: &[&Arc<Object>], plan: &mut Plan) {
    for (kind, field, default) in [
        ("Complete", "successfulJobsHistoryLimit", 3),
        ("Failed", "failedJobsHistoryLimit", 1),
    ] {
        let limit = usize::try_from(Cursor::root(spec(cron)).integer(field).unwrap_or(default)).unwrap_or(0);
        let mut ended: Vec<_> = jobs
            .iter()
            .filter(|it| outcome(it) == Some(kind) && !it.is_terminating())
            .collect();
        ended.sort_by_key(|it| {
            (
                Cursor::root(it).text("status.startTime").to_owned(),
                it.name().to_owned(),
            )
        });
        let surplus = ended.len().saturating_sub(limit);
        for job in ended.into_iter().take(surplus) {
            delete(cron, job, plan);
        }
    }
}

fn delete(cron: &Object, job: &Object, plan: &mut Plan) {
    let told = Told {
        about: Regarding::of(Resource::CronJob, cron),
        component: COMPONENT,
        success: ("SuccessfulDelete", "Deleted job {}".to_owned()),
        failure: ("FailedDelete", "Deleted job: {}".to_owned()),
    };
    plan.writes.push(Write::Delete {
        at: Target::of(Resource::Job, job),
        grace: None,
        propagation: Some(PropagationPolicy::Background),
        told: Some(told),
    });
}

/// Creates a Job if one is due, and schedules the next sync.
fn schedule(cron: &Object, active: &[&Arc<Object>], next: &mut Map, sees: &Sees<'_>, plan: &mut Plan) {
    let about = (Resource::CronJob, cron);
    let zone = spec(cron).get("timeZone").and_then(Value::as_str);
    let Some(schedule) = Schedule::parse(Cursor::root(cron).text("spec.schedule"), zone) else {
        let message = format!("unparseable schedule: {:?}", Cursor::root(cron).text("spec.schedule"));
        return plan.warn(about, COMPONENT, "UnparseableSchedule", message);
    };
    let last = time(Cursor::root(cron).text("status.lastScheduleTime"));
    let deadline = Cursor::root(cron).integer("spec.startingDeadlineSeconds");
    let mut earliest = last.unwrap_or(created(cron));
    if let Some(seconds) = deadline {
        earliest = earliest.max(plus(sees.now, -seconds));
    }
    let due = latest_missed(cron, &schedule, earliest, sees, plan);
    // An interval starts at the last scheduled time.
    if let Some(at) = schedule.next(due.unwrap_or(earliest)) {
        plan.look_again(at);
    }
    let Some(due) = due else {
        return;
    };
    if deadline.is_some_and(|seconds| plus(due, seconds) < sees.now) {
        let message = format!("Missed scheduled time to start a job: {}", rfc1123(due));
        return plan.warn(about, COMPONENT, "MissSchedule", message);
    }
    let name = format!("{}-{}", cron.name(), due.as_second() / 60);
    if last == Some(due) || sees.cluster.find(Resource::Job, cron.namespace(), &name).is_some() {
        next.insert("lastScheduleTime".into(), entropy::seconds(due).into());
        return;
    }
    match Cursor::root(cron).text("spec.concurrencyPolicy") {
        "Forbid" if !active.is_empty() => {
            let message = "Not starting job because prior execution is running and concurrency policy is Forbid";
            return plan.note(about, COMPONENT, "JobAlreadyActive", message.to_owned());
        }
        "Replace" => {
            for job in active.iter().filter(|it| !it.is_terminating()) {
                delete(cron, job, plan);
            }
        }
        _ => {}
    }
    create(cron, &name, due, zone, plan);
    next.insert("lastScheduleTime".into(), entropy::seconds(due).into());
}

/// Returns the last scheduled time between `earliest` and now.
fn latest_missed(
    cron: &Object,
    schedule: &Schedule,
    earliest: Timestamp,
    sees: &Sees<'_>,
    plan: &mut Plan,
) -> Option<Timestamp> {
    let mut latest = None;
    let mut at = earliest;
    for _ in 0..=MISSED_MOST {
        match schedule.next(at).filter(|it| *it <= sees.now) {
            Some(next) => {
                latest = Some(next);
                at = next;
            }
            None => return latest,
        }
    }
    let message = "too many missed start times. Set or decrease .spec.startingDeadlineSeconds or check clock skew";
    plan.warn(
        (Resource::CronJob, cron),
        COMPONENT,
        "TooManyMissedTimes",
        message.to_owned(),
    );
    if let Schedule::Every(interval) = schedule {
        let seconds = interval.as_secs().max(1);
        let steps = sees.now.duration_since(at).as_secs() / seconds;
        return Some(plus(at, steps * seconds));
    }
    // Only the last missed time is needed, so the start of the search first moves towards the current time in halving
    // steps.
    let mut step = sees.now.duration_since(at);
    while step.as_secs() > 60 {
        step /= 2;
        let from = sees.now.checked_sub(step).unwrap_or(at);
        if schedule.next(from).is_none_or(|it| it > sees.now) {
            break;
        }
        at = from;
    }
    while let Some(next) = schedule.next(at).filter(|it| *it <= sees.now) {
        latest = Some(next);
        at = next;
    }
    latest
}

fn create(cron: &Object, name: &str, due: Timestamp, zone: Option<&str>, plan: &mut Plan) {
    let template = Cursor::root(cron).map_or_empty("spec.jobTemplate");
    let meta = Cursor::root(template).map_or_empty("metadata");
    let mut metadata = json!({
        "name": name, "namespace": cron.namespace(),
        "labels": Cursor::root(meta).map_or_empty("labels"),
        "annotations": Cursor::root(meta).map_or_empty("annotations"),
        "ownerReferences": [controller_reference(Resource::CronJob, cron)],
    });
    metadata["annotations"][SCHEDULED] = within(due, zone).into();
    let told = Told {
        about: Regarding::of(Resource::CronJob, cron),
        component: COMPONENT,
        success: ("SuccessfulCreate", "Created job {}".to_owned()),
        failure: ("FailedCreate", "Error creating job: {}".to_owned()),
    };
    let job = json!({"metadata": metadata, "spec": Cursor::root(template).map_or_empty("spec")});
    plan.create_and_tell(Resource::Job, job, Some(told));
}

/// Formats a time in a time zone, by default in UTC, like Go's RFC3339.
fn within(at: Timestamp, zone: Option<&str>) -> String {
    let zone = zone.and_then(|name| TimeZone::get(name).ok());
    let local = zone.map(|it| at.to_zoned(it)).filter(|it| !it.offset().is_zero());
    local.map_or_else(
        || entropy::seconds(at),
        |it| it.strftime("%Y-%m-%dT%H:%M:%S%:z").to_string(),
    )
}

/// Formats a time like Go's RFC1123Z.
fn rfc1123(at: Timestamp) -> String {
    at.strftime("%a, %d %b %Y %H:%M:%S +0000").to_string()
}
