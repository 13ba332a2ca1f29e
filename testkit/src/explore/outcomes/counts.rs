//! Records of failures in the status of an object, such as `status.failedAttempts` and `status.lastErrorTime`. They
//! are zero or absent in the reference, and faults may increase or add them. A list that records each attempt, such as
//! a history of releases, may have additional entries for failed attempts, which increase the numbers of later entries.
//! The message of a condition may contain greater numbers, and an annotation may contain the time of the last failure.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::Value;

use super::difference::Difference;
use super::leaves::leaves;
use super::times::is_time;

/// A record of failures: a field that is zero or absent in the reference, such as a counter of failures; a number or a
/// message with greater numbers than in the reference; or a list or history of objects with additional entries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Count {
    key: Arc<str>,
    path: String,
    /// A number that grows with each failure: a counter, a time in seconds since 1970, the sum of the numbers in a
    /// message, or the number of additional entries. `None` for other strings, such as the last error.
    number: Option<u64>,
    /// Fields and values that all additional entries of a list have, but no entry in the reference, such as the result
    /// `failed`. Empty for other fields.
    results: Texts,
}

/// Fields of an entry, with their values as strings.
pub(super) type Texts = BTreeSet<(String, String)>;

/// The entries of a list, or the objects of a history, that do not exist in the reference.
pub(super) struct Additional {
    count: u64,
    results: Texts,
}

impl Additional {
    /// Compares the entries of a list in a status.
    fn of(difference: &Difference) -> Option<Self> {
        let (expected, found) = difference.values.as_ref()?;
        let texts = |list: &Value| -> Option<Vec<Texts>> {
            let entries = list.as_array().filter(|it| it.iter().all(Value::is_object))?;
            Some(entries.iter().map(texts_of).collect())
        };
        match difference.path.starts_with("status.") {
            true => Self::between(&texts(expected)?, texts(found)?),
            false => None,
        }
    }

    /// Compares two lists of entries without times and numbers. All entries of the reference must exist in the same
    /// order, and all additional entries must share a value that no entry of the reference contains. Without such a
    /// value, they may be duplicates.
    pub(super) fn between(expected: &[Texts], found: Vec<Texts>) -> Option<Self> {
        let known: Texts = expected.iter().flatten().cloned().collect();
        let (others, additional): (Vec<Texts>, Vec<Texts>) = found.into_iter().partition(|it| it.is_subset(&known));
        let mut results: Texts = additional.first()?.difference(&known).cloned().collect();
        results.retain(|it| additional.iter().all(|entry| entry.contains(it)));
        let is_record = !expected.is_empty() && others == expected && !results.is_empty();
        is_record.then_some(Self {
            count: additional.len() as u64,
            results,
        })
    }
}

/// Returns the strings and Boolean values of an entry, except for times and numbers.
pub(super) fn texts_of(entry: &Value) -> Texts {
    let leaves = leaves(entry.clone(), &|_| false).into_iter();
    let is_number = |text: &str| text.bytes().all(|it| it.is_ascii_digit());
    let texts = leaves.filter_map(|(path, leaf)| match leaf {
        Value::String(text) if !is_time(&text) && !is_number(&text) => Some((path, text)),
        Value::Bool(value) => Some((path, value.to_string())),
        _ => None,
    });
    texts.collect()
}

impl Count {
    /// Returns the record of additional objects in a history, such as `configmaps default/web-request-*`.
    pub(super) fn of_objects(history: &str, additional: Additional) -> Self {
        Self {
            key: history.into(),
            path: String::new(),
            number: Some(additional.count),
            results: additional.results,
        }
    }

    /// Returns the object and the field: `tasks.example.com default/web status.failedAttempts`.
    pub(crate) fn text(&self) -> String {
        let text = format!("{} {}", self.key.replace(" /", " "), self.path);
        text.trim_end().to_owned()
    }

    /// Returns `true` if `more` has the same fields as `fewer`, and all of its numbers are greater.
    pub(crate) fn have_grown(more: &[Self], fewer: &[Self]) -> bool {
        let is_grown = |(more, fewer): (&Self, &Self)| {
            more.is_of_the_same_field(fewer)
                && more.number.is_some() == fewer.number.is_some()
                && more.number.is_none_or(|it| Some(it) > fewer.number)
        };
        more.len() == fewer.len() && !fewer.is_empty() && more.iter().zip(fewer).all(is_grown)
    }

