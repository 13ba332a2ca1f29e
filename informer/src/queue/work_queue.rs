//! `WorkQueue`: a queue of keys for workers.

use std::fmt;
use std::hash::Hash;
use std::ops::Deref;
use std::pin::pin;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Duration;

use futures::future::{Either, select};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use super::metrics::{Gauges, Stats};
use super::pending::{Discipline, Pending, Taken};
use super::rate_limiter::{ExponentialBackoff, RateLimiter, default_controller_rate_limiter};
use super::ready::SlotId;
use crate::metrics::{Collect, Metrics, Samples};
use crate::sync::Mutex;

/// Default priority of a key.
pub const DEFAULT_PRIORITY: i32 = 0;

/// controller-runtime's priority for work that is not urgent: keys of objects in the first list after a start, and of
/// updates without a change.
pub const LOW_PRIORITY: i32 = -100;

/// Maximum delay: about 30 years, so that timers do not overflow. Longer delays are shortened to it.
const LONGEST_DELAY: Duration = Duration::from_secs(30 * 365 * 24 * 3600);

/// A queue of keys for workers. Clones share the same queue.
///
/// A key is in the queue at most once, and at most one worker processes it at a time. A key that is added while a
/// worker is processing it is returned once more when this worker is done. As a result, changes are not lost, and two
/// workers never process the same key at the same time. The length of the queue is limited only by the number of
/// distinct keys.
///
/// There are two disciplines. [`WorkQueue::new`] uses the discipline of client-go: keys are returned in order of
/// arrival, and remaining keys are still returned after a shutdown. [`WorkQueueBuilder::by_priority`] uses the
/// discipline of controller-runtime: keys with the highest priority are returned first, adding a delayed key without a
/// delay cancels its delay, and keys are not returned after a shutdown.
///
/// ```
/// use informer::queue::WorkQueue;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let queue = WorkQueue::new();
/// queue.add("a");
/// queue.add("b");
/// queue.add("a"); // no effect, because "a" is already queued
///
/// let work = queue.get().await.expect("the queue is not shut down");
/// assert_eq!(*work, "a");
/// queue.add("a"); // a worker is processing "a", so it is returned again when the worker is done
/// assert_eq!(queue.get().await.as_deref(), Some(&"b"));
/// drop(work); // corresponds to client-go's `Done`
/// assert_eq!(queue.get().await.as_deref(), Some(&"a"));
///
/// queue.shut_down();
/// assert!(queue.get().await.is_none());
/// # }
/// ```
pub struct WorkQueue<T: Clone + Eq + Hash>(Arc<Inner<T>>);

struct Inner<T: Clone + Eq + Hash> {
    name: Option<String>,
    discipline: Discipline,
    /// Guards the keys and the waiting callers.
    state: Mutex<State<T>>,
    /// Guards the rate limiter. Never locked together with `state`.
    limiter: Mutex<Box<dyn RateLimiter<T>>>,
    /// Wakes callers that wait for a key.
    work: Notify,
    /// Wakes the caller that waits for the next due time, if an earlier due time was added.
    earlier: Notify,
    /// Wakes callers that wait for the queue to be drained.
    drained: Notify,
}

struct State<T> {
    pending: Pending<T>,
    phase: Phase,
    /// Number of callers that wait for a key.
    waiting: usize,
    /// Set if one of the waiting callers waits for the next due time.
    has_timekeeper: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Open,
    /// The queue was shut down: adds are ignored.
    ShutDown,
    /// Same as `ShutDown`, while a caller waits until all work is done.
    Draining,
}

/// Options of [`WorkQueue::add_with`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AddOptions {
    /// Priority of the key; keys with the highest priority are returned first. A key that is already queued keeps the
    /// higher of the two priorities. Ignored by queues without priorities.
    pub priority: i32,
    /// Delay before the key becomes ready; zero means no delay.
    pub after: Duration,
    /// Records a failure of the key in the rate limiter, and delays the key by the limiter's delay. If `after` is set
    /// as well, the shorter delay applies.
    pub is_rate_limited: bool,
    /// Unused. End struct literals with `..AddOptions::default()`, because fields may be added.
    #[doc(hidden)]
    pub _more: (),
}

