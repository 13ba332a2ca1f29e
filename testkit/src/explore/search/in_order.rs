//! Executes runs in virtual time on all cores, and handles results in the order of the plans, so that findings do not
//! depend on the number of cores.

use std::collections::{BTreeMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::thread;

use super::context::Runs;
use super::work::{Stop, Work};
use crate::explore::outcomes::Outcome;
use crate::explore::plans::Plan;
use crate::lock::lock;

/// Number of runs per thread that are started ahead of the next result.
const AHEAD: usize = 4;

impl Runs<'_> {
    /// Runs all plans of a source.
    pub(crate) fn all(&self, work: &mut impl Work) -> Result<(), Stop> {
        match (self.at_once)() {
            _ if self.config.timing.is_real => self.as_they_come(work),
            0 | 1 => {
                while let Some((plan, about)) = work.next() {
                    let outcome = self.one(&plan);
                    work.done(plan, about, &outcome)?;
                }
                Ok(())
            }
            threads => self.in_order(work, threads),
        }
    }

    fn in_order(&self, work: &mut impl Work, threads: usize) -> Result<(), Stop> {
        let (to_do, plans) = channel::<(u64, Plan)>();
        let (done, results) = channel();
        let (plans, is_over) = (Mutex::new(plans), AtomicBool::new(false));
        thread::scope(|scope| {
            // Dropping the sender ends the threads, so that the scope does not wait for them forever.
            let to_do = to_do;
            for number in 0..threads {
                let (done, plans, is_over) = (done.clone(), &plans, &is_over);
                let worker = move || {
                    while let Some((index, plan)) = take(plans)
                        && !is_over.load(Ordering::Relaxed)
                    {
                        let outcome = catch_unwind(AssertUnwindSafe(|| self.one(&plan)));
                        // The receiver no longer exists if the search has ended.
                        let _ = done.send((index, outcome));
                    }
                };
                let thread = thread::Builder::new().name(format!("explore {number}"));
                if let Err(err) = thread.spawn_scoped(scope, worker) {
                    assert!(number > 0, "cannot start a thread for the exploration: {err}");
                }
            }
            let (mut begun, mut early, mut count) = (VecDeque::new(), BTreeMap::new(), 0);
            loop {
                while begun.len() < threads * AHEAD
                    && let Some((plan, about)) = work.next()
                {
                    // Cannot fail, because the receiver exists as long as this function runs.
                    let _ = to_do.send((count, plan.clone()));
                    begun.push_back((count, plan, about));
                    count += 1;
                }
                let Some((first, plan, about)) = begun.pop_front() else {
                    return Ok(());
                };
                let outcome = wait_for(first, &results, &mut early);
                let outcome = outcome.unwrap_or_else(|payload| resume_unwind(payload));
                if let Err(stop) = work.done(plan, about, &outcome) {
                    is_over.store(true, Ordering::Relaxed);
                    return Err(stop);
                }
            }
        })
    }
}

/// Waits for the result of a plan, and stores results that arrive before it.
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
            Err(err) => panic!("all threads of the exploration have ended: {err}"),
        }
    }
}

/// Waits for the next plan; returns `None` after the last one.
fn take(plans: &Mutex<Receiver<(u64, Plan)>>) -> Option<(u64, Plan)> {
    lock(plans).recv().ok()
}
