//! Executes runs in real time. Their durations differ, so results are handled in the order of arrival, and the next run
//! begins as soon as a result has arrived. Failures are confirmed in the order of their plans, so that the report
//! depends only on the outcomes.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::thread::Scope;
use std::time::Duration;

use super::confirm::{Confirmation, confirm};
use super::context::Runs;
use super::work::{Stop, Work};
use crate::explore::outcomes::{Outcome, Violation};
use crate::explore::plans::Plan;

/// Maximum number of failing runs that are kept until they can be confirmed. When the limit is reached, no further runs
/// begin.
const DOUBTFUL_MAX: usize = 256;

/// Maximum number of failures that are confirmed concurrently. Further failures are kept until a confirmation ends.
const CONFIRMING: usize = 3;

/// The part of the search to which a plan belongs, and the ordinal of the plan.
type Place = (usize, u64);

/// A result that a thread has sent.
enum Arrived {
    Run(Place, Box<Outcome>),
    Confirmation(Place, Box<Confirmation>),
}

/// A failing run that has not been confirmed yet.
struct Doubtful {
    plan: Plan,
    outcome: Box<Outcome>,
    /// Number of results at the time of this run, including its own.
    made: u64,
}

impl Doubtful {
    fn topic(&self) -> Option<String> {
        self.outcome.violations.first().map(Violation::topic)
    }
}

/// The confirmations in progress, each with the number of results at the time of the failure and the topic of the
/// failure. Another failure with the same topic waits, because it is only confirmed if this confirmation fails.
type Confirming = BTreeMap<Place, (u64, Option<String>)>;

/// Functions that run plans and confirm failures, and the state of the search.
pub(super) struct Jobs<'a> {
    /// Returns the number of runs to execute concurrently.
    pub(super) at_once: &'a dyn Fn() -> usize,
    pub(super) is_stopped: &'a dyn Fn() -> bool,
    /// Set when the search is over, which ends the runs in progress.
    pub(super) is_over: &'a AtomicBool,
    pub(super) run: &'a (dyn Fn(&Plan) -> Outcome + Sync),
    /// Confirms a failure, and minimises it within a time limit.
    pub(super) confirm: &'a (dyn Fn(&Plan, &Outcome, Duration) -> Confirmation + Sync),
}

impl Runs<'_> {
    /// Runs all plans of a source in real time.
    pub(super) fn as_they_come(&self, work: &mut impl Work) -> Result<(), Stop> {
        let jobs = Jobs {
            at_once: &self.at_once,
            is_stopped: &|| self.is_stopped(),
            is_over: &self.config.is_over,
            run: &|plan| self.tried(plan),
            confirm: &|plan, outcome, limit| confirm(self, plan, outcome, limit),
        };
        as_they_come(&jobs, work)
    }
}

/// Runs a job on a separate thread, and sends its result.
fn start<'scope>(
    scope: &'scope Scope<'scope, '_>,
    done: &Sender<thread::Result<Arrived>>,
    job: impl FnOnce() -> Arrived + Send + 'scope,
) {
    let done = done.clone();
    scope.spawn(move || {
        // The receiver exists as long as the scope, unless another thread has panicked.
        let _ = done.send(catch_unwind(AssertUnwindSafe(job)));
    });
}

