//! The order of the search: the reference, the most likely single faults and pairs, all single faults, pairs of
//! different kinds, delivery orders, then swarms.

use std::collections::{BTreeMap, BTreeSet, HashSet, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use super::candidates::{Candidate, early};
use super::coverage::Coverage;
use super::failures::Failures;
use super::in_order::{Runs, Stop, Work};
use super::late_start::depends_on_the_first;
use super::random::Random;
use super::shard::Shard;
use super::turns::in_turns;
use crate::explore::machine::WallClock;
use crate::explore::outcomes::{Nondeterminism, Outcome};
use crate::explore::plans::{Action, Fault, Faults, Kind, OnRun, Plan, given};
use crate::explore::runs::{Config, sequence};
use crate::explore::specs::{BACK, Spec, is_late};
use crate::explore::trace::{LEASES, Step, What};
use crate::test_cluster::TEST_CLIENT;

/// Maximum number of faults of a swarm.
const SWARM_FAULTS: u64 = 5;

/// Maximum number of follow-up faults that are kept for all first faults together; for each of them, the most likely
/// are kept. About 100 bytes each.
const SECONDS: usize = 500_000;

/// Number of interesting plans from which a swarm starts; the oldest are dropped.
const SWARM_SEEDS: usize = 256;

/// Number of random plans that are generated before any of them is run.
const BATCH: usize = 32;

/// Highest rank of a likely fault. Likely faults are tried first, and combined with each change of a spec before two
/// changes are combined.
const LIKELY: u8 = 2;

/// Limits at which a search stops.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Maximum processor time of all runs; with a clock, maximum real time since its start.
    pub(crate) time: Duration,
    pub(crate) clock: Option<WallClock>,
    pub(crate) schedules: u64,
}

/// A running exploration.
pub(crate) struct Search<'a> {
    pub(crate) runs: &'a Runs<'a>,
    pub(crate) faults: Faults,
    pub(crate) limits: Limits,
    /// The part of the search that this process makes.
    pub(crate) shard: Shard,
    pub(crate) seed: u64,
    /// Called after each run with the coverage so far.
    pub(crate) progress: &'a mut dyn FnMut(&Coverage),
    pub(crate) coverage: Coverage,
    pub(crate) seen: BTreeSet<u64>,
    pub(crate) held: BTreeSet<usize>,
    pub(crate) nondeterminism: Vec<Nondeterminism>,
    /// Set if there were too many pairs or orders to try all.
    pub(crate) is_cut: bool,
    /// Hashes of the swarm's plans. A plan is skipped if its hash collides with another.
    pub(crate) known: HashSet<u64>,
    pub(crate) asides: Asides,
    pub(crate) kinds: Kinds,
    pub(crate) failures: Failures,
    /// Coverage at the time of the first failure, which the report contains.
    pub(crate) coverage_at_failure: Option<Coverage>,
}

/// Kinds of single faults.
#[derive(Debug, Default)]
pub(crate) struct Kinds {
    possible: BTreeSet<Kind>,
    tried: BTreeSet<Kind>,
}

/// Observations in runs that did not fail.
#[derive(Debug, Default)]
pub(crate) struct Asides {
    /// Plan of the first run with a slow end state, and its delay.
    late: Option<(Duration, Plan)>,
    /// Number of times each controller ended by itself and was restarted, in all runs.
    ended: BTreeMap<Arc<str>, u32>,
    /// Descriptions of values that were assigned to objects in another order than in the reference, and the first plan
    /// with such values.
    permuted: Option<(Vec<String>, Plan)>,
    /// Description of the first end state that depends on the order of arrival.
    pub(crate) first_come: Option<String>,
    /// Number of plans that were not examined, because they failed like other plans.
    pub(crate) repeated: u64,
    /// Resources and paths of fields that are excluded from comparisons, because they differed in only some runs of a
    /// plan.
    pub(crate) unsteady: BTreeSet<(String, String)>,
}

