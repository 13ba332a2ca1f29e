//! Finds times that a controller wrote based on the machine's clock instead of the server's.

use std::ops::RangeInclusive;

use fake_apiserver::Entry;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use crate::explore::machine::time_of_day;
use crate::test_cluster::{TEST_CLIENT, TestCluster};

/// Wording of notes about controllers that read another clock.
pub(crate) const OTHER_CLOCK: &str = "the controller reads a clock other than the server's";

/// Minimum difference between two clocks at which they are distinguished.
const FAR: SignedDuration = SignedDuration::from_secs(60);

/// Returns the range of times that the machine's clock has shown since `began`. A clock with a resolution of one second
/// may be up to a second behind.
pub(crate) fn machine_since(began: Timestamp) -> RangeInclusive<Timestamp> {
    began.saturating_sub(SignedDuration::from_secs(1)).unwrap_or(began)..=time_of_day()
}

/// Placeholder for a time.
const A_TIME: &str = "a time";

/// A time of the machine's clock that a client wrote.
pub(crate) struct ForeignTime {
    pub(crate) client: String,
    pub(crate) object: String,
    pub(crate) path: String,
    pub(crate) time: Timestamp,
    /// Time of the write by the server's clock.
    pub(crate) now: Timestamp,
}

/// Finds times written by controllers that are between `began` and the machine's current time, although the server's
/// clock showed a different time. Returns the first such time of each client.
pub(crate) fn foreign_times(cluster: &TestCluster, began: Timestamp) -> Vec<ForeignTime> {
    let machine = machine_since(began);
    let started = cluster.server.now() - SignedDuration::try_from(cluster.started.elapsed()).unwrap_or_default();
    let mut found: Vec<ForeignTime> = Vec::new();
    for entry in cluster.journal().since(0) {
        let Entry::Request(request) = entry else { continue };
        let is_client = request.worker.is_none() && request.user_agent != TEST_CLIENT;
        // kube's recorder writes the machine's time into Events.
        let is_event = request.info.as_ref().is_some_and(|it| it.resource == "events");
        if !request.is_write() || !is_client || is_event || found.iter().any(|it| *it.client == *request.client) {
            continue;
        }
        let Ok(body) = serde_json::from_slice::<Value>(&request.request_body) else {
            continue;
        };
        let now = started.saturating_add(request.started).unwrap_or(started);
        let is_foreign = |time: &Timestamp| machine.contains(time) && now.duration_since(*time).abs() > FAR;
        let mut first = None;
        each_time(&body, String::new(), &mut |path, time| {
            if first.is_none() && is_foreign(&time) && !is_of_the_server(path) {
                first = Some((path.to_owned(), time));
            }
        });
        if let Some((path, time)) = first {
            let info = request.info.as_ref();
            let object = info.map(|it| format!("{} {}/{}", it.resource, it.namespace, it.name));
            found.push(ForeignTime {
                client: request.client.to_string(),
                object: object.unwrap_or_default().replace(" /", " "),
                path,
                time,
                now,
            });
        }
    }
    found
}

/// Returns `true` for the paths of times that the server sets and that clients only write back unchanged.
fn is_of_the_server(path: &str) -> bool {
    let metadata = ["creationTimestamp", "deletionTimestamp", "managedFields"];
    let field = path.strip_prefix("metadata.").unwrap_or_default();
    metadata.iter().any(|it| field.starts_with(it))
}

/// Returns the paths of the times in an object that are within the range `machine`.
pub(crate) fn times_within(value: &Value, machine: &RangeInclusive<Timestamp>) -> Vec<String> {
    let mut paths = Vec::new();
    each_time(value, String::new(), &mut |path, time| {
        if machine.contains(&time) {
            paths.push(path.to_owned());
        }
    });
    paths
}

