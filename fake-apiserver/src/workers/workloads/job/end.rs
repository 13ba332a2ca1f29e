//! Determines the completion or failure of a Job, from its successes, its failures and its deadline.

use jiff::Timestamp;

use super::track::Counted;
use super::{COMPONENT, Run, indexes};
use crate::api::json::Map;
use crate::api::object::Object;
use crate::registry::types::cursor::Cursor;
use crate::workers::workloads::plan::Plan;
use crate::workers::workloads::pods::{status, time};
use crate::workers::workloads::resource::Resource;
use crate::workers::workloads::sees::find_condition;

/// The successful or failed end of a Job.
pub(super) struct Ending {
    is_success: bool,
    reason: String,
    message: String,
}

impl Ending {
    pub(super) fn is_success(&self) -> bool {
        self.is_success
    }
}

/// Returns the time at which a Job finished.
pub(super) fn finished_at(job: &Object) -> Option<Timestamp> {
    let ends = ["Complete", "Failed"]
        .into_iter()
        .filter_map(|kind| find_condition(status(job), kind));
    let mut ends = ends.filter(|it| Cursor::root(it).text("status") == "True");
    ends.next()
        .and_then(|it| time(Cursor::root(it).text("lastTransitionTime")))
}

impl Run<'_> {
    /// Returns the ending if the Job ends in this sync, or if an earlier sync has already decided that it ends.
    pub(super) fn ending(&self, next: &Map, counted: &Counted<'_>) -> Option<Ending> {
        for (kind, is_success) in [("FailureTarget", false), ("SuccessCriteriaMet", true)] {
            if let Some(known) = find_condition(next, kind).filter(|it| Cursor::root(it).text("status") == "True") {
                let [reason, message] = ["reason", "message"].map(|field| Cursor::root(known).text(field).to_owned());
                return Some(Ending {
                    is_success,
                    reason,
                    message,
                });
            }
        }
        self.failure(counted).or_else(|| self.success(counted))
    }

    fn failure(&self, counted: &Counted<'_>) -> Option<Ending> {
        let failed = |reason: &str, message: &str| {
            Some(Ending {
                is_success: false,
                reason: reason.to_owned(),
                message: message.to_owned(),
            })
        };
        if let Some(why) = &counted.failed_by_rule {
            return failed("PodFailurePolicy", why);
        }
        let limit = Cursor::root(self.spec()).integer("backoffLimit").unwrap_or(6);
        if counted.failed > limit || self.restarts_too_often(limit) {
            return failed("BackoffLimitExceeded", "Job has reached the specified backoff limit");
        }
        let is_late = self.deadline().is_some_and(|at| at <= self.sees.now) && !self.is_suspended();
        if is_late {
            return failed("DeadlineExceeded", "Job was active longer than specified deadline");
        }
        let failures = i64::try_from(counted.failed_indexes.len()).unwrap_or(i64::MAX);
        if Cursor::root(self.spec())
            .integer("maxFailedIndexes")
            .is_some_and(|most| failures > most)
        {
            let why = "Job has exceeded the specified maximal number of failed indexes";
            return failed("MaxFailedIndexesExceeded", why);
        }
        let done = i64::try_from(counted.completed.len()).unwrap_or(0) + failures;
        if failures > 0 && self.completions().is_some_and(|all| done >= all) {
            return failed("FailedIndexes", "Job has failed indexes");
        }
        None
    }

    /// Returns `true` if the total number of container restarts within the active Pods has reached the limit. With a
    /// limit of 0, one restart is required.
    fn restarts_too_often(&self, limit: i64) -> bool {
        let pod_spec = Cursor::root(self.spec()).map_or_empty("template.spec");
        if Cursor::root(pod_spec).text("restartPolicy") != "OnFailure" {
            return false;
        }
        let active = self.active();
        let lists = ["containerStatuses", "initContainerStatuses"];
        let statuses = active
            .iter()
            .flat_map(|pod| lists.into_iter().flat_map(|list| Cursor::root(status(pod)).maps(list)));
        let restarts: i64 = statuses.filter_map(|it| Cursor::root(it).integer("restartCount")).sum();
        if limit == 0 { restarts > 0 } else { restarts >= limit }
    }

    fn success(&self, counted: &Counted<'_>) -> Option<Ending> {
        let done = |reason: &str, message: String| {
            Some(Ending {
                is_success: true,
                reason: reason.to_owned(),
                message,
            })
        };
        if let Some(rule) = self.matched_rule(counted) {
            return done("SuccessPolicy", format!("Matched rules at index {rule}"));
        }
        let is_complete = match self.completions() {
            None => counted.succeeded > 0 && self.active().is_empty(),
            Some(all) => counted.succeeded >= all,
        };
        if is_complete {
            return done(
                "CompletionsReached",
                "Reached expected number of succeeded pods".to_owned(),
            );
        }
        None
    }

    /// Returns the first matching rule of the success policy.
    fn matched_rule(&self, counted: &Counted<'_>) -> Option<usize> {
        let policy = Cursor::root(self.spec()).map_or_empty("successPolicy");
        let mut rules = Cursor::root(policy).maps("rules");
        let holds = |rule: &Map| {
            let named = indexes::parse(Cursor::root(rule).text("succeededIndexes"));
            let count = match named.is_empty() {
                true => counted.completed.len(),
                false => named.intersection(&counted.completed).count(),
            };
            let least = Cursor::root(rule)
                .integer("succeededCount")
                .and_then(|it| usize::try_from(it).ok());
            let least = least.or((!named.is_empty()).then_some(named.len()));
            least.is_some_and(|least| count >= least)
        };
        let found = rules.position(holds);
        found.filter(|_| !Cursor::root(policy).is_empty("rules"))
    }

    /// Records in the conditions that the Job is about to end. Once this was written and `is_over` is set, records that
    /// the Job has ended.
    pub(super) fn put_ending(
        &self,
        next: &mut Map,
        ending: &Ending,
        is_over: bool,
        counted: &Counted<'_>,
        plan: &mut Plan,
    ) {
        let Ending {
            is_success,
            reason,
            message,
        } = ending;
        let (target, end) = if *is_success {
            ("SuccessCriteriaMet", "Complete")
        } else {
            ("FailureTarget", "Failed")
        };
        if find_condition(next, target).is_none() {
            return self.put_condition(next, target, "True", reason, message);
        }
        if !is_over {
            return;
        }
        self.put_condition(next, end, "True", reason, message);
        let about = (Resource::Job, self.job);
        if *is_success {
            next.insert("completionTime".into(), self.sees.stamp().into());
            if self.completions().is_some_and(|all| counted.succeeded > all) {
                let message = "Too many succeeded pods running after completion count reached";
                plan.warn(about, COMPONENT, "TooManySucceededPods", message.to_owned());
            }
            plan.note(about, COMPONENT, "Completed", "Job completed".to_owned());
        } else {
            let reason = match reason.as_str() {
                "BackoffLimitExceeded" => "BackoffLimitExceeded",
                "DeadlineExceeded" => "DeadlineExceeded",
                "PodFailurePolicy" => "PodFailurePolicy",
                "MaxFailedIndexesExceeded" => "MaxFailedIndexesExceeded",
                _ => "FailedIndexes",
            };
            plan.warn(about, COMPONENT, reason, message.clone());
        }
    }
}
