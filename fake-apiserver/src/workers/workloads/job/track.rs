//! Counts each ended Pod exactly once: first its uid is recorded in the status, then its finalizer is removed, and then
//! the count is incremented.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;

use super::{INDEX, Run, indexes};
use crate::api::json::{Map, Value, json};
use crate::api::object::Object;
use crate::api::options::PatchKind;
use crate::registry::types::cursor::Cursor;
use crate::workers::workloads::plan::{Plan, Write};
use crate::workers::workloads::pods::{annotation, condition, created, phase, plus, sidecars, status, time};
use crate::workers::workloads::resource::{Resource, Target};
use crate::workers::workloads::sees::JOB_TRACKING;

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
    /// The last failed Pod of each index that needs a new Pod, in a Job with a limit for each index. It keeps its
    /// finalizer until it is replaced, because the failures of the next Pod are derived from it.
    pub(super) last_failed: BTreeMap<i64, &'a Arc<Object>>,
    recorded: Recorded,
}

/// The results in the status of a Job.
#[derive(Default)]
struct Recorded {
    /// Number of succeeded and failed Pods without the finalizer.
    succeeded: i64,
    failed: i64,
    /// The uids of further succeeded and failed Pods.
    good: Vec<String>,
    bad: Vec<String>,
    completed: BTreeSet<i64>,
}

impl Recorded {
    fn contains(&self, pod: &Object) -> bool {
        self.good.iter().chain(&self.bad).any(|uid| uid == pod.uid())
    }
}

/// Returns `true` if a Pod has the tracking finalizer.
pub(super) fn is_tracked(pod: &Object) -> bool {
    pod.finalizers().any(|it| it == JOB_TRACKING)
}

/// Removes the finalizer from a Pod. A strategic merge patch keeps finalizers that are added at the same time.
pub(super) fn release(pod: &Object, plan: &mut Plan) {
    plan.writes.push(Write::Patch {
        at: Target::of(Resource::Pod, pod),
        subresource: String::new(),
        kind: PatchKind::Strategic,
        patch: json!({"metadata": {"$deleteFromPrimitiveList/finalizers": [JOB_TRACKING]}}),
    });
}

/// Decision of a rule of the failure policy about a failed Pod.
enum Verdict {
    Count,
    Ignore,
    FailIndex,
    FailJob(String),
}