impl Asides {
    pub(crate) fn take(&mut self, plan: &Plan, outcome: &Outcome) {
        if let (Some(late), None) = (outcome.late, &self.late) {
            self.late = Some((late, plan.clone()));
        }
        if let (None, false) = (&self.permuted, outcome.permuted.is_empty()) {
            self.permuted = Some((outcome.permuted.clone(), plan.clone()));
        }
        for (client, times) in &outcome.ended {
            *self.ended.entry(Arc::clone(client)).or_default() += times;
        }
    }

    /// Describes the observations.
    pub(crate) fn notes(&self, config: &Config) -> Vec<String> {
        let late = self.late.iter().map(|(late, plan)| {
            format!(
                "the end state was not right until {late:?} after the last fault, which is slow but does not fail the \
                 run; use `.within(…)` if more than {:?} is expected (to replay: EXPLORE_REPLAY='{plan}')",
                config.within
            )
        });
        let ended = self.ended.iter().map(|(client, times)| {
            format!(
                "{} ended by itself and was restarted {times} times over all runs",
                given(client)
            )
        });
        let permuted = self.permuted.iter().map(|(values, plan)| {
            format!(
                "values are assigned in the order of arrival, which differs in some runs: {} (to replay: \
                 EXPLORE_REPLAY='{plan}')",
                values.join("; ")
            )
        });
        let first_come = self.first_come.iter().cloned();
        let repeated = (self.repeated > 0).then(|| format!("{} more plans fail with the same message", self.repeated));
        let unsteady = (!self.unsteady.is_empty()).then(|| {
            let fields = self
                .unsteady
                .iter()
                .map(|(resource, path)| format!("{path} of {resource}"));
            format!(
                "fields that differed in some runs of a plan only are no longer compared: {}",
                fields.collect::<Vec<_>>().join(", ")
            )
        });
        late.chain(unsteady)
            .chain(ended)
            .chain(permuted)
            .chain(first_come)
            .chain(repeated)
            .collect()
    }
}

/// A completed run, from which further plans are derived.
struct Tried {
    plan: Plan,
    kind: Kind,
    rank: u8,
    is_repeat: bool,
    next: Vec<Candidate>,
}

impl<'a> Search<'a> {
    /// Lists the faults that are possible from a position in the trace.
    fn candidates(&self, outcome: &Outcome, from: usize) -> Vec<Candidate> {
        self.runs.candidates(outcome, from, self.faults)
    }

    pub(crate) fn search(&mut self) -> Result<(), Stop> {
        let reference = Arc::clone(&self.runs.reference);
        let singles = self.candidates(&reference.outcome, 0);
        let overlaps = self.overlaps(&singles);
        self.count_points(&singles);
        let most = SECONDS / singles.len().max(1);
        let is_real = self.runs.config.timing.is_real;
        let trace = &reference.outcome.trace;
        let is_first = |it: &Candidate| is_likely(it) && !(is_real && is_aside(trace, it));
        let (mut first, others): (Vec<_>, Vec<_>) = singles.into_iter().partition(is_first);
        let (mut first_overlaps, other_overlaps): (Vec<_>, Vec<_>) = overlaps.into_iter().partition(is_first);
        if is_real {
            first = in_turns(first, trace);
            first_overlaps = in_turns(first_overlaps, trace);
        }
        let parts = [&first, &others, &first_overlaps, &other_overlaps];
        self.kinds.possible = parts.iter().flat_map(|it| it.iter()).map(Candidate::kind).collect();
        let shares = parts.map(|it| self.shard.share(it.len() as u64));
        self.coverage.singles.1 = shares.iter().sum();
        let mut tried = Vec::new();
        self.singles(first, most, &mut tried)?;
        let are_first = |first: &Tried, second: &Candidate| {
            // Real time leaves fewer runs, so that old states of objects that users have changed are tried first.
            are_likeliest(first, second) && (!is_real || second.action.fault == Fault::Rewind)
        };
        self.pairs(&tried, are_first)?;
        self.singles(first_overlaps, most, &mut tried)?;
        self.singles(others, most, &mut tried)?;
        self.singles(other_overlaps, most, &mut tried)?;
        self.pairs(&tried, |first, second| {
            let kinds = (first.kind, second.action.kind());
            (kinds.0 != kinds.1 || kinds.0 == Kind::Crash) && !are_first(first, second)
        })?;
        self.orders(&tried)?;
        self.coverage.is_whole = !self.is_cut;
        self.swarm(tried)
    }

