//! The objects behind requests: who owns the one that is created, and how the one that is deleted got its name.

use std::borrow::Cow;

use bytes::Bytes;
use fake_apiserver::{StoredObject, Verb};
use memchr::memmem;
use serde::Deserialize;

use super::client::contains;
use super::gate::Gate;
use super::trace::Request;

/// What is known of a delete before the server has it: the answer of most kinds is a Status, which says less.
#[derive(Debug, Default)]
pub(crate) struct Deletion {
    /// The request names the uid it is meant for.
    pub(crate) has_precondition: bool,
    /// `metadata.generateName` of the object, if its name was made from it; else empty.
    pub(crate) generate_name: String,
}

impl Deletion {
    /// That of a request; with nothing in it for other verbs.
    pub(crate) fn of(gate: &Gate, about: &Request, body: &Bytes) -> Self {
        if about.verb != Verb::Delete {
            return Self::default();
        }
        let object = gate.stored(about);
        Self {
            has_precondition: contains(body, b"\"uid\""),
            generate_name: object.as_ref().and_then(generate_name).unwrap_or_default(),
        }
    }
}

/// What the name of an object was made from; `None` if it was given.
pub(crate) fn generate_name(object: &StoredObject) -> Option<String> {
    // Looked for in the text first: decoding is dear.
    memmem::find(object.stored_bytes(), b"\"generateName\":")?;
    let prefix = object.value()["metadata"]["generateName"].as_str()?.to_owned();
    object.name().starts_with(&prefix).then_some(prefix)
}

impl Gate {
    /// The object that a request names, as the server has it.
    pub(crate) fn stored(&self, about: &Request) -> Option<StoredObject> {
        let resource = about.resource.split('/').next().unwrap_or_default();
        let (resource, group) = resource.split_once('.').unwrap_or((resource, ""));
        let (namespace, name) = about.object.split_once('/')?;
        self.server.stored_object(group, resource, namespace, name)
    }
}

/// Whether an object that was created has owners of which none is there: a client with an old view makes it, and a
/// garbage collector takes it away at once, again and again. That is not counted as made.
pub(crate) fn is_garbage(gate: &Gate, body: &[u8]) -> bool {
    let Ok(object) = serde_json::from_slice::<Owned<'_>>(body) else {
        return false;
    };
    let Owned { metadata } = object;
    let is_gone = |owner: &Owner<'_>| {
        let found = gate
            .server
            .uid_of(&owner.api_version, &owner.kind, metadata.namespace, &owner.name);
        found.is_none_or(|uid| uid != owner.uid)
    };
    !metadata.owner_references.is_empty() && metadata.owner_references.iter().all(is_gone)
}

/// What tells whom an object belongs to.
#[derive(Deserialize)]
struct Owned<'a> {
    #[serde(borrow)]
    metadata: OwnedMetadata<'a>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct OwnedMetadata<'a> {
    #[serde(default)]
    namespace: &'a str,
    #[serde(borrow, default)]
    owner_references: Vec<Owner<'a>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Owner<'a> {
    #[serde(borrow)]
    api_version: Cow<'a, str>,
    #[serde(borrow)]
    kind: Cow<'a, str>,
    #[serde(borrow)]
    name: Cow<'a, str>,
    #[serde(borrow)]
    uid: Cow<'a, str>,
}
