//! `Violation`: a failure of a run.

use std::collections::BTreeSet;
use std::fmt;

/// Names of the test's checks, and of failures that always count.
pub(crate) const ALWAYS: &str = "always";
pub(crate) const EVENTUALLY: &str = "eventually";
pub(crate) const ASSERTIONS: &str = "the scenario's own assertions";
pub(crate) const NO_PANIC: &str = "no panic";
pub(crate) const ENDS: &str = "the scenario ends";
/// Name of the failure of controllers that never settle. Repeating a failing request every few seconds is permitted.
pub(crate) const SETTLES: &str = "the controllers settle";
pub(crate) const EXPLORABLE: &str = "the scenario sends requests";
pub(crate) const CRASHABLE: &str = "a controller can be crashed";
/// Name of the failure of a replay string that cannot be executed. It is a failure instead of a note, because the notes
/// of a passing test are easily overlooked and the bug would appear to be fixed.
pub(crate) const PLAYABLE: &str = "the replay can be executed";

/// Name of the oracle for the number of messages. The gate checks it.
pub(crate) const HOT_LOOP: &str = "no hot loop";

/// Name of the oracle for deletes by name of objects that have replaced the observed ones. The gate checks it.
pub(crate) const DELETES_BY_NAME: &str = "no delete by name of another object";

/// Name of the oracle for objects that are created or deleted more often than in the reference.
pub(crate) const CREATES_AND_DELETES: &str = "creates and deletes";

/// Beginning of the description of a difference after a run in which the test continued during a fault.
pub(crate) const STILL_DIFFERS: &str = "the two runs still differ";

/// Minimum length of a suffix that Kubernetes generates, and its characters.
const GENERATED: usize = 5;
const GENERATED_SIGNS: &str = "bcdfghjklmnpqrstvwxz2456789";

/// A failure of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Violation {
    pub(crate) oracle: &'static str,
    pub(crate) what: String,
}

impl Violation {
    pub(crate) fn new(oracle: &'static str, what: String) -> Self {
        Self { oracle, what }
    }

    /// Returns the main line of the description: the first line, or the second one if the first introduces a list.
    pub(crate) fn detail(&self) -> &str {
        let mut lines = self.what.lines().map(str::trim).filter(|it| !it.is_empty());
        let first = lines.next().unwrap_or_default();
        let is_introduction = first.ends_with(':') || first.contains(": after the step at ");
        lines.next().filter(|_| is_introduction).unwrap_or(first)
    }

    /// Returns the oracle together with the resource and the field in the first line of details, without names and
    /// numbers. Two violations with the same topic are likely to have the same cause. The resources that were created
    /// and deleted depend on the cause, so the topic contains all of them. If the test continued during a fault, the
    /// difference is less certain, and has a separate topic.
    pub(crate) fn topic(&self) -> String {
        let subjects = match self.oracle {
            CREATES_AND_DELETES => self.what.lines().map(subject).collect(),
            _ => BTreeSet::from([subject(self.detail())]),
        };
        let prefix = if self.what.starts_with(STILL_DIFFERS) {
            "continued, "
        } else {
            ""
        };
        let subjects: Vec<String> = subjects.into_iter().collect();
        format!("{prefix}{}: {}", self.oracle, subjects.join("; "))
    }

    /// Returns `true` if the same oracle is violated, and if both violations name objects, for a common object. Numbers
    /// and generated suffixes of names are ignored, because they differ between runs.
    pub(crate) fn is_like(&self, other: &Self) -> bool {
        let (one, two) = (self.objects(), other.objects());
        let is_comparable = !one.is_empty() && !two.is_empty();
        self.oracle == other.oracle && (!is_comparable || !one.is_disjoint(&two))
    }

    /// Returns the resources and the stems of the names of the objects in the description: one in each line after an
    /// introduction, or one at the beginning of the only line.
    fn objects(&self) -> BTreeSet<(&str, String)> {
        let lines = match self.what.split_once(":\n") {
            Some((_, lines)) => lines,
            None => &self.what,
        };
        let objects = lines.lines().filter_map(|line| {
            let mut words = line.split_whitespace();
            let (resource, name) = (words.next()?, words.next()?);
            name.contains('/').then(|| (resource, stem(name.trim_end_matches(':'))))
        });
        objects.collect()
    }

