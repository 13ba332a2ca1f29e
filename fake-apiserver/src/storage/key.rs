//! `Key`: identifies an object within its resource. Lists have the order of keys (rule D8).

use std::sync::Arc;

/// `namespace/name`, or only `name` for a cluster-scoped object. Keys are ordered bytewise like etcd's keys: `a-b/x`
/// precedes `a/x`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Key(Arc<str>);

impl Key {
    /// Creates the key of an object. `namespace` is empty for cluster-scoped objects.
    pub(crate) fn new(namespace: &str, name: &str) -> Self {
        if namespace.is_empty() {
            return Self(name.into());
        }
        let mut text = String::with_capacity(namespace.len() + 1 + name.len());
        text.push_str(namespace);
        text.push('/');
        text.push_str(name);
        Self(text.into())
    }

    /// Returns the whole key as a string.
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the namespace; empty for a cluster-scoped object.
    pub(crate) fn namespace(&self) -> &str {
        self.0.split_once('/').map_or("", |(namespace, _)| namespace)
    }

    /// Returns the name of the object.
    pub(crate) fn name(&self) -> &str {
        self.0.split_once('/').map_or(&self.0, |(_, name)| name)
    }
}

/// A range of keys: all keys of a resource, or the keys of one namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KeyRange {
    /// First possible key in the range.
    pub(crate) start: String,
    /// First key after the range; `None` for the end of the resource.
    pub(crate) end: Option<String>,
}

impl KeyRange {
    /// Creates the range of all keys, or of the keys of one namespace.
    pub(crate) fn of(namespace: Option<&str>) -> Self {
        match namespace {
            None => Self {
                start: String::new(),
                end: None,
            },
            // In ASCII, '0' is the character after '/'.
            Some(namespace) => Self {
                start: format!("{namespace}/"),
                end: Some(format!("{namespace}0")),
            },
        }
    }

    /// Returns the part of this range that starts at `start`.
    #[must_use]
    pub(crate) fn from(mut self, start: String) -> Self {
        if start > self.start {
            self.start = start;
        }
        self
    }

    /// Returns `true` if the range contains `key`.
    pub(crate) fn contains(&self, key: &str) -> bool {
        key >= self.start.as_str() && self.end.as_deref().is_none_or(|end| key < end)
    }
}
