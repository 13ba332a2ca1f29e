//! The namespace controller: deletes the content of a terminating namespace, Pods first, and then removes its finalizer
//! (rules R4, R5). It reads and writes the cluster through `Api`.

mod conditions;
mod content;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use super::{Api, Context, Controller, Follows, Identity, Observed, RequestFailure, WorkQueue, WorkerRow};
use crate::api::json::Value;
use crate::api::object::Object;
use crate::storage::Key;
use content::Remains;

pub(super) const ROW: WorkerRow = WorkerRow::alone::<NamespaceController>("namespace");

/// The resource of namespaces in storage.
const NAMESPACES: &str = "namespaces";

/// The entry of `spec.finalizers` that this controller removes.
const KUBERNETES: &str = "kubernetes";

/// Maximum delay between a change of the content and the next check of its namespace. After the last object of a
/// resource was removed, the check follows immediately. kube-controller-manager checks every few seconds, regardless of
/// changes.
const CONTENT_DELAY: Duration = Duration::from_secs(1);

/// Empties namespaces that are being deleted.
///
/// The deletion of the content starts immediately. kube-controller-manager waits five seconds, so that other API
/// servers observe the deletion of the namespace.
#[derive(Debug, Default)]
pub(super) struct NamespaceController {
    /// Objects that remained at the last check, by terminating namespace.
    terminating: BTreeMap<String, Remains>,
}

impl Controller for NamespaceController {
    type Key = String;

    fn identity(&self) -> Identity {
        Identity::controller("namespace-controller")
    }

    fn follows(&self) -> Follows {
        Follows::All
    }

    fn reset(&mut self) {
        self.terminating.clear();
    }

    fn observe(&mut self, change: &Observed<'_>, queue: &mut WorkQueue<String>) {
        let Some(key) = change.key() else { return };
        if **change.resource == *NAMESPACES {
            if change.is_removal() {
                self.terminating.remove(key.name());
            } else if change.meta().is_terminating() {
                self.terminating.entry(key.name().to_owned()).or_default();
                queue.add(key.name().to_owned());
            }
            return;
        }
        let Some(remains) = self.terminating.get_mut(key.namespace()) else {
            return;
        };
        let is_last = change.is_removal() && remains.remove_one(change.resource);
        let delay = if is_last { Duration::ZERO } else { CONTENT_DELAY };
        queue.add_after(key.namespace().to_owned(), delay);
    }

    async fn sync(&mut self, name: String, context: &mut Context<'_, String>) -> Result<(), RequestFailure> {
        let api = context.api;
        let key = Key::new("", &name);
        let Some(namespace) = api.get(NAMESPACES, &key).filter(Object::is_terminating) else {
            return Ok(());
        };
        if finalizers(&namespace).is_empty() {
            // Only finalizers of other controllers remain.
            return Ok(());
        }
        let outcome = content::delete_all(api, &namespace).await;
        if let Some(after) = outcome.look_again {
            context.queue.add_after(name.clone(), after);
        }
        let is_empty = outcome.remains.is_empty();
        self.terminating.insert(name, outcome.remains);
        let mut updated = namespace;
        if conditions::update(&mut updated, &outcome.conditions, &crate::entropy::seconds(api.now())) {
            match api.update(NAMESPACES, "status", &updated).await {
                Ok(stored) => updated = stored,
                Err(failure) if failure.is_not_found() => return Ok(()),
                Err(failure) => return Err(failure),
            }
        }
        if let Some(failure) = outcome.failure {
            return Err(failure);
        }
        if is_empty { finalize(api, updated).await } else { Ok(()) }
    }
}

/// Removes this controller's entry from `spec.finalizers`.
async fn finalize(api: Api<'_>, mut namespace: Object) -> Result<(), RequestFailure> {
    let finalizers = finalizers(&namespace);
    if !finalizers.contains(KUBERNETES) {
        return Ok(());
    }
    let kept: Vec<Value> = finalizers
        .iter()
        .filter(|it| *it != KUBERNETES)
        .map(|it| it.as_str().into())
        .collect();
    namespace.remove("status");
    if let Some(spec) = namespace.get_mut("spec").and_then(Value::as_object_mut) {
        spec.insert("finalizers".into(), kept.into());
    }
    match api.update(NAMESPACES, "finalize", &namespace).await {
        Err(failure) if !failure.is_not_found() => Err(failure),
        Ok(_) | Err(_) => Ok(()),
    }
}

/// Returns `spec.finalizers`, sorted.
fn finalizers(namespace: &Object) -> BTreeSet<String> {
    let spec = namespace.get("spec").and_then(|spec| spec.get("finalizers"));
    let list = spec.and_then(Value::as_array).into_iter().flatten();
    list.filter_map(|it| it.as_str().map(str::to_owned)).collect()
}

/// Name of a resource in storage.
type Resource = Arc<str>;
