//! `Correlator`: decides whether an Event is written, counted or dropped. It does not read the clock; the time is an
//! argument.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::events::v1::{Event, EventSeries};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use tokio::time::Instant;

/// Time after the last event of a series at which the series ends.
pub(super) const SERIES_ENDS: Duration = Duration::from_secs(6 * 60);

/// Maximum number of recorded series, and of recorded sources. If it is exceeded, the series or the source with the
/// oldest last event is dropped. The last count of the series is still written.
const REMEMBERED: usize = 4096;

/// Maximum burst of events from one source about one object.
const BURST: u32 = 25;
/// Interval at which one further event is allowed after a burst.
const REFILL: Duration = Duration::from_secs(300);

/// Identifies a series: all fields of an event except its note and time.
pub(super) type SeriesKey = [String; 7];

/// Decision on an event.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Verdict {
    /// Write the last counts of series that have ended, and then the new event.
    Create(Vec<Count>),
    /// Write this count to an existing Event.
    Count(Box<Count>),
    /// Only count the event; [`refresh`](Correlator::refresh) returns the count later.
    Later,
    /// Drop the event, because its source has sent too many events.
    Drop,
}

/// A count to be written to an Event.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Count {
    pub(super) key: SeriesKey,
    /// The first event of the series.
    pub(super) event: Event,
    pub(super) series: EventSeries,
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
    /// Time of the last event.
    observed: MicroTime,
}

impl Series {
    /// Returns the count if it has not been written yet.
    fn unwritten(&mut self, key: &SeriesKey) -> Option<Count> {
        if self.count <= self.written {
            return None;
        }
        self.written = self.count;
        Some(Count {
            key: key.clone(),
            event: self.event.clone(),
            series: EventSeries {
                count: self.count,
                last_observed_time: self.observed.clone(),
            },
        })
    }
}

/// Spam filter for events from one source about one object, implemented as a token bucket.
#[derive(Debug)]
struct Source {
    tokens: u32,
    refilled: Instant,
    last: Instant,
}

impl Correlator {
    /// Records an event that occurred at `observed`, and decides whether it is written, counted or dropped.
    pub(super) fn observe(
        &mut self,
        key: &SeriesKey,
        source: &str,
        event: &Event,
        observed: MicroTime,
        now: Instant,
    ) -> Verdict {
        if !self.may_pass(source, now) {
            return Verdict::Drop;
        }
        if let Some(series) = self.series.get_mut(key)
            && now - series.last < SERIES_ENDS
        {
            series.count = series.count.saturating_add(1);
            (series.last, series.observed) = (now, observed);
            // The first count is written immediately, and later counts with the next refresh.
            let count = if series.written > 1 {
                None
            } else {
                series.unwritten(key)
            };
            return count.map_or(Verdict::Later, |it| Verdict::Count(Box::new(it)));
        }
        let series = Series {
            event: event.clone(),
            count: 1,
            written: 1,
            last: now,
            observed,
        };
        let replaced = self.series.insert(key.clone(), series).map(|it| (key.clone(), it));
        let forgotten = forget_oldest(&mut self.series, |it| it.last);
        let ended = [replaced, forgotten].into_iter().flatten();
        Verdict::Create(ended.filter_map(|(key, mut series)| series.unwritten(&key)).collect())
    }

    /// Returns up to `room` counts that must be written. Removes series that have ended if all of their counts were
    /// returned.
    pub(super) fn refresh(&mut self, now: Instant, room: usize) -> Vec<Count> {
        let mut found = Vec::new();
        self.series.retain(|key, series| {
            if found.len() == room && series.count > series.written {
                return true;
            }
            found.extend(series.unwritten(key));
            now - series.last < SERIES_ENDS
        });
        found
    }

    fn may_pass(&mut self, source: &str, now: Instant) -> bool {
        let bucket = self.sources.entry(source.to_owned()).or_insert(Source {
            tokens: BURST,
            refilled: now,
            last: now,
        });
        bucket.last = now;
        while bucket.tokens < BURST && now - bucket.refilled >= REFILL {
            bucket.tokens += 1;
            bucket.refilled += REFILL;
        }
        if bucket.tokens == BURST {
            bucket.refilled = now;
        }
        let may_pass = bucket.tokens > 0;
        bucket.tokens = bucket.tokens.saturating_sub(1);
        forget_oldest(&mut self.sources, |it| it.last);
        may_pass
    }
}

/// Removes and returns the oldest entry if there are more than [`REMEMBERED`] entries.
fn forget_oldest<K: Clone + Ord, V>(all: &mut BTreeMap<K, V>, age: impl Fn(&V) -> Instant) -> Option<(K, V)> {
    if all.len() <= REMEMBERED {
        return None;
    }
    let oldest = all.iter().min_by_key(|(_, it)| age(it)).map(|(key, _)| key.clone())?;
    all.remove_entry(&oldest)
}
