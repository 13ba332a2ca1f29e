//! `Time` and `Duration`: the timestamps and durations of CEL, with the ranges and string formats of Go's types.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};

use jiff::civil::{DateTime, date};
use jiff::{SignedDuration, Timestamp};

use crate::registry::types::decode::read_rfc3339;

/// Range of all times in seconds since 1970: from year 1 to year 9999.
pub(crate) const SECONDS: std::ops::RangeInclusive<i64> = -62_135_596_800..=253_402_300_799;

const NANOSECONDS: i64 = 1_000_000_000;

/// A time, with the UTC offset in which it is printed. Comparisons ignore the offset.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Time {
    /// Seconds since 1970, within [`SECONDS`].
    seconds: i64,
    /// Nanoseconds after that second.
    nanoseconds: i32,
    /// Seconds east of UTC.
    offset: i32,
}

impl Time {
    /// Parses a string like Go's `time.Parse(time.RFC3339, text)`.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (local, minutes) = read_rfc3339(text)?;
        let offset = minutes * 60;
        let since = local.duration_since(EPOCH);
        let seconds = since.as_secs() - i64::from(since.subsec_nanos() < 0) - i64::from(offset);
        let nanoseconds = local.subsec_nanosecond();
        Self::new(seconds, nanoseconds, offset)
    }

    /// Creates a time from a number of seconds since 1970.
    pub(crate) fn from_seconds(seconds: i64) -> Option<Self> {
        Self::new(seconds, 0, 0)
    }

    fn new(seconds: i64, nanoseconds: i32, offset: i32) -> Option<Self> {
        SECONDS.contains(&seconds).then_some(Self {
            seconds,
            nanoseconds,
            offset,
        })
    }

    /// Returns `true` if the time does not have an offset from UTC.
    pub(crate) fn is_utc(&self) -> bool {
        self.offset == 0
    }

    /// Returns the whole seconds since 1970.
    pub(crate) fn seconds(&self) -> i64 {
        self.seconds
    }

    /// Returns the time minus this number of seconds, without its offset; `None` if the result is in the last two days
    /// of the year 9999.
    pub(crate) fn timestamp_before(&self, seconds: i64) -> Option<Timestamp> {
        Timestamp::new(self.seconds - seconds, self.nanoseconds).ok()
    }

    /// Returns this time plus a duration; `None` if it is out of range.
    pub(crate) fn checked_add(&self, length: Duration) -> Option<Self> {
        self.moved(i128::from(length.nanoseconds))
    }

    /// Returns this time minus a duration; `None` if it is out of range.
    pub(crate) fn checked_sub(&self, length: Duration) -> Option<Self> {
        self.moved(-i128::from(length.nanoseconds))
    }

    fn moved(&self, by: i128) -> Option<Self> {
        let moved = self.all_nanoseconds() + by;
        let second = i128::from(NANOSECONDS);
        let seconds = i64::try_from(moved.div_euclid(second)).ok()?;
        let nanoseconds = i32::try_from(moved.rem_euclid(second)).ok()?;
        Self::new(seconds, nanoseconds, self.offset)
    }

    /// Returns the duration since another time; `None` if it is longer than any duration.
    pub(crate) fn since(&self, other: &Self) -> Option<Duration> {
        let nanoseconds = self.all_nanoseconds() - other.all_nanoseconds();
        i64::try_from(nanoseconds).ok().map(Duration::from_nanoseconds)
    }

    fn all_nanoseconds(&self) -> i128 {
        i128::from(self.seconds) * i128::from(NANOSECONDS) + i128::from(self.nanoseconds)
    }
}

const EPOCH: DateTime = date(1970, 1, 1).at(0, 0, 0, 0);

/// Formats a time like Go's `time.RFC3339Nano`.
impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let since = SignedDuration::from_secs(self.seconds + i64::from(self.offset));
        let local = EPOCH.saturating_add(since);
        let (date, time) = (local.date(), local.time());
        write!(f, "{:04}-{:02}-{:02}T", date.year(), date.month(), date.day())?;
        write!(f, "{:02}:{:02}:{:02}", time.hour(), time.minute(), time.second())?;
        if self.nanoseconds != 0 {
            let digits = format!("{:09}", self.nanoseconds);
            write!(f, ".{}", digits.trim_end_matches('0'))?;
        }
        if self.offset == 0 {
            return f.write_str("Z");
        }
        let sign = if self.offset < 0 { '-' } else { '+' };
        let minutes = self.offset.abs() / 60;
        write!(f, "{sign}{:02}:{:02}", minutes / 60, minutes % 60)
    }
}

impl PartialEq for Time {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Time {}

impl Hash for Time {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.seconds, self.nanoseconds).hash(state);
    }
}

impl PartialOrd for Time {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Time {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.seconds, self.nanoseconds).cmp(&(other.seconds, other.nanoseconds))
    }
}

/// A duration in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Duration {
    nanoseconds: i64,
}

impl Duration {
    pub(crate) fn from_nanoseconds(nanoseconds: i64) -> Self {
        Self { nanoseconds }
    }

    pub(crate) fn nanoseconds(self) -> i64 {
        self.nanoseconds
    }

    /// Returns the number of whole units of this many nanoseconds.
    pub(crate) fn whole(self, unit: i64) -> i64 {
        self.nanoseconds / unit
    }

