//! Status of a CRD, as written by the CRD controllers: they accept names, establish the CRD, and remove a deleted CRD
//! after its objects (rules O2, O14).

use std::collections::BTreeMap;

use super::super::definition::{condition, condition_is};
use super::super::schema::strings;
use super::approval::Approval;
use super::conversion;
use crate::api::field::quote;
use crate::api::json::{Map, Value, json};
use crate::api::object::Object;
use crate::registry::types::cursor::Cursor;

/// Finalizer that keeps a deleted CRD until its objects are deleted.
pub(crate) const CLEANUP_FINALIZER: &str = "customresourcecleanup.apiextensions.k8s.io";

/// Returns the next state that the CRD controllers write for a CRD; `None` if its status is up to date. `used` are the
/// accepted names of the CRDs in its group, with or without this CRD; `now` is the time in the format of metadata. To
/// perform all writes of kube-apiserver, call this function until it returns `None`. After a change or a removal, call
/// it for the other CRDs of the group as well, because names may have become available.
pub(crate) fn reconcile(crd: &Object, used: &UsedNames, now: &str) -> Option<Object> {
    report_approval(crd, now)
        .or_else(|| accept_names(crd, used, now))
        .or_else(|| establish(crd, now))
}

/// Returns `true` if [`reconcile`] would not change a CRD, regardless of the names of other CRDs.
pub(crate) fn is_settled(crd: &Object) -> bool {
    let wanted = CrdNames::wanted(crd);
    condition_is(crd, "Established", "True") && wanted == CrdNames::accepted(crd) && report_approval(crd, "").is_none()
}

/// Returns `spec.group`.
pub(crate) fn group(crd: &Object) -> &str {
    Cursor::root(crd).text("spec.group")
}

/// Returns the next state of a CRD that is being deleted: first with the condition `Terminating`, then without the
/// finalizer. Returns `None` if the condition is already set and objects of an established CRD are left, or if the CRD
/// is not being deleted or does not have the finalizer.
pub(crate) fn finalize(crd: &Object, instances_left: bool, now: &str) -> Option<Object> {
    if !crd.is_terminating() || !crd.finalizers().any(|it| it == CLEANUP_FINALIZER) {
        return None;
    }
    let terminating = condition(crd, "Terminating");
    let mut next = crd.clone();
    if terminating.is_none_or(|it| Cursor::root(it).text("reason") != "InstanceDeletionInProgress") {
        let message = "CustomResource deletion is in progress";
        set_condition(
            &mut next,
            "Terminating",
            "True",
            "InstanceDeletionInProgress",
            message,
            now,
        );
        return Some(next);
    }
    let established = condition_is(crd, "Established", "True");
    if established && instances_left {
        return None;
    }
    let (reason, message) = match established {
        true => ("InstanceDeletionCompleted", "removed all instances"),
        false => ("NeverEstablished", "resource was never established"),
    };
    set_condition(&mut next, "Terminating", "False", reason, message, now);
    let meta = next.metadata_mut();
    if let Some(finalizers) = meta.get_mut("finalizers").and_then(Value::as_array_mut) {
        finalizers.retain(|it| it != CLEANUP_FINALIZER);
        if finalizers.is_empty() {
            meta.remove("finalizers");
        }
    }
    Some(next)
}

/// Adds the finalizer and the condition that are written together with the deletionTimestamp of a CRD.
pub(super) fn begin_deletion(crd: &mut Object) {
    let now = crd.meta_str("deletionTimestamp").to_owned();
    if !crd.finalizers().any(|it| it == CLEANUP_FINALIZER) {
        let finalizers = crd.metadata_mut().entry("finalizers").or_insert_with(|| json!([]));
        if let Some(list) = finalizers.as_array_mut() {
            list.push(CLEANUP_FINALIZER.into());
        }
    }
    if condition(crd, "Terminating").is_none() {
        let message = "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon";
        set_condition(crd, "Terminating", "True", "InstanceDeletionPending", message, &now);
    }
}

/// The names in the spec or the status of a CRD.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct CrdNames {
    plural: String,
    singular: String,
    short_names: Vec<String>,
    kind: String,
    list_kind: String,
    categories: Vec<String>,
}

impl CrdNames {
    /// Returns the accepted names in the status of a CRD.
    pub(crate) fn accepted(crd: &Object) -> Self {
        Self::of(&Cursor::root(crd).at("status.acceptedNames"))
    }

