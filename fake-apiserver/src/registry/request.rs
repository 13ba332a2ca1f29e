//! A write request with its warnings and annotations, used by all parts of the registry.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::managed_fields::{self, Manager, Types};
use super::scheme::Row;
use super::types::hidden::{self, Hidden};
use crate::api::options::WriteOptions;
use crate::api::request_info::RequestInfo;
use crate::api::user::UserInfo;

/// A write request, parsed by `endpoints`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WriteRequest<'a> {
    /// The resource in the requested version.
    pub(crate) row: &'a Row,
    /// Verb, namespace, name and subresource.
    pub(crate) info: &'a RequestInfo,
    /// Options in the query string.
    pub(crate) options: &'a WriteOptions,
    /// `User-Agent`, which determines the field manager unless the query sets it (rule H7).
    pub(crate) user_agent: &'a str,
    /// The user that sent the request.
    pub(crate) user: &'a UserInfo,
    /// Warnings and annotations of the request.
    pub(crate) remarks: &'a Remarks,
}

/// Warnings for the client of one request, and annotations of its audit event.
#[derive(Debug, Default)]
pub(crate) struct Remarks {
    pub(crate) warnings: Warnings,
    pub(crate) annotations: Annotations,
}

/// Warnings for the client of one request, sent whether the request succeeds or fails (rule A30).
#[derive(Debug, Default)]
pub(crate) struct Warnings(Mutex<Vec<String>>);

impl Warnings {
    pub(crate) fn add(&self, text: String) {
        self.extend([text]);
    }

    pub(crate) fn extend(&self, texts: impl IntoIterator<Item = String>) {
        let mut texts = texts.into_iter();
        if let Some(first) = texts.next() {
            let mut warnings = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            warnings.push(first);
            warnings.extend(texts);
        }
    }

    /// Removes and returns the warnings so far, in order.
    pub(crate) fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Annotations of the audit event of one request. The first value of a key is kept, as in `addAuditAnnotationLocked` of
/// k8s.io/apiserver.
#[derive(Debug, Default)]
pub(crate) struct Annotations(Option<Mutex<Kept>>);

/// Annotations, and the time spent in layers of the server.
#[derive(Debug, Default)]
struct Kept {
    values: BTreeMap<String, Annotation>,
    latencies: Latencies,
}

/// The time spent in layers of the server for one request, by the names of the corresponding audit annotations.
pub(crate) type Latencies = BTreeMap<&'static str, Duration>;

/// The value of an annotation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Annotation {
    pub(crate) value: String,
    /// Set if only audit events with bodies contain the annotation.
    pub(crate) is_of_body: bool,
}

impl Annotations {
    /// Creates annotations for a request with an audit event. [`Annotations::default`] discards all annotations.
    pub(crate) fn kept() -> Self {
        Self(Some(Mutex::default()))
    }

    /// Adds an annotation; its value is only computed if annotations are kept.
    pub(crate) fn add(&self, key: impl Into<String>, value: impl FnOnce() -> String) {
        self.insert(key, false, value);
    }

    /// Adds an annotation that shows a part of a body.
    pub(crate) fn add_of_body(&self, key: impl Into<String>, value: impl FnOnce() -> String) {
        self.insert(key, true, value);
    }

    fn insert(&self, key: impl Into<String>, is_of_body: bool, value: impl FnOnce() -> String) {
        if let Some(kept) = &self.0 {
            let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
            kept.values.entry(key.into()).or_insert_with(|| Annotation {
                value: value(),
                is_of_body,
            });
        }
    }

    /// Removes and returns the annotations so far.
    pub(crate) fn take(&self) -> BTreeMap<String, Annotation> {
        let kept = self.0.as_ref();
        kept.map_or_else(BTreeMap::new, |kept| {
            std::mem::take(&mut kept.lock().unwrap_or_else(PoisonError::into_inner).values)
        })
    }

    /// Records the time spent in webhooks: the sum for mutating webhooks, which are called one by one, and the maximum
    /// for validating ones.
    pub(crate) fn called_webhook(&self, is_mutating: bool, took: Duration) {
        let Some(kept) = &self.0 else { return };
        let latencies = &mut kept.lock().unwrap_or_else(PoisonError::into_inner).latencies;
        if is_mutating {
            *latencies
                .entry("apiserver.latency.k8s.io/mutating-webhook")
                .or_default() += took;
        } else {
            let longest = latencies
                .entry("apiserver.latency.k8s.io/validating-webhook")
                .or_default();
            *longest = took.max(*longest);
        }
    }

    /// Removes and returns the latencies so far.
    pub(crate) fn take_latencies(&self) -> Latencies {
        let kept = self.0.as_ref();
        kept.map_or_else(BTreeMap::new, |kept| {
            std::mem::take(&mut kept.lock().unwrap_or_else(PoisonError::into_inner).latencies)
        })
    }
}

impl WriteRequest<'_> {
    /// Returns the manager that will own the fields changed by this write.
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

    /// Calls `work` with the type of the object, in this version and in the versions of its existing field owners.
    pub(crate) fn with_types<T>(&self, work: impl FnOnce(&Types<'_, '_>) -> T) -> T {
        let row = self.row;
        work(&Types {
            schema: row.schema(),
            other: &|object, version| row.in_version_for_owners(object, version),
        })
    }

    /// Returns the circumstances of the write, for strategies.
    pub(crate) fn conditions<'b>(&'b self, subresource: &'b str) -> Conditions<'b> {
        Conditions {
            subresource,
            user: Some(self.user),
            dry_run: self.options.dry_run,
            hidden: &hidden::NONE,
        }
    }

    /// Returns the field manager: the query parameter `fieldManager`, or the `User-Agent` up to its first slash.
    pub(crate) fn manager_name(&self) -> String {
        managed_fields::manager_name(self.options.field_manager.as_deref(), Some(self.user_agent))
    }
}

/// Circumstances of a write that strategies may use. The default describes the server's own writes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Conditions<'a> {
    /// The subresource in the URL; empty for the resource itself.
    pub(crate) subresource: &'a str,
    /// User of the write; `None` for the server's own writes.
    pub(crate) user: Option<&'a UserInfo>,
    /// Set for a dry run.
    pub(crate) dry_run: bool,
    /// Facts about the body that are lost in the decoded object.
    pub(crate) hidden: &'a Hidden,
}
