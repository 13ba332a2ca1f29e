//! Statuses of refused requests, with kube-apiserver's messages (rules P3, P4).

use crate::api::admission::Denial;
use crate::api::status::Status;

/// Creates the response to a request that the webhook or closure `name` denied. Codes below 400 become 400, and codes
/// above 599 become 599.
pub(super) fn denied(name: &str, denial: Denial) -> Status {
    let by = format!("admission webhook \"{name}\" denied the request");
    let message = match (denial.message.as_str(), denial.reason.as_str()) {
        ("", "") => format!("{by} without explanation"),
        ("", reason) => format!("{by}: {reason}"),
        (message, _) => format!("{by}: {message}"),
    };
    let mut status = Status::new(denial.code.clamp(400, 599), denial.reason, message);
    status.details = denial.details;
    status
}

/// Creates the response to a request after a failed webhook call under failurePolicy Fail.
pub(super) fn call_failed(name: &str, why: &str) -> Status {
    Status::internal(format!("failed calling webhook \"{name}\": {why}"))
}
