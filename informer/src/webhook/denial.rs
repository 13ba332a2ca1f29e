//! `Denial`: the refusal of a request to a webhook.

use std::fmt;

use kube::core::Status;

use crate::reconcile::BoxError;

/// Refusal of a request. The `?` operator converts any error to a refusal: if the error or one of its sources is an
/// [`Error`](crate::Error) or [`kube::Error`] with a Status of the API server, the refusal has this Status; for all
/// other errors, the status is 403, with the error's message.
pub struct Denial {
    status: Box<Status>,
    warnings: Vec<String>,
}

impl Denial {
    /// Creates a refusal with status 403 Forbidden and a message (controller-runtime's `admission.Denied`).
    pub fn new(message: impl fmt::Display) -> Self {
        Self::of_status(403, "Forbidden", &message.to_string())
    }

    /// Creates a refusal with status 422 Invalid and a message, for an invalid object.
    pub fn invalid(message: impl fmt::Display) -> Self {
        Self::of_status(422, "Invalid", &message.to_string())
    }

    /// Creates a refusal with status 500 and a message, for a failure of the webhook (controller-runtime's
    /// `admission.Errored`).
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

// `Denial` does not implement `Error`, because this blanket conversion would conflict with `From<T> for T`.
impl<E: Into<BoxError>> From<E> for Denial {
    fn from(source: E) -> Self {
        let source = source.into();
        match crate::errors::status(&*source).cloned() {
            Some(status) => Self {
                status: Box::new(status),
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
