//! `Denial`: the refusal of a request by a webhook.

use std::fmt;

use kube::core::Status;

use crate::reconcile::BoxError;

/// Refusal of a request. `?` converts any error: to 403 with its message, or to the Status of the API server that it
/// contains.
pub struct Denial {
    status: Box<Status>,
    warnings: Vec<String>,
}

impl Denial {
    /// 403 Forbidden with a message (`admission.Denied`).
    pub fn new(message: impl fmt::Display) -> Self {
        Self::of_status(403, "Forbidden", &message.to_string())
    }

    /// 422 Invalid with a message: the object is invalid.
    pub fn invalid(message: impl fmt::Display) -> Self {
        Self::of_status(422, "Invalid", &message.to_string())
    }

    /// 500 with a message: the webhook could not decide (`admission.Errored`).
    pub fn errored(message: impl fmt::Display) -> Self {
        Self::of_status(500, "InternalError", &message.to_string())
    }

    /// Adds warnings for the client.
    #[must_use]
    pub fn with_warnings(mut self, warnings: impl IntoIterator<Item = String>) -> Self {
        self.warnings.extend(warnings);
        self
    }

    pub(super) fn of_status(code: u16, reason: &str, message: &str) -> Self {
        Self {
            status: Box::new(Status::failure(message, reason).with_code(code)),
            warnings: Vec::new(),
        }
    }

    pub(super) fn into_parts(self) -> (Status, Vec<String>) {
        (*self.status, self.warnings)
    }
}

// It does not implement `Error`, so that every error can be converted to it.
impl<E: Into<BoxError>> From<E> for Denial {
    fn from(source: E) -> Self {
        let source = source.into();
        let status = match (
            source.downcast_ref::<crate::Error>(),
            source.downcast_ref::<kube::Error>(),
        ) {
            (Some(err), _) => err.status().cloned().map(Box::new),
            (None, Some(kube::Error::Api(status))) => Some(status.clone()),
            (None, Some(_) | None) => None,
        };
        match status {
            Some(status) => Self {
                status,
                warnings: Vec::new(),
            },
            None => Self::new(source),
        }
    }
}

impl fmt::Debug for Denial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Denial({}: {})", self.status.code, self.status.message)
    }
}

impl fmt::Display for Denial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.status.message)
    }
}
