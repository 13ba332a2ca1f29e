//! The order of the search: the reference, the most likely single faults and pairs, all single faults, pairs of
//! different kinds, delivery orders, then swarms.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::candidates::{Candidate, Users, across_changes, early};
use super::context::Runs;
use super::random::Random;
use super::shapes::{is_aside, locks, stale_restarts, unobserved};
use super::sources::{SECONDS, SWARM_FAULTS, are_likeliest, are_likeliest_in_real_time, paired};
use super::state::{Search, Tried};
use super::turns::in_turns;
use super::work::Stop;
use crate::explore::outcomes::Outcome;
use crate::explore::plans::{Action, Kind, OnRun, Plan};
use crate::explore::runs::sequence;
use crate::explore::specs::{BACK, Spec, is_late};
use crate::explore::trace::{Step, What};
use crate::test_cluster::TEST_CLIENT;

/// Maximum rank of a likely fault. Likely faults are tried first. In explorations of a spec, they are combined with
/// each change before changes are combined with each other.
const LIKELY: u8 = 2;

impl Search<'_> {
    pub(crate) fn search(&mut self) -> Result<(), Stop> {
        let reference = Arc::clone(&self.runs.reference);
        let singles = self.candidates(&reference.outcome, 0);
        let overlaps = self.overlaps(&singles);
        self.count_points(&singles);
        let most = SECONDS / singles.len().max(1);
        let is_real = self.runs.config.timing.is_real;
        let trace = &reference.outcome.trace;
        let asides = if is_real { Some(locks(trace)) } else { None };
        let is_first =
            |it: &Candidate| is_likely(it) && !asides.as_ref().is_some_and(|locks| is_beside(trace, it, locks));
        let (mut first, others): (Vec<_>, Vec<_>) = singles.into_iter().partition(is_first);
        let (mut first_overlaps, other_overlaps): (Vec<_>, Vec<_>) = overlaps.into_iter().partition(is_first);
        if is_real {
            let users = Users::of(&reference.outcome);
            let hidden = unobserved(trace, &first_overlaps, &users);
            first_overlaps.retain(|it| !hidden.contains(it));
            let restarts = self.stale_restarts(&reference.outcome, &users);
            first = in_turns(first, [restarts, hidden], trace);
            first_overlaps = in_turns(first_overlaps, [Vec::new(), Vec::new()], trace);
        }
        let parts = [&first, &others, &first_overlaps, &other_overlaps];
        self.kinds.possible = parts.iter().flat_map(|it| it.iter()).map(Candidate::kind).collect();
        let shares = parts.map(|it| self.shard.share(it.len() as u64));
        self.coverage.singles.1 = shares.iter().sum();
        let tried = match is_real {
            true => self.overlapping_parts(first, [first_overlaps, others, other_overlaps], most)?,
            false => {
                let mut tried = Vec::new();
                self.singles(first, most, &mut tried)?;
                self.pairs(&tried, are_likeliest)?;
                for singles in [first_overlaps, others, other_overlaps] {
                    self.singles(singles, most, &mut tried)?;
                }
                tried
            }
        };
        self.pairs(&tried, |first, second| {
            let kinds = (first.kind, second.action.kind());
            let are_tried = match is_real {
                true => are_likeliest_in_real_time(first, second),
                false => are_likeliest(first, second),
            };
            (kinds.0 != kinds.1 || kinds.0 == Kind::Crash) && !are_tried
        })?;
        self.orders(&tried)?;
        self.coverage.is_whole = !self.is_cut;
        self.swarm(tried)
    }

    /// Lists restarts after which a list returns an old state of users' objects, if these kinds of faults are enabled.
    fn stale_restarts(&self, reference: &Outcome, users: &Users) -> Vec<Candidate> {
        match self.faults.has(Kind::Crash) && self.faults.has(Kind::Process) {
            true => stale_restarts(&reference.trace, &reference.controllers, users, self.runs.config.timing),
            false => Vec::new(),
        }
    }

    /// Returns long faults during which the test continues (if the test waits for the cluster more than once), and
    /// delays that make reads finish after the next change of the test (if it makes this change without waiting).
    fn overlaps(&self, singles: &[Candidate]) -> Vec<Candidate> {
        let reference = &self.runs.reference.outcome;
        if !self.faults.has(Kind::Overlap) {
            return Vec::new();
        }
        let mut overlaps = match reference.waited > 1 {
            true => early(singles, self.runs.config.timing),
            false => Vec::new(),
        };
        if self.faults.has(Kind::Delay) && !self.runs.config.timing.is_real {
            overlaps.extend(across_changes(reference));
        }
        overlaps
    }

    /// Tries single faults. For each of them, keeps up to `most` of the faults that are possible after it.
    fn singles(&mut self, singles: Vec<Candidate>, most: usize, tried: &mut Vec<Tried>) -> Result<(), Stop> {
        let plans = self.shard.part(singles.into_iter()).map(|it| (it.plan(), it));
        self.each(plans, |search, plan, candidate, outcome, _| {
            tried.push(search.single(plan, &candidate, outcome, most));
        })
    }

    /// Tries the changes of a spec: each by itself, each followed by its reversal, each with the most likely faults,
    /// then pairs of changes of different fields, then each change with the other faults.
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

    /// Tries all pairs for which `are_wanted` returns `true`, in the order of [`paired`].
    fn pairs(&mut self, tried: &[Tried], are_wanted: impl Fn(&Tried, &Candidate) -> bool) -> Result<(), Stop> {
        let order = paired(tried, are_wanted);
        self.coverage.pairs.1 += order.len() as u64;
        let plans = order.into_iter().map(|(first, second)| {
            let plan = first.plan.and(&second.point, second.action);
            (plan, ())
        });
        self.each(plans, |search, _, (), _, _| search.coverage.pairs.0 += 1)
    }
}

/// Returns `true` for faults that are tried before all other faults.
fn is_likely(candidate: &Candidate) -> bool {
    !candidate.is_repeat && candidate.rank <= LIKELY
}

/// Returns `true` for faults at messages about Leases, Events, and objects that older clients write together with a
/// Lease.
fn is_beside(trace: &[Step], candidate: &Candidate, locks: &BTreeSet<String>) -> bool {
    trace.get(candidate.at).is_some_and(|it| match &it.what {
        What::Request(request) => is_aside(request.base()) || locks.contains(&request.named()),
        What::Event { resource, object, .. } => is_aside(resource) || locks.contains(object),
        What::Call { .. } | What::Note(_) => false,
    })
}

/// Returns the field in the name of a change.
fn field(change: &str) -> &str {
    change.split(':').next().unwrap_or_default()
}
