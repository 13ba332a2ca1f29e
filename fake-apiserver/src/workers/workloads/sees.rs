//! `Sees`: the input for a controller's decision.

use std::sync::Arc;

use jiff::Timestamp;

use super::cluster::{Cluster, selects};
use super::plan::{Plan, Write, controller_reference};
use super::resource::{Resource, Target};
use crate::api::json::{Map, Value, json};
use crate::api::kubernetes_version::KubernetesVersion;
use crate::api::object::Object;
use crate::api::options::PatchKind;
use crate::api::selector::LabelSelector;
use crate::entropy;
use crate::registry::types::cursor::Cursor;
use crate::workers::Api;

/// The finalizer that keeps a Pod of a Job until it has been counted.
pub(crate) const JOB_TRACKING: &str = "batch.kubernetes.io/job-tracking";

/// Input for a controller's decision, in addition to its object.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sees<'a> {
    pub(crate) cluster: &'a Cluster,
    /// Access to objects of other resources; `None` in unit tests.
    pub(crate) api: Option<Api<'a>>,
    pub(crate) now: Timestamp,
    pub(crate) version: KubernetesVersion,
    /// The reason why the last creation or deletion for this object failed.
    pub(crate) failure: Option<&'a str>,
    /// The object of the task, if it is a Node or a Service that was removed.
    pub(crate) removed: Option<&'a Arc<Object>>,
}

impl<'a> Sees<'a> {
    /// Returns the current time in the format of metadata.
    pub(crate) fn stamp(&self) -> String {
        entropy::seconds(self.now)
    }

    /// Returns the objects that a controller owns, in key order. Orphans that match its selector are adopted, and owned
    /// objects that no longer match are released; both changes are added to the plan. ReplicaSets and
    /// ReplicationControllers only adopt active Pods.
    pub(crate) fn claimed(
        &self,
        child: Resource,
        owner: (Resource, &Object),
        selector: &LabelSelector,
        plan: &mut Plan,
    ) -> Vec<&'a Arc<Object>> {
        let (resource, owner) = owner;
        // A Job tracks its Pods with a finalizer.
        let finalizer = (resource == Resource::Job).then_some(JOB_TRACKING);
        // A StatefulSet only claims Pods with its name, and does not release its revisions.
        let is_of_set = resource == Resource::StatefulSet;
        let is_member = |it: &Object| !is_of_set || child != Resource::Pod || super::pods::ordinal(owner, it).is_some();
        let releases = !is_of_set || child != Resource::ControllerRevision;
        let needs_active = matches!(resource, Resource::ReplicaSet | Resource::ReplicationController);
        let mut claimed = Vec::new();
        for object in self.cluster.owned_by(child, owner.uid()) {
            if object.namespace() != owner.namespace() {
                continue;
            }
            if selects(selector, object) && is_member(object) {
                claimed.push(object);
            } else if needs_active && !super::pods::is_active(object) {
                // Such Pods are neither counted nor released.
            } else if !owner.is_terminating() && releases {
                let mut metadata = json!({"ownerReferences": [{"$patch": "delete", "uid": owner.uid()}]});
                if let Some(finalizer) = finalizer {
                    metadata["$deleteFromPrimitiveList/finalizers"] = json!([finalizer]);
                }
                put_owner(child, object, metadata, plan);
            }
        }
        if owner.is_terminating() || selector.is_empty() {
            return claimed;
        }
        for object in self.cluster.orphans(child, owner.namespace()) {
            if object.is_terminating() || !selects(selector, object) || !is_member(object) {
                continue;
            }
            if needs_active && !super::pods::is_active(object) {
                continue;
            }
            let mut metadata = json!({"ownerReferences": [controller_reference(resource, owner)]});
            if let Some(finalizer) = finalizer {
                metadata["finalizers"] = json!([finalizer]);
            }
            put_owner(child, object, metadata, plan);
            claimed.push(object);
        }
        claimed.sort_by_key(|it| it.name());
        claimed
    }
}

/// Plans a patch that adds or removes an owner reference. A strategic merge patch does not affect other owners and
/// finalizers, even if one is added at the same time.
fn put_owner(resource: Resource, object: &Object, mut metadata: Value, plan: &mut Plan) {
    metadata["uid"] = object.uid().into();
    plan.writes.push(Write::Patch {
        at: Target::of(resource, object),
        subresource: String::new(),
        kind: PatchKind::Strategic,
        patch: json!({"metadata": metadata}),
    });
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

/// Sets a condition in a list: replaces the condition of the same type with the new one at the end of the list, or
/// leaves it unchanged if status and reason are equal. `lastTransitionTime` only changes with the status.
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
