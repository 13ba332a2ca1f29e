//! `Pending`: the keys of a work queue with their states. It is synchronous and does not read the clock; the current
//! time is an argument.

use std::collections::HashMap;
use std::hash::Hash;

use foldhash::fast::RandomState;
use tokio::time::Instant;

use super::delay_queue::{DelayQueue, Due};
use super::metrics::Stats;
use super::ready::{Entry, Ready, SlotId, Ticket};

/// Number of slots above which unused slots are freed, if more than half of all slots are unused.
const IDLE_SLOTS: usize = 4096;

/// Ticket of a key that is not queued.
const NONE: Ticket = 0;

/// The order in which keys are returned, and the effect of adding a key that is already in the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Discipline {
    /// First in, first out, as in client-go.
    Fifo,
    /// Highest priority first, as in controller-runtime.
    Priority,
}

/// The keys of a queue with their states.
///
/// A key is queued at most once, and at most one worker processes it at a time. A key that is added while a worker is
/// processing it is returned once more afterwards, even if it was added several times.
#[derive(Debug)]
pub(super) struct Pending<T> {
    discipline: Discipline,
    ids: HashMap<T, SlotId, RandomState>,
    slots: Vec<Slot<T>>,
    free: Vec<SlotId>,
    ready: Ready,
    delayed: DelayQueue,
    /// The last number that was used for a ticket or a delay.
    last: u64,
    /// Number of queued keys, including keys that a worker is still processing.
    in_line: usize,
    /// Number of queued keys that a worker is still processing.
    locked: usize,
    processing: usize,
    /// Number of keys for which the rate limiter may have recorded failures.
    limited: usize,
    pub(super) stats: Option<Box<Stats>>,
}

#[derive(Debug)]
struct Slot<T> {
    /// The key as it was last added. It is moved to the worker instead of being cloned. `None` if the key is neither
    /// queued nor delayed.
    key: Option<T>,
    /// Ticket of the queued key; [`NONE`] if the key is not queued.
    ticket: Ticket,
    /// Priority of the key while it is queued or delayed.
    priority: i32,
    /// Set if the key reached the front of the queue while a worker was processing it.
    is_passed: bool,
    is_processing: bool,
    /// Set if the rate limiter may have recorded failures of the key.
    is_limited: bool,
    /// Due time of a delayed key.
    due: Option<Due>,
    /// Time at which the key was queued, for metrics.
    added: Option<Instant>,
    /// Time at which a worker received the key, for metrics.
    taken: Option<Instant>,
}

/// A key that is given to a worker, with its state.
#[derive(Debug)]
pub(super) struct Taken<T> {
    pub(super) key: T,
    pub(super) slot: SlotId,
    pub(super) priority: i32,
    pub(super) is_limited: bool,
    /// Time at which the worker received the key, if the queue has metrics.
    pub(super) at: Option<Instant>,
}

impl<T: Clone + Eq + Hash> Pending<T> {
    pub(super) fn new(discipline: Discipline, stats: Option<Box<Stats>>) -> Self {
        Self {
            discipline,
            ids: HashMap::default(),
            slots: Vec::new(),
            free: Vec::new(),
            ready: Ready::default(),
            delayed: DelayQueue::default(),
            last: NONE,
            in_line: 0,
            locked: 0,
            processing: 0,
            limited: 0,
            stats,
        }
    }

    /// Returns the number of queued keys, including keys that a worker is still processing.
    pub(super) fn in_line(&self) -> usize {
        self.in_line
    }

    /// Returns the number of keys that can be returned now.
    pub(super) fn available(&self) -> usize {
        self.in_line - self.locked
    }

    /// Returns the number of keys that workers are processing.
    pub(super) fn processing(&self) -> usize {
        self.processing
    }

    /// Returns the number of delayed keys.
    pub(super) fn delayed(&self) -> usize {
        self.delayed.len()
    }

