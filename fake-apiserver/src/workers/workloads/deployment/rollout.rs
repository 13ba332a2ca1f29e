//! Rolls out a Deployment from its old ReplicaSets to the new one, and scales it.

use std::sync::Arc;

use super::{DESIRED, MAXIMUM, Rollout, counted, replicas};
use crate::api::object::Object;
use crate::storage::Key;
use crate::workers::workloads::cluster::{Cluster, controller_of};
use crate::workers::workloads::controller::Changed;
use crate::workers::workloads::plan::Plan;
use crate::workers::workloads::pods::{annotation, is_finished};
use crate::workers::workloads::resource::Resource;

impl<'a> Rollout<'a> {
    /// Adds new Pods within the limit of `maxSurge`, and removes old Pods within the limit of `maxUnavailable`.
    pub(super) fn roll(&self, plan: &mut Plan) {
        if self.keep_history(true, plan) {
            return;
        }
        let Some(new) = self.new else { return };
        if self.resize_new(new, plan) || self.shrink_old(new, plan) {
            return self.write_rollout_status(plan);
        }
        if self.is_complete(&self.next_counts()) {
            self.clean_up(plan);
        }
        self.write_rollout_status(plan);
    }

    /// Removes all old Pods before the first new one is created.
    pub(super) fn recreate(&self, plan: &mut Plan) {
        if self.new.is_some() && self.keep_history(false, plan) {
            return;
        }
        let mut scaled = false;
        for set in self.old() {
            if replicas(set) > 0 {
                scaled |= self.scale_set(set, 0, plan);
            }
        }
        if scaled || self.has_old_pods() {
            return self.write_rollout_status(plan);
        }
        if self.new.is_none() {
            self.keep_history(true, plan);
            return;
        }
        if let Some(new) = self.new {
            self.scale_set(new, replicas(self.deployment), plan);
        }
        if self.is_complete(&self.next_counts()) {
            self.clean_up(plan);
        }
        self.write_rollout_status(plan);
    }

    /// Returns `true` if Pods of old ReplicaSets exist, according to the status of the ReplicaSets or to the Pods.
    fn has_old_pods(&self) -> bool {
        let old = self.old();
        if old.iter().any(|set| counted(set, "replicas") > 0) {
            return true;
        }
        let pods = old
            .iter()
            .flat_map(|set| self.sees.cluster.owned_by(Resource::Pod, set.uid()));
        pods.into_iter().any(|pod| !is_finished(pod))
    }

    /// Returns the next number of replicas of the new ReplicaSet; `has` is the current number.
    pub(super) fn size_of_new(&self, has: i64) -> i64 {
        let wanted = replicas(self.deployment);
        if !self.is_rolling() {
            return wanted;
        }
        let most = wanted + self.max_surge();
        let present: i64 = self.sets.iter().map(|it| replicas(it)).sum();
        if present >= most {
            return has;
        }
        has + (most - present).min(wanted - has)
    }

    fn resize_new(&self, new: &Object, plan: &mut Plan) -> bool {
        let (has, wanted) = (replicas(new), replicas(self.deployment));
        if has == wanted {
            return false;
        }
        let next = if has > wanted { wanted } else { self.size_of_new(has) };
        self.scale_set(new, next, plan)
    }

    fn shrink_old(&self, new: &Object, plan: &mut Plan) -> bool {
        let old = self.old();
        let old_pods: i64 = old.iter().map(|it| replicas(it)).sum();
        if old_pods == 0 {
            return false;
        }
        let least = replicas(self.deployment) - self.max_unavailable();
        let new_unavailable = replicas(new) - counted(new, "availableReplicas");
        let room = old_pods + replicas(new) - least - new_unavailable;
        if room <= 0 {
            return false;
        }
        // Unavailable replicas are removed first, starting with the oldest ReplicaSets.
        let mut sizes: Vec<(&Arc<Object>, i64)> = old.iter().map(|it| (*it, replicas(it))).collect();
        let mut left = room;
        for (set, size) in &mut sizes {
            let unhealthy = (*size - counted(set, "availableReplicas")).clamp(0, left);
            *size -= unhealthy;
            left -= unhealthy;
        }
        let available: i64 = self.sets.iter().map(|it| counted(it, "availableReplicas")).sum();
        let mut surplus = (available - least).max(0);
        for (_, size) in &mut sizes {
            let taken = surplus.min(*size);
            *size -= taken;
            surplus -= taken;
        }
        let mut scaled = false;
        for (set, size) in sizes.into_iter().filter(|(set, size)| replicas(set) != *size) {
            scaled |= self.scale_set(set, size, plan);
        }
        scaled
    }

