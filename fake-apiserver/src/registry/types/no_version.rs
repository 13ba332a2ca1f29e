//! `NoVersion`: why an object has no form in a version.

use crate::api::status::Status;

/// Reason for which an object has no form in a version; after `IsMissingVersionError` of the `versionConverter` of
/// k8s.io/apimachinery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NoVersion {
    /// The version has no type (any more): entries of managedFields in it are dropped.
    Obsolete,
    /// The conversion of a custom resource fails, with this message: an apply fails, and other writes drop all
    /// managedFields.
    Refused(String),
}

impl NoVersion {
    /// Returns the answer to an apply, if it fails.
    pub(crate) fn refusal(self) -> Result<(), Status> {
        match self {
            NoVersion::Obsolete => Ok(()),
            NoVersion::Refused(message) => Err(Status::new(500, "", message)),
        }
    }
}
