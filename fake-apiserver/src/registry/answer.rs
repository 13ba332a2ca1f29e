//! The responses to writes.

use std::sync::Arc;

use super::reader::Reader;
use super::scheme::Row;
use crate::api::object::Object;
use crate::api::status::Status;
use crate::api::streams::Connection;
use crate::storage::Stored;

/// Response to a write.
#[derive(Debug)]
pub(crate) enum Answer {
    /// A stored object, which is encoded in the requested version.
    Stored(Arc<Stored>),
    /// An object in the requested version, with its kind, such as the result of a dry run or a deletion, or a Scale.
    Object(Object),
    /// A Status that reports success.
    Status(Box<SuccessStatus>),
    /// Plain text: the output of containers.
    Text(String),
    /// A connection to a Pod; the response does not have a body.
    Connection(Connection),
    /// Status code 204, without a body.
    Nothing,
}

/// `{"kind":"Status",…,"status":"Success"}` (rules B16, I4).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SuccessStatus {
    /// Details of the deleted object; `None` if the Status omits them.
    pub(crate) details: Option<SuccessDetails>,
    /// `code`; omitted if 0.
    pub(crate) code: u16,
}

/// Details of the deleted object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SuccessDetails {
    pub(crate) name: String,
    pub(crate) group: String,
    pub(crate) kind: String,
    pub(crate) uid: String,
}

/// The response to a successful write.
#[derive(Debug)]
pub(crate) struct Written {
    /// The body of the response.
    pub(crate) answer: Answer,
    /// The status code, such as 200, 201 for a created object, or 202 if a deletion is pending. Not used for
    /// [`Answer::Nothing`] and [`Answer::Connection`].
    pub(crate) code: u16,
}

impl Written {
    /// Creates the response for a changed object, with status code 200.
    pub(crate) fn updated(answer: Answer) -> Self {
        Self { answer, code: 200 }
    }

    /// Converts a stored object to the version of `row` for the response.
    pub(super) async fn converted(self, reader: &Reader, row: &Row) -> Result<Self, Status> {
        if let Answer::Stored(stored) = &self.answer {
            reader.convert_stored(row, std::slice::from_ref(stored)).await?;
        }
        Ok(self)
    }
}

impl Answer {
    /// Creates a response with an object that was not stored, converted to the requested version.
    pub(super) fn unstored(row: &Row, mut object: Object) -> Self {
        row.show_unstored(&mut object);
        Self::Object(object)
    }
}

/// Fails with 422 Invalid if validation found errors.
pub(super) fn refuse(row: &Row, object: &Object, errors: &crate::api::field::FieldErrors) -> Result<(), Status> {
    if errors.is_empty() {
        Ok(())
    } else {
        Err(Status::invalid(&row.typed_kind(), object.name(), errors))
    }
}
