//! The span of a reconcile, which gives context to log lines and panics of user code.

use std::any::Any;
use std::fmt;

use tracing::{Span, error_span};

use super::reconciler::Request;
use crate::ObjectKey;

/// Function that creates the span of a reconcile.
pub(crate) type SpanOf<R> = Box<dyn Fn(&Request<R>) -> Span + Send + Sync>;

/// Group and kind of the objects that a controller reconciles; empty if they are not known, for example because `for_`
/// was not called.
#[derive(Clone, Debug, Default)]
pub(crate) struct ControllerKind {
    pub(crate) group: Option<String>,
    pub(crate) kind: Option<String>,
}

/// Cluster and object that a key identifies, if any.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct KeyParts<'a> {
    pub(crate) cluster: Option<&'a str>,
    pub(crate) object: Option<&'a ObjectKey>,
}

/// Returns the function that creates the default span. Each span is a root span. With a parent span that exists as long
/// as the process, all reconciles would belong to one trace.
///
/// The level is ERROR, because a subscriber that only shows errors drops spans of other levels, and with them the name
/// of the object.
pub(crate) fn default_span<R: fmt::Debug + 'static>(
    controller: &str,
    ControllerKind { group, kind }: ControllerKind,
    parts_of: fn(&dyn Any) -> KeyParts<'_>,
) -> SpanOf<R> {
    let controller = controller.to_owned();
    Box::new(move |request| {
        let KeyParts { cluster, object } = parts_of(&request.key);
        error_span!(
            target: "informer::reconcile",
            parent: None,
            "reconcile",
            controller,
            group,
            kind,
            cluster,
            namespace = object.and_then(ObjectKey::namespace),
            name = object.map(ObjectKey::name),
            key = object.is_none().then(|| tracing::field::debug(&request.key)),
            reconcile_id = request.id,
            attempt = u64::from(request.failures) + 1,
        )
    })
}
