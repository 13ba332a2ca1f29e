//! Creates, replaces and deletes the Pods of a StatefulSet.

use std::sync::Arc;

use super::{COMPONENT, INDEX_LABEL, NAME_LABEL, Set};
use crate::api::json::{Map, Value, json};
use crate::api::kubernetes_version::KubernetesVersion;
use crate::api::object::Object;
use crate::registry::types::cursor::Cursor;
use crate::workers::workloads::plan::{Plan, Regarding, Told};
use crate::workers::workloads::pods::{from_template, is_finished, label, phase, scaled, spec};
use crate::workers::workloads::resource::Resource;
use crate::workers::workloads::revisions;

/// The result of processing a Pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    /// The next Pod may be processed.
    Done,
    /// With the policy `OrderedReady`, the next Pod must wait.
    Waits,
    /// A claim of the Pod is being deleted. The sync does not continue with surplus Pods and updates.
    Refused,
}

impl Set<'_> {
    /// Plans all writes that need not wait until the effects of earlier ones are observed.
    pub(super) fn work(&self, plan: &mut Plan) {
        let mut is_refused = false;
        for ordinal in self.ordinals() {
            match self.process(ordinal, plan) {
                Progress::Done => {}
                Progress::Waits if self.is_parallel() => {}
                Progress::Refused if self.is_parallel() => is_refused = true,
                Progress::Waits | Progress::Refused => return,
            }
        }
        if is_refused {
            return;
        }
        let is_condemned = |ordinal: &&i64| !self.ordinals().contains(ordinal);
        let condemned: Vec<i64> = self.pods.keys().rev().filter(is_condemned).copied().collect();
        for ordinal in &condemned {
            self.own_claims(self.pods[ordinal], *ordinal, true, plan);
        }
        let mut others = self.ordinals().chain(condemned.iter().rev().copied());
        let first_unavailable = others.find(|it| self.is_unavailable(*it));
        for ordinal in &condemned {
            let pod = self.pods[ordinal];
            if self.is_parallel() {
                if !pod.is_terminating() {
                    self.delete(pod, plan);
                }
                continue;
            }
            // An unavailable Pod is only deleted if no Pod before it is unavailable.
            if !pod.is_terminating() && (self.is_available(pod) || first_unavailable == Some(*ordinal)) {
                self.delete(pod, plan);
            }
            return;
        }
        self.update_pods(plan);
    }

    /// Creates, deletes or updates a Pod that the set should have (Go's `processReplica`).
    fn process(&self, ordinal: i64, plan: &mut Plan) -> Progress {
        let Some(pod) = self.pods.get(&ordinal) else {
            return self.create(ordinal, plan);
        };
        if is_finished(pod) {
            // A Pod that has ended is deleted and recreated.
            if !pod.is_terminating() {
                self.delete(pod, plan);
            }
            return Progress::Waits;
        }
        let is_pending = phase(pod) == "Pending";
        if is_pending {
            if self.create_claims(ordinal, plan).is_some() {
                return Progress::Refused;
            }
            self.own_claims(pod, ordinal, false, plan);
        }
        if !self.is_parallel() && self.is_unavailable(ordinal) {
            return Progress::Waits;
        }
        if !is_pending {
            self.restore(pod, ordinal, plan);
        }
        Progress::Done
    }

    /// Restores the labels of a Pod and the owners of its claims (Go's `UpdateStatefulPod`).
    fn restore(&self, pod: &Object, ordinal: i64, plan: &mut Plan) {
        let number = ordinal.to_string();
        let mut is_changed = self.own_claims(pod, ordinal, false, plan);
        if label(pod, NAME_LABEL) != Some(pod.name()) || label(pod, INDEX_LABEL) != Some(&number) {
            let labels = json!({NAME_LABEL: pod.name(), INDEX_LABEL: number});
            let patch = json!({"metadata": {"uid": pod.uid(), "labels": labels}});
            plan.merge(Resource::Pod, pod, patch);
            is_changed = true;
        }
        if is_changed {
            let message = format!(
                "Update Pod {} in StatefulSet {} successful",
                pod.name(),
                self.set.name()
            );
            plan.note(
                (Resource::StatefulSet, self.set),
                COMPONENT,
                "SuccessfulUpdate",
                message,
            );
        }
    }

    /// Replaces Pods of older revisions, highest ordinal first. Before Kubernetes 1.37, one Pod is replaced at a time.
    fn update_pods(&self, plan: &mut Plan) {
        if Cursor::root(self.strategy()).text("type") == "OnDelete" {
            return;
        }
        let is_old = |pod: &&Arc<Object>| !self.is_updated(pod) && !pod.is_terminating();
        let targets = (self.first.saturating_add(self.partition())..self.ordinals().end).rev();
        if self.sees.version >= KubernetesVersion::V1_37 {
            let old = targets.filter_map(|it| self.pods.get(&it).filter(|pod| is_old(pod)));
            old.take(self.may_become_unavailable())
                .for_each(|it| self.delete(it, plan));
            return;
        }
        for ordinal in targets {
            if let Some(old) = self.pods.get(&ordinal).filter(|pod| is_old(pod)) {
                return self.delete(old, plan);
            }
            if self.is_unavailable(ordinal) {
                return;
            }
        }
    }

    /// Returns the number of Pods that may become unavailable now, according to `maxUnavailable`.
    fn may_become_unavailable(&self) -> usize {
        let rolling = Cursor::root(self.strategy()).map_or_empty("rollingUpdate");
        let most = match rolling.get("maxUnavailable") {
            None | Some(Value::Null) => 1,
            value => scaled(value, self.replicas, false).max(1),
        };
        let missing = self.ordinals().filter(|it| self.is_unavailable(*it)).count();
        usize::try_from(most).unwrap_or(0).saturating_sub(missing)
    }

    /// Returns the revision for a new Pod: the old one below the partition.
    fn revision_for(&self, ordinal: i64) -> (String, Map) {
        let is_rolling = Cursor::root(self.strategy()).text("type") != "OnDelete";
        if is_rolling && ordinal < self.first + self.partition() {
            return (self.current.clone(), self.current_template.clone());
        }
        (self.update.name().to_owned(), revisions::template(self.update))
    }

    /// Creates a Pod and its claims, unless one of the claims is being deleted.
    fn create(&self, ordinal: i64, plan: &mut Plan) -> Progress {
        let name = format!("{}-{ordinal}", self.set.name());
        if self.has_stale_claim(ordinal, &name) {
            return Progress::Waits;
        }
        if let Some(why) = self.create_claims(ordinal, plan) {
            let message = format!(
                "Create Pod {name} in StatefulSet {} failed error: {why}",
                self.set.name()
            );
            plan.warn((Resource::StatefulSet, self.set), COMPONENT, "FailedCreate", message);
            return Progress::Refused;
        }
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
        Progress::Waits
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
            success: Some((good, format!("{subject} successful"))),
            failure: (bad, format!("{subject} failed error: {{}}")),
        }
    }
}
