//! `Correlator`: decides whether an Event is written, counted or dropped. It does not read the clock; the time is an
//! argument.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::events::v1::Event;
use tokio::time::Instant;

/// Time after the last event of a series at which the series ends.
pub(super) const SERIES_ENDS: Duration = Duration::from_secs(6 * 60);

/// Maximum number of recorded series, and of recorded sources. If it is exceeded, the series with the oldest last
/// event, or the source with the oldest refill of its bucket, is dropped.
const REMEMBERED: usize = 4096;

/// Maximum burst of events from one source about one object.
const BURST: u32 = 25;
/// Interval at which one further event is allowed after a burst.
const REFILL: Duration = Duration::from_secs(300);

/// Identifies a series: all fields of an event except its note and time.
pub(super) type SeriesKey = [String; 7];

/// Decision on an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Write a new event.
    Create,
    /// Write this count to the existing Event with this name.
    Count { name: String, count: i32 },
    /// Only count the event; [`refresh`](Correlator::refresh) returns the count later.
    Later,
    /// Drop the event, because its source has sent too many events.
    Drop,
}

/// Recently observed series and sources of events.
#[derive(Debug, Default)]
pub(super) struct Correlator {
    series: BTreeMap<SeriesKey, Series>,
    sources: BTreeMap<String, Source>,
}

#[derive(Debug)]
struct Series {
    /// The first event of the series. Counts are written to its Event. If this Event was deleted, it is created again.
    event: Event,
    count: i32,
    written: i32,
    last: Instant,
}

/// Spam filter for events from one source about one object, implemented as a token bucket.
#[derive(Debug)]
struct Source {
    tokens: u32,
    refilled: Instant,
}

impl Correlator {
    /// Records an event, and decides whether it is written, counted or dropped.
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

    /// Returns up to `room` series with counts that must be written. Removes series that have ended if all of their
    /// counts were returned.
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
