//! Parses the cron schedules of CronJobs, with the errors of the Go package `robfig/cron`.

use jiff::SignedDuration;

use crate::api::duration;

/// A schedule in the standard format of robfig/cron (`cron.ParseStandard`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CronSchedule<'a> {
    /// The time zone, if the schedule string contains one.
    pub(crate) zone: Option<&'a str>,
    pub(crate) times: CronTimes,
}

/// The times at which a schedule starts a Job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CronTimes {
    /// All minutes that match these bit sets: minute, hour, day of the month, month, day of the week.
    Fields {
        fields: [u64; 5],
        /// For the day of the month and the day of the week: `true` if it is unrestricted.
        any_day: [bool; 2],
    },
    /// A fixed interval.
    Every(SignedDuration),
}

/// One field of a schedule: its minimum, its maximum, and the names of its values, starting with the minimum.
struct Bounds {
    min: u64,
    max: u64,
    names: &'static [&'static str],
}

const fn bounds(min: u64, max: u64, names: &'static [&'static str]) -> Bounds {
    Bounds { min, max, names }
}

const FIELDS: [Bounds; 5] = [
    bounds(0, 59, &[]),
    bounds(0, 23, &[]),
    bounds(1, 31, &[]),
    bounds(
        1,
        12,
        &[
            "jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec",
        ],
    ),
    bounds(0, 6, &["sun", "mon", "tue", "wed", "thu", "fri", "sat"]),
];

const DESCRIPTORS: [(&str, &str); 7] = [
    ("@yearly", "0 0 1 1 *"),
    ("@annually", "0 0 1 1 *"),
    ("@monthly", "0 0 1 * *"),
    ("@weekly", "0 0 * * 0"),
    ("@daily", "0 0 * * *"),
    ("@midnight", "0 0 * * *"),
    ("@hourly", "0 * * * *"),
];

/// The names of all time zones.
static TIME_ZONES: &str = include_str!("time_zones.txt");

/// Returns `true` if a time zone with this name exists.
pub(crate) fn is_time_zone(name: &str) -> bool {
    TIME_ZONES.split_ascii_whitespace().any(|zone| zone == name)
}

/// Parses a schedule, with the errors of `cron.ParseStandard`.
pub(crate) fn parse_schedule(schedule: &str) -> Result<CronSchedule<'_>, String> {
    let mut zone = None;
    let mut rest = schedule;
    if schedule.starts_with("TZ=") || schedule.starts_with("CRON_TZ=") {
        let Some((own, after)) = schedule.split_once(' ') else {
            return Err("invalid schedule format: runtime error: slice bounds out of range [:-1]".to_owned());
        };
        let own = own.split_once('=').map_or("", |(_, zone)| zone);
        if !own.is_empty() && own != "Local" && !is_time_zone(own) {
            return Err(format!("provided bad location {own}: unknown time zone {own}"));
        }
        zone = Some(own);
        rest = after.trim();
    }
    let times = match rest.strip_prefix("@every ") {
        Some(interval) => duration::parse(interval)
            .map(CronTimes::Every)
            .map_err(|trouble| format!("failed to parse duration {rest}: {trouble}"))?,
        None => parse_fields(rest)?,
    };
    Ok(CronSchedule { zone, times })
}

fn parse_fields(text: &str) -> Result<CronTimes, String> {
    let text = match DESCRIPTORS.iter().find(|(name, _)| *name == text) {
        Some((_, fields)) => fields,
        None if text.starts_with('@') => return Err(format!("unrecognized descriptor: {text}")),
        None => text,
    };
    let words: Vec<&str> = text.split_whitespace().collect();
    if words.len() != FIELDS.len() {
        let found = words.len();
        return Err(format!(
            "expected exactly 5 fields, found {found}: [{}]",
            words.join(" ")
        ));
    }
    let mut fields = [0; 5];
    let mut any = [false; 5];
    for (((word, bounds), bits), any) in words.iter().zip(&FIELDS).zip(&mut fields).zip(&mut any) {
        for range in word.split(',').filter(|range| !range.is_empty()) {
            let (values, is_any) = parse_range(range, bounds)?;
            *bits |= values;
            *any |= is_any;
        }
    }
    Ok(CronTimes::Fields {
        fields,
        any_day: [any[2], any[4]],
    })
}

