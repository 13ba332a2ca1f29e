//! Sets of indexes in the format of a Job's status: `0-2,5`.

use std::collections::BTreeSet;

use crate::api::object::Object;
use crate::workers::workloads::pods::annotation;

/// Maximum index that is parsed; larger indexes are ignored. A Job has at most this number of indexes.
const MOST: i64 = 100_000;

/// Parses a set; invalid numbers are skipped.
pub(super) fn parse(text: &str) -> BTreeSet<i64> {
    let mut set = BTreeSet::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        if let (Ok(first), Ok(last)) = (first.parse::<i64>(), last.parse::<i64>()) {
            set.extend(first.max(0)..=last.min(MOST));
        }
    }
    set
}

/// Formats a set; runs of three or more indexes are written with a hyphen (Go's `orderedIntervals.String`).
pub(super) fn print(set: &BTreeSet<i64>) -> String {
    let mut runs: Vec<(i64, i64)> = Vec::new();
    for index in set {
        match runs.last_mut() {
            Some((_, last)) if *last + 1 == *index => *last = *index,
            Some(_) | None => runs.push((*index, *index)),
        }
    }
    let texts: Vec<String> = runs
        .into_iter()
        .map(|(first, last)| match last - first {
            0 => first.to_string(),
            1 => format!("{first},{last}"),
            _ => format!("{first}-{last}"),
        })
        .collect();
    texts.join(",")
}

/// Returns the number of earlier failed Pods with the same index, without ignored ones.
pub(super) fn failures(pod: &Object) -> i64 {
    number(pod, super::INDEX_FAILURES)
}

/// Returns the number of earlier failed Pods with the same index that a rule ignores.
pub(super) fn ignored_failures(pod: &Object) -> i64 {
    number(pod, super::INDEX_IGNORED)
}

/// Returns the number of all earlier failed Pods with the same index.
pub(super) fn all_failures(pod: &Object) -> i64 {
    failures(pod) + ignored_failures(pod)
}

fn number(pod: &Object, name: &str) -> i64 {
    let number = annotation(pod, name).and_then(|it| it.parse::<i32>().ok());
    number.map_or(0, |it| i64::from(it).max(0))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("", "")]
    #[case("0", "0")]
    #[case("0,1", "0,1")]
    #[case("5,0-2", "0-2,5")]
    #[case("1,3-4,7-9", "1,3,4,7-9")]
    fn three_or_more_consecutive_indexes_are_printed_as_a_range(#[case] text: &str, #[case] want: &str) {
        assert_eq!(print(&parse(text)), want);
    }
}