/// Runs all plans of a source. At the end of the search, waits for the runs in progress and confirms their failures
/// until the time limit is reached; then ends the runs, and waits for the confirmation in progress.
fn as_they_come<W: Work>(jobs: &Jobs<'_>, work: &mut W) -> Result<(), Stop> {
    let Jobs { run, confirm, .. } = *jobs;
    let (done, arrivals) = channel::<thread::Result<Arrived>>();
    thread::scope(|scope| {
        let (mut begun, mut doubtful, mut count) = (BTreeMap::new(), BTreeMap::<Place, _>::new(), 0_u64);
        let mut confirming = Confirming::new();
        let mut stop = None;
        loop {
            let remaining = work.judge().remaining();
            if stop.is_some() && remaining.is_zero() {
                jobs.is_over.store(true, Ordering::Relaxed);
                give_up(work, std::mem::take(&mut doubtful));
            }
            let (made, most) = work.judge().made();
            let room = usize::try_from(most.saturating_sub(made)).unwrap_or(usize::MAX);
            // If a confirmed failure would end the search, do not begin further runs while a failure is waiting for its
            // confirmation.
            let is_decisive = (!confirming.is_empty() || !doubtful.is_empty()) && work.judge().needs_one();
            while stop.is_none()
                && !is_decisive
                && doubtful.len() < DOUBTFUL_MAX
                && begun.len() < room
                && begun.len() + confirming.len() < (jobs.at_once)().max(1)
                && let Some((plan, about)) = work.next()
            {
                let place = (work.part(&about), count);
                begun.insert(place, (plan.clone(), about));
                start(scope, &done, move || Arrived::Run(place, Box::new(run(&plan))));
                count += 1;
            }
            let first_begun = begun.keys().next().copied().unwrap_or((usize::MAX, 0));
            let is_next = |part: usize, number, work: &W| {
                let is_open = stop.is_none() && part > 0 && work.is_open(part - 1);
                (part, number) < first_begun && !is_open
            };
            while confirming.len() < CONFIRMING.min((jobs.at_once)().max(1))
                && let Some(place) = next_doubtful(&doubtful, &confirming)
                && is_next(place.0, place.1, work)
                && let Some(first) = doubtful.remove(&place)
            {
                let topic = first.topic();
                let Doubtful { plan, outcome, made } = first;
                let violation = outcome.violations.first();
                if !(jobs.is_stopped)() && violation.is_some_and(|it| work.judge().must_confirm(it)) {
                    confirming.insert(place, (made, topic));
                    let limit = work.judge().shrinking();
                    start(scope, &done, move || {
                        Arrived::Confirmation(place, Box::new(confirm(&plan, &outcome, limit)))
                    });
                }
            }
            if begun.is_empty() && confirming.is_empty() {
                return stop.map_or(Ok(()), Err);
            }
            let is_over = jobs.is_over.load(Ordering::Relaxed);
            let time = if is_over { Duration::MAX } else { remaining };
            let Some(arrived) = next(&arrivals, time) else {
                stop = stop.or(Some(Stop::Spent));
                continue;
            };
            let handled = match arrived {
                Arrived::Run(place, outcome) => match begun.remove(&place) {
                    // When the search is over, the run may have been ended early.
                    Some((plan, about)) if !is_over => handle(work, (place, plan, about), outcome, &mut doubtful),
                    _ => continue,
                },
                Arrived::Confirmation(place, confirmation) => match confirming.remove(&place) {
                    Some((made, _)) => work.judge().confirmed(*confirmation, made),
                    None => Ok(()),
                },
            };
            stop = stop.or(handled.err());
        }
    })
}

/// Returns the next failure to confirm: the first one with a topic of which no failure is being confirmed.
fn next_doubtful(doubtful: &BTreeMap<Place, Doubtful>, confirming: &Confirming) -> Option<Place> {
    let is_free = |it: &Doubtful| {
        let topic = it.topic();
        !confirming.values().any(|(_, other)| *other == topic)
    };
    let mut free = doubtful.iter().filter(|(_, it)| is_free(it));
    free.next().map(|(place, _)| *place)
}

/// Waits for the next result, at most for `time`.
fn next(arrivals: &Receiver<thread::Result<Arrived>>, time: Duration) -> Option<Arrived> {
    match arrivals.recv_timeout(time) {
        Ok(arrived) => Some(arrived.unwrap_or_else(|payload| resume_unwind(payload))),
        Err(RecvTimeoutError::Timeout) => None,
        Err(RecvTimeoutError::Disconnected) => panic!("all threads of the exploration have ended"),
    }
}

/// Reports the failures that could not be confirmed in time.
fn give_up<W: Work>(work: &mut W, doubtful: BTreeMap<Place, Doubtful>) {
    for Doubtful { plan, outcome, .. } in doubtful.into_values() {
        if let Some(violation) = outcome.violations.first() {
            work.judge().unconfirmed(plan, violation.clone());
        }
    }
}

