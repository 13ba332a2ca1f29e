//! Schedule of a CronJob: cron schedules in a time zone.

use jiff::civil::{Date, DateTime, Time};
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp, ToSpan as _};

/// Days that are looked at for the next time; a schedule such as `0 0 30 2 *` has none.
const DAYS_MOST: usize = 5 * 366;

/// A schedule that was found to be valid.
#[derive(Clone, Debug)]
pub(crate) enum Schedule {
    /// At every minute whose parts are in these sets of bits.
    Fields {
        fields: [u64; 5],
        any_day: [bool; 2],
        zone: TimeZone,
    },
    /// Again and again after a time.
    Every(SignedDuration),
}

const MONTHS: [&str; 12] = [
    "jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec",
];
const DAYS: [&str; 7] = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];
const BOUNDS: [(u64, u64); 5] = [(0, 59), (0, 23), (1, 31), (1, 12), (0, 6)];

impl Schedule {
    /// Reads a schedule that validation has accepted; `zone` is the CronJob's, UTC where it names none.
    pub(crate) fn parse(text: &str, zone: Option<&str>) -> Option<Self> {
        let (own, rest) = match text.strip_prefix("TZ=").or_else(|| text.strip_prefix("CRON_TZ=")) {
            Some(rest) => rest.split_once(' ').map(|(zone, rest)| (Some(zone), rest.trim()))?,
            None => (None, text),
        };
        let zone = match own.or(zone) {
            None | Some("UTC" | "Local" | "") => TimeZone::UTC,
            Some(name) => TimeZone::get(name).ok()?,
        };
        if let Some(duration) = rest.strip_prefix("@every ") {
            return go_duration(duration).map(Self::Every);
        }
        let rest = match rest {
            "@yearly" | "@annually" => "0 0 1 1 *",
            "@monthly" => "0 0 1 * *",
            "@weekly" => "0 0 * * 0",
            "@daily" | "@midnight" => "0 0 * * *",
            "@hourly" => "0 * * * *",
            rest => rest,
        };
        let words: Vec<&str> = rest.split_whitespace().collect();
        let [minute, hour, day, month, weekday] = words.as_slice() else {
            return None;
        };
        let words = [minute, hour, day, month, weekday];
        let mut fields = [0; 5];
        for (index, word) in words.iter().enumerate() {
            fields[index] = bits(word, index)?;
        }
        let is_any = |word: &str| word.split(',').any(|it| it.starts_with(['*', '?']));
        Some(Self::Fields {
            fields,
            any_day: [is_any(day), is_any(weekday)],
            zone,
        })
    }

    /// The first time after `after`.
    pub(crate) fn next(&self, after: Timestamp) -> Option<Timestamp> {
        match self {
            Self::Every(duration) => {
                let duration = (*duration).max(SignedDuration::from_secs(1));
                let whole = Timestamp::from_second(after.as_second()).ok()?;
                whole.checked_add(SignedDuration::from_secs(duration.as_secs())).ok()
            }
            Self::Fields { fields, any_day, zone } => next_of(fields, *any_day, zone, after),
        }
    }
}

fn next_of(fields: &[u64; 5], any_day: [bool; 2], zone: &TimeZone, after: Timestamp) -> Option<Timestamp> {
    let start = zone.to_datetime(after);
    let mut date = start.date();
    for _ in 0..DAYS_MOST {
        if day_fits(fields, any_day, date) {
            let first = if date == start.date() { start.hour() } else { 0 };
            let found = (first..24).filter(|hour| has(fields[1], *hour)).find_map(|hour| {
                let minutes = (0..60).filter(|minute| has(fields[0], *minute));
                let mut times = minutes.filter_map(|minute| instant(date, hour, minute, zone));
                times.find(|at| *at > after)
            });
            if found.is_some() {
                return found;
            }
        }
        date = date.checked_add(1.day()).ok()?;
    }
    None
}

fn has(bits: u64, number: i8) -> bool {
    u32::try_from(number).is_ok_and(|number| bits & (1 << number) != 0)
}

fn day_fits(fields: &[u64; 5], any_day: [bool; 2], date: Date) -> bool {
    let by_day = has(fields[2], date.day());
    let by_weekday = has(fields[4], date.weekday().to_sunday_zero_offset());
    // Of two restrictions on the day one is enough.
    let fits = if any_day.contains(&true) {
        by_day && by_weekday
    } else {
        by_day || by_weekday
    };
    fits && has(fields[3], date.month())
}

