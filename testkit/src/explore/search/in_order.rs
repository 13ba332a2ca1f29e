//! Runs on all cores, with results in the order of the plans, so that findings do not depend on the number of cores.

use std::collections::{BTreeMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::thread;

use super::candidates::{Candidate, Users, candidates};
use crate::explore::outcomes::{Finding, Outcome, Reference};
use crate::explore::plans::{Faults, Plan};
use crate::explore::runs::{Config, World, judged};
use crate::lock::lock;

/// Number of runs per thread that are started ahead of the next result.
const AHEAD: usize = 4;

/// Shared context of all runs of a search.
pub(crate) struct Runs<'a> {
    pub(crate) config: &'a Config,
    pub(crate) world: &'a World,
    pub(crate) reference: Arc<Reference>,
    /// Number of runs made at once.
    pub(crate) threads: usize,
}

/// A source of plans that handles their results.
pub(crate) trait Work {
    /// Data of the source for each plan.
    type About: Clone;

    /// Returns the next plan. After `None`, there may be more plans when other results have arrived.
    fn next(&mut self) -> Option<(Plan, Self::About)>;

    /// Handles a result, in the order of [`next`](Self::next).
    fn done(&mut self, plan: Plan, about: Self::About, outcome: Outcome) -> Result<(), Stop>;
}

/// Reason for the early end of a search.
pub(crate) enum Stop {
    Failed(Box<Finding>),
    Spent,
}

impl Stop {
    /// Returns the failure that ended the search, if any.
    pub(crate) fn failure(self) -> Option<Box<Finding>> {
        match self {
            Self::Failed(finding) => Some(finding),
            Self::Spent => None,
        }
    }
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

    /// Makes the run of a plan on this thread.
    pub(crate) fn one(&self, plan: &Plan) -> Outcome {
        judged(self.config, self.world, plan, &self.reference).0
    }

    /// Makes several runs of one plan at once.
    pub(crate) fn at_the_same_time(&self, plan: &Plan, count: u32) -> Vec<Outcome> {
        thread::scope(|scope| {
            let threads: Vec<_> = (0..count).map(|_| scope.spawn(|| self.one(plan))).collect();
            let outcomes = threads.into_iter().map(|it| it.join());
            outcomes
                .map(|it| it.unwrap_or_else(|payload| resume_unwind(payload)))
                .collect()
        })
    }

    /// Makes all runs of a source.
    pub(crate) fn all(&self, work: &mut impl Work) -> Result<(), Stop> {
        if self.threads <= 1 {
            while let Some((plan, about)) = work.next() {
                let outcome = self.one(&plan);
                work.done(plan, about, outcome)?;
            }
            return Ok(());
        }
        self.at_once(work)
    }

    fn at_once(&self, work: &mut impl Work) -> Result<(), Stop> {
        let (to_do, plans) = channel::<(u64, Plan)>();
        let (done, results) = channel();
        let (plans, is_over) = (Mutex::new(plans), AtomicBool::new(false));
        thread::scope(|scope| {
            // Dropping the sender ends the threads, before the scope waits for them.
            let to_do = to_do;
            for number in 0..self.threads {
                let (done, plans, is_over) = (done.clone(), &plans, &is_over);
                let worker = move || {
                    while let Some((index, plan)) = take(plans)
                        && !is_over.load(Ordering::Relaxed)
                    {
                        let outcome = catch_unwind(AssertUnwindSafe(|| self.one(&plan)));
                        // The receiver is gone if the search has ended.
                        let _ = done.send((index, outcome));
                    }
                };
                let thread = thread::Builder::new().name(format!("explore {number}"));
                if let Err(err) = thread.spawn_scoped(scope, worker) {
                    assert!(number > 0, "an exploration needs threads: {err}");
                }
            }
            let (mut begun, mut early, mut count) = (VecDeque::new(), BTreeMap::new(), 0);
            loop {
                while begun.len() < self.threads * AHEAD
                    && let Some((plan, about)) = work.next()
                {
                    // The receiver lives as long as this function.
                    let _ = to_do.send((count, plan.clone()));
                    begun.push_back((count, plan, about));
                    count += 1;
                }
                let Some((first, plan, about)) = begun.pop_front() else {
                    return Ok(());
                };
                let outcome = wait_for(first, &results, &mut early);
                let outcome = outcome.unwrap_or_else(|payload| resume_unwind(payload));
                if let Err(stop) = work.done(plan, about, outcome) {
                    is_over.store(true, Ordering::Relaxed);
                    return Err(stop);
                }
            }
        })
    }
}

/// Waits for a result, and stores results that arrive before it.
fn wait_for(
    index: u64,
    results: &Receiver<(u64, thread::Result<Outcome>)>,
    early: &mut BTreeMap<u64, thread::Result<Outcome>>,
) -> thread::Result<Outcome> {
    loop {
        if let Some(outcome) = early.remove(&index) {
            return outcome;
        }
        match results.recv() {
            Ok((at, outcome)) => drop(early.insert(at, outcome)),
            Err(err) => panic!("the threads of the exploration are gone: {err}"),
        }
    }
}

/// Waits for the next plan; `None` after the last one.
fn take(plans: &Mutex<Receiver<(u64, Plan)>>) -> Option<(u64, Plan)> {
    lock(plans).recv().ok()
}
