//! Closures of a test that change or refuse writes.

use std::sync::Arc;

use futures::future::BoxFuture;

use crate::api::admission::{AdmissionRequest, AdmissionResponse};

type Called = dyn Fn(AdmissionRequest) -> BoxFuture<'static, AdmissionResponse> + Send + Sync;

/// A closure of a test, with a name.
#[derive(Clone)]
pub(crate) struct Hook {
    /// Name of the hook in the messages of denials.
    pub(crate) name: String,
    call: Arc<Called>,
}

impl Hook {
    /// Creates a hook from an asynchronous closure.
    pub(crate) fn new<F, W, R>(name: impl Into<String>, call: F) -> Self
    where
        F: Fn(AdmissionRequest) -> W + Send + Sync + 'static,
        W: Future<Output = R> + Send + 'static,
        R: Into<AdmissionResponse>,
    {
        Self {
            name: name.into(),
            call: Arc::new(move |request| {
                let answer = call(request);
                Box::pin(async move { answer.await.into() })
            }),
        }
    }

    /// Calls the closure.
    pub(super) fn call(&self, request: AdmissionRequest) -> BoxFuture<'static, AdmissionResponse> {
        (self.call)(request)
    }
}

impl std::fmt::Debug for Hook {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Hook").field("name", &self.name).finish_non_exhaustive()
    }
}

/// All closures, in call order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Hooks {
    /// Closures that may change an object.
    pub(crate) mutating: Vec<Hook>,
    /// Closures that may only refuse an object.
    pub(crate) validating: Vec<Hook>,
}
