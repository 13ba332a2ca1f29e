//! The order of search: the reference, every single fault, pairs of different kinds, delivery orders, then swarms.

use std::collections::{BTreeSet, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use super::candidates::{Candidate, candidates};
use super::cluster::World;
use super::kinds::Faults;
use super::plan::{Action, Kind, Plan};
use super::report::{Coverage, Failure, Nondeterminism};
use super::run::{Config, Outcome, Reference, run};
use super::trace::What;
use super::{Violation, shrink};

/// Runs of a failing plan that must all fail for it to count.
const CONFIRMATIONS: u32 = 2;

/// The most faults of a swarm.
const SWARM_FAULTS: u64 = 5;

/// What is kept of what may go wrong second, for all first faults together: the likeliest of each. Some 100 bytes each.
const SECONDS: usize = 500_000;

/// Interesting plans a swarm begins with; the oldest go.
const SWARM_SEEDS: usize = 256;

/// When to stop.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) wall: Duration,
    pub(crate) schedules: u64,
}

/// An exploration under way.
pub(crate) struct Search<'a> {
    pub(crate) config: &'a Config,
    pub(crate) world: &'a World,
    pub(crate) faults: Faults,
    pub(crate) limits: Limits,
    pub(crate) seed: u64,
    /// Is told after each run what is being done; ends the search by `false`.
    pub(crate) progress: &'a mut dyn FnMut(&Coverage, &Plan) -> bool,
    pub(crate) reference: Reference,
    pub(crate) coverage: Coverage,
    pub(crate) seen: BTreeSet<u64>,
    pub(crate) held: BTreeSet<usize>,
    pub(crate) nondeterminism: Vec<Nondeterminism>,
    /// Whether pairs were left out because there are too many.
    pub(crate) is_cut: bool,
    /// Stand for the plans of the swarm; a plan that is taken for another by chance goes untried.
    pub(crate) known: HashSet<u64>,
}

/// A run that was made, as the next ones begin from it.
struct Tried {
    plan: Plan,
    kind: Kind,
    rank: u8,
    next: Vec<Candidate>,
}

/// Why a search ends early.
pub(crate) enum Stop {
    Failed(Box<Failure>),
    Spent,
}

/// The reference: two runs in which nothing goes wrong, in two worlds, and one of them twice.
pub(crate) fn reference(config: &Config, world: &World) -> Result<(Reference, Vec<Nondeterminism>), Box<Failure>> {
    let nothing = Plan::default();
    let first = run(config, world, &nothing, false, None);
    if let Some(violation) = first.violations.first().cloned() {
        let reference = Reference {
            outcome: Outcome::default(),
            mask: Default::default(),
        };
        return Err(Box::new(Failure::new(&reference, first, nothing, violation)));
    }
    let again = run(config, world, &nothing, false, None);
    let nondeterminism = Nondeterminism::between(&nothing, &first, &again);
    let other = run(config, world, &nothing, true, None);
    let mut mask = first.end.mask(&other.end, &config.ignored);
    mask.add(first.end.mask(&again.end, &[]));
    let reference = Reference { outcome: first, mask };
    Ok((reference, nondeterminism.into_iter().collect()))
}