/// Returns the values in a range such as `1-10/2`, as a bit set, and `true` if the range is unrestricted. With a step
/// greater than 1, `*` restricts the field.
fn parse_range(range: &str, bounds: &Bounds) -> Result<(u64, bool), String> {
    let mut parts = range.split('/');
    let ends: Vec<&str> = parts.next().unwrap_or_default().split('-').collect();
    let (start, mut end) = match ends.as_slice() {
        ["*" | "?", ..] => (bounds.min, bounds.max),
        [only] => {
            let only = number_or_name(only, bounds)?;
            (only, only)
        }
        [low, high] => (number_or_name(low, bounds)?, number_or_name(high, bounds)?),
        [low, ..] => {
            number_or_name(low, bounds)?;
            return Err(format!("too many hyphens: {range}"));
        }
        [] => (bounds.min, bounds.max),
    };
    let step = match (parts.next(), parts.next()) {
        (None, _) => 1,
        (Some(step), None) => {
            let step = number(step)?;
            if ends.len() == 1 {
                end = bounds.max;
            }
            step
        }
        (Some(_), Some(_)) => return Err(format!("too many slashes: {range}")),
    };
    if start < bounds.min {
        let min = bounds.min;
        return Err(format!("beginning of range ({start}) below minimum ({min}): {range}"));
    }
    if end > bounds.max {
        let max = bounds.max;
        return Err(format!("end of range ({end}) above maximum ({max}): {range}"));
    }
    if start > end {
        return Err(format!(
            "beginning of range ({start}) beyond end of range ({end}): {range}"
        ));
    }
    if step == 0 {
        return Err(format!("step of range should be a positive number: {range}"));
    }
    let step = usize::try_from(step).unwrap_or(usize::MAX);
    let values = (start..=end).step_by(step).fold(0, |bits, number| bits | 1 << number);
    let is_any = matches!(ends.as_slice(), ["*" | "?", ..]) && step == 1;
    Ok((values, is_any))
}

fn number_or_name(text: &str, bounds: &Bounds) -> Result<u64, String> {
    let name = text.to_lowercase();
    let named = (bounds.min..).zip(bounds.names).find(|(_, it)| **it == name);
    match named {
        Some((value, _)) => Ok(value),
        None => number(text),
    }
}

fn number(text: &str) -> Result<u64, String> {
    let quoted = crate::api::field::quote(text);
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(format!(
            "failed to parse int from {text}: strconv.Atoi: parsing {quoted}: invalid syntax"
        ));
    }
    let Ok(value) = text.parse::<i64>() else {
        return Err(format!(
            "failed to parse int from {text}: strconv.Atoi: parsing {quoted}: value out of range"
        ));
    };
    u64::try_from(value).map_err(|_| format!("negative number ({value}) not allowed: {text}"))
}

#[cfg(test)]
mod tests {
    use super::{CronTimes, is_time_zone, parse_schedule};
    use rstest::rstest;

    #[rstest]
    #[case("* * * * *")]
    #[case("*/5 0-12/2 1,15 jan-MAR sun")]
    #[case("@hourly")]
    #[case("@every 1h30m")]
    #[case("TZ=UTC * * * * *")]
    fn valid_schedules_are_accepted(#[case] schedule: &str) {
        assert_eq!(parse_schedule(schedule).map(drop), Ok(()));
    }

    #[rstest]
    #[case("* * * *", "expected exactly 5 fields, found 4: [* * * *]")]
    #[case("60 * * * *", "end of range (60) above maximum (59): 60")]
    #[case("* * 0 * *", "beginning of range (0) below minimum (1): 0")]
    #[case("5-1 * * * *", "beginning of range (5) beyond end of range (1): 5-1")]
    #[case("*/0 * * * *", "step of range should be a positive number: */0")]
    #[case(
        "a * * * *",
        "failed to parse int from a: strconv.Atoi: parsing \"a\": invalid syntax"
    )]
    #[case("1-2-3 * * * *", "too many hyphens: 1-2-3")]
    #[case("@often", "unrecognized descriptor: @often")]
    #[case("@every x", "failed to parse duration @every x: time: invalid duration \"x\"")]
    #[case(
        "TZ=Mars/Base * * * * *",
        "provided bad location Mars/Base: unknown time zone Mars/Base"
    )]
    fn invalid_schedules_are_refused(#[case] schedule: &str, #[case] trouble: &str) {
        assert_eq!(parse_schedule(schedule), Err(trouble.to_owned()));
    }

    #[rstest]
    #[case("0 0 * * 1", [true, false])]
    #[case("0 0 */1 * 1", [true, false])]
    #[case("0 0 */2 * 1", [false, false])]
    #[case("0 0 1,? * */3", [true, false])]
    fn day_field_with_a_step_above_one_is_restricted(#[case] schedule: &str, #[case] expected: [bool; 2]) {
        let times = parse_schedule(schedule).map(|it| it.times);
        assert!(matches!(times, Ok(CronTimes::Fields { any_day, .. }) if any_day == expected));
    }

    #[test]
    fn time_zone_names_are_recognised() {
        assert!(is_time_zone("Europe/Berlin") && is_time_zone("UTC"));
        assert!(!is_time_zone("Mars/Base") && !is_time_zone("europe/berlin") && !is_time_zone(""));
    }
}