    /// Ranks the violation by the probability that the controller is wrong; 0 is the most certain. An object that is
    /// created again may be equal at the end, so other differences from the reference precede it. Runs in which the
    /// test continues during faults may differ because messages arrive in a different order.
    pub(crate) fn doubt(&self, is_overlapped: bool) -> u8 {
        // The names of checks in the test begin with these words.
        let is_check = [ALWAYS, EVENTUALLY].iter().any(|it| self.oracle.starts_with(it));
        let is_direct = is_check
            || matches!(
                self.oracle,
                ASSERTIONS | NO_PANIC | ENDS | SETTLES | PLAYABLE | HOT_LOOP | DELETES_BY_NAME
            );
        match (is_overlapped, is_direct) {
            (true, _) => 3,
            (false, false) if self.oracle == CREATES_AND_DELETES => 2,
            (false, false) => 1,
            (false, true) => 0,
        }
    }
}

/// Returns the part of a line before its details, without names and numbers.
fn subject(line: &str) -> String {
    let subject = line.trim().split(": ").next().unwrap_or_default();
    let words = subject.split(' ').filter(|it| !it.contains('/'));
    let words = words.map(|it| it.replace(|sign: char| sign.is_ascii_digit(), ""));
    words.collect::<Vec<_>>().join(" ")
}

/// Returns a name without digits and without suffixes that Kubernetes generates.
fn stem(name: &str) -> String {
    let is_generated = |it: &str| it.len() >= GENERATED && it.chars().all(|sign| GENERATED_SIGNS.contains(sign));
    let parts = name.split('-').filter(|it| !is_generated(it));
    let parts: Vec<&str> = parts
        .map(|it| it.trim_matches(|sign: char| sign.is_ascii_digit()))
        .collect();
    parts.join("-")
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.oracle, self.what)
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::other_names(
        "end state",
        "late:\n  pods shop/a-1 spec.x: 1",
        "late:\n  pods shop/b-2 spec.x: 7",
        true
    )]
    #[case::other_fields(
        "end state",
        "late:\n  pods shop/a spec.x: 1",
        "late:\n  pods shop/a spec.y: 1",
        false
    )]
    #[case::other_resources("end state", "late:\n  pods shop/a: missing", "late:\n  jobs shop/a: missing", false)]
    #[case::test_that_continued(
        "end state",
        "the two runs still differ after 1s, so one of them is wrong:\n  pods shop/a spec.x: 1",
        "late:\n  pods shop/a spec.x: 1",
        false
    )]
    #[case::other_creations(
        CREATES_AND_DELETES,
        "pods shop/a was created 3 times\n  jobs shop/a was deleted 2 times",
        "pods shop/a was created 3 times\n  pods shop/a was deleted 2 times",
        false
    )]
    #[case::more_creations_of_one_resource(
        CREATES_AND_DELETES,
        "pods shop/a was created 3 times",
        "pods shop/a was created 4 times\n  pods shop/b was created 4 times",
        true
    )]
    #[case::other_numbers("always", "\"few\" does not hold: 3 pods", "\"few\" does not hold: 4 pods", true)]
    #[case::other_checks("always", "\"few\" does not hold: 3 pods", "\"many\" does not hold: 4 pods", false)]
    fn violations_are_distinguished_by_check_resource_and_field(
        #[case] oracle: &'static str,
        #[case] one: &str,
        #[case] other: &str,
        #[case] is_same: bool,
    ) {
        let topic = |what: &str| Violation::new(oracle, what.to_owned()).topic();
        assert_eq!(topic(one) == topic(other), is_same, "{} {}", topic(one), topic(other));
    }

    #[rstest]
    #[case::same_object(
        "late:\n  pods shop/a spec.x: 1",
        "late:\n  pods shop/b: 1\n  pods shop/a spec.y: 1",
        true
    )]
    #[case::other_object("late:\n  pods shop/a spec.x: 1", "late:\n  pods shop/b spec.x: 1", false)]
    #[case::other_resource("late:\n  pods shop/a: missing", "late:\n  jobs shop/a: missing", false)]
    #[case::generated_names("late:\n  pods shop/a-x7b2q spec.x: 1", "late:\n  pods shop/a-zz9d4 spec.x: 1", true)]
    #[case::replicas("pods shop/a-0 was created 2 times", "pods shop/a-1 was created 3 times", true)]
    #[case::no_objects("\"few\" does not hold: 3 pods", "\"few\" does not hold: 4 pods", true)]
    fn violations_of_one_oracle_are_alike_if_they_concern_the_same_object(
        #[case] one: &str,
        #[case] other: &str,
        #[case] is_alike: bool,
    ) {
        let violation = |what: &str| Violation::new("end state", what.to_owned());
        assert_eq!(violation(one).is_like(&violation(other)), is_alike);
    }
}
