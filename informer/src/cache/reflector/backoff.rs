//! `Backoff`: how long to wait after a failure, as client-go's reflector does.

use std::time::Duration;

use tokio::time::Instant;

use crate::jitter::Jitter;

/// Waits of a reflector after failures in a row.
///
/// A wait is prolonged at random by up to `jitter` times itself, so that clients that failed together do not come back
/// together; `most` is the longest wait before that.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Backoff {
    /// After the first failure. Default 800 ms.
    pub initial: Duration,
    /// Factor between a wait and the next. Default 2.
    pub factor: f64,
    /// Largest random extension of a wait, as a multiple of it. Default 1.
    pub jitter: f64,
    /// The longest wait, without what it is prolonged by. Default 30 s.
    pub most: Duration,
    /// Waits begin anew when so much time has passed since they last did. Default 2 min.
    pub reset_after: Duration,
}

impl Default for Backoff {
    fn default() -> Self {
        Self {
            initial: Duration::from_millis(800),
            factor: 2.0,
            jitter: 1.0,
            most: Duration::from_secs(30),
            reset_after: Duration::from_secs(120),
        }
    }
}

/// A backoff in use.
#[derive(Debug)]
pub(crate) struct Waits {
    backoff: Backoff,
    next: Duration,
    /// Start of the current series; `None` before the first wait.
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

    /// The next wait.
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
    async fn waits_double_up_to_a_bound_and_begin_anew() {
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
        assert_eq!(next(), 30_000, "two minutes are not more than two minutes");
        tokio::time::advance(Duration::from_millis(1)).await;
        assert_eq!(next(), 800);
    }

    #[tokio::test(start_paused = true)]
    async fn jitter_comes_on_top_of_the_bound() {
        let mut jitter = Jitter::new(1, "");
        let mut waits = Waits::new(Backoff::default());
        let all: Vec<_> = (0..100).map(|_| waits.next(&mut jitter).as_secs_f64()).collect();
        assert!(all[10..].iter().all(|it| (30.0..60.0).contains(it)), "{all:?}");
        assert!(all[10..].iter().any(|it| *it > 50.0), "{all:?}");
    }
}
