//! Sources of plans: given lists, single faults together with pairs, delivery orders, and random plans.

use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hash, Hasher};

use super::candidates::Candidate;
use super::random::Random;
use super::state::{Search, Tried};
use super::work::{Judge, Stop, Work};
use crate::explore::outcomes::Outcome;
use crate::explore::plans::{Fault, Kind, Plan};

/// Maximum number of faults in a swarm, that is, in a random plan.
pub(super) const SWARM_FAULTS: u64 = 5;

/// Maximum total number of pairs, and of delivery orders, that are kept. For each first fault, the most likely pairs
/// are kept. A pair takes about 100 bytes.
pub(super) const SECONDS: usize = 500_000;

/// Number of plans from which swarms are derived. Once it is reached, each new plan replaces the oldest one.
const SWARM_SEEDS: usize = 256;

/// Number of random plans that are generated before any of them is run.
const BATCH: usize = 32;

impl<'a> Search<'a> {
    /// Runs a list of plans, and judges the outcomes in the order of the plans. `then` is called with each outcome, and
    /// with `true` if the run reached a new state.
    pub(super) fn each<T: Clone>(
        &mut self,
        plans: impl Iterator<Item = (Plan, T)>,
        then: impl FnMut(&mut Self, Plan, T, &Outcome, bool),
    ) -> Result<(), Stop> {
        let runs = self.runs;
        let search = self;
        runs.all(&mut Listed { search, plans, then })
    }

    /// Tries single faults in real time: the first part, then the most likely pairs that begin with these faults, then
    /// the remaining faults. The remaining faults begin while some faults of the first part are still running.
    pub(super) fn overlapping_parts(
        &mut self,
        first: Vec<Candidate>,
        later: [Vec<Candidate>; 3],
        most: usize,
    ) -> Result<Vec<Tried>, Stop> {
        let shard = self.shard;
        let mut parts = Parts {
            first: shard.part(first.into_iter()).collect(),
            later: later.into_iter().flat_map(|it| shard.part(it.into_iter())).collect(),
            pairs: VecDeque::new(),
            running: 0,
            begun: 0,
            most,
            tried: Vec::new(),
            search: self,
        };
        let runs = parts.search.runs;
        runs.all(&mut parts)?;
        Ok(parts.in_order())
    }

    /// Tries delivery orders with two late messages, then with three.
    pub(super) fn orders(&mut self, tried: &[Tried]) -> Result<(), Stop> {
        let mut queue = VecDeque::new();
        for first in tried.iter().filter(|it| it.kind == Kind::Delay) {
            queue.extend(one_more_late(&first.plan, &first.next));
        }
        let runs = self.runs;
        runs.all(&mut Orders { search: self, queue })
    }

    /// Tries random mutations of the given plans, and of mutations that reached a new state, until a limit is reached.
    pub(super) fn swarm(&mut self, mut seeds: Vec<Tried>) -> Result<(), Stop> {
        seeds.retain(|it| !it.next.is_empty());
        let runs = self.runs;
        runs.all(&mut Swarm {
            random: Random(self.seed),
            search: self,
            seeds: seeds.into(),
            idle: 0,
            batch: VecDeque::new(),
            running: 0,
        })
    }
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

    fn done(&mut self, plan: Plan, about: T, outcome: &Outcome) -> Result<(), Stop> {
        let is_new = self.search.accept(&plan, outcome)?;
        (self.then)(self.search, plan, about, outcome, is_new);
        self.search.is_spent()
    }

    fn judge(&mut self) -> &mut dyn Judge {
        self.search
    }
}

/// Maximum number of late messages in a delivery order.
const LATE: usize = 3;

/// Delivery orders to run. Each run adds orders with one more late message.
struct Orders<'s, 'a> {
    search: &'s mut Search<'a>,
    queue: VecDeque<(Plan, Candidate)>,
}

impl Work for Orders<'_, '_> {
    type About = Candidate;

    fn next(&mut self) -> Option<(Plan, Candidate)> {
        self.queue.pop_front()
    }

