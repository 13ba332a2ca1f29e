//! StatefulSets: maintains Pods with stable names, and their claims. Pods are created one after the other, or all
//! together if `podManagementPolicy` is `Parallel`.

mod claims;
mod finish;
mod work;

use std::collections::BTreeMap;
use std::sync::Arc;

use super::cluster::Cluster;
use super::controller::{Changed, WorkloadController};
use super::plan::Plan;
use super::pods::{is_available, label, ordinal, phase, spec};
use super::resource::{Resource, key_of};
use super::revisions;
use super::sees::{Sees, selector_of};
use crate::api::json::Map;
use crate::api::object::Object;
use crate::registry::types::cursor::Cursor;
use crate::storage::Key;
use crate::workers::WorkerRow;

const COMPONENT: &str = "statefulset-controller";
const NAME_LABEL: &str = "statefulset.kubernetes.io/pod-name";
const INDEX_LABEL: &str = "apps.kubernetes.io/pod-index";

pub(crate) const ROW: WorkerRow = WorkerRow::workloads(
    "statefulset",
    &[WorkloadController {
        owns: true,
        adopts: Some(Resource::Pod),
        reports_refusals: true,
        concerns: deleted_claims,
        ..WorkloadController::new(Resource::StatefulSet, COMPONENT, sync)
    }],
);

/// A StatefulSet with its Pods by ordinal.
struct Set<'a> {
    set: &'a Object,
    sees: &'a Sees<'a>,
    pods: BTreeMap<i64, &'a Arc<Object>>,
    /// The label value of the revision before the current rollout.
    current: String,
    /// The template of this revision.
    current_template: Map,
    update: &'a Object,
    first: i64,
    replicas: i64,
}

fn is_running(pod: &Object) -> bool {
    phase(pod) == "Running"
}

/// Enqueues the sets in the namespace of a deleted claim.
fn deleted_claims(change: &Changed<'_>, cluster: &Cluster, add: &mut dyn FnMut(Key)) {
    if change.resource == Resource::PersistentVolumeClaim && change.new.is_none() {
        cluster
            .within(Resource::StatefulSet, change.key.namespace())
            .for_each(|it| add(key_of(it)));
    }
}

/// Plans the work for a StatefulSet.
pub(crate) fn sync(set: &Object, sees: &Sees<'_>) -> Plan {
    let mut plan = Plan::default();
    let Some(selector) = selector_of(spec(set), "selector") else {
        return plan;
    };
    let claimed = sees.claimed(Resource::Pod, (Resource::StatefulSet, set), &selector, &mut plan);
    let revisions = revisions::revisions_of(Resource::StatefulSet, set, sees, &mut plan);
    let Some(update) = revisions.update else {
        return plan;
    };
    let pods = claimed
        .iter()
        .filter_map(|pod| Some((ordinal(set, pod)?, *pod)))
        .collect();
    let known = Cursor::root(set).text("status.currentRevision");
    let current = revisions.all.iter().find(|it| it.name() == known).unwrap_or(&update);
    let it = Set {
        set,
        sees,
        pods,
        current: current.name().to_owned(),
        current_template: revisions::template(current),
        update,
        first: Cursor::root(set).integer("spec.ordinals.start").unwrap_or(0),
        replicas: Cursor::root(set).integer("spec.replicas").unwrap_or(1),
    };
    if !set.is_terminating() {
        it.work(&mut plan);
    }
    it.finish(&revisions, &mut plan);
    plan
}

impl Set<'_> {
    fn is_parallel(&self) -> bool {
        Cursor::root(self.set).text("spec.podManagementPolicy") == "Parallel"
    }

    fn strategy(&self) -> &Map {
        Cursor::root(self.set).map_or_empty("spec.updateStrategy")
    }

    /// Returns the ordinal below which Pods keep their revision.
    fn partition(&self) -> i64 {
        Cursor::root(self.strategy())
            .integer("rollingUpdate.partition")
            .unwrap_or(0)
    }

    fn minimum(&self) -> i64 {
        Cursor::root(self.set).integer("spec.minReadySeconds").unwrap_or(0)
    }

    fn is_available(&self, pod: &Object) -> bool {
        is_running(pod) && is_available(pod, self.minimum(), self.sees.now)
    }

    /// Returns `true` if a Pod of the set is missing, terminating, not ready or not available.
    fn is_unavailable(&self, ordinal: i64) -> bool {
        let pod = self.pods.get(&ordinal);
        pod.is_none_or(|pod| pod.is_terminating() || !self.is_available(pod))
    }

    /// Returns the ordinals of the Pods that the set should have.
    fn ordinals(&self) -> std::ops::Range<i64> {
        self.first..self.first.saturating_add(self.replicas)
    }

    fn is_updated(&self, pod: &Object) -> bool {
        label(pod, revisions::HASH_LABEL) == Some(self.update.name())
    }
}
