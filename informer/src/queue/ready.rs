//! `Ready`: selects the next key. It has a line for each priority, highest first; within a line, keys are in the order
//! of arrival.

use std::collections::{BTreeMap, VecDeque};

/// Index of a slot in [`Pending`](super::pending::Pending).
pub(super) type SlotId = u32;

/// Order in which a key entered its line; never reused. A slot contains the valid ticket: older ones are void.
pub(super) type Ticket = u64;

/// The lines. Keys that moved to a better line leave void entries behind. If a line has more of them than valid entries
/// plus [`VOID`], they are removed.
#[derive(Debug, Default)]
pub(super) struct Ready {
    /// The line of priority 0, for nearly all keys.
    normal: Line,
    others: BTreeMap<i32, Line>,
}

#[derive(Debug, Default)]
struct Line {
    entries: VecDeque<(Ticket, SlotId)>,
    /// Keys that became due while a worker had them; they precede all others when the worker is done. Their tickets are
    /// older than all tickets of `entries`.
    passed: BTreeMap<Ticket, SlotId>,
    void: usize,
}

/// Number of void entries that a line may always contain.
const VOID: usize = 64;

/// State of an entry, as reported by the owner of the slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Entry {
    /// The key may be returned.
    Valid,
    /// The key left this line.
    Void,
    /// A worker has the key. The entry is removed, and added again by [`Ready::push_passed`].
    Locked,
}

impl Ready {
    /// Puts a key at the end of its line.
    pub(super) fn push(&mut self, priority: i32, ticket: Ticket, slot: SlotId) {
        self.line(priority).entries.push_back((ticket, slot));
    }

    /// Inserts a key before all others of its line, except passed ones with an older ticket.
    pub(super) fn push_passed(&mut self, priority: i32, ticket: Ticket, slot: SlotId) {
        self.line(priority).passed.insert(ticket, slot);
    }

    /// Marks the entry of `ticket` in this line as void; `look` reports the state of the others.
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

    /// Removes the next key for which `look` returns a valid entry.
    pub(super) fn pop(&mut self, mut look: impl FnMut(Ticket, SlotId) -> Entry) -> Option<SlotId> {
        if self.others.is_empty() {
            return self.normal.pop(&mut look);
        }
        self.pop_by_priority(&mut look)
    }

    #[cold]
    fn pop_by_priority(&mut self, look: &mut impl FnMut(Ticket, SlotId) -> Entry) -> Option<SlotId> {
        let mut found = None;
        let higher = self.others.iter_mut().rev().take_while(|(priority, _)| **priority > 0);
        for (_, line) in higher {
            found = found.or_else(|| line.pop(look));
        }
        found = found.or_else(|| self.normal.pop(look));
        for (_, line) in self.others.range_mut(..0).rev() {
            found = found.or_else(|| line.pop(look));
        }
        self.others.retain(|_, line| !line.is_empty());
        found
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
