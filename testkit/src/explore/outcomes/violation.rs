//! `Violation`: a failure of a run.

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
    /// numbers. Two violations with the same topic are likely to have the same cause.
    pub(crate) fn topic(&self) -> String {
        self.topic_of(self.detail())
    }

    /// Returns `true` if two violations of an oracle concern the same resource and field: one has the main line of the
    /// other among its lines. A smaller plan or a repeated run may show fewer differences, or show them in a different
    /// order, but a run that only differs elsewhere fails for another reason. The texts of checks and assertions of the
    /// test are not compared, because they may contain the state of any object.
    pub(crate) fn is_like(&self, other: &Self) -> bool {
        let has_topic = |all: &Self, one: &Self| all.what.lines().any(|line| all.topic_of(line.trim()) == one.topic());
        self.oracle == other.oracle && (self.is_check() || has_topic(self, other) || has_topic(other, self))
    }

    fn topic_of(&self, line: &str) -> String {
        let subject = line.split(": ").next().unwrap_or_default();
        let words = subject.split(' ').filter(|it| !it.contains('/'));
        let words = words.map(|it| it.replace(|sign: char| sign.is_ascii_digit(), ""));
        format!("{}: {}", self.oracle, words.collect::<Vec<_>>().join(" "))
    }

    /// Returns `true` for failures of checks and assertions of the test.
    fn is_check(&self) -> bool {
        // The names of checks in the test begin with these words.
        self.oracle == ASSERTIONS || [ALWAYS, EVENTUALLY].iter().any(|it| self.oracle.starts_with(it))
    }

    /// Ranks the violation by the probability that the controller is wrong; 0 is the most certain. An object that is
    /// created again may be equal at the end, so other differences from the reference precede it. Runs in which the
    /// test continues during faults may differ because messages arrive in a different order.
    pub(crate) fn doubt(&self, is_overlapped: bool) -> u8 {
        let is_direct = self.is_check()
            || matches!(
                self.oracle,
                NO_PANIC | ENDS | SETTLES | PLAYABLE | HOT_LOOP | DELETES_BY_NAME
            );
        match (is_overlapped, is_direct) {
            (true, _) => 3,
            (false, false) if self.oracle == CREATES_AND_DELETES => 2,
            (false, false) => 1,
            (false, true) => 0,
        }
    }
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
    #[case::one_of_two_differences(
        ("end state", "late:\n  pods shop/a spec.x: 1\n  jobs shop/a: missing"),
        ("end state", "late:\n  jobs shop/b: missing"),
        true
    )]
    #[case::other_difference(
        ("end state", "late:\n  pods shop/a spec.x: 1"),
        ("end state", "late:\n  jobs shop/a: missing"),
        false
    )]
    #[case::other_oracle(("end state", "pods shop/a: missing"), ("owners", "pods shop/a: missing"), false)]
    #[case::assertion(
        (ASSERTIONS, "the first Pod is not ready"),
        (ASSERTIONS, "left: 1, right: 2"),
        true
    )]
    fn violations_are_alike_if_they_share_a_main_line(
        #[case] one: (&'static str, &str),
        #[case] other: (&'static str, &str),
        #[case] is_like: bool,
    ) {
        let [one, other] = [one, other].map(|(oracle, what)| Violation::new(oracle, what.to_owned()));
        assert_eq!(one.is_like(&other), is_like);
        assert_eq!(other.is_like(&one), is_like);
    }
}
