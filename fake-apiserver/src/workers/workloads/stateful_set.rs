//! StatefulSets: maintains Pods with stable names, and their claims. Pods are created one after the other, or all
//! together if `podManagementPolicy` is `Parallel`.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::cluster::Cluster;
use super::controller::{Changed, WorkloadController};
use super::plan::{Plan, Regarding, Told, controller_reference};
use super::pods::{
    available_at, from_template, generation, is_available, is_finished, is_ready, label, ordinal, scaled, spec, status,
};
use super::resource::{Resource, key_of};
use super::revisions::{self, Revisions};
use super::sees::{Sees, selector_of};
use crate::api::json::{Map, Value, json};
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
        is_available(pod, self.minimum(), self.sees.now)
    }

    fn is_updated(&self, pod: &Object) -> bool {
        label(pod, revisions::HASH_LABEL) == Some(self.update.name())
    }

    /// Plans all writes that need not wait until the effects of earlier ones are observed.
    fn work(&self, plan: &mut Plan) {
        let last = self.first + self.replicas;
        for ordinal in self.first..last {
            match self.pods.get(&ordinal) {
                None => {
                    self.create(ordinal, plan);
                    if !self.is_parallel() {
                        return;
                    }
                }
                Some(pod) if is_finished(pod) && !pod.is_terminating() => {
                    // A Pod that has ended is deleted and recreated.
                    self.delete(pod, plan);
                    if !self.is_parallel() {
                        return;
                    }
                }
                Some(pod) => {
                    self.keep_claims(pod, ordinal, plan);
                    let waits = pod.is_terminating() || !self.is_available(pod);
                    if waits && !self.is_parallel() {
                        return;
                    }
                }
            }
        }
        let condemned: Vec<_> = self
            .pods
            .iter()
            .rev()
            .filter(|(it, _)| **it < self.first || **it >= last)
            .collect();
        for (ordinal, pod) in &condemned {
            self.own_claims(pod, **ordinal, true, plan);
            if pod.is_terminating() {
                if self.is_parallel() {
                    continue;
                }
                return;
            }
            self.delete(pod, plan);
            if !self.is_parallel() {
                return;
            }
        }
        if condemned.is_empty() || self.is_parallel() {
            self.update_pods(plan);
        }
    }

    /// Replaces Pods of older revisions, highest ordinal first, up to `maxUnavailable` at a time.
    fn update_pods(&self, plan: &mut Plan) {
        if Cursor::root(self.strategy()).text("type") == "OnDelete" {
            return;
        }
        let rolling = Cursor::root(self.strategy()).map_or_empty("rollingUpdate");
        let most = match rolling.get("maxUnavailable") {
            None | Some(Value::Null) => 1,
            value => scaled(value, self.replicas, true).max(1),
        };
        let last = self.first + self.replicas;
        let inside = self.pods.range(self.first..last.max(self.first));
        let mut missing = inside
            .filter(|(_, pod)| pod.is_terminating() || !self.is_available(pod))
            .count();
        let least = self.first + self.partition();
        for (_, pod) in self.pods.range(least..last.max(least)).rev() {
            let is_healthy = !pod.is_terminating() && self.is_available(pod);
            if !self.is_updated(pod) && !pod.is_terminating() {
                // Replacing a Pod that is already unavailable does not increase the number of unavailable Pods.
                if is_healthy {
                    missing += 1;
                }
                if i64::try_from(missing).unwrap_or(i64::MAX) > most {
                    return;
                }
                self.delete(pod, plan);
            }
            if i64::try_from(missing).unwrap_or(i64::MAX) >= most {
                return;
            }
        }
    }

    /// Returns the revision for a new Pod: the old one below the partition.
    fn revision_for(&self, ordinal: i64) -> (String, Map) {
        let is_rolling = Cursor::root(self.strategy()).text("type") != "OnDelete";
        if is_rolling && ordinal < self.first + self.partition() {
            return (self.current.clone(), self.current_template.clone());
        }
        (self.update.name().to_owned(), revisions::template(self.update))
    }

    fn create(&self, ordinal: i64, plan: &mut Plan) {
        let name = format!("{}-{ordinal}", self.set.name());
        self.create_claims(ordinal, plan);
        let (revision, template) = self.revision_for(ordinal);
        let mut pod = from_template(Resource::StatefulSet, self.set, &template);
        pod["metadata"]["name"] = name.clone().into();
        pod["metadata"]["labels"][NAME_LABEL] = name.clone().into();
        pod["metadata"]["labels"][INDEX_LABEL] = ordinal.to_string().into();
        pod["metadata"]["labels"][revisions::HASH_LABEL] = revision.into();
        pod["spec"]["hostname"] = name.clone().into();
        if let Some(service) = spec(self.set).get("serviceName").filter(|it| it.as_str() != Some("")) {
            pod["spec"]["subdomain"] = service.clone();
        }
        let mut volumes: Vec<Value> = Vec::new();
        let mut own = Vec::new();
        for claim in self.claim_templates() {
            let volume = Cursor::root(claim).text("metadata.name");
            own.push(volume);
            let claim_name = self.claim_name(volume, ordinal);
            volumes.push(json!({"name": volume, "persistentVolumeClaim": {"claimName": claim_name}}));
        }
        let others = pod["spec"]["volumes"].as_array().cloned().unwrap_or_default();
        volumes.extend(
            others
                .into_iter()
                .filter(|it| !own.iter().any(|name| it["name"] == *name)),
        );
        if !volumes.is_empty() {
            pod["spec"]["volumes"] = volumes.into();
        }
        plan.create_and_tell(Resource::Pod, pod, Some(self.told("Create", &name)));
    }

    fn claim_templates(&self) -> impl Iterator<Item = &Map> {
        Cursor::root(self.set).maps("spec.volumeClaimTemplates")
    }

    fn claim_name(&self, volume: &str, ordinal: i64) -> String {
        format!("{volume}-{}-{ordinal}", self.set.name())
    }

    /// Plans the missing claims of a Pod. The set becomes their owner if they are deleted with it.
    fn create_claims(&self, ordinal: i64, plan: &mut Plan) {
        let labels = Cursor::root(self.set).map("spec.selector.matchLabels");
        for template in self.claim_templates() {
            let meta = Cursor::root(template).map_or_empty("metadata");
            let name = self.claim_name(Cursor::root(meta).text("name"), ordinal);
            if self
                .sees
                .cluster
                .find(Resource::PersistentVolumeClaim, self.set.namespace(), &name)
                .is_some()
            {
                continue;
            }
            let mut all = Cursor::root(meta).map_or_empty("labels").clone();
            all.extend(
                labels
                    .into_iter()
                    .flatten()
                    .map(|(key, value)| (key.clone(), value.clone())),
            );
            let mut claim = json!({
                "metadata": {"name": name, "namespace": self.set.namespace(), "labels": all},
                "spec": Cursor::root(template).map_or_empty("spec"),
            });
            if let Some(annotations) = meta.get("annotations") {
                claim["metadata"]["annotations"] = annotations.clone();
            }
            if self.claims_go_with("whenDeleted") {
                claim["metadata"]["ownerReferences"] = json!([controller_reference(Resource::StatefulSet, self.set)]);
            }
            plan.create_and_tell(
                Resource::PersistentVolumeClaim,
                claim,
                Some(self.told_of_claim(&name, ordinal)),
            );
        }
    }

    /// Recreates missing claims of a Pod that has no node yet, and updates the owners of its claims.
    fn keep_claims(&self, pod: &Object, ordinal: i64, plan: &mut Plan) {
        if !pod.is_terminating() && Cursor::root(pod).text("spec.nodeName").is_empty() {
            self.create_claims(ordinal, plan);
        }
        if self.own_claims(pod, ordinal, false, plan) {
            let about = (Resource::StatefulSet, self.set);
            let message = format!(
                "Update Pod {} in StatefulSet {} successful",
                pod.name(),
                self.set.name()
            );
            plan.note(about, COMPONENT, "SuccessfulUpdate", message);
        }
    }

    /// Returns `true` if claims are deleted with the set (`whenDeleted`), or with surplus Pods (`whenScaled`).
    fn claims_go_with(&self, what: &str) -> bool {
        let policy = Cursor::root(self.set).map_or_empty("spec.persistentVolumeClaimRetentionPolicy");
        Cursor::root(policy).text(what) == "Delete"
    }

    /// Makes the set, or a Pod that is removed permanently, the owner of the claims to be deleted with it, and removes
    /// other owner references (Go's `updateClaimOwnerRefForSetAndPod`). Returns `true` if a write is needed.
    fn own_claims(&self, pod: &Object, ordinal: i64, is_condemned: bool, plan: &mut Plan) -> bool {
        let goes_with_pod = is_condemned && self.claims_go_with("whenScaled");
        let goes_with_set = !goes_with_pod && self.claims_go_with("whenDeleted");
        let owner = match (goes_with_pod, goes_with_set) {
            (true, _) => Some(controller_reference(Resource::Pod, pod)),
            (_, true) => Some(controller_reference(Resource::StatefulSet, self.set)),
            (false, false) => None,
        };
        let mut is_changed = false;
        for template in self.claim_templates() {
            let name = self.claim_name(Cursor::root(template).text("metadata.name"), ordinal);
            let Some(claim) = self
                .sees
                .cluster
                .find(Resource::PersistentVolumeClaim, self.set.namespace(), &name)
            else {
                continue;
            };
            let known = Cursor::root(claim).list("metadata.ownerReferences");
            let is_ours = |it: &&Value| it["uid"] == self.set.uid() || it["uid"] == pod.uid();
            if known
                .iter()
                .filter(is_ours)
                .map(|it| &it["uid"])
                .eq(owner.iter().map(|it| &it["uid"]))
            {
                continue;
            }
            let others = known.iter().filter(|it| !is_ours(it)).cloned();
            let references: Vec<Value> = others.chain(owner.clone()).collect();
            let patch = json!({"metadata": {"uid": claim.uid(), "ownerReferences": references}});
            plan.merge(Resource::PersistentVolumeClaim, claim, patch);
            is_changed = true;
        }
        is_changed
    }

    fn delete(&self, pod: &Object, plan: &mut Plan) {
        plan.delete_and_tell(Resource::Pod, pod, Some(self.told("Delete", pod.name())));
    }

    /// Returns the Events about a Pod (Go's `recordPodEvent`).
    fn told(&self, verb: &'static str, pod: &str) -> Told {
        let subject = format!("{verb} Pod {pod} in StatefulSet {}", self.set.name());
        let (good, bad) = match verb {
            "Create" => ("SuccessfulCreate", "FailedCreate"),
            _ => ("SuccessfulDelete", "FailedDelete"),
        };
        Told {
            about: Regarding::of(Resource::StatefulSet, self.set),
            component: COMPONENT,
            success: (good, format!("{subject} successful")),
            failure: (bad, format!("{subject} failed error: {{}}")),
        }
    }

    /// Returns the Events about a claim (Go's `recordClaimEvent`).
    fn told_of_claim(&self, claim: &str, ordinal: i64) -> Told {
        let set = self.set.name();
        let subject = |of: &str| format!("Create Claim {claim} {of}Pod {set}-{ordinal} in StatefulSet {set}");
        Told {
            about: Regarding::of(Resource::StatefulSet, self.set),
            component: COMPONENT,
            success: ("SuccessfulCreate", format!("{} success", subject(""))),
            failure: ("FailedCreate", format!("{} failed error: {{}}", subject("for "))),
        }
    }

    /// Plans the new status, completes a rollout if all Pods are updated and ready, and deletes old revisions.
    fn finish(&self, revisions: &Revisions<'_>, plan: &mut Plan) {
        let all = || self.pods.values().copied();
        let live = || all().filter(|it| !it.is_terminating());
        let of = |revision: &str| {
            let revision = revision.to_owned();
            live()
                .filter(move |it| label(it, revisions::HASH_LABEL) == Some(&revision))
                .count()
        };
        let updated = of(self.update.name());
        let ready = all().filter(|it| is_ready(it)).count();
        let mut current = self.current.clone();
        let mut current_count = of(&current);
        let wanted = usize::try_from(self.replicas).unwrap_or(0);
        let has_all = updated == wanted && self.pods.len() == wanted && ready == wanted;
        let is_rolling = Cursor::root(self.strategy()).text("type") != "OnDelete";
        if is_rolling && has_all && current != self.update.name() {
            current = self.update.name().to_owned();
            current_count = updated;
        }
        let mut next = status(self.set).clone();
        for (field, count) in [
            ("readyReplicas", ready),
            ("currentReplicas", current_count),
            ("updatedReplicas", updated),
        ] {
            match count {
                0 => next.remove(field),
                count => next.insert(field.into(), count.into()),
            };
        }
        let available = all().filter(|it| self.is_available(it)).count();
        next.insert("replicas".into(), self.pods.len().into());
        next.insert("availableReplicas".into(), available.into());
        next.insert("currentRevision".into(), current.clone().into());
        next.insert("updateRevision".into(), self.update.name().into());
        next.insert("observedGeneration".into(), generation(self.set).into());
        next.entry("collisionCount").or_insert_with(|| 0.into());
        plan.status(Resource::StatefulSet, self.set, next);
        let waiting = all().filter(|it| !self.is_available(it));
        if let Some(at) = waiting.filter_map(|it| available_at(it, self.minimum())).min() {
            plan.look_again(at);
        }
        let mut live: Vec<&str> = all().filter_map(|it| label(it, revisions::HASH_LABEL)).collect();
        live.push(&current);
        revisions::clean_up(self.set, revisions, &live, plan);
    }
}
