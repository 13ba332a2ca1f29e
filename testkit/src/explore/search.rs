//! The order of search: the reference, the likeliest single faults and pairs, every single fault, pairs of different
//! kinds, delivery orders, then swarms.

use std::collections::{BTreeMap, BTreeSet, HashSet, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use super::candidates::{Candidate, candidates, early};
use super::in_order::{Runs, Work};
use super::kinds::Faults;
use super::plan::{Action, Kind, Plan, given};
use super::references::is_late;
use super::report::{Coverage, Failure, Nondeterminism};
use super::run::{Config, Outcome};
use super::shards::Shard;
use super::spec::{BACK, Spec};
use super::trace::{Step, What};
use super::{Violation, shrink};
use crate::test_cluster::TEST_CLIENT;

/// Runs of a failing plan that must all fail for it to count.
const CONFIRMATIONS: u32 = 2;

/// The most faults of a swarm.
const SWARM_FAULTS: u64 = 5;

/// Most second faults that are kept, for all first faults together: the likeliest of each. Some 100 bytes each.
const SECONDS: usize = 500_000;

/// Interesting plans a swarm begins with; the oldest go.
const SWARM_SEEDS: usize = 256;

/// Random plans that are made up before any of them is run.
const BATCH: usize = 32;

/// The greatest rank of a likely fault: these are tried first, and with each change of a spec before two changes are.
const LIKELY: u8 = 2;

/// Limits at which a search stops.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// The processor time of all runs.
    pub(crate) time: Duration,
    pub(crate) schedules: u64,
}

/// An exploration under way.
pub(crate) struct Search<'a> {
    pub(crate) runs: &'a Runs<'a>,
    pub(crate) faults: Faults,
    pub(crate) limits: Limits,
    /// The part of the search that is made here.
    pub(crate) shard: Shard,
    pub(crate) seed: u64,
    /// Called after each run with the coverage so far.
    pub(crate) progress: &'a mut dyn FnMut(&Coverage),
    pub(crate) coverage: Coverage,
    pub(crate) seen: BTreeSet<u64>,
    pub(crate) held: BTreeSet<usize>,
    pub(crate) nondeterminism: Vec<Nondeterminism>,
    /// Set if pairs or orders were left out because there are too many.
    pub(crate) is_cut: bool,
    /// Stand for the plans of the swarm; a plan that is taken for another by chance goes untried.
    pub(crate) known: HashSet<u64>,
    pub(crate) asides: Asides,
}

/// Findings of runs that are not failures.
#[derive(Debug, Default)]
pub(crate) struct Asides {
    /// The first run whose end state was right too late, and how late.
    late: Option<(Duration, Plan)>,
    /// Number of times controllers ended by themselves and were started again, in all runs.
    ended: BTreeMap<Arc<str>, u32>,
}

impl Asides {
    pub(crate) fn take(&mut self, plan: &Plan, outcome: &Outcome) {
        if let (Some(late), None) = (outcome.late, &self.late) {
            self.late = Some((late, plan.clone()));
        }
        for (client, times) in &outcome.ended {
            *self.ended.entry(Arc::clone(client)).or_default() += times;
        }
    }

    /// In words.
    pub(crate) fn notes(&self, config: &Config) -> Vec<String> {
        let late = self.late.iter().map(|(late, plan)| {
            format!(
                "the end state was right only {late:?} after the last fault, which counts as slow and not as wrong; use \
                 `.within(…)` if more than {:?} is expected (to replay: EXPLORE_REPLAY='{plan}')",
                config.within
            )
        });
        let ended = self.ended.iter().map(|(client, times)| {
            format!(
                "{} ended by itself and was restarted {times} times over all runs",
                given(client)
            )
        });
        late.chain(ended).collect()
    }
}

/// A run that was made, as the next ones begin from it.
struct Tried {
    plan: Plan,
    kind: Kind,
    rank: u8,
    is_repeat: bool,
    next: Vec<Candidate>,
}

/// Reason for which a search ends early.
pub(crate) enum Stop {
    Failed(Box<Failure>),
    Spent,
}

impl<'a> Search<'a> {
    /// Lists the faults that are possible from a place in a trace on.
    fn candidates(&self, outcome: &Outcome, from: usize) -> Vec<Candidate> {
        candidates(&outcome.trace, from, &outcome.controllers, self.faults)
    }

