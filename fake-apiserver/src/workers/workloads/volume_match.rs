//! Rules for binding a PersistentVolumeClaim to an existing PersistentVolume.

use std::sync::Arc;

use super::cluster::selects;
use super::node_rules::fits_term;
use super::pods::spec;
use super::resource::Resource;
use super::sees::{Sees, selector_of};
use crate::api::json::Map;
use crate::api::object::Object;
use crate::registry::types::cursor::Cursor;
use crate::registry::types::quantity::Quantity;

/// Returns the class of a claim or a volume; empty if it is unset.
pub(crate) fn class_of(object: &Object) -> &str {
    Cursor::root(object).text("spec.storageClassName")
}

/// Returns `true` if a volume is reserved for a claim.
pub(crate) fn is_for(reference: &Map, claim: &Object) -> bool {
    let uid = Cursor::root(reference).text("uid");
    Cursor::root(reference).text("name") == claim.name()
        && Cursor::root(reference).text("namespace") == claim.namespace()
        && (uid.is_empty() || uid == claim.uid())
}

/// Returns the size that a claim requests.
pub(crate) fn requested(claim: &Object) -> Option<Quantity> {
    let requests = Cursor::root(claim).map_or_empty("spec.resources.requests");
    Quantity::parse(Cursor::root(requests).text("storage")).ok()
}

/// Returns `true` if a volume is usable on a node.
pub(crate) fn is_usable_on(volume: &Object, node: &Object) -> bool {
    let Some(required) = Cursor::root(volume).map("spec.nodeAffinity.required") else {
        return true;
    };
    Cursor::root(required)
        .maps("nodeSelectorTerms")
        .any(|term| fits_term(term, node))
}

/// Returns the reason why a claim cannot be bound to the volume that it names (Go's `checkVolumeSatisfyClaim`).
pub(crate) fn mismatch(volume: &Object, claim: &Object) -> Option<String> {
    if volume.is_terminating() {
        return Some(format!("the volume is marked for deletion {:?}", volume.name()));
    }
    let why = if !is_large_enough(volume, claim) {
        "requested PV is too small"
    } else if class_of(volume) != class_of(claim) {
        "storageClassName does not match"
    } else if attributes(volume) != attributes(claim) {
        "volumeAttributesClassName does not match"
    } else if mode(volume) != mode(claim) {
        "incompatible volumeMode"
    } else if !has_access_modes(volume, claim) {
        "incompatible accessMode"
    } else {
        return None;
    };
    Some(why.to_owned())
}

fn size(volume: &Object) -> Option<i64> {
    let size = Quantity::parse(Cursor::root(volume).text("spec.capacity.storage"));
    size.ok().map(|it| it.value())
}

fn is_large_enough(volume: &Object, claim: &Object) -> bool {
    size(volume).unwrap_or(0) >= requested(claim).map_or(0, |it| it.value())
}

fn attributes(object: &Object) -> &str {
    Cursor::root(object).text("spec.volumeAttributesClassName")
}

fn mode(object: &Object) -> &str {
    match Cursor::root(object).text("spec.volumeMode") {
        "" => "Filesystem",
        mode => mode,
    }
}

fn has_access_modes(volume: &Object, claim: &Object) -> bool {
    let has = Cursor::root(volume).list("spec.accessModes");
    Cursor::root(claim)
        .list("spec.accessModes")
        .iter()
        .all(|it| has.contains(it))
}

/// Returns the volume reserved for a claim, otherwise the smallest suitable free volume, which must be usable on `node`
/// if it is set (Go's `FindMatchingVolume`).
pub(crate) fn fitting_volume<'a>(claim: &Object, node: Option<&Object>, sees: &Sees<'a>) -> Option<&'a Arc<Object>> {
    let selector = selector_of(spec(claim), "selector");
    let suits = |volume: &&Arc<Object>| {
        !volume.is_terminating()
            && is_large_enough(volume, claim)
            && mode(volume) == mode(claim)
            && attributes(volume) == attributes(claim)
            && has_access_modes(volume, claim)
    };
    let volumes = || sees.cluster.all(Resource::PersistentVolume).filter(suits);
    let is_usable = |volume: &Object| node.is_none_or(|node| is_usable_on(volume, node));
    let is_reserved = |volume: &&Arc<Object>| {
        let reference = Cursor::root(volume).map("spec.claimRef");
        reference.is_some_and(|it| is_for(it, claim))
    };
    if let Some(reserved) = volumes().find(is_reserved) {
        return Some(reserved).filter(|it| is_usable(it));
    }
    let is_free = |volume: &&Arc<Object>| {
        Cursor::root(volume).map("spec.claimRef").is_none()
            && Cursor::root(volume).text("status.phase") == "Available"
            && class_of(volume) == class_of(claim)
            && selector.as_ref().is_none_or(|it| selects(it, volume))
            && is_usable(volume)
    };
    volumes()
        .filter(is_free)
        .min_by_key(|it| (size(it), it.name().to_owned()))
}