/// Options of a [`WorkQueue`].
///
/// ```
/// use std::time::Duration;
/// use informer::metrics::Metrics;
/// use informer::queue::{AddOptions, ExponentialBackoff, WorkQueue};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let metrics = Metrics::new();
/// let queue = WorkQueue::builder()
///     .by_priority()
///     .rate_limiter(ExponentialBackoff::new(Duration::from_secs(1), Duration::from_secs(60)))
///     .named("orders", &metrics)
///     .build();
/// queue.add("later");
/// queue.add_with("sooner", AddOptions { priority: 10, ..AddOptions::default() });
/// assert_eq!(queue.get().await.as_deref(), Some(&"sooner"));
/// assert!(metrics.render().contains("workqueue_adds_total{name=\"orders\",controller=\"orders\"} 2"));
/// # }
/// ```
#[must_use = "a builder does nothing until `build` is called"]
#[derive(Debug)]
pub struct WorkQueueBuilder<T> {
    discipline: Discipline,
    limiter: Option<Box<dyn RateLimiter<T>>>,
    name: Option<(String, Metrics)>,
}

impl<T: Clone + fmt::Debug + Eq + Hash + Send + 'static> WorkQueueBuilder<T> {
    /// Orders keys by priority, highest first, instead of by arrival. The default rate limiter is then an
    /// [`ExponentialBackoff`], without a limit for all keys together.
    pub fn by_priority(mut self) -> Self {
        self.discipline = Discipline::Priority;
        self
    }

    /// Sets the rate limiter, which determines the delay of failed keys. Default: [`default_controller_rate_limiter`],
    /// or an [`ExponentialBackoff`] if keys are ordered by priority.
    pub fn rate_limiter(mut self, limiter: impl RateLimiter<T> + 'static) -> Self {
        self.limiter = Some(Box::new(limiter));
        self
    }

    /// Enables metrics, with `name` as the label of the queue. Default: no metrics.
    pub fn named(mut self, name: &str, metrics: &Metrics) -> Self {
        self.name = Some((name.to_owned(), metrics.clone()));
        self
    }

    /// Builds the queue.
    pub fn build(self) -> WorkQueue<T> {
        let discipline = self.discipline;
        let limiter = self.limiter.unwrap_or_else(|| match discipline {
            Discipline::Fifo => Box::new(default_controller_rate_limiter()),
            Discipline::Priority => Box::new(ExponentialBackoff::default()),
        });
        let stats = self.name.as_ref().map(|_| Box::new(Stats::new()));
        let (name, metrics) = self.name.unzip();
        let inner = Arc::new(Inner {
            name,
            discipline,
            state: Mutex::new(State {
                pending: Pending::new(discipline, stats),
                phase: Phase::Open,
                waiting: 0,
                has_timekeeper: false,
            }),
            limiter: Mutex::new(limiter),
            work: Notify::new(),
            earlier: Notify::new(),
            drained: Notify::new(),
        });
        if let Some(metrics) = metrics {
            let collector: Arc<dyn Collect> = inner.clone();
            metrics.register(&collector);
        }
        WorkQueue(inner)
    }
}

impl<T: Clone + fmt::Debug + Eq + Hash + Send + 'static> WorkQueue<T> {
    /// Creates a queue ordered by arrival, with client-go's default rate limiter and without metrics.
    pub fn new() -> Self {
        Self::builder().build()
    }

    /// Returns a builder for a queue.
    pub fn builder() -> WorkQueueBuilder<T> {
        WorkQueueBuilder {
            discipline: Discipline::Fifo,
            limiter: None,
            name: None,
        }
    }
}

