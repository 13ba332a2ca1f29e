//! The keyword `format`: supported formats, and the strings that they permit.

use std::net::Ipv6Addr;
use std::sync::OnceLock;

use regex::Regex;

use super::json_type::JsonType;
use crate::api::field::quote;
use crate::registry::types::net;

/// A format that is enforced. Other formats are ignored, with a warning when the CRD is written (rule O21).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Format {
    name: String,
    for_strings: bool,
}

/// Formats of strings. Their names are written without dashes.
const STRING_FORMATS: &[&str] = &[
    "bsonobjectid",
    "byte",
    "cidr",
    "creditcard",
    "date",
    "datetime",
    "duration",
    "email",
    "hexcolor",
    "hostname",
    "ipv4",
    "ipv6",
    "isbn",
    "isbn10",
    "isbn13",
    "k8slongname",
    "k8sshortname",
    "mac",
    "password",
    "rgbcolor",
    "ssn",
    "uri",
    "uuid",
    "uuid3",
    "uuid4",
    "uuid5",
];

impl Format {
    /// Returns the format if it is supported for values of this type.
    pub(super) fn parse(name: &str, kind: Option<JsonType>) -> Option<Self> {
        let (known, for_strings) = match kind {
            None | Some(JsonType::String) => (STRING_FORMATS.contains(&name.replace('-', "").as_str()), true),
            Some(JsonType::Integer) => (matches!(name, "int32" | "int64"), false),
            Some(JsonType::Number) => (matches!(name, "float" | "double"), false),
            Some(JsonType::Array | JsonType::Boolean | JsonType::Object) => (false, false),
        };
        known.then(|| Self {
            name: name.to_owned(),
            for_strings,
        })
    }

    /// Returns the name as spelled in the schema.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn is_for_strings(&self) -> bool {
        self.for_strings
    }

    /// Returns `true` if a string has this format.
    pub(super) fn accepts(&self, text: &str) -> bool {
        match self.name.replace('-', "").as_str() {
            "bsonobjectid" => text.len() == 24 && text.bytes().all(|b| b.is_ascii_hexdigit()),
            "byte" => matches_pattern(&BASE64, text),
            "cidr" => net::parse_sloppy_cidr(text).is_some(),
            "date" => is_date(text),
            "datetime" => is_date_time(text),
            "duration" => parse_duration(text).is_ok(),
            "email" => is_email(text),
            "hostname" => {
                matches_pattern(&HOSTNAME, text) && text.len() <= 255 && text.split('.').all(|it| it.len() <= 63)
            }
            "ipv4" => text.contains('.') && net::parse_sloppy(text).is_some(),
            "ipv6" => text.parse::<Ipv6Addr>().is_ok(),
            "isbn" => is_isbn10(text) || is_isbn13(text),
            "isbn10" => is_isbn10(text),
            "isbn13" => is_isbn13(text),
            "k8slongname" => is_name(text, true),
            "k8sshortname" => is_name(text, false),
            "mac" => is_mac(text),
            "uri" => is_uri(text),
            "uuid" => is_uuid(text, None),
            "uuid3" => is_uuid(text, Some(b'3')),
            "uuid4" => is_uuid(text, Some(b'4')),
            "uuid5" => is_uuid(text, Some(b'5')),
            "hexcolor" => matches_pattern(&HEX_COLOR, text),
            "rgbcolor" => matches_pattern(&RGB_COLOR, text),
            "ssn" => text.len() == 11 && matches_pattern(&SSN, text),
            "creditcard" => is_credit_card(text),
            _ => true,
        }
    }
}

/// A regular expression that is compiled on first use.
struct Known {
    pattern: &'static str,
    compiled: OnceLock<Option<Regex>>,
}

impl Known {
    const fn new(pattern: &'static str) -> Self {
        Self {
            pattern,
            compiled: OnceLock::new(),
        }
    }

    fn regex(&self) -> Option<&Regex> {
        self.compiled.get_or_init(|| Regex::new(self.pattern).ok()).as_ref()
    }
}

