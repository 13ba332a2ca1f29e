//! Parses and formats times and base64 like Go.

use std::fmt::Write;

use jiff::civil::DateTime;
use jiff::tz::Offset;

use crate::api::field::quote;

/// The zero value of Go's `time.Time`, which is encoded as `null`.
const ZERO: &str = "0001-01-01T00:00:00Z";

/// Precision of a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Precision {
    /// `metav1.Time`: whole seconds. Fractions are accepted but dropped.
    Seconds,
    /// `metav1.MicroTime`: microseconds. Fractions have exactly six digits.
    Micros,
}

impl Precision {
    /// Returns the length of a time in kube-apiserver's format.
    fn len(self) -> usize {
        match self {
            Precision::Seconds => 20,
            Precision::Micros => 27,
        }
    }

    fn layout(self) -> &'static str {
        match self {
            Precision::Seconds => "2006-01-02T15:04:05Z07:00",
            Precision::Micros => "2006-01-02T15:04:05.000000Z07:00",
        }
    }
}

/// Result of parsing a time.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Canonical {
    /// The time is already in kube-apiserver's format.
    Same,
    /// The time in kube-apiserver's format.
    Other(String),
    /// The zero time, which is encoded as `null`.
    Zero,
}

/// Parses a time. Fails with the message of Go's `time.ParseError`.
pub(super) fn canonical_time(text: &str, precision: Precision) -> Result<Canonical, String> {
    let (time, offset) = read_time(text, precision)?;
    // Fast path: nearly all times are already in UTC and in the canonical format.
    if offset == 0 && text.len() == precision.len() && time.year() != 1 && text.as_bytes().get(19) != Some(&b',') {
        return Ok(Canonical::Same);
    }
    let Ok(seconds) = Offset::from_seconds(offset * 60) else {
        return Err(format!(
            "parsing time {}: time zone offset hour out of range",
            quote(text)
        ));
    };
    let Ok(moment) = seconds.to_timestamp(time) else {
        return Err(format!("parsing time {}: year out of range", quote(text)));
    };
    let utc = Offset::UTC.to_datetime(moment);
    let mut out = String::with_capacity(27);
    // Writing into a String cannot fail.
    let _ = write!(
        out,
        "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}",
        utc.year(),
        utc.month(),
        utc.day(),
        utc.hour(),
        utc.minute(),
        utc.second()
    );
    if precision == Precision::Micros {
        let _ = write!(out, ".{:06}", utc.subsec_nanosecond() / 1000);
    }
    out.push('Z');
    if out == ZERO || precision == Precision::Micros && out == "0001-01-01T00:00:00.000000Z" {
        return Ok(Canonical::Zero);
    }
    Ok(if out == text {
        Canonical::Same
    } else {
        Canonical::Other(out)
    })
}

/// Parses a `metav1.Time`. Returns the time in kube-apiserver's format; `None` for the zero time, which is encoded as
/// `null`. Fails with the message of Go's `time.ParseError`.
pub(crate) fn canonical_seconds(text: &str) -> Result<Option<String>, String> {
    Ok(match canonical_time(text, Precision::Seconds)? {
        Canonical::Same => Some(text.to_owned()),
        Canonical::Other(time) => Some(time),
        Canonical::Zero => None,
    })
}

/// A parser of times, with the unread part of the string.
struct Reader<'a> {
    text: &'a str,
    rest: &'a str,
    precision: Precision,
}

