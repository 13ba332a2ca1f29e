//! Predicates for errors that also check wrapped errors (client-go's `apierrors`).
//!
//! Each predicate takes any error, and searches it and its chain of [sources](std::error::Error::source) for an
//! [`Error`], a [`kube::Error`] or a [`Status`] of the server. The predicates therefore also support errors of a kube
//! client, custom error types that have one of these errors as a source, and `anyhow::Error` (with `as_ref()`).
//!
//! ```
//! use std::time::Duration;
//! use informer::errors;
//! use informer::reconcile::{Action, ReconcileError};
//! use k8s_openapi::api::core::v1::ConfigMap;
//! use kube::Api;
//!
//! async fn create(maps: Api<ConfigMap>, map: &ConfigMap) -> Result<Action, ReconcileError> {
//!     match maps.create(&Default::default(), map).await {
//!         Ok(_) => Ok(Action::await_change()),
//!         Err(err) if errors::is_already_exists(&err) => Ok(Action::await_change()),
//!         // The server would refuse a retry as well.
//!         Err(err) if errors::is_invalid(&err) => Err(ReconcileError::terminal(err)),
//!         // An administrator has to grant the permission; try again later.
//!         Err(err) if errors::is_forbidden(&err) => Ok(Action::requeue(Duration::from_secs(600))),
//!         Err(err) => Err(err.into()),
//!     }
//! }
//! ```

use std::error::Error as StdError;
use std::io;
use std::iter::successors;

use kube::core::Status;
use tokio::time::error::Elapsed;

use crate::Error;
use crate::error::Cause;

/// Reference to any error, as returned by `std::error::Error::source`.
type AnyError<'a> = &'a (dyn StdError + 'static);

/// Returns `true` for status 403 (`Forbidden`): the client lacks a permission.
pub fn is_forbidden(err: AnyError<'_>) -> bool {
    is_answer(err, 403, "Forbidden")
}

/// Returns `true` for status 401 (`Unauthorized`): the server does not accept the client's credentials.
pub fn is_unauthorized(err: AnyError<'_>) -> bool {
    is_answer(err, 401, "Unauthorized")
}

/// Returns `true` for status 422 (`Invalid`): the object is invalid. Sending the same request again fails as well.
pub fn is_invalid(err: AnyError<'_>) -> bool {
    is_answer(err, 422, "Invalid")
}

/// Returns `true` for status 404 (`NotFound`): the object or its type does not exist.
pub fn is_not_found(err: AnyError<'_>) -> bool {
    status(err).is_some_and(|it| it.code == 404)
}

/// Returns `true` for status 409 with the reason `AlreadyExists`: an object with this name exists.
pub fn is_already_exists(err: AnyError<'_>) -> bool {
    status(err).is_some_and(|it| it.code == 409 && it.reason == "AlreadyExists")
}

/// Returns `true` for status 409 with the reason `Conflict`: another client has changed the object in the meantime.
/// Read the object and write it again.
pub fn is_conflict(err: AnyError<'_>) -> bool {
    status(err).is_some_and(|it| it.code == 409 && it.reason == "Conflict")
}

/// Returns `true` for status 410 and for the reasons `Expired` and `Gone`: the requested version is no longer
/// available, and a new list is required.
pub fn is_expired(err: AnyError<'_>) -> bool {
    is_answer(err, 410, "Expired") || is_answer(err, 410, "Gone")
}

/// Returns `true` for status 429 (`TooManyRequests`): the client should retry later. The server also sends this status
/// for evictions that a PodDisruptionBudget forbids.
pub fn is_too_many_requests(err: AnyError<'_>) -> bool {
    is_answer(err, 429, "TooManyRequests")
}

/// Returns `true` if a time limit was exceeded: a limit of the server (status 504, or the reason `Timeout` or
/// `ServerTimeout`), of this library, of a socket, or of `tokio::time::timeout`. A write may have been executed; see
/// [`is_unknown_outcome`].
pub fn is_timeout(err: AnyError<'_>) -> bool {
    is_answer(err, 504, "Timeout")
        || status(err).is_some_and(|it| it.reason == "ServerTimeout")
        || chain(err).any(|it| {
            it.is::<Elapsed>()
                || it.downcast_ref().is_some_and(Error::is_unanswered)
                || it
                    .downcast_ref()
                    .is_some_and(|it: &io::Error| it.kind() == io::ErrorKind::TimedOut)
        })
}

/// Returns `true` if the server may have executed a write although the request failed: the response was lost, invalid
/// or late, or the server or a proxy responded with 502, 504 or the reason `Timeout`. Read the object before writing
/// again. If a create was executed, repeating it fails with an error for which [`is_already_exists`] returns `true`.
///
/// Returns `false` if the request was certainly not executed: the server or a fence refused it, or no process listens
/// at the server's address.
pub fn is_unknown_outcome(err: AnyError<'_>) -> bool {
    for link in chain(err) {
        if link.is::<Elapsed>() {
            return true;
        }
        if let Some(err) = link.downcast_ref::<Error>() {
            return match err.cause() {
                Cause::Unanswered => true,
                Cause::Request(err) => is_outcome_unknown(err),
                Cause::Failed(source) => is_unknown_outcome(source),
                Cause::Fenced | Cause::LostLeadership | Cause::Gated | Cause::Decode | Cause::Refused => false,
            };
        }
        if let Some(err) = link.downcast_ref::<kube::Error>() {
            return is_outcome_unknown(err);
        }
        if let Some(status) = as_status(link) {
            return is_given_up(status);
        }
    }
    false
}

/// Returns `true` if a write was refused before it was sent, because this process is no longer the leader, or because a
/// different replica now owns the key. The write was not executed, and the task that sent it should end.
pub fn is_fenced(err: AnyError<'_>) -> bool {
    has_cause(err, |it| matches!(it, Cause::Fenced))
}

/// Returns `true` if the manager has ended because this process lost its leader election Lease. Processes then usually
/// exit and are restarted.
pub fn is_lost_leadership(err: AnyError<'_>) -> bool {
    has_cause(err, |it| matches!(it, Cause::LostLeadership))
}

/// Returns `true` if a cache did not receive a write of this process in time: a read of
/// [`CachedClient`](crate::runtime::CachedClient) failed, or a key waited for too long (see
/// [`Writes`](crate::reconcile::Writes)). A retry succeeds once the cache is up to date.
pub fn is_gated(err: AnyError<'_>) -> bool {
    has_cause(err, |it| matches!(it, Cause::Gated))
}

/// Returns the server's Status, if the server responded with a Status.
pub fn status(err: AnyError<'_>) -> Option<&Status> {
    chain(err).find_map(|link| match link.downcast_ref::<Error>().map(Error::cause) {
        Some(Cause::Request(kube::Error::Api(status))) => Some(&**status),
        _ => as_status(link),
    })
}

/// Returns the error and its sources, outermost first.
pub(crate) fn chain(err: AnyError<'_>) -> impl Iterator<Item = AnyError<'_>> {
    successors(Some(err), source)
}

fn source<'a>(err: &AnyError<'a>) -> Option<AnyError<'a>> {
    let err: AnyError<'a> = *err;
    err.source()
}

