//! Comparison of parts of an end state that depend on which changes of the test a controller has observed, such as a
//! history of revisions.

use std::collections::BTreeSet;

use serde_json::Value;

use super::difference::Difference;
use super::end_state::EndState;
use super::key::resource_of;
use super::leaves::leaves;
use super::pair::{Pair, UNEXPECTED};
use super::unordered::sort;
use crate::mask::Mask;

/// The objects of one history, in one run.
#[derive(PartialEq, Eq)]
struct Objects {
    keys: BTreeSet<String>,
    /// Paths of fields, each with its value as a string.
    values: BTreeSet<(String, String)>,
}

impl EndState {
    /// Returns `true` if each difference of `found` is also a difference of `other`, or is a number between the numbers
    /// in this state and in `other`, because `other` has observed more or fewer changes. Values that `other` only
    /// assigns to different objects do not count as differences, because two objects of `found` could have the same
    /// value.
    pub(crate) fn differs_like(&self, found: &Self, other: &Self, mask: &Mask) -> bool {
        let (others, _) = self.differences_but_for_order(other, mask);
        let (differences, _) = self.differences_but_for_order(found, mask);
        differences.iter().all(|it| is_shared(it, &others))
    }

    /// Returns `true` if `found` differs from this state only in histories, that is, in objects that do not follow from
    /// the last input. `late` are the states of runs in which controllers have not observed the first inputs, or have
    /// only observed the last one. Values that are equal in this state and in all of `late` follow from the last input,
    /// so `found` must have them. If the history has the same objects in these states, `found` must also have these
    /// objects. Objects with numbered names form one history.
    pub(crate) fn differs_in_histories(&self, found: &Self, late: &[&Self], mask: &Mask) -> bool {
        let differences = self.differences(found, mask);
        histories(&differences).iter().all(|name| {
            let [expected, found] = self.objects_of(found, mask, name);
            let all = late.iter().map(|late| self.objects_of(late, mask, name));
            let all: Vec<[Objects; 2]> = all.collect();
            let is_required = |it: &&(String, String)| all.iter().flatten().all(|objects| objects.values.contains(it));
            let mut required = expected.values.iter().filter(is_required);
            let has_all = found.keys == expected.keys || all.iter().any(|[expected, late]| expected.keys != late.keys);
            let is_history = all.iter().any(|[expected, late]| expected != late);
            is_history && required.all(|it| found.values.contains(it)) && has_all
        })
    }

    /// Same as `differs_in_histories` with one late state, for a `found` from a run in which controllers have observed
    /// more changes. This state may then equal `last`. Objects that exist in only one of this state and `found` must
    /// not be in `given`, and a required value may only differ if it is a number that has increased.
    pub(crate) fn has_longer_histories(&self, found: &Self, last: &Self, mask: &Mask, given: &[String]) -> bool {
        let differences = self.differences(found, mask);
        let is_whole = |it: &&Difference| it.path.is_empty();
        let is_given = |it: &Difference| given.contains(&it.key.replace(" /", " "));
        if differences.iter().filter(is_whole).any(is_given) {
            return false;
        }
        histories(&differences).iter().all(|name| {
            let [expected, of_last] = self.objects_of(last, mask, name);
            let [_, found] = self.objects_of(found, mask, name);
            let here = || differences.iter().filter(|it| history(&it.key) == *name);
            let counts = |path: &str| here().any(|it| it.path == path && is_greater(it));
            let mut required = expected.values.intersection(&of_last.values);
            let lacks_objects = here().filter(is_whole).any(|it| it.text != UNEXPECTED);
            required.all(|it| found.values.contains(it) || counts(&it.0)) && (expected != of_last || !lacks_objects)
        })
    }

