//! `RateLimiter` and the usual ones: how long a key that failed has to wait.
//!
//! ```
//! use std::time::Duration;
//! use informer::queue::{ExponentialBackoff, RateLimiter};
//!
//! let mut limiter = ExponentialBackoff::new(Duration::from_millis(5), Duration::from_secs(1000));
//! assert_eq!(limiter.when(&"a"), Duration::from_millis(5));
//! assert_eq!(limiter.when(&"a"), Duration::from_millis(10));
//! assert_eq!(limiter.num_requeues(&"a"), 2);
//! limiter.forget(&"a");
//! assert_eq!(limiter.when(&"a"), Duration::from_millis(5));
//! ```

use std::collections::HashMap;
use std::fmt::Debug;
use std::hash::Hash;
use std::time::Duration;

use foldhash::fast::RandomState;
use tokio::time::Instant;

/// Decides how long a key waits before its next turn. It remembers keys until they are forgotten.
///
/// A controller asks it about keys of which [`when`](Self::when) was called, and not about those that never failed.
pub trait RateLimiter<T>: Debug + Send {
    /// Counts a failure of this key, and returns the time it has to wait.
    fn when(&mut self, key: &T) -> Duration;

    /// The key succeeded or was given up: its failures are forgotten.
    fn forget(&mut self, key: &T);

    /// Returns the number of failures of the key since it was last forgotten.
    fn num_requeues(&self, key: &T) -> u32;
}

impl<T> RateLimiter<T> for Box<dyn RateLimiter<T>> {
    fn when(&mut self, key: &T) -> Duration {
        (**self).when(key)
    }

    fn forget(&mut self, key: &T) {
        (**self).forget(key);
    }

    fn num_requeues(&self, key: &T) -> u32 {
        (**self).num_requeues(key)
    }
}

/// client-go's for controllers: [`ExponentialBackoff`] from 5 ms to 1,000 s, and a [`TokenBucket`] of 10 a second and
/// 100 at once for all keys together; the longer of the two.
pub fn default_controller_rate_limiter<T: Clone + Debug + Eq + Hash + Send + 'static>() -> MaxOf<T> {
    MaxOf::new(vec![
        Box::new(ExponentialBackoff::default()),
        Box::new(TokenBucket::new(10.0, 100)),
    ])
}

/// client-go's for items: [`ExponentialBackoff`] from 1 ms to 1,000 s.
pub fn default_item_based_rate_limiter<T: Clone + Eq + Hash>() -> ExponentialBackoff<T> {
    ExponentialBackoff::new(Duration::from_millis(1), Duration::from_secs(1000))
}

/// Each failure of a key doubles its wait: `base`, `2 × base`, … up to `max`.
#[derive(Clone, Debug)]
pub struct ExponentialBackoff<T> {
    base: Duration,
    max: Duration,
    failures: Failures<T>,
}

/// Never iterated: its order does not matter.
type Failures<T> = HashMap<T, u32, RandomState>;

impl<T> ExponentialBackoff<T> {
    /// The wait after the first failure, and the longest wait.
    pub fn new(base: Duration, max: Duration) -> Self {
        Self {
            base,
            max,
            failures: HashMap::default(),
        }
    }
}

impl<T> Default for ExponentialBackoff<T> {
    /// controller-runtime's: from 5 ms to 1,000 s.
    fn default() -> Self {
        Self::new(Duration::from_millis(5), Duration::from_secs(1000))
    }
}

impl<T: Clone + Debug + Eq + Hash + Send> RateLimiter<T> for ExponentialBackoff<T> {
    fn when(&mut self, key: &T) -> Duration {
        let before = count(&mut self.failures, key) - 1;
        let factor = 2_u32.checked_pow(before).unwrap_or(u32::MAX);
        self.base.checked_mul(factor).map_or(self.max, |it| it.min(self.max))
    }

    fn forget(&mut self, key: &T) {
        forget(&mut self.failures, key);
    }

    fn num_requeues(&self, key: &T) -> u32 {
        self.failures.get(key).copied().unwrap_or_default()
    }
}

/// A short wait for the first failures of a key, a long one for those that follow.
#[derive(Clone, Debug)]
pub struct FastSlow<T> {
    fast: Duration,
    slow: Duration,
    max_fast: u32,
    failures: Failures<T>,
}

impl<T> FastSlow<T> {
    /// The short wait, the long wait, and how many failures have the short one.
    pub fn new(fast: Duration, slow: Duration, max_fast: u32) -> Self {
        Self {
            fast,
            slow,
            max_fast,
            failures: HashMap::default(),
        }
    }
}

