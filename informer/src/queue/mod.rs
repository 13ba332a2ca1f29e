//! Work queues: each key is queued at most once, is processed by at most one worker at a time, and can be delayed after
//! a failure.
//!
//! A [`WorkQueue`] does not start tasks. Only functions that wait are asynchronous: [`WorkQueue::get`],
//! [`WorkItem::next`] and [`WorkQueue::shut_down_with_drain`]. It does not depend on objects or caches: keys can have
//! any type that is comparable and hashable.

mod ready;
mod delay_queue;
mod pending;
mod work_queue;
#[cfg(test)]
mod interleaved;
mod rate_limiter;
mod metrics;

pub use rate_limiter::{
    ExponentialBackoff, FastSlow, MaxOf, RateLimiter, TokenBucket, WithMaxWait, default_controller_rate_limiter,
    default_item_based_rate_limiter,
};
pub use work_queue::{AddOptions, DEFAULT_PRIORITY, LOW_PRIORITY, WorkItem, WorkQueue, WorkQueueBuilder};