    pub(crate) fn checked_add(self, other: Self) -> Option<Self> {
        let sum = self.nanoseconds.checked_add(other.nanoseconds);
        sum.map(Self::from_nanoseconds)
    }

    pub(crate) fn checked_sub(self, other: Self) -> Option<Self> {
        let difference = self.nanoseconds.checked_sub(other.nanoseconds);
        difference.map(Self::from_nanoseconds)
    }

    /// Parses a string such as `1h30m` or `-1.5s`, like Go's `time.ParseDuration`.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let is_negative = text.starts_with('-');
        let mut rest = text.strip_prefix(['-', '+']).unwrap_or(text);
        if rest == "0" {
            return Some(Self::from_nanoseconds(0));
        }
        if rest.is_empty() {
            return None;
        }
        let mut sum: u64 = 0;
        while !rest.is_empty() {
            let (amount, after) = part(rest)?;
            sum = sum.checked_add(amount).filter(|it| *it <= MAGNITUDE_MAX)?;
            rest = after;
        }
        let sum = i128::from(sum);
        let signed = if is_negative { -sum } else { sum };
        i64::try_from(signed).ok().map(Self::from_nanoseconds)
    }
}

/// Maximum absolute value of a duration in nanoseconds, reached only by the minimum duration.
const MAGNITUDE_MAX: u64 = 1 << 63;

/// Parses the number with its unit at the start of `text`. Returns it in nanoseconds, with the rest of the string.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "Go computes the fraction as precisely"
)]
fn part(text: &str) -> Option<(u64, &str)> {
    let count = |text: &str| text.bytes().take_while(u8::is_ascii_digit).count();
    let (whole, rest) = text.split_at(count(text));
    let (fraction, rest) = match rest.strip_prefix('.') {
        Some(after) => after.split_at(count(after)),
        None => ("", rest),
    };
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let end = rest.find(|it: char| it == '.' || it.is_ascii_digit());
    let (unit, rest) = rest.split_at(end.unwrap_or(rest.len()));
    let unit: u64 = match unit {
        "ns" => 1,
        "us" | "µs" | "μs" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        "m" => 60_000_000_000,
        "h" => 3_600_000_000_000,
        _ => return None,
    };
    let whole: u64 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    let mut amount = whole.checked_mul(unit).filter(|it| *it <= MAGNITUDE_MAX)?;
    let (mut digits, mut scale) = (0_u64, 1.0);
    for digit in fraction.bytes() {
        // Further digits are below the precision.
        let Some(next) = digits
            .checked_mul(10)
            .and_then(|it| it.checked_add(u64::from(digit - b'0')))
        else {
            break;
        };
        digits = next;
        scale *= 10.0;
    }
    amount = amount.checked_add((digits as f64 * (unit as f64 / scale)) as u64)?;
    Some((amount, rest))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::{Duration, Time};

    #[rstest]
    #[case("0", Some(0))]
    #[case("1h30m", Some(5_400_000_000_000))]
    #[case("-1.5s", Some(-1_500_000_000))]
    #[case("+1ms", Some(1_000_000))]
    #[case(".5us2ns", Some(502))]
    #[case("1.000000000000000000000001s", Some(1_000_000_000))]
    #[case("-9223372036854775808ns", Some(i64::MIN))]
    #[case("9223372036854775808ns", None)]
    #[case("", None)]
    #[case("1", None)]
    #[case("s", None)]
    #[case(".s", None)]
    #[case("1d", None)]
    #[case("1e3s", None)]
    #[case("1 s", None)]
    fn durations_are_parsed_as_in_go(#[case] text: &str, #[case] nanoseconds: Option<i64>) {
        assert_eq!(Duration::parse(text).map(Duration::nanoseconds), nanoseconds, "{text}");
    }

    #[rstest]
    #[case("2026-01-02T03:04:05Z", Some("2026-01-02T03:04:05Z"))]
    #[case("2026-01-02T03:04:05.120+02:30", Some("2026-01-02T03:04:05.12+02:30"))]
    #[case("1969-12-31T23:59:59.5-00:30", Some("1969-12-31T23:59:59.5-00:30"))]
    #[case("0001-01-01T00:00:00Z", Some("0001-01-01T00:00:00Z"))]
    #[case("9999-12-31T23:59:59.999999999Z", Some("9999-12-31T23:59:59.999999999Z"))]
    #[case("9999-12-31T23:59:59-01:00", None)]
    #[case("2026-02-30T00:00:00Z", None)]
    #[case("2026-01-02T03:04:60Z", None)]
    #[case("2026-01-02t03:04:05z", None)]
    #[case("2026-01-02", None)]
    fn times_are_parsed_and_formatted_as_in_go(#[case] text: &str, #[case] shown: Option<&str>) {
        let shown_here = Time::parse(text).map(|it| it.to_string());
        assert_eq!(shown_here.as_deref(), shown, "{text}");
    }

    #[test]
    fn time_arithmetic_crosses_the_epoch() {
        let time = Time::parse("1970-01-01T00:00:00.25Z").expect("the time is valid");
        let length = Duration::parse("1.5s").expect("the duration is valid");
        let earlier = time.checked_sub(length).expect("the time is in range");
        assert_eq!(earlier.to_string(), "1969-12-31T23:59:58.75Z");
        assert_eq!(earlier.checked_add(length), Some(time));
        assert_eq!(time.since(&earlier), Some(length));
    }
}