impl<T: Clone + fmt::Debug + Eq + Hash + Send + 'static> Default for WorkQueue<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: Clone + Eq + Hash> WorkQueue<T> {
    /// Adds a key without a delay. Does nothing after a shutdown.
    pub fn add(&self, key: T) {
        self.0.add(key, DEFAULT_PRIORITY, false);
    }

    /// Adds a key after a delay. If the key is already delayed, the earlier time applies.
    pub fn add_after(&self, key: T, after: Duration) {
        self.0.add_after(key, DEFAULT_PRIORITY, after, false);
    }

    /// Records a failure of a key in the rate limiter, and adds the key after the limiter's delay.
    pub fn add_rate_limited(&self, key: T) {
        let after = self.0.limiter().when(&key);
        self.0.add_after(key, DEFAULT_PRIORITY, after, true);
    }

    /// Adds a key according to the options.
    pub fn add_with(&self, key: T, options: AddOptions) {
        let AddOptions {
            priority,
            mut after,
            is_rate_limited,
            _more: (),
        } = options;
        if is_rate_limited {
            let wait = self.0.limiter().when(&key);
            after = if after.is_zero() { wait } else { after.min(wait) };
        }
        self.0.add_after(key, priority, after, is_rate_limited);
    }

    /// Waits for the next key. Returns `None` after a shutdown; without priorities, all ready keys are returned first.
    /// Other callers do not receive the key until the [`WorkItem`] is dropped.
    ///
    /// A new key wakes the caller that has waited longest. Dropping the future at any time does not lose keys.
    pub async fn get(&self) -> Option<WorkItem<T>> {
        // Yield from time to time, so that other tasks can run even if this worker always finds a key.
        tokio::task::coop::consume_budget().await;
        self.wait().await
    }

    async fn wait(&self) -> Option<WorkItem<T>> {
        let mut seat = Seat::new(&self.0);
        loop {
            let mut woken = pin!(self.0.work.notified());
            {
                let mut state = self.0.state();
                seat.leave(&mut state);
                if let Some(taken) = self.0.take(&mut state, None) {
                    self.0.find_timekeeper(&state);
                    drop(state);
                    return Some(self.work(taken));
                }
                if state.phase != Phase::Open {
                    return None;
                }
                seat.take(&mut state);
            }
            match seat.until {
                None => woken.await,
                Some(due) => {
                    let earlier = pin!(self.0.earlier.notified());
                    let sleep = pin!(sleep_until(due));
                    match select(woken.as_mut(), select(earlier, sleep)).await {
                        Either::Left(_) | Either::Right(_) => {}
                    }
                }
            }
        }
    }

    /// Returns the next key if one is ready.
    pub fn try_get(&self) -> Option<WorkItem<T>> {
        let taken = self.0.take(&mut self.0.state(), None)?;
        Some(self.work(taken))
    }

    /// Resets the failures of a key in the rate limiter, because the key succeeded or will not be retried. Does not
    /// affect a worker that is processing the key.
    pub fn forget(&self, key: &T) {
        // In this order, a failure that is recorded at the same time is not lost.
        self.0.state().pending.unlimit_key(key);
        self.0.limiter().forget(key);
    }

    /// Returns the number of failures of the key since the last reset.
    pub fn num_requeues(&self, key: &T) -> u32 {
        self.0.limiter().num_requeues(key)
    }

    /// Same as [`forget`](Self::forget), for a key that a worker is processing. Cheap if the key has not failed.
    pub(crate) fn forget_work(&self, work: &WorkItem<T>) {
        if let Some(slot) = work.slot.filter(|_| work.is_limited) {
            self.0.state().pending.unlimit(slot);
            self.0.limiter().forget(&work.key);
        }
    }

    /// Same as [`num_requeues`](Self::num_requeues), for a key that a worker is processing. Cheap if the key has not
    /// failed.
    pub(crate) fn num_requeues_of(&self, work: &WorkItem<T>) -> u32 {
        if work.is_limited {
            self.num_requeues(&work.key)
        } else {
            0
        }
    }

    /// Returns the number of ready keys. Delayed keys are not counted. A key that a worker is processing is counted if
    /// it was added again.
    pub fn len(&self) -> usize {
        let mut state = self.0.state();
        state.promote();
        state.pending.in_line()
    }

    /// Returns `true` if no key is queued.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the number of delayed keys.
    pub fn delayed(&self) -> usize {
        let mut state = self.0.state();
        state.promote();
        state.pending.delayed()
    }

    /// Returns the number of keys that workers are processing.
    pub fn processing(&self) -> usize {
        self.0.state().pending.processing()
    }

    /// Returns `true` if the queue orders keys by priority.
    pub fn has_priorities(&self) -> bool {
        self.0.discipline == Discipline::Priority
    }

    /// Shuts the queue down: later adds are ignored, and delayed keys are dropped. Ready keys are still returned,
    /// unless the queue has priorities. Ends the wait in [`shut_down_with_drain`](Self::shut_down_with_drain).
    pub fn shut_down(&self) {
        self.0.close(Phase::ShutDown);
    }

    /// Shuts the queue down, and waits until all workers are done. Without priorities, also waits until workers have
    /// received all ready keys, so it waits forever if there are ready keys but no workers. A call of
    /// [`shut_down`](Self::shut_down) ends the wait.
    pub async fn shut_down_with_drain(&self) {
        self.0.close(Phase::Draining);
        loop {
            let drained = pin!(self.0.drained.notified());
            if self.0.is_drained() {
                return;
            }
            drained.await;
        }
    }

    /// Returns `true` if the queue was shut down.
    pub fn is_shutting_down(&self) -> bool {
        self.0.state().phase != Phase::Open
    }

    fn work(&self, taken: Taken<T>) -> WorkItem<T> {
        WorkItem {
            key: taken.key,
            slot: Some(taken.slot),
            priority: taken.priority,
            is_limited: taken.is_limited,
            taken: taken.at,
            inner: Arc::clone(&self.0),
        }
    }
}

