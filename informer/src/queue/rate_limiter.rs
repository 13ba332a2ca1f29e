//! `RateLimiter` and implementations: delays of keys after failures.
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

/// Computes how long a key is delayed before it is retried. Records the failures of each key until they are reset.
///
/// Controllers call the other methods for a key only after they have called [`when`](Self::when) for this key, not for
/// keys that never failed.
pub trait RateLimiter<T>: Debug + Send {
    /// Records a failure of the key, and returns the key's delay.
    fn when(&mut self, key: &T) -> Duration;

    /// Resets the failures of a key that succeeded or was given up.
    fn forget(&mut self, key: &T);

    /// Returns the number of failures of the key since the last reset.
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

/// client-go's default limiter for controllers: [`ExponentialBackoff`] from 5 ms to 1,000 s, and a [`TokenBucket`] for
/// all keys with 10 tokens per second and a burst of 100. The longer of the two delays applies.
pub fn default_controller_rate_limiter<T: Clone + Debug + Eq + Hash + Send + 'static>() -> MaxOf<T> {
    MaxOf::new(vec![
        Box::new(ExponentialBackoff::default()),
        Box::new(TokenBucket::new(10.0, 100)),
    ])
}

/// client-go's default limiter for single keys: [`ExponentialBackoff`] from 1 ms to 1,000 s.
pub fn default_item_based_rate_limiter<T: Clone + Eq + Hash>() -> ExponentialBackoff<T> {
    ExponentialBackoff::new(Duration::from_millis(1), Duration::from_secs(1000))
}

/// Each failure of a key doubles its delay: `base`, `2 × base`, … up to `max`.
#[derive(Clone, Debug)]
pub struct ExponentialBackoff<T> {
    base: Duration,
    max: Duration,
    failures: Failures<T>,
}

/// Number of failures by key. Never iterated, so the order of the map is irrelevant.
type Failures<T> = HashMap<T, u32, RandomState>;

impl<T> ExponentialBackoff<T> {
    /// Creates a limiter. `base` is the delay after the first failure, and `max` the maximum delay.
    pub fn new(base: Duration, max: Duration) -> Self {
        Self {
            base,
            max,
            failures: HashMap::default(),
        }
    }
}

impl<T> Default for ExponentialBackoff<T> {
    /// Returns controller-runtime's default limiter: delays from 5 ms to 1,000 s.
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

/// A short delay for the first failures of a key, and a long delay for further failures.
#[derive(Clone, Debug)]
pub struct FastSlow<T> {
    fast: Duration,
    slow: Duration,
    max_fast: u32,
    failures: Failures<T>,
}

impl<T> FastSlow<T> {
    /// Creates a limiter with the short delay, the long delay, and the number of failures for which the short delay
    /// applies.
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

/// Token bucket shared by all keys: allows a burst, then a fixed rate. It does not record failures, so `num_requeues`
/// returns 0.
#[derive(Clone, Debug)]
pub struct TokenBucket {
    per_second: f64,
    burst: f64,
    /// Number of available tokens. Negative if tokens were reserved in advance.
    tokens: f64,
    filled: Option<Instant>,
}

impl TokenBucket {
    /// Creates a full bucket with a rate in tokens per second, and a maximum number of tokens.
    pub fn new(per_second: f64, burst: u32) -> Self {
        Self {
            per_second,
            burst: f64::from(burst),
            tokens: f64::from(burst),
            filled: None,
        }
    }

    /// Reserves a token. Returns the time until the token is available; at most a day.
    pub fn reserve(&mut self) -> Duration {
        let longest = Duration::from_secs(24 * 3600);
        self.fill();
        self.tokens -= 1.0;
        if self.tokens >= 0.0 {
            return Duration::ZERO;
        }
        Duration::try_from_secs_f64(-self.tokens / self.per_second).map_or(longest, |it| it.min(longest))
    }

    /// Takes a token if one is available. Returns `true` if a token was taken.
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

/// Applies the longest delay of several limiters. Each limiter records every failure.
#[derive(Debug)]
pub struct MaxOf<T>(Vec<Box<dyn RateLimiter<T>>>);

impl<T> MaxOf<T> {
    /// Combines limiters. Without limiters, keys are not delayed.
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

/// Limits the delays of a rate limiter to a maximum.
#[derive(Clone, Debug)]
pub struct WithMaxWait<L> {
    limiter: L,
    max: Duration,
}

impl<L> WithMaxWait<L> {
    /// Creates a limiter with this maximum delay.
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

/// Increments the number of failures of a key, and returns it.
fn count<T: Clone + Eq + Hash>(failures: &mut Failures<T>, key: &T) -> u32 {
    if let Some(count) = failures.get_mut(key) {
        *count = count.saturating_add(1);
        return *count;
    }
    failures.insert(key.clone(), 1);
    1
}

fn forget<T: Eq + Hash>(failures: &mut Failures<T>, key: &T) {
    // Most keys never fail, so avoid hashing them.
    if !failures.is_empty() {
        failures.remove(key);
    }
}
