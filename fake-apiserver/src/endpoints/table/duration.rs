//! Human-readable durations, rounded as in Kubernetes: `5s`, `3m20s`, `4d12h`.

use jiff::Timestamp;

/// Parses a time in RFC 3339 like Go: with a `T`, seconds and an offset.
pub(super) fn parse_time(text: &str) -> Option<Timestamp> {
    let bytes = text.as_bytes();
    let has_form = bytes.len() >= 20 && bytes[10] == b'T' && bytes[13] == b':' && bytes[16] == b':';
    if !has_form || text.contains('[') {
        return None;
    }
    text.parse().ok()
}

/// Formats the time from `then` to `now`.
pub(super) fn between(then: Timestamp, now: Timestamp) -> String {
    human(now.duration_since(then).as_secs(), now < then)
}

/// Formats a duration in whole seconds.
pub(super) fn of_seconds(seconds: i64) -> String {
    human(seconds, seconds < 0)
}

fn human(seconds: i64, is_negative: bool) -> String {
    // Tolerates a clock that is less than two seconds ahead.
    if seconds < -1 {
        return "<invalid>".to_owned();
    }
    if is_negative {
        return "0s".to_owned();
    }
    let two = |whole: i64, unit: char, rest: i64, small: char| match rest {
        0 => format!("{whole}{unit}"),
        rest => format!("{whole}{unit}{rest}{small}"),
    };
    let (minutes, hours) = (seconds / 60, seconds / 3600);
    let days = hours / 24;
    if seconds < 120 {
        format!("{seconds}s")
    } else if minutes < 10 {
        two(minutes, 'm', seconds % 60, 's')
    } else if minutes < 180 {
        format!("{minutes}m")
    } else if hours < 8 {
        two(hours, 'h', minutes % 60, 'm')
    } else if hours < 48 {
        format!("{hours}h")
    } else if hours < 192 {
        two(days, 'd', hours % 24, 'h')
    } else if days < 365 * 2 {
        format!("{days}d")
    } else if days < 365 * 8 {
        two(days / 365, 'y', days % 365, 'd')
    } else {
        format!("{}y", days / 365)
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("2026-01-01T00:00:00Z", true)]
    #[case("2026-01-01T00:00:00.123456+01:00", true)]
    #[case("2026-01-01 00:00:00Z", false)]
    #[case("2026-01-01T00:00:00Z[UTC]", false)]
    #[case("2026-01-01", false)]
    #[case("soon", false)]
    fn o12_only_rfc_3339_times_are_parsed(#[case] text: &str, #[case] is_time: bool) {
        assert_eq!(parse_time(text).is_some(), is_time);
    }

    #[rstest]
    #[case(-5, "<invalid>")]
    #[case(-1, "0s")]
    #[case(0, "0s")]
    #[case(119, "119s")]
    #[case(120, "2m")]
    #[case(200, "3m20s")]
    #[case(600, "10m")]
    #[case(10_799, "179m")]
    #[case(10_800, "3h")]
    #[case(15_000, "4h10m")]
    #[case(28_800, "8h")]
    #[case(172_800, "2d")]
    #[case(390_000, "4d12h")]
    #[case(86_400 * 8, "8d")]
    #[case(86_400 * 800, "2y70d")]
    #[case(86_400 * 365 * 9, "9y")]
    fn m4_ages_are_formatted_as_in_kubectl(#[case] seconds: i64, #[case] text: &str) {
        assert_eq!(of_seconds(seconds), text);
    }
}