    pub(crate) fn search(&mut self) -> Result<(), Stop> {
        let reference = Arc::clone(&self.runs.reference);
        let mut singles = self.candidates(&reference.outcome, 0);
        if reference.outcome.settled > 1 {
            early(&mut singles);
        }
        self.count_points(&singles);
        let most = SECONDS / singles.len().max(1);
        let (first, others): (Vec<_>, Vec<_>) = singles.into_iter().partition(is_likely);
        let shares = [&first, &others].map(|it| self.shard.share(it.len() as u64));
        self.coverage.singles.1 = shares.iter().sum();
        let mut tried = Vec::new();
        self.singles(first, most, &mut tried)?;
        self.pairs(&tried, are_likeliest)?;
        self.singles(others, most, &mut tried)?;
        self.pairs(&tried, |first, second| {
            let kinds = (first.kind, second.action.kind());
            (kinds.0 != kinds.1 || kinds.0 == Kind::Crash) && !are_likeliest(first, second)
        })?;
        self.orders(&tried)?;
        self.coverage.is_whole = !self.is_cut;
        self.swarm(tried)
    }

    /// Single faults, and the faults that are possible after each, `most` of them.
    fn singles(&mut self, singles: Vec<Candidate>, most: usize, tried: &mut Vec<Tried>) -> Result<(), Stop> {
        let plans = self.shard.part(singles.into_iter()).map(|it| (it.plan(), it));
        self.each(plans, |search, plan, candidate, outcome, _| {
            search.coverage.singles.0 += 1;
            let mut continued = search.continued(plan, &candidate, outcome);
            // They come sorted, the likeliest first.
            search.is_cut |= continued.next.len() > most;
            continued.next.truncate(most);
            continued.next.shrink_to_fit();
            tried.push(continued);
        })
    }

    /// Changes of a spec: each alone and taken back, then with the likeliest faults, then two of them, then with all
    /// faults.
    pub(crate) fn search_spec(&mut self, spec: &Spec) -> Result<(), Stop> {
        let names = || spec.names().map(str::to_owned);
        let sequence = |changes: Vec<String>| {
            let plan = Plan {
                changes,
                ..Plan::default()
            };
            (plan, ())
        };
        self.coverage.changes.1 = self.shard.share(names().count() as u64);
        let alone: Vec<_> = self.shard.part(names()).map(|it| sequence(vec![it])).collect();
        self.each(alone.into_iter(), |search, _, _, _, _| search.coverage.changes.0 += 1)?;
        let back: Vec<_> = self
            .shard
            .part(names().filter(|it| !is_late(it)))
            .map(|it| sequence(vec![it, BACK.to_owned()]))
            .collect();
        self.each(back.into_iter(), |search, _, _, _, _| search.coverage.sequences += 1)?;
        let (mut likely, mut others) = (Vec::new(), Vec::new());
        for name in self.shard.part(names()).collect::<Vec<_>>() {
            let Runs { config, world, .. } = self.runs;
            let changes = [name];
            let Ok(reference) = spec.sequence(config, world, &changes, &mut self.coverage.processor_time) else {
                continue;
            };
            let trace = &reference.outcome.trace;
            let is_change = |step: &Step| matches!(&step.what, What::Note(note) if note.contains(&changes[0]));
            let from = trace.iter().position(is_change).unwrap_or_default();
            for candidate in candidates(trace, from.max(1), &reference.outcome.controllers, self.faults) {
                let plan = Plan {
                    changes: changes.to_vec(),
                    ..candidate.plan()
                };
                let place = (candidate.rank, candidate.at);
                match candidate.is_repeat || candidate.rank > LIKELY {
                    true => others.push((place, plan)),
                    false => likely.push((place, plan)),
                }
            }
            self.is_spent()?;
        }
        self.coverage.singles.1 = (likely.len() + others.len()) as u64;
        for faults in [&mut likely, &mut others] {
            faults.sort();
        }
        let strike = |faults: Vec<(_, Plan)>| faults.into_iter().map(|(_, plan)| (plan, ()));
        self.each(strike(likely), |search, _, _, _, _| search.coverage.singles.0 += 1)?;
        let pairs = names().flat_map(|one| names().map(move |other| (one.clone(), other)));
        let pairs = pairs.filter(|(one, other)| field(one) != field(other));
        let pairs: Vec<_> = self
            .shard
            .part(pairs)
            .map(|(one, other)| sequence(vec![one, other]))
            .collect();
        self.each(pairs.into_iter(), |search, _, _, _, _| search.coverage.sequences += 1)?;
        self.each(strike(others), |search, _, _, _, _| search.coverage.singles.0 += 1)?;
        self.coverage.is_whole = true;
        Ok(())
    }