impl Reader<'_> {
    fn cannot(&self, element: &str) -> String {
        format!(
            "parsing time {} as \"{}\": cannot parse {} as \"{element}\"",
            quote(self.text),
            self.precision.layout(),
            quote(self.rest)
        )
    }

    fn out_of_range(&self, what: &str) -> String {
        format!("parsing time {}: {what} out of range", quote(self.text))
    }

    fn literal(&mut self, literal: &str) -> Result<(), String> {
        self.rest = self.rest.strip_prefix(literal).ok_or_else(|| self.cannot(literal))?;
        Ok(())
    }

    /// Parses exactly `len` digits.
    fn digits(&mut self, len: usize, element: &str) -> Result<i32, String> {
        let number = self
            .rest
            .get(..len)
            .filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()))
            .and_then(|text| text.parse().ok())
            .ok_or_else(|| self.cannot(element))?;
        self.rest = &self.rest[len..];
        Ok(number)
    }

    fn ranged(&mut self, len: usize, element: &str, what: &str, below: i32) -> Result<i8, String> {
        let number = self.digits(len, element)?;
        if number >= below {
            return Err(self.out_of_range(what));
        }
        i8::try_from(number).map_err(|_| self.out_of_range(what))
    }

    /// Parses a fraction as nanoseconds. It has any number of digits for `Seconds`, and exactly six for `Micros`.
    fn fraction(&mut self) -> Result<i32, String> {
        let digits = match self.rest.strip_prefix(['.', ',']) {
            Some(after) => after.bytes().take_while(u8::is_ascii_digit).count(),
            None => 0,
        };
        let taken = match self.precision {
            Precision::Seconds => digits,
            Precision::Micros if digits >= 6 => 6,
            Precision::Micros => return Err(self.cannot(".000000")),
        };
        if taken == 0 {
            return Ok(0);
        }
        let mut nanos = 0;
        let fraction = self.rest[1..=taken].bytes().chain(std::iter::repeat(b'0'));
        for digit in fraction.take(9) {
            nanos = nanos * 10 + i32::from(digit - b'0');
        }
        self.rest = &self.rest[1 + taken..];
        Ok(nanos)
    }

    /// Parses the time zone, in minutes east of UTC.
    fn zone(&mut self) -> Result<i32, String> {
        if let Some(rest) = self.rest.strip_prefix('Z') {
            self.rest = rest;
            return Ok(0);
        }
        let &[sign, h1, h2, b':', m1, m2, ..] = self.rest.as_bytes() else {
            return Err(self.cannot("Z07:00"));
        };
        if !matches!(sign, b'+' | b'-') || ![h1, h2, m1, m2].iter().all(u8::is_ascii_digit) {
            return Err(self.cannot("Z07:00"));
        }
        let number = |tens: u8, ones: u8| i32::from(tens - b'0') * 10 + i32::from(ones - b'0');
        let (hours, minutes) = (number(h1, h2), number(m1, m2));
        if hours > 24 {
            return Err(self.out_of_range("time zone offset hour"));
        }
        if minutes > 60 {
            return Err(self.out_of_range("time zone offset minute"));
        }
        self.rest = &self.rest[6..];
        let total = hours * 60 + minutes;
        Ok(if sign == b'-' { -total } else { total })
    }
}

/// Parses a time like Go's `time.Parse(time.RFC3339, text)`. Returns the local time and its offset from UTC in minutes.
#[cfg(feature = "cel")]
pub(crate) fn read_rfc3339(text: &str) -> Option<(DateTime, i32)> {
    read_time(text, Precision::Seconds).ok()
}

/// Parses a time. Returns the local time and its offset from UTC in minutes.
fn read_time(text: &str, precision: Precision) -> Result<(DateTime, i32), String> {
    let mut it = Reader {
        text,
        rest: text,
        precision,
    };
    let year = it.digits(4, "2006")?;
    it.literal("-")?;
    let month = it.ranged(2, "01", "month", 13)?;
    if month == 0 {
        return Err(it.out_of_range("month"));
    }
    it.literal("-")?;
    let day = it.digits(2, "02")?;
    it.literal("T")?;
    let two_digits = it.rest.as_bytes().get(1).is_some_and(u8::is_ascii_digit);
    let hour = it.ranged(if two_digits { 2 } else { 1 }, "15", "hour", 24)?;
    it.literal(":")?;
    let minute = it.ranged(2, "04", "minute", 60)?;
    it.literal(":")?;
    let second = it.ranged(2, "05", "second", 60)?;
    let nanos = it.fraction()?;
    let offset = it.zone()?;
    if !it.rest.is_empty() {
        return Err(format!("parsing time {}: extra text: {}", quote(text), quote(it.rest)));
    }
    let year = i16::try_from(year).map_err(|_| it.out_of_range("year"))?;
    let day = i8::try_from(day).map_err(|_| it.out_of_range("day"))?;
    let time = DateTime::new(year, month, day, hour, minute, second, nanos).map_err(|_| it.out_of_range("day"))?;
    Ok((time, offset))
}

/// Checks base64 like Go, which skips line breaks and requires padding. Returns the string as Go
/// encodes it again, if this differs from `text`. Fails with the offset of the error that Go reports.
pub(super) fn canonical_base64(text: &str) -> Result<Option<String>, usize> {
    let bytes = text.as_bytes();
    let mut digits = 0;
    let mut breaks = false;
    let mut last = 0;
    for (at, &byte) in bytes.iter().enumerate() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'+' | b'/' => {
                digits += 1;
                last = byte;
            }
            b'\n' | b'\r' => breaks = true,
            b'=' => {
                padding(bytes, at, digits % 4)?;
                return Ok(respell(text, digits, last, breaks || bytes[at..].contains(&b'\n')));
            }
            _ => return Err(at),
        }
    }
    match digits % 4 {
        0 if breaks => Ok(respell(text, digits, last, true)),
        0 => Ok(None),
        rest => Err(bytes.len() - rest),
    }
}

