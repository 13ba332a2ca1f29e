//! `Key`: where an object lies within its resource. The order of keys is the order of lists (rule D8).

use std::sync::Arc;

/// `namespace/name`, or `name` alone for an object of the cluster. Ordered bytewise as one text, as etcd orders keys:
/// `a-b/x` comes before `a/x`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Key(Arc<str>);

impl Key {
    /// The key of `name` in `namespace`; an empty namespace means the cluster's own.
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

    /// The whole text.
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// The namespace, empty for an object of the cluster.
    pub(crate) fn namespace(&self) -> &str {
        self.0.split_once('/').map_or("", |(namespace, _)| namespace)
    }

    /// The name.
    pub(crate) fn name(&self) -> &str {
        self.0.split_once('/').map_or(&self.0, |(_, name)| name)
    }
}

/// A run of keys: all of a resource, or those of one namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KeyRange {
    /// The first key that may be in it.
    pub(crate) start: String,
    /// The first key behind it; `None` is the end of the resource.
    pub(crate) end: Option<String>,
}

impl KeyRange {
    /// Everything, or one namespace.
    pub(crate) fn of(namespace: Option<&str>) -> Self {
        match namespace {
            None => Self {
                start: String::new(),
                end: None,
            },
            // '0' follows '/' in ASCII.
            Some(namespace) => Self {
                start: format!("{namespace}/"),
                end: Some(format!("{namespace}0")),
            },
        }
    }

    /// The part of this run from `start` on.
    #[must_use]
    pub(crate) fn from(mut self, start: String) -> Self {
        if start > self.start {
            self.start = start;
        }
        self
    }

    /// Returns `true` if `key` lies in the run.
    pub(crate) fn contains(&self, key: &str) -> bool {
        key >= self.start.as_str() && self.end.as_deref().is_none_or(|end| key < end)
    }
}