    /// Returns the same faults with a test that continues during them, if the test waits for the cluster at all.
    fn overlaps(&self, singles: &[Candidate]) -> Vec<Candidate> {
        match self.runs.reference.outcome.waited > 1 && self.faults.has(Kind::Overlap) {
            true => early(singles, self.runs.config.timing),
            false => Vec::new(),
        }
    }

    /// Tries single faults, and keeps up to `most` of the faults that are possible after each.
    fn singles(&mut self, singles: Vec<Candidate>, most: usize, tried: &mut Vec<Tried>) -> Result<(), Stop> {
        let plans = self.shard.part(singles.into_iter()).map(|it| (it.plan(), it));
        self.each(plans, |search, plan, candidate, outcome, _| {
            search.coverage.singles.0 += 1;
            search.kinds.tried.insert(candidate.kind());
            let mut continued = search.continued(plan, &candidate, outcome);
            // Candidates are sorted, the most likely first.
            search.is_cut |= continued.next.len() > most;
            continued.next.truncate(most);
            continued.next.shrink_to_fit();
            tried.push(continued);
        })
    }

    /// Tries the changes of a spec: each on its own and reverted, then with the most likely faults, then pairs of
    /// changes, then changes with all faults.
    pub(crate) fn search_spec(&mut self, spec: &Spec) -> Result<(), Stop> {
        let names = || spec.names().map(str::to_owned);
        let changed = |changes: Vec<String>| {
            let plan = Plan {
                changes,
                ..Plan::default()
            };
            (plan, ())
        };
        self.coverage.changes.1 = self.shard.share(names().count() as u64);
        let pairs = || {
            let pairs = names().flat_map(|one| names().map(move |other| (one.clone(), other)));
            pairs.filter(|(one, other)| field(one) != field(other))
        };
        let backs = names().filter(|it| !is_late(it)).count() as u64;
        self.coverage.all_sequences = self.shard.share(backs) + self.shard.share(pairs().count() as u64);
        let alone: Vec<_> = self.shard.part(names()).map(|it| changed(vec![it])).collect();
        self.each(alone.into_iter(), |search, _, _, _, _| search.coverage.changes.0 += 1)?;
        let back: Vec<_> = self
            .shard
            .part(names().filter(|it| !is_late(it)))
            .map(|it| changed(vec![it, BACK.to_owned()]))
            .collect();
        self.each(back.into_iter(), |search, _, _, _, _| search.coverage.sequences += 1)?;
        let (mut likely, mut others) = (Vec::new(), Vec::new());
        for name in self.shard.part(names()).collect::<Vec<_>>() {
            let Runs { config, world, .. } = self.runs;
            let changes = [name];
            let Ok(reference) = sequence(spec, config, world, &changes, &mut self.coverage.processor_time) else {
                continue;
            };
            let trace = &reference.outcome.trace;
            let is_change = |step: &Step| matches!(&step.what, What::Note(note) if note.contains(&changes[0]));
            let from = trace.iter().position(is_change).unwrap_or_default();
            for candidate in self.runs.candidates(&reference.outcome, from.max(1), self.faults) {
                let plan = Plan {
                    changes: changes.to_vec(),
                    ..candidate.plan()
                };
                let (place, kind) = ((candidate.rank, candidate.at), candidate.kind());
                self.kinds.possible.insert(kind);
                match candidate.is_repeat || candidate.rank > LIKELY {
                    true => others.push((place, plan, kind)),
                    false => likely.push((place, plan, kind)),
                }
            }
            self.is_spent()?;
        }
        self.coverage.singles.1 = (likely.len() + others.len()) as u64;
        for faults in [&mut likely, &mut others] {
            faults.sort();
        }
        let strike = |faults: Vec<(_, Plan, Kind)>| faults.into_iter().map(|(_, plan, kind)| (plan, kind));
        let struck = |search: &mut Self, _: Plan, kind: Kind, _: &Outcome, _: bool| {
            search.coverage.singles.0 += 1;
            search.kinds.tried.insert(kind);
        };
        self.each(strike(likely), struck)?;
        let pairs: Vec<_> = self
            .shard
            .part(pairs())
            .map(|(one, other)| changed(vec![one, other]))
            .collect();
        self.each(pairs.into_iter(), |search, _, _, _, _| search.coverage.sequences += 1)?;
        self.each(strike(others), struck)?;
        self.coverage.is_whole = true;
        Ok(())
    }

