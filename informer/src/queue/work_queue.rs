//! `WorkQueue`: keys that wait for work, for any number of workers.

use std::fmt;
use std::hash::Hash;
use std::ops::Deref;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::future::{Either, select};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use super::metrics::{Gauges, Stats};
use super::pending::{Discipline, Pending, Taken};
use super::rate_limiter::{ExponentialBackoff, RateLimiter, default_controller_rate_limiter};
use super::ready::SlotId;
use crate::metrics::{Collect, Metrics, Samples};

/// Default priority of a key.
pub const DEFAULT_PRIORITY: i32 = 0;

/// controller-runtime's priority for what is not urgent: the first list after a start, and updates that change nothing.
pub const LOW_PRIORITY: i32 = -100;

/// A delay longer than this is cut to it: about 30 years, which no timer overflows.
const LONGEST_DELAY: Duration = Duration::from_secs(30 * 365 * 24 * 3600);

/// Keys that wait for work. Copies are the same queue.
///
/// A key is in the queue at most once, and with at most one worker at a time. One that is added while a worker has it
/// comes out again, once, when that worker is done. So no change is lost, and no two workers meet at one key. There is
/// no bound but the number of keys.
///
/// There are two disciplines. [`WorkQueue::new`] is client-go's: first come, first served; after a shutdown what is
/// left is handed out. [`WorkQueueBuilder::by_priority`] is controller-runtime's: the higher priority first; a key that
/// waits for an instant is put in line by an immediate add, and does not come out twice; after a shutdown nothing is
/// handed out.
///
/// ```
/// use informer::queue::WorkQueue;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let queue = WorkQueue::new();
/// queue.add("a");
/// queue.add("b");
/// queue.add("a"); // it is there already
///
/// let work = queue.get().await.expect("it is not shut down");
/// assert_eq!(*work, "a");
/// queue.add("a"); // a worker has it: it comes again when that is done
/// assert_eq!(queue.get().await.as_deref(), Some(&"b"));
/// drop(work); //     this is client-go's Done
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
    /// Guards the keys and who waits for them.
    state: Mutex<State<T>>,
    /// Guards what is remembered of failures. Taken alone.
    limiter: Mutex<Box<dyn RateLimiter<T>>>,
    /// Wakes those who wait for a key.
    work: Notify,
    /// Wakes who keeps the time, because a key is due earlier than it sleeps.
    earlier: Notify,
    /// Wakes those who wait for the queue to be drained.
    drained: Notify,
}

struct State<T> {
    pending: Pending<T>,
    phase: Phase,
    /// Number of callers that wait in [`WorkQueue::get`].
    waiting: usize,
    /// Set if one of them sleeps until the next key is due.
    has_timekeeper: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Open,
    /// Nothing is added.
    ShutDown,
    /// Nothing is added, and a caller waits until all work is done.
    Draining,
}

