//! The revisions of a Deployment: the ReplicaSet of each revision, their numbers, and the history limit.

use std::sync::Arc;

use super::progress::{CREATE_ERROR, create_error};
use super::{COMPONENT, DESIRED, HASH_LABEL, MAXIMUM, REVISION, REVISION_HISTORY, Rollout, annotations, replicas};
use crate::api::json::{Map, Value, json};
use crate::api::object::Object;
use crate::registry::types::cursor::Cursor;
use crate::registry::types::edit::copy_field;
use crate::workers::hash::{safe_text, template_hash};
use crate::workers::workloads::plan::{Plan, Regarding, Told, controller_reference};
use crate::workers::workloads::pods::{annotation, generation, spec, status};
use crate::workers::workloads::resource::Resource;

/// Annotations of a Deployment that are not copied to its ReplicaSets.
const OWN: [&str; 6] = [
    "kubectl.kubernetes.io/last-applied-configuration",
    REVISION,
    REVISION_HISTORY,
    DESIRED,
    MAXIMUM,
    "deprecated.deployment.rollback.to",
];

/// Maximum length of the annotation with the revision history of a ReplicaSet, in characters.
const HISTORY_CHARS: usize = 2000;

/// Returns `true` if two templates are equal except for the hash label.
pub(super) fn same_template(one: &Map, other: &Map) -> bool {
    let labels = |template: &Map| {
        let mut labels = Cursor::root(template).map_or_empty("metadata.labels").clone();
        labels.remove(HASH_LABEL);
        labels
    };
    let rest = |template: &Map| Cursor::root(template).map_or_empty("metadata.annotations").clone();
    Cursor::root(one).same(&Cursor::root(other), "spec") && labels(one) == labels(other) && rest(one) == rest(other)
}

/// Returns the revision number of a ReplicaSet.
pub(super) fn revision(set: &Object) -> i64 {
    annotation(set, REVISION).and_then(|it| it.parse().ok()).unwrap_or(0)
}

impl<'a> Rollout<'a> {
    /// Assigns revision numbers, and creates the ReplicaSet of the current template if `create` is set. Returns `true`
    /// if the rollout must wait for these changes.
    pub(super) fn keep_history(&self, create: bool, plan: &mut Plan) -> bool {
        let newest = self.old().iter().map(|it| revision(it)).max().unwrap_or(0);
        let wanted = newest.saturating_add(1);
        match self.new {
            Some(new) => self.update_new(new, wanted, plan),
            None if create => {
                self.create_new(wanted, plan);
                true
            }
            None => false,
        }
    }

    /// Updates the annotations and minReadySeconds of the new ReplicaSet; if they are up to date, updates the revision
    /// and the conditions of the Deployment. Returns `true` if the rollout must wait for the change.
    fn update_new(&self, new: &Object, wanted: i64, plan: &mut Plan) -> bool {
        let had = annotations(new);
        let next = self.set_annotations(had.clone(), wanted);
        let minimum = Cursor::root(self.deployment)
            .integer("spec.minReadySeconds")
            .unwrap_or(0);
        let ready_differs = Cursor::root(new).integer("spec.minReadySeconds").unwrap_or(0) != minimum;
        if next != had || ready_differs {
            let patch =
                json!({"metadata": {"annotations": difference(&had, &next)}, "spec": {"minReadySeconds": minimum}});
            plan.merge(Resource::ReplicaSet, new, patch);
            return true;
        }
        self.number_deployment(revision(new), self.conditions_found(new), plan)
    }

    /// Writes the current revision number and the conditions of the Deployment. Returns `true` if they have changed.
    fn number_deployment(&self, number: i64, conditions: Option<Vec<Value>>, plan: &mut Plan) -> bool {
        let number = number.to_string();
        let is_numbered = annotation(self.deployment, REVISION) == Some(&number);
        let mut patch = json!({});
        if !is_numbered {
            patch["metadata"] = json!({"annotations": {REVISION: number}});
        }
        let has_conditions = conditions.is_some();
        if let Some(conditions) = conditions {
            patch["status"] = json!({"conditions": conditions});
        }
        if !is_numbered || has_conditions {
            plan.merge_status(Resource::Deployment, self.deployment, patch);
        }
        !is_numbered || has_conditions
    }

    /// Returns the annotations of the new ReplicaSet: the annotations of the Deployment, and the revision number.
    fn set_annotations(&self, mut next: Map, wanted: i64) -> Map {
        for (key, value) in annotations(self.deployment) {
            if !OWN.contains(&key.as_str()) {
                next.insert(key, value);
            }
        }
        let old = next
            .get(REVISION)
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned();
        let number = old.parse::<i64>().unwrap_or(0);
        if number < wanted {
            next.insert(REVISION.into(), wanted.to_string().into());
            if number > 0 {
                // The earlier revision numbers of a ReplicaSet that becomes current again are recorded in an
                // annotation.
                let history = next.get(REVISION_HISTORY).and_then(Value::as_str).unwrap_or_default();
                let mut parts: Vec<&str> = history.split(',').filter(|it| !it.is_empty()).collect();
                parts.push(&old);
                while parts.len() > 1 && parts.join(",").len() > HISTORY_CHARS {
                    parts.remove(0);
                }
                let history = parts.join(",");
                next.insert(REVISION_HISTORY.into(), history.into());
            }
        }
        next
    }

