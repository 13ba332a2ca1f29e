//! Jobs: runs Pods until enough have succeeded or too many have failed.

mod end;
mod indexes;
mod run;
mod state;
mod track;
mod work;

use jiff::Timestamp;

use super::cluster::{Cluster, controller_of};
use super::controller::{Changed, Sync, WorkloadController};
use super::kubelet::Nodes;
use super::plan::{Plan, Write};
use super::pods::{self, plus, spec};
use super::resource::{Resource, Target};
use super::sees::{Sees, selector_of};
use crate::api::object::Object;
use crate::api::options::PropagationPolicy;
use crate::registry::types::cursor::Cursor;
use crate::storage::Key;
use crate::workers::WorkerRow;
use state::Run;

const COMPONENT: &str = "job-controller";
pub(crate) const ROW: WorkerRow = WorkerRow::workloads(
    "job",
    &[WorkloadController {
        gone,
        owns: true,
        adopts: Some(Resource::Pod),
        reports_refusals: true,
        concerns: orphans,
        sync: Sync::Nodes(sync),
        ..WorkloadController::new(Resource::Job, COMPONENT, |_, _| Plan::EMPTY)
    }],
);

/// The value of `managedBy` for Jobs of this controller; Jobs without `managedBy` also belong to it.
const CONTROLLER_NAME: &str = "kubernetes.io/job-controller";
/// The annotation and label with the index of a Pod.
const INDEX: &str = "batch.kubernetes.io/job-completion-index";
/// The annotation with the number of earlier failed Pods with the same index.
const INDEX_FAILURES: &str = "batch.kubernetes.io/job-index-failure-count";
/// The annotation with the number of earlier failed Pods with the same index that a rule ignores.
const INDEX_IGNORED: &str = "batch.kubernetes.io/job-index-ignored-failure-count";

/// Name of the task that releases the Pods without a Job. It is not the name of a Job.
const ORPHANS: &str = "";

/// Enqueues the task for Pods that are still tracked but have no controller.
fn orphans(change: &Changed<'_>, _: &Cluster, add: &mut dyn FnMut(Key)) {
    let is_orphan = |pod: &Object| track::is_tracked(pod) && controller_of(pod).is_none();
    if change.resource == Resource::Pod && change.new.is_some_and(is_orphan) {
        add(Key::new(change.key.namespace(), ORPHANS));
    }
}

/// Plans the work for a Job. If another controller manages the Job, it is only deleted after its TTL has expired.
fn sync(job: &Object, sees: &Sees<'_>, nodes: &mut Nodes) -> Plan {
    let mut plan = Plan::default();
    let finished = end::finished_at(job);
    if let Some(finished) = finished {
        expire(job, finished, sees, &mut plan);
    }
    if is_foreign(job) {
        return plan;
    }
    if finished.is_some() {
        nodes.jobs.remove(job.uid());
        release(job, sees, &mut plan);
        return plan;
    }
    let Some(selector) = selector_of(spec(job), "selector") else {
        return plan;
    };
    let pods = sees.claimed(Resource::Pod, (Resource::Job, job), &selector, &mut plan);
    let mut run = Run {
        job,
        sees,
        pods,
        back_off: None,
    };
    run.back_off = run.back_off_end(nodes.jobs.entry(job.uid().to_owned()).or_default());
    if job.is_terminating() {
        release(job, sees, &mut plan);
        release_orphans(job.namespace(), sees, &mut plan);
        return plan;
    }
    run.work(&mut plan);
    plan
}

/// Returns `true` if another controller manages the Job (Go's `managedByExternalController`).
fn is_foreign(job: &Object) -> bool {
    let manager = Cursor::root(job).text("spec.managedBy");
    !manager.is_empty() && manager != CONTROLLER_NAME
}

/// Deletes a Job when its TTL after completion has expired.
fn expire(job: &Object, finished: Timestamp, sees: &Sees<'_>, plan: &mut Plan) {
    let Some(seconds) = Cursor::root(job)
        .integer("spec.ttlSecondsAfterFinished")
        .filter(|_| !job.is_terminating())
    else {
        return;
    };
    let due = plus(finished, seconds);
    if due > sees.now {
        return plan.look_again(due);
    }
    plan.send_as("ttl-after-finished-controller", |plan| {
        plan.writes.push(Write::Delete {
            at: Target::of(Resource::Job, job),
            grace: None,
            propagation: Some(PropagationPolicy::Foreground),
            told: None,
        });
    });
}

/// Removes the finalizer from all Pods of a Job when they no longer need to be counted.
fn release(job: &Object, sees: &Sees<'_>, plan: &mut Plan) {
    for pod in sees.cluster.owned_by(Resource::Pod, job.uid()) {
        if track::is_tracked(pod) {
            track::release(pod, plan);
        }
    }
}

/// Plans the work after the removal of a Job, like Go's `syncOrphanPod`.
pub(crate) fn gone(key: &Key, sees: &Sees<'_>) -> Plan {
    let mut plan = Plan::default();
    release_orphans(key.namespace(), sees, &mut plan);
    plan
}

/// Removes the finalizer from Pods of deleted Jobs, and from Pods without a Job.
fn release_orphans(namespace: &str, sees: &Sees<'_>, plan: &mut Plan) {
    let is_counted_by_another = |pod: &Object| match controller_of(pod) {
        None => false,
        Some(("Job", name, uid)) => {
            let job = sees.cluster.find(Resource::Job, namespace, name);
            job.is_some_and(|it| it.uid() == uid || is_foreign(it))
        }
        Some(_) => true,
    };
    for pod in sees.cluster.within(Resource::Pod, namespace) {
        if track::is_tracked(pod) && !is_counted_by_another(pod) {
            track::release(pod, plan);
        }
    }
}
