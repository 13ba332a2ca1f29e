//! `Error`: failures of requests, of components such as informers, and of operations that the library refuses.

use std::any::Any;
use std::fmt;
use std::time::Duration;

use crate::errors;

/// A boxed error of any type.
pub type BoxError = Box<dyn std::error::Error + Send + Sync + 'static>;

/// An error from a request to the API server, from a component such as an informer or the manager, or from an operation
/// that the library refused.
///
/// The type is opaque, so that new kinds of failures do not break callers. It has a predicate for each kind of failure
/// that a caller may handle. The predicates in [`errors`](crate::errors) also check wrapped errors and other error
/// types.
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
    kind: Box<Kind>,
}

enum Kind {
    /// A request failed, or an ERROR event ended a watch.
    Request(kube::Error),
    /// Data could not be decoded or encoded.
    Decode { what: String, source: serde_json::Error },
    /// A request did not receive a response in time.
    Unanswered { what: String, limit: Duration },
    /// A component of the process, such as a runnable, failed.
    Failed { what: String, source: BoxError },
    /// A write was not sent, because this process is no longer permitted to write.
    Fenced(String),
    /// This process lost the leader election Lease.
    LostLeadership(String),
    /// A cache did not receive a write of this process in time.
    Gated(String),
    /// The library refused an operation; contains the reason.
    Refused(String),
}

/// Kind of an error without its details, for the predicates.
pub(crate) enum Cause<'a> {
    Request(&'a kube::Error),
    Decode,
    Unanswered,
    Failed(&'a (dyn std::error::Error + 'static)),
    Fenced,
    LostLeadership,
    Gated,
    Refused,
}

impl Error {
    /// Returns `true` for status 403 (`Forbidden`): the client lacks a permission.
    pub fn is_forbidden(&self) -> bool {
        errors::is_forbidden(self)
    }

    /// Returns `true` for status 401 (`Unauthorized`): the server does not accept the client's credentials.
    pub fn is_unauthorized(&self) -> bool {
        errors::is_unauthorized(self)
    }

    /// Returns `true` for status 422 (`Invalid`): the object is invalid. Sending the same request again fails as well.
    pub fn is_invalid(&self) -> bool {
        errors::is_invalid(self)
    }

    /// Returns `true` for status 410 and for the reasons `Expired` and `Gone`: the requested version is no longer
    /// available, and a new list is required.
    pub fn is_expired(&self) -> bool {
        errors::is_expired(self)
    }

    /// Returns `true` for status 409 with the reason `Conflict`: another client has changed the object in the meantime.
    /// Read the object and write it again.
    pub fn is_conflict(&self) -> bool {
        errors::is_conflict(self)
    }

    /// Returns `true` for status 409 with the reason `AlreadyExists`: an object with this name exists.
    pub fn is_already_exists(&self) -> bool {
        errors::is_already_exists(self)
    }

    /// Returns `true` for status 404 (`NotFound`): the object or its type does not exist.
    pub fn is_not_found(&self) -> bool {
        errors::is_not_found(self)
    }

    /// Returns `true` for status 429 (`TooManyRequests`): the client should retry later.
    pub fn is_too_many_requests(&self) -> bool {
        errors::is_too_many_requests(self)
    }

    /// Returns `true` if a time limit was exceeded; see [`errors::is_timeout`].
    pub fn is_timeout(&self) -> bool {
        errors::is_timeout(self)
    }

    /// Returns `true` if a write failed but the server may have executed it; see [`errors::is_unknown_outcome`].
    pub fn is_unknown_outcome(&self) -> bool {
        errors::is_unknown_outcome(self)
    }

    /// Returns `true` if a write was refused before it was sent: this process is no longer the leader, or another
    /// replica now owns the key.
    pub fn is_fenced(&self) -> bool {
        errors::is_fenced(self)
    }

    /// Returns `true` if the manager has ended because this process lost its leader election Lease.
    pub fn is_lost_leadership(&self) -> bool {
        errors::is_lost_leadership(self)
    }

    /// Returns `true` if a cache did not receive a write of this process in time.
    pub fn is_gated(&self) -> bool {
        errors::is_gated(self)
    }

    /// Returns `true` if no process listens at the server's address.
    pub fn is_connection_refused(&self) -> bool {
        match &*self.kind {
            Kind::Request(err) => is_connection_refused(err),
            _ => false,
        }
    }

    /// Returns `true` if the server has not reached the requested version yet. Servers before 1.18.6 only report this
    /// in the message.
    pub fn is_version_too_large(&self) -> bool {
        const WORDS: &str = "Too large resource version";
        let Some(status) = self.status() else {
            return false;
        };
        let causes = status
            .details
            .as_ref()
            .map(|details| details.causes.as_slice())
            .unwrap_or_default();
        causes.iter().any(|it| it.reason == "ResourceVersionTooLarge")
            || (status.reason == "Timeout"
                && (status.message.contains(WORDS) || causes.iter().any(|it| it.message == WORDS)))
    }

    /// Returns the HTTP status code of the server's Status, if the server responded with a Status.
    pub fn code(&self) -> Option<u16> {
        self.status().map(|status| status.code)
    }

    /// Returns the reason of the server's Status, if the server responded with a Status.
    pub fn reason(&self) -> Option<&str> {
        self.status().map(|status| status.reason.as_str())
    }

    /// Returns `true` if a request did not receive a response within its time limit. The server may have executed the
    /// request.
    pub fn is_unanswered(&self) -> bool {
        matches!(&*self.kind, Kind::Unanswered { .. })
    }

