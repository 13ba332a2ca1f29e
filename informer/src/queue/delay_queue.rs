//! `DelayQueue`: keys that wait for an instant. A heap, and no timer: who waits on the queue keeps the time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use tokio::time::Instant;

use super::ready::SlotId;

/// Due time of a key, and a number that is never used twice: of two keys with one instant the older goes first.
pub(super) type Due = (Instant, u64);

/// Keys by the instant at which they are due. A key whose instant was brought forward leaves a void entry behind; there
/// are never more of these than valid ones and [`VOID`] more.
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

    /// Says that one entry became void; `is_valid` tells which are not.
    pub(super) fn abandon(&mut self, is_valid: impl Fn(Due, SlotId) -> bool) {
        self.void += 1;
        if self.void > VOID && self.void * 2 > self.heap.len() {
            self.heap.retain(|Reverse((due, slot))| is_valid(*due, *slot));
            self.void = 0;
        }
    }

    /// Returns `true` if no entry waits here, void or not.
    pub(super) fn is_empty(&self) -> bool {
        self.heap.is_empty()
    }

    /// Returns the number of waiting keys.
    pub(super) fn len(&self) -> usize {
        self.heap.len() - self.void.min(self.heap.len())
    }

    /// Returns the due time of the first key. It may be too early by a void entry, never too late.
    pub(super) fn next(&self) -> Option<Instant> {
        self.heap.peek().map(|Reverse(((at, _), _))| *at)
    }

    /// Takes a key that is due at `now`.
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

    /// Forgets everything.
    pub(super) fn clear(&mut self) {
        self.heap.clear();
        self.void = 0;
    }
}
