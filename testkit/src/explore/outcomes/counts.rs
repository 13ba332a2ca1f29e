//! Records of failures in the status of an object, such as `status.failedAttempts` and `status.lastErrorTime`. They
//! are zero or absent in the reference, and faults may increase or add them.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::Value;

use super::difference::Difference;
use super::times::is_time;

/// A field of an object's status that is zero or absent in the reference, such as a counter of failures.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Count {
    key: Arc<str>,
    path: String,
    /// A number that grows with each failure: a counter, or a time in seconds since 1970. `None` for a string, such as
    /// the message of the last error.
    number: Option<u64>,
}

impl Count {
    /// Returns the object and the field: `tasks.example.com default/web status.failedAttempts`.
    pub(crate) fn text(&self) -> String {
        format!("{} {}", self.key.replace(" /", " "), self.path)
    }

    /// Returns `true` if `more` has the same fields as `fewer`, and all of its numbers are greater.
    pub(crate) fn have_grown(more: &[Self], fewer: &[Self]) -> bool {
        let is_grown = |(more, fewer): (&Self, &Self)| {
            let is_same = (&more.key, &more.path) == (&fewer.key, &fewer.path);
            is_same
                && more.number.is_some() == fewer.number.is_some()
                && more.number.is_none_or(|it| Some(it) > fewer.number)
        };
        more.len() == fewer.len() && !fewer.is_empty() && more.iter().zip(fewer).all(is_grown)
    }

    fn of(difference: &Difference) -> Option<Self> {
        let (expected, found) = difference.values.as_ref()?;
        let is_zero = expected.is_null() || expected.as_u64() == Some(0);
        if !difference.path.starts_with("status.") || difference.is_derived || !is_zero {
            return None;
        }
        let number = match found {
            Value::Number(number) => Some(number.as_u64()?),
            Value::String(text) if expected.is_null() => seconds(text),
            Value::Object(_) if has_ended(found) => Some(seconds(found["lastTransitionTime"].as_str()?)?),
            _ => return None,
        };
        Some(Self {
            key: Arc::clone(&difference.key),
            path: difference.path.clone(),
            number,
        })
    }
}

/// Returns a time as seconds since 1970; `None` for other strings.
fn seconds(text: &str) -> Option<u64> {
    let time = text.parse::<Timestamp>().ok().filter(|_| is_time(text));
    time.and_then(|it| u64::try_from(it.as_second()).ok())
}

/// Returns `true` for a condition with the status `False`. A condition of this type does not exist in the reference, so
/// it is only added with a failure, such as `Degraded`.
fn has_ended(condition: &Value) -> bool {
    condition["type"].is_string() && condition["status"] == "False"
}

/// Returns the records of failures if all differences are such records; otherwise an empty list. A string is only a
/// record together with a number of the same object; without a number, it may be an outdated status.
pub(super) fn only_counts(differences: &[Difference]) -> Vec<Count> {
    let counts: Option<Vec<Count>> = differences.iter().map(Count::of).collect();
    let counts = counts.unwrap_or_default();
    let has_number = |it: &Count| counts.iter().any(|other| other.key == it.key && other.number.is_some());
    match counts.iter().all(has_number) {
        true => counts,
        false => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn difference(path: &str, values: (Value, Value)) -> Difference {
        Difference {
            key: "tasks.example.com default/web".into(),
            path: path.to_owned(),
            text: String::new(),
            values: Some(values),
            is_copied: false,
            is_derived: false,
        }
    }

    fn counts(number: u64) -> Vec<Count> {
        only_counts(&[difference("status.failures", (json!(0), json!(number)))])
    }

    #[test]
    fn only_status_numbers_that_begin_at_zero_can_be_counters() {
        assert_eq!(counts(2).len(), 1);
        assert_eq!(
            only_counts(&[difference("status.failures", (Value::Null, json!(2)))]).len(),
            1
        );
        for (path, values) in [
            ("spec.failures", (json!(0), json!(1))),
            ("status.failures", (json!(1), json!(2))),
            ("status.phase", (json!(0), json!("Failed"))),
        ] {
            let all = [
                difference("status.failures", (json!(0), json!(1))),
                difference(path, values),
            ];
            assert_eq!(only_counts(&all), []);
        }
    }

    #[rstest::rstest]
    #[case::time("lastErrorTime", json!("2026-01-05T09:00:10Z"), 1)]
    #[case::message("lastError", json!("connection reset"), 0)]
    #[case::resolved_condition("conditions.1", json!({"type": "Degraded", "status": "False",
        "lastTransitionTime": "2026-01-05T09:00:10Z"}), 1)]
    #[case::lasting_condition("conditions.1", json!({"type": "Degraded", "status": "True",
        "lastTransitionTime": "2026-01-05T09:00:10Z"}), 0)]
    #[case::list("errors", json!(["connection reset"]), 0)]
    fn only_new_times_and_resolved_conditions_can_record_failures(
        #[case] field: &str,
        #[case] found: Value,
        #[case] expected: usize,
    ) {
        let path = format!("status.{field}");
        assert_eq!(only_counts(&[difference(&path, (Value::Null, found))]).len(), expected);
    }

    #[test]
    fn message_can_record_a_failure_together_with_a_count_of_the_same_object() {
        let number = difference("status.attempts", (json!(0), json!(1)));
        let message = || difference("status.lastError", (Value::Null, json!("connection reset")));
        assert_eq!(only_counts(&[number, message()]).len(), 2);
        let mut other = difference("status.attempts", (json!(0), json!(1)));
        other.key = "tasks.example.com default/shop".into();
        assert_eq!(only_counts(&[other, message()]), []);
    }

    #[test]
    fn failure_count_has_grown_only_if_it_is_larger() {
        assert!(Count::have_grown(&counts(2), &counts(1)));
        assert!(!Count::have_grown(&counts(1), &counts(1)));
        assert!(!Count::have_grown(&[], &counts(1)));
    }
}