    /// Uniformly random faults, for comparison with the order above.
    pub(crate) fn at_random(&mut self) -> Result<(), Stop> {
        let reference = Arc::clone(&self.runs.reference);
        let mut all = self.candidates(&reference.outcome, 0);
        if reference.outcome.settled > 1 {
            early(&mut all);
        }
        self.coverage.singles.1 = all.len() as u64;
        let mut random = Random(self.seed);
        let plans = std::iter::repeat_with(|| {
            let mut plan = Plan::default();
            for _ in 0..=random.below(SWARM_FAULTS) {
                let candidate = &all[random.index(all.len())];
                if candidate.is_early && !plan.has(|it| it == Action::Early) {
                    plan = plan.and(TEST_CLIENT, Action::Early);
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

    /// Makes the runs of plans that are known beforehand, and judges the outcomes in their order. `then` also learns
    /// whether a run reached a state that no other one had.
    fn each<T: Clone>(
        &mut self,
        plans: impl Iterator<Item = (Plan, T)>,
        then: impl FnMut(&mut Self, Plan, T, &Outcome, bool),
    ) -> Result<(), Stop> {
        let runs = self.runs;
        let search = self;
        runs.all(&mut Listed { search, plans, then })
    }

    /// Judges the outcome of a run; returns `true` if it reached a state that no other one had.
    fn accept(&mut self, plan: &Plan, outcome: &Outcome) -> Result<bool, Stop> {
        let before = self.seen.len();
        self.coverage.schedules += 1;
        self.coverage.messages += outcome.messages;
        self.coverage.processor_time += outcome.took;
        self.held.extend(&outcome.held);
        self.asides.take(plan, outcome);
        self.seen.extend(&outcome.coverage);
        self.coverage.states = self.seen.len() as u64;
        if let Some(violation) = outcome.violations.first() {
            let violation = violation.clone();
            if let Some(failure) = self.confirmed(plan, violation) {
                return Err(Stop::Failed(failure));
            }
        }
        (self.progress)(&self.coverage);
        Ok(self.seen.len() > before)
    }

    fn is_spent(&self) -> Result<(), Stop> {
        let Limits { time, schedules } = self.limits;
        match self.coverage.schedules >= schedules || self.coverage.processor_time >= time {
            true => Err(Stop::Spent),
            false => Ok(()),
        }
    }

    /// A failure, if it comes again each time; then the smallest one that is the same.
    fn confirmed(&mut self, plan: &Plan, violation: Violation) -> Option<Box<Failure>> {
        let Runs {
            config,
            world,
            reference,
            ..
        } = self.runs;
        for _ in 0..CONFIRMATIONS {
            let again = self.runs.one(plan);
            if again.violations.first().is_none_or(|it| it.oracle != violation.oracle) {
                let what = format!("{violation}, in one run and not in another of the same plan");
                self.nondeterminism.push(Nondeterminism::new(plan, &what));
                return None;
            }
        }
        let (plan, outcome, violation, reference) = shrink::shrink(config, world, reference, plan, violation);
        Some(Box::new(Failure::new(&reference, outcome, plan, violation)))
    }

    /// Lists the faults that are possible after the faults of a plan have struck.
    fn continued(&self, plan: Plan, last_fault: &Candidate, outcome: &Outcome) -> Tried {
        let last = plan.faults.last().map(|it| it.point.as_str()).unwrap_or_default();
        let from = outcome.trace.iter().position(|step| step.point == last);
        let next = match from {
            // A fault from the beginning goes with all that follow.
            None if matches!(last_fault.action, Action::Skew(_)) => self.candidates(outcome, 1),
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

    /// All pairs, the likeliest first: those of two likely faults, of which neither is a repetition of another, and of
    /// each first fault one before the next.
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

    /// Delivery orders with two late messages, then those with three.
    fn orders(&mut self, tried: &[Tried]) -> Result<(), Stop> {
        let mut queue = VecDeque::new();
        for first in tried.iter().filter(|it| it.kind == Kind::Delay) {
            queue.extend(one_more_late(&first.plan, &first.next));
        }
        let runs = self.runs;
        runs.all(&mut Orders { search: self, queue })
    }

    /// Random changes of plans that reached something new, without end.
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

/// Returns `true` for what is tried before everything else.
fn is_likely(candidate: &Candidate) -> bool {
    !candidate.is_repeat && candidate.rank <= LIKELY
}

/// Returns `true` for the pairs that come before the less likely single faults: a crash after a write, and a restart
/// from an older state. Such pairs are behind many published bugs.
fn are_likeliest(first: &Tried, second: &Candidate) -> bool {
    !first.is_repeat && !second.is_repeat && first.rank + second.rank <= 1
}

/// The field that a change is of.
fn field(change: &str) -> &str {
    change.split(':').next().unwrap_or_default()
}

/// Plans that are known beforehand.
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

/// The most late messages of a delivery order.
const LATE: usize = 3;

/// Delivery orders, from which others follow.
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

/// A plan with one more message late.
fn one_more_late<'t>(plan: &'t Plan, next: &'t [Candidate]) -> impl Iterator<Item = (Plan, Candidate)> + 't {
    let late = next.iter().filter(|it| it.action.kind() == Kind::Delay);
    late.map(|it| (plan.and(&it.point, it.action), it.clone()))
}

/// SplitMix64: a few lines are enough for choosing.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next().checked_rem(bound).unwrap_or(0)
    }

    fn index(&mut self, len: usize) -> usize {
        usize::try_from(self.below(len as u64)).unwrap_or(0)
    }
}
