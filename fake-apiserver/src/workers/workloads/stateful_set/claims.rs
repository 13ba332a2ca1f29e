//! The claims of a StatefulSet's Pods: creation, and the owners with which they are deleted.

use std::sync::Arc;

use super::{COMPONENT, Set};
use crate::api::json::{Map, Value, json};
use crate::api::object::Object;
use crate::registry::types::cursor::Cursor;
use crate::workers::workloads::plan::{Plan, Regarding, Told, controller_reference};
use crate::workers::workloads::resource::Resource;

impl Set<'_> {
    /// Returns `true` if a claim is still deleted together with an earlier Pod of the same name (Go's
    /// `PodClaimIsStale`).
    pub(super) fn has_stale_claim(&self, ordinal: i64, pod: &str) -> bool {
        let is_of_pod = |it: &Map| {
            let it = Cursor::root(it);
            it.text("apiVersion") == "v1" && it.text("kind") == "Pod" && it.text("name") == pod
        };
        let is_stale = |claim: &Object| Cursor::root(claim).maps("metadata.ownerReferences").any(is_of_pod);
        self.claims_go_with("whenScaled")
            && self
                .claims(ordinal)
                .any(|(_, claim)| claim.is_some_and(|it| is_stale(it)))
    }

    /// Returns the names of the claims of a Pod, and the claims that exist.
    fn claims(&self, ordinal: i64) -> impl Iterator<Item = (String, Option<&Arc<Object>>)> {
        self.claim_templates().map(move |template| {
            let name = self.claim_name(Cursor::root(template).text("metadata.name"), ordinal);
            let resource = Resource::PersistentVolumeClaim;
            let claim = self.sees.cluster.find(resource, self.set.namespace(), &name);
            (name, claim)
        })
    }

    pub(super) fn claim_templates(&self) -> impl Iterator<Item = &Map> {
        Cursor::root(self.set).maps("spec.volumeClaimTemplates")
    }

    pub(super) fn claim_name(&self, volume: &str, ordinal: i64) -> String {
        format!("{volume}-{}-{ordinal}", self.set.name())
    }

    /// Plans the missing claims of a Pod. The set becomes their owner if they are deleted with it. Returns the reason
    /// if the Pod must not be created, because claims are being deleted.
    pub(super) fn create_claims(&self, ordinal: i64, plan: &mut Plan) -> Option<String> {
        let leaving = self
            .claims(ordinal)
            .filter(|(_, claim)| claim.is_some_and(|it| it.is_terminating()));
        let leaving: Vec<String> = leaving
            .map(|(name, _)| format!("pvc {name} is being deleted"))
            .collect();
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
        match leaving.as_slice() {
            [] => None,
            [one] => Some(one.clone()),
            [_, _, ..] => Some(format!("[{}]", leaving.join(", "))),
        }
    }

    /// Returns `true` if claims are deleted with the set (`whenDeleted`), or with surplus Pods (`whenScaled`).
    fn claims_go_with(&self, what: &str) -> bool {
        let policy = Cursor::root(self.set).map_or_empty("spec.persistentVolumeClaimRetentionPolicy");
        Cursor::root(policy).text(what) == "Delete"
    }

    /// Makes the set, or a Pod that is removed permanently, the owner of the claims to be deleted with it, and removes
    /// other owner references (Go's `updateClaimOwnerRefForSetAndPod`). Returns `true` if a write is needed.
    pub(super) fn own_claims(&self, pod: &Object, ordinal: i64, is_condemned: bool, plan: &mut Plan) -> bool {
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

    /// Returns the Events about a claim (Go's `recordClaimEvent`).
    fn told_of_claim(&self, claim: &str, ordinal: i64) -> Told {
        let set = self.set.name();
        let subject = |of: &str| format!("Create Claim {claim} {of}Pod {set}-{ordinal} in StatefulSet {set}");
        Told {
            about: Regarding::of(Resource::StatefulSet, self.set),
            component: COMPONENT,
            success: Some(("SuccessfulCreate", format!("{} success", subject("")))),
            failure: ("FailedCreate", format!("{} failed error: {{}}", subject("for "))),
        }
    }
}
