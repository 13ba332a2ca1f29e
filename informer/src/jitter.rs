//! `Jitter`: reproducible pseudorandom numbers.

use std::cell::Cell;
use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use tokio::time::Instant;

/// A sequence of pseudorandom numbers (SplitMix64), determined by a seed and a name.
///
/// Only suitable for spreading requests over time.
#[derive(Clone, Debug)]
pub(crate) struct Jitter(u64);

impl Jitter {
    /// Returns the sequence for a seed and a name. Different names result in different sequences for the same seed.
    /// Seed 0 selects a [random seed](drawn_seed).
    pub(crate) fn new(seed: u64, name: &str) -> Self {
        Self(spread(if seed == 0 { drawn_seed() } else { seed }, name))
    }

    /// Returns a seed that depends only on the name.
    pub(crate) fn seed_of(name: &str) -> u64 {
        spread(0, name)
    }

    /// Returns a random number that is different for each call, including calls in other processes. While tokio's clock
    /// is paused, the number depends only on the name and on the number of earlier calls on the thread, so that tests
    /// are reproducible.
    pub(crate) fn unique(name: &str) -> u64 {
        thread_local! {
            static CALLS: Cell<u64> = const { Cell::new(0) };
        }
        let call = CALLS.replace(CALLS.get().wrapping_add(1));
        spread(drawn_seed().wrapping_add(call), name)
    }

    /// Returns the next number.
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a random number in `[0, 1)`.
    pub(crate) fn fraction(&mut self) -> f64 {
        // An `f64` represents integers of up to 53 bits exactly.
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Returns the duration, randomly extended by up to `factor` times its length.
    pub(crate) fn prolong(&mut self, duration: Duration, factor: f64) -> Duration {
        duration.mul_f64(1.0 + factor * self.fraction())
    }

    /// Returns a random integer in `[least, most]`, used as a number of seconds.
    pub(crate) fn seconds(&mut self, least: u64, most: u64) -> u64 {
        least + self.next() % (most.saturating_sub(least) + 1)
    }
}

/// Number of equal clock reads after which tokio's clock is considered paused. Even coarse clocks advance within 100
/// ns, which is less than the time that these reads take.
const LOOKS: u32 = 256;

/// Returns the seed to use if the caller did not set one. It is random, so that the replicas of a program do not retry
/// at the same instant. While tokio's clock is paused, it is always 0, so that tests are reproducible.
fn drawn_seed() -> u64 {
    let first = Instant::now();
    if (0..LOOKS).all(|_| Instant::now() == first) {
        return 0;
    }
    RandomState::new().hash_one(first)
}

/// Hashes the name with 64-bit FNV-1a; the seed is XORed into the offset basis.
fn spread(seed: u64, name: &str) -> u64 {
    name.bytes().fold(seed ^ 0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jitter_is_determined_by_seed_and_name() {
        let draw = |seed, name| {
            let mut jitter = Jitter::new(seed, name);
            [(); 4].map(|()| jitter.next())
        };
        assert_eq!(draw(1, "pods"), draw(1, "pods"));
        assert_ne!(draw(1, "pods"), draw(2, "pods"));
        assert_ne!(draw(1, "pods"), draw(1, "nodes"));
    }

    #[tokio::test(start_paused = true)]
    async fn jitter_without_a_seed_is_fixed_while_the_clock_is_paused() {
        let draw = || Jitter::new(0, "pods").next();
        assert_eq!(draw(), draw());
        tokio::time::resume();
        assert_ne!(draw(), draw(), "replicas of a program must not move in step");
        assert_eq!(Jitter::new(1, "pods").next(), Jitter::new(1, "pods").next());
    }

    #[test]
    fn jittered_durations_stay_within_bounds() {
        let mut jitter = Jitter::new(7, "");
        for _ in 0..1000 {
            assert!((300..=600).contains(&jitter.seconds(300, 600)));
            let prolonged = jitter.prolong(Duration::from_millis(800), 1.0);
            assert!((800..1600).contains(&prolonged.as_millis()));
        }
    }
}