    /// Returns the time at which [`promote`](Self::promote) must be called next.
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.delayed.next()
    }

    /// Returns the number of keys for which the rate limiter may have recorded failures.
    #[cfg(test)]
    pub(super) fn limited(&self) -> usize {
        self.limited
    }

    pub(super) fn has_delayed(&self) -> bool {
        !self.delayed.is_empty()
    }

    /// Queues a key. `now` is only needed for metrics.
    pub(super) fn add(&mut self, key: T, priority: i32, now: Option<Instant>) -> SlotId {
        let slot = self.slot_of(key);
        if let Some(stats) = &mut self.stats {
            stats.adds += 1;
        }
        self.enter(slot, priority, now);
        slot
    }

    /// Records that the rate limiter may have recorded failures of a key.
    pub(super) fn limit(&mut self, id: SlotId) {
        let slot = &mut self.slots[id as usize];
        self.limited += usize::from(!slot.is_limited);
        slot.is_limited = true;
    }

    /// Records that the failures of a key in the rate limiter were reset.
    pub(super) fn unlimit(&mut self, id: SlotId) {
        let slot = &mut self.slots[id as usize];
        self.limited -= usize::from(slot.is_limited);
        slot.is_limited = false;
    }

    /// Same as [`unlimit`](Self::unlimit), for a key that may not be in the queue.
    pub(super) fn unlimit_key(&mut self, key: &T) {
        if let Some(&id) = self.ids.get(key) {
            self.unlimit(id);
        }
    }

    /// Delays a key until `at`. If the key is already delayed, the earlier time applies.
    ///
    /// With priorities, a key is either ready or delayed: a key that is already ready stays ready.
    pub(super) fn add_at(&mut self, key: T, priority: i32, at: Instant) -> SlotId {
        let id = self.slot_of(key);
        if let Some(stats) = &mut self.stats {
            stats.retries += 1;
        }
        let slot = &self.slots[id as usize];
        if self.discipline == Discipline::Priority && slot.ticket != NONE {
            self.enter(id, priority, None);
            return id;
        }
        let is_waiting = slot.due.is_some();
        let rank = if is_waiting {
            slot.priority.max(priority)
        } else {
            priority
        };
        let is_raised = self.discipline == Discipline::Priority && rank > slot.priority;
        let first = slot.due.map_or(at, |(before, _)| before.min(at));
        if slot.due.is_none_or(|(before, _)| at < before) || is_raised {
            self.last += 1;
            let due = (first, self.last);
            self.slots[id as usize].due = Some(due);
            self.delayed.push(due, id);
            if is_waiting {
                self.delayed
                    .abandon(|due, slot| self.slots[slot as usize].due == Some(due));
            }
        }
        if self.discipline == Discipline::Priority {
            self.slots[id as usize].priority = rank;
        }
        id
    }

    /// Queues the keys that are due at `now`.
    pub(super) fn promote(&mut self, now: Instant) {
        loop {
            let slots = &self.slots;
            let Some(id) = self.delayed.pop(now, |due, slot| slots[slot as usize].due == Some(due)) else {
                return;
            };
            let slot = &mut self.slots[id as usize];
            slot.due = None;
            let priority = slot.priority;
            if let Some(stats) = &mut self.stats {
                stats.adds += 1;
            }
            self.enter(id, priority, Some(now));
        }
    }

    /// Removes the next key from the queue, for a worker.
    pub(super) fn pop(&mut self, now: Option<Instant>) -> Option<Taken<T>> {
        let slots = &mut self.slots;
        let id = self.ready.pop(|ticket, slot| {
            let slot = &mut slots[slot as usize];
            let entry = slot.look(ticket);
            slot.is_passed |= entry == Entry::Locked;
            entry
        })?;
        let slot = &mut self.slots[id as usize];
        slot.ticket = NONE;
        slot.is_passed = false;
        slot.is_processing = true;
        self.in_line -= 1;
        self.processing += 1;
        if let (Some(stats), Some(now)) = (&mut self.stats, now) {
            stats.took(now, slot.added.take());
            slot.taken = Some(now);
        }
        // Keep the key in the slot if it is also delayed, because it will be returned again.
        let key = if slot.due.is_some() {
            slot.key.clone()
        } else {
            slot.key.take()
        };
        Some(Taken {
            key: key?,
            slot: id,
            priority: slot.priority,
            is_limited: slot.is_limited,
            at: slot.taken,
        })
    }

    /// Records that the worker of a key is done. If the key was added in the meantime, it becomes available.
    pub(super) fn done(&mut self, id: SlotId, now: Option<Instant>) {
        self.processing -= 1;
        let slot = &mut self.slots[id as usize];
        slot.is_processing = false;
        if let (Some(stats), Some(now)) = (&mut self.stats, now) {
            stats.finished(now, slot.taken.take());
        }
        if slot.ticket == NONE {
            if slot.due.is_none() {
                self.sweep();
            }
            return;
        }
        self.locked -= 1;
        match self.discipline {
            Discipline::Fifo => {
                let ticket = slot.ticket;
                self.ready.push(0, ticket, id);
            }
            Discipline::Priority if slot.is_passed => {
                slot.is_passed = false;
                let (priority, ticket) = (slot.priority, slot.ticket);
                self.ready.push_passed(priority, ticket, id);
            }
            Discipline::Priority => {}
        }
    }

    /// Removes all delayed keys.
    pub(super) fn clear_delayed(&mut self) {
        self.delayed.clear();
        for slot in &mut self.slots {
            slot.due = None;
            if slot.ticket == NONE {
                slot.key = None;
            }
        }
    }

    /// Returns the seconds for which workers have been processing keys: the sum and the maximum.
    pub(super) fn under_work(&self, now: Instant) -> (f64, f64) {
        let all = self.slots.iter().filter_map(|slot| slot.taken);
        let ages = all.map(|taken| now.saturating_duration_since(taken).as_secs_f64());
        ages.fold((0.0, 0.0), |(sum, oldest), age| (sum + age, f64::max(oldest, age)))
    }

    /// Returns the number of queued keys, by priority.
    pub(super) fn depths(&self) -> std::collections::BTreeMap<i32, usize> {
        let mut depths = std::collections::BTreeMap::from([(0, 0)]);
        for slot in self.slots.iter().filter(|slot| slot.ticket != NONE) {
            *depths.entry(slot.priority).or_default() += 1;
        }
        depths
    }

    /// Queues a key. If the key is already queued, only a priority queue changes its position, to a higher priority.
    fn enter(&mut self, id: SlotId, priority: i32, now: Option<Instant>) {
        let slot = &mut self.slots[id as usize];
        match self.discipline {
            Discipline::Fifo if slot.ticket != NONE => {}
            Discipline::Fifo => {
                self.last += 1;
                slot.ticket = self.last;
                slot.added = now;
                self.in_line += 1;
                if slot.is_processing {
                    self.locked += 1;
                } else {
                    self.ready.push(0, self.last, id);
                }
            }
            Discipline::Priority => self.enter_by_priority(id, priority, now),
        }
    }

    fn enter_by_priority(&mut self, id: SlotId, priority: i32, now: Option<Instant>) {
        let slot = &mut self.slots[id as usize];
        let mut rank = priority;
        if slot.ticket != NONE {
            if priority <= slot.priority {
                return;
            }
            let (before, ticket) = (slot.priority, slot.ticket);
            let was_passed = std::mem::take(&mut slot.is_passed);
            slot.ticket = NONE;
            if !was_passed {
                let slots = &self.slots;
                self.ready
                    .abandon(before, ticket, |ticket, slot| slots[slot as usize].look(ticket));
            }
        } else {
            slot.added = now;
            self.in_line += 1;
            self.locked += usize::from(slot.is_processing);
            // The key is no longer delayed, because returning it once covers both additions.
            if slot.due.take().is_some() {
                rank = rank.max(slot.priority);
                let slots = &self.slots;
                self.delayed.abandon(|due, slot| slots[slot as usize].due == Some(due));
            }
        }
        self.last += 1;
        let slot = &mut self.slots[id as usize];
        slot.priority = rank;
        slot.ticket = self.last;
        self.ready.push(rank, self.last, id);
    }

    fn slot_of(&mut self, key: T) -> SlotId {
        if let Some(&id) = self.ids.get(&key) {
            self.slots[id as usize].key = Some(key);
            return id;
        }
        let slot = Slot {
            key: Some(key.clone()),
            ticket: NONE,
            priority: 0,
            is_passed: false,
            is_processing: false,
            is_limited: false,
            due: None,
            added: None,
            taken: None,
        };
        let id = if let Some(id) = self.free.pop() {
            self.slots[id as usize] = slot;
            id
        } else {
            self.slots.push(slot);
            SlotId::try_from(self.slots.len() - 1).expect("the number of keys fits into 32 bits")
        };
        self.ids.insert(key, id);
        id
    }

    /// Frees the slots of unused keys if there are too many.
    fn sweep(&mut self) {
        let busy = self.in_line + self.processing + self.delayed.len() + self.limited;
        if busy == 0 && self.slots.len() > IDLE_SLOTS {
            return self.give_memory_back();
        }
        if self.ids.len() <= IDLE_SLOTS.max(busy * 2) {
            return;
        }
        let Self { ids, slots, free, .. } = self;
        let before = free.len();
        ids.retain(|_, id| {
            let slot = &mut slots[*id as usize];
            let is_idle = slot.ticket == NONE && slot.due.is_none() && !slot.is_processing && !slot.is_limited;
            if is_idle {
                free.push(*id);
            }
            !is_idle
        });
        // Sort the slots, so that the order of their reuse does not depend on the order of the map.
        free[before..].sort_unstable_by(|a, b| b.cmp(a));
    }
}

