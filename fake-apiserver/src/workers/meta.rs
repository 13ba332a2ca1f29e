//! `Meta`: owners and deletion state of an object, read without decoding the object.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::storage::Stored;

/// The part of `metadata` that controllers need most often.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Meta {
    /// `metadata.ownerReferences`
    pub(crate) owner_references: Vec<OwnerReference>,
    /// `metadata.finalizers`
    pub(crate) finalizers: Vec<String>,
    /// `metadata.deletionTimestamp`
    pub(crate) deletion_timestamp: Option<String>,
}

/// An item of `metadata.ownerReferences`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct OwnerReference {
    /// Group and version of the owner.
    pub(crate) api_version: String,
    /// Kind of the owner.
    pub(crate) kind: String,
    /// Name of the owner.
    pub(crate) name: String,
    /// UID of the owner.
    pub(crate) uid: String,
    /// Set if the owner manages the object.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) controller: Option<bool>,
    /// Set if a foreground deletion of the owner waits for the object.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) block_owner_deletion: Option<bool>,
}

impl Meta {
    /// Reads the metadata from the stored bytes.
    pub(crate) fn of(stored: &Stored) -> Self {
        metadata(stored)
    }

    /// Returns `true` if the object is being deleted.
    pub(crate) fn is_terminating(&self) -> bool {
        self.deletion_timestamp.is_some()
    }

    /// Returns `true` if the object has this finalizer.
    pub(crate) fn has_finalizer(&self, name: &str) -> bool {
        self.finalizers.iter().any(|it| it == name)
    }
}

/// Reads fields of the metadata from the stored bytes, which begin within `metadata` (see `storage::Body`). Returns the
/// default if a field has another type.
pub(crate) fn metadata<T: DeserializeOwned + Default>(stored: &Stored) -> T {
    let bytes = &stored.body.bytes;
    let mut text = Vec::with_capacity(bytes.len() + 1);
    text.push(b'{');
    text.extend_from_slice(bytes);
    // The first JSON value is the metadata; the bytes after it are ignored.
    let mut values = serde_json::Deserializer::from_slice(&text).into_iter::<T>();
    values.next().and_then(Result::ok).unwrap_or_default()
}
