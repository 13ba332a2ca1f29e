//! Resolves the types of plain scalars like go-yaml 2: YAML 1.1 with a few exceptions.

use serde_json::Number;

use crate::api::json::Value;

/// Value of a plain scalar.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Resolved {
    Null,
    Bool(bool),
    Number(Number),
    /// `.inf` or `.nan`, which JSON cannot represent.
    NotFinite,
    /// A string that would be parsed as a time. It remains a string, but must be quoted when written.
    Timestamp,
    String,
}

impl Resolved {
    /// Converts the value to JSON; `None` for infinities and NaN. `text` is the scalar.
    pub(super) fn into_value(self, text: &str) -> Option<Value> {
        match self {
            Resolved::Null => Some(Value::Null),
            Resolved::Bool(it) => Some(Value::Bool(it)),
            Resolved::Number(it) => Some(Value::Number(it)),
            Resolved::NotFinite => None,
            Resolved::Timestamp | Resolved::String => Some(Value::String(text.into())),
        }
    }
}

/// Resolves `text` as if written without quotes.
pub(super) fn resolve(text: &str) -> Resolved {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Resolved::Null,
        "y" | "Y" | "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => {
            return Resolved::Bool(true);
        }
        "n" | "N" | "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => {
            return Resolved::Bool(false);
        }
        ".nan" | ".NaN" | ".NAN" | ".inf" | ".Inf" | ".INF" | "+.inf" | "+.Inf" | "+.INF" | "-.inf" | "-.Inf"
        | "-.INF" => return Resolved::NotFinite,
        _ => {}
    }
    match text.as_bytes()[0] {
        b'.' if is_float(text) => float(text),
        b'0'..=b'9' | b'+' | b'-' => {
            if is_timestamp(text) {
                return Resolved::Timestamp;
            }
            let plain = text.replace('_', "");
            match integer(&plain) {
                Some(number) => Resolved::Number(number),
                None if is_float(&plain) => float(&plain),
                None => Resolved::String,
            }
        }
        _ => Resolved::String,
    }
}

/// Returns `true` if `text` looks like a YAML 1.1 sexagesimal number, such as `1:30`. go-yaml quotes such strings when
/// it writes them, but does not parse them as numbers.
pub(super) fn is_base_60(text: &str) -> bool {
    let rest = text.strip_prefix(['-', '+']).unwrap_or(text);
    let rest = rest.split_once('.').map_or(rest, |(whole, part)| {
        let is_fraction = part.bytes().all(|it| it.is_ascii_digit() || it == b'_');
        if is_fraction { whole } else { "" }
    });
    let mut parts = rest.split(':');
    let first = parts.next().unwrap_or_default();
    let mut parts = parts.peekable();
    first.starts_with(|c: char| c.is_ascii_digit())
        && first.bytes().all(|it| it.is_ascii_digit() || it == b'_')
        && parts.peek().is_some()
        && parts.all(|it| matches!(it.as_bytes(), [b'0'..=b'9'] | [b'0'..=b'5', b'0'..=b'9']))
}

/// Parses a Go integer literal: `0x1f`, `0b1`, `0o17`, `017`, `-5`.
fn integer(text: &str) -> Option<Number> {
    let (negative, digits) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let lower = digits.get(..2).map(str::to_ascii_lowercase);
    let (radix, digits) = match lower.as_deref() {
        Some("0x") => (16, &digits[2..]),
        Some("0b") => (2, &digits[2..]),
        Some("0o") => (8, &digits[2..]),
        Some(_) if digits.starts_with('0') => (8, &digits[1..]),
        _ => (10, digits),
    };
    if digits.starts_with(['+', '-']) {
        return None;
    }
    let amount = u64::from_str_radix(digits, radix).ok()?;
    if negative {
        0_i64.checked_sub_unsigned(amount).map(Number::from)
    } else {
        Some(Number::from(amount))
    }
}

/// Returns `true` if the text matches `[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?`.
fn is_float(text: &str) -> bool {
    let rest = text.strip_prefix(['-', '+']).unwrap_or(text);
    let (mantissa, exponent) = match rest.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent)),
        None => (rest, None),
    };
    let all_digits = |it: &str| it.bytes().all(|byte| byte.is_ascii_digit());
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let exponent_fits = exponent.is_none_or(|it| {
        let digits = it.strip_prefix(['-', '+']).unwrap_or(it);
        !digits.is_empty() && all_digits(digits)
    });
    (!whole.is_empty() || !fraction.is_empty()) && all_digits(whole) && all_digits(fraction) && exponent_fits
}

/// Parses a float. An integral float in the range of `i64` becomes an integer, as after a round trip through Go's JSON.
fn float(text: &str) -> Resolved {
    match text.parse::<f64>() {
        Ok(it) => number(it).map_or(Resolved::String, Resolved::Number),
        Err(_) => Resolved::String,
    }
}

/// Converts a float to a JSON number, which is an integer if the float is integral and in the range of `i64`. Returns
/// `None` for NaN and infinities.
pub(super) fn number(it: f64) -> Option<Number> {
    let whole = it as i64;
    if whole as f64 == it && whole != i64::MAX {
        return Some(Number::from(whole));
    }
    Number::from_f64(it)
}

