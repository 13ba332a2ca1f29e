//! `Ready`: the order of ready keys. It has a line for each priority; the line with the highest priority is first.
//! Within a line, keys are in order of arrival.

use std::collections::{BTreeMap, VecDeque};

/// Index of a slot in [`Pending`](super::pending::Pending).
pub(super) type SlotId = u32;

/// Sequence number of an entry in a line; never reused. An entry is void (no longer valid) if the key's slot has a
/// different ticket.
pub(super) type Ticket = u64;

/// The lines of all priorities. If a key moves to a different line, its old entry remains but is void. Void entries of
/// a line are removed when there are more than [`VOID`] of them and more void than valid entries.
#[derive(Debug, Default)]
pub(super) struct Ready {
    /// The line of priority 0, which contains nearly all keys.
    normal: Line,
    others: BTreeMap<i32, Line>,
}

#[derive(Debug, Default)]
struct Line {
    entries: VecDeque<(Ticket, SlotId)>,
    /// Keys that reached the front of the line while a worker was processing them. Once the worker is done, they are
    /// returned before `entries`. Their tickets are older than all tickets in `entries`.
    passed: BTreeMap<Ticket, SlotId>,
    void: usize,
}

/// Maximum number of void entries that are kept regardless of the number of valid entries.
const VOID: usize = 64;

/// State of an entry, determined by the key's slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Entry {
    /// The key may be returned.
    Valid,
    /// The key is no longer in this line.
    Void,
    /// A worker is processing the key. The entry is removed; [`Ready::push_passed`] adds it again.
    Locked,
}

impl Ready {
    /// Adds a key at the end of the line of its priority.
    pub(super) fn push(&mut self, priority: i32, ticket: Ticket, slot: SlotId) {
        self.line(priority).entries.push_back((ticket, slot));
    }

    /// Inserts a key before the regular entries of its line. Keys inserted this way are ordered by ticket.
    pub(super) fn push_passed(&mut self, priority: i32, ticket: Ticket, slot: SlotId) {
        self.line(priority).passed.insert(ticket, slot);
    }

    /// Counts the entry of `ticket` in this line, which has become void. If there are too many void entries, removes
    /// the entries for which `look` returns [`Entry::Void`].
    pub(super) fn abandon(&mut self, priority: i32, ticket: Ticket, look: impl Fn(Ticket, SlotId) -> Entry) {
        let line = self.line(priority);
        if line.passed.remove(&ticket).is_some() {
            return;
        }
        line.void += 1;
        if line.void > VOID && line.void * 2 > line.entries.len() {
            line.entries.retain(|&(ticket, slot)| look(ticket, slot) != Entry::Void);
            line.void = 0;
        }
    }

    /// Removes and returns the next key for which `look` returns [`Entry::Valid`]. Removes the entries before it.
    pub(super) fn pop(&mut self, mut look: impl FnMut(Ticket, SlotId) -> Entry) -> Option<SlotId> {
        if self.others.is_empty() {
            return self.normal.pop(&mut look);
        }
        self.pop_by_priority(&mut look)
    }

    #[cold]
    fn pop_by_priority(&mut self, look: &mut impl FnMut(Ticket, SlotId) -> Entry) -> Option<SlotId> {
        let above = self.pop_highest(1, look);
        let found = above.or_else(|| self.normal.pop(look));
        // All lines above have been removed if they contained no key.
        found.or_else(|| self.pop_highest(i32::MIN, look))
    }

    /// Returns the next key of the line with the highest priority, if this priority is at least `least`. Removes lines
    /// that have become empty, so that later calls do not visit them.
    fn pop_highest(&mut self, least: i32, look: &mut impl FnMut(Ticket, SlotId) -> Entry) -> Option<SlotId> {
        while let Some(mut highest) = self.others.last_entry().filter(|it| *it.key() >= least) {
            let found = highest.get_mut().pop(look);
            if highest.get().is_empty() {
                highest.remove();
            }
            if found.is_some() {
                return found;
            }
        }
        None
    }

    fn line(&mut self, priority: i32) -> &mut Line {
        match priority {
            0 => &mut self.normal,
            _ => self.others.entry(priority).or_default(),
        }
    }
}

impl Line {
    fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.passed.is_empty()
    }

    fn pop(&mut self, look: &mut impl FnMut(Ticket, SlotId) -> Entry) -> Option<SlotId> {
        if let Some((_, slot)) = self.passed.pop_first() {
            return Some(slot);
        }
        while let Some((ticket, slot)) = self.entries.pop_front() {
            match look(ticket, slot) {
                Entry::Valid => return Some(slot),
                Entry::Void => self.void = self.void.saturating_sub(1),
                Entry::Locked => {}
            }
        }
        None
    }
}
