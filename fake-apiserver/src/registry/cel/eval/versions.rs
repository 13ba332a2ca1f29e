//! Semantic versions, modelled on `k8s.io/apiserver/pkg/cel/library/semverlib.go` and the parser of `blang/semver`.

use std::cmp::Ordering;
use std::sync::Arc;

use super::values::{EvalFailure, Evaluated, overload};
use crate::api::field::quote;
use crate::registry::cel::objects::{Opaque, Value as CelValue};

/// A version. Its build metadata is validated and then ignored.
#[derive(Debug, PartialEq, Eq)]
struct Version {
    numbers: [u64; 3],
    prerelease: Vec<Identifier>,
}

/// A part of a prerelease. Numbers are ordered before strings.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Identifier {
    Number(u64),
    Text(String),
}

impl Opaque for Version {
    fn runtime_type_name(&self) -> &str {
        "kubernetes.Semver"
    }
}

impl Version {
    /// Compares two versions. A prerelease is lower than its release.
    fn order(&self, other: &Self) -> Ordering {
        let releases = self.prerelease.is_empty().cmp(&other.prerelease.is_empty());
        let numbers = self.numbers.cmp(&other.numbers).then(releases);
        numbers.then_with(|| self.prerelease.cmp(&other.prerelease))
    }
}

/// Calls a function of Kubernetes' semver library. Returns `None` for other functions and receivers.
pub(super) fn call(name: &str, is_method: bool, args: &[CelValue]) -> Option<Evaluated> {
    if !is_method {
        return if matches!(name, "semver" | "isSemver") {
            read(name, args)
        } else {
            None
        };
    }
    let (version, rest) = args.split_first()?;
    let version = of(version)?;
    let number = |at: usize| {
        Some(Ok(CelValue::Int(
            i64::try_from(version.numbers[at]).unwrap_or(i64::MAX),
        )))
    };
    let compared = |other: &CelValue| of(other).map(|it| version.order(it)).ok_or_else(overload);
    match (name, rest) {
        ("major", []) => number(0),
        ("minor", []) => number(1),
        ("patch", []) => number(2),
        ("isGreaterThan", [other]) => Some(compared(other).map(|it| CelValue::Bool(it.is_gt()))),
        ("isLessThan", [other]) => Some(compared(other).map(|it| CelValue::Bool(it.is_lt()))),
        ("compareTo", [other]) => Some(compared(other).map(|it| CelValue::Int(it as i64))),
        _ => None,
    }
}

/// Evaluates `semver` and `isSemver`.
fn read(name: &str, args: &[CelValue]) -> Option<Evaluated> {
    let parsed = match args {
        [CelValue::String(text)] | [CelValue::String(text), CelValue::Bool(false)] => parse(text),
        [CelValue::String(text), CelValue::Bool(true)] => parse_normalized(text),
        _ => return None,
    };
    Some(match parsed {
        parsed if name == "isSemver" => Ok(CelValue::Bool(parsed.is_ok())),
        Ok(version) => Ok(CelValue::Opaque(Arc::new(version))),
        Err(error) => Err(EvalFailure::Error(error)),
    })
}

fn of(value: &CelValue) -> Option<&Version> {
    match value {
        CelValue::Opaque(opaque) => opaque.downcast_ref(),
        _ => None,
    }
}

/// Parses a version that may start with `v`, have leading zeros or have fewer than three numbers.
fn parse_normalized(text: &str) -> Result<Version, String> {
    let text = text.strip_prefix('v').unwrap_or(text);
    let mut parts: Vec<String> = text.splitn(3, '.').map(without_zeros).collect();
    if parts.len() < 3 {
        if parts.last().is_some_and(|it| it.contains(['+', '-'])) {
            return Err("short version cannot contain PreRelease/Build meta data".to_owned());
        }
        parts.resize(3, "0".to_owned());
    }
    parse(&parts.join("."))
}

/// Removes the leading zeros of a number, which may be followed by other characters.
fn without_zeros(part: &str) -> String {
    let rest = part.trim_start_matches('0');
    match part.len() > 1 && !rest.starts_with(|it: char| it.is_ascii_digit()) {
        true => format!("0{rest}"),
        false if part.len() > 1 => rest.to_owned(),
        false => part.to_owned(),
    }
}

