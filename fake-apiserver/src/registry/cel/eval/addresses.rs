//! The errors of Go's `netip.ParseAddr`.

use crate::api::field::quote;

/// An error, and the rest of the input at its position if Go prints it.
type Problem<'t> = (&'static str, &'t str);

/// Returns the error for a string that is not an address.
pub(super) fn problem(text: &str) -> String {
    let (what, at) = match text.find(['.', ':', '%']) {
        None => ("unable to parse IP", ""),
        Some(at) => match text.as_bytes()[at] {
            b'.' => in_v4(text).unwrap_or_default(),
            b':' => in_v6(text).unwrap_or_default(),
            _ => ("missing IPv6 address", ""),
        },
    };
    let shown = format!("ParseAddr({}): {what}", quote(text));
    match at {
        "" => shown,
        at => format!("{shown} (at {})", quote(at)),
    }
}

/// Returns the error in an IPv4 address, which may be the end of an IPv6 address.
fn in_v4(text: &str) -> Option<Problem<'_>> {
    let (mut value, mut digits, mut fields) = (0_u32, 0, 0);
    for (at, it) in text.char_indices() {
        let rest = &text[at..];
        match it {
            '0'..='9' if digits == 1 && value == 0 => return Some(("IPv4 field has octet with leading zero", "")),
            '0'..='9' => {
                value = value * 10 + it.to_digit(10).unwrap_or_default();
                digits += 1;
                if value > 255 {
                    return Some(("IPv4 field has value >255", ""));
                }
            }
            '.' if digits == 0 || rest.len() == 1 => {
                return Some(("IPv4 field must have at least one digit", rest));
            }
            '.' if fields == 3 => return Some(("IPv4 address too long", "")),
            '.' => (value, digits, fields) = (0, 0, fields + 1),
            _ => return Some(("unexpected character", rest)),
        }
    }
    (fields < 3).then_some(("IPv4 address too short", ""))
}

fn in_v6(text: &str) -> Option<Problem<'_>> {
    let (mut rest, zone) = text.split_once('%').map_or((text, None), |(it, zone)| (it, Some(zone)));
    if zone == Some("") {
        return Some(("zone must be a non-empty string", ""));
    }
    let mut is_short = false;
    if let Some(more) = rest.strip_prefix("::") {
        (rest, is_short) = (more, true);
        if rest.is_empty() {
            return None;
        }
    }
    let mut bytes = 0;
    while bytes < 16 {
        let digits = rest.bytes().take_while(u8::is_ascii_hexdigit).count();
        match digits {
            0 => return Some(("each colon-separated field must have at least one digit", rest)),
            5.. => return Some(("each group must have 4 or less digits", rest)),
            _ => {}
        }
        if rest[digits..].starts_with('.') {
            let wrong = in_embedded(rest, bytes, is_short);
            if wrong.is_some() {
                return wrong;
            }
            (rest, bytes) = ("", bytes + 4);
            break;
        }
        bytes += 2;
        rest = &rest[digits..];
        match rest.strip_prefix(':') {
            None if rest.is_empty() => break,
            None => return Some(("unexpected character, want colon", rest)),
            Some("") => return Some(("colon must be followed by more characters", rest)),
            Some(more) => rest = more,
        }
        if let Some(more) = rest.strip_prefix(':') {
            if is_short {
                return Some(("multiple :: in address", rest));
            }
            (rest, is_short) = (more, true);
            if rest.is_empty() {
                break;
            }
        }
    }
    match (rest, bytes < 16, is_short) {
        ("", true, false) => Some(("address string too short", "")),
        ("", false, true) => Some(("the :: must expand to at least one field of zeros", "")),
        ("", ..) => None,
        (rest, ..) => Some(("trailing garbage after address", rest)),
    }
}

/// Returns the error in an IPv4 address that follows `bytes` bytes of an IPv6 address.
fn in_embedded(text: &str, bytes: usize, is_short: bool) -> Option<Problem<'_>> {
    match bytes {
        13.. => Some((
            "too many hex fields to fit an embedded IPv4 at the end of the address",
            text,
        )),
        0..=11 if !is_short => Some((
            "embedded IPv4 address must replace the final 2 fields of the address",
            text,
        )),
        _ => in_v4(text),
    }
}
