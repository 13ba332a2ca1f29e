//! Cron schedules, as far as telling what is wrong with one.

/// One field of a schedule: its least and greatest number, and the names of some.
struct Bounds {
    min: u64,
    max: u64,
    names: &'static [(&'static str, u64)],
}

const FIELDS: [Bounds; 5] = [
    Bounds {
        min: 0,
        max: 59,
        names: &[],
    },
    Bounds {
        min: 0,
        max: 23,
        names: &[],
    },
    Bounds {
        min: 1,
        max: 31,
        names: &[],
    },
    Bounds {
        min: 1,
        max: 12,
        names: &[
            ("jan", 1),
            ("feb", 2),
            ("mar", 3),
            ("apr", 4),
            ("may", 5),
            ("jun", 6),
            ("jul", 7),
            ("aug", 8),
            ("sep", 9),
            ("oct", 10),
            ("nov", 11),
            ("dec", 12),
        ],
    },
    Bounds {
        min: 0,
        max: 6,
        names: &[
            ("sun", 0),
            ("mon", 1),
            ("tue", 2),
            ("wed", 3),
            ("thu", 4),
            ("fri", 5),
            ("sat", 6),
        ],
    },
];

const DESCRIPTORS: [&str; 7] = [
    "@yearly",
    "@annually",
    "@monthly",
    "@weekly",
    "@daily",
    "@midnight",
    "@hourly",
];

/// The names of all time zones.
static TIME_ZONES: &str = include_str!("time_zones.txt");

/// Returns `true` if there is a time zone of this name.
pub(crate) fn is_time_zone(name: &str) -> bool {
    TIME_ZONES.split_ascii_whitespace().any(|zone| zone == name)
}

/// Validates a schedule.
pub(crate) fn check_schedule(schedule: &str) -> Result<(), String> {
    let mut rest = schedule;
    if schedule.starts_with("TZ=") || schedule.starts_with("CRON_TZ=") {
        let Some((zone, after)) = schedule.split_once(' ') else {
            return Err("invalid schedule format: runtime error: slice bounds out of range [:-1]".to_owned());
        };
        let zone = zone.split_once('=').map_or("", |(_, zone)| zone);
        if !zone.is_empty() && zone != "Local" && !is_time_zone(zone) {
            return Err(format!("provided bad location {zone}: unknown time zone {zone}"));
        }
        rest = after.trim();
    }
    if rest.starts_with('@') {
        return check_descriptor(rest);
    }
    let fields: Vec<&str> = rest.split_whitespace().collect();
    if fields.len() != FIELDS.len() {
        let found = fields.len();
        return Err(format!(
            "expected exactly 5 fields, found {found}: [{}]",
            fields.join(" ")
        ));
    }
    for (field, bounds) in fields.iter().zip(&FIELDS) {
        for range in field.split(',').filter(|range| !range.is_empty()) {
            check_range(range, bounds)?;
        }
    }
    Ok(())
}

fn check_descriptor(descriptor: &str) -> Result<(), String> {
    if DESCRIPTORS.contains(&descriptor) {
        return Ok(());
    }
    match descriptor.strip_prefix("@every ") {
        Some(duration) => {
            check_duration(duration).map_err(|trouble| format!("failed to parse duration {descriptor}: {trouble}"))
        }
        None => Err(format!("unrecognized descriptor: {descriptor}")),
    }
}

/// Checks a duration as Go writes them: `1h30m`, `1.5s`.
fn check_duration(text: &str) -> Result<(), String> {
    let quoted = crate::api::field::quote(text);
    let invalid = || format!("time: invalid duration {quoted}");
    let mut rest = text.strip_prefix(['-', '+']).unwrap_or(text);
    if rest == "0" {
        return Ok(());
    }
    if rest.is_empty() {
        return Err(invalid());
    }
    while !rest.is_empty() {
        let end = rest
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .unwrap_or(rest.len());
        let (number, after) = rest.split_at(end);
        if !number.bytes().any(|byte| byte.is_ascii_digit()) || number.matches('.').count() > 1 {
            return Err(invalid());
        }
        let end = after
            .find(|c: char| c == '.' || c.is_ascii_digit())
            .unwrap_or(after.len());
        let (unit, next) = after.split_at(end);
        if unit.is_empty() {
            return Err(format!("time: missing unit in duration {quoted}"));
        }
        if !["ns", "us", "µs", "μs", "ms", "s", "m", "h"].contains(&unit) {
            let unit = crate::api::field::quote(unit);
            return Err(format!("time: unknown unit {unit} in duration {quoted}"));
        }
        rest = next;
    }
    Ok(())
}

fn check_range(range: &str, bounds: &Bounds) -> Result<(), String> {
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
    Ok(())
}

fn number_or_name(text: &str, bounds: &Bounds) -> Result<u64, String> {
    let name = text.to_lowercase();
    match bounds.names.iter().find(|(it, _)| *it == name) {
        Some((_, value)) => Ok(*value),
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
    use super::{check_schedule, is_time_zone};
    use rstest::rstest;

    #[rstest]
    #[case("* * * * *")]
    #[case("*/5 0-12/2 1,15 jan-MAR sun")]
    #[case("@hourly")]
    #[case("@every 1h30m")]
    #[case("TZ=UTC * * * * *")]
    fn right(#[case] schedule: &str) {
        assert_eq!(check_schedule(schedule), Ok(()));
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
    fn wrong(#[case] schedule: &str, #[case] trouble: &str) {
        assert_eq!(check_schedule(schedule), Err(trouble.to_owned()));
    }

    #[test]
    fn zones() {
        assert!(is_time_zone("Europe/Berlin") && is_time_zone("UTC"));
        assert!(!is_time_zone("Mars/Base") && !is_time_zone("europe/berlin") && !is_time_zone(""));
    }
}
