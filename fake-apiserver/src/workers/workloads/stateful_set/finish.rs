//! The status of a StatefulSet, and the end of its rollouts.

use super::{Set, is_running};
use crate::registry::types::cursor::Cursor;
use crate::workers::workloads::plan::Plan;
use crate::workers::workloads::pods::{available_at, generation, is_ready, label, status};
use crate::workers::workloads::resource::Resource;
use crate::workers::workloads::revisions::{self, Revisions};

impl Set<'_> {
    /// Plans the new status, completes a rollout if all Pods are updated and ready, and deletes old revisions.
    pub(super) fn finish(&self, revisions: &Revisions<'_>, plan: &mut Plan) {
        let all = || self.pods.values().copied();
        let live = || all().filter(|it| !it.is_terminating());
        let of = |revision: &str| {
            let revision = revision.to_owned();
            live()
                .filter(move |it| label(it, revisions::HASH_LABEL) == Some(&revision))
                .count()
        };
        let updated = of(self.update.name());
        let ready = all().filter(|it| is_running(it) && is_ready(it)).count();
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
        let later = waiting.filter_map(|it| available_at(it, self.minimum()).filter(|at| *at > self.sees.now));
        if let Some(at) = later.min() {
            plan.look_again(at);
        }
        let mut live: Vec<&str> = all().filter_map(|it| label(it, revisions::HASH_LABEL)).collect();
        live.push(&current);
        revisions::clean_up(self.set, revisions, &live, false, plan);
    }
}
