//! Counters of failures in the status of an object, such as `status.failedAttempts`. Faults may increase them compared
//! with the reference.

use std::sync::Arc;

use super::difference::Difference;

/// A number in an object's status that is zero or absent in the reference, such as a counter of failures.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Count {
    key: Arc<str>,
    path: String,
    number: u64,
}

impl Count {
    /// Returns the key of the object and the path of the field: `tasks.example.com default/web status.failedAttempts`.
    pub(crate) fn text(&self) -> String {
        format!("{} {}", self.key.replace(" /", " "), self.path)
    }

    /// Returns `true` if `more` has the same fields as `fewer`, and all of its numbers are greater.
    pub(crate) fn have_grown(more: &[Self], fewer: &[Self]) -> bool {
        let is_grown = |(more, fewer): (&Self, &Self)| {
            (&more.key, &more.path) == (&fewer.key, &fewer.path) && more.number > fewer.number
        };
        more.len() == fewer.len() && more.iter().zip(fewer).all(is_grown)
    }

    fn of(difference: &Difference) -> Option<Self> {
        let (expected, found) = difference.values.as_ref()?;
        let is_zero = expected.is_null() || expected.as_u64() == Some(0);
        let may_count = difference.path.starts_with("status.") && !difference.is_derived && is_zero;
        Some(Self {
            key: Arc::clone(&difference.key),
            path: difference.path.clone(),
            number: found.as_u64().filter(|_| may_count)?,
        })
    }
}

/// Returns the numbers if all differences are counters of failures; otherwise an empty list.
pub(super) fn only_counts(differences: &[Difference]) -> Vec<Count> {
    let counts: Option<Vec<Count>> = differences.iter().map(Count::of).collect();
    counts.unwrap_or_default()
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

    #[test]
    fn count_grows_with_failures() {
        assert!(Count::have_grown(&counts(2), &counts(1)));
        assert!(!Count::have_grown(&counts(1), &counts(1)));
        assert!(!Count::have_grown(&[], &counts(1)));
    }
}
