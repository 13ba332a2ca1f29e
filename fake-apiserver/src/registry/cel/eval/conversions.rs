//! Conversions of values to other types, modelled on cel-go's `common/types`.

use std::sync::Arc;

use super::network;
use super::values::{EvalFailure, Evaluated, overload};
use crate::registry::cel::library::type_name;
use crate::registry::cel::objects::Value as CelValue;
use crate::registry::cel::times::{Duration, Time};

/// Calls a conversion with one argument; returns `None` if `name` is not a conversion.
pub(super) fn call(name: &str, value: &CelValue) -> Option<Evaluated> {
    Some(match name {
        "bool" => to_bool(value),
        "bytes" => match value {
            CelValue::String(text) => Ok(CelValue::Bytes(Arc::new(text.as_bytes().to_vec()))),
            CelValue::Bytes(_) => Ok(value.clone()),
            _ => Err(overload()),
        },
        "double" => to_double(value),
        "duration" => match value {
            CelValue::Duration(_) => Ok(value.clone()),
            CelValue::String(text) => match Duration::parse(text) {
                Some(length) => Ok(CelValue::Duration(length)),
                None => unable(value, DURATION_NAME),
            },
            // cel-go declares this conversion, but its implementation fails.
            CelValue::Int(_) => unable(value, DURATION_NAME),
            _ => Err(overload()),
        },
        "int" => to_int(value),
        "string" => return to_string(value),
        "timestamp" => match value {
            CelValue::Timestamp(_) => Ok(value.clone()),
            CelValue::String(text) => match Time::parse(text) {
                Some(at) => Ok(CelValue::Timestamp(at)),
                None => unable(value, TIMESTAMP_NAME),
            },
            CelValue::Int(seconds) => match Time::from_seconds(*seconds) {
                Some(at) => Ok(CelValue::Timestamp(at)),
                None => Err(EvalFailure::Error("timestamp overflow".to_owned())),
            },
            _ => Err(overload()),
        },
        "uint" => to_uint(value),
        _ => return None,
    })
}

const DURATION_NAME: &str = "google.protobuf.Duration";
const TIMESTAMP_NAME: &str = "google.protobuf.Timestamp";

fn unable(value: &CelValue, to: &str) -> Evaluated {
    let from = type_name(value);
    Err(EvalFailure::Error(format!(
        "type conversion error from '{from}' to '{to}'"
    )))
}

fn to_bool(value: &CelValue) -> Evaluated {
    match value {
        CelValue::Bool(_) => Ok(value.clone()),
        CelValue::String(text) => match text.as_str() {
            "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(CelValue::Bool(true)),
            "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(CelValue::Bool(false)),
            _ => unable(value, "bool"),
        },
        _ => Err(overload()),
    }
}

#[expect(clippy::cast_precision_loss, reason = "cel-go's conversion is as precise")]
fn to_double(value: &CelValue) -> Evaluated {
    Ok(CelValue::Float(match value {
        CelValue::Float(number) => *number,
        CelValue::Int(number) => *number as f64,
        CelValue::UInt(number) => *number as f64,
        CelValue::String(text) => match text.trim_start_matches(['+', '-']).to_ascii_lowercase().as_str() {
            // Go accepts NaN only without a sign. Go and Rust accept the same spellings of infinity.
            "nan" if text.len() == 3 => f64::NAN,
            _ => match text.parse::<f64>() {
                Ok(number) if number.is_finite() || text.to_ascii_lowercase().contains("inf") => number,
                _ => return unable(value, "double"),
            },
        },
        _ => return Err(overload()),
    }))
}

fn to_int(value: &CelValue) -> Evaluated {
    let overflow = || Err(EvalFailure::Error("integer overflow".to_owned()));
    match value {
        CelValue::Int(_) => Ok(value.clone()),
        CelValue::UInt(number) => i64::try_from(*number).map_or_else(|_| overflow(), |it| Ok(CelValue::Int(it))),
        CelValue::Float(number) => {
            // Both bounds are excluded, as in cel-go.
            let is_inside = number.is_finite() && *number > -9_223_372_036_854_775_808.0;
            match is_inside && *number < 9_223_372_036_854_775_807.0 {
                #[expect(clippy::cast_possible_truncation, reason = "the fraction is truncated")]
                true => Ok(CelValue::Int(*number as i64)),
                false => overflow(),
            }
        }
        CelValue::String(text) => match text.parse() {
            Ok(number) => Ok(CelValue::Int(number)),
            Err(_) => unable(value, "int"),
        },
        CelValue::Timestamp(at) => Ok(CelValue::Int(at.seconds())),
        CelValue::Duration(length) => Ok(CelValue::Int(length.nanoseconds())),
        _ => Err(overload()),
    }
}

