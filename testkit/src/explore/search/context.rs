//! `Runs`: the context that all runs of a search share.

use std::collections::BTreeMap;
use std::panic::resume_unwind;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::thread;

use super::candidates::{Candidate, Users, candidates};
use crate::explore::outcomes::{Outcome, Reference};
use crate::explore::plans::{Faults, Plan};
use crate::explore::runs::{Config, Role, World, judged, run};
use crate::lock::lock;

/// Maximum number of runs without faults that are kept.
const MOST_FAULTLESS: usize = 32;

/// The context that all runs of a search share.
pub(crate) struct Runs<'a> {
    pub(crate) config: &'a Config,
    pub(crate) world: &'a World,
    pub(crate) reference: Arc<Reference>,
    /// Returns the number of runs to execute concurrently. In real time it may change during the search.
    pub(crate) at_once: &'a (dyn Fn() -> usize + Sync),
    /// Runs without faults with which failures have been compared, by plan.
    pub(crate) faultless: Mutex<BTreeMap<Plan, Arc<Outcome>>>,
}

impl Runs<'_> {
    /// Returns `true` if another thread has ended the search.
    pub(crate) fn is_stopped(&self) -> bool {
        self.config.stop.load(Ordering::Relaxed)
    }

    /// Lists the faults that are possible from a position in the trace of a run.
    pub(crate) fn candidates(&self, outcome: &Outcome, from: usize, faults: Faults) -> Vec<Candidate> {
        let users = match self.config.timing.is_real {
            true => Users::of(&self.reference.outcome),
            false => Users::default(),
        };
        let timing = self.config.timing;
        candidates(&outcome.trace, from, &outcome.controllers, faults, timing, &users)
    }

    /// Runs a plan on this thread.
    pub(crate) fn one(&self, plan: &Plan) -> Outcome {
        self.made(plan, Role::Usual)
    }

    /// Runs a plan on this thread. It may fail early because of a wrong state.
    pub(crate) fn early(&self, plan: &Plan) -> Outcome {
        self.made(plan, Role::Tried)
    }

    /// Runs a plan on this thread, in the given role.
    pub(crate) fn made(&self, plan: &Plan, role: Role) -> Outcome {
        judged(self.config, self.world, (plan, role), &self.reference).0
    }

    /// Returns the run of a plan without faults, and keeps it for comparisons with further failures.
    pub(crate) fn faultless(&self, plan: &Plan) -> Arc<Outcome> {
        if let Some(known) = lock(&self.faultless).get(plan) {
            return Arc::clone(known);
        }
        let mut made = run(self.config, self.world, plan, Role::Resting, None);
        made.trace = Vec::new();
        let made = Arc::new(made);
        let mut known = lock(&self.faultless);
        if known.len() < MOST_FAULTLESS {
            known.insert(plan.clone(), Arc::clone(&made));
        }
        made
    }

    /// Runs a plan in real time. The run ends when the search ends.
    pub(crate) fn tried(&self, plan: &Plan) -> Outcome {
        run(self.config, self.world, plan, Role::Tried, Some(&self.reference))
    }

    /// Executes several runs of one plan concurrently.
    pub(crate) fn at_the_same_time(&self, plan: &Plan, count: u32) -> Vec<Outcome> {
        thread::scope(|scope| {
            let threads: Vec<_> = (0..count).map(|_| scope.spawn(|| self.one(plan))).collect();
            let outcomes = threads.into_iter().map(|it| it.join());
            outcomes
                .map(|it| it.unwrap_or_else(|payload| resume_unwind(payload)))
                .collect()
        })
    }
}
