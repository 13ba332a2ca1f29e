//! `Stored`: one object as encoded bytes, and the few fields of it that are asked for without decoding.

use bytes::Bytes;

use super::{Key, Revision};
use crate::api::resource::Text;

/// Stored form of an object.
///
/// `bytes` is the JSON of the object **without** its `kind`, `apiVersion` and `metadata.resourceVersion`, and without
/// the opening of `metadata`: `"name":"a",…},"data":{…}}`. An answer is a head with the kind and the revision, then
/// these bytes. So one copy serves every version, lists (whose items have no kind), the state before a delete (whose
/// event carries the delete's revision), and the test whether a write changes anything.
#[derive(Clone, Debug)]
pub(crate) struct Body {
    /// The encoded object as described above.
    pub(crate) bytes: Bytes,
    /// Place of `metadata.resourceVersion` in the bytes, in front of another field.
    pub(crate) version_at: usize,
    /// Length of the metadata in bytes, its closing brace included.
    pub(crate) metadata_len: usize,
    /// `metadata.uid`
    pub(crate) uid: Box<str>,
    /// `metadata.labels`, sorted by key.
    pub(crate) labels: Box<[(Box<str>, Box<str>)]>,
    /// Values of the field labels of its kind, but empty ones. Names are those of a kind, which take no memory.
    pub(crate) fields: Box<[(Text, Box<str>)]>,
}

/// An object as it was written at `revision`.
#[derive(Debug)]
pub(crate) struct Stored {
    /// Key of the object.
    pub(crate) key: Key,
    /// The write that made it so: its `resourceVersion`.
    pub(crate) revision: Revision,
    /// The object that was written.
    pub(crate) body: Body,
}

impl Stored {
    /// The bytes it takes, without what lies in its labels and fields.
    pub(super) fn size(&self) -> usize {
        size_of::<Self>() + self.key.as_str().len() + self.body.bytes.len()
    }

    /// The value of a label.
    pub(crate) fn label(&self, key: &str) -> Option<&str> {
        // Objects have few labels: walking them beats a binary search.
        self.body
            .labels
            .iter()
            .find(|(it, _)| **it == *key)
            .map(|(_, value)| &**value)
    }

    /// The value of a field label; absent ones compare as the empty string.
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
