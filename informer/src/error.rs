//! `Error`: what may go wrong between a cache and the API server.

use std::fmt;

/// Why a request failed.
///
/// It is opaque, so that new kinds of failures break nobody; what a caller may act on has a question of its own.
///
/// ```
/// use informer::Error;
/// use kube::core::Status;
///
/// let status = Status::failure("too old resource version", "Expired").with_code(410);
/// let err = Error::from(kube::Error::Api(Box::new(status)));
/// assert!(err.is_expired() && !err.is_conflict());
/// ```
pub struct Error {
    source: Box<kube::Error>,
}

impl Error {
    /// 410: what was asked for is no longer remembered. Only a new list helps.
    pub fn is_expired(&self) -> bool {
        self.code() == Some(410)
    }

    /// 409 with the reason `Conflict`: somebody else wrote meanwhile. Read again, then write again.
    pub fn is_conflict(&self) -> bool {
        self.code() == Some(409) && self.reason() == Some("Conflict")
    }

    /// 409 with the reason `AlreadyExists`: there is an object of this name.
    pub fn is_already_exists(&self) -> bool {
        self.code() == Some(409) && self.reason() == Some("AlreadyExists")
    }

    /// 404: there is no such object, or no such type.
    pub fn is_not_found(&self) -> bool {
        self.code() == Some(404)
    }

    /// 429: the server asks to wait.
    pub fn is_too_many_requests(&self) -> bool {
        self.code() == Some(429)
    }

    /// The HTTP status, if the server answered.
    pub fn code(&self) -> Option<u16> {
        self.status().map(|status| status.code)
    }

    /// The reason of the server's Status, if it answered with one.
    pub fn reason(&self) -> Option<&str> {
        self.status().map(|status| status.reason.as_str())
    }

    fn status(&self) -> Option<&kube::core::Status> {
        match &*self.source {
            kube::Error::Api(status) => Some(status),
            _ => None,
        }
    }
}

impl From<kube::Error> for Error {
    fn from(source: kube::Error) -> Self {
        Self {
            source: Box::new(source),
        }
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.source.fmt(f)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.source.fmt(f)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.source()
    }
}
