//! `Observed`: a change of an object, in the form that workers receive.

use std::cell::OnceCell;
use std::sync::Arc;

use super::meta::Meta;
use crate::api::object::Object;
use crate::registry::scheme::Row;
use crate::registry::scheme::codec;
use crate::storage::{Key, Stored};

/// The creation, update or removal of an object. After a relist, each object is observed as if it had just been
/// created.
///
/// The objects are decoded on the first access, once for all workers.
#[derive(Debug)]
pub(crate) struct Observed<'a> {
    /// The resource's name in storage: `pods`, `apps/replicasets`.
    pub(crate) resource: &'a Arc<str>,
    row: Option<&'a Arc<Row>>,
    /// The object before the change; `None` if it is new.
    pub(crate) old: Option<&'a Arc<Stored>>,
    /// The object after the change; `None` if it was removed.
    pub(crate) new: Option<&'a Arc<Stored>>,
    new_object: OnceCell<Option<Object>>,
    meta: OnceCell<Meta>,
}

impl<'a> Observed<'a> {
    pub(super) fn new(
        resource: &'a Arc<str>,
        row: Option<&'a Arc<Row>>,
        old: Option<&'a Arc<Stored>>,
        new: Option<&'a Arc<Stored>>,
    ) -> Self {
        Self {
            resource,
            row,
            old,
            new,
            new_object: OnceCell::new(),
            meta: OnceCell::new(),
        }
    }

    /// Returns the current object, or its last state.
    pub(crate) fn latest(&self) -> Option<&'a Arc<Stored>> {
        self.new.or(self.old)
    }

    /// Returns the key of the object.
    pub(crate) fn key(&self) -> Option<&'a Key> {
        self.latest().map(|it| &it.key)
    }

    /// Returns `true` if the object was removed.
    pub(crate) fn is_removal(&self) -> bool {
        self.new.is_none()
    }

    /// Returns the resource in the stored version; `None` if it is not served any more.
    pub(crate) fn row(&self) -> Option<&'a Arc<Row>> {
        self.row
    }

    /// Returns the decoded object after the change; `None` if it was deleted or if its resource is not served any more.
    pub(crate) fn new_object(&self) -> Option<&Object> {
        let decode = || Some(codec::decode(self.row?, self.new?));
        self.new_object.get_or_init(decode).as_ref()
    }

    /// Returns owners, finalizers and deletion state of the current object or its last state, without decoding it.
    pub(crate) fn meta(&self) -> &Meta {
        self.meta
            .get_or_init(|| self.latest().map(|it| Meta::of(it)).unwrap_or_default())
    }
}
