//! `ResourceVersion`: identifies a state of an object or of a collection.

use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

/// A resource version from the API server. The empty version ([`ResourceVersion::default`]) represents a missing
/// version.
///
/// Since Kubernetes 1.35, resource versions are guaranteed to be decimal integers, and versions of the same resource
/// can be ordered. Other versions, such as the versions of an aggregated API server, can only be compared for equality.
///
/// ```
/// use informer::ResourceVersion;
///
/// let (old, new) = (ResourceVersion::from("99"), ResourceVersion::from("100"));
/// assert!(old < new);
/// assert_eq!(old.partial_cmp(&ResourceVersion::from("opaque")), None);
/// assert_eq!(new.to_string(), "100");
/// assert!(ResourceVersion::default().is_empty());
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct ResourceVersion(Form);

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
enum Form {
    #[default]
    Empty,
    Number(u64),
    Text(Arc<str>),
}

impl ResourceVersion {
    /// Returns version `"0"`, for which the server may return any state.
    pub fn any() -> Self {
        Self(Form::Number(0))
    }

    /// Returns `true` if the version is empty.
    pub fn is_empty(&self) -> bool {
        self.0 == Form::Empty
    }

    /// Returns `true` if the version is `"0"`.
    pub fn is_any(&self) -> bool {
        self.0 == Form::Number(0)
    }

    /// Returns the version as a number, if it is one.
    pub fn number(&self) -> Option<u64> {
        match self.0 {
            Form::Number(number) => Some(number),
            Form::Empty | Form::Text(_) => None,
        }
    }
}

impl From<&str> for ResourceVersion {
    fn from(text: &str) -> Self {
        if text.is_empty() {
            return Self(Form::Empty);
        }
        let canonical = text.bytes().all(|it| it.is_ascii_digit()) && (text == "0" || !text.starts_with('0'));
        match text.parse() {
            Ok(number) if canonical => Self(Form::Number(number)),
            Ok(_) | Err(_) => Self(Form::Text(text.into())),
        }
    }
}

impl PartialOrd for ResourceVersion {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        match (&self.0, &other.0) {
            (Form::Number(one), Form::Number(other)) => one.partial_cmp(other),
            (one, other) => (one == other).then_some(Ordering::Equal),
        }
    }
}

impl fmt::Display for ResourceVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Form::Empty => Ok(()),
            Form::Number(number) => number.fmt(f),
            Form::Text(text) => f.write_str(text),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resource_version_round_trips() {
        for text in [
            "",
            "0",
            "7",
            "18446744073709551615",
            "18446744073709551616",
            "007",
            "+7",
            "abc",
        ] {
            assert_eq!(ResourceVersion::from(text).to_string(), text);
        }
    }
}
