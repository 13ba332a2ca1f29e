//! `Error`: what may go wrong between a cache and the API server.

use std::any::Any;
use std::fmt;
use std::time::Duration;

/// Error of a request.
///
/// It is opaque, so that new kinds of failures break no caller; each kind that a caller may act on has a predicate.
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

/// Kind of an error.
enum Kind {
    /// A request failed, or an ERROR event ended a watch.
    Request(kube::Error),
    /// An answer of another type than the one requested.
    Decode { what: String, source: serde_json::Error },
    /// A request was accepted and not answered in time.
    Unanswered { what: String, limit: Duration },
    /// Something was asked of the library that cannot be; the text says what.
    Refused(String),
}

impl Error {
    /// 410, or the reason `Expired` or `Gone`: the requested version is no longer kept. Only a new list helps.
    pub fn is_expired(&self) -> bool {
        self.code() == Some(410) || matches!(self.reason(), Some("Expired" | "Gone"))
    }

    /// 409 with the reason `Conflict`: another client has written meanwhile. Read again, then write again.
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

    /// Nobody listens where the server should be.
    pub fn is_connection_refused(&self) -> bool {
        match &*self.kind {
            Kind::Request(err) => is_connection_refused(err),
            Kind::Decode { .. } | Kind::Unanswered { .. } | Kind::Refused(_) => false,
        }
    }

    /// The server has not reached the requested version. Servers before 1.19 only say so in the message.
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

    /// The HTTP status, if the server answered.
    pub fn code(&self) -> Option<u16> {
        self.status().map(|status| status.code)
    }

    /// The reason of the server's Status, if it answered with one.
    pub fn reason(&self) -> Option<&str> {
        self.status().map(|status| status.reason.as_str())
    }

    /// A request was accepted and not answered within its time limit. The server may have done what it was asked.
    pub fn is_unanswered(&self) -> bool {
        matches!(&*self.kind, Kind::Unanswered { .. })
    }

    /// Returns `true` if an answer could not be read: an object that is not of its type, for example.
    pub fn is_decode(&self) -> bool {
        matches!(&*self.kind, Kind::Decode { .. })
    }

    /// The server's Status, if it answered with one.
    pub fn status(&self) -> Option<&kube::core::Status> {
        match &*self.kind {
            Kind::Request(kube::Error::Api(status)) => Some(status),
            Kind::Request(_) | Kind::Decode { .. } | Kind::Unanswered { .. } | Kind::Refused(_) => None,
        }
    }

    /// `what` could not be read.
    pub(crate) fn decode(what: impl Into<String>, source: serde_json::Error) -> Self {
        let what = what.into();
        Self {
            kind: Box::new(Kind::Decode { what, source }),
        }
    }

    /// `what` was asked for and not answered within `limit`.
    pub(crate) fn unanswered(what: impl Into<String>, limit: Duration) -> Self {
        let what = what.into();
        Self {
            kind: Box::new(Kind::Unanswered { what, limit }),
        }
    }

    /// The library does not do that; `why` names the object and the reason.
    pub(crate) fn refused(why: impl Into<String>) -> Self {
        Self {
            kind: Box::new(Kind::Refused(why.into())),
        }
    }

    /// An error as the server describes it.
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
            Kind::Decode { .. } | Kind::Unanswered { .. } | Kind::Refused(_) => write!(f, "Error({self})"),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.kind {
            // kube's own text of it ends with all of the Status as Rust writes it.
            Kind::Request(kube::Error::Api(status)) => write_status(f, status),
            Kind::Request(source) => source.fmt(f),
            Kind::Decode { what, source } => write!(f, "{what}: {source}"),
            Kind::Unanswered { what, limit } => write!(f, "{what}: no answer within {limit:?}"),
            Kind::Refused(why) => f.write_str(why),
        }
    }
}

/// `pods is forbidden: … (403 Forbidden)`
fn write_status(f: &mut fmt::Formatter<'_>, status: &kube::core::Status) -> fmt::Result {
    let (message, reason) = (status.message.trim(), status.reason.as_str());
    let message = if message.is_empty() {
        "the server failed"
    } else {
        message
    };
    match (status.code, reason) {
        (0, "") => f.write_str(message),
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
            Kind::Unanswered { .. } | Kind::Refused(_) => None,
        }
    }
}

/// Returns `true` if nothing listens at the server's address: the request was not sent.
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

/// The text of a panic.
pub(crate) fn text_of_panic(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("without a message")
}
