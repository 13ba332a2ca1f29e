//! Whom an object belongs to that a client has made.

use std::borrow::Cow;

use futures::FutureExt;
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
        let resource = gate.server.resource(&owner.api_version, &owner.kind);
        let namespace = match resource.is_some_and(|it| it.is_namespaced()) {
            true => metadata.namespace,
            false => "",
        };
        let found = gate.server.get(&owner.api_version, &owner.kind, namespace, &owner.name);
        match found.now_or_never() {
            Some(Ok(found)) => found["metadata"]["uid"] != *owner.uid,
            Some(Err(_)) => true,
            // It is converted by somebody who takes his time.
            None => false,
        }
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