static HOSTNAME: Known = Known::new(concat!(
    r"^([a-zA-Z0-9\p{S}\p{L}]((-?[a-zA-Z0-9\p{S}\p{L}]{0,62})?)|([a-zA-Z0-9\p{S}\p{L}]",
    r"(([a-zA-Z0-9\-\p{S}\p{L}]{0,61}[a-zA-Z0-9\p{S}\p{L}])?)(\.)){1,}([a-zA-Z\p{L}]){2,63})$"
));
/// As in Go, the fraction may begin with any character, and the offset may be out of range.
static TIME: Known = Known::new(concat!(
    r"^(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]",
    r"(?:.[0-9]+)?(?:z|[+-][0-9]{2}:[0-9]{2})$"
));
static BASE64: Known = Known::new(concat!(
    r"^(?:[A-Za-z0-9+/]{4})*",
    r"(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=|[A-Za-z0-9+/]{4})$"
));
static DURATION_PART: Known = Known::new(r"([0-9]+)[\t\n\f\r ]*([A-Za-z\u{b5}]+)");
static HEX_COLOR: Known = Known::new("^#?([0-9a-fA-F]{3}|[0-9a-fA-F]{6})$");
static SSN: Known = Known::new("^[0-9]{3}[- ]?[0-9]{2}[- ]?[0-9]{4}$");
static RGB_COLOR: Known = Known::new(concat!(
    r"^rgb\(\s*(0|[1-9][0-9]?|1[0-9][0-9]?|2[0-4][0-9]|25[0-5])\s*,",
    r"\s*(0|[1-9][0-9]?|1[0-9][0-9]?|2[0-4][0-9]|25[0-5])\s*,",
    r"\s*(0|[1-9][0-9]?|1[0-9][0-9]?|2[0-4][0-9]|25[0-5])\s*\)$"
));
static CREDIT_CARD: Known = Known::new(concat!(
    "^(?:4[0-9]{12}(?:[0-9]{3})?|5[1-5][0-9]{14}|6(?:011|5[0-9][0-9])[0-9]{12}|3[47][0-9]{13}|",
    "3(?:0[0-5]|[68][0-9])[0-9]{11}|(?:2131|1800|35[0-9]{3})[0-9]{11})$"
));

fn matches_pattern(known: &Known, text: &str) -> bool {
    known.regex().is_some_and(|regex| regex.is_match(text))
}

fn is_date(text: &str) -> bool {
    text.parse::<jiff::civil::Date>().is_ok() && text.len() == 10
}

/// Returns `true` if a date and a time are separated by `t`. As in Go, another `t` and the text after it are ignored.
fn is_date_time(text: &str) -> bool {
    let lower = text.to_lowercase();
    let mut parts = lower.split('t');
    let (Some(date), Some(time)) = (parts.next(), parts.next()) else {
        return false;
    };
    is_date(date) && matches_pattern(&TIME, time)
}

/// Parses a string with the format `duration`, and returns its nanoseconds or Go's error. If the string is not a Go
/// duration, all numbers with a unit in it are added, and everything else is ignored (`strfmt.ParseDuration`).
pub(super) fn parse_duration(text: &str) -> Result<i64, String> {
    /// Units: their abbreviations, the first letters of their other spellings, and their length in nanoseconds.
    const UNITS: &[(&[&str], &str, i64)] = &[
        (&["ns"], "nano", 1),
        (&["us", "\u{b5}s"], "micro", 1_000),
        (&["ms"], "milli", 1_000_000),
        (&["s"], "sec", 1_000_000_000),
        (&["m"], "min", 60_000_000_000),
        (&["h", "hr"], "hour", 3_600_000_000_000),
        (&["d"], "day", 86_400_000_000_000),
        (&["w", "wk"], "week", 604_800_000_000_000),
    ];
    if let Ok(duration) = crate::api::duration::parse(text) {
        return Ok(i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX));
    }
    let mut sum = None;
    for found in DURATION_PART.regex().into_iter().flat_map(|it| it.captures_iter(text)) {
        let (_, [count, unit]) = found.extract();
        let count: i64 = count
            .parse()
            .map_err(|_| format!("strconv.Atoi: parsing {}: value out of range", quote(count)))?;
        let unit = unit.to_lowercase();
        let is_unit = |(short, long, _): &&(&[&str], &str, i64)| short.contains(&&*unit) || unit.starts_with(long);
        if let Some((_, _, nanoseconds)) = UNITS.iter().find(is_unit) {
            let part = count.wrapping_mul(*nanoseconds);
            sum = Some(sum.unwrap_or(0_i64).wrapping_add(part));
        }
    }
    sum.ok_or_else(|| format!("unable to parse {text} as duration"))
}