    /// Returns `true` if the desired number changed since the ReplicaSets were last scaled.
    pub(super) fn was_scaled(&self) -> bool {
        let wanted = replicas(self.deployment).to_string();
        let active = self.sets.iter().filter(|it| replicas(it) > 0);
        let mut noted = active.filter_map(|set| annotation(set, DESIRED));
        noted.any(|it| it != wanted)
    }

    /// Scales without a rollout: the only active ReplicaSet, or all active ReplicaSets in proportion to their size.
    pub(super) fn scale(&self, plan: &mut Plan) {
        let wanted = replicas(self.deployment);
        let active: Vec<_> = self.sets.iter().copied().filter(|it| replicas(it) > 0).collect();
        let one = match active.as_slice() {
            [] => self.new.or(self.sets.last().copied()),
            [one] => Some(*one),
            [_, _, ..] => None,
        };
        if let Some(one) = one {
            self.scale_set(one, wanted, plan);
            return;
        }
        let is_saturated = self.new.is_some_and(|new| {
            replicas(new) == wanted
                && counted(new, "availableReplicas") == wanted
                && annotation(new, DESIRED) == Some(&*wanted.to_string())
        });
        if is_saturated {
            for set in self.old().into_iter().filter(|it| replicas(it) > 0) {
                self.scale_set(set, 0, plan);
            }
        } else if self.is_rolling() {
            self.scale_in_proportion(active, plan);
        }
    }

    /// Distributes an increase or decrease over the ReplicaSets in proportion to their size; the rounding error is
    /// added to the largest one.
    fn scale_in_proportion(&self, mut active: Vec<&'a Arc<Object>>, plan: &mut Plan) {
        let wanted = replicas(self.deployment);
        let present: i64 = active.iter().map(|it| replicas(it)).sum();
        let most = if wanted > 0 { wanted + self.max_surge() } else { 0 };
        let to_add = most - present;
        // Among ReplicaSets of equal size, newer ones are scaled up first, and older ones are scaled down first.
        if to_add > 0 {
            active.reverse();
        }
        active.sort_by_key(|it| std::cmp::Reverse(replicas(it)));
        let mut sizes = Vec::with_capacity(active.len());
        let mut added = 0;
        for set in &active {
            let mut size = replicas(set);
            if to_add != 0 {
                let part = self.proportion(set, to_add, added);
                size += part;
                added += part;
            }
            sizes.push(size);
        }
        if let Some(first) = sizes.first_mut()
            && to_add != 0
        {
            *first = (*first + to_add - added).max(0);
        }
        for (set, size) in active.into_iter().zip(sizes) {
            self.resize(set, size, plan);
        }
    }

    fn proportion(&self, set: &Object, to_add: i64, added: i64) -> i64 {
        let (wanted, has) = (replicas(self.deployment), replicas(set));
        let most = wanted + self.max_surge();
        let before = annotation(set, MAXIMUM)
            .and_then(|it| it.parse::<i64>().ok())
            .filter(|it| *it > 0);
        let base = before.unwrap_or(counted(self.deployment, "replicas"));
        if has == 0 || to_add == added || base == 0 {
            return 0;
        }
        let fraction = match wanted {
            0 => -has,
            _ => round_half_away(has.saturating_mul(most), base) - has,
        };
        let left = to_add - added;
        if to_add > 0 {
            fraction.min(left)
        } else {
            fraction.max(left)
        }
    }
}

/// Divides non-negative numbers, and rounds like Go's `math.Round`.
fn round_half_away(number: i64, by: i64) -> i64 {
    let rounded = (2 * i128::from(number) + i128::from(by)) / (2 * i128::from(by));
    i64::try_from(rounded).unwrap_or(i64::MAX)
}

/// Enqueues the Deployment of a removed Pod: with the strategy Recreate, the Deployment waits until all Pods of its old
/// ReplicaSets are gone.
pub(super) fn waiting_for_last_pod(change: &Changed<'_>, cluster: &Cluster, add: &mut dyn FnMut(Key)) {
    if change.resource != Resource::Pod || change.new.is_some() {
        return;
    }
    let namespace = change.key.namespace();
    if let Some((_, name, _)) = change.old.and_then(controller_of)
        && let Some(set) = cluster.find(Resource::ReplicaSet, namespace, name)
        && let Some(("Deployment", deployment, _)) = controller_of(set)
    {
        add(Key::new(namespace, deployment));
    }
}
