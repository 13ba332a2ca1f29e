//! JSON patches, merge patches and strategic merge patches.
//!
//! The functions apply a patch to a document, and return the patched document. They do not depend on storage or on the
//! rules of objects: the result must still be decoded, defaulted and validated.

mod go_json;
mod json;
mod merge;
mod shown;
mod ordering;
mod strategic;

#[cfg(test)]
mod tests;

#[cfg(test)]
use go_json::parse_json;
pub(crate) use json::{Inapplicable, json_patch, json_patch_or_why};
pub(crate) use merge::merge_patch;
pub(crate) use shown::shown_document;
pub(crate) use strategic::strategic_patch;

use crate::api::json::Value;
use crate::api::status::{Status, StatusDetails};

/// The outcome of a patch.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Patched {
    /// The patched document.
    pub(crate) value: Value,
    /// Errors of the body that only strict field validation reports, such as `duplicate field "data.k"`.
    pub(crate) strict_errors: Vec<String>,
    /// The patch as printed in errors about the result, for strategic patches. `None` for other patches, for which the
    /// caller prints the patched document.
    pub(crate) shown: Option<String>,
}

/// Returns the error 422 for a patch that can be parsed but not applied. It does not contain the reason (rule G2).
fn cannot_apply() -> Status {
    Status::new(
        422,
        "Invalid",
        "the server rejected our request due to an error in our request",
    )
    .with_details(StatusDetails::default())
}