    /// Returns the names of the kinds of single faults that are possible but were not tried.
    pub(crate) fn untried_kinds(&self) -> Vec<&'static str> {
        let untried = self.kinds.possible.difference(&self.kinds.tried);
        untried.map(|it| Faults::name(*it)).collect()
    }

    /// Tries uniformly random faults, for comparison with the default order.
    pub(crate) fn at_random(&mut self) -> Result<(), Stop> {
        let reference = Arc::clone(&self.runs.reference);
        let mut all = self.candidates(&reference.outcome, 0);
        all.extend(self.overlaps(&all));
        self.coverage.singles.1 = all.len() as u64;
        let mut random = Random(self.seed);
        let plans = std::iter::repeat_with(|| {
            let mut plan = Plan::default();
            for _ in 0..=random.below(SWARM_FAULTS) {
                let candidate = &all[random.index(all.len())];
                if candidate.is_early && !plan.has(OnRun::ContinueEarly) {
                    plan = plan.and(TEST_CLIENT, Action::EARLY);
                }
                plan = plan.and(&candidate.point, candidate.action);
            }
            (plan, ())
        });
        let plans = plans.take(if all.is_empty() { 0 } else { usize::MAX });
        self.each(plans, |search, _, (), _, _| search.coverage.swarms += 1)
    }

    fn count_points(&mut self, singles: &[Candidate]) {
        let at: BTreeSet<usize> = singles.iter().map(|it| it.at).collect();
        let trace = &self.runs.reference.outcome.trace;
        let is_write = |at: &&usize| {
            trace
                .get(**at)
                .is_some_and(|step| matches!(&step.what, What::Request(request) if request.is_write()))
        };
        self.coverage.write_points = at.iter().filter(is_write).count() as u64;
        self.coverage.points = at.len() as u64;
    }

    /// Makes the runs of a given list of plans, and judges the outcomes in the order of the plans. `then` is called
    /// with each outcome, and with `true` if the run reached a new state.
    fn each<T: Clone>(
        &mut self,
        plans: impl Iterator<Item = (Plan, T)>,
        then: impl FnMut(&mut Self, Plan, T, &Outcome, bool),
    ) -> Result<(), Stop> {
        let runs = self.runs;
        let search = self;
        runs.all(&mut Listed { search, plans, then })
    }

    /// Judges the outcome of a run. Returns `true` if it reached a new state.
    fn accept(&mut self, plan: &Plan, outcome: &Outcome) -> Result<bool, Stop> {
        if self.runs.is_stopped() {
            return Err(Stop::Spent);
        }
        let before = self.seen.len();
        self.coverage.schedules += 1;
        self.coverage.messages += outcome.messages;
        self.coverage.processor_time += outcome.took;
        self.held.extend(&outcome.held);
        self.asides.take(plan, outcome);
        self.coverage.unjudged += u64::from(outcome.is_unjudged);
        self.seen.extend(&outcome.coverage);
        self.coverage.states = self.seen.len() as u64;
        if let Some(violation) = outcome.violations.first() {
            let violation = violation.clone();
            if self.failures.has(&violation) {
                self.asides.repeated += 1;
            } else if let Some(note) = depends_on_the_first(self.runs, plan, outcome) {
                self.asides.first_come.get_or_insert(note);
            } else if let Some(failure) = self.confirmed(plan, outcome, violation) {
                // The smallest plan may fail with the text of a known failure.
                if !self.failures.add(*failure, self.coverage.schedules) {
                    self.asides.repeated += 1;
                }
                self.coverage_at_failure.get_or_insert_with(|| self.coverage.clone());
            }
        }
        (self.progress)(&self.coverage);
        Ok(self.seen.len() > before)
    }

    fn is_spent(&self) -> Result<(), Stop> {
        let Limits { time, clock, schedules } = self.limits;
        let spent = clock.map_or(self.coverage.processor_time, WallClock::elapsed);
        let made = self.coverage.schedules;
        match made >= schedules || spent >= time || self.failures.are_enough(made) {
            true => Err(Stop::Spent),
            false => Ok(()),
        }
    }

    /// Lists the faults that are possible after the faults of a plan have struck.
    fn continued(&self, plan: Plan, last_fault: &Candidate, outcome: &Outcome) -> Tried {
        let last = plan.faults.last().map(|it| it.point.as_str()).unwrap_or_default();
        let from = outcome.trace.iter().position(|step| step.point == last);
        let next = match from {
            // A fault from the beginning can be combined with all later faults.
            None if last_fault.action.fault == Fault::Skew => self.candidates(outcome, 1),
            Some(at) => self.candidates(outcome, at + 1),
            None => Vec::new(),
        };
        Tried {
            plan,
            kind: last_fault.action.kind(),
            rank: last_fault.rank,
            is_repeat: last_fault.is_repeat,
            next,
        }
    }

    /// Tries all pairs. Pairs of two likely faults without repetitions are first, and among equals, one pair of each
    /// first fault is tried before its next.
    fn pairs(&mut self, tried: &[Tried], are_wanted: impl Fn(&Tried, &Candidate) -> bool) -> Result<(), Stop> {
        let mut order = Vec::new();
        for (first, one) in tried.iter().enumerate() {
            let seconds = one.next.iter().filter(|it| are_wanted(one, it));
            order.extend(seconds.enumerate().map(|(round, it)| {
                let repeats = u8::from(one.is_repeat) + u8::from(it.is_repeat);
                ((one.rank + it.rank + repeats, round, first), it)
            }));
        }
        order.sort_by_key(|(place, _)| *place);
        self.coverage.pairs.1 += order.len() as u64;
        let plans = order.into_iter().map(|((.., first), second)| {
            let plan = tried[first].plan.and(&second.point, second.action);
            (plan, ())
        });
        self.each(plans, |search, _, (), _, _| search.coverage.pairs.0 += 1)
    }

    /// Tries delivery orders with two late messages, then with three.
    fn orders(&mut self, tried: &[Tried]) -> Result<(), Stop> {
        let mut queue = VecDeque::new();
        for first in tried.iter().filter(|it| it.kind == Kind::Delay) {
            queue.extend(one_more_late(&first.plan, &first.next));
        }
        let runs = self.runs;
        runs.all(&mut Orders { search: self, queue })
    }

    /// Tries random mutations of plans that reached a new state, until a bound is reached.
    fn swarm(&mut self, mut seeds: Vec<Tried>) -> Result<(), Stop> {
        let mut random = Random(self.seed);
        seeds.retain(|it| !it.next.is_empty());
        let mut idle = 0;
        loop {
            let mut batch = Vec::new();
            while !seeds.is_empty() && batch.len() < BATCH && idle < SWARM_SEEDS * 16 {
                let seed = &seeds[random.index(seeds.len())];
                let mut plan = seed.plan.clone();
                if plan.faults.len() as u64 >= SWARM_FAULTS {
                    plan.faults.remove(random.index(plan.faults.len()));
                }
                let next = seed.next[random.index(seed.next.len())].clone();
                let plan = plan.and(&next.point, next.action);
                let mut hasher = DefaultHasher::new();
                plan.hash(&mut hasher);
                match self.known.insert(hasher.finish()) {
                    true => batch.push((plan, next)),
                    false => idle += 1,
                }
            }
            if batch.is_empty() {
                return Ok(());
            }
            self.each(batch.into_iter(), |search, plan, next, outcome, is_new| {
                search.coverage.swarms += 1;
                if is_new {
                    idle = 0;
                    if seeds.len() >= SWARM_SEEDS {
                        seeds.remove(0);
                    }
                    let tried = search.continued(plan, &next, outcome);
                    if !tried.next.is_empty() {
                        seeds.push(tried);
                    }
                }
            })?;
        }
    }
}