/// Visits the times in a value, with their paths.
fn each_time(value: &Value, path: String, visit: &mut dyn FnMut(&str, Timestamp)) {
    let below = |name: &str| match path.as_str() {
        "" => name.to_owned(),
        path => format!("{path}.{name}"),
    };
    match value {
        Value::String(text) if text.len() >= "2000-01-01T00:00:00Z".len() && text.as_bytes()[4] == b'-' => {
            if let Ok(time) = text.parse() {
                visit(&path, time);
            }
        }
        Value::Array(items) => {
            for (at, item) in items.iter().enumerate() {
                each_time(item, below(&at.to_string()), visit);
            }
        }
        Value::Object(fields) => {
            for (name, field) in fields {
                each_time(field, below(name), visit);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Replaces all times in a value.
pub(crate) fn hide_times(value: &mut Value) {
    match value {
        Value::String(text) if is_time(text) => *text = A_TIME.to_owned(),
        Value::Array(items) => items.iter_mut().for_each(hide_times),
        Value::Object(fields) => fields.values_mut().for_each(hide_times),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Returns `true` if a string is a time in the format of RFC 3339, as Kubernetes writes it.
pub(crate) fn is_time(text: &str) -> bool {
    text.len() >= "2000-01-01T00:00:00Z".len() && text.as_bytes()[4] == b'-' && text.parse::<Timestamp>().is_ok()
}

/// Maximum difference between the creation time of an object and a time in its name that counts as its creation time. A
/// name may also contain the start of the current period, such as the full hour.
pub(crate) const NEAR: SignedDuration = SignedDuration::from_hours(1);

/// Characters between the parts of a time: `2026-11-28-04-43`, `20261128t0443`.
const SEPARATORS: [char; 6] = ['-', '.', '_', ':', 't', 'T'];

/// Replaces a time between `from` and `to` in a name with `*`; returns `None` if the name does not contain such a time.
/// `backup-20261128t0443` and `job-1764304800` contain times.
pub(crate) fn timed(name: &str, from: Timestamp, to: Timestamp) -> Option<String> {
    let is_digit = |it: &u8| it.is_ascii_digit();
    if name.bytes().filter(is_digit).count() < MINUTES {
        return None;
    }
    let is_start = |at: usize| name.as_bytes()[at].is_ascii_digit() && !ends_word(name, at);
    let starts = (0..name.len()).filter(|at| name.is_char_boundary(*at) && is_start(*at));
    for start in starts {
        let rest = &name[start..];
        let is_part = |it: &u8| it.is_ascii_digit() || SEPARATORS.contains(&char::from(*it));
        let mut end = rest.bytes().take(TIME_CHARS).take_while(is_part).count();
        while let Some(last) = rest[..end].rfind(|it: char| it.is_ascii_digit()) {
            let text = &rest[..=last];
            let after = &rest[last + 1..];
            let after = after.strip_prefix(['z', 'Z']).unwrap_or(after);
            let is_whole = !after.starts_with(|it: char| it.is_ascii_alphanumeric());
            if is_whole && is_within(text, from, to) {
                return Some(format!("{}*{after}", &name[..start]));
            }
            // Try again without the last part.
            end = text.rfind(SEPARATORS).unwrap_or(0);
        }
    }
    None
}

/// Returns `true` if a letter or a digit precedes an offset.
fn ends_word(name: &str, at: usize) -> bool {
    name[..at].ends_with(|it: char| it.is_ascii_alphanumeric())
}

/// Maximum length of a time: `2026-11-28T04:43:10.123456789`.
const TIME_CHARS: usize = 29;

/// Number of digits of the minutes since 1970, which is the shortest format of a time.
const MINUTES: usize = 8;

/// Returns `true` if a string is a time between `from` and `to`: a date in UTC, with or without a time of day, or a
/// number of minutes, seconds, or parts of a second since 1970.
fn is_within(text: &str, from: Timestamp, to: Timestamp) -> bool {
    let digits: String = text.chars().filter(char::is_ascii_digit).collect();
    let is_number = digits.len() == text.len();
    let since_1970 = || {
        let number: i64 = digits.parse().ok()?;
        let (time, unit) = match digits.len() {
            MINUTES => (
                Timestamp::from_second(number.checked_mul(60)?),
                SignedDuration::from_secs(60),
            ),
            10 => (Timestamp::from_second(number), SignedDuration::from_secs(1)),
            13 => (Timestamp::from_millisecond(number), SignedDuration::from_millis(1)),
            16 => (Timestamp::from_microsecond(number), SignedDuration::from_micros(1)),
            19 => (Timestamp::from_nanosecond(number.into()), SignedDuration::from_nanos(1)),
            _ => return None,
        };
        Some((time.ok()?, unit))
    };
    let date = || {
        let part = |from: usize, to: usize| digits.get(from..to).map_or(Some(0), |it| it.parse::<i8>().ok());
        let unit = match digits.len() {
            8 => SignedDuration::from_hours(24),
            10 => SignedDuration::from_hours(1),
            12 => SignedDuration::from_secs(60),
            14 => SignedDuration::from_secs(1),
            _ => return None,
        };
        let (year, month, day) = (digits.get(..4)?.parse().ok()?, part(4, 6)?, part(6, 8)?);
        let time = DateTime::new(year, month, day, part(8, 10)?, part(10, 12)?, part(12, 14)?, 0).ok()?;
        Some((time.to_zoned(TimeZone::UTC).ok()?.timestamp(), unit))
    };
    let overlaps = |(time, unit): (Timestamp, SignedDuration)| {
        time <= to && time.saturating_add(unit).unwrap_or(Timestamp::MAX) > from
    };
    is_number && since_1970().is_some_and(overlaps) || date().is_some_and(overlaps)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::{NEAR, timed};

    #[rstest]
    #[case::date_and_minute("backup-20261128t0443", Some("backup-*"))]
    #[case::date_and_second("backup-20261128t044310z", Some("backup-*"))]
    #[case::digits_only("daily-20261128044310", Some("daily-*"))]
    #[case::separate_parts("web-2026-11-28-04-43-data", Some("web-*-data"))]
    #[case::date("web-2026-11-28", Some("web-*"))]
    #[case::seconds("job-1795840980", Some("job-*"))]
    #[case::milliseconds("job-1795840980123", Some("job-*"))]
    #[case::minutes("cron-29930683", Some("cron-*"))]
    #[case::another_day("backup-20251128t0443", None)]
    #[case::another_number("job-1764304800", None)]
    #[case::part_of_a_word("web-x20261128", None)]
    #[case::replica_number("web-7", None)]
    #[case::many_numbers(&"1-".repeat(50_000), None)]
    fn times_in_names_are_recognised(#[case] name: &str, #[case] starred: Option<&str>) {
        let now: jiff::Timestamp = "2026-11-28T04:43:00Z".parse().expect("the time is valid");
        assert_eq!(timed(name, now - NEAR, now + NEAR).as_deref(), starred);
    }
}