    /// Returns the names in the spec of a CRD.
    fn wanted(crd: &Object) -> Self {
        Self::of(&Cursor::root(crd).at("spec.names"))
    }

    /// Returns the plural, the singular and the short names.
    fn resources(&self) -> impl Iterator<Item = &String> {
        [&self.plural, &self.singular].into_iter().chain(&self.short_names)
    }

    /// Returns the names of the kind and of its list kind.
    fn kinds(&self) -> impl Iterator<Item = &String> {
        [&self.kind, &self.list_kind].into_iter()
    }

    fn of(names: &Cursor<'_>) -> Self {
        Self {
            plural: names.text("plural").to_owned(),
            singular: names.text("singular").to_owned(),
            short_names: strings(names, "shortNames"),
            kind: names.text("kind").to_owned(),
            list_kind: names.text("listKind").to_owned(),
            categories: strings(names, "categories"),
        }
    }

    fn to_value(&self) -> Value {
        let mut map = Map::new();
        map.insert("plural".into(), json!(self.plural));
        map.insert("kind".into(), json!(self.kind));
        for (key, text) in [("singular", &self.singular), ("listKind", &self.list_kind)] {
            if !text.is_empty() {
                map.insert(key.into(), json!(text));
            }
        }
        for (key, list) in [("shortNames", &self.short_names), ("categories", &self.categories)] {
            if !list.is_empty() {
                map.insert(key.into(), json!(list));
            }
        }
        Value::Object(map)
    }
}

/// Returns the CRD with a condition about the approval of its group; `None` if the group needs no approval, or if the
/// condition is up to date (rule O19).
fn report_approval(crd: &Object, now: &str) -> Option<Object> {
    const CONFORMS: &str = "KubernetesAPIApprovalPolicyConformant";
    let approval = Approval::of(&Cursor::root(crd))?;
    let (status, reason, message) = approval.condition();
    let mut next = crd.clone();
    set_condition(&mut next, CONFORMS, status, reason, &message, now);
    (next != *crd).then_some(next)
}

fn accept_names(crd: &Object, used: &UsedNames, now: &str) -> Option<Object> {
    let wanted = CrdNames::wanted(crd);
    let had = CrdNames::accepted(crd);
    if wanted == had {
        return None;
    }
    let (names, conflict) = resolve(&wanted, &had, used);
    let (status, reason, message) = match &conflict {
        None => ("True", "NoConflicts", "no conflicts found"),
        Some((reason, message)) => ("False", *reason, message.as_str()),
    };
    let same = condition(crd, "NamesAccepted").is_some_and(|it| {
        let it = Cursor::root(it);
        it.text("status") == status && it.text("reason") == reason && it.text("message") == message
    });
    if names == had && same {
        return None;
    }
    let mut next = crd.clone();
    set_condition(&mut next, "NamesAccepted", status, reason, message, now);
    let established = condition(crd, "Established");
    if !condition_is(crd, "Established", "True") {
        if conflict.is_none() {
            let message = "the initial names have been accepted";
            set_condition(&mut next, "Established", "False", "Installing", message, now);
        } else if established.is_none() {
            let message = "not all names are accepted";
            set_condition(&mut next, "Established", "False", "NotAccepted", message, now);
        }
    }
    if let Some(status) = status_mut(&mut next) {
        status.insert("acceptedNames".into(), names.to_value());
    }
    Some(next)
}

/// The names of resources and kinds that are used in a group, each with the number of its uses.
#[derive(Clone, Debug, Default)]
pub(crate) struct UsedNames {
    resources: BTreeMap<String, usize>,
    kinds: BTreeMap<String, usize>,
}

impl UsedNames {
    /// Adds the names of a CRD to the used names.
    pub(crate) fn add(&mut self, names: &CrdNames) {
        let count = |counts: &mut BTreeMap<String, usize>, name: &String| *counts.entry(name.clone()).or_default() += 1;
        names.resources().for_each(|it| count(&mut self.resources, it));
        names.kinds().for_each(|it| count(&mut self.kinds, it));
    }

