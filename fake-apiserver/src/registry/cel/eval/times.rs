//! Accessors of times and durations, modelled on cel-go's `Timestamp` and `Duration`. Time zones are names from the
//! IANA database, or offsets.

use jiff::Zoned;
use jiff::tz::{Offset, TimeZone};

use super::values::{EvalFailure, Evaluated};
use crate::registry::cel::objects::Value as CelValue;

/// Number of seconds in 400 years, the period of the calendar.
const CALENDAR: i64 = 146_097 * 86_400;

/// Calls a method of a time or a duration; returns `None` for other methods.
pub(super) fn call(name: &str, args: &[CelValue]) -> Option<Evaluated> {
    match args {
        [CelValue::Duration(length)] => Some(Ok(CelValue::Int(match name {
            "getHours" => length.whole(3_600_000_000_000),
            "getMinutes" => length.whole(60_000_000_000),
            "getSeconds" => length.whole(1_000_000_000),
            "getMilliseconds" => length.whole(1_000_000),
            _ => return None,
        }))),
        [CelValue::Timestamp(at), zone @ ..] => {
            let zone = match zone {
                [] => Ok(TimeZone::UTC),
                [CelValue::String(text)] => self::zone(text),
                _ => return None,
            };
            let (at, years) = match at.timestamp_before(0) {
                Some(at) => (at, 0),
                // The calendar repeats every 400 years.
                None => (at.timestamp_before(CALENDAR)?, 400),
            };
            let years = if name == "getFullYear" { years } else { 0 };
            match zone {
                Ok(zone) => part(name, &at.to_zoned(zone)).map(|it| Ok(CelValue::Int(it + years))),
                Err(error) => Some(Err(EvalFailure::Error(error))),
            }
        }
        _ => None,
    }
}

fn part(name: &str, at: &Zoned) -> Option<i64> {
    Some(match name {
        "getFullYear" => i64::from(at.year()),
        "getMonth" => i64::from(at.month()) - 1,
        "getDate" => i64::from(at.day()),
        "getDayOfMonth" => i64::from(at.day()) - 1,
        "getDayOfWeek" => i64::from(at.weekday().to_sunday_zero_offset()),
        "getDayOfYear" => i64::from(at.day_of_year()) - 1,
        "getHours" => i64::from(at.hour()),
        "getMinutes" => i64::from(at.minute()),
        "getSeconds" => i64::from(at.second()),
        "getMilliseconds" => i64::from(at.millisecond()),
        _ => return None,
    })
}

/// Parses a time zone: a name, or an offset in hours and minutes such as `-02:30`.
fn zone(text: &str) -> Result<TimeZone, String> {
    let Some((hours, minutes)) = text.split_once(':') else {
        return match text {
            "" | "UTC" => Ok(TimeZone::UTC),
            name => TimeZone::get(name).map_err(|_| format!("unknown time zone {name}")),
        };
    };
    let number = |text: &str| {
        let read = text.parse::<i32>();
        read.map_err(|_| {
            format!(
                "strconv.Atoi: parsing {}: invalid syntax",
                crate::api::field::quote(text)
            )
        })
    };
    let (hours, minutes) = (number(hours)?, number(minutes)?);
    let sum = match text.starts_with('-') {
        true => hours.saturating_mul(60).saturating_sub(minutes),
        false => hours.saturating_mul(60).saturating_add(minutes),
    };
    let offset = Offset::from_seconds(sum.saturating_mul(60));
    offset
        .map(TimeZone::fixed)
        .map_err(|_| format!("unknown time zone {text}"))
}
