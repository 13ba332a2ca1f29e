//! Named formats, modelled on `k8s.io/apiserver/pkg/cel/library/format.go`.

use std::sync::Arc;

use super::values::{Evaluated, list, optional};
use crate::registry::cel::objects::{Opaque, Value as CelValue};
use crate::registry::cel::times::Time;
use crate::registry::types::names;
use crate::registry::types::url::Url;

/// A named format.
#[derive(Debug)]
pub(super) struct Format {
    name: &'static str,
    /// Assumed length of the regular expression, used to compute costs.
    regex_size: usize,
    check: fn(&str) -> Vec<String>,
}

impl PartialEq for Format {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for Format {}

impl Opaque for &'static Format {
    fn runtime_type_name(&self) -> &str {
        "kubernetes.NamedFormat"
    }
}

/// Creates a format with its validation function.
const fn format(name: &'static str, regex_size: usize, check: fn(&str) -> Vec<String>) -> Format {
    Format {
        name,
        regex_size,
        check,
    }
}

static FORMATS: [Format; 13] = [
    format("byte", 84, |it| wrong_if(!is_base64(it), "invalid base64")),
    format("date", 71, |it| wrong_if(!is_date(it), "invalid date")),
    format("datetime", 71, |it| wrong_if(!is_time(it), "invalid datetime")),
    format("dns1035Label", 30, |it| names::dns1035_label(it, false)),
    format("dns1035LabelPrefix", 30, |it| names::dns1035_label(it, true)),
    format("dns1123Label", 30, |it| names::dns1123_label(it, false)),
    format("dns1123LabelPrefix", 30, |it| names::dns1123_label(it, true)),
    format("dns1123Subdomain", 60, |it| names::dns1123_subdomain(it, false)),
    format("dns1123SubdomainPrefix", 60, |it| names::dns1123_subdomain(it, true)),
    format("labelValue", 40, names::label_value),
    format("qualifiedName", 60, names::qualified_name),
    format("uri", 1103, |it| match Url::parse_request_uri(it) {
        Ok(_) => Vec::new(),
        Err(why) => vec![format!("parse {}: {why}", crate::api::field::quote(it))],
    }),
    format("uuid", 70, |it| {
        wrong_if(!is_uuid(it), "does not match the UUID format")
    }),
];

fn wrong_if(is_wrong: bool, text: &str) -> Vec<String> {
    Vec::from_iter(is_wrong.then(|| text.to_owned()))
}

/// Returns `true` for base64 that `strfmt` accepts: groups of four characters, of which the last may be padded.
fn is_base64(text: &str) -> bool {
    let digits = text.trim_end_matches('=');
    let is_digit = |it: u8| it.is_ascii_alphanumeric() || it == b'+' || it == b'/';
    let padding = text.len() - digits.len();
    !text.is_empty() && text.len().is_multiple_of(4) && padding <= 2 && digits.bytes().all(is_digit)
}

fn is_date(text: &str) -> bool {
    let is_form = text.len() == 10 && text.bytes().all(|it| it.is_ascii_digit() || it == b'-');
    is_form && Time::parse(&format!("{text}T00:00:00Z")).is_some()
}

fn is_time(text: &str) -> bool {
    Time::parse(&text.to_ascii_uppercase()).is_some()
}

fn is_uuid(text: &str) -> bool {
    let plain: Vec<u8> = text.bytes().filter(|it| *it != b'-').collect();
    let is_place = |at: usize| matches!(at, 8 | 13 | 18 | 23);
    let has_dashes = text.contains('-');
    let are_placed = text.bytes().enumerate().all(|(at, it)| (it == b'-') == is_place(at));
    plain.len() == 32 && plain.iter().all(u8::is_ascii_hexdigit) && (!has_dashes || (text.len() == 36 && are_placed))
}

/// Calls a function of formats; returns `None` for other functions.
pub(super) fn call(name: &str, args: &[CelValue]) -> Option<Evaluated> {
    match (name, args) {
        ("format.named", [CelValue::String(text)]) => Some(Ok(optional(named(text)))),
        ("validate", [value, CelValue::String(text)]) => {
            let wrong = (of(value)?.check)(text);
            let wrong: Vec<CelValue> = wrong.into_iter().map(|it| CelValue::String(Arc::new(it))).collect();
            Some(Ok(optional((!wrong.is_empty()).then(|| list(wrong)))))
        }
        (name, []) => named(name.strip_prefix("format.")?).map(Ok),
        _ => None,
    }
}

fn named(name: &str) -> Option<CelValue> {
    let format = FORMATS.iter().find(|it| it.name == name)?;
    Some(CelValue::Opaque(Arc::new(format)))
}

fn of(value: &CelValue) -> Option<&'static Format> {
    match value {
        CelValue::Opaque(opaque) => opaque.downcast_ref::<&'static Format>().copied(),
        _ => None,
    }
}

/// Returns the assumed length of a format's regular expression; `None` if the value is not a format.
pub(super) fn regex_size(value: &CelValue) -> Option<usize> {
    of(value).map(|it| it.regex_size)
}
