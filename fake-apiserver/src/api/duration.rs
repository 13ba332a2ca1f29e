//! Durations in Go's form, such as `1h30m`, `1.5s` or `-10ms`.

use std::time::Duration;

use jiff::SignedDuration;

use crate::api::field::quote;

/// Writes a duration as Go's `Duration.String` does: `1.5s`, `1m0s`, `250ms`.
pub(crate) fn text(duration: Duration) -> String {
    const MINUTE: u128 = 60_000_000_000;
    let nanos = duration.as_nanos();
    let minutes = nanos / MINUTE;
    let seconds = || decimal(nanos % MINUTE, 1_000_000_000, "s");
    match nanos {
        0 => "0s".to_owned(),
        1..1_000 => format!("{nanos}ns"),
        1_000..1_000_000 => decimal(nanos, 1_000, "µs"),
        1_000_000..1_000_000_000 => decimal(nanos, 1_000_000, "ms"),
        _ => match (minutes / 60, minutes % 60) {
            (0, 0) => seconds(),
            (0, minutes) => format!("{minutes}m{}", seconds()),
            (hours, minutes) => format!("{hours}h{minutes}m{}", seconds()),
        },
    }
}

/// Writes nanoseconds as a decimal fraction of `unit`, which is a power of ten.
fn decimal(nanos: u128, unit: u128, name: &str) -> String {
    let digits = unit.ilog10() as usize;
    let fraction = format!("{:0digits$}", nanos % unit);
    let fraction = fraction.trim_end_matches('0');
    let point = if fraction.is_empty() { "" } else { "." };
    format!("{}{point}{fraction}{name}", nanos / unit)
}

/// Parses a duration like Go's `time.ParseDuration`, with its errors.
pub(crate) fn parse(text: &str) -> Result<SignedDuration, String> {
    let invalid = || format!("time: invalid duration {}", quote(text));
    let magnitude = text.strip_prefix(['-', '+']).unwrap_or(text);
    if magnitude == "0" {
        return Ok(SignedDuration::ZERO);
    }
    if magnitude.is_empty() {
        return Err(invalid());
    }
    let mut nanos = 0_u128;
    let mut rest = magnitude;
    while !rest.is_empty() {
        let (whole, after) = digits(rest);
        let (fraction, after) = match after.strip_prefix('.') {
            Some(after) => digits(after),
            None => ("", after),
        };
        if whole.is_empty() && fraction.is_empty() {
            return Err(invalid());
        }
        let end = after
            .find(|it: char| it == '.' || it.is_ascii_digit())
            .unwrap_or(after.len());
        let (unit, next) = after.split_at(end);
        let whole = whole.trim_start_matches('0');
        // Longer numbers exceed the range of Go's `Duration`, 64 bits of nanoseconds.
        if whole.len() > 19 {
            return Err(invalid());
        }
        let whole: u128 = if whole.is_empty() {
            0
        } else {
            whole.parse().map_err(|_| invalid())?
        };
        let unit = match unit {
            "" => return Err(format!("time: missing unit in duration {}", quote(text))),
            "ns" => 1,
            "us" | "µs" | "μs" => 1_000,
            "ms" => 1_000_000,
            "s" => 1_000_000_000,
            "m" => 60_000_000_000,
            "h" => 3_600_000_000_000,
            unit => {
                let (unit, text) = (quote(unit), quote(text));
                return Err(format!("time: unknown unit {unit} in duration {text}"));
            }
        };
        // Digits past the 18th are less than a nanosecond.
        let fraction = &fraction[..fraction.len().min(18)];
        let scale = 10_u128.pow(u32::try_from(fraction.len()).unwrap_or(0));
        let part: u128 = if fraction.is_empty() {
            0
        } else {
            fraction.parse().map_err(|_| invalid())?
        };
        nanos += whole * unit + part * unit / scale;
        rest = next;
    }
    let nanos = i64::try_from(nanos).map_err(|_| invalid())?;
    Ok(SignedDuration::from_nanos(if text.starts_with('-') {
        -nanos
    } else {
        nanos
    }))
}

/// Splits a string after its leading digits.
fn digits(text: &str) -> (&str, &str) {
    text.split_at(text.find(|it: char| !it.is_ascii_digit()).unwrap_or(text.len()))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case(0, "0s")]
    #[case(7, "7ns")]
    #[case(1_500, "1.5µs")]
    #[case(250_000_000, "250ms")]
    #[case(1_000_000_000, "1s")]
    #[case(61_500_000_000, "1m1.5s")]
    #[case(3_600_000_000_000, "1h0m0s")]
    fn durations_are_formatted_as_in_go(#[case] nanos: u64, #[case] text: &str) {
        assert_eq!(super::text(std::time::Duration::from_nanos(nanos)), text);
    }

    #[rstest]
    #[case("0", 0)]
    #[case("1h30m", 5_400_000_000_000)]
    #[case("+1.5s", 1_500_000_000)]
    #[case("-.5ms", -500_000)]
    #[case("1.s2ns", 1_000_000_002)]
    #[case("0.0000000001s", 0)]
    #[case("2562047h47m16.854775807s", i64::MAX)]
    fn durations_are_parsed_as_in_go(#[case] text: &str, #[case] nanos: i64) {
        assert_eq!(parse(text), Ok(SignedDuration::from_nanos(nanos)));
    }

    #[rstest]
    #[case("", "time: invalid duration \"\"")]
    #[case("-", "time: invalid duration \"-\"")]
    #[case("x", "time: invalid duration \"x\"")]
    #[case(".s", "time: invalid duration \".s\"")]
    #[case("3000000h", "time: invalid duration \"3000000h\"")]
    #[case("99999999999999999999s", "time: invalid duration \"99999999999999999999s\"")]
    #[case("5", "time: missing unit in duration \"5\"")]
    #[case("1.2.3s", "time: missing unit in duration \"1.2.3s\"")]
    #[case("5x", "time: unknown unit \"x\" in duration \"5x\"")]
    fn invalid_durations_cause_the_same_errors_as_in_go(#[case] text: &str, #[case] error: &str) {
        assert_eq!(parse(text), Err(error.to_owned()));
    }
}
