//! The objects behind requests: the owners of a created object, and the origin of a deleted object's name.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use bytes::Bytes;
use fake_apiserver::{StoredObject, Verb};
use memchr::memmem::{self, Finder};
use serde::Deserialize;

use super::client::contains;
use super::gate::Gate;
use super::plan::given;
use super::trace::Request;
use super::{Oracle, Violation};

/// State of an object before the server deletes it: most kinds answer with a Status, which has less.
#[derive(Debug, Default)]
pub(crate) struct Deletion {
    /// The request names the uid it is meant for.
    pub(crate) has_precondition: bool,
    /// `metadata.generateName` of the object, if its name was made from it; else empty.
    pub(crate) generate_name: String,
}

impl Deletion {
    /// Reads the deletion of a request; empty for other verbs.
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

/// Returns the `generateName` of an object; `None` if its name was given.
pub(crate) fn generate_name(object: &StoredObject) -> Option<String> {
    // The text is searched first, since decoding is expensive.
    static FIELD: LazyLock<Finder<'_>> = LazyLock::new(|| Finder::new("\"generateName\":"));
    FIELD.find(object.stored_bytes())?;
    let prefix = object.value()["metadata"]["generateName"].as_str()?.to_owned();
    object.name().starts_with(&prefix).then_some(prefix)
}

/// An object that a controller made, with its owners.
struct Made {
    resource: String,
    namespace: String,
    name: String,
    client: Arc<str>,
    owners: Vec<String>,
}

impl Gate {
    /// An object without an ownerReference beside others of the same owner that have one. The owner is known by its
    /// name, which that of the object begins with.
    pub(crate) fn unowned(&self) -> Option<Violation> {
        if self.skipped.contains(&Oracle::Owners) {
            return None;
        }
        let makers = self.state().made.clone();
        let (mut made, mut owners) = (Vec::new(), BTreeMap::new());
        for object in self.server.stored_objects() {
            let Some(client) = makers.get(object.uid()) else {
                continue;
            };
            let value = object.value();
            let references = value["metadata"]["ownerReferences"].as_array();
            let uids = references
                .into_iter()
                .flatten()
                .filter_map(|it| it["uid"].as_str().map(str::to_owned));
            made.push(Made {
                resource: object.resource().to_owned(),
                namespace: object.namespace().to_owned(),
                name: object.name().to_owned(),
                client: Arc::clone(client),
                owners: uids.collect(),
            });
        }
        for object in self.server.stored_objects() {
            let owns = |it: &&Made| it.owners.iter().any(|uid| uid == object.uid());
            // A finalizer shows that the controller cleans up.
            let is_cleaned_up = || memmem::find(object.stored_bytes(), b"\"finalizers\":[").is_some();
            if let Some(other) = made.iter().find(owns)
                && !is_cleaned_up()
            {
                let key = (
                    object.namespace().to_owned(),
                    object.name().to_owned(),
                    Arc::clone(&other.client),
                );
                owners.insert(key, (object.resource().to_owned(), other));
            }
        }
        made.iter().filter(|it| it.owners.is_empty()).find_map(|it| {
            let is_of = |owner: &str| {
                it.name
                    .strip_prefix(owner)
                    .is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
            };
            let mut found = owners.iter();
            let ((namespace, owner, _), (kind, other)) = found.find(|((namespace, owner, client), _)| {
                *namespace == it.namespace && *client == it.client && is_of(owner)
            })?;
            let what = format!(
                "{} made {} {namespace}/{} without an ownerReference, and {} {namespace}/{} with one to {kind} \
                 {namespace}/{owner}",
                given(&it.client),
                it.resource,
                it.name,
                other.resource,
                other.name,
            );
            Some(Violation::new("all have owners", what))
        })
    }

    /// The object that a request names, as the server has it.
    pub(crate) fn stored(&self, about: &Request) -> Option<StoredObject> {
        let resource = about.resource.split('/').next().unwrap_or_default();
        let (resource, group) = resource.split_once('.').unwrap_or((resource, ""));
        let (namespace, name) = about.object.split_once('/')?;
        self.server.stored_object(group, resource, namespace, name)
    }
}

/// Returns `true` if a created object has owners and none of them exists: a client with an old view makes it, and a
/// garbage collector deletes it at once, again and again. Such creations are not counted.
pub(crate) fn is_garbage(gate: &Gate, namespace: &str, owners: &[Owner<'_>]) -> bool {
    let is_gone = |owner: &Owner<'_>| {
        let found = gate
            .server
            .uid_of(&owner.api_version, &owner.kind, namespace, &owner.name);
        found.is_none_or(|uid| uid != owner.uid)
    };
    !owners.is_empty() && owners.iter().all(is_gone)
}

/// An owner of an object, as its metadata names it.
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
