//! ControllerRevisions: the history of the templates of StatefulSets and DaemonSets.

use std::sync::Arc;

use super::plan::{Plan, controller_reference};
use super::pods::{label, spec};
use super::resource::Resource;
use super::sees::{Sees, selector_of};
use crate::api::json::{Map, Value, json};
use crate::api::object::Object;
use crate::registry::types::cursor::Cursor;
use crate::workers::hash::{safe_text, template_hash};

/// The Pod label with the revision of its set.
pub(crate) const HASH_LABEL: &str = "controller-revision-hash";
/// The label of a StatefulSet's ControllerRevision with its hash (Go's `ControllerRevisionHashLabel`).
const REVISION_HASH: &str = "controller.kubernetes.io/hash";

/// The revisions of a set, oldest first.
pub(crate) struct Revisions<'a> {
    pub(crate) all: Vec<&'a Arc<Object>>,
    /// The revision of the current template; `None` until it exists.
    pub(crate) update: Option<&'a Arc<Object>>,
}

/// Returns the data of a revision for a template.
fn data(template: &Map) -> Value {
    let mut template = template.clone();
    template.insert("$patch".into(), "replace".into());
    json!({"spec": {"template": template}})
}

/// Finds the revisions of a set, and adopts revisions without an owner. Plans to create the current one, or to renumber
/// it if the set has returned to an older template; in both cases `update` is `None` until the change has been
/// observed.
pub(crate) fn revisions_of<'a>(resource: Resource, set: &Object, sees: &Sees<'a>, plan: &mut Plan) -> Revisions<'a> {
    let mut all: Vec<_> = match selector_of(spec(set), "selector") {
        Some(selector) => sees.claimed(Resource::ControllerRevision, (resource, set), &selector, plan),
        None => Vec::new(),
    };
    all.sort_by_key(|it| (number(it), it.name().to_owned()));
    let template = Cursor::root(set).map_or_empty("spec.template");
    let wanted = data(template);
    let found = all.iter().copied().rfind(|it| it.get("data") == Some(&wanted));
    let next = all.last().map_or(1, |it| number(it) + 1);
    match found {
        Some(found) if number(found) + 1 == next => Revisions {
            all,
            update: Some(found),
        },
        Some(found) => {
            plan.merge(Resource::ControllerRevision, found, json!({"revision": next}));
            Revisions { all, update: None }
        }
        None => {
            create(resource, set, template, next, sees, plan);
            Revisions { all, update: None }
        }
    }
}

fn create(resource: Resource, set: &Object, template: &Map, number: i64, sees: &Sees<'_>, plan: &mut Plan) {
    // Searches for the first hash that is not used by other revisions.
    let names = (0..).map(|collisions| {
        let hash = safe_text(template_hash(template, (collisions > 0).then_some(collisions)));
        (format!("{}-{hash}", set.name()), hash)
    });
    let is_free = |name: &str| {
        sees.cluster
            .find(Resource::ControllerRevision, set.namespace(), name)
            .is_none()
    };
    let Some((name, hash)) = names.take(1000).find(|(name, _)| is_free(name)) else {
        return;
    };
    let mut labels = Cursor::root(template).map_or_empty("metadata.labels").clone();
    let label = match resource {
        Resource::StatefulSet => REVISION_HASH,
        _ => HASH_LABEL,
    };
    labels.insert(label.into(), hash.into());
    let mut metadata = json!({
        "name": name, "namespace": set.namespace(), "labels": labels,
        "ownerReferences": [controller_reference(resource, set)],
    });
    if let Some(annotations) = Cursor::root(set).map("metadata.annotations") {
        metadata["annotations"] = annotations.clone().into();
    }
    plan.create(
        Resource::ControllerRevision,
        json!({"metadata": metadata, "data": data(template), "revision": number}),
    );
}

/// Returns the field `revision`.
pub(crate) fn number(revision: &Object) -> i64 {
    Cursor::root(revision).integer("revision").unwrap_or(0)
}

/// Returns the value of the revision label of Pods: the name of the ControllerRevision for StatefulSets, its hash for
/// DaemonSets.
pub(crate) fn label_of(revision: &Object) -> &str {
    label(revision, HASH_LABEL).unwrap_or(revision.name())
}

/// Returns the template of a revision.
pub(crate) fn template(revision: &Object) -> Map {
    let data = Cursor::root(revision).map_or_empty("data.spec");
    let mut template = Cursor::root(data).map_or_empty("template").clone();
    template.remove("$patch");
    template
}

/// Deletes the oldest revisions beyond the history limit, except the revision of the current template and revisions in
/// `live`. If `counts_live` is set, the limit also includes the revisions in `live`, as for DaemonSets (Go's
/// `cleanupHistory`).
pub(crate) fn clean_up(set: &Object, revisions: &Revisions<'_>, live: &[&str], counts_live: bool, plan: &mut Plan) {
    let limit = Cursor::root(set).integer("spec.revisionHistoryLimit").unwrap_or(10);
    let is_current = |it: &Object| revisions.update.is_some_and(|update| update.uid() == it.uid());
    let old: Vec<_> = revisions.all.iter().filter(|it| !is_current(it)).collect();
    let unused: Vec<_> = old.iter().filter(|it| !live.contains(&label_of(it))).collect();
    let counted = if counts_live { old.len() } else { unused.len() };
    let surplus = counted.saturating_sub(usize::try_from(limit).unwrap_or(0));
    for revision in unused.into_iter().take(surplus) {
        plan.delete(Resource::ControllerRevision, revision);
    }
}