    fn done(&mut self, plan: Plan, last: Candidate, outcome: &Outcome) -> Result<(), Stop> {
        self.search.accept(&plan, outcome)?;
        self.search.coverage.orders += 1;
        if plan.faults.len() < LATE {
            let tried = self.search.continued(plan, &last, outcome);
            let room = SECONDS.saturating_sub(self.queue.len());
            let mut more = one_more_late(&tried.plan, &tried.next);
            self.queue.extend(more.by_ref().take(room));
            self.search.is_cut |= more.next().is_some();
        }
        self.search.is_spent()
    }

    fn judge(&mut self) -> &mut dyn Judge {
        self.search
    }
}

/// Returns copies of the plan with one more late message.
fn one_more_late<'t>(plan: &'t Plan, next: &'t [Candidate]) -> impl Iterator<Item = (Plan, Candidate)> + 't {
    let late = next.iter().filter(|it| it.action.kind() == Kind::Delay);
    late.map(|it| (plan.and(&it.point, it.action), it.clone()))
}

/// Single faults in two parts, and the most likely pairs of the first part, which are tried between the two parts. A
/// pair can be tried once its first fault has been tried.
struct Parts<'s, 'a> {
    search: &'s mut Search<'a>,
    first: VecDeque<Candidate>,
    pairs: VecDeque<Plan>,
    later: VecDeque<Candidate>,
    /// Number of single faults of the first part that are running.
    running: usize,
    /// Number of single faults that have begun.
    begun: usize,
    /// Maximum number of possible next faults that are kept for each single fault.
    most: usize,
    /// Completed runs of single faults, with their ordinals.
    tried: Vec<(usize, Tried)>,
}

/// The stage of [`Parts`] that produced a plan.
#[derive(Clone)]
enum Part {
    First(usize, Candidate),
    Pair,
    Later(usize, Candidate),
}

impl Parts<'_, '_> {
    /// Returns the completed runs in the order of their plans.
    fn in_order(mut self) -> Vec<Tried> {
        self.tried.sort_by_key(|(number, _)| *number);
        self.tried.into_iter().map(|(_, tried)| tried).collect()
    }
}

impl Work for Parts<'_, '_> {
    type About = Part;

    fn next(&mut self) -> Option<(Plan, Part)> {
        if self.first.is_empty()
            && let Some(plan) = self.pairs.pop_front()
        {
            return Some((plan, Part::Pair));
        }
        self.begun += 1;
        if let Some(candidate) = self.first.pop_front() {
            self.running += 1;
            return Some((candidate.plan(), Part::First(self.begun, candidate)));
        }
        let candidate = self.later.pop_front()?;
        Some((candidate.plan(), Part::Later(self.begun, candidate)))
    }

    fn done(&mut self, plan: Plan, part: Part, outcome: &Outcome) -> Result<(), Stop> {
        let accepted = self.search.accept(&plan, outcome);
        self.running -= usize::from(matches!(part, Part::First(..)));
        accepted?;
        match part {
            Part::First(number, candidate) => {
                let tried = self.search.single(plan, &candidate, outcome, self.most);
                let pairs = paired(std::slice::from_ref(&tried), are_likeliest_in_real_time).into_iter();
                let before = self.pairs.len();
                self.pairs
                    .extend(pairs.map(|(first, second)| first.plan.and(&second.point, second.action)));
                self.search.coverage.pairs.1 += (self.pairs.len() - before) as u64;
                self.tried.push((number, tried));
            }
            Part::Later(number, candidate) => {
                let tried = self.search.single(plan, &candidate, outcome, self.most);
                self.tried.push((number, tried));
            }
            Part::Pair => self.search.coverage.pairs.0 += 1,
        }
        self.search.is_spent()
    }

    fn part(&self, part: &Part) -> usize {
        usize::from(matches!(part, Part::Later(..)))
    }

    fn is_open(&self, _part: usize) -> bool {
        !self.first.is_empty() || !self.pairs.is_empty() || self.running > 0
    }

    fn judge(&mut self) -> &mut dyn Judge {
        self.search
    }
}

