//! Schedules of CronJobs: cron expressions in a time zone.

use jiff::civil::{Date, Time};
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp, ToSpan as _};

use crate::registry::kinds::cron::{CronSchedule, CronTimes, parse_schedule};

/// Maximum number of days to search for the next time; a schedule such as `0 0 30 2 *` never has a next time.
const DAYS_MOST: i64 = 5 * 366;

/// A parsed schedule.
#[derive(Clone, Debug)]
pub(crate) enum Schedule {
    /// The minutes at which all fields match.
    Fields {
        fields: [u64; 5],
        any_day: [bool; 2],
        zone: TimeZone,
    },
    /// A fixed interval.
    Every(SignedDuration),
}

impl Schedule {
    /// Parses a schedule that validation has accepted; `zone` is the CronJob's time zone, UTC by default.
    pub(crate) fn parse(text: &str, zone: Option<&str>) -> Option<Self> {
        let CronSchedule { zone: own, times } = parse_schedule(text).ok()?;
        let zone = match own.or(zone) {
            None | Some("UTC" | "Local" | "") => TimeZone::UTC,
            Some(name) => TimeZone::get(name).ok()?,
        };
        Some(match times {
            CronTimes::Fields { fields, any_day } => Self::Fields { fields, any_day, zone },
            CronTimes::Every(interval) => Self::Every(interval),
        })
    }

    /// Returns the first time after `after`.
    pub(crate) fn next(&self, after: Timestamp) -> Option<Timestamp> {
        match self {
            Self::Every(duration) => {
                let duration = (*duration).max(SignedDuration::from_secs(1));
                let whole = Timestamp::from_second(after.as_second()).ok()?;
                whole.checked_add(SignedDuration::from_secs(duration.as_secs())).ok()
            }
            Self::Fields { fields, any_day, zone } => next_of(fields, *any_day, zone, after),
        }
    }
}

/// Advances the time until all fields match the clock of the time zone, like `robfig/cron`. Times that the clock skips
/// have no match, and times that it repeats match twice.
fn next_of(fields: &[u64; 5], any_day: [bool; 2], zone: &TimeZone, after: Timestamp) -> Option<Timestamp> {
    let minutes = after.as_second().div_euclid(60) + 1;
    let mut at = Timestamp::from_second(minutes.checked_mul(60)?).ok()?;
    let end = at.checked_add(SignedDuration::from_hours(24 * DAYS_MOST)).ok()?;
    while at < end {
        let local = zone.to_datetime(at);
        if !day_fits(fields, any_day, local.date()) {
            let next = local.date().checked_add(1.day()).ok()?.to_datetime(Time::midnight());
            // Never move back, in case the clock repeats midnight.
            at = zone.to_timestamp(next).ok()?.max(at.checked_add(1.minute()).ok()?);
        } else if !has(fields[1], local.hour()) {
            at = at.checked_add((60 - i64::from(local.minute())).minutes()).ok()?;
        } else if !has(fields[0], local.minute()) {
            at = at.checked_add(1.minute()).ok()?;
        } else {
            return Some(at);
        }
    }
    None
}

fn has(bits: u64, number: i8) -> bool {
    u32::try_from(number).is_ok_and(|number| bits & (1 << number) != 0)
}

fn day_fits(fields: &[u64; 5], any_day: [bool; 2], date: Date) -> bool {
    let by_day = has(fields[2], date.day());
    let by_weekday = has(fields[4], date.weekday().to_sunday_zero_offset());
    // If both day fields are restricted, one of them must match.
    let fits = if any_day.contains(&true) {
        by_day && by_weekday
    } else {
        by_day || by_weekday
    };
    fits && has(fields[3], date.month())
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::every_minute("* * * * *", "2026-01-01T00:00:30Z", "2026-01-01T00:01:00Z")]
    #[case::matching_time_is_excluded("0 * * * *", "2026-01-01T00:00:00Z", "2026-01-01T01:00:00Z")]
    #[case::steps("*/15 3 * * *", "2026-01-01T03:20:00Z", "2026-01-01T03:30:00Z")]
    #[case::names("0 0 * feb sun", "2026-01-01T00:00:00Z", "2026-02-01T00:00:00Z")]
    #[case::day_of_month_or_day_of_week("0 0 13 * fri", "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z")]
    #[case::leap_day("0 0 29 2 *", "2026-01-01T00:00:00Z", "2028-02-29T00:00:00Z")]
    #[case::hourly("@hourly", "2026-01-01T00:30:00Z", "2026-01-01T01:00:00Z")]
    #[case::fixed_interval("@every 1h30m", "2026-01-01T00:00:00Z", "2026-01-01T01:30:00Z")]
    #[case::time_zone("TZ=Europe/Berlin 0 9 * * *", "2026-07-01T00:00:00Z", "2026-07-01T07:00:00Z")]
    #[case::daylight_saving_gap_is_skipped(
        "TZ=Europe/Berlin 30 2 * * *",
        "2026-03-28T12:00:00Z",
        "2026-03-30T00:30:00Z"
    )]
    #[case::repeated_hour("TZ=Europe/Berlin 30 2 * * *", "2026-10-25T00:30:00Z", "2026-10-25T01:30:00Z")]
    #[case::first_pass_of_a_repeated_hour(
        "TZ=Europe/Berlin */20 * * * *",
        "2026-10-25T00:20:00Z",
        "2026-10-25T00:40:00Z"
    )]
    #[case::second_pass_of_a_repeated_hour(
        "TZ=Europe/Berlin */20 * * * *",
        "2026-10-25T00:40:00Z",
        "2026-10-25T01:00:00Z"
    )]
    fn next_times_follow_the_schedule(#[case] schedule: &str, #[case] after: Timestamp, #[case] want: Timestamp) {
        let schedule = Schedule::parse(schedule, None).expect("the schedule is valid");
        assert_eq!(schedule.next(after), Some(want));
    }

    #[test]
    fn schedule_without_a_match_has_no_next_time() {
        let never = Schedule::parse("0 0 30 2 *", None).expect("the schedule is valid");
        assert_eq!(never.next(Timestamp::UNIX_EPOCH), None);
    }
}