fn to_uint(value: &CelValue) -> Evaluated {
    let overflow = || Err(EvalFailure::Error("unsigned integer overflow".to_owned()));
    match value {
        CelValue::UInt(_) => Ok(value.clone()),
        CelValue::Int(number) => u64::try_from(*number).map_or_else(|_| overflow(), |it| Ok(CelValue::UInt(it))),
        CelValue::Float(number) => {
            let is_inside = number.is_finite() && *number >= 0.0 && *number < 18_446_744_073_709_551_615.0;
            match is_inside {
                #[expect(
                    clippy::cast_possible_truncation,
                    clippy::cast_sign_loss,
                    reason = "it is not negative"
                )]
                true => Ok(CelValue::UInt(*number as u64)),
                false => overflow(),
            }
        }
        CelValue::String(text) => match text.parse() {
            Ok(number) if !text.starts_with('+') => Ok(CelValue::UInt(number)),
            _ => unable(value, "uint"),
        },
        _ => Err(overload()),
    }
}

fn to_string(value: &CelValue) -> Option<Evaluated> {
    let text = match value {
        CelValue::String(_) => return Some(Ok(value.clone())),
        CelValue::Bool(flag) => flag.to_string(),
        CelValue::Int(number) => number.to_string(),
        CelValue::UInt(number) => number.to_string(),
        CelValue::Float(number) => float(*number),
        CelValue::Bytes(bytes) => match String::from_utf8(bytes.to_vec()) {
            Ok(text) => text,
            Err(_) => {
                let error = "invalid UTF-8 in bytes, cannot convert to string";
                return Some(Err(EvalFailure::Error(error.to_owned())));
            }
        },
        CelValue::Timestamp(at) => at.to_string(),
        CelValue::Duration(length) => format!("{}s", seconds(length.nanoseconds())),
        _ => return None,
    };
    Some(Ok(CelValue::String(Arc::new(text))))
}

/// Formats nanoseconds as seconds, with as many digits as necessary.
fn seconds(nanoseconds: i64) -> String {
    let (whole, rest) = (
        nanoseconds.unsigned_abs() / 1_000_000_000,
        nanoseconds.unsigned_abs() % 1_000_000_000,
    );
    let sign = if nanoseconds < 0 { "-" } else { "" };
    let fraction = format!("{rest:09}");
    match fraction.trim_end_matches('0') {
        "" => format!("{sign}{whole}"),
        digits => format!("{sign}{whole}.{digits}"),
    }
}

/// Formats a number like Go's `strconv.FormatFloat(number, 'g', -1, 64)`.
pub(super) fn float(number: f64) -> String {
    if number.is_nan() {
        return "NaN".to_owned();
    }
    if number.is_infinite() {
        return if number > 0.0 { "+Inf" } else { "-Inf" }.to_owned();
    }
    let shown = format!("{number:e}");
    let Some((digits, exponent)) = shown.split_once('e') else {
        return shown;
    };
    let exponent: i32 = exponent.parse().unwrap_or_default();
    if !(-4..6).contains(&exponent) {
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{digits}e{sign}{:02}", exponent.abs());
    }
    format!("{number}")
}

/// Returns the error for a library value that cel-go cannot convert back to a CEL value.
pub(super) fn unsupported(value: &CelValue) -> String {
    let shown = match call("string", value).or_else(|| network::call("string", false, std::slice::from_ref(value))) {
        Some(Ok(CelValue::String(text))) => text.to_string(),
        _ => String::new(),
    };
    let kind = match type_name(value) {
        "kubernetes.Quantity" => "*resource.Quantity",
        "kubernetes.Semver" => "semver.Version",
        "kubernetes.URL" => "*url.URL",
        "net.IP" => "netip.Addr",
        "net.CIDR" => "netip.Prefix",
        other => other,
    };
    format!("unsupported conversion to ref.Val: ({kind}){shown}")
}
