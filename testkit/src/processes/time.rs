//! `Time`: a duration in a scenario, such as `30s`, `500ms` or `2m`.

use std::fmt;
use std::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;
use serde::de::{Deserializer, Error, Visitor};

/// A duration: a number with `ms`, `s`, `m` or `h`; a number without a unit is in seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, JsonSchema)]
#[schemars(with = "String")]
pub(crate) struct Time(pub(crate) Duration);

impl Time {
    /// Parses a duration such as `1.5s`; returns `None` if the format is invalid.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        let unit = text.find(|it: char| it.is_ascii_alphabetic()).unwrap_or(text.len());
        let factor = match &text[unit..] {
            "ms" => 0.001,
            "" | "s" => 1.0,
            "m" => 60.0,
            "h" => 3600.0,
            _ => return None,
        };
        let number: f64 = text[..unit].trim().parse().ok()?;
        Duration::try_from_secs_f64(number * factor).ok().map(Self)
    }
}

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TimeVisitor)
    }
}

struct TimeVisitor;

impl Visitor<'_> for TimeVisitor {
    type Value = Time;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a duration such as 30s, 500ms or 2m")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Time, E> {
        Time::parse(text).ok_or_else(|| E::invalid_value(serde::de::Unexpected::Str(text), &self))
    }

    fn visit_u64<E: Error>(self, seconds: u64) -> Result<Time, E> {
        Ok(Time(Duration::from_secs(seconds)))
    }

    fn visit_i64<E: Error>(self, seconds: i64) -> Result<Time, E> {
        let is_negative = || E::invalid_value(serde::de::Unexpected::Signed(seconds), &self);
        u64::try_from(seconds)
            .map(|it| Time(Duration::from_secs(it)))
            .map_err(|_| is_negative())
    }

    fn visit_f64<E: Error>(self, seconds: f64) -> Result<Time, E> {
        let time = Duration::try_from_secs_f64(seconds).map(Time);
        time.map_err(|_| E::invalid_value(serde::de::Unexpected::Float(seconds), &self))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[rstest::rstest]
    #[case::seconds("30s", Some(30_000))]
    #[case::without_a_unit("2", Some(2_000))]
    #[case::milliseconds("500ms", Some(500))]
    #[case::fraction_of_a_minute("1.5m", Some(90_000))]
    #[case::unknown_unit("3d", None)]
    #[case::negative_number("-1s", None)]
    #[case::missing_number("s", None)]
    fn durations_are_parsed_with_units(#[case] text: &str, #[case] millis: Option<u64>) {
        assert_eq!(Time::parse(text).map(|it| it.0), millis.map(Duration::from_millis));
    }
}
