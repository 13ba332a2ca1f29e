//! `Stored`: one object as encoded bytes, with the few fields that are needed without decoding.

use bytes::Bytes;

use super::{Key, Revision};
use crate::api::resource::Text;

/// Stored form of an object.
///
/// `bytes` is the JSON of the object **without** its `kind`, `apiVersion` and `metadata.resourceVersion`, and without
/// the opening of `metadata`: `"name":"a",…},"data":{…}}`. An answer is a head with the kind and the revision, followed
/// by these bytes. Thus one copy serves every version, lists (their items have no kind), the state before a delete (its
/// event has the delete's revision), and the check whether a write changes anything.
#[derive(Clone, Debug)]
pub(crate) struct Body {
    /// The encoded object as described above.
    pub(crate) bytes: Bytes,
    /// Position of `metadata.resourceVersion` in the bytes, before another field.
    pub(crate) version_at: usize,
    /// Length of the metadata in bytes, including its closing brace.
    pub(crate) metadata_len: usize,
    /// Set if Go stores less than these bytes and completes the object when it is read, so that the next write makes a
    /// new version even if it changes nothing.
    pub(crate) is_completed_on_read: bool,
    /// `metadata.uid`
    pub(crate) uid: Box<str>,
    /// `metadata.labels`, sorted by key.
    pub(crate) labels: Box<[(Box<str>, Box<str>)]>,
    /// Non-empty values of the field labels of its kind. The names are stored with the kind and take no memory here.
    pub(crate) fields: Box<[(Text, Box<str>)]>,
}

/// An object as written at `revision`.
#[derive(Debug)]
pub(crate) struct Stored {
    /// Key of the object.
    pub(crate) key: Key,
    /// The revision of the last write, which is its `resourceVersion`.
    pub(crate) revision: Revision,
    /// The content of the object.
    pub(crate) body: Body,
}

impl Stored {
    /// Size in bytes, without the contents of labels and fields.
    pub(super) fn size(&self) -> usize {
        size_of::<Self>() + self.key.as_str().len() + self.body.bytes.len()
    }

    /// The value of a label.
    pub(crate) fn label(&self, key: &str) -> Option<&str> {
        // Objects have few labels, so a linear search is faster than a binary one.
        self.body
            .labels
            .iter()
            .find(|(it, _)| **it == *key)
            .map(|(_, value)| &**value)
    }

    /// Returns the value of a field label; empty if it is absent.
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
