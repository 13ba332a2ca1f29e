//! `DelayQueue`: keys that wait for an instant. It is a heap without a timer: callers that wait for a key also wait for
//! the due time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use tokio::time::Instant;

use super::ready::SlotId;

/// Due time of a key, and a unique number: of two keys with the same instant, the older is first.
pub(super) type Due = (Instant, u64);

/// Keys by due time. A key that was moved forward leaves a void entry behind; their number is at most the number of
/// valid ones plus [`VOID`].
#[derive(Debug, Default)]
pub(super) struct DelayQueue {
    heap: BinaryHeap<Reverse<(Due, SlotId)>>,
    void: usize,
}

/// Number of void entries that are always allowed.
const VOID: usize = 64;

impl DelayQueue {
    /// Adds a key.
    pub(super) fn push(&mut self, due: Due, slot: SlotId) {
        self.heap.push(Reverse((due, slot)));
    }

    /// Marks one entry as void; `is_valid` returns `true` for valid ones.
    pub(super) fn abandon(&mut self, is_valid: impl Fn(Due, SlotId) -> bool) {
        self.void += 1;
        if self.void > VOID && self.void * 2 > self.heap.len() {
            self.heap.retain(|Reverse((due, slot))| is_valid(*due, *slot));
            self.void = 0;
        }
    }

    /// Returns `true` if there are no entries, not even void ones.
    pub(super) fn is_empty(&self) -> bool {
        self.heap.is_empty()
    }

    /// Returns the number of waiting keys.
    pub(super) fn len(&self) -> usize {
        self.heap.len() - self.void.min(self.heap.len())
    }

    /// Returns the due time of the first key. Void entries can make it too early, never too late.
    pub(super) fn next(&self) -> Option<Instant> {
        self.heap.peek().map(|Reverse(((at, _), _))| *at)
    }

    /// Removes a key that is due at `now`.
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

    /// Removes all keys.
    pub(super) fn clear(&mut self) {
        self.heap.clear();
        self.void = 0;
    }
}
