//! Processes an object: deletes it, removes owners from it, or removes its finalizer.

use super::graph::{Node, NodeId};
use super::{FOREGROUND, GarbageCollector, Item, ORPHAN};
use crate::api::json::{Value, json};
use crate::api::options::{DeleteOptions, PatchKind, PropagationPolicy};
use crate::storage::{Key, Stored};
use crate::workers::{Api, Context, Meta, OwnerReference, Regarding, RequestFailure};

/// The owners of an object, classified by their effect on the object.
#[derive(Debug, Default)]
struct Classified {
    /// Owners that exist and keep the object.
    solid: Vec<String>,
    /// Owners that do not exist.
    dangling: Vec<String>,
    /// Owners that are being deleted and wait for this dependent.
    waiting: Vec<String>,
}

/// Reason why the owners of an object cannot be classified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Undecided {
    /// An owner's kind is currently not served.
    UnknownKind,
    /// The object is cluster-scoped but its owner is namespaced, so the owner cannot be found.
    NoNamespace,
}

impl GarbageCollector {
    /// Deletes an object without remaining owners, removes references to absent owners if others remain, and removes
    /// the finalizer of an owner that has waited for its dependents.
    pub(super) async fn attempt_to_delete(
        &mut self,
        id: NodeId,
        context: &mut Context<'_, Item>,
    ) -> Result<(), RequestFailure> {
        let api = context.api;
        let Some(node) = self.graph.node(id) else {
            return Ok(());
        };
        if node.is_deleted && !node.awaits_dependents {
            // The dependents of the object are processed after the object has been removed.
            return Ok(());
        }
        let Some(latest) = latest(api, node) else {
            return Ok(());
        };
        if node.awaits_dependents {
            return self.wait_for_dependents(node, &latest, context).await;
        }
        let meta = Meta::of(&latest);
        if meta.owner_references.is_empty() {
            return Ok(());
        }
        let owners = match self.classify(api, node, &meta.owner_references) {
            Ok(owners) => owners,
            Err(Undecided::NoNamespace) => return Ok(()),
            Err(Undecided::UnknownKind) => {
                self.graph.note_unknown(id);
                return Ok(());
            }
        };
        if !owners.solid.is_empty() {
            let lost: Vec<String> = owners.dangling.into_iter().chain(owners.waiting).collect();
            return if lost.is_empty() {
                Ok(())
            } else {
                remove_owners(api, node, &latest, &lost).await
            };
        }
        let policy = if !owners.waiting.is_empty() && self.graph.dependents(&node.uid).next().is_some() {
            if self.graph.dependents(&node.uid).any(|(_, it)| it.awaits_dependents) {
                // The owners may form a cycle, in which each object would wait for the next.
                unblock_owners(api, node, &latest).await?;
            }
            PropagationPolicy::Foreground
        } else if meta.has_finalizer(ORPHAN) {
            PropagationPolicy::Orphan
        } else if meta.has_finalizer(FOREGROUND) {
            PropagationPolicy::Foreground
        } else {
            PropagationPolicy::Background
        };
        delete(api, node, &meta, policy).await
    }

    /// Removes the finalizer of an owner if no dependents block its deletion; otherwise enqueues the blocking
    /// dependents.
    async fn wait_for_dependents(
        &self,
        node: &Node,
        latest: &Stored,
        context: &mut Context<'_, Item>,
    ) -> Result<(), RequestFailure> {
        let mut is_blocked = false;
        for (id, dependent) in self.graph.blocking_dependents(&node.uid) {
            is_blocked = true;
            if !dependent.awaits_dependents {
                context.queue.add(Item::Delete(id));
            }
        }
        if is_blocked {
            return Ok(());
        }
        remove_finalizer(context.api, node, latest, FOREGROUND).await
    }

