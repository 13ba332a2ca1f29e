//! `NoVersion`: the reason why an object cannot be converted to a version.

use crate::api::status::Status;

/// Reason why an object cannot be converted to a version; after `IsMissingVersionError` of the `versionConverter` of
/// k8s.io/apimachinery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NoVersion {
    /// The version does not have the type, or no longer has it: its entries in managedFields are dropped.
    Obsolete,
    /// The conversion of a custom resource fails, with this message: an apply fails, and other writes drop all
    /// managedFields.
    Refused(String),
}

impl NoVersion {
    /// Returns the error of an apply, if it fails.
    pub(crate) fn refusal(self) -> Result<(), Status> {
        match self {
            NoVersion::Obsolete => Ok(()),
            NoVersion::Refused(message) => Err(Status::new(500, "", message)),
        }
    }
}