impl<T: Clone + Eq + Hash> Inner<T> {
    fn state(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn limiter(&self) -> MutexGuard<'_, Box<dyn RateLimiter<T>>> {
        self.limiter.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, key: T, priority: i32, is_limited: bool) {
        let mut state = self.state();
        if state.phase != Phase::Open {
            return;
        }
        state.promote();
        let now = state.now_for_metrics();
        let slot = state.pending.add(key, priority, now);
        if is_limited {
            state.pending.limit(slot);
        }
        self.wake(&state);
    }

    fn add_after(&self, key: T, priority: i32, after: Duration, is_limited: bool) {
        if after.is_zero() {
            return self.add(key, priority, is_limited);
        }
        let mut state = self.state();
        if state.phase != Phase::Open {
            return;
        }
        let before = state.pending.next_due();
        let due = Instant::now() + after.min(LONGEST_DELAY);
        let slot = state.pending.add_at(key, priority, due);
        if is_limited {
            state.pending.limit(slot);
        }
        let is_first = before != state.pending.next_due();
        if is_first && state.has_timekeeper {
            self.earlier.notify_one();
        } else if is_first && state.waiting > 0 {
            // The woken caller will not find a key, and will then wait for the due time.
            self.work.notify_one();
        } else {
            self.wake(&state);
        }
    }

    /// Takes the next key. `now` is the current time for metrics, if the caller has it.
    fn take(&self, state: &mut State<T>, now: Option<Instant>) -> Option<Taken<T>> {
        state.promote();
        if state.phase != Phase::Open && self.discipline == Discipline::Priority {
            return None;
        }
        let now = now.or_else(|| state.now_for_metrics());
        let taken = state.pending.pop(now);
        // If two keys were added before a waiting caller woke up, only one notification was stored.
        self.wake(state);
        taken
    }

    fn done(&self, slot: SlotId) {
        let mut state = self.state();
        let now = state.now_for_metrics();
        self.give_back(&mut state, slot, now);
        self.wake(&state);
    }