    /// Removes an owner from all its dependents, then removes the finalizer of the owner.
    pub(super) async fn attempt_to_orphan(
        &mut self,
        id: NodeId,
        context: &mut Context<'_, Item>,
    ) -> Result<(), RequestFailure> {
        let api = context.api;
        let Some(node) = self.graph.node(id) else {
            return Ok(());
        };
        let lost = [node.uid.to_string()];
        for (_, dependent) in self.graph.dependents(&node.uid) {
            if let Some(latest) = latest(api, dependent) {
                remove_owners(api, dependent, &latest, &lost).await?;
            }
        }
        match latest(api, node) {
            Some(latest) => remove_finalizer(api, node, &latest, ORPHAN).await,
            None => Ok(()),
        }
    }

    /// Reports an object with an owner in another namespace. Such an owner is treated as absent.
    pub(super) async fn report(
        &self,
        id: NodeId,
        owner: &str,
        context: &mut Context<'_, Item>,
    ) -> Result<(), RequestFailure> {
        let Some(node) = self.graph.node(id) else {
            return Ok(());
        };
        let Some(reference) = node.owners.iter().find(|it| it.uid == owner) else {
            return Ok(());
        };
        let namespace = node.key.namespace();
        let message = format!(
            "ownerRef [{}/{}, namespace: {namespace}, name: {}, uid: {owner}] does not exist in namespace {namespace:?}",
            reference.api_version, reference.kind, reference.name
        );
        let row = context.api.resource(&node.resource);
        let regarding = Regarding {
            api_version: row.map_or("", |row| &*row.api_version),
            kind: &node.kind,
            key: &node.key,
            uid: &node.uid,
        };
        let reason = "OwnerRefInvalidNamespace";
        context
            .api
            .warn("garbage-collector-controller", &regarding, reason, &message)
            .await
    }

    /// Classifies the owners of an object. Fails at the first owner that cannot be classified.
    fn classify(&self, api: Api<'_>, node: &Node, owners: &[OwnerReference]) -> Result<Classified, Undecided> {
        let mut classified = Classified::default();
        for owner in owners {
            let list = if self.graph.saw_go(owner, node) {
                &mut classified.dangling
            } else {
                let row = api.resource_of_kind(&owner.api_version, &owner.kind);
                let row = row.ok_or(Undecided::UnknownKind)?;
                let namespace = match (row.info.is_namespaced(), node.key.namespace()) {
                    (true, "") => return Err(Undecided::NoNamespace),
                    (true, namespace) => namespace,
                    (false, _) => "",
                };
                let found = api.stored(&row.storage, &Key::new(namespace, &owner.name));
                match found.filter(|it| *it.body.uid == *owner.uid).map(|it| Meta::of(&it)) {
                    None => &mut classified.dangling,
                    Some(meta) if meta.is_terminating() && meta.has_finalizer(FOREGROUND) => &mut classified.waiting,
                    Some(_) => &mut classified.solid,
                }
            };
            list.push(owner.uid.clone());
        }
        Ok(classified)
    }
}

/// Returns the stored object of a node of the graph; `None` if it was deleted, or replaced by a different object with
/// the same name.
fn latest(api: Api<'_>, node: &Node) -> Option<std::sync::Arc<Stored>> {
    api.stored(&node.resource, &node.key)
        .filter(|it| it.body.uid == node.uid)
}

/// Deletes an object, unless its owners have changed since the decision to delete it.
async fn delete(api: Api<'_>, node: &Node, judged: &Meta, policy: PropagationPolicy) -> Result<(), RequestFailure> {
    let Some(stored) = latest(api, node) else {
        return Ok(());
    };
    let options = |version: Option<String>| DeleteOptions {
        uid: Some(node.uid.to_string()),
        resource_version: version,
        propagation_policy: Some(policy),
        ..DeleteOptions::default()
    };
    let version = stored.revision.to_string();
    let mut deleted = api.delete(&node.resource, &node.key, &options(Some(version))).await;
    if let Err(failure) = &deleted
        && failure.is_conflict()
        && latest(api, node).is_some_and(|it| Meta::of(&it).owner_references == judged.owner_references)
    {
        // The object has changed, but not its owners. It is deleted without a precondition on the resourceVersion,
        // because objects that change constantly would otherwise never be deleted.
        deleted = api.delete(&node.resource, &node.key, &options(None)).await;
    }
    match deleted {
        Err(failure) if failure.is_not_found() => Ok(()),
        other => other,
    }
}