fn is_email(text: &str) -> bool {
    let address = match (text.find('<'), text.ends_with('>')) {
        (Some(from), true) => &text[from + 1..text.len() - 1],
        _ => text,
    };
    let Some((local, domain)) = address.rsplit_once('@') else {
        return false;
    };
    let is_atom = |part: &str| {
        !part.is_empty()
            && part.split('.').all(|it| {
                !it.is_empty()
                    && it
                        .chars()
                        .all(|c| c.is_alphanumeric() || "!#$%&'*+-/=?^_`{|}~".contains(c))
            })
    };
    let is_quoted = local.len() > 2 && local.starts_with('"') && local.ends_with('"');
    (is_quoted || is_atom(local)) && is_atom(domain)
}

fn is_isbn10(text: &str) -> bool {
    let digits: Vec<char> = text.chars().filter(|c| !matches!(c, '-' | ' ')).collect();
    if digits.len() != 10 {
        return false;
    }
    let value = |(index, c): (usize, &char)| match c {
        'X' if index == 9 => Some(10),
        c => c.to_digit(10),
    };
    let values: Option<Vec<u32>> = digits.iter().enumerate().map(value).collect();
    values.is_some_and(|values| {
        let sum: u32 = values.iter().zip(1..).map(|(value, weight)| value * weight).sum();
        sum.is_multiple_of(11)
    })
}

fn is_isbn13(text: &str) -> bool {
    let digits: Option<Vec<u32>> = text
        .chars()
        .filter(|c| !matches!(c, '-' | ' '))
        .map(|c| c.to_digit(10))
        .collect();
    digits.is_some_and(|digits| {
        let weights = [1, 3].into_iter().cycle();
        let sum: u32 = digits.iter().zip(weights).map(|(value, weight)| value * weight).sum();
        digits.len() == 13 && sum.is_multiple_of(10)
    })
}

fn is_credit_card(text: &str) -> bool {
    let digits: String = text.chars().filter(char::is_ascii_digit).collect();
    let luhn = digits.bytes().rev().enumerate().map(|(index, b)| {
        let digit = u32::from(b - b'0');
        match (index % 2, digit) {
            (1, 5..) => digit * 2 - 9,
            (1, _) => digit * 2,
            _ => digit,
        }
    });
    matches_pattern(&CREDIT_CARD, &digits) && luhn.sum::<u32>().is_multiple_of(10)
}

fn is_mac(text: &str) -> bool {
    for (separator, width) in [(':', 2), ('-', 2), ('.', 4)] {
        let parts: Vec<&str> = text.split(separator).collect();
        let bytes = parts.len() * width / 2;
        let is_hex = |it: &&str| it.len() == width && it.bytes().all(|b| b.is_ascii_hexdigit());
        if matches!(bytes, 6 | 8 | 20) && parts.iter().all(is_hex) {
            return true;
        }
    }
    false
}

/// Returns `true` if Go's `url.ParseRequestURI` accepts the string: an absolute URI or an absolute path.
fn is_uri(text: &str) -> bool {
    if text.is_empty() || text.chars().any(|c| c.is_ascii_control()) {
        return false;
    }
    if text.starts_with('/') || text == "*" {
        return true;
    }
    let Some((scheme, rest)) = text.split_once(':') else {
        return false;
    };
    let is_scheme = scheme.starts_with(|c: char| c.is_ascii_alphabetic())
        && scheme.chars().all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c));
    let authority = rest
        .strip_prefix("//")
        .map(|it| it.split(['/', '?']).next().unwrap_or(""));
    let port_is_number = authority.is_none_or(|it| {
        let host_end = it.rfind(']').map_or(0, |at| at + 1);
        it[host_end..]
            .rsplit_once(':')
            .is_none_or(|(_, port)| port.bytes().all(|b| b.is_ascii_digit()))
    });
    is_scheme && port_is_number && !authority.unwrap_or("").contains([' ', '<', '>', '"'])
}