fn is_answer(err: AnyError<'_>, code: u16, reason: &str) -> bool {
    status(err).is_some_and(|it| it.code == code || it.reason == reason)
}

fn has_cause(err: AnyError<'_>, is_it: impl Fn(Cause<'_>) -> bool) -> bool {
    chain(err).any(|it| it.downcast_ref().is_some_and(|it: &Error| is_it(it.cause())))
}

fn as_status(link: AnyError<'_>) -> Option<&Status> {
    if let Some(kube::Error::Api(status)) = link.downcast_ref() {
        return Some(status);
    }
    // A transparent wrapper of a kube error removes the kube error from the chain of sources, but not the Status, which
    // is the source of the kube error.
    link.downcast_ref()
        .or_else(|| link.downcast_ref::<Box<Status>>().map(|it| &**it))
}

fn is_outcome_unknown(err: &kube::Error) -> bool {
    match err {
        kube::Error::Api(status) => is_given_up(status),
        kube::Error::Service(source) => {
            let is_ours = chain(&**source).any(|it| it.is::<Error>());
            if is_ours {
                is_unknown_outcome(&**source)
            } else {
                !crate::error::is_connection_refused(err)
            }
        }
        kube::Error::HyperError(_)
        | kube::Error::ReadEvents(_)
        | kube::Error::FromUtf8(_)
        | kube::Error::SerdeError(_) => true,
        _ => false,
    }
}

/// Returns `true` if the server exceeded a time limit, or a proxy did not receive a valid response in time, so that the
/// request may still be in progress.
fn is_given_up(status: &Status) -> bool {
    matches!(status.code, 502 | 504) || status.reason == "Timeout"
}