fn parse(text: &str) -> Result<Version, String> {
    if text.is_empty() {
        return Err("Version string empty".to_owned());
    }
    let mut parts = text.splitn(3, '.');
    let (Some(major), Some(minor), Some(patch)) = (parts.next(), parts.next(), parts.next()) else {
        return Err("No Major.Minor.Patch elements found".to_owned());
    };
    let (patch, build) = match patch.split_once('+') {
        Some((patch, build)) => (patch, Some(build)),
        None => (patch, None),
    };
    let (patch, prerelease) = match patch.split_once('-') {
        Some((patch, prerelease)) => (patch, Some(prerelease)),
        None => (patch, None),
    };
    let numbers = [
        number("Major", major)?,
        number("Minor", minor)?,
        number("Patch", patch)?,
    ];
    let prerelease = prerelease.into_iter().flat_map(|it| it.split('.'));
    let prerelease = prerelease.map(identifier).collect::<Result<_, _>>()?;
    for part in build.into_iter().flat_map(|it| it.split('.')) {
        if part.is_empty() {
            return Err("Build meta data is empty".to_owned());
        }
        if !is_identifier(part) {
            return Err(format!("Invalid character(s) found in build meta data {}", quote(part)));
        }
    }
    Ok(Version { numbers, prerelease })
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|it| it.is_ascii_digit())
}

fn is_identifier(text: &str) -> bool {
    text.bytes().all(|it| it.is_ascii_alphanumeric() || it == b'-')
}

fn has_leading_zeros(text: &str) -> bool {
    text.len() > 1 && text.starts_with('0')
}

fn number(which: &str, text: &str) -> Result<u64, String> {
    if !is_number(text) {
        let which = which.to_ascii_lowercase();
        return Err(format!("Invalid character(s) found in {which} number {}", quote(text)));
    }
    if has_leading_zeros(text) {
        return Err(format!(
            "{which} number must not contain leading zeroes {}",
            quote(text)
        ));
    }
    let out_of_range = |_| format!("strconv.ParseUint: parsing {}: value out of range", quote(text));
    text.parse().map_err(out_of_range)
}

fn identifier(text: &str) -> Result<Identifier, String> {
    if text.is_empty() {
        return Err("Prerelease is empty".to_owned());
    }
    if !is_number(text) {
        return match is_identifier(text) {
            true => Ok(Identifier::Text(text.to_owned())),
            false => Err(format!("Invalid character(s) found in prerelease {}", quote(text))),
        };
    }
    if has_leading_zeros(text) {
        let quoted = quote(text);
        return Err(format!(
            "Numeric PreRelease version must not contain leading zeroes {quoted}"
        ));
    }
    let out_of_range = |_| format!("strconv.ParseUint: parsing {}: value out of range", quote(text));
    text.parse().map(Identifier::Number).map_err(out_of_range)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::{parse, parse_normalized};

    #[rstest]
    #[case("1.2.3-alpha.1+build.5", None)]
    #[case("1.2.3--", None)]
    #[case("", Some("Version string empty"))]
    #[case("1.2", Some("No Major.Minor.Patch elements found"))]
    #[case("v1.2.3", Some("Invalid character(s) found in major number \"v1\""))]
    #[case("1..3", Some("Invalid character(s) found in minor number \"\""))]
    #[case("1.2.03", Some("Patch number must not contain leading zeroes \"03\""))]
    #[case("1.2.3-", Some("Prerelease is empty"))]
    #[case(
        "1.2.3-01",
        Some("Numeric PreRelease version must not contain leading zeroes \"01\"")
    )]
    #[case("1.2.3-a_b", Some("Invalid character(s) found in prerelease \"a_b\""))]
    #[case("1.2.3+", Some("Build meta data is empty"))]
    #[case("1.2.3+a b", Some("Invalid character(s) found in build meta data \"a b\""))]
    #[case(
        "1.2.99999999999999999999",
        Some("strconv.ParseUint: parsing \"99999999999999999999\": value out of range")
    )]
    fn versions_are_parsed_as_in_go(#[case] text: &str, #[case] error: Option<&str>) {
        assert_eq!(parse(text).err().as_deref(), error);
    }

    #[rstest]
    #[case("v01", "1.0.0")]
    #[case("1.002", "1.2.0")]
    #[case("00.0.0-rc", "0.0.0-rc")]
    #[case("1.2.03-a.01b", "1.2.3-a.01b")]
    fn versions_are_normalized(#[case] text: &str, #[case] full: &str) {
        assert_eq!(parse_normalized(text), parse(full));
    }

    #[test]
    fn prerelease_of_a_short_version_is_refused() {
        let error = parse_normalized("1.2-rc").expect_err("the version is short");
        assert_eq!(error, "short version cannot contain PreRelease/Build meta data");
    }

    #[test]
    fn prereleases_are_ordered_by_their_parts() {
        let texts = [
            "1.0.0-1",
            "1.0.0-2",
            "1.0.0-10",
            "1.0.0-a",
            "1.0.0-a.1",
            "1.0.0-b",
            "1.0.0",
            "1.0.1-a",
        ];
        let versions = texts.map(|it| parse(it).expect("the version is valid"));
        assert!(versions.is_sorted_by(|one, other| one.order(other).is_lt()));
    }
}