/// Returns `true` for faults that are tried before all others.
fn is_likely(candidate: &Candidate) -> bool {
    !candidate.is_repeat && candidate.rank <= LIKELY
}

/// Returns `true` for messages about Leases and Events.
fn is_aside(trace: &[Step], candidate: &Candidate) -> bool {
    let resource = trace.get(candidate.at).map_or("", |it| it.class().1);
    matches!(resource, LEASES | "events" | "events.events.k8s.io")
}

/// Returns `true` for pairs that are tried before the less likely single faults: a crash after a write, and a restart
/// from an older state. Many published bugs are caused by such pairs.
fn are_likeliest(first: &Tried, second: &Candidate) -> bool {
    !first.is_repeat && !second.is_repeat && first.rank + second.rank <= 1
}

/// Returns the field of a change.
fn field(change: &str) -> &str {
    change.split(':').next().unwrap_or_default()
}

/// Plans from a given list.
struct Listed<'s, 'a, I, F> {
    search: &'s mut Search<'a>,
    plans: I,
    then: F,
}

impl<'a, T, I, F> Work for Listed<'_, 'a, I, F>
where
    T: Clone,
    I: Iterator<Item = (Plan, T)>,
    F: FnMut(&mut Search<'a>, Plan, T, &Outcome, bool),
{
    type About = T;

    fn next(&mut self) -> Option<(Plan, T)> {
        self.plans.next()
    }

    fn done(&mut self, plan: Plan, about: T, outcome: Outcome) -> Result<(), Stop> {
        let is_new = self.search.accept(&plan, &outcome)?;
        (self.then)(self.search, plan, about, &outcome, is_new);
        self.search.is_spent()
    }
}

/// Maximum number of late messages in a delivery order.
const LATE: usize = 3;

/// Delivery orders to run. Each adds orders with one more late message.
struct Orders<'s, 'a> {
    search: &'s mut Search<'a>,
    queue: VecDeque<(Plan, Candidate)>,
}

impl Work for Orders<'_, '_> {
    type About = Candidate;

    fn next(&mut self) -> Option<(Plan, Candidate)> {
        self.queue.pop_front()
    }

    fn done(&mut self, plan: Plan, last: Candidate, outcome: Outcome) -> Result<(), Stop> {
        self.search.accept(&plan, &outcome)?;
        self.search.coverage.orders += 1;
        if plan.faults.len() < LATE {
            let tried = self.search.continued(plan, &last, &outcome);
            let room = SECONDS.saturating_sub(self.queue.len());
            let mut more = one_more_late(&tried.plan, &tried.next);
            self.queue.extend(more.by_ref().take(room));
            self.search.is_cut |= more.next().is_some();
        }
        self.search.is_spent()
    }
}

/// Returns the plans with one more late message.
fn one_more_late<'t>(plan: &'t Plan, next: &'t [Candidate]) -> impl Iterator<Item = (Plan, Candidate)> + 't {
    let late = next.iter().filter(|it| it.action.kind() == Kind::Delay);
    late.map(|it| (plan.and(&it.point, it.action), it.clone()))
}
