//! Runs on all cores, whose results come in the order of the plans: what is found does not depend on how many cores
//! there are.

use std::collections::{BTreeMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::thread;

use super::cluster::World;
use super::plan::Plan;
use super::run::{Config, Outcome, Reference};
use super::search::Stop;
use super::spec::judged;
use crate::test_cluster::lock;

/// Runs that are begun ahead of the one whose result is looked at next, for each thread.
const AHEAD: usize = 4;

/// Shared context of all runs of a search.
pub(crate) struct Runs<'a> {
    pub(crate) config: &'a Config,
    pub(crate) world: &'a World,
    pub(crate) reference: Arc<Reference>,
    /// Number of runs made at once.
    pub(crate) threads: usize,
}

/// Plans that are known so far, and what becomes of their results.
pub(crate) trait Work {
    /// Data kept beside a plan.
    type About: Clone;

    /// The next plan, if one is known. There may be more when the results of others are in.
    fn next(&mut self) -> Option<(Plan, Self::About)>;

    /// Takes a result, in the order of [`next`](Self::next).
    fn done(&mut self, plan: Plan, about: Self::About, outcome: Outcome) -> Result<(), Stop>;
}

impl Runs<'_> {
    /// Makes the run of a plan, here and now.
    pub(crate) fn one(&self, plan: &Plan) -> Outcome {
        judged(self.config, self.world, plan, &self.reference).0
    }

    /// Makes all runs of a piece of work.
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
            // When it is dropped, before the threads are waited for, they end.
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

/// Waits for a result; those that come before it are kept.
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

/// Waits for the next plan; `None` if there will be none.
fn take(plans: &Mutex<Receiver<(u64, Plan)>>) -> Option<(u64, Plan)> {
    lock(plans).recv().ok()
}