    fn create_new(&self, wanted: i64, plan: &mut Plan) {
        let deployment = self.deployment;
        let mut template = Cursor::root(deployment).map_or_empty("spec.template").clone();
        let collisions = Cursor::root(deployment).integer("status.collisionCount");
        let hash = safe_text(template_hash(&template, collisions));
        let name = format!("{}-{hash}", deployment.name());
        if self
            .sees
            .cluster
            .find(Resource::ReplicaSet, deployment.namespace(), &name)
            .is_some()
        {
            // The name belongs to a ReplicaSet with a different template or a different owner, so the next attempt uses
            // a different hash.
            let mut next = status(deployment).clone();
            next.insert("collisionCount".into(), (collisions.unwrap_or(0) + 1).into());
            return plan.status(Resource::Deployment, deployment, next);
        }
        let labels = with_hash(Cursor::root(&template).map_or_empty("metadata.labels"), &hash);
        let mut metadata = Cursor::root(&template).map_or_empty("metadata").clone();
        metadata.insert("labels".into(), labels.clone().into());
        template.insert("metadata".into(), metadata.into());
        let mut selector = Cursor::root(deployment).map_or_empty("spec.selector").clone();
        let matched = with_hash(Cursor::root(&selector).map_or_empty("matchLabels"), &hash);
        selector.insert("matchLabels".into(), matched.into());
        let count = self.size_of_new(0);
        let mut notes = self.set_annotations(Map::new(), wanted);
        notes.insert(DESIRED.into(), replicas(deployment).to_string().into());
        notes.insert(
            MAXIMUM.into(),
            (replicas(deployment) + self.max_surge()).to_string().into(),
        );
        let mut set_spec = json!({"replicas": count, "selector": selector, "template": template});
        if let Some(map) = set_spec.as_object_mut() {
            copy_field(spec(deployment), map, "minReadySeconds");
        }
        let set = json!({
            "metadata": {
                "name": name, "namespace": deployment.namespace(), "labels": labels, "annotations": notes,
                "ownerReferences": [controller_reference(Resource::Deployment, deployment)],
            },
            "spec": set_spec,
        });
        let told = Told {
            about: Regarding::of(Resource::Deployment, deployment),
            component: COMPONENT,
            success: None,
            failure: (CREATE_ERROR, create_error(&name, "{}")),
        };
        plan.create_and_tell(Resource::ReplicaSet, set, Some(told));
        if let Some(conditions) = self.sees.failure.and_then(|why| self.conditions_refused(&name, why)) {
            // The ReplicaSet was refused, and only the status is written.
            let mut next = status(deployment).clone();
            next.insert("conditions".into(), conditions.into());
            plan.status(Resource::Deployment, deployment, next);
        }
        if count > 0 {
            self.tell_scaling(&name, 0, count, plan);
        }
        self.number_deployment(wanted, self.conditions_created(&name), plan);
    }

    /// Deletes the oldest ReplicaSets without replicas that exceed the history limit.
    pub(super) fn clean_up(&self, plan: &mut Plan) {
        let Some(limit) = Cursor::root(self.deployment).integer("spec.revisionHistoryLimit") else {
            return;
        };
        let mut old: Vec<&Arc<Object>> = self.old().into_iter().filter(|it| !it.is_terminating()).collect();
        old.sort_by_key(|it| revision(it));
        let surplus = old.len().saturating_sub(usize::try_from(limit).unwrap_or(0));
        for set in old.into_iter().take(surplus) {
            let observed = Cursor::root(set).integer("status.observedGeneration").unwrap_or(0);
            let is_empty = Cursor::root(set).integer("status.replicas").unwrap_or(0) == 0 && replicas(set) == 0;
            if is_empty && generation(set) <= observed {
                plan.delete(Resource::ReplicaSet, set);
            }
        }
    }
}

fn with_hash(labels: &Map, hash: &str) -> Map {
    let mut labels = labels.clone();
    labels.insert(HASH_LABEL.into(), hash.into());
    labels
}

/// Returns the merge patch from one map of strings to another.
fn difference(from: &Map, to: &Map) -> Value {
    let gone = from
        .keys()
        .filter(|key| !to.contains_key(key))
        .map(|key| (key.clone(), Value::Null));
    let new = to.iter().filter(|(key, value)| from.get(key) != Some(*value));
    Value::Object(
        gone.chain(new.map(|(key, value)| (key.clone(), value.clone())))
            .collect(),
    )
}