/// Removes owners from an object, by a strategic merge patch if the resource supports it.
async fn remove_owners(api: Api<'_>, node: &Node, latest: &Stored, lost: &[String]) -> Result<(), RequestFailure> {
    let is_custom = api.resource(&node.resource).is_some_and(|row| row.is_custom());
    let (kind, patch) = if is_custom {
        let owners = owners(latest).into_iter();
        let kept = owners.filter(|it| !lost.iter().any(|uid| it["uid"] == **uid)).collect();
        (PatchKind::Merge, owners_patch(latest, kept))
    } else {
        let removals: Vec<Value> = lost.iter().map(|uid| json!({"$patch": "delete", "uid": uid})).collect();
        let patch = json!({"metadata": {"ownerReferences": removals, "uid": &*node.uid}});
        (PatchKind::Strategic, patch)
    };
    ignore_missing(api.patch(&node.resource, "", &node.key, kind, &patch).await)
}

/// Clears `blockOwnerDeletion` in all owner references of an object.
async fn unblock_owners(api: Api<'_>, node: &Node, latest: &Stored) -> Result<(), RequestFailure> {
    let is_custom = api.resource(&node.resource).is_some_and(|row| row.is_custom());
    let mut owners = owners(latest);
    let (kind, patch) = if is_custom {
        owners.iter_mut().for_each(|it| it["blockOwnerDeletion"] = false.into());
        (PatchKind::Merge, owners_patch(latest, owners))
    } else {
        owners.retain(|it| it["blockOwnerDeletion"] == true);
        owners.iter_mut().for_each(|it| it["blockOwnerDeletion"] = false.into());
        let patch = json!({"metadata": {"ownerReferences": owners, "uid": &*node.uid}});
        (PatchKind::Strategic, patch)
    };
    ignore_missing(api.patch(&node.resource, "", &node.key, kind, &patch).await)
}

/// Returns a merge patch that sets the owners of an object, with the resourceVersion as a precondition.
fn owners_patch(latest: &Stored, owners: Vec<Value>) -> Value {
    let owners = if owners.is_empty() { Value::Null } else { owners.into() };
    json!({"metadata": {"resourceVersion": latest.revision.to_string(), "ownerReferences": owners}})
}

/// Removes a finalizer from an object.
async fn remove_finalizer(api: Api<'_>, node: &Node, latest: &Stored, finalizer: &str) -> Result<(), RequestFailure> {
    let meta = Meta::of(latest);
    if !meta.has_finalizer(finalizer) {
        return Ok(());
    }
    let kept: Vec<&String> = meta.finalizers.iter().filter(|it| *it != finalizer).collect();
    let kept = if kept.is_empty() { Value::Null } else { json!(kept) };
    let patch = json!({"metadata": {"resourceVersion": latest.revision.to_string(), "finalizers": kept}});
    ignore_missing(api.patch(&node.resource, "", &node.key, PatchKind::Merge, &patch).await)
}

/// Returns the owners of an object as JSON.
fn owners(stored: &Stored) -> Vec<Value> {
    serde_json::to_value(Meta::of(stored).owner_references)
        .ok()
        .and_then(|it| serde_json::from_value(it).ok())
        .unwrap_or_default()
}

/// Treats a missing object as success.
fn ignore_missing<T>(changed: Result<T, RequestFailure>) -> Result<(), RequestFailure> {
    match changed {
        Err(failure) if !failure.is_not_found() => Err(failure),
        Ok(_) | Err(_) => Ok(()),
    }
}