impl<'a> Run<'a> {
    /// Counts the Pods, including those that are not recorded in the status yet.
    pub(super) fn count(&self, status: &Map) -> Counted<'a> {
        let indexes = |field: &str| {
            let mut set = indexes::parse(Cursor::root(status).text(field));
            set.retain(|it| self.is_valid(*it));
            set
        };
        let recorded = self.recorded(status, indexes("completedIndexes"));
        let mut it = Counted {
            succeeded: recorded.succeeded + length(&recorded.good),
            failed: recorded.failed + length(&recorded.bad),
            completed: recorded.completed.clone(),
            failed_indexes: indexes("failedIndexes"),
            recorded,
            ..Counted::default()
        };
        for pod in self.tracked() {
            if it.recorded.contains(pod) || !self.may_count(pod) {
                continue;
            }
            if phase(pod) == "Succeeded" {
                it.succeeded += 1;
                it.completed.extend(index_of(pod).filter(|_| self.is_indexed()));
            } else if self.has_failed(pod) {
                self.count_failure(pod, &mut it);
            }
        }
        if self.is_indexed() {
            it.succeeded = i64::try_from(it.completed.len()).unwrap_or(0);
        }
        it.last_failed = self.last_failed(&it);
        it
    }

    /// Returns the Pods with the finalizer.
    fn tracked(&self) -> impl Iterator<Item = &'a Arc<Object>> {
        self.pods.iter().copied().filter(|pod| is_tracked(pod))
    }

    /// Returns the recorded results. Recorded Pods without the finalizer are added to the counts.
    fn recorded(&self, status: &Map, completed: BTreeSet<i64>) -> Recorded {
        let held: BTreeSet<&str> = self.tracked().map(|pod| pod.uid()).collect();
        let uncounted = Cursor::root(status).map_or_empty("uncountedTerminatedPods");
        let read = |field: &str| {
            let (left, gone): (Vec<&str>, Vec<&str>) =
                Cursor::root(uncounted).texts(field).partition(|uid| held.contains(uid));
            let count = Cursor::root(status).integer(field).unwrap_or(0);
            let left: Vec<String> = left.into_iter().map(str::to_owned).collect();
            (count + i64::try_from(gone.len()).unwrap_or(0), left)
        };
        let ((succeeded, good), (failed, bad)) = (read("succeeded"), read("failed"));
        Recorded {
            succeeded,
            failed,
            good,
            bad,
            completed,
        }
    }

    /// Returns `true` if the result of a Pod counts: in an Indexed Job, its index must be below the completions.
    pub(super) fn may_count(&self, pod: &Object) -> bool {
        !self.is_indexed() || index_of(pod).is_some_and(|it| self.is_valid(it))
    }

    pub(super) fn limit_per_index(&self) -> Option<i64> {
        Cursor::root(self.spec()).integer("backoffLimitPerIndex")
    }

    fn count_failure(&self, pod: &Object, it: &mut Counted<'a>) {
        match self.verdict(pod) {
            Verdict::Ignore => return,
            Verdict::FailJob(why) => drop(it.failed_by_rule.get_or_insert(why)),
            Verdict::FailIndex => it.failed_indexes.extend(index_of(pod)),
            Verdict::Count => {
                if let (Some(limit), Some(index)) = (self.limit_per_index(), index_of(pod))
                    && indexes::failures(pod) >= limit
                {
                    it.failed_indexes.insert(index);
                }
            }
        }
        it.failed += 1;
    }

    /// Returns the last failed Pods of the indexes that need a new Pod (Go's `getPodsWithDelayedDeletionPerIndex`).
    fn last_failed(&self, it: &Counted<'a>) -> BTreeMap<i64, &'a Arc<Object>> {
        let mut found: BTreeMap<i64, &Arc<Object>> = BTreeMap::new();
        if self.limit_per_index().is_none() {
            return found;
        }
        let active: BTreeSet<i64> = self.active().iter().filter_map(|pod| index_of(pod)).collect();
        let is_done =
            |index: &i64| it.completed.contains(index) || it.failed_indexes.contains(index) || active.contains(index);
        let rank = |pod: &Object| (indexes::all_failures(pod), ended_at(pod));
        for pod in self.tracked().filter(|pod| self.has_failed(pod) && self.may_count(pod)) {
            let Some(index) = index_of(pod).filter(|it| !is_done(it)) else {
                continue;
            };
            let known = found.entry(index).or_insert(pod);
            let ((count, at), (known_count, known_at)) = (rank(pod), rank(known));
            if known_count <= count && known_at <= at {
                *known = pod;
            }
        }
        found
    }

    /// Records the results of ended Pods in `next`. If the Job ends, Pods need not wait for their replacement.
    pub(super) fn track(&self, next: &mut Map, it: &mut Counted<'a>, is_ending: bool) {
        let mut new_indexes = BTreeSet::new();
        for pod in self.tracked() {
            let lists = &mut it.recorded;
            if lists.good.len() + lists.bad.len() + new_indexes.len() >= NOTED_MAX {
                break;
            }
            if lists.contains(pod) {
                it.pending.push(pod);
            } else if phase(pod) == "Succeeded" {
                it.pending.push(pod);
                if self.is_indexed() {
                    new_indexes.extend(index_of(pod).filter(|it| !lists.completed.contains(it)));
                } else {
                    lists.good.push(pod.uid().to_owned());
                }
            } else if self.has_failed(pod) {
                let waiting = index_of(pod).and_then(|index| it.last_failed.get(&index));
                if !is_ending && waiting.is_some_and(|it| it.uid() == pod.uid()) {
                    continue;
                }
                it.pending.push(pod);
                if self.may_count(pod) && !self.is_ignored(pod) {
                    lists.bad.push(pod.uid().to_owned());
                }
            }
        }
        self.write(next, it);
    }

    /// Returns `true` if a rule of the failure policy ignores the failure of a Pod.
    pub(super) fn is_ignored(&self, pod: &Object) -> bool {
        matches!(self.verdict(pod), Verdict::Ignore)
    }

    fn write(&self, next: &mut Map, it: &Counted<'_>) {
        let mut uncounted = Map::new();
        let recorded = &it.recorded;
        for (field, uids) in [("succeeded", &recorded.good), ("failed", &recorded.bad)] {
            if !uids.is_empty() {
                uncounted.insert(field.into(), uids.clone().into());
            }
        }
        next.insert("uncountedTerminatedPods".into(), uncounted.into());
        let succeeded = if self.is_indexed() {
            it.succeeded
        } else {
            recorded.succeeded
        };
        for (field, count) in [("succeeded", succeeded), ("failed", recorded.failed)] {
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
            if self.limit_per_index().is_some() {
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
        if condition(pod, kind).is_some_and(|it| Cursor::root(it).text("status") == word) {
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

/// Returns the time at which a Pod ended, which is estimated if its containers have not terminated (Go's
/// `getFinishedTime`).
pub(super) fn ended_at(pod: &Object) -> Timestamp {
    let from_deletion = || {
        let at = time(pod.meta_str("deletionTimestamp"))?;
        let grace = Cursor::root(pod).integer("metadata.deletionGracePeriodSeconds");
        Some(plus(at, -grace.unwrap_or(0)))
    };
    let unready = || {
        let ready = condition(pod, "Ready").filter(|it| Cursor::root(it).text("status") == "False")?;
        time(Cursor::root(ready).text("lastTransitionTime"))
    };
    containers_ended_at(pod)
        .or_else(unready)
        .or_else(from_deletion)
        .unwrap_or(created(pod))
}

/// Returns the time at which the last container or sidecar terminated; `None` if one of them has not terminated.
fn containers_ended_at(pod: &Object) -> Option<Timestamp> {
    let sidecars: Vec<&str> = sidecars(pod).map(|it| Cursor::root(it).text("name")).collect();
    let others = Cursor::root(pod).maps("status.initContainerStatuses");
    let others = others.filter(|it| sidecars.contains(&Cursor::root(it).text("name")));
    let containers = Cursor::root(pod).maps("status.containerStatuses").chain(others);
    let end = |container: &Map| {
        let end = Cursor::root(container).map_or_empty("state.terminated");
        time(Cursor::root(end).text("finishedAt"))
    };
    let ends: Option<Vec<Timestamp>> = containers.map(end).collect();
    ends?.into_iter().max()
}

fn length(list: &[String]) -> i64 {
    i64::try_from(list.len()).unwrap_or(i64::MAX)
}