/// A time of day in a zone; one that the clocks leave out is none.
fn instant(date: Date, hour: i8, minute: i8, zone: &TimeZone) -> Option<Timestamp> {
    let at = DateTime::from_parts(date, Time::new(hour, minute, 0, 0).ok()?);
    let ambiguous = zone.to_ambiguous_timestamp(at);
    match ambiguous.offset() {
        jiff::tz::AmbiguousOffset::Gap { .. } => None,
        jiff::tz::AmbiguousOffset::Unambiguous { .. } | jiff::tz::AmbiguousOffset::Fold { .. } => {
            ambiguous.earlier().ok()
        }
    }
}

/// The numbers a field names, as bits.
fn bits(word: &str, field: usize) -> Option<u64> {
    let (least, most) = BOUNDS[field];
    let names: &[&str] = match field {
        3 => &MONTHS,
        4 => &DAYS,
        _ => &[],
    };
    let number = |text: &str| -> Option<u64> {
        let name = text.to_lowercase();
        match names.iter().position(|it| *it == name) {
            Some(place) => Some(u64::try_from(place).ok()? + least),
            None => text.parse().ok(),
        }
    };
    let mut found = 0_u64;
    for range in word.split(',').filter(|it| !it.is_empty()) {
        let (span, step) = match range.split_once('/') {
            Some((span, step)) => (span, step.parse::<u64>().ok().filter(|it| *it > 0)?),
            None => (range, 1),
        };
        let (first, last) = match span.split_once('-') {
            _ if span.starts_with(['*', '?']) => (least, most),
            Some((first, last)) => (number(first)?, number(last)?),
            None if range.contains('/') => (number(span)?, most),
            None => (number(span)?, number(span)?),
        };
        let mut at = first;
        while at <= last.min(most) {
            found |= 1 << at;
            at += step;
        }
    }
    Some(found)
}

/// A duration as Go writes it: `1h30m`.
fn go_duration(text: &str) -> Option<SignedDuration> {
    let mut total = 0.0;
    let mut rest = text.trim().trim_start_matches('+');
    while !rest.is_empty() {
        let end = rest.find(|it: char| !it.is_ascii_digit() && it != '.')?;
        let (number, after) = rest.split_at(end);
        let end = after
            .find(|it: char| it.is_ascii_digit() || it == '.')
            .unwrap_or(after.len());
        let (unit, next) = after.split_at(end);
        let seconds = match unit {
            "h" => 3600.0,
            "m" => 60.0,
            "s" => 1.0,
            "ms" => 1e-3,
            "us" | "µs" | "μs" => 1e-6,
            "ns" => 1e-9,
            _ => return None,
        };
        total += number.parse::<f64>().ok()? * seconds;
        rest = next;
    }
    SignedDuration::try_from_secs_f64(total).ok()
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::every_minute("* * * * *", "2026-01-01T00:00:30Z", "2026-01-01T00:01:00Z")]
    #[case::a_time_is_after("0 * * * *", "2026-01-01T00:00:00Z", "2026-01-01T01:00:00Z")]
    #[case::steps("*/15 3 * * *", "2026-01-01T03:20:00Z", "2026-01-01T03:30:00Z")]
    #[case::names("0 0 * feb sun", "2026-01-01T00:00:00Z", "2026-02-01T00:00:00Z")]
    #[case::one_day_of_two("0 0 13 * fri", "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z")]
    #[case::leap("0 0 29 2 *", "2026-01-01T00:00:00Z", "2028-02-29T00:00:00Z")]
    #[case::hourly("@hourly", "2026-01-01T00:30:00Z", "2026-01-01T01:00:00Z")]
    #[case::every("@every 1h30m", "2026-01-01T00:00:00Z", "2026-01-01T01:30:00Z")]
    #[case::zone("TZ=Europe/Berlin 0 9 * * *", "2026-07-01T00:00:00Z", "2026-07-01T07:00:00Z")]
    #[case::a_gap_is_skipped("TZ=Europe/Berlin 30 2 * * *", "2026-03-28T12:00:00Z", "2026-03-30T00:30:00Z")]
    fn next_times(#[case] schedule: &str, #[case] after: Timestamp, #[case] want: Timestamp) {
        let schedule = Schedule::parse(schedule, None).expect("a schedule");
        assert_eq!(schedule.next(after), Some(want));
    }

    #[test]
    fn some_never_come() {
        let never = Schedule::parse("0 0 30 2 *", None).expect("a schedule");
        assert_eq!(never.next(Timestamp::UNIX_EPOCH), None);
    }
}
