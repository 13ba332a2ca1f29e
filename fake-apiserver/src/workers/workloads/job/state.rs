//! `Run`: a Job and its Pods during a sync.

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::Timestamp;

use super::super::back_off::Failures;
use super::super::pods::{self, is_finished, phase, spec};
use super::super::sees::Sees;
use super::track;
use crate::api::json::Map;
use crate::api::object::Object;
use crate::registry::types::cursor::Cursor;

/// A Job and its Pods during a sync.
pub(super) struct Run<'a> {
    pub(super) job: &'a Object,
    pub(super) sees: &'a Sees<'a>,
    pub(super) pods: Vec<&'a Arc<Object>>,
    /// End of the backoff after the last failures.
    pub(super) back_off: Option<Timestamp>,
}

impl<'a> Run<'a> {
    pub(super) fn spec(&self) -> &'a Map {
        spec(self.job)
    }

    pub(super) fn is_suspended(&self) -> bool {
        Cursor::root(self.spec()).flag("suspend") == Some(true)
    }

    pub(super) fn is_indexed(&self) -> bool {
        Cursor::root(self.spec()).text("completionMode") == "Indexed"
    }

    pub(super) fn completions(&self) -> Option<i64> {
        Cursor::root(self.spec()).integer("completions")
    }

    /// Adds new failures to the record, and returns the end of the backoff.
    pub(super) fn back_off_end(&self, record: &mut Failures) -> Option<Timestamp> {
        let of = |counts: &dyn Fn(&Object) -> bool| -> Vec<(&str, Timestamp)> {
            let is_valid = |pod: &&&Arc<Object>| track::is_tracked(pod) && self.may_count(pod) && counts(pod);
            let pods = self.pods.iter().filter(is_valid);
            pods.map(|pod| (pod.uid(), track::ended_at(pod))).collect()
        };
        let existing: BTreeSet<&str> = self.pods.iter().map(|pod| pod.uid()).collect();
        record.retain(|uid| existing.contains(uid));
        record.add(&of(&|pod| phase(pod) == "Succeeded"), &of(&|pod| self.has_failed(pod)));
        record.end()
    }

    /// Returns `true` if an index is below the completions.
    pub(super) fn is_valid(&self, index: i64) -> bool {
        self.completions().is_some_and(|all| (0..all).contains(&index))
    }

    /// Returns the active Pods.
    pub(super) fn active(&self) -> Vec<&'a Arc<Object>> {
        self.pods.iter().copied().filter(|it| pods::is_active(it)).collect()
    }

    /// Returns the number of Pods that are being deleted but have not ended.
    pub(super) fn terminating(&self) -> usize {
        self.pods
            .iter()
            .filter(|it| it.is_terminating() && !is_finished(it))
            .count()
    }

    /// Returns `true` if a Pod is counted as failed. This includes a Pod that is being deleted, unless it has succeeded
    /// or `podReplacementPolicy` is `Failed`.
    pub(super) fn has_failed(&self, pod: &Object) -> bool {
        if phase(pod) == "Failed" {
            return true;
        }
        let replaced_only_failed = Cursor::root(self.spec()).text("podReplacementPolicy") == "Failed";
        pod.is_terminating() && phase(pod) != "Succeeded" && !replaced_only_failed
    }
}