/// Returns `true` if the string is a UUID, with or without dashes. If `version` is set, the UUID must have this
/// version.
fn is_uuid(text: &str, version: Option<u8>) -> bool {
    let bytes = text.as_bytes();
    let mut hex = Vec::with_capacity(32);
    for &byte in bytes {
        match byte {
            b'-' if matches!(hex.len(), 8 | 12 | 16 | 20) => {}
            byte if byte.is_ascii_hexdigit() => hex.push(byte.to_ascii_lowercase()),
            _ => return false,
        }
    }
    let is_variant = !matches!(version, Some(b'4' | b'5')) || matches!(hex.get(16), Some(b'8' | b'9' | b'a' | b'b'));
    hex.len() == 32 && !text.contains("--") && version.is_none_or(|it| hex[12] == it) && is_variant
}

fn is_name(text: &str, long: bool) -> bool {
    let is_label = |it: &str| {
        let inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
        !it.is_empty() && it.bytes().all(|b| inner(b) || b == b'-') && !it.starts_with('-') && !it.ends_with('-')
    };
    match long {
        true => text.len() <= 253 && text.split('.').all(is_label),
        false => text.len() <= 63 && is_label(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[rstest::rstest]
    #[case("date", "2024-02-30", false)]
    #[case("date", "2024-02-29", true)]
    #[case("date-time", "2024-02-29T10:00:00Z", true)]
    #[case("date-time", "2024-02-29t10:00:00.5z", true)]
    #[case("date-time", "2024-02-29T10:00:00,5+99:99", true)]
    #[case("date-time", "2024-02-29T10:00:00ZT", true)]
    #[case("date-time", "9999-12-31T23:59:59-10:00", true)]
    #[case("date-time", "2024-02-29", false)]
    #[case("date-time", "2024-02-29 10:00:00Z", false)]
    #[case("date-time", "2024-02-30T10:00:00Z", false)]
    #[case("date-time", "2024-02-29T10:00Z", false)]
    #[case("date-time", "2024-02-29T10:00:00+01", false)]
    #[case("date-time", "2024-02-29T23:59:60Z", false)]
    #[case("date-time", "2024-02-29T10:00:00Z[UTC]", false)]
    #[case("date-time", "2024-02-29T10:00:00", false)]
    #[case("duration", "1h30m", true)]
    #[case("duration", "22 ns", true)]
    #[case("duration", "x", false)]
    #[case("uuid", "6ba7b810-9dad-11d1-80b4-00c04fd430c8", true)]
    #[case("uuid4", "6ba7b810-9dad-11d1-80b4-00c04fd430c8", false)]
    #[case("ipv4", "10.0.0.1", true)]
    #[case("ipv4", "10.0.0.256", false)]
    #[case("cidr", "10.0.0.0/33", false)]
    #[case("email", "a@b.c", true)]
    #[case("email", "a", false)]
    #[case("hostname", "a.example.com", true)]
    #[case("hostname", "-a", false)]
    #[case("uri", "https://example.com/x", true)]
    #[case("uri", "example", false)]
    #[case("byte", "aGk=", true)]
    #[case("byte", "a", false)]
    #[case("mac", "00:11:22:33:44:55", true)]
    #[case("isbn10", "0321751043", true)]
    #[case("isbn13", "978-0321751041", true)]
    fn string_formats_are_validated(#[case] name: &str, #[case] text: &str, #[case] expected: bool) {
        let format = Format::parse(name, Some(JsonType::String));
        assert_eq!(
            format.map(|format| format.accepts(text)),
            Some(expected),
            "{name} {text}"
        );
    }
}
