//! The spans of webhooks, which give context to log lines and panics of user code.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use tracing::{Span, error_span};

use super::review::AdmissionRequest;
use crate::error::text_of_panic;

/// Function that creates the span of an admission request.
pub(super) type SpanOf = Arc<dyn Fn(&AdmissionRequest) -> Span + Send + Sync>;

/// Creates the span of a request to the webhook at `path`. If the user's function panics, returns a disabled span.
pub(super) fn of_admission(span_of: Option<&SpanOf>, path: &str, request: &AdmissionRequest) -> Span {
    let Some(span_of) = span_of else {
        return admission(path, request);
    };
    std::panic::catch_unwind(AssertUnwindSafe(|| span_of(request))).unwrap_or_else(|panic| {
        let (uid, panic) = (&request.uid, text_of_panic(&*panic));
        tracing::error!(path, uid, panic, "the function that creates spans panicked");
        Span::none()
    })
}

/// Creates the default span. The level is ERROR, so that a subscriber that only shows errors includes the fields. The
/// parent is the span that was active when the request arrived.
fn admission(path: &str, request: &AdmissionRequest) -> Span {
    error_span!(
        target: "informer::webhook",
        "admission",
        path,
        uid = request.uid,
        operation = ?request.operation,
        group = request.resource.group,
        version = request.resource.version,
        resource = request.resource.resource,
        subresource = some(&request.sub_resource),
        namespace = some(&request.namespace),
        name = some(&request.name),
        user = request.user_info.username,
        dry_run = request.dry_run,
    )
}

/// Creates the span of a conversion request.
pub(super) fn conversion(uid: &str, desired_version: &str) -> Span {
    error_span!(target: "informer::webhook", "conversion", uid, desired_version)
}

fn some(text: &str) -> Option<&str> {
    (!text.is_empty()).then_some(text)
}
