//! `Inflight`: requests in progress, and their limits, modelled on `WithMaxInFlightLimit` of k8s.io/apiserver.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Limits on the number of concurrent requests, without watches and connections; 0 means unlimited.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct InflightLimits {
    /// Limit for requests that read.
    pub(crate) read_only: usize,
    /// Limit for requests that write.
    pub(crate) mutating: usize,
}

/// Requests in progress.
#[derive(Debug, Default)]
pub(super) struct Inflight {
    limits: InflightLimits,
    /// Counts of read requests and of write requests.
    levels: Mutex<[Level; 2]>,
}

/// A number of requests, with its maximum in the current and in the previous second.
#[derive(Clone, Copy, Debug, Default)]
struct Level {
    now: usize,
    second: u64,
    highest: usize,
    highest_before: usize,
}

/// Guard of a request in progress, which is counted until the guard is dropped.
#[derive(Debug)]
pub(crate) struct Seat {
    inflight: Arc<Inflight>,
    is_mutating: bool,
}

impl Inflight {
    pub(super) fn new(limits: InflightLimits) -> Self {
        Self {
            limits,
            levels: Mutex::default(),
        }
    }

    pub(super) fn take(self: &Arc<Self>, is_mutating: bool, now: Duration) -> Option<Seat> {
        let limit = match is_mutating {
            true => self.limits.mutating,
            false => self.limits.read_only,
        };
        let mut levels = self.lock();
        let level = &mut levels[usize::from(is_mutating)];
        level.move_to(now.as_secs());
        if limit != 0 && level.now >= limit {
            return None;
        }
        level.now += 1;
        level.highest = level.highest.max(level.now);
        Some(Seat {
            inflight: Arc::clone(self),
            is_mutating,
        })
    }

    /// Returns the maximum number of concurrent requests in the current and the previous second, for reads and for
    /// writes.
    pub(super) fn highest(&self, now: Duration) -> [usize; 2] {
        let mut levels = self.lock();
        levels.each_mut().map(|level| {
            level.move_to(now.as_secs());
            level.highest.max(level.highest_before)
        })
    }

    fn lock(&self) -> MutexGuard<'_, [Level; 2]> {
        self.levels.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Level {
    fn move_to(&mut self, second: u64) {
        if second > self.second {
            let is_next = second == self.second + 1;
            self.highest_before = if is_next { self.highest } else { self.now };
            (self.second, self.highest) = (second, self.now);
        }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut levels = self.inflight.lock();
        let level = &mut levels[usize::from(self.is_mutating)];
        level.now = level.now.saturating_sub(1);
    }
}