/// Returns `true` for `2006-1-2`, and for a date and a time in one of the three forms that go-yaml accepts. The date
/// must exist; month and day may have one digit.
fn is_timestamp(text: &str) -> bool {
    let bytes = text.as_bytes();
    let digits = |from: usize, to: usize| bytes[from..to].iter().all(u8::is_ascii_digit);
    if bytes.len() < 8 || !digits(0, 4) || bytes[4] != b'-' {
        return false;
    }
    let (date, time) = match text.find(['T', 't', ' ']) {
        Some(at) => (&text[..at], Some(&text[at..])),
        None => (text, None),
    };
    let mut parts = date.split('-');
    let year = parts.next().and_then(|it| it.parse().ok());
    let mut part = || {
        let text = parts.next()?;
        let fits = matches!(text.len(), 1 | 2) && text.bytes().all(|byte| byte.is_ascii_digit());
        fits.then(|| text.parse().ok())?
    };
    let (Some(year), Some(month), Some(day)) = (year, part(), part()) else {
        return false;
    };
    parts.next().is_none() && jiff::civil::Date::new(year, month, day).is_ok() && time.is_none_or(is_time)
}

/// Returns `true` for `T15:4:5.999Z`, `t15:4:5.999+01:00` and ` 15:4:5.999`. As in Go, a comma may precede the
/// fraction, there may be several spaces, and the offset may be up to `24:60`.
fn is_time(text: &str) -> bool {
    let (mark, rest) = text.split_at(1);
    let rest = if mark == " " {
        rest.trim_start_matches(' ')
    } else {
        rest
    };
    let zone_at = rest.find(['Z', '+', '-']);
    let (clock, zone) = zone_at.map_or((rest, ""), |at| rest.split_at(at));
    let zone_fits = match zone.as_bytes() {
        [] => mark == " ",
        b"Z" => mark != " ",
        [b'+' | b'-', ..] => mark != " " && is_offset(&zone[1..]),
        _ => false,
    };
    let (whole, fraction) = clock
        .split_once(['.', ','])
        .map_or((clock, None), |(whole, it)| (whole, Some(it)));
    let fraction_fits = fraction.is_none_or(|it| !it.is_empty() && it.bytes().all(|byte| byte.is_ascii_digit()));
    let mut count = 0;
    let parts_fit = whole.split(':').zip([23_u8, 59, 59]).all(|(part, max)| {
        count += 1;
        let has_digits = matches!(part.len(), 1 | 2) && part.bytes().all(|byte| byte.is_ascii_digit());
        has_digits && part.parse::<u8>().is_ok_and(|it| it <= max)
    });
    zone_fits && fraction_fits && parts_fit && count == 3 && whole.matches(':').count() == 2
}

/// Returns `true` for `07:00`.
fn is_offset(text: &str) -> bool {
    text.split_once(':').is_some_and(|(hours, minutes)| {
        [(hours, 24_u8), (minutes, 60)].into_iter().all(|(part, max)| {
            let has_two_digits = part.len() == 2 && part.bytes().all(|byte| byte.is_ascii_digit());
            has_two_digits && part.parse::<u8>().is_ok_and(|it| it <= max)
        })
    })
}

#[cfg(test)]
mod tests {
    use crate::api::json::json;
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("yes", json!(true))]
    #[case("off", json!(false))]
    #[case("~", Value::Null)]
    #[case("0644", json!(420))]
    #[case("0o17", json!(15))]
    #[case("0x1F", json!(31))]
    #[case("1_000", json!(1000))]
    #[case("-5", json!(-5))]
    #[case("08", json!(8))]
    #[case("1.5", json!(1.5))]
    #[case(".5", json!(0.5))]
    #[case("1e3", json!(1000))]
    #[case("18446744073709551615", json!(u64::MAX))]
    #[case("1.2.3", json!("1.2.3"))]
    #[case("1:30", json!("1:30"))]
    #[case("2006-01-02T15:04:05Z", json!("2006-01-02T15:04:05Z"))]
    #[case("--", json!("--"))]
    #[case("+-1", json!("+-1"))]
    fn plain_scalars_resolve_as_in_go(#[case] text: &str, #[case] expected: Value) {
        assert_eq!(resolve(text).into_value(text), Some(expected));
    }

    #[test]
    fn times_and_sexagesimal_numbers_are_recognised() {
        for text in [
            "2006-01-02",
            "2006-1-2",
            "2004-2-29",
            "2006-1-2T5:4:5.9Z",
            "2006-01-02T15:04:05,5Z",
            "2006-01-02 15:04:05",
            "2006-01-02  5:4:5",
            "2006-01-02T15:04:05+01:00",
            "2006-01-02t15:04:05+24:60",
        ] {
            assert_eq!(resolve(text), Resolved::Timestamp, "{text}");
        }
        for text in [
            "2006-01-02T15:04",
            "2006-13-02",
            "2006-001-02",
            "2006-02-30",
            "2006-2-29 1:2:3",
            "2006-02-30T10:00:00Z",
            "2006-01-02T15:04:05",
            "2006-01-02T15:04:05.Z",
            "2006-01-02T15:04:60Z",
            "2006-01-02t15:04:05+25:00",
            "2006-01-02 15:4:5Z",
        ] {
            assert_eq!(resolve(text), Resolved::String, "{text}");
        }
        assert!(is_base_60("1:30") && is_base_60("-190:20:30.15") && !is_base_60("1:61") && !is_base_60("12"));
    }
}
