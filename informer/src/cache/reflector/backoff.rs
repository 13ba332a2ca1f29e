//! `Backoff`: delays after failures, as in client-go's reflector.

use std::time::Duration;

use tokio::time::Instant;

use crate::jitter::Jitter;

/// Delays of a reflector after consecutive failures, which increase exponentially.
///
/// Each delay is randomly extended by up to `jitter` times its length, so that clients that failed at the same time do
/// not retry at the same time. `most` is the maximum delay before this extension.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Backoff {
    /// Delay after the first failure. Default: 800 ms.
    pub initial: Duration,
    /// Factor by which the delay is multiplied after each failure. Default: 2.
    pub factor: f64,
    /// Maximum random extension of a delay, as a multiple of the delay. Default: 1.
    pub jitter: f64,
    /// Maximum delay without jitter. Default: 30 s.
    pub most: Duration,
    /// Time after which the series of delays starts again at `initial`, measured from the start of the series. Default:
    /// 2 min.
    pub reset_after: Duration,
    /// Unused. End struct literals with `..Backoff::default()`, because fields may be added.
    #[doc(hidden)]
    pub _more: (),
}

impl Default for Backoff {
    fn default() -> Self {
        Self {
            initial: Duration::from_millis(800),
            factor: 2.0,
            jitter: 1.0,
            most: Duration::from_secs(30),
            reset_after: Duration::from_secs(120),
            _more: (),
        }
    }
}

/// The state of a [`Backoff`] while its reflector runs.
#[derive(Debug)]
pub(crate) struct Waits {
    backoff: Backoff,
    next: Duration,
    /// Start of the current series of delays; `None` before the first delay.
    began: Option<Instant>,
}

impl Waits {
    pub(crate) fn new(backoff: Backoff) -> Self {
        Self {
            backoff,
            next: backoff.initial,
            began: None,
        }
    }

    /// Returns the next delay.
    pub(crate) fn next(&mut self, jitter: &mut Jitter) -> Duration {
        // client-go measures from the last reset, not from the last failure.
        if self
            .began
            .is_none_or(|began| began.elapsed() > self.backoff.reset_after)
        {
            self.next = self.backoff.initial;
            self.began = Some(Instant::now());
        }
        let wait = self.next;
        self.next = wait.mul_f64(self.backoff.factor).min(self.backoff.most);
        jitter.prolong(wait, self.backoff.jitter)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn backoff_delays_double_up_to_a_maximum_and_are_reset() {
        let mut jitter = Jitter::new(0, "");
        let mut waits = Waits::new(Backoff {
            jitter: 0.0,
            ..Backoff::default()
        });
        let mut next = || waits.next(&mut jitter).as_millis();
        assert_eq!(
            [(); 7].map(|()| next()),
            [800, 1600, 3200, 6400, 12_800, 25_600, 30_000]
        );
        tokio::time::advance(Duration::from_secs(120)).await;
        assert_eq!(next(), 30_000, "exactly two minutes do not reset the delay");
        tokio::time::advance(Duration::from_millis(1)).await;
        assert_eq!(next(), 800);
    }

    #[tokio::test(start_paused = true)]
    async fn jitter_is_added_to_the_maximum_delay() {
        let mut jitter = Jitter::new(1, "");
        let mut waits = Waits::new(Backoff::default());
        let all: Vec<_> = (0..100).map(|_| waits.next(&mut jitter).as_secs_f64()).collect();
        assert!(all[10..].iter().all(|it| (30.0..60.0).contains(it)), "{all:?}");
        assert!(all[10..].iter().any(|it| *it > 50.0), "{all:?}");
    }
}
