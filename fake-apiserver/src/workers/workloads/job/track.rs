//! Counts each ended Pod exactly once: first its uid is recorded in the status, then its finalizer is removed, and then
//! the count is incremented.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::{INDEX, Run, TRACKED, indexes};
use crate::api::json::{Map, Value, json};
use crate::api::object::Object;
use crate::registry::types::cursor::Cursor;
use crate::workers::workloads::plan::Plan;
use crate::workers::workloads::pods::{annotation, is_finished, phase, status};
use crate::workers::workloads::resource::Resource;

/// Maximum number of Pods that are recorded in one write of the status; the next write records further ones.
const NOTED_MAX: usize = 500;

/// The results of a Job's Pods so far.
#[derive(Default)]
pub(super) struct Counted<'a> {
    pub(super) succeeded: i64,
    pub(super) failed: i64,
    /// Pods that have been recorded, so that their finalizer may be removed.
    pub(super) pending: Vec<&'a Arc<Object>>,
    pub(super) completed: BTreeSet<i64>,
    pub(super) failed_indexes: BTreeSet<i64>,
    /// Reason why a rule of the failure policy fails the Job.
    pub(super) failed_by_rule: Option<String>,
}

/// Returns `true` if a Pod has the tracking finalizer.
pub(super) fn is_tracked(pod: &Object) -> bool {
    pod.finalizers().any(|it| it == TRACKED)
}

/// Removes the finalizer from a Pod.
pub(super) fn release(pod: &Object, plan: &mut Plan) {
    let left: Vec<&str> = pod.finalizers().filter(|it| *it != TRACKED).collect();
    let finalizers = if left.is_empty() { Value::Null } else { json!(left) };
    plan.merge(Resource::Pod, pod, json!({"metadata": {"finalizers": finalizers}}));
}

/// Decision of a rule of the failure policy about a failed Pod.
enum Verdict {
    Count,
    Ignore,
    FailIndex,
    FailJob(String),
}

impl<'a> Run<'a> {
    /// Updates the counts in `next` from the Pods.
    pub(super) fn count(&self, next: &mut Map) -> Counted<'a> {
        let recorded = |field: &str| {
            let mut set = indexes::parse(Cursor::root(next).text(field));
            set.retain(|it| self.is_valid(*it));
            set
        };
        let mut it = Counted {
            succeeded: Cursor::root(next).integer("succeeded").unwrap_or(0),
            failed: Cursor::root(next).integer("failed").unwrap_or(0),
            completed: recorded("completedIndexes"),
            failed_indexes: recorded("failedIndexes"),
            ..Counted::default()
        };
        let held: BTreeSet<&str> = self
            .pods
            .iter()
            .filter(|pod| is_tracked(pod))
            .map(|pod| pod.uid())
            .collect();
        let uncounted = Cursor::root(next).map_or_empty("uncountedTerminatedPods").clone();
        let noted = |field: &str| -> Vec<String> { Cursor::root(&uncounted).texts(field).map(str::to_owned).collect() };
        let (mut good, mut bad) = (noted("succeeded"), noted("failed"));
        // Recorded Pods whose finalizer has been removed are added to the counts.
        for (list, count) in [(&mut good, &mut it.succeeded), (&mut bad, &mut it.failed)] {
            let before = list.len();
            list.retain(|uid| held.contains(uid.as_str()));
            *count += i64::try_from(before - list.len()).unwrap_or(0);
        }
        for pod in self.pods.iter().copied().filter(|pod| is_tracked(pod)) {
            if good.len() + bad.len() >= NOTED_MAX {
                break;
            }
            let is_noted = good.iter().chain(&bad).any(|uid| uid == pod.uid());
            if is_noted {
                it.pending.push(pod);
            } else if phase(pod) == "Succeeded" {
                it.pending.push(pod);
                let index = self.valid_index(pod);
                if self.is_indexed() && index.is_none_or(|index| it.completed.contains(&index)) {
                    continue;
                }
                it.completed.extend(index);
                good.push(pod.uid().to_owned());
            } else if self.has_failed(pod) && (is_finished(pod) || pod.is_terminating()) {
                it.pending.push(pod);
                if !self.is_indexed() || self.valid_index(pod).is_some() {
                    self.count_failure(pod, &mut it, &mut bad);
                }
            }
        }
        self.write(next, &it, &good, &bad);
        it.succeeded += i64::try_from(good.len()).unwrap_or(0);
        it.failed += i64::try_from(bad.len()).unwrap_or(0);
        if self.is_indexed() {
            it.succeeded = i64::try_from(it.completed.len()).unwrap_or(0);
        }
        it
    }

    /// Returns the index of a Pod, if it is below the completions.
    fn valid_index(&self, pod: &Object) -> Option<i64> {
        index_of(pod).filter(|it| self.is_valid(*it))
    }

    fn count_failure(&self, pod: &Object, it: &mut Counted<'a>, bad: &mut Vec<String>) {
        match self.verdict(pod) {
            Verdict::Ignore => return,
            Verdict::FailJob(why) => it.failed_by_rule = Some(why),
            Verdict::FailIndex => it.failed_indexes.extend(index_of(pod)),
            Verdict::Count => {
                if let (Some(limit), Some(index)) =
                    (Cursor::root(self.spec()).integer("backoffLimitPerIndex"), index_of(pod))
                    && indexes::failures(pod) >= limit
                {
                    it.failed_indexes.insert(index);
                }
            }
        }
        bad.push(pod.uid().to_owned());
    }

    fn write(&self, next: &mut Map, it: &Counted<'_>, good: &[String], bad: &[String]) {
        let mut uncounted = Map::new();
        for (field, uids) in [("succeeded", good), ("failed", bad)] {
            if !uids.is_empty() {
                uncounted.insert(field.into(), uids.to_vec().into());
            }
        }
        next.insert("uncountedTerminatedPods".into(), uncounted.into());
        let succeeded = match self.is_indexed() {
            true => i64::try_from(it.completed.len()).unwrap_or(0) - i64::try_from(good.len()).unwrap_or(0),
            false => it.succeeded,
        };
        for (field, count) in [("succeeded", succeeded), ("failed", it.failed)] {
            match count {
                0 => next.remove(field),
                _ => next.insert(field.into(), count.into()),
            };
        }
        if self.is_indexed() {
            let text = indexes::print(&it.completed);
            match text.is_empty() {
                true => next.remove("completedIndexes"),
                false => next.insert("completedIndexes".into(), text.into()),
            };
            if Cursor::root(self.spec()).integer("backoffLimitPerIndex").is_some() {
                next.insert("failedIndexes".into(), indexes::print(&it.failed_indexes).into());
            }
        }
    }

    /// Returns the decision of the first applicable rule of the failure policy.
    fn verdict(&self, pod: &Object) -> Verdict {
        let policy = Cursor::root(self.spec()).map_or_empty("podFailurePolicy");
        for (index, rule) in Cursor::root(policy).maps("rules").enumerate() {
            let Some(why) = applies(rule, pod) else { continue };
            return match Cursor::root(rule).text("action") {
                "Ignore" => Verdict::Ignore,
                "FailIndex" => Verdict::FailIndex,
                "FailJob" => Verdict::FailJob(format!("{why} matching FailJob rule at index {index}")),
                _ => Verdict::Count,
            };
        }
        Verdict::Count
    }
}