impl<T: Clone + Debug + Eq + Hash + Send> RateLimiter<T> for FastSlow<T> {
    fn when(&mut self, key: &T) -> Duration {
        if count(&mut self.failures, key) <= self.max_fast {
            self.fast
        } else {
            self.slow
        }
    }

    fn forget(&mut self, key: &T) {
        forget(&mut self.failures, key);
    }

    fn num_requeues(&self, key: &T) -> u32 {
        self.failures.get(key).copied().unwrap_or_default()
    }
}

/// Token bucket for all keys together: a burst at once, then a fixed rate. It knows no keys: `num_requeues` is 0.
#[derive(Clone, Debug)]
pub struct TokenBucket {
    per_second: f64,
    burst: f64,
    /// May be negative: tokens that are promised but not there yet.
    tokens: f64,
    filled: Option<Instant>,
}

impl TokenBucket {
    /// Tokens a second, and how many there are at most, which is also how many there are at first.
    pub fn new(per_second: f64, burst: u32) -> Self {
        Self {
            per_second,
            burst: f64::from(burst),
            tokens: f64::from(burst),
            filled: None,
        }
    }

    /// Takes a token and answers when it is there; a wait longer than a day is cut to a day.
    pub fn reserve(&mut self) -> Duration {
        let longest = Duration::from_secs(24 * 3600);
        self.fill();
        self.tokens -= 1.0;
        if self.tokens >= 0.0 {
            return Duration::ZERO;
        }
        Duration::try_from_secs_f64(-self.tokens / self.per_second).map_or(longest, |it| it.min(longest))
    }

    /// Takes a token if there is one now.
    pub fn try_take(&mut self) -> bool {
        self.fill();
        let is_there = self.tokens >= 1.0;
        self.tokens -= if is_there { 1.0 } else { 0.0 };
        is_there
    }

    fn fill(&mut self) {
        let now = Instant::now();
        let elapsed = self.filled.map_or(Duration::ZERO, |filled| now - filled);
        self.tokens = (self.tokens + elapsed.as_secs_f64() * self.per_second).min(self.burst);
        self.filled = Some(now);
    }
}

impl<T> RateLimiter<T> for TokenBucket {
    fn when(&mut self, _: &T) -> Duration {
        self.reserve()
    }

    fn forget(&mut self, _: &T) {}

    fn num_requeues(&self, _: &T) -> u32 {
        0
    }
}

/// The longest wait of several limiters, each of which counts every failure.
#[derive(Debug)]
pub struct MaxOf<T>(Vec<Box<dyn RateLimiter<T>>>);

impl<T> MaxOf<T> {
    /// Combines limiters. Without any, keys do not wait.
    pub fn new(limiters: Vec<Box<dyn RateLimiter<T>>>) -> Self {
        Self(limiters)
    }
}

impl<T: Debug> RateLimiter<T> for MaxOf<T> {
    fn when(&mut self, key: &T) -> Duration {
        let waits = self.0.iter_mut().map(|it| it.when(key));
        waits.max().unwrap_or_default()
    }

    fn forget(&mut self, key: &T) {
        self.0.iter_mut().for_each(|it| it.forget(key));
    }

    fn num_requeues(&self, key: &T) -> u32 {
        self.0.iter().map(|it| it.num_requeues(key)).max().unwrap_or_default()
    }
}

/// Another limiter's wait, but no longer than this.
#[derive(Clone, Debug)]
pub struct WithMaxWait<L> {
    limiter: L,
    max: Duration,
}

impl<L> WithMaxWait<L> {
    /// The limiter and the longest wait.
    pub fn new(limiter: L, max: Duration) -> Self {
        Self { limiter, max }
    }
}

impl<T, L: RateLimiter<T>> RateLimiter<T> for WithMaxWait<L> {
    fn when(&mut self, key: &T) -> Duration {
        self.limiter.when(key).min(self.max)
    }

    fn forget(&mut self, key: &T) {
        self.limiter.forget(key);
    }

    fn num_requeues(&self, key: &T) -> u32 {
        self.limiter.num_requeues(key)
    }
}

/// Counts a failure and answers how many there are now, at least 1.
fn count<T: Clone + Eq + Hash>(failures: &mut Failures<T>, key: &T) -> u32 {
    if let Some(count) = failures.get_mut(key) {
        *count = count.saturating_add(1);
        return *count;
    }
    failures.insert(key.clone(), 1);
    1
}

fn forget<T: Eq + Hash>(failures: &mut Failures<T>, key: &T) {
    // Most keys never fail: nothing is to be hashed for them.
    if !failures.is_empty() {
        failures.remove(key);
    }
}
