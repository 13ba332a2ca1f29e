//! The conditions of a namespace that is being deleted, with the reasons why it still exists.

use std::collections::BTreeMap;

use crate::api::json::{Value, json};
use crate::api::object::Object;

/// The conditions in their order, with their reason and message if the deletion makes progress.
const ALL_WELL: [(&str, &str, &str); 5] = [
    (
        "NamespaceDeletionDiscoveryFailure",
        "ResourcesDiscovered",
        "All resources successfully discovered",
    ),
    (
        "NamespaceDeletionGroupVersionParsingFailure",
        "ParsedGroupVersions",
        "All legacy kube types successfully parsed",
    ),
    (
        "NamespaceDeletionContentFailure",
        "ContentDeleted",
        "All content successfully deleted, may be waiting on finalization",
    ),
    (
        "NamespaceContentRemaining",
        "ContentRemoved",
        "All content successfully removed",
    ),
    (
        "NamespaceFinalizersRemaining",
        "ContentHasNoFinalizers",
        "All content-preserving finalizers finished",
    ),
];

/// A problem of the deletion, reported as a condition with the status `True`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Trouble {
    kind: &'static str,
    reason: &'static str,
    message: String,
}

impl Trouble {
    /// Returns the condition for failed deletions, with a message for each resource.
    pub(super) fn failures(errors: &[String]) -> Option<Self> {
        let mut sorted = errors.to_vec();
        sorted.sort_unstable();
        (!errors.is_empty()).then(|| Self {
            kind: "NamespaceDeletionContentFailure",
            reason: "ContentDeletionFailed",
            message: format!(
                "Failed to delete all resource types, {} remaining: {}",
                errors.len(),
                sorted.join(", ")
            ),
        })
    }

    /// Returns the condition for remaining objects. `counts` maps resource names, as used in error messages, to numbers
    /// of objects.
    pub(super) fn remaining(counts: &BTreeMap<String, usize>) -> Option<Self> {
        let texts = texts(counts, |name, count| format!("{name} has {count} resource instances"));
        texts.map(|texts| Self {
            kind: "NamespaceContentRemaining",
            reason: "SomeResourcesRemain",
            message: format!("Some resources are remaining: {texts}"),
        })
    }

    /// Returns the condition for remaining finalizers. `counts` maps finalizers to numbers of remaining objects.
    pub(super) fn finalizers(counts: &BTreeMap<String, usize>) -> Option<Self> {
        let texts = texts(counts, |name, count| format!("{name} in {count} resource instances"));
        texts.map(|texts| Self {
            kind: "NamespaceFinalizersRemaining",
            reason: "SomeFinalizersRemain",
            message: format!("Some content in the namespace has finalizers remaining: {texts}"),
        })
    }
}

/// Returns the sorted messages for all counts; `None` if the map is empty.
fn texts(counts: &BTreeMap<String, usize>, text: impl Fn(&str, usize) -> String) -> Option<String> {
    let mut texts: Vec<String> = counts.iter().map(|(name, count)| text(name, *count)).collect();
    texts.sort_unstable();
    (!texts.is_empty()).then(|| texts.join(", "))
}

/// Updates `status.conditions`; returns `true` if they have changed.
pub(super) fn update(namespace: &mut Object, troubles: &[Trouble], now: &str) -> bool {
    let status = namespace.entry("status").or_insert_with(|| json!({}));
    let mut conditions = match status.get_mut("conditions").map(Value::take) {
        Some(Value::Array(conditions)) => conditions,
        Some(_) | None => Vec::new(),
    };
    let mut has_changed = false;
    for (kind, reason, message) in ALL_WELL {
        let trouble = troubles.iter().find(|it| it.kind == kind);
        let (state, reason, message) = match trouble {
            Some(trouble) => ("True", trouble.reason, trouble.message.as_str()),
            None => ("False", reason, message),
        };
        let Some(old) = conditions.iter_mut().find(|it| it["type"] == kind) else {
            conditions.push(json!({
                "type": kind, "status": state, "lastTransitionTime": now, "reason": reason, "message": message,
            }));
            has_changed = true;
            continue;
        };
        if old["status"] != state {
            old["lastTransitionTime"] = now.into();
        }
        for (field, value) in [("status", state), ("reason", reason), ("message", message)] {
            if old[field] != value {
                old[field] = value.into();
                has_changed = true;
            }
        }
    }
    if let Some(status) = status.as_object_mut() {
        status.insert("conditions".into(), conditions.into());
    }
    has_changed
}
