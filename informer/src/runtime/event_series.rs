//! `Correlator`: decides which events are written, counted or dropped. Pure; the time is an argument.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::events::v1::Event;
use tokio::time::Instant;

/// Silence after which a series has ended.
pub(super) const SERIES_ENDS: Duration = Duration::from_secs(6 * 60);

/// Maximum number of recorded series and of sources; above it the one with the longest silence is dropped.
const REMEMBERED: usize = 4096;

/// Maximum burst of events of one source about one object, and the interval after which another one is allowed.
const BURST: u32 = 25;
const REFILL: Duration = Duration::from_secs(300);

/// Identity of a series: all fields except for the note and the time.
pub(super) type SeriesKey = [String; 7];

/// Decision about an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Write a new event.
    Create,
    /// Write this count into the event with this name.
    Count { name: String, count: i32 },
    /// Count it; the count is written later.
    Later,
    /// Drop it, because there are too many.
    Drop,
}

/// Recently observed series and sources.
#[derive(Debug, Default)]
pub(super) struct Correlator {
    series: BTreeMap<SeriesKey, Series>,
    sources: BTreeMap<String, Source>,
}

#[derive(Debug)]
struct Series {
    /// The first event: counts are written into it, and it is created again if it was deleted.
    event: Event,
    count: i32,
    written: i32,
    last: Instant,
}

/// The spam filter: a bucket of tokens for each source and object.
#[derive(Debug)]
struct Source {
    tokens: u32,
    refilled: Instant,
}

impl Correlator {
    /// Records an event.
    pub(super) fn observe(&mut self, key: &SeriesKey, source: &str, event: &Event, now: Instant) -> Verdict {
        if !self.may_pass(source, now) {
            return Verdict::Drop;
        }
        if let Some(series) = self.series.get_mut(key)
            && now - series.last < SERIES_ENDS
        {
            series.count = series.count.saturating_add(1);
            series.last = now;
            if series.written > 1 {
                return Verdict::Later;
            }
            series.written = series.count;
            return Verdict::Count {
                name: series.event.metadata.name.clone().unwrap_or_default(),
                count: series.count,
            };
        }
        let series = Series {
            event: event.clone(),
            count: 1,
            written: 1,
            last: now,
        };
        self.series.insert(key.clone(), series);
        forget_oldest(&mut self.series, |it| it.last);
        Verdict::Create
    }

    /// Returns the series with unwritten counts, at most `room`, and drops series that have ended and are written.
    pub(super) fn refresh(&mut self, now: Instant, room: usize) -> Vec<(SeriesKey, Event, i32)> {
        let mut found = Vec::new();
        self.series.retain(|key, series| {
            if series.count > series.written {
                if found.len() == room {
                    return true;
                }
                series.written = series.count;
                found.push((key.clone(), series.event.clone(), series.count));
            }
            now - series.last < SERIES_ENDS
        });
        found
    }

    fn may_pass(&mut self, source: &str, now: Instant) -> bool {
        let bucket = self.sources.entry(source.to_owned()).or_insert(Source {
            tokens: BURST,
            refilled: now,
        });
        while bucket.tokens < BURST && now - bucket.refilled >= REFILL {
            bucket.tokens += 1;
            bucket.refilled += REFILL;
        }
        if bucket.tokens == BURST {
            bucket.refilled = now;
        }
        let may_pass = bucket.tokens > 0;
        bucket.tokens = bucket.tokens.saturating_sub(1);
        forget_oldest(&mut self.sources, |it| it.refilled);
        may_pass
    }
}

fn forget_oldest<K: Clone + Ord, V>(all: &mut BTreeMap<K, V>, age: impl Fn(&V) -> Instant) {
    if all.len() > REMEMBERED {
        let oldest = all.iter().min_by_key(|(_, it)| age(it)).map(|(key, _)| key.clone());
        if let Some(oldest) = oldest {
            all.remove(&oldest);
        }
    }
}