/// Handles the result of a run. Keeps the run for a confirmation if it fails.
fn handle<W: Work>(
    work: &mut W,
    (place, plan, about): (Place, Plan, W::About),
    outcome: Box<Outcome>,
    doubtful: &mut BTreeMap<Place, Doubtful>,
) -> Result<(), Stop> {
    let handled = work.done(plan.clone(), about, &outcome);
    if !outcome.violations.is_empty() {
        let made = work.judge().made().0;
        doubtful.insert(place, Doubtful { plan, outcome, made });
    }
    handled
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use crate::explore::machine::WallClock;
    use crate::explore::plans::{Action, Fault, SHORT};
    use crate::explore::search::confirm::Confirmed;
    use crate::explore::search::work::Judge;
    use crate::lock::lock;

    /// A list of plans, which records their results.
    struct Numbered {
        plans: std::vec::IntoIter<Plan>,
        handled: Vec<String>,
        confirmed: Vec<String>,
        unconfirmed: Vec<String>,
        most: u64,
        time: Duration,
        clock: WallClock,
        tell: Sender<String>,
    }

    fn name(plan: &Plan) -> String {
        plan.faults[0].point.clone()
    }

    impl Work for Numbered {
        type About = ();

        fn next(&mut self) -> Option<(Plan, ())> {
            self.plans.next().map(|it| (it, ()))
        }

        fn done(&mut self, plan: Plan, (): (), _: &Outcome) -> Result<(), Stop> {
            self.handled.push(name(&plan));
            // Ignore errors: the run may have ended.
            let _ = self.tell.send(name(&plan));
            Ok(())
        }

        fn judge(&mut self) -> &mut dyn Judge {
            self
        }
    }

    impl Judge for Numbered {
        fn made(&self) -> (u64, u64) {
            (self.handled.len() as u64, self.most)
        }

        fn must_confirm(&mut self, _: &Violation) -> bool {
            true
        }

        fn shrinking(&self) -> Duration {
            Duration::ZERO
        }

        fn remaining(&self) -> Duration {
            self.time.saturating_sub(self.clock.elapsed())
        }

        fn needs_one(&self) -> bool {
            false
        }

        fn unconfirmed(&mut self, plan: Plan, _: Violation) {
            self.unconfirmed.push(name(&plan));
        }

        fn confirmed(&mut self, confirmation: Confirmation, made: u64) -> Result<(), Stop> {
            if let Confirmed::FirstCome(plan) = confirmation.result {
                self.confirmed.push(format!("{plan} of {made}"));
            }
            Ok(())
        }
    }

    /// Runs the plans `0` to `3`, two concurrently; `1` and `2` fail. The run of `0` ends when the result of the plan
    /// `last` has been handled, or when the search is over.
    fn explored(last: &str, most: u64, time: Duration) -> Numbered {
        explored_with(["same", "same"], (last, most, time), &|plan, _, _| Confirmation {
            result: Confirmed::FirstCome(name(plan)),
            took: Duration::ZERO,
        })
    }

    /// Same as `explored`, with the messages of the failures and a function that confirms them.
    fn explored_with(
        [first, second]: [&str; 2],
        (last, most, time): (&str, u64, Duration),
        confirm: &(dyn Fn(&Plan, &Outcome, Duration) -> Confirmation + Sync),
    ) -> Numbered {
        let action = Action {
            fault: Fault::CrashAfter,
            value: SHORT,
        };
        let (tell, told): (Sender<String>, Receiver<String>) = channel();
        let told = Mutex::new(told);
        let plans: Vec<Plan> = (0..4).map(|it| Plan::single(&it.to_string(), action)).collect();
        let mut work = Numbered {
            plans: plans.into_iter(),
            handled: Vec::new(),
            confirmed: Vec::new(),
            unconfirmed: Vec::new(),
            most,
            time,
            clock: WallClock::start(),
            tell,
        };
        let is_over = AtomicBool::new(false);
        let run = |plan: &Plan| {
            let mut outcome = Outcome::default();
            match name(plan).as_str() {
                "0" => {
                    let told = lock(&told);
                    while !is_over.load(Ordering::Relaxed) && told.try_recv().ok().as_deref() != Some(last) {
                        thread::yield_now();
                    }
                }
                "1" => outcome.violations.push(Violation::new("it", first.to_owned())),
                "2" => outcome.violations.push(Violation::new("it", second.to_owned())),
                _ => {}
            }
            outcome
        };
        let jobs = Jobs {
            at_once: &|| 2,
            is_stopped: &|| false,
            is_over: &is_over,
            run: &run,
            confirm,
        };
        let is_spent = as_they_come(&jobs, &mut work).is_err();
        assert_eq!(is_spent, is_over.into_inner());
        work
    }

    const LONG: Duration = Duration::from_secs(3600);

    #[test]
    fn slow_run_does_not_delay_the_results_of_other_runs() {
        let work = explored("3", 4, LONG);
        assert_eq!(work.handled, ["1", "2", "3", "0"]);
    }

    #[test]
    fn failures_are_confirmed_in_plan_order_after_earlier_runs() {
        let work = explored("3", 4, LONG);
        assert_eq!(work.confirmed, ["1 of 1", "2 of 2"]);
    }

    #[test]
    fn different_failures_are_confirmed_concurrently() {
        let confirming = std::sync::Barrier::new(2);
        let confirm = |plan: &Plan, _: &Outcome, _: Duration| {
            // Without the other confirmation, this never returns.
            confirming.wait();
            Confirmation {
                result: Confirmed::FirstCome(name(plan)),
                took: Duration::ZERO,
            }
        };
        let work = explored_with(["one", "another"], ("3", 4, LONG), &confirm);
        assert_eq!(work.confirmed.len(), 2);
    }

    #[test]
    fn number_of_runs_does_not_exceed_the_budget() {
        let work = explored("1", 2, LONG);
        assert_eq!(work.handled, ["1", "0"]);
    }
    #[test]
    fn runs_in_progress_end_when_time_runs_out_and_failures_are_not_confirmed() {
        let work = explored("never", 4, Duration::from_millis(1));
        assert_eq!(work.confirmed, [""; 0]);
        assert!(!work.handled.contains(&"0".to_owned()), "{:?}", work.handled);
        let failed = work.handled.iter().filter(|it| ["1", "2"].contains(&it.as_str()));
        assert_eq!(work.unconfirmed.len(), failed.count());
    }
}
