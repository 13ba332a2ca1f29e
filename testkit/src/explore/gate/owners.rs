//! Objects that requests refer to: the owners of a created object, and whether a deleted object's name was generated.

use std::borrow::Cow;

use bytes::Bytes;
use fake_apiserver::{StoredObject, Verb};
use memchr::memmem;
use serde::Deserialize;

use super::decide::Gate;
use crate::explore::outcomes::generate_name;
use crate::explore::trace::Request;

/// Data of an object before its deletion. The response to most deletes is a Status, which does not contain this data.
#[derive(Debug, Default)]
pub(crate) struct Deletion {
    /// Set if the request has a uid as a precondition.
    pub(crate) has_precondition: bool,
    /// `metadata.generateName` of the object if its name was generated; otherwise empty.
    pub(crate) generate_name: String,
}

impl Deletion {
    /// Reads the object of a delete request before it is deleted; empty for other verbs.
    pub(crate) fn of(gate: &Gate, about: &Request, body: &Bytes) -> Self {
        if about.verb != Verb::Delete {
            return Self::default();
        }
        let object = gate.stored(about);
        Self {
            has_precondition: memmem::find(body, b"\"uid\"").is_some(),
            generate_name: object.as_ref().and_then(generate_name).unwrap_or_default(),
        }
    }
}

impl Gate {
    /// Returns the stored object that a request refers to.
    pub(crate) fn stored(&self, about: &Request) -> Option<StoredObject> {
        let resource = about.resource.split('/').next().unwrap_or_default();
        let (resource, group) = resource.split_once('.').unwrap_or((resource, ""));
        let (namespace, name) = about.object.split_once('/')?;
        self.server.stored_object(group, resource, namespace, name)
    }
}

/// Returns `true` if a created object has owners but none of them exists. A client with an outdated cache repeatedly
/// creates such an object, and the garbage collector deletes it immediately. Such creations are not counted.
pub(crate) fn is_garbage(gate: &Gate, namespace: &str, owners: &[Owner<'_>]) -> bool {
    let is_gone = |owner: &Owner<'_>| {
        let found = gate
            .server
            .uid_of(&owner.api_version, &owner.kind, namespace, &owner.name);
        found.is_none_or(|uid| uid != owner.uid)
    };
    !owners.is_empty() && owners.iter().all(is_gone)
}

/// An owner reference of an object.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Owner<'a> {
    #[serde(borrow)]
    api_version: Cow<'a, str>,
    #[serde(borrow)]
    kind: Cow<'a, str>,
    #[serde(borrow)]
    name: Cow<'a, str>,
    #[serde(borrow)]
    uid: Cow<'a, str>,
}