    /// Returns the objects of the history `name` in this state and in `other`.
    fn objects_of(&self, other: &Self, mask: &Mask, name: &str) -> [Objects; 2] {
        let [left, right] = [self, other].map(|it| it.under(&mask.templates));
        let states = [left.as_ref().unwrap_or(self), right.as_ref().unwrap_or(other)];
        let pair = Pair::new(states, mask);
        [0, 1].map(|side| {
            let (mut keys, mut values) = (BTreeSet::new(), BTreeSet::new());
            let mut add = |key: &str, value: Value| {
                let resource = resource_of(key);
                let leaves = leaves(value, &|path| mask.hides(resource, path));
                values.extend(leaves.into_iter().map(|(path, leaf)| (path, leaf.to_string())));
                keys.insert(key.to_owned());
            };
            for (key, all) in states[side].all().filter(|(key, _)| history(key) == name) {
                for kept in all {
                    let mut value = pair.shown(side, key, kept);
                    sort(&kept.object, &mut value, states[side].sorts_names);
                    add(key, value);
                }
            }
            let outside = pair.objects_outside(side);
            for (key, all) in outside.into_iter().filter(|(key, _)| history(key) == name) {
                all.into_iter().for_each(|it| add(&key, it));
            }
            Objects { keys, values }
        })
    }
}

/// Returns the histories to which the differing objects belong.
fn histories(differences: &[Difference]) -> BTreeSet<String> {
    differences.iter().map(|it| history(&it.key)).collect()
}

/// Returns `true` if a difference is also one of `others`, or is a number between the numbers in the reference and in
/// `others`.
fn is_shared(difference: &Difference, others: &[Difference]) -> bool {
    let mut same = others
        .iter()
        .filter(|other| other.key == difference.key && other.path == difference.path);
    same.any(|other| other.text == difference.text || is_between(difference, other))
}

/// Returns `true` if a number is between the number in the reference and the number in `other`.
fn is_between(found: &Difference, other: &Difference) -> bool {
    let numbers = [found, other].map(|it| {
        let (expected, found) = it.values.as_ref()?;
        Some((whole(expected)?, whole(found)?))
    });
    let [Some((expected, found)), Some((_, other))] = numbers else {
        return false;
    };
    (expected.min(other)..=expected.max(other)).contains(&found)
}

/// Returns `true` if a number is greater than in the reference.
fn is_greater(found: &Difference) -> bool {
    let numbers = found
        .values
        .as_ref()
        .map(|(expected, found)| [expected, found].map(whole));
    matches!(numbers, Some([Some(expected), Some(found)]) if found > expected)
}

/// Parses an integer, or a string that contains an integer.
fn whole(value: &Value) -> Option<i64> {
    match value {
        Value::String(text) => text.parse().ok(),
        value => value.as_i64(),
    }
}

/// Returns the history to which an object belongs: `configmaps default/shop-rev-2` → `configmaps default/shop-rev-*`.
/// Replaces the parts of the name that contain digits, except for the first part.
pub(crate) fn history(key: &str) -> String {
    let at = key.rfind('/').or_else(|| key.rfind(' ')).map_or(0, |at| at + 1);
    let (before, name) = key.split_at(at);
    let mut parts = name.split_inclusive(['-', '.']);
    let mut history = format!("{before}{}", parts.next().unwrap_or_default());
    for part in parts {
        let (word, end) = match part.strip_suffix(['-', '.']) {
            Some(word) => (word, &part[word.len()..]),
            None => (part, ""),
        };
        let is_numbered = word.bytes().any(|it| it.is_ascii_digit());
        history.push_str(if is_numbered { "*" } else { word });
        history.push_str(end);
    }
    history
}

#[cfg(test)]
mod tests {
    use super::*;

    #[rstest::rstest]
    #[case::number("configmaps default/shop-rev-2", "configmaps default/shop-rev-*")]
    #[case::hash("secrets default/web-5d4f8c-tls", "secrets default/web-*-tls")]
    #[case::number_in_the_first_part("pods default/v2", "pods default/v2")]
    #[case::name_without_a_number("secrets default/shop-token", "secrets default/shop-token")]
    #[case::cluster_scoped("nodes /node-1", "nodes /node-*")]
    #[case::external_system("cloud disk-12", "cloud disk-*")]
    fn numbers_and_hashes_in_names_are_replaced(#[case] key: &str, #[case] expected: &str) {
        assert_eq!(history(key), expected);
    }
}
