//! `NoVersion`: the reason why an object cannot be converted to a version.

use crate::api::status::Status;

/// Reason why an object cannot be converted to a version; follows `IsMissingVersionError` of the `versionConverter` of
/// k8s.io/apimachinery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NoVersion {
    /// The version does not have the type, or no longer has it. Entries of `managedFields` with this version are
    /// dropped.
    Obsolete,
    /// The conversion of a custom resource fails with this message. An apply then fails, and other writes drop
    /// `managedFields`.
    Refused(String),
}

impl NoVersion {
    /// Fails with the error of an apply, if an apply fails for this reason.
    pub(crate) fn refusal(self) -> Result<(), Status> {
        match self {
            NoVersion::Obsolete => Ok(()),
            NoVersion::Refused(message) => Err(Status::new(500, "", message)),
        }
    }
}
