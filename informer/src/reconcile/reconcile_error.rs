//! `ReconcileError`: an error of a reconcile, which may be terminal.

use std::error::Error as StdError;
use std::fmt::{self, Write as _};

use crate::error::{BoxError, write_request};
use crate::errors::chain;

/// Error of a reconcile. The `?` operator converts any error to it. The key is retried with an increasing delay, unless
/// the error or one of its sources is a [`TerminalError`].
///
/// The message contains the error and its sources, so that a log line shows both the context and the cause.
pub struct ReconcileError {
    source: BoxError,
    is_terminal: bool,
}

impl ReconcileError {
    /// Creates an error that a retry cannot fix: the key is not retried until the next event (controller-runtime's
    /// `TerminalError`). Functions with a different error type can return a [`TerminalError`] instead.
    pub fn terminal(source: impl Into<BoxError>) -> Self {
        TerminalError::new(source).into()
    }

    /// Returns `true` if the key must not be retried.
    pub fn is_terminal(&self) -> bool {
        self.is_terminal
    }

    /// Returns the wrapped error, for the predicates in [`errors`](crate::errors).
    pub fn get_ref(&self) -> &(dyn StdError + Send + Sync + 'static) {
        &*self.source
    }

    /// Returns the wrapped error. If the error is terminal, a new [`ReconcileError`] created from the wrapped error is
    /// terminal as well.
    pub fn into_inner(self) -> BoxError {
        self.source
    }
}

// `ReconcileError` does not implement `Error`, because this blanket conversion would conflict with `From<T> for T`.
impl<E: Into<BoxError>> From<E> for ReconcileError {
    fn from(source: E) -> Self {
        let source = source.into();
        let is_terminal = chain(&*source).any(|it| it.is::<TerminalError>() || it.is::<Mark>());
        Self { source, is_terminal }
    }
}

impl fmt::Debug for ReconcileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.source.fmt(f)
    }
}

impl fmt::Display for ReconcileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = String::new();
        if self.is_terminal {
            text.push_str(TERMINAL);
        }
        for link in chain(&*self.source) {
            let mut next = String::new();
            let answer = link.downcast_ref::<kube::Error>();
            match answer {
                Some(err) => write_request(&mut next, err)?,
                None => write!(next, "{link}")?,
            }
            // Skip sources that the message already contains, because many errors include the message of their source.
            if next.is_empty() || text.contains(&next) || link.is::<Mark>() {
                continue;
            }
            if !text.is_empty() {
                text.push_str(": ");
            }
            text.push_str(&next);
            if let Some(kube::Error::Api(_)) = answer {
                break;
            }
        }
        f.write_str(&text)
    }
}

/// Marks an error that a retry cannot fix (controller-runtime's `reconcile.TerminalError`).
///
/// Any function can return a `TerminalError`, because it implements [`std::error::Error`]. It may be wrapped: a
/// [`ReconcileError`] is terminal if its error or one of the sources is a `TerminalError`.
///
/// ```
/// use informer::reconcile::{ReconcileError, TerminalError};
///
/// /// A custom error type.
/// #[derive(Debug)]
/// struct Failed(TerminalError);
/// # impl std::fmt::Display for Failed {
/// #     fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result { f.write_str("rollout") }
/// # }
///
/// impl std::error::Error for Failed {
///     fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
///         Some(&self.0)
///     }
/// }
///
/// let err = ReconcileError::from(Failed(TerminalError::new("the spec does not specify an image")));
/// assert!(err.is_terminal());
/// assert_eq!(err.to_string(), "terminal error: rollout: the spec does not specify an image");
/// ```
pub struct TerminalError(Mark);

/// Source of a [`TerminalError`], which also marks an error as terminal. It is part of the chain of sources even if a
/// wrapper such as `anyhow::Error` hides the `TerminalError` itself.
struct Mark(BoxError);

const TERMINAL: &str = "terminal error";

impl TerminalError {
    /// Marks an error as terminal.
    pub fn new(source: impl Into<BoxError>) -> Self {
        Self(Mark(source.into()))
    }

    /// Returns the marked error.
    pub fn get_ref(&self) -> &(dyn StdError + Send + Sync + 'static) {
        &*self.0.0
    }

    /// Returns the marked error, without the mark.
    pub fn into_inner(self) -> BoxError {
        self.0.0
    }
}

impl fmt::Debug for TerminalError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TerminalError").field(&self.0.0).finish()
    }
}

impl fmt::Display for TerminalError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(TERMINAL)
    }
}

impl StdError for TerminalError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        Some(&self.0)
    }
}

impl fmt::Debug for Mark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for Mark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the error is terminal and is not retried")
    }
}

impl StdError for Mark {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        Some(&*self.0)
    }
}
