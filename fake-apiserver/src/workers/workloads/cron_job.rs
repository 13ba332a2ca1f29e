//! CronJobs: creates a Job at each scheduled time.

use std::sync::Arc;

use jiff::Timestamp;
use jiff::tz::TimeZone;

use super::controller::WorkloadController;
use super::plan::{Plan, Regarding, Told, Write, controller_reference, object_of};
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
    for job in clean_up(cron, &jobs, &mut plan) {
        drop_active(&mut next, job);
    }
    note_finished(cron, &jobs, &mut next, &mut plan);
    let is_known = |job: &Object| Cursor::root(cron).maps("status.active").any(|it| is_reference(it, job));
    for job in jobs.iter().filter(|it| outcome(it).is_none() && !is_known(it)) {
        if annotation(job, SCHEDULED).is_none() {
            let message = format!("Saw a job that the controller did not create or forgot: {}", job.name());
            plan.warn((Resource::CronJob, cron), COMPONENT, "UnexpectedJob", message);
        } else if !job.is_terminating() {
            // The status that lists this Job was not written.
            add_active(&mut next, job);
        }
    }
    note_missing(cron, &jobs, sees, &mut next, &mut plan);
    if !cron.is_terminating() && Cursor::root(cron).flag("spec.suspend") != Some(true) {
        return schedule(cron, &jobs, next, sees, plan);
    }
    plan.status(Resource::CronJob, cron, next);
    plan
}

/// Returns `true` if a reference in `status.active` refers to a Job.
fn is_reference(reference: &Map, job: &Object) -> bool {
    Cursor::root(reference).text("uid") == job.uid()
}

/// Adds a Job to the list of active Jobs.
pub(crate) fn add_active(status: &mut Map, job: &Object) {
    let reference = json!({
        "apiVersion": "batch/v1", "kind": "Job", "name": job.name(), "namespace": job.namespace(), "uid": job.uid(),
        "resourceVersion": job.meta_str("resourceVersion"),
    });
    let mut list = Cursor::root(status).list("active").to_vec();
    list.push(reference);
    status.insert("active".into(), list.into());
}

/// Removes a Job from the list of active Jobs.
fn drop_active(status: &mut Map, uid: &str) {
    let mut list = Cursor::root(status).list("active").to_vec();
    list.retain(|it| it["uid"] != uid);
    match list.is_empty() {
        true => drop(status.remove("active")),
        false => drop(status.insert("active".into(), list.into())),
    }
}

/// Returns `Complete` or `Failed`, if the Job has ended.
fn outcome(job: &Object) -> Option<&'static str> {
    ["Complete", "Failed"]
        .into_iter()
        .find(|kind| find_condition(status(job), kind).is_some_and(|it| Cursor::root(it).text("status") == "True"))
}

/// Removes Jobs that no longer exist from the list of active Jobs, and writes Events about them.
fn note_missing(cron: &Object, jobs: &[&Arc<Object>], sees: &Sees<'_>, next: &mut Map, plan: &mut Plan) {
    for known in Cursor::root(cron).maps("status.active") {
        let name = Cursor::root(known).text("name");
        let is_owned = jobs.iter().any(|it| is_reference(known, it));
        if !is_owned && sees.cluster.find(Resource::Job, cron.namespace(), name).is_none() {
            let message = format!("Active job went missing: {name}");
            plan.note((Resource::CronJob, cron), COMPONENT, "MissingJob", message);
            drop_active(next, Cursor::root(known).text("uid"));
        }
    }
}

/// Removes the Jobs that ended since the last sync from the active Jobs, and writes Events about them.
fn note_finished(cron: &Object, jobs: &[&Arc<Object>], next: &mut Map, plan: &mut Plan) {
    for job in jobs {
        let Some(outcome) = outcome(job) else { continue };
        if Cursor::root(next).maps("active").any(|it| is_reference(it, job)) {
            let message = format!("Saw completed job: {}, condition: {outcome}", job.name());
            plan.note((Resource::CronJob, cron), COMPONENT, "SawCompletedJob", message);
            drop_active(next, job.uid());
        }
        let at = Cursor::root(job).text("status.completionTime");
        if outcome == "Complete" && at > Cursor::root(next).text("lastSuccessfulTime") {
            next.insert("lastSuccessfulTime".into(), at.into());
        }
    }
}

/// Deletes the oldest finished Jobs beyond the history limits, and returns their uids.
fn clean_up<'a>(cron: &Object, jobs: &[&'a Arc<Object>], plan: &mut Plan) -> Vec<&'a str> {
    let mut deleted = Vec::new();
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
            let start = Cursor::root(it).text("status.startTime");
            (start.is_empty(), start.to_owned(), it.name().to_owned())
        });
        let surplus = ended.len().saturating_sub(limit);
        for job in ended.into_iter().take(surplus) {
            delete(cron, job, plan);
            deleted.push(job.uid());
        }
    }
    deleted
}

