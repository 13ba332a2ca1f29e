//! `retry_on_conflict`: reads and writes again after a conflict.

use std::time::Duration;

use tokio::time::sleep;

use crate::Error;
use crate::jitter::Jitter;

/// Number of tries and the waits between them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Backoff {
    /// Number of tries; at least one.
    pub steps: u32,
    /// The first wait.
    pub wait: Duration,
    /// Factor between a wait and the next.
    pub factor: f64,
    /// A wait is prolonged by up to this many times itself.
    pub jitter: f64,
    /// The seed of the jitter; 0 draws one at random, as
    /// [`ReflectorOptions::seed`](crate::cache::ReflectorOptions::seed) says.
    pub seed: u64,
}

impl Backoff {
    /// client-go's `DefaultRetry`: 5 times, 10 ms apart. For objects that few others write.
    pub const DEFAULT_RETRY: Self = Self {
        steps: 5,
        wait: Duration::from_millis(10),
        factor: 1.0,
        jitter: 0.1,
        seed: 0,
    };

    /// client-go's `DefaultBackoff`: 4 times, after 10, 50 and 250 ms. For objects that other controllers write all the
    /// time.
    pub const DEFAULT_BACKOFF: Self = Self {
        steps: 4,
        factor: 5.0,
        ..Self::DEFAULT_RETRY
    };
}

/// Calls `update`, which reads, changes and writes an object, until it does not end in a conflict.
///
/// ```
/// use informer::Error;
/// use informer::runtime::{Backoff, retry_on_conflict};
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use kube::Api;
///
/// # async fn count(maps: Api<ConfigMap>) -> Result<(), Error> {
/// retry_on_conflict(Backoff::DEFAULT_RETRY, || async {
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
/// The last conflict, if there is one each time; any other error at once.
pub async fn retry_on_conflict<T, E, F, Fut>(backoff: Backoff, mut update: F) -> Result<T, Error>
where
    F: FnMut() -> Fut,
    Fut: Future<Output = Result<T, E>>,
    E: Into<Error>,
{
    let mut jitter = Jitter::new(backoff.seed, "retry");
    let mut wait = backoff.wait;
    for step in 1.. {
        match update().await.map_err(Into::into) {
            Err(err) if err.is_conflict() && step < backoff.steps => {}
            result => return result,
        }
        sleep(jitter.prolong(wait, backoff.jitter)).await;
        wait = wait.mul_f64(backoff.factor);
    }
    Err(Error::refused("it was tried four billion times"))
}
