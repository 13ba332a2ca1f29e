//! `Entropy`: the server's clock, and its random numbers, which are generated from one seed.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use chacha20::ChaCha8Rng;
use chacha20::rand_core::{Rng, SeedableRng};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use tokio::time::Instant;

/// Length of the interval, in seconds, in which all servers of a process get the same start time, so that they share
/// their initial objects.
const SAME_START: i64 = 60;

/// Returns the default start time of servers: the machine's time in whole seconds. Servers that start within a minute
/// get the same time.
#[expect(
    clippy::disallowed_methods,
    reason = "the only place in the server that reads the clock"
)]
pub(crate) fn time_of_day() -> Timestamp {
    static LAST: Mutex<Timestamp> = Mutex::new(Timestamp::MIN);
    let now = Timestamp::try_from(std::time::SystemTime::now()).unwrap_or(Timestamp::UNIX_EPOCH);
    let mut last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
    if !(0..SAME_START).contains(&(now.as_second() - last.as_second())) {
        *last = Timestamp::from_second(now.as_second()).unwrap_or(Timestamp::UNIX_EPOCH);
    }
    *last
}

const HEX: &[u8; 16] = b"0123456789abcdef";

/// The clock and the random numbers. The clock advances with tokio's, so in a paused runtime it shows virtual time; the
/// numbers only depend on the seed.
#[derive(Debug)]
pub(crate) struct Entropy {
    seed: u64,
    /// The time of day at `started`.
    epoch: Timestamp,
    started: Instant,
    /// The generator of random numbers. It has a lock because requests may run on several threads.
    rng: Mutex<ChaCha8Rng>,
}

impl Entropy {
    /// Creates a clock that currently shows `epoch`, and a random number generator with this seed.
    pub(crate) fn new(seed: u64, epoch: Timestamp) -> Self {
        Self {
            seed,
            epoch,
            started: Instant::now(),
            rng: Mutex::new(ChaCha8Rng::seed_from_u64(seed)),
        }
    }

    /// Returns a copy with the same time and the same future random numbers. The copy and the original are independent
    /// afterwards.
    pub(crate) fn fork(&self) -> Self {
        let state = self
            .rng
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .serialize_state();
        Self {
            seed: self.seed,
            epoch: self.epoch,
            started: self.started,
            rng: Mutex::new(ChaCha8Rng::deserialize_state(&state)),
        }
    }

    /// Returns the seed of the random numbers.
    pub(crate) fn seed(&self) -> u64 {
        self.seed
    }

    /// Returns the time of day.
    pub(crate) fn now(&self) -> Timestamp {
        self.epoch.saturating_add(self.elapsed()).unwrap_or(Timestamp::MAX)
    }

    /// Returns the time since the server started.
    pub(crate) fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    /// Returns the current time in the format of metadata: `2006-01-02T15:04:05Z`.
    pub(crate) fn now_seconds(&self) -> String {
        seconds(self.now())
    }

    /// Returns a random number in `0..bound`; 0 if `bound` is 0.
    pub(crate) fn below(&self, bound: u64) -> u64 {
        self.next_u64().checked_rem(bound).unwrap_or(0)
    }

    /// Returns the next random number.
    pub(crate) fn next_u64(&self) -> u64 {
        self.rng.lock().unwrap_or_else(PoisonError::into_inner).next_u64()
    }

    /// Returns a version 4 UUID.
    pub(crate) fn uid(&self) -> String {
        /// The place of each byte, which is written as two digits.
        const PLACES: [usize; 16] = [0, 2, 4, 6, 9, 11, 14, 16, 19, 21, 24, 26, 28, 30, 32, 34];
        let mut bytes = [0; 16];
        self.rng
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .fill_bytes(&mut bytes);
        bytes[6] = bytes[6] & 0x0f | 0x40;
        bytes[8] = bytes[8] & 0x3f | 0x80;
        let mut text = *b"00000000-0000-0000-0000-000000000000";
        let mut at = 0;
        while at < bytes.len() {
            let (byte, place) = (usize::from(bytes[at]), PLACES[at]);
            text[place] = HEX[byte >> 4];
            text[place + 1] = HEX[byte & 15];
            at += 1;
        }
        str::from_utf8(&text).unwrap_or_default().to_owned()
    }

    /// Returns five characters for a generated name (rule B2).
    pub(crate) fn name_suffix(&self) -> String {
        const ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";
        let mut bits = self.next_u64();
        (0..5)
            .map(|_| {
                let letter = ALPHABET[(bits % 27) as usize];
                bits /= 27;
                char::from(letter)
            })
            .collect()
    }
}

/// Formats a time as in metadata: UTC, whole seconds.
pub(crate) fn seconds(time: Timestamp) -> String {
    // Times are rounded down, because a time in the future must not be shown.
    let time = TimeZone::UTC.to_datetime(time);
    let year = u16::try_from(time.year()).unwrap_or_default();
    let mut text = *b"0000-00-00T00:00:00Z";
    let mut pair = |at: usize, number: u8| {
        text[at] += number / 10 % 10;
        text[at + 1] += number % 10;
    };
    pair(0, (year / 100) as u8);
    pair(2, (year % 100) as u8);
    pair(5, time.month().unsigned_abs());
    pair(8, time.day().unsigned_abs());
    pair(11, time.hour().unsigned_abs());
    pair(14, time.minute().unsigned_abs());
    pair(17, time.second().unsigned_abs());
    str::from_utf8(&text).unwrap_or_default().to_owned()
}