/// Returns the reason if a rule applies to a Pod.
fn applies(rule: &Map, pod: &Object) -> Option<String> {
    let named = format!("pod {}/{}", pod.namespace(), pod.name());
    if let Some(codes) = rule.get("onExitCodes").and_then(Value::as_object) {
        let wanted = Cursor::root(codes).text("containerName");
        let values: Vec<i64> = Cursor::root(codes)
            .list("values")
            .iter()
            .filter_map(Value::as_i64)
            .collect();
        let statuses = ["containerStatuses", "initContainerStatuses"];
        for container in statuses
            .into_iter()
            .flat_map(|list| Cursor::root(status(pod)).maps(list))
        {
            let end = Cursor::root(container).map_or_empty("state.terminated");
            let Some(code) = Cursor::root(end).integer("exitCode").filter(|code| *code != 0) else {
                continue;
            };
            let name = Cursor::root(container).text("name");
            let is_listed = values.contains(&code) == (Cursor::root(codes).text("operator") == "In");
            if is_listed && (wanted.is_empty() || wanted == name) {
                return Some(format!("Container {name} for {named} failed with exit code {code}"));
            }
        }
    }
    for pattern in Cursor::root(rule).maps("onPodConditions") {
        let kind = Cursor::root(pattern).text("type");
        let word = if Cursor::root(pattern).is_empty("status") {
            "True"
        } else {
            Cursor::root(pattern).text("status")
        };
        let condition = crate::workers::workloads::pods::condition(pod, kind);
        if condition.is_some_and(|it| Cursor::root(it).text("status") == word) {
            let capital = named.replacen('p', "P", 1);
            return Some(format!("{capital} has condition {kind}"));
        }
    }
    None
}

/// Returns the index of a Pod.
pub(super) fn index_of(pod: &Object) -> Option<i64> {
    annotation(pod, INDEX)?.parse().ok()
}

/// Returns the time at which a Pod ended.
pub(super) fn ended_at(pod: &Object) -> Option<jiff::Timestamp> {
    let end = |container: &Map| {
        let end = Cursor::root(container).map_or_empty("state.terminated");
        crate::workers::workloads::pods::time(Cursor::root(end).text("finishedAt"))
    };
    Cursor::root(pod).maps("status.containerStatuses").filter_map(end).max()
}
