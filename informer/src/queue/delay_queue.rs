//! `DelayQueue`: keys ordered by due time. It is a heap without a timer: callers that wait for keys also wait for the
//! next due time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use tokio::time::Instant;

use super::ready::SlotId;

/// Due time of a key, and a unique number that orders keys with the same due time.
pub(super) type Due = (Instant, u64);

/// Keys by due time. If the due time of a key changes, its old entry remains but is void. Void entries are removed when
/// there are more than [`VOID`] of them and more void than valid entries.
#[derive(Debug, Default)]
pub(super) struct DelayQueue {
    heap: BinaryHeap<Reverse<(Due, SlotId)>>,
    void: usize,
}

/// Number of void entries that are always allowed.
const VOID: usize = 64;

impl DelayQueue {
    pub(super) fn push(&mut self, due: Due, slot: SlotId) {
        self.heap.push(Reverse((due, slot)));
    }

    /// Counts an entry that has become void. If there are too many void entries, removes the entries for which
    /// `is_valid` returns `false`.
    pub(super) fn abandon(&mut self, is_valid: impl Fn(Due, SlotId) -> bool) {
        self.void += 1;
        if self.void > VOID && self.void * 2 > self.heap.len() {
            self.heap.retain(|Reverse((due, slot))| is_valid(*due, *slot));
            self.void = 0;
        }
    }

    /// Returns `true` if there are neither valid nor void entries.
    pub(super) fn is_empty(&self) -> bool {
        self.heap.is_empty()
    }

    /// Returns the number of keys, without void entries.
    pub(super) fn len(&self) -> usize {
        self.heap.len() - self.void.min(self.heap.len())
    }

    /// Returns the due time of the first entry. If this entry is void, the time may be earlier than the due time of the
    /// next key, but not later.
    pub(super) fn next(&self) -> Option<Instant> {
        self.heap.peek().map(|Reverse(((at, _), _))| *at)
    }

    /// Removes and returns a key that is due at `now`.
    pub(super) fn pop(&mut self, now: Instant, is_valid: impl Fn(Due, SlotId) -> bool) -> Option<SlotId> {
        while self.next().is_some_and(|at| at <= now) {
            let Reverse((due, slot)) = self.heap.pop()?;
            if is_valid(due, slot) {
                return Some(slot);
            }
            self.void = self.void.saturating_sub(1);
        }
        None
    }

    pub(super) fn clear(&mut self) {
        self.heap.clear();
        self.void = 0;
    }
}