    /// Returns `true` if one of the records consists of additional entries of a history.
    pub(crate) fn have_results(counts: &[Self]) -> bool {
        counts.iter().any(|it| !it.results.is_empty())
    }

    /// Returns `true` if both lists contain the same fields with the same numbers. Messages may differ.
    pub(crate) fn are_equal(some: &[Self], others: &[Self]) -> bool {
        let is_equal = |(one, other): (&Self, &Self)| one.is_of_the_same_field(other) && one.number == other.number;
        some.len() == others.len() && some.iter().zip(others).all(is_equal)
    }

    fn is_of_the_same_field(&self, other: &Self) -> bool {
        let has_same_results = self.results == other.results || !self.results.is_disjoint(&other.results);
        has_same_results && (&self.key, &self.path) == (&other.key, &other.path)
    }

    /// `additional` is the number of additional entries in lists of the object and of additional objects, by which
    /// other numbers may be greater.
    fn of(difference: &Difference, additional: u64) -> Option<Self> {
        let (expected, found) = difference.values.as_ref()?;
        if difference.is_derived {
            return None;
        }
        if let Some(number) = raised(expected, found, additional) {
            return Some(Self::at(difference, Some(number)));
        }
        if difference.path.starts_with("metadata.annotations.") && expected.is_null() {
            return Some(Self::at(difference, Some(seconds(found.as_str()?)?)));
        }
        if !difference.path.starts_with("status.") {
            return None;
        }
        let is_zero = expected.is_null() || expected.as_u64() == Some(0);
        let number = match found {
            Value::Array(_) => {
                let Additional { count, results } = Additional::of(difference)?;
                let number = Some(count);
                return Some(Self {
                    results,
                    ..Self::at(difference, number)
                });
            }
            Value::String(text) if difference.path.ends_with(".message") && !expected.is_null() => {
                Some(greater_numbers(expected.as_str()?, text)?.1)
            }
            _ if !is_zero => return None,
            Value::Number(number) => Some(number.as_u64()?),
            Value::String(text) if expected.is_null() => seconds(text),
            Value::Object(_) if has_ended(found) => Some(seconds(found["lastTransitionTime"].as_str()?)?),
            _ => return None,
        };
        Some(Self::at(difference, number))
    }

    fn at(difference: &Difference, number: Option<u64>) -> Self {
        Self {
            key: Arc::clone(&difference.key),
            path: difference.path.clone(),
            number,
            results: Texts::new(),
        }
    }
}

/// Returns a number in the run, or the sum of the numbers in a text, if it exceeds the expected one by at most
/// `additional`.
fn raised(expected: &Value, found: &Value, additional: u64) -> Option<u64> {
    let (expected, found) = match (expected, found) {
        (Value::Number(expected), Value::Number(found)) => (expected.as_u64()?, found.as_u64()?),
        (Value::String(expected), Value::String(found)) => greater_numbers(expected, found)?,
        _ => return None,
    };
    (expected < found && found - expected <= additional).then_some(found)
}

/// Returns the sums of the numbers in two texts if they only differ in numbers, and those in `found` are greater.
fn greater_numbers(expected: &str, found: &str) -> Option<(u64, u64)> {
    let (expected, found) = (Numbered::of(expected)?, Numbered::of(found)?);
    let has_smaller = expected
        .numbers
        .iter()
        .zip(&found.numbers)
        .any(|(one, other)| one > other);
    let [expected_sum, found_sum] = [&expected, &found].map(|it| it.numbers.iter().sum::<u64>());
    let is_greater = expected.words == found.words && !has_smaller && found_sum > expected_sum;
    is_greater.then_some((expected_sum, found_sum))
}

/// A text that is split into words and numbers.
pub(super) struct Numbered {
    words: Vec<String>,
    pub(super) numbers: Vec<u64>,
}

