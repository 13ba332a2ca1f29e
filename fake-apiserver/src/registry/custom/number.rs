//! JSON numbers: parses and prints them like Go, and validates them against a schema.

use serde_json::Number;

use super::json_type::JsonType;
use super::schema::Checks;
use crate::api::json::Value;

/// Validation error of a number.
#[derive(Debug, PartialEq)]
pub(super) enum Problem {
    /// The number, or a limit in the schema, is out of the range of the type. The path must be appended to the message.
    Range(String),
    /// The number violates a limit; contains the message after `<path> in body `.
    Bound(String),
    /// `multipleOf` is not positive; contains its value as printed by Go.
    Factor(String),
}

/// Returns the number if it is a signed 64-bit integer, which Go decodes as an integer.
pub(super) fn integer(number: &Number) -> Option<i64> {
    number.as_i64()
}

/// Replaces whole floats such as `1.0` and `1e3` with integers. kube-apiserver returns them in this form after storing.
pub(super) fn normalize(value: &mut Value) {
    match value {
        Value::Number(number) => {
            if number.is_f64()
                && let Some(real) = number.as_f64().filter(|it| it.fract() == 0.0 && it.abs() < 9.2e18)
            {
                *number = Number::from(real as i64);
            }
        }
        Value::Array(list) => list.iter_mut().for_each(normalize),
        // Maps that are still encoded as JSON only contain objects, and therefore no numbers.
        Value::Object(map) if map.encoded().is_none() => map.values_mut().for_each(normalize),
        Value::Null | Value::Bool(_) | Value::String(_) | Value::Object(_) => {}
    }
}

/// Formats a float like Go's `%v`.
pub(super) fn go_float(value: f64) -> String {
    let scientific = format!("{value:e}");
    let Some((digits, exponent)) = scientific.split_once('e') else {
        return scientific;
    };
    let power: i32 = exponent.parse().unwrap_or(0);
    if !(-4..6).contains(&power) {
        let sign = if power < 0 { '-' } else { '+' };
        format!("{digits}e{sign}{:02}", power.abs())
    } else {
        format!("{value}")
    }
}

/// Returns the errors of a number, in kube-apiserver's order.
pub(super) fn problems(checks: &Checks, kind: Option<JsonType>, number: &Number) -> Vec<Problem> {
    let mut found = Vec::new();
    let format = checks.format.as_ref().map_or("", |format| format.name());
    let range = Range { kind, format };
    range.check("Checked", integer(number), number.as_f64(), &mut found);
    let real = number.as_f64().unwrap_or(f64::MAX);
    if let Some(factor) = checks.multiple_of {
        let native = range.check_bound("MultipleOf", factor, &mut found);
        check_multiple(factor, integer(number).filter(|_| native), real, &mut found);
    }
    if let Some(least) = checks.minimum {
        let native = range.check_bound("Minimum boundary", least, &mut found);
        let exclusive = checks.exclusive_minimum;
        let broken = match integer(number).filter(|_| native) {
            Some(it) => (!is_above(&it, &(least as i64), exclusive)).then(|| (least as i64).to_string()),
            None => (!is_above(&real, &least, exclusive)).then(|| go_float(least)),
        };
        if let Some(bound) = broken {
            let than = if exclusive { "than" } else { "than or equal to" };
            found.push(Problem::Bound(format!("should be greater {than} {bound}")));
        }
    }
    if let Some(most) = checks.maximum {
        let native = range.check_bound("Maximum boundary", most, &mut found);
        let exclusive = checks.exclusive_maximum;
        let broken = match integer(number).filter(|_| native) {
            Some(it) => (!is_above(&(most as i64), &it, exclusive)).then(|| (most as i64).to_string()),
            None => (!is_above(&most, &real, exclusive)).then(|| go_float(most)),
        };
        if let Some(bound) = broken {
            let than = if exclusive { "than" } else { "than or equal to" };
            found.push(Problem::Bound(format!("should be less {than} {bound}")));
        }
    }
    found
}

fn is_above<T: PartialOrd>(larger: &T, smaller: &T, exclusive: bool) -> bool {
    larger > smaller || (!exclusive && larger == smaller)
}

fn check_multiple(factor: f64, whole: Option<i64>, real: f64, found: &mut Vec<Problem>) {
    let whole_factor = factor as i64;
    let shown = || match whole {
        Some(_) => whole_factor.to_string(),
        None => go_float(factor),
    };
    if !whole.map_or(factor > 0.0, |_| whole_factor > 0) {
        return found.push(Problem::Factor(shown()));
    }
    let is_multiple = match whole {
        Some(it) => it % whole_factor == 0,
        None if factor < 1.0 => is_whole(1.0 / factor * real),
        None => is_whole(real / factor),
    };
    if !is_multiple {
        found.push(Problem::Bound(format!("should be a multiple of {}", shown())));
    }
}

/// Returns `true` if a float is treated as an integer, with the tolerance of Go's OpenAPI library.
pub(super) fn is_whole(value: f64) -> bool {
    const LARGEST: f64 = 9_007_199_254_740_991.0;
    if !value.is_finite() || value.abs() > LARGEST {
        return false;
    }
    let (low, high) = (value.trunc(), value.trunc() + 1.0);
    let distance = (value - low).abs().min((value - high).abs());
    distance == 0.0 || (value != 0.0 && distance / value.abs().max(low.abs()) < 1e-9)
}

/// The range of numbers for a `type` with a `format`.
struct Range<'a> {
    kind: Option<JsonType>,
    format: &'a str,
}

impl Range<'_> {
    fn check_bound(&self, what: &str, bound: f64, found: &mut Vec<Problem>) -> bool {
        let whole = (bound.fract() == 0.0 && bound.abs() < 9.3e18).then_some(bound as i64);
        self.check(what, whole, Some(bound), found)
    }

    fn check(&self, what: &str, whole: Option<i64>, real: Option<f64>, found: &mut Vec<Problem>) -> bool {
        let is_integer = self.kind == Some(JsonType::Integer);
        let fits = match (is_integer, self.format) {
            (true, "int32") => whole.is_some_and(|it| i32::try_from(it).is_ok()),
            (true, _) => whole.is_some() || real.is_some_and(|it| it.fract() == 0.0 && it.abs() < 9.2e18),
            (false, "float") => real.is_some_and(|it| it.abs() <= f64::from(f32::MAX)),
            (false, _) => true,
        };
        if !fits {
            let kind = self.kind.map_or("", JsonType::name);
            let format = match self.format {
                "" => "(default format)".to_owned(),
                format => format!("with format {format}"),
            };
            found.push(Problem::Range(format!(
                "{what} value must be of type {kind} {format} in "
            )));
        }
        fits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[rstest::rstest]
    #[case(0.5, "0.5")]
    #[case(3.0, "3")]
    #[case(1e6, "1e+06")]
    #[case(123456.5, "123456.5")]
    #[case(1.5e-7, "1.5e-07")]
    fn floats_are_printed_as_in_go(#[case] value: f64, #[case] text: &str) {
        assert_eq!(go_float(value), text);
    }

    #[test]
    fn floats_without_a_fraction_become_integers() {
        let mut value = crate::api::json::json!({"a": 1.0, "b": [1e3, 1.5]});
        normalize(&mut value);
        assert_eq!(value.to_string(), r#"{"a":1,"b":[1000,1.5]}"#);
    }
}
