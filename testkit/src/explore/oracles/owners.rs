//! `Oracle::Owners`: finds objects without an ownerReference although similar objects have one.

use std::collections::BTreeMap;
use std::sync::Arc;

use memchr::memmem;

use super::facts::Facts;
use super::row::{Looks, OracleRow};
use crate::explore::plans::given;

pub(super) const ROW: OracleRow = OracleRow {
    name: "all have owners",
    looks: Looks::AtTheEnd(check),
    recurs: None,
};

/// Resources that contain data and often outlive their owners, such as the claims of a StatefulSet.
const KEPT: [&str; 4] = [
    "persistentvolumeclaims",
    "persistentvolumes",
    "volumesnapshots",
    "volumesnapshotcontents",
];

/// An object that a controller created, and its owners.
struct Made {
    resource: String,
    namespace: String,
    name: String,
    client: Arc<str>,
    owners: Vec<String>,
}

/// Describes an object without an ownerReference if other objects of the same owner have one. The owner is recognised
/// by its name, which is a prefix of the object's name.
fn check(facts: &Facts<'_>) -> Option<String> {
    // Only the reference is checked: the controllers are the same in all runs.
    if facts.reference.is_some() {
        return None;
    }
    let (server, makers) = (&facts.gate.server, facts.gate.state().made.clone());
    let (mut made, mut owners) = (Vec::new(), BTreeMap::new());
    for object in server.stored_objects() {
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
    for object in server.stored_objects() {
        let owns = |it: &&Made| it.owners.iter().any(|uid| uid == object.uid());
        // A finalizer indicates that the controller cleans up.
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
    let unowned = |it: &&Made| it.owners.is_empty() && !KEPT.contains(&it.resource.as_str());
    made.iter().filter(unowned).find_map(|it| {
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
            "{} created {} {namespace}/{} without an ownerReference, and {} {namespace}/{} with one to {kind} \
             {namespace}/{owner}",
            given(&it.client),
            it.resource,
            it.name,
            other.resource,
            other.name,
        );
        Some(what)
    })
}
