//! Shared parts of all writes: the request, its warnings, and the answer.

use std::sync::{Arc, Mutex, PoisonError};

use super::Registry;
use super::kinds::strategy::Context;
use super::managed_fields::{self, Manager, Types};
use super::scheme::Row;
use super::scheme::codec;
use crate::api::object::Object;
use crate::api::options::WriteOptions;
use crate::api::request_info::RequestInfo;
use crate::api::status::Status;
use crate::api::streams::Connection;
use crate::api::user::UserInfo;
use crate::storage::Stored;

/// A write, taken apart by `endpoints`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WriteRequest<'a> {
    /// The resource in the version asked for.
    pub(crate) row: &'a Row,
    /// Verb, namespace, name, subresource.
    pub(crate) info: &'a RequestInfo,
    /// Options of the query.
    pub(crate) options: &'a WriteOptions,
    /// `User-Agent`, which names the manager where the query does not (rule H7).
    pub(crate) user_agent: &'a str,
    /// User of the write.
    pub(crate) user: &'a UserInfo,
    /// Records the warnings for the client.
    pub(crate) warnings: &'a Warnings,
}

/// Warnings for the client of one request, which it gets whether the request succeeds or fails (rule A30).
#[derive(Debug, Default)]
pub(crate) struct Warnings(Mutex<Vec<String>>);

impl Warnings {
    pub(crate) fn add(&self, text: String) {
        self.extend([text]);
    }

    pub(crate) fn extend(&self, texts: impl IntoIterator<Item = String>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend(texts);
    }

    /// Takes the warnings recorded so far, in their order.
    pub(crate) fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Answer of a write.
#[derive(Debug)]
pub(crate) enum Answer {
    /// An object as it is stored.
    Stored(Arc<Stored>),
    /// An object that is not stored: a dry run, a deleted object, a Scale. In the version asked for, with its kind.
    Object(Object),
    /// A Status that is no failure.
    Status(Box<SuccessStatus>),
    /// Plain text: what containers have written.
    Text(String),
    /// A connection, which is not answered with a body: that of a Pod.
    Connection(Connection),
    /// Nothing at all: 204.
    Nothing,
}

/// `{"kind":"Status",…,"status":"Success"}` (rules B16, I4).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SuccessStatus {
    /// The name of the object, if the Status has details.
    pub(crate) details: Option<SuccessDetails>,
    /// `code`; left out where 0.
    pub(crate) code: u16,
}

/// Details of a deletion.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SuccessDetails {
    pub(crate) name: String,
    pub(crate) group: String,
    pub(crate) kind: String,
    pub(crate) uid: String,
}

/// A write that succeeded.
#[derive(Debug)]
pub(crate) struct Written {
    /// The body.
    pub(crate) answer: Answer,
    /// 200; 201 where an object was created; 202 where one is still to go.
    pub(crate) code: u16,
}

impl Written {
    /// An existing object changed.
    pub(crate) fn updated(answer: Answer) -> Self {
        Self { answer, code: 200 }
    }
}

impl WriteRequest<'_> {
    /// Returns the manager of the fields this write changes.
    pub(crate) fn manager<'b>(&'b self, name: &'b str, now: &'b str) -> Manager<'b> {
        let reset = self.row.unowned_paths(&self.info.subresource);
        Manager {
            name,
            api_version: &self.row.api_version,
            subresource: &self.info.subresource,
            time: now,
            reset,
        }
    }

    /// Calls `work` with the type of the object, in this version and in those its owners may have written in.
    pub(crate) fn with_types<T>(&self, work: impl FnOnce(&Types<'_, '_>) -> T) -> T {
        let row = self.row;
        work(&Types {
            schema: row.schema(),
            other: &|object, version| row.in_version(object, version),
        })
    }

    /// The circumstances of the write, for strategies.
    pub(crate) fn conditions<'b>(&'b self, subresource: &'b str) -> Conditions<'b> {
        Conditions {
            subresource,
            user: Some(self.user),
            dry_run: self.options.dry_run,
        }
    }

    /// The manager's name: the parameter, else the first word of the user agent.
    pub(crate) fn manager_name(&self) -> String {
        managed_fields::manager_name(self.options.field_manager.as_deref(), Some(self.user_agent))
    }
}

/// Circumstances of a write that strategies may consult; those of the server's own writes by default.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Conditions<'a> {
    /// The subresource written through; empty for the resource itself.
    pub(crate) subresource: &'a str,
    /// User of the write; `None` for the server's own.
    pub(crate) user: Option<&'a UserInfo>,
    /// Set if nothing is to be stored.
    pub(crate) dry_run: bool,
}

impl Registry {
    /// Runs `work` with what strategies may consult.
    pub(super) fn with_context<T>(&self, conditions: Conditions<'_>, work: impl FnOnce(&Context<'_>) -> T) -> T {
        let stored = |group: &str, resource: &str| self.known_objects(group, resource);
        work(&Context {
            entropy: &self.entropy,
            stored: &stored,
            subresource: conditions.subresource,
            user: conditions.user,
            dry_run: conditions.dry_run,
        })
    }

    /// The answer that shows an object which was not stored, in the version asked for.
    pub(super) fn unstored(&self, row: &Row, mut object: Object) -> Answer {
        row.show_as_requested(&mut object);
        Answer::Object(object)
    }

    /// An object as it is stored, in the version of `row`.
    pub(super) fn decode(&self, row: &Row, stored: &Stored) -> Object {
        codec::decode(row, stored)
    }
}

/// Fails with what validation found.
pub(super) fn refuse(row: &Row, object: &Object, errors: &crate::api::field::FieldErrors) -> Result<(), Status> {
    if errors.is_empty() {
        Ok(())
    } else {
        Err(Status::invalid(&row.typed_kind(), object.name(), errors))
    }
}