/// Returns the pairs of a tried fault and a fault that is possible after it. The pairs are sorted by the sum of the
/// ranks of both faults, plus one for each of them that is a repetition. Among pairs with the same sum, each first
/// fault contributes one pair before any of them contributes its next pair.
pub(super) fn paired(tried: &[Tried], are_wanted: impl Fn(&Tried, &Candidate) -> bool) -> Vec<(&Tried, &Candidate)> {
    let mut order = Vec::new();
    for (place, one) in tried.iter().enumerate() {
        let seconds = one.next.iter().filter(|it| are_wanted(one, it));
        order.extend(seconds.enumerate().map(|(round, it)| {
            let repeats = u8::from(one.is_repeat) + u8::from(it.is_repeat);
            ((one.rank + it.rank + repeats, round, place), (one, it))
        }));
    }
    order.sort_by_key(|(place, _)| *place);
    order.into_iter().map(|(_, pair)| pair).collect()
}

/// Returns `true` for pairs that are tried before the less likely single faults, such as a crash after a write and a
/// list of an older state after the restart. Many published bugs are caused by such pairs.
pub(super) fn are_likeliest(first: &Tried, second: &Candidate) -> bool {
    !first.is_repeat && !second.is_repeat && first.rank + second.rank <= 1
}

/// Returns `true` for pairs that are tried before the less likely single faults in real time. Fewer runs are possible
/// in real time, so old states of objects that users have changed are tried first.
pub(super) fn are_likeliest_in_real_time(first: &Tried, second: &Candidate) -> bool {
    let are_restarts =
        first.plan.faults.len() == 1 && first.kind == Kind::Crash && second.action.fault == Fault::Rewind;
    are_restarts && are_likeliest(first, second)
}

/// Random mutations of given plans, and of mutations that reached a new state.
struct Swarm<'s, 'a> {
    search: &'s mut Search<'a>,
    random: Random,
    /// The plans to mutate, the oldest first.
    seeds: VecDeque<Tried>,
    /// Number of duplicates that were generated since the last new state.
    idle: usize,
    batch: VecDeque<(Plan, Candidate)>,
    /// Number of runs in progress.
    running: usize,
}

impl Swarm<'_, '_> {
    /// Generates plans until there are `count` of them, or too many duplicates.
    fn generate(&mut self, count: usize) {
        while !self.seeds.is_empty() && self.batch.len() < count && self.idle < SWARM_SEEDS * 16 {
            let seed = &self.seeds[self.random.index(self.seeds.len())];
            let mut plan = seed.plan.clone();
            if plan.faults.len() as u64 >= SWARM_FAULTS {
                plan.faults.remove(self.random.index(plan.faults.len()));
            }
            let next = seed.next[self.random.index(seed.next.len())].clone();
            let plan = plan.and(&next.point, next.action);
            let mut hasher = DefaultHasher::new();
            plan.hash(&mut hasher);
            match self.search.known.insert(hasher.finish()) {
                true => self.batch.push_back((plan, next)),
                false => self.idle += 1,
            }
        }
    }
}

impl Work for Swarm<'_, '_> {
    type About = Candidate;

    fn next(&mut self) -> Option<(Plan, Candidate)> {
        if self.batch.is_empty() {
            match self.search.runs.config.timing.is_real {
                true => self.generate(1),
                // Wait for all results of the last batch, so that the next batch is the same in every search.
                false if self.running == 0 => self.generate(BATCH),
                false => {}
            }
        }
        let next = self.batch.pop_front()?;
        self.running += 1;
        Some(next)
    }

    fn done(&mut self, plan: Plan, next: Candidate, outcome: &Outcome) -> Result<(), Stop> {
        self.running -= 1;
        let is_new = self.search.accept(&plan, outcome)?;
        self.search.coverage.swarms += 1;
        if is_new {
            self.idle = 0;
            if self.seeds.len() >= SWARM_SEEDS {
                self.seeds.pop_front();
            }
            let tried = self.search.continued(plan, &next, outcome);
            if !tried.next.is_empty() {
                self.seeds.push_back(tried);
            }
        }
        self.search.is_spent()
    }

    fn judge(&mut self) -> &mut dyn Judge {
        self.search
    }
}
