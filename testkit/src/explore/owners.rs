//! Whom an object belongs to that a client has made.

use std::borrow::Cow;

use serde::Deserialize;

use super::gate::Gate;

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