    fn give_back(&self, state: &mut State<T>, slot: SlotId, now: Option<Instant>) {
        state.pending.done(slot, now);
        if state.phase == Phase::Draining && state.is_drained(self.discipline) {
            self.drained.notify_waiters();
        }
    }

    /// Wakes a waiting caller if a key is available.
    fn wake(&self, state: &State<T>) {
        if state.waiting > 0 && state.pending.available() > 0 {
            self.work.notify_one();
        }
    }

    /// Wakes a waiting caller, so that it waits for the next due time, if no caller waits for it. Callers that stop
    /// waiting must call this function.
    fn find_timekeeper(&self, state: &State<T>) {
        if state.waiting > 0 && !state.has_timekeeper && state.pending.has_delayed() {
            self.work.notify_one();
        }
    }

    fn close(&self, phase: Phase) {
        let mut state = self.state();
        state.phase = phase;
        state.pending.clear_delayed();
        self.work.notify_waiters();
        self.drained.notify_waiters();
    }

    fn is_drained(&self) -> bool {
        let state = self.state();
        state.phase == Phase::ShutDown || state.is_drained(self.discipline)
    }
}

impl<T: Clone + Eq + Hash> State<T> {
    /// Makes due keys ready. Reads the clock only if keys are delayed.
    fn promote(&mut self) {
        if self.pending.has_delayed() {
            self.pending.promote(Instant::now());
        }
    }

    fn now_for_metrics(&self) -> Option<Instant> {
        self.pending.stats.is_some().then(Instant::now)
    }

    fn is_drained(&self, discipline: Discipline) -> bool {
        let is_handed_out = discipline == Discipline::Priority || self.pending.in_line() == 0;
        self.pending.processing() == 0 && is_handed_out
    }
}

impl<T: Clone + Eq + Hash + Send> Collect for Inner<T> {
    fn collect(&self, samples: &mut Samples) {
        let mut state = self.state();
        state.promote();
        let gauges = Gauges {
            depths: state.pending.depths().into_iter().collect(),
            has_priorities: self.discipline == Discipline::Priority,
            under_work: state.pending.under_work(Instant::now()),
        };
        if let (Some(name), Some(stats)) = (&self.name, &state.pending.stats) {
            stats.collect(name, &gauges, samples);
        }
    }
}

/// Registration of a caller that waits for a key. If keys are delayed, one of these callers also waits for the next due
/// time.
struct Seat<'a, T: Clone + Eq + Hash> {
    inner: &'a Inner<T>,
    is_taken: bool,
    /// The next due time, if this caller waits for it.
    until: Option<Instant>,
}

impl<'a, T: Clone + Eq + Hash> Seat<'a, T> {
    fn new(inner: &'a Inner<T>) -> Self {
        Self {
            inner,
            is_taken: false,
            until: None,
        }
    }

    fn take(&mut self, state: &mut State<T>) {
        self.until = if state.has_timekeeper {
            None
        } else {
            state.pending.next_due()
        };
        self.is_taken = true;
        state.waiting += 1;
        state.has_timekeeper |= self.until.is_some();
    }

    fn leave(&mut self, state: &mut State<T>) {
        if std::mem::take(&mut self.is_taken) {
            state.waiting -= 1;
            state.has_timekeeper &= self.until.take().is_none();
        }
    }
}

impl<T: Clone + Eq + Hash> Drop for Seat<'_, T> {
    fn drop(&mut self) {
        if self.is_taken {
            let mut state = self.inner.state();
            self.leave(&mut state);
            self.inner.find_timekeeper(&state);
        }
    }
}

/// A key that a worker is processing. Dropping the item corresponds to client-go's `Done`: other workers can then
/// receive the key again.
pub struct WorkItem<T: Clone + Eq + Hash> {
    key: T,
    /// Slot of the key; `None` once the key has been returned to the queue.
    slot: Option<SlotId>,
    priority: i32,
    /// Set if the rate limiter may have recorded failures of the key.
    is_limited: bool,
    /// Time at which the worker received the key, if the queue has metrics.
    taken: Option<Instant>,
    inner: Arc<Inner<T>>,
}

