//! `retry_on_conflict`: retries a change of an object after a conflict.

use std::time::Duration;

use tokio::time::sleep;

use crate::Error;
use crate::jitter::Jitter;

/// Number of attempts and delays between them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RetryPolicy {
    /// Maximum number of attempts; at least one.
    pub steps: u32,
    /// Delay after the first attempt.
    pub wait: Duration,
    /// Factor by which the delay is multiplied after each attempt.
    pub factor: f64,
    /// Maximum random extension of a delay, as a fraction of the delay.
    pub jitter: f64,
    /// Seed of the random extension. 0 selects a random seed; see
    /// [`ReflectorOptions::seed`](crate::cache::ReflectorOptions::seed).
    pub seed: u64,
    /// Unused. End struct literals with `..RetryPolicy::DEFAULT_RETRY`, because fields may be added.
    #[doc(hidden)]
    pub _more: (),
}

impl RetryPolicy {
    /// client-go's `DefaultRetry`: 5 attempts with delays of 10 ms.
    pub const DEFAULT_RETRY: Self = Self {
        steps: 5,
        wait: Duration::from_millis(10),
        factor: 1.0,
        jitter: 0.1,
        seed: 0,
        _more: (),
    };

    /// client-go's `DefaultBackoff`: 4 attempts with delays of 10, 50 and 250 ms, for objects that other controllers
    /// change often.
    pub const DEFAULT_BACKOFF: Self = Self {
        steps: 4,
        factor: 5.0,
        ..Self::DEFAULT_RETRY
    };
}

/// Calls `update`, which should read, change and write an object. Repeats the call after a conflict, up to the maximum
/// number of attempts.
///
/// ```
/// use informer::Error;
/// use informer::runtime::{RetryPolicy, retry_on_conflict};
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use kube::Api;
///
/// # async fn count(maps: Api<ConfigMap>) -> Result<(), Error> {
/// retry_on_conflict(RetryPolicy::DEFAULT_RETRY, || async {
///     let mut map = maps.get("counter").await?;
///     map.data.get_or_insert_default().insert("count".into(), "1".into());
///     maps.replace("counter", &Default::default(), &map).await
/// })
/// .await?;
/// # Ok(())
/// # }
/// ```
///
/// # Errors
///
/// Fails if all attempts fail with conflicts, or as soon as an attempt fails with a different error.
pub async fn retry_on_conflict<T, E, F, Fut>(policy: RetryPolicy, mut update: F) -> Result<T, Error>
where
    F: FnMut() -> Fut,
    Fut: Future<Output = Result<T, E>>,
    E: Into<Error>,
{
    let mut jitter = Jitter::new(policy.seed, "retry");
    let mut wait = policy.wait;
    for step in 1.. {
        match update().await.map_err(Into::into) {
            Err(err) if err.is_conflict() && step < policy.steps => {}
            result => return result,
        }
        sleep(jitter.prolong(wait, policy.jitter)).await;
        wait = wait.mul_f64(policy.factor);
    }
    Err(Error::refused("the conflict remained after the last attempt"))
}
