//! `Correlator`: decides which events are written, which are counted, and which are too many. Pure; the time is an
//! argument.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::events::v1::Event;
use tokio::time::Instant;

/// A series is over after so much silence.
pub(super) const SERIES_ENDS: Duration = Duration::from_secs(6 * 60);

/// Most series and sources that are remembered; then the one that was silent longest is forgotten.
const REMEMBERED: usize = 4096;

/// Most events of one source about one object at once, and the time after which one more is allowed.
const BURST: u32 = 25;
const REFILL: Duration = Duration::from_secs(300);

/// Identity of a series: everything but the note and the time.
pub(super) type SeriesKey = [String; 7];

/// Decision about an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Write a new event.
    Create,
    /// Write into the event of this name that it came so often.
    Count { name: String, count: i32 },
    /// It is counted; that is written later.
    Later,
    /// It is one of too many.
    Drop,
}

/// Recently seen series and sources.
#[derive(Debug, Default)]
pub(super) struct Correlator {
    series: BTreeMap<SeriesKey, Series>,
    sources: BTreeMap<String, Source>,
}

#[derive(Debug)]
struct Series {
    /// The first: counts are written into it, and it is written anew if it is gone.
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
    /// An event comes.
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

    /// The series of which more is known than was written, as many as there is room for, and forgets those that are
    /// over and written.
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