/// Checks the padding, which starts at index `at`. `digits` is the number of digits before it in the last group of
/// four.
fn padding(bytes: &[u8], at: usize, digits: usize) -> Result<(), usize> {
    let skip = |mut at: usize| {
        while matches!(bytes.get(at), Some(b'\n' | b'\r')) {
            at += 1;
        }
        at
    };
    let mut next = skip(at + 1);
    match digits {
        0 | 1 => return Err(at),
        2 => match bytes.get(next) {
            None => return Err(bytes.len()),
            Some(b'=') => next = skip(next + 1),
            Some(_) => return Err(next.saturating_sub(1)),
        },
        _ => {}
    }
    if next < bytes.len() { Err(next) } else { Ok(()) }
}

/// Removes line breaks, and clears the unused bits of the last digit. Returns `None` if nothing changes.
fn respell(text: &str, digits: usize, last: u8, breaks: bool) -> Option<String> {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let unused = match digits % 4 {
        2 => 0b1111,
        3 => 0b11,
        _ => 0,
    };
    let value = ALPHABET.iter().position(|&it| it == last).unwrap_or(0);
    if !breaks && value & unused == 0 {
        return None;
    }
    let mut out: String = text.chars().filter(|c| !matches!(c, '\n' | '\r')).collect();
    if value & unused != 0 {
        let at = digits - 1;
        out.replace_range(at..=at, char::from(ALPHABET[value & !unused]).encode_utf8(&mut [0; 4]));
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case("2024-05-01T12:00:00Z", Ok(Canonical::Same))]
    #[case("2024-05-01T12:00:00.5Z", Ok(Canonical::Other("2024-05-01T12:00:00Z".into())))]
    #[case("2024-05-01T01:00:00+02:00", Ok(Canonical::Other("2024-04-30T23:00:00Z".into())))]
    #[case("0001-01-01T00:00:00Z", Ok(Canonical::Zero))]
    #[case("2024-05-01T1:00:00.5Z", Ok(Canonical::Other("2024-05-01T01:00:00Z".into())))]
    #[case("2024-05-01T01:00:00+00:00", Ok(Canonical::Other("2024-05-01T01:00:00Z".into())))]
    #[case(
        "yesterday",
        Err("parsing time \"yesterday\" as \"2006-01-02T15:04:05Z07:00\": cannot parse \"yesterday\" as \"2006\"")
    )]
    #[case(
        "2024-13-01T00:00:00Z",
        Err("parsing time \"2024-13-01T00:00:00Z\": month out of range")
    )]
    #[case(
        "2023-02-29T00:00:00Z",
        Err("parsing time \"2023-02-29T00:00:00Z\": day out of range")
    )]
    #[case(
        "2024-05-01",
        Err("parsing time \"2024-05-01\" as \"2006-01-02T15:04:05Z07:00\": cannot parse \"\" as \"T\"")
    )]
    #[case(
        "2024-05-01T00:00:00Zx",
        Err("parsing time \"2024-05-01T00:00:00Zx\": extra text: \"x\"")
    )]
    fn times_are_truncated_to_seconds(#[case] text: &str, #[case] expected: Result<Canonical, &str>) {
        assert_eq!(
            canonical_time(text, Precision::Seconds),
            expected.map_err(str::to_owned)
        );
    }

    #[test]
    fn micro_times_require_six_fractional_digits() {
        let read = |text| canonical_time(text, Precision::Micros);
        assert_eq!(read("2024-05-01T12:00:00.000001Z"), Ok(Canonical::Same));
        let error = read("2024-05-01T12:00:00Z").expect_err("the time has no fraction");
        assert!(error.ends_with("cannot parse \"Z\" as \".000000\""), "{error}");
        let error = read("2024-05-01T12:00:00.123456789Z").expect_err("the time has too many digits");
        assert!(error.ends_with("cannot parse \"789Z\" as \"Z07:00\""), "{error}");
    }

    #[rstest]
    #[case("", Ok(None))]
    #[case("YWJj", Ok(None))]
    #[case("YWI=", Ok(None))]
    #[case("YQ==", Ok(None))]
    #[case("YR==", Ok(Some("YQ==".to_owned())))]
    #[case("YW\nJj\n", Ok(Some("YWJj".to_owned())))]
    #[case("***", Err(0))]
    #[case("YWJ", Err(0))]
    #[case("YWJjZA", Err(4))]
    #[case("YQ=", Err(3))]
    #[case("YQ==x", Err(4))]
    #[case("=", Err(0))]
    fn base64_is_checked_as_in_go(#[case] text: &str, #[case] expected: Result<Option<String>, usize>) {
        assert_eq!(canonical_base64(text), expected);
    }
}
