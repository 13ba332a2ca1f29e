//! Keys that wait for work: each once, never two workers at one key, and those that failed after a pause.
//!
//! A [`WorkQueue`] is synchronous but for [`WorkQueue::get`]; it starts no task. It knows neither objects nor caches:
//! a key is anything that can be compared and hashed.

mod ready;
mod delay_queue;
mod pending;
mod work_queue;
mod rate_limiter;
mod metrics;

pub use rate_limiter::{
    ExponentialBackoff, FastSlow, MaxOf, RateLimiter, TokenBucket, WithMaxWait, default_controller_rate_limiter,
    default_item_based_rate_limiter,
};
pub use work_queue::{AddOptions, DEFAULT_PRIORITY, LOW_PRIORITY, Work, WorkQueue, WorkQueueBuilder};