    /// Removes the names of a CRD that were counted by [`add`](Self::add).
    pub(crate) fn remove(&mut self, names: &CrdNames) {
        let discount = |counts: &mut BTreeMap<String, usize>, name: &String| {
            if let Some(count) = counts.get_mut(name) {
                *count -= 1;
                if *count == 0 {
                    counts.remove(name);
                }
            }
        };
        names.resources().for_each(|it| discount(&mut self.resources, it));
        names.kinds().for_each(|it| discount(&mut self.kinds, it));
    }
}

/// Returns the names that the CRD can use, and the reason and message of the last conflict.
fn resolve(wanted: &CrdNames, had: &CrdNames, used: &UsedNames) -> (CrdNames, Option<(&'static str, String)>) {
    let mut names = had.clone();
    let mut conflict = None;
    let mut claim = |wanted: &String, had: &mut String, used: &BTreeMap<String, usize>, reason: &'static str| {
        if wanted == had || !used.contains_key(wanted) {
            had.clone_from(wanted);
        } else {
            conflict = Some((reason, in_use(wanted)));
        }
    };
    claim(&wanted.plural, &mut names.plural, &used.resources, "PluralConflict");
    claim(
        &wanted.singular,
        &mut names.singular,
        &used.resources,
        "SingularConflict",
    );
    let taken: Vec<&String> = wanted
        .short_names
        .iter()
        .filter(|it| !had.short_names.contains(it) && used.resources.contains_key(*it))
        .collect();
    let short_name_conflict = match taken.as_slice() {
        [] => {
            names.short_names.clone_from(&wanted.short_names);
            None
        }
        [one] => Some(in_use(one)),
        several => {
            let mut texts: Vec<String> = several.iter().map(|it| in_use(it)).collect();
            texts.dedup();
            Some(format!("[{}]", texts.join(", ")))
        }
    };
    let mut kind_conflict = None;
    let mut claim_kind = |wanted: &String, had: &mut String, reason: &'static str| {
        if wanted == had || !used.kinds.contains_key(wanted) {
            had.clone_from(wanted);
        } else {
            kind_conflict = Some((reason, in_use(wanted)));
        }
    };
    claim_kind(&wanted.kind, &mut names.kind, "KindConflict");
    claim_kind(&wanted.list_kind, &mut names.list_kind, "ListKindConflict");
    names.categories.clone_from(&wanted.categories);
    let short_name_conflict = short_name_conflict.map(|text| ("ShortNamesConflict", text));
    (names, kind_conflict.or(short_name_conflict).or(conflict))
}

fn in_use(name: &str) -> String {
    format!("{} is already in use", quote(name))
}

fn establish(crd: &Object, now: &str) -> Option<Object> {
    if !condition_is(crd, "NamesAccepted", "True") || condition_is(crd, "Established", "True") {
        return None;
    }
    let mut next = crd.clone();
    if conversion::invalid_bundle(crd).is_some() {
        let message = "The conversion webhook CABundle is invalid";
        set_condition(&mut next, "Established", "False", "InvalidCABundle", message, now);
    } else {
        let message = "the initial names have been accepted";
        set_condition(&mut next, "Established", "True", "InitialNamesAccepted", message, now);
    }
    (next != *crd).then_some(next)
}

fn status_mut(crd: &mut Object) -> Option<&mut Map> {
    let status = crd.entry("status").or_insert_with(|| json!({}));
    if !status.is_object() {
        *status = json!({});
    }
    status.as_object_mut()
}

/// Sets a condition. `lastTransitionTime` only changes if the status changes.
fn set_condition(crd: &mut Object, kind: &str, status: &str, reason: &str, message: &str, now: &str) {
    let Some(fields) = status_mut(crd) else { return };
    let conditions = fields.entry("conditions").or_insert_with(|| json!([]));
    if !conditions.is_array() {
        *conditions = json!([]);
    }
    let Some(list) = conditions.as_array_mut() else { return };
    let is_same = |it: &&mut Value| it.get("type").and_then(Value::as_str) == Some(kind);
    let Some(found) = list.iter_mut().find(is_same).and_then(Value::as_object_mut) else {
        return list.push(json!({
            "type": kind, "status": status, "lastTransitionTime": now, "reason": reason, "message": message,
        }));
    };
    if found.get("status").and_then(Value::as_str) != Some(status) {
        found.insert("lastTransitionTime".into(), now.into());
    }
    found.insert("status".into(), status.into());
    found.insert("reason".into(), reason.into());
    found.insert("message".into(), message.into());
}