impl Search<'_> {
    pub(crate) fn search(&mut self) -> Result<(), Stop> {
        let trace = &self.reference.outcome.trace;
        let controllers = self.reference.outcome.controllers.clone();
        let singles = candidates(trace, 0, &controllers, self.faults);
        self.count_points(&singles);
        let mut tried = Vec::new();
        self.coverage.singles.1 = singles.len() as u64;
        let most = SECONDS / singles.len().max(1);
        for candidate in &singles {
            let plan = Plan::single(&candidate.point, candidate.action);
            let outcome = self.attempt(&plan)?;
            self.coverage.singles.0 += 1;
            let mut continued = self.continued(plan, candidate, &outcome);
            // They come sorted, the likeliest first.
            self.is_cut |= continued.next.len() > most;
            continued.next.truncate(most);
            continued.next.shrink_to_fit();
            tried.push(continued);
        }
        self.pairs(&tried, |first, second| first != second || first == Kind::Crash)?;
        self.orders(&tried)?;
        self.coverage.is_whole = !self.is_cut;
        self.swarm(tried)
    }

    /// Uniformly random faults, for comparison with the order above.
    pub(crate) fn at_random(&mut self) -> Result<(), Stop> {
        let controllers = self.reference.outcome.controllers.clone();
        let all = candidates(&self.reference.outcome.trace, 0, &controllers, self.faults);
        self.coverage.singles.1 = all.len() as u64;
        let mut random = Random(self.seed);
        while !all.is_empty() {
            let mut plan = Plan::default();
            for _ in 0..=random.below(SWARM_FAULTS) {
                let candidate = &all[random.index(all.len())];
                plan = plan.and(&candidate.point, candidate.action);
            }
            self.coverage.swarms += 1;
            self.attempt(&plan)?;
        }
        Ok(())
    }

    fn count_points(&mut self, singles: &[Candidate]) {
        let at: BTreeSet<usize> = singles.iter().map(|it| it.at).collect();
        let trace = &self.reference.outcome.trace;
        let is_write = |at: &&usize| {
            trace
                .get(**at)
                .is_some_and(|step| matches!(&step.what, What::Request(request) if request.is_write()))
        };
        self.coverage.write_points = at.iter().filter(is_write).count() as u64;
        self.coverage.points = at.len() as u64;
    }

    /// Makes a run and looks at what came of it.
    pub(crate) fn attempt(&mut self, plan: &Plan) -> Result<Outcome, Stop> {
        let outcome = run(self.config, self.world, plan, false, Some(&self.reference));
        self.coverage.schedules += 1;
        self.coverage.messages += outcome.messages;
        self.held.extend(&outcome.held);
        self.seen.extend(&outcome.coverage);
        self.coverage.states = self.seen.len() as u64;
        if let Some(violation) = outcome.violations.first() {
            let violation = violation.clone();
            if let Some(failure) = self.confirmed(plan, violation) {
                return Err(Stop::Failed(failure));
            }
        }
        let goes_on = (self.progress)(&self.coverage, plan);
        if !goes_on || self.coverage.schedules >= self.limits.schedules {
            return Err(Stop::Spent);
        }
        Ok(outcome)
    }

    /// A failure, if it comes again each time; then the smallest one that is the same.
    fn confirmed(&mut self, plan: &Plan, violation: Violation) -> Option<Box<Failure>> {
        for _ in 0..CONFIRMATIONS {
            let again = run(self.config, self.world, plan, false, Some(&self.reference));
            if again.violations.first().is_none_or(|it| it.oracle != violation.oracle) {
                let what = format!("{violation}, in one run and not in another of the same plan");
                self.nondeterminism.push(Nondeterminism::new(plan, &what));
                return None;
            }
        }
        let (plan, outcome, violation) = shrink::shrink(self.config, self.world, &self.reference, plan, violation);
        Some(Box::new(Failure::new(&self.reference, outcome, plan, violation)))
    }

    /// What may go wrong after the faults of a plan have struck.
    fn continued(&self, plan: Plan, last_fault: &Candidate, outcome: &Outcome) -> Tried {
        let last = plan.faults.last().map(|it| it.point.as_str()).unwrap_or_default();
        let from = outcome.trace.iter().position(|step| step.point == last);
        let next = match from {
            // What is so from the beginning goes with all that follows.
            None if matches!(last_fault.action, Action::Skew(_)) => {
                candidates(&outcome.trace, 1, &outcome.controllers, self.faults)
            }
            Some(at) => candidates(&outcome.trace, at + 1, &outcome.controllers, self.faults),
            None => Vec::new(),
        };
        let (kind, rank) = (last_fault.action.kind(), last_fault.rank);
        Tried { plan, kind, rank, next }
    }

    /// All pairs, the likeliest first: those of two likely faults, and of each first fault one before the next.
    fn pairs(&mut self, tried: &[Tried], wanted: impl Fn(Kind, Kind) -> bool) -> Result<(), Stop> {
        let mut order = Vec::new();
        for (first, one) in tried.iter().enumerate() {
            let seconds = one.next.iter().filter(|it| wanted(one.kind, it.action.kind()));
            order.extend(
                seconds
                    .enumerate()
                    .map(|(round, it)| (one.rank + it.rank, round, first, it)),
            );
        }
        order.sort_by_key(|(rank, round, first, _)| (*rank, *round, *first));
        self.coverage.pairs.1 = order.len() as u64;
        for (_, _, first, second) in order {
            self.attempt(&tried[first].plan.and(&second.point, second.action))?;
            self.coverage.pairs.0 += 1;
        }
        Ok(())
    }

    /// Delivery orders with up to three messages late, depth first.
    fn orders(&mut self, tried: &[Tried]) -> Result<(), Stop> {
        const LATE: usize = 3;
        let is_late = |it: &Candidate| it.action.kind() == Kind::Delay;
        for first in tried.iter().filter(|it| it.kind == Kind::Delay) {
            let one_more = |plan: &Plan, it: &Candidate| (plan.and(&it.point, it.action), it.clone());
            let seconds = first.next.iter().filter(|it| is_late(it)).rev();
            let mut stack: Vec<(Plan, Candidate)> = seconds.map(|it| one_more(&first.plan, it)).collect();
            while let Some((plan, last)) = stack.pop() {
                let outcome = self.attempt(&plan)?;
                self.coverage.orders += 1;
                if plan.faults.len() < LATE {
                    let tried = self.continued(plan, &last, &outcome);
                    let deeper = tried.next.iter().filter(|it| is_late(it)).rev();
                    stack.extend(deeper.map(|it| one_more(&tried.plan, it)));
                }
            }
        }
        Ok(())
    }

    /// Random changes of plans that reached something new, without end.
    fn swarm(&mut self, mut seeds: Vec<Tried>) -> Result<(), Stop> {
        let mut random = Random(self.seed);
        seeds.retain(|it| !it.next.is_empty());
        let mut idle = 0;
        while !seeds.is_empty() && idle < SWARM_SEEDS * 16 {
            let seed = &seeds[random.index(seeds.len())];
            let mut plan = seed.plan.clone();
            if plan.faults.len() as u64 >= SWARM_FAULTS {
                plan.faults.remove(random.index(plan.faults.len()));
            }
            let next = seed.next[random.index(seed.next.len())].clone();
            let plan = plan.and(&next.point, next.action);
            let mut hasher = DefaultHasher::new();
            plan.hash(&mut hasher);
            if !self.known.insert(hasher.finish()) {
                idle += 1;
                continue;
            }
            let before = self.seen.len();
            let outcome = self.attempt(&plan)?;
            self.coverage.swarms += 1;
            if self.seen.len() > before {
                idle = 0;
                if seeds.len() >= SWARM_SEEDS {
                    seeds.remove(0);
                }
                let tried = self.continued(plan, &next, &outcome);
                if !tried.next.is_empty() {
                    seeds.push(tried);
                }
            }
        }
        Ok(())
    }
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