impl<T: Clone + Eq + Hash> Pending<T> {
    /// Removes all keys and frees their memory, which can be large after a burst. Must only be called if all slots are
    /// unused.
    fn give_memory_back(&mut self) {
        self.ids = HashMap::default();
        self.slots = Vec::new();
        self.free = Vec::new();
        // Only void entries are left.
        self.ready = Ready::default();
        self.delayed = DelayQueue::default();
    }
}

impl<T> Slot<T> {
    fn look(&self, ticket: Ticket) -> Entry {
        if self.ticket != ticket {
            Entry::Void
        } else if self.is_processing {
            Entry::Locked
        } else {
            Entry::Valid
        }
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::fifo(Discipline::Fifo)]
    #[case::by_priority(Discipline::Priority)]
    fn memory_is_released_when_the_last_key_of_a_burst_is_done(#[case] discipline: Discipline) {
        let mut pending = Pending::new(discipline, None);
        let burst = 3 * IDLE_SLOTS as u32;
        for round in 0..2 {
            for key in 0..burst {
                pending.add(key, 0, None);
                // With priorities, the previous entry of each key becomes void.
                pending.add(key, 1, None);
            }
            let mut last = None;
            while let Some(taken) = pending.pop(None) {
                // A key keeps its slot while a worker is processing it.
                if let Some(slot) = last.replace(taken.slot) {
                    pending.done(slot, None);
                }
            }
            let slot = last.expect("the queue has keys");
            assert!(pending.slots.len() > IDLE_SLOTS, "the slots are kept in round {round}");
            pending.add(0, 0, None);
            pending.done(slot, None);
            assert!(pending.slots.len() > IDLE_SLOTS, "slots are kept while a key is queued");
            let taken = pending.pop(None).expect("the key is queued");
            assert_eq!(taken.key, 0);
            pending.done(taken.slot, None);
            assert_eq!((pending.slots.capacity(), pending.ids.capacity()), (0, 0));
        }
    }
}
