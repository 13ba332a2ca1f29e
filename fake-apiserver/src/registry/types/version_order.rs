//! The priority of API versions (`k8s.io/apimachinery/pkg/version`).

use std::cmp::Ordering;

/// Stability of a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    Alpha,
    Beta,
    Stable,
}

/// Compares versions by stability, then by number (`CompareKubeAwareVersionStrings`): the greatest is the most stable
/// and newest one. Names in any other format are less than all versions; the first of them in alphabetical order is the
/// greatest.
pub(crate) fn compare(a: &str, b: &str) -> Ordering {
    match (parse(a), parse(b)) {
        (None, None) => b.cmp(a),
        (a, b) => a.cmp(&b),
    }
}

/// Returns `true` for a version such as `v1`, which is neither alpha nor beta.
pub(crate) fn is_stable(version: &str) -> bool {
    parse(version).is_some_and(|(stage, ..)| stage == Stage::Stable)
}

/// Returns stability, major and minor number of a version such as `v2beta1`; `None` for other forms. Numbers may begin
/// with zeros.
fn parse(version: &str) -> Option<(Stage, i64, i64)> {
    let rest = version.strip_prefix('v')?;
    let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
    let (major, rest) = rest.split_at(digits);
    let number = |text: &str| -> Option<i64> {
        let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
        text.parse().ok().filter(|_| is_number)
    };
    let major = number(major)?;
    if rest.is_empty() {
        return Some((Stage::Stable, major, 0));
    }
    if let Some(minor) = rest.strip_prefix("beta") {
        return Some((Stage::Beta, major, number(minor)?));
    }
    Some((Stage::Alpha, major, number(rest.strip_prefix("alpha")?)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[rstest::rstest]
    #[case("v1", "v1beta1", Ordering::Greater)]
    #[case("v2", "v10", Ordering::Less)]
    #[case("v02", "v1", Ordering::Greater)]
    #[case("v1beta01", "v1beta1", Ordering::Equal)]
    #[case("v1alpha1", "foo", Ordering::Greater)]
    #[case("foo", "bar", Ordering::Less)]
    #[case("v1gamma1", "v", Ordering::Less)]
    #[case("v+1", "v1alpha1", Ordering::Less)]
    fn versions_are_compared_by_stability_and_number(#[case] a: &str, #[case] b: &str, #[case] expected: Ordering) {
        assert_eq!(compare(a, b), expected);
        assert_eq!(compare(b, a), expected.reverse());
    }
}