impl Numbered {
    /// Splits a text. Returns `None` if a number is too large, because it may be an id.
    pub(super) fn of(text: &str) -> Option<Self> {
        let words = text.split(|it: char| it.is_ascii_digit()).filter(|it| !it.is_empty());
        let numbers = text.split(|it: char| !it.is_ascii_digit()).filter(|it| !it.is_empty());
        let numbers: Option<Vec<u64>> = numbers.map(|it| it.parse::<u32>().ok().map(u64::from)).collect();
        Some(Self {
            words: words.map(str::to_owned).collect(),
            numbers: numbers?,
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
    counts_beside(differences.iter(), 0)
}

/// Same as `only_counts`, for a run with this number of additional objects.
pub(super) fn counts_beside<'a>(differences: impl Iterator<Item = &'a Difference> + Clone, objects: u64) -> Vec<Count> {
    let mut additional: BTreeMap<&str, u64> = BTreeMap::new();
    for difference in differences.clone() {
        let entries = Additional::of(difference).map_or(0, |it| it.count);
        *additional.entry(&difference.key).or_default() += entries;
    }
    let entries_of = |key: &str| additional.get(key).copied().unwrap_or_default();
    let counts: Option<Vec<Count>> = differences
        .map(|it| Count::of(it, objects + entries_of(&it.key)))
        .collect();
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

    /// Creates the entries of a history of releases, each with an image and a result.
    fn history(entries: &[(&str, &str)]) -> Value {
        let numbered = (1..).zip(entries);
        numbered
            .map(|(number, (image, result))| json!({"number": number, "image": image, "result": result}))
            .collect()
    }

    #[rstest::rstest]
    #[case::failed_attempt(&[("a", "failed"), ("a", "done"), ("b", "done")], 1)]
    #[case::two_failed_attempts(&[("a", "failed"), ("a", "done"), ("b", "failed"), ("b", "done")], 1)]
    #[case::different_results(&[("a", "failed"), ("a", "done"), ("b", "x8k2"), ("b", "done")], 0)]
    #[case::duplicate(&[("a", "done"), ("a", "done"), ("b", "done")], 0)]
    #[case::failure_without_success(&[("a", "failed"), ("b", "done")], 0)]
    #[case::other_order(&[("b", "done"), ("a", "failed"), ("a", "done")], 0)]
    fn list_may_have_additional_entries_with_the_same_result(#[case] found: &[(&str, &str)], #[case] expected: usize) {
        let known = history(&[("a", "done"), ("b", "done")]);
        let list = difference("status.history", (known, history(found)));
        assert_eq!(only_counts(&[list]).len(), expected);
    }

    #[rstest::rstest]
    #[case::one_entry(3, 2)]
    #[case::more_than_the_entries(4, 0)]
    #[case::smaller(1, 0)]
    fn other_numbers_may_be_greater_by_the_number_of_additional_entries(#[case] found: u64, #[case] expected: usize) {
        let known = history(&[("a", "done")]);
        let list = difference("status.history", (known, history(&[("a", "failed"), ("a", "done")])));
        let number = difference("status.number", (json!(2), json!(found)));
        assert_eq!(only_counts(&[list, number]).len(), expected);
    }

    #[rstest::rstest]
    #[case::greater("synced after 1 attempts", "synced after 3 attempts", Some(3))]
    #[case::smaller("2 of 2 are ready", "1 of 2 are ready", None)]
    #[case::other_words("synced after 1 attempts", "failed after 3 attempts", None)]
    #[case::one_smaller("1 of 2 are ready", "3 of 1 are ready", None)]
    fn message_may_contain_greater_numbers(#[case] expected: &str, #[case] found: &str, #[case] number: Option<u64>) {
        assert_eq!(greater_numbers(expected, found).map(|it| it.1), number);
        let message = difference("status.conditions.0.message", (json!(expected), json!(found)));
        assert_eq!(only_counts(&[message]).len(), usize::from(number.is_some()));
    }

    #[rstest::rstest]
    #[case::time(json!("2026-01-05T09:00:10Z"), 1)]
    #[case::text(json!("failed"), 0)]
    #[case::number(json!("3"), 0)]
    fn only_times_of_failures_may_be_added_to_annotations(#[case] found: Value, #[case] expected: usize) {
        let path = "metadata.annotations.example.com/create-failed";
        assert_eq!(only_counts(&[difference(path, (Value::Null, found))]).len(), expected);
    }

    #[test]
    fn failure_count_has_grown_only_if_it_is_larger() {
        assert!(Count::have_grown(&counts(2), &counts(1)));
        assert!(!Count::have_grown(&counts(1), &counts(1)));
        assert!(!Count::have_grown(&[], &counts(1)));
    }
}
