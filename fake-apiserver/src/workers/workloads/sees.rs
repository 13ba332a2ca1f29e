//! `Sees`: the input for a controller's decision.

use std::sync::Arc;

use jiff::Timestamp;

use super::cluster::{Cluster, selects};
use super::plan::{Plan, controller_reference};
use super::resource::Resource;
use crate::api::json::{Map, Value, json};
use crate::api::kubernetes_version::KubernetesVersion;
use crate::api::object::Object;
use crate::api::selector::LabelSelector;
use crate::entropy;
use crate::registry::types::cursor::Cursor;

/// Input for a controller's decision, in addition to its object.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sees<'a> {
    pub(crate) cluster: &'a Cluster,
    pub(crate) now: Timestamp,
    pub(crate) version: KubernetesVersion,
    /// The reason why the last creation or deletion for this object failed.
    pub(crate) failure: Option<&'a str>,
}

impl<'a> Sees<'a> {
    /// Returns the current time in the format of metadata.
    pub(crate) fn stamp(&self) -> String {
        entropy::seconds(self.now)
    }

    /// Returns the objects that a controller owns, in key order. Orphans that match its selector are adopted, except
    /// for Pods that are not active, and owned objects that no longer match are released; both changes are added to
    /// the plan.
    pub(crate) fn claimed(
        &self,
        child: Resource,
        owner: (Resource, &Object),
        selector: &LabelSelector,
        plan: &mut Plan,
    ) -> Vec<&'a Arc<Object>> {
        let (resource, owner) = owner;
        let mut claimed = Vec::new();
        for object in self.cluster.owned_by(child, owner.uid()) {
            if object.namespace() != owner.namespace() {
                continue;
            }
            if selects(selector, object) {
                claimed.push(object);
            } else if !owner.is_terminating() {
                plan.merge(
                    child,
                    object,
                    json!({"metadata": {"uid": object.uid(), "ownerReferences": without(object, owner)}}),
                );
            }
        }
        if owner.is_terminating() || selector.is_empty() {
            return claimed;
        }
        for object in self.cluster.orphans(child, owner.namespace()) {
            if object.is_terminating() || !selects(selector, object) {
                continue;
            }
            if child == Resource::Pod && !super::pods::is_active(object) {
                continue;
            }
            let mut owners = references(object);
            owners.push(controller_reference(resource, owner));
            plan.merge(
                child,
                object,
                json!({"metadata": {"uid": object.uid(), "ownerReferences": owners}}),
            );
            claimed.push(object);
        }
        claimed.sort_by_key(|it| it.name());
        claimed
    }
}

fn references(object: &Object) -> Vec<Value> {
    object
        .metadata()
        .map_or(Vec::new(), |meta| Cursor::root(meta).list("ownerReferences").to_vec())
}

/// Returns the owners of an object except `owner`; null if there are no others, which removes the field in a merge
/// patch.
fn without(object: &Object, owner: &Object) -> Value {
    let others: Vec<Value> = references(object)
        .into_iter()
        .filter(|it| it.get("uid").and_then(Value::as_str) != Some(owner.uid()))
        .collect();
    if others.is_empty() { Value::Null } else { others.into() }
}

/// Parses a selector in a field; `None` if it is absent, which selects nothing.
pub(crate) fn selector_of(map: &Map, field: &str) -> Option<LabelSelector> {
    LabelSelector::from_object(map.get(field)?).ok().flatten()
}

/// Returns a new condition with the fields that controllers write.
pub(crate) fn new_condition(kind: &str, status: &str, reason: &str, message: &str, at: &str) -> Map {
    let value = json!({
        "type": kind, "status": status, "lastTransitionTime": at, "reason": reason, "message": message,
    });
    match value {
        Value::Object(map) => map,
        _ => Map::new(),
    }
}

/// Sets a condition in a list: replaces the condition of the same type by the new one at the end of the list, or leaves
/// it unchanged if status and reason are equal. `lastTransitionTime` only changes with the status.
pub(crate) fn put_condition(conditions: &mut Vec<Value>, mut condition: Map) {
    let kind = Cursor::root(&condition).text("type").to_owned();
    let place = conditions
        .iter()
        .position(|it| it.get("type").and_then(Value::as_str) == Some(&kind));
    let Some(place) = place else {
        return conditions.push(Value::Object(condition));
    };
    let current = conditions.remove(place);
    let same = |field: &str| current.get(field) == condition.get(field);
    if same("status") && same("reason") {
        return conditions.insert(place, current);
    }
    if same("status")
        && let Some(since) = current.get("lastTransitionTime")
    {
        condition.insert("lastTransitionTime".into(), since.clone());
    }
    conditions.push(Value::Object(condition));
}

/// Removes a condition from a list.
pub(crate) fn drop_condition(conditions: &mut Vec<Value>, kind: &str) {
    conditions.retain(|it| it.get("type").and_then(Value::as_str) != Some(kind));
}

/// Returns the conditions of a status.
pub(crate) fn conditions(status: &Map) -> Vec<Value> {
    Cursor::root(status).list("conditions").to_vec()
}

/// Returns a condition by its type.
pub(crate) fn find_condition<'a>(status: &'a Map, kind: &str) -> Option<&'a Map> {
    Cursor::root(status)
        .maps("conditions")
        .find(|it| Cursor::root(it).text("type") == kind)
}

/// Returns the selector of a Service or a ReplicationController: a map of labels. An empty map selects nothing.
pub(crate) fn service_selector(service: &Object) -> Option<LabelSelector> {
    let labels = Cursor::root(service).map("spec.selector").filter(|it| !it.is_empty())?;
    LabelSelector::from_object(&json!({"matchLabels": labels}))
        .ok()
        .flatten()
}