    /// Returns `true` if the library could not decode or encode data, for example because an object does not have the
    /// expected type.
    pub fn is_decode(&self) -> bool {
        matches!(&*self.kind, Kind::Decode { .. })
    }

    /// Returns the server's Status, if the server responded with a Status.
    pub fn status(&self) -> Option<&kube::core::Status> {
        errors::status(self)
    }

    /// Returns an error for data that could not be decoded or encoded; `what` describes the data.
    pub(crate) fn decode(what: impl Into<String>, source: serde_json::Error) -> Self {
        let what = what.into();
        Self {
            kind: Box::new(Kind::Decode { what, source }),
        }
    }

    /// Returns an error for a request that did not receive a response within `limit`; `what` describes the request.
    pub(crate) fn unanswered(what: impl Into<String>, limit: Duration) -> Self {
        let what = what.into();
        Self {
            kind: Box::new(Kind::Unanswered { what, limit }),
        }
    }

    /// Returns an error for an operation that failed with `source`; `what` describes the operation.
    pub(crate) fn failed(what: impl Into<String>, source: BoxError) -> Self {
        let what = what.into();
        Self {
            kind: Box::new(Kind::Failed { what, source }),
        }
    }

    /// Returns an error for a write that is no longer permitted. `why` describes the write and the reason.
    pub(crate) fn fenced(why: impl Into<String>) -> Self {
        Self {
            kind: Box::new(Kind::Fenced(why.into())),
        }
    }

    /// Returns an error for a lost Lease. `why` describes how it was lost.
    pub(crate) fn lost_leadership(why: impl Into<String>) -> Self {
        Self {
            kind: Box::new(Kind::LostLeadership(why.into())),
        }
    }

    /// Returns an error for a cache that is not up to date. `why` describes the cache and the missing write.
    pub(crate) fn gated(why: impl Into<String>) -> Self {
        Self {
            kind: Box::new(Kind::Gated(why.into())),
        }
    }

    pub(crate) fn cause(&self) -> Cause<'_> {
        match &*self.kind {
            Kind::Request(err) => Cause::Request(err),
            Kind::Decode { .. } => Cause::Decode,
            Kind::Unanswered { .. } => Cause::Unanswered,
            Kind::Failed { source, .. } => Cause::Failed(&**source),
            Kind::Fenced(_) => Cause::Fenced,
            Kind::LostLeadership(_) => Cause::LostLeadership,
            Kind::Gated(_) => Cause::Gated,
            Kind::Refused(_) => Cause::Refused,
        }
    }

    /// Returns an error for an operation that the library refuses. `why` describes the operation and the reason.
    pub(crate) fn refused(why: impl Into<String>) -> Self {
        Self {
            kind: Box::new(Kind::Refused(why.into())),
        }
    }

    /// Returns the error for a Status of the server.
    pub(crate) fn from_status(status: kube::core::Status) -> Self {
        kube::Error::Api(Box::new(status)).into()
    }
}

impl From<kube::Error> for Error {
    fn from(source: kube::Error) -> Self {
        Self {
            kind: Box::new(Kind::Request(source)),
        }
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.kind {
            Kind::Request(source) => source.fmt(f),
            _ => write!(f, "Error({self})"),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.kind {
            Kind::Request(source) => write_request(f, source),
            Kind::Decode { what, source } => write!(f, "{what}: {source}"),
            Kind::Unanswered { what, limit } => write!(f, "{what}: no response within {limit:?}"),
            Kind::Failed { what, source } => write!(f, "{what}: {source}"),
            Kind::Fenced(why) | Kind::LostLeadership(why) | Kind::Gated(why) | Kind::Refused(why) => f.write_str(why),
        }
    }
}

/// Writes the message of a kube error. A Status is not formatted by kube, because kube's message ends with its `Debug`
/// form.
pub(crate) fn write_request(f: &mut impl fmt::Write, err: &kube::Error) -> fmt::Result {
    match err {
        kube::Error::Api(status) => write_status(f, status),
        err => write!(f, "{err}"),
    }
}

/// Writes a Status as `pods is forbidden: … (403 Forbidden)`.
fn write_status(f: &mut impl fmt::Write, status: &kube::core::Status) -> fmt::Result {
    let (message, reason) = (status.message.trim(), status.reason.as_str());
    let message = if message.is_empty() {
        "the server failed"
    } else {
        message
    };
    match (status.code, reason) {
        (0, "") => write!(f, "{message}"),
        (0, reason) => write!(f, "{message} ({reason})"),
        (code, "") => write!(f, "{message} ({code})"),
        (code, reason) => write!(f, "{message} ({code} {reason})"),
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &*self.kind {
            Kind::Request(source) => source.source(),
            Kind::Decode { source, .. } => Some(source),
            Kind::Failed { source, .. } => Some(&**source),
            _ => None,
        }
    }
}

/// Returns `true` if no process listens at the server's address, so the request was not sent.
pub(crate) fn is_connection_refused(err: &kube::Error) -> bool {
    let mut source: Option<&(dyn std::error::Error + 'static)> = Some(err);
    while let Some(err) = source {
        if let Some(err) = err.downcast_ref::<std::io::Error>()
            && err.kind() == std::io::ErrorKind::ConnectionRefused
        {
            return true;
        }
        source = err.source();
    }
    false
}

/// Returns the message of a panic.
pub(crate) fn text_of_panic(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("(no message)")
}