/// Options for adding a key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AddOptions {
    /// Higher goes first. A key that is there already keeps the higher of the two. Without effect in a queue that is
    /// first come, first served.
    pub priority: i32,
    /// Not before so much time has passed; zero is now.
    pub after: Duration,
    /// Not before the rate limiter allows it, and counted as a failure. With `after`, the shorter wait counts.
    pub is_rate_limited: bool,
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
    /// The higher priority first; default is first come, first served. The default rate limiter is then
    /// [`ExponentialBackoff`] alone, without a bucket for all keys together.
    pub fn by_priority(mut self) -> Self {
        self.discipline = Discipline::Priority;
        self
    }

    /// Sets the rate limiter, which decides how long failed keys wait. Default [`default_controller_rate_limiter`].
    pub fn rate_limiter(mut self, limiter: impl RateLimiter<T> + 'static) -> Self {
        self.limiter = Some(Box::new(limiter));
        self
    }

    /// The queue counts under this name; without a name it does not count.
    pub fn named(mut self, name: &str, metrics: &Metrics) -> Self {
        self.name = Some((name.to_owned(), metrics.clone()));
        self
    }

    /// The queue.
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
    /// First come, first served, with client-go's rate limiter, without metrics.
    pub fn new() -> Self {
        Self::builder().build()
    }

    /// Any other.
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
    /// Puts a key in line, now. Without effect after a shutdown.
    pub fn add(&self, key: T) {
        self.0.add(key, DEFAULT_PRIORITY, false);
    }

    /// Puts a key in line when so much time has passed; one that waits already keeps the earlier instant.
    pub fn add_after(&self, key: T, after: Duration) {
        self.0.add_after(key, DEFAULT_PRIORITY, after, false);
    }

    /// Puts a key in line when the rate limiter allows it.
    pub fn add_rate_limited(&self, key: T) {
        let after = self.0.limiter().when(&key);
        self.0.add_after(key, DEFAULT_PRIORITY, after, true);
    }

    /// Puts a key in line as the options say.
    pub fn add_with(&self, key: T, options: AddOptions) {
        let AddOptions {
            priority,
            mut after,
            is_rate_limited,
        } = options;
        if is_rate_limited {
            let wait = self.0.limiter().when(&key);
            after = if after.is_zero() { wait } else { after.min(wait) };
        }
        self.0.add_after(key, priority, after, is_rate_limited);
    }

    /// Waits for the next key; `None` after a shutdown. The key is with the caller until [`Work`] is dropped.
    ///
    /// Whoever waits longest gets it. The future may be dropped at any time; no key is lost by it.
    pub async fn get(&self) -> Option<Work<T>> {
        // A worker that finds one key after another must let others run.
        tokio::task::coop::consume_budget().await;
        let mut seat = Seat::new(&self.0);
        loop {
            let mut woken = pin!(self.0.work.notified());
            {
                let mut state = self.0.state();
                seat.leave(&mut state);
                if let Some(taken) = self.0.take(&mut state) {
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

    /// The next key, if there is one now.
    pub fn try_get(&self) -> Option<Work<T>> {
        let taken = self.0.take(&mut self.0.state())?;
        Some(self.work(taken))
    }

    /// The key is well, or given up: its failures are forgotten. That is not to be done with it.
    pub fn forget(&self, key: &T) {
        self.0.limiter().forget(key);
    }

    /// Returns the number of failures of the key since it was last forgotten.
    pub fn num_requeues(&self, key: &T) -> u32 {
        self.0.limiter().num_requeues(key)
    }

    /// [`forget`](Self::forget) of a key under work, which costs nothing where it has not failed.
    pub(crate) fn forget_work(&self, work: &Work<T>) {
        if work.is_limited {
            self.0.limiter().forget(&work.key);
            self.0.state().pending.unlimit(work.slot);
        }
    }

    /// [`num_requeues`](Self::num_requeues) of a key under work, which costs nothing where it has not failed.
    pub(crate) fn num_requeues_of(&self, work: &Work<T>) -> u32 {
        if work.is_limited {
            self.num_requeues(&work.key)
        } else {
            0
        }
    }

    /// Keys in line. Those that wait for an instant do not count, nor do those that workers have, unless they were
    /// added again.
    pub fn len(&self) -> usize {
        let mut state = self.0.state();
        state.promote();
        state.pending.in_line()
    }

    /// Returns `true` if no key is in line.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Keys that wait for an instant.
    pub fn delayed(&self) -> usize {
        let mut state = self.0.state();
        state.promote();
        state.pending.delayed()
    }

    /// Keys that workers have.
    pub fn processing(&self) -> usize {
        self.0.state().pending.processing()
    }

    /// Returns `true` if keys have priorities.
    pub fn has_priorities(&self) -> bool {
        self.0.discipline == Discipline::Priority
    }

    /// From now on nothing is added, and keys that wait for an instant are dropped. What is in line is handed out
    /// still, unless the queue is by priority. Ends the wait of [`shut_down_with_drain`](Self::shut_down_with_drain).
    pub fn shut_down(&self) {
        self.0.close(Phase::ShutDown);
    }

    /// Shuts down, and waits until no worker has a key and none is left to be handed out. Another call of
    /// [`shut_down`](Self::shut_down) ends the wait. Without workers it waits for ever.
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

    fn work(&self, taken: Taken<T>) -> Work<T> {
        Work {
            key: taken.key,
            slot: taken.slot,
            priority: taken.priority,
            is_limited: taken.is_limited,
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
            // It finds nothing, and then keeps the time.
            self.work.notify_one();
        } else {
            self.wake(&state);
        }
    }

    fn take(&self, state: &mut State<T>) -> Option<Taken<T>> {
        state.promote();
        if state.phase != Phase::Open && self.discipline == Discipline::Priority {
            return None;
        }
        let now = state.now_for_metrics();
        let taken = state.pending.pop(now);
        // Two keys may have been added before anybody woke, and one call is all that is remembered.
        self.wake(state);
        taken
    }

    fn done(&self, slot: SlotId) {
        let mut state = self.state();
        let now = state.now_for_metrics();
        state.pending.done(slot, now);
        self.wake(&state);
        if state.phase == Phase::Draining && state.is_drained(self.discipline) {
            self.drained.notify_waiters();
        }
    }

    /// Wakes a worker if there is work.
    fn wake(&self, state: &State<T>) {
        if state.waiting > 0 && state.pending.available() > 0 {
            self.work.notify_one();
        }
    }

    /// Wakes a waiting caller to keep the time, if necessary: to be called by callers that leave, never by those that
    /// stay.
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
    /// Puts what is due in line. The clock is read only if something waits for it.
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

/// A place among those who wait. One of them keeps the time, if a key waits for it.
struct Seat<'a, T: Clone + Eq + Hash> {
    inner: &'a Inner<T>,
    is_taken: bool,
    /// Due time of the next key, for the caller that keeps the time.
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

/// A key that was handed out. No other worker gets it until this is dropped, which is client-go's `Done`.
pub struct Work<T: Clone + Eq + Hash> {
    key: T,
    slot: SlotId,
    priority: i32,
    /// The rate limiter may know the key.
    is_limited: bool,
    inner: Arc<Inner<T>>,
}

impl<T: Clone + Eq + Hash> Work<T> {
    /// The key.
    pub fn key(&self) -> &T {
        &self.key
    }

    /// The priority with which it was in line.
    pub fn priority(&self) -> i32 {
        self.priority
    }
}

impl<T: Clone + Eq + Hash> Deref for Work<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.key
    }
}

impl<T: Clone + Eq + Hash> Drop for Work<T> {
    fn drop(&mut self) {
        self.inner.done(self.slot);
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

impl<T: Clone + Eq + Hash + fmt::Debug> fmt::Debug for Work<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Work")
            .field("key", &self.key)
            .field("priority", &self.priority)
            .finish_non_exhaustive()
    }
}