impl<T: Clone + Eq + Hash> WorkItem<T> {
    /// Returns the key.
    pub fn key(&self) -> &T {
        &self.key
    }

    /// Returns the priority that the key had in the queue.
    pub fn priority(&self) -> i32 {
        self.priority
    }

    /// Drops this item and waits for the next key. Cheaper than dropping the item and calling [`WorkQueue::get`]: the
    /// queue is locked once if a key is ready, and its clock is read once for metrics.
    ///
    /// Dropping the future at any time does not lose keys.
    pub async fn next(self) -> Option<Self> {
        self.next_at(None).await
    }

    /// Drops this item, and returns the next key if one is ready.
    pub fn try_next(mut self) -> Option<Self> {
        self.exchange(None).then_some(self)
    }

    /// Same as [`next`](Self::next). `ended` is the current time, if the caller has just read it.
    pub(crate) async fn next_at(mut self, ended: Option<Instant>) -> Option<Self> {
        // If the task has no budget left, other tasks run first, and `ended` is no longer the current time.
        let ended = ended.filter(|_| tokio::task::coop::has_budget_remaining());
        tokio::task::coop::consume_budget().await;
        if self.exchange(ended) {
            return Some(self);
        }
        WorkQueue(Arc::clone(&self.inner)).wait().await
    }

    /// Returns the time at which the worker received the key; `None` if the queue has no metrics.
    pub(crate) fn taken(&self) -> Option<Instant> {
        self.taken
    }

    /// Returns the current key to the queue and takes the next one. Returns `false` if no key is ready.
    fn exchange(&mut self, now: Option<Instant>) -> bool {
        let mut state = self.inner.state();
        let now = now.or_else(|| state.now_for_metrics());
        if let Some(slot) = self.slot.take() {
            self.inner.give_back(&mut state, slot, now);
        }
        let Some(taken) = self.inner.take(&mut state, now) else {
            return false;
        };
        self.inner.find_timekeeper(&state);
        drop(state);
        self.key = taken.key;
        self.slot = Some(taken.slot);
        self.priority = taken.priority;
        self.is_limited = taken.is_limited;
        self.taken = taken.at;
        true
    }
}

impl<T: Clone + Eq + Hash> Deref for WorkItem<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.key
    }
}

impl<T: Clone + Eq + Hash> Drop for WorkItem<T> {
    fn drop(&mut self) {
        if let Some(slot) = self.slot {
            self.inner.done(slot);
        }
    }
}

impl<T: Clone + Eq + Hash> Clone for WorkQueue<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T: Clone + Eq + Hash> fmt::Debug for WorkQueue<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.0.state();
        f.debug_struct("WorkQueue")
            .field("name", &self.0.name)
            .field("discipline", &self.0.discipline)
            .field("in_line", &state.pending.in_line())
            .field("delayed", &state.pending.delayed())
            .field("processing", &state.pending.processing())
            .field("phase", &state.phase)
            .finish()
    }
}

impl<T: Clone + Eq + Hash + fmt::Debug> fmt::Debug for WorkItem<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkItem")
            .field("key", &self.key)
            .field("priority", &self.priority)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn forgotten_key_releases_its_slot() {
        let queue = WorkQueue::new();
        for key in 0..10 {
            queue.add_rate_limited(key);
        }
        tokio::time::advance(Duration::from_secs(10)).await;
        while let Some(item) = queue.try_get() {
            queue.forget(&item);
        }
        assert_eq!(queue.0.state().pending.limited(), 0);
        // The key may also be forgotten after it was returned to the queue, or if it was never added.
        queue.add_rate_limited(3);
        tokio::time::advance(Duration::from_secs(10)).await;
        drop(queue.try_get().expect("the key is ready"));
        queue.forget(&3);
        queue.forget(&11);
        assert_eq!(queue.0.state().pending.limited(), 0);
    }
}
