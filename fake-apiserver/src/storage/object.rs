//! `Stored`: an object as encoded bytes, with the few fields that must be available without decoding.

use bytes::Bytes;

use super::{Key, Revision};
use crate::api::resource::Text;

/// Stored form of an object.
///
/// `bytes` is the JSON of the object **without** its `kind`, `apiVersion` and `metadata.resourceVersion`, and without
/// the opening of `metadata`: `"name":"a",…},"data":{…}}`. A response consists of a head with the kind, the bytes, and
/// the revision. The same bytes are therefore used for all versions, for lists (items do not have a kind), for DELETED
/// events (which have the revision of the delete), and to check whether a write changes anything.
#[derive(Clone, Debug)]
pub(crate) struct Body {
    /// The encoded object.
    pub(crate) bytes: Bytes,
    /// Position in the bytes at which `metadata.resourceVersion` is inserted, before the field that follows it.
    pub(crate) version_at: usize,
    /// Length of the metadata in bytes, including its closing brace.
    pub(crate) metadata_len: usize,
    /// Set if kube-apiserver would store fewer fields and add the missing ones when it reads the object. The next write
    /// then creates a new version even if it does not change the object.
    pub(crate) is_completed_on_read: bool,
    /// `metadata.uid`
    pub(crate) uid: Box<str>,
    /// `metadata.labels`, sorted by key.
    pub(crate) labels: Box<[(Box<str>, Box<str>)]>,
    /// Non-empty values of the kind's field labels. The names of the labels are usually shared by all objects.
    pub(crate) fields: Box<[(Text, Box<str>)]>,
}

/// An object with the revision of its last write.
#[derive(Debug)]
pub(crate) struct Stored {
    pub(crate) key: Key,
    /// Revision of the last write, which is the object's `resourceVersion`.
    pub(crate) revision: Revision,
    pub(crate) body: Body,
}

impl Stored {
    /// Returns the size in bytes, without the contents of labels and fields.
    pub(super) fn size(&self) -> usize {
        size_of::<Self>() + self.key.as_str().len() + self.body.bytes.len()
    }

    /// Returns the value of a label.
    pub(crate) fn label(&self, key: &str) -> Option<&str> {
        // Objects have few labels, so a linear search is faster than a binary search.
        self.body
            .labels
            .iter()
            .find(|(it, _)| **it == *key)
            .map(|(_, value)| &**value)
    }

    /// Returns the value of a field label; an empty string if it is absent.
    pub(crate) fn field(&self, label: &str) -> &str {
        match label {
            "metadata.name" => self.key.name(),
            "metadata.namespace" => self.key.namespace(),
            _ => self
                .body
                .fields
                .iter()
                .find(|(it, _)| **it == *label)
                .map_or("", |(_, value)| value),
        }
    }
}