fn delete(cron: &Object, job: &Object, plan: &mut Plan) {
    let told = Told {
        about: Regarding::of(Resource::CronJob, cron),
        component: COMPONENT,
        success: Some(("SuccessfulDelete", "Deleted job {}".to_owned())),
        failure: ("FailedDelete", "Deleted job: {}".to_owned()),
    };
    plan.writes.push(Write::Delete {
        at: Target::of(Resource::Job, job),
        grace: None,
        propagation: Some(PropagationPolicy::Background),
        told: Some(told),
    });
}

/// Creates a Job if one is due, schedules the next sync, and writes the status.
fn schedule(cron: &Object, jobs: &[&Arc<Object>], mut next: Map, sees: &Sees<'_>, mut plan: Plan) -> Plan {
    let Some(due) = due(cron, sees, &mut plan) else {
        plan.status(Resource::CronJob, cron, next);
        return plan;
    };
    let about = (Resource::CronJob, cron);
    let name = format!("{}-{}", cron.name(), due.as_second() / 60);
    let is_listed = Cursor::root(&next)
        .maps("active")
        .any(|it| Cursor::root(it).text("name") == name);
    let is_processed = time(Cursor::root(cron).text("status.lastScheduleTime")) == Some(due);
    if is_listed || is_processed {
        // The time of a listed Job is missing if an earlier write of the status failed.
        next.insert("lastScheduleTime".into(), entropy::seconds(due).into());
        plan.status(Resource::CronJob, cron, next);
        return plan;
    }
    let policy = Cursor::root(cron).text("spec.concurrencyPolicy");
    if policy == "Forbid" && !Cursor::root(&next).is_empty("active") {
        let message = "Not starting job because prior execution is running and concurrency policy is Forbid";
        plan.note(about, COMPONENT, "JobAlreadyActive", message.to_owned());
        plan.status(Resource::CronJob, cron, next);
        return plan;
    }
    if policy == "Replace" {
        let active = next.clone();
        let is_active = |job: &&&Arc<Object>| Cursor::root(&active).maps("active").any(|it| is_reference(it, job));
        for job in jobs.iter().filter(is_active) {
            delete(cron, job, &mut plan);
            drop_active(&mut next, job.uid());
        }
    }
    let scheduled = entropy::seconds(due);
    match sees.cluster.find(Resource::Job, cron.namespace(), &name) {
        None => create(cron, &name, due, next, &mut plan),
        // Only the write of the status is repeated if an earlier one failed.
        Some(job) if jobs.iter().any(|it| it.uid() == job.uid()) => {
            if outcome(job).is_none() {
                add_active(&mut next, job);
            }
            next.insert("lastScheduleTime".into(), scheduled.into());
            plan.status(Resource::CronJob, cron, next);
        }
        Some(_) => plan.status(Resource::CronJob, cron, next),
    }
    plan
}

/// Returns the time of the Job that should be created now, and schedules the next sync.
fn due(cron: &Object, sees: &Sees<'_>, plan: &mut Plan) -> Option<Timestamp> {
    let about = (Resource::CronJob, cron);
    let Some(schedule) = Schedule::parse(Cursor::root(cron).text("spec.schedule"), zone(cron)) else {
        let message = format!("unparseable schedule: {:?}", Cursor::root(cron).text("spec.schedule"));
        plan.warn(about, COMPONENT, "UnparseableSchedule", message);
        return None;
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
    let due = due?;
    if deadline.is_some_and(|seconds| plus(due, seconds) < sees.now) {
        let message = format!("Missed scheduled time to start a job: {}", rfc1123(due));
        plan.warn(about, COMPONENT, "MissSchedule", message);
        return None;
    }
    Some(due)
}

/// Returns the time zone of the schedule, if it is set.
fn zone(cron: &Object) -> Option<&str> {
    spec(cron).get("timeZone").and_then(Value::as_str)
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

/// Plans the creation of a Job, and the status that lists it.
fn create(cron: &Object, name: &str, due: Timestamp, status: Map, plan: &mut Plan) {
    let template = Cursor::root(cron).map_or_empty("spec.jobTemplate");
    let meta = Cursor::root(template).map_or_empty("metadata");
    let mut metadata = json!({
        "name": name, "namespace": cron.namespace(),
        "labels": Cursor::root(meta).map_or_empty("labels"),
        "annotations": Cursor::root(meta).map_or_empty("annotations"),
        "ownerReferences": [controller_reference(Resource::CronJob, cron)],
    });
    metadata["annotations"][SCHEDULED] = within(due, zone(cron)).into();
    let told = Told {
        about: Regarding::of(Resource::CronJob, cron),
        component: COMPONENT,
        success: Some(("SuccessfulCreate", "Created job {}".to_owned())),
        failure: ("FailedCreate", "Error creating job: {}".to_owned()),
    };
    let job = json!({"metadata": metadata, "spec": Cursor::root(template).map_or_empty("spec")});
    plan.writes.push(Write::CreateActive {
        job: object_of(Resource::Job, job),
        told,
        cron: Target::of(Resource::CronJob, cron),
        status,
        scheduled: entropy::seconds(due),
    });
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
