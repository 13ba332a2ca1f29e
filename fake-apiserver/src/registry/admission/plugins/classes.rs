//! `DefaultStorageClass`, `DefaultIngressClass`, `PersistentVolumeClaimResize` and a part of `Priority`: set default
//! classes, and check that a class permits an operation or may be the default.

use std::sync::Arc;

use crate::api::admission::Operation;
use crate::api::json::Map;
use crate::api::object::Object;
use crate::registry::reader::Reader;
use crate::registry::types::cursor::Cursor;
use crate::registry::types::edit::ensure_object;
use crate::registry::types::quantity::Quantity;

/// Returns the default class: the newest class with one of the annotations `marks` set to `true`. If several are
/// equally old, returns the first by name.
fn default_class(classes: &[Arc<Object>], marks: &[&str]) -> Option<String> {
    let is_default = |class: &&Object| {
        let annotations = Cursor::root(class).map("metadata.annotations");
        let has = |map: &Map| marks.iter().any(|mark| map.get(mark).is_some_and(|it| it == "true"));
        annotations.is_some_and(has)
    };
    let mut marked: Vec<&Object> = classes.iter().map(Arc::as_ref).filter(is_default).collect();
    marked.sort_by(|a, b| {
        let time = |it: &Object| it.meta_str("creationTimestamp").to_owned();
        time(b).cmp(&time(a)).then_with(|| a.name().cmp(b.name()))
    });
    marked.first().map(|it| it.name().to_owned())
}

/// Annotation for the class of a claim, used before the field `storageClassName` existed.
const BETA: &str = "volume.beta.kubernetes.io/storage-class";

/// Sets the default class of a claim without a class.
pub(super) fn set_storage_class(reader: &Reader, claim: &mut Object) {
    let has_annotation = Cursor::root(claim).at("metadata.annotations").entry(BETA).is_set("");
    if Cursor::root(claim).is_set("spec.storageClassName") || has_annotation {
        return;
    }
    let classes = reader.known_objects("storage.k8s.io", "storageclasses");
    let marks = [
        "storageclass.kubernetes.io/is-default-class",
        "storageclass.beta.kubernetes.io/is-default-class",
    ];
    if let Some(name) = default_class(&classes, &marks) {
        ensure_object(claim, "spec").insert("storageClassName".into(), name.into());
    }
}

/// Checks that the class permits expansion if a claim requests more storage than before. Validation has already checked
/// that the claim is bound. Fails with the part of the message after `persistentvolumeclaims "c" is forbidden: `.
pub(super) fn check_resize(reader: &Reader, claim: &Object, old: &Object) -> Result<(), String> {
    let size = |claim: &Object| {
        let asked = Cursor::root(claim).text("spec.resources.requests.storage");
        Quantity::parse(asked).ok()
    };
    if size(claim) <= size(old) {
        return Ok(());
    }
    let (claim, old) = (Cursor::root(claim), Cursor::root(old));
    let class = class_of(&claim);
    let classes = reader.known_objects("storage.k8s.io", "storageclasses");
    let allows = |it: &Arc<Object>| it.name() == class && Cursor::root(it).flag("allowVolumeExpansion") == Some(true);
    if class.is_empty() || class_of(&old) != class || !classes.iter().any(allows) {
        let why = "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must \
                   support resize";
        return Err(why.to_owned());
    }
    Ok(())
}

/// Returns the class of a claim, or an empty string (`GetPersistentVolumeClaimClass`).
pub(super) fn class_of<'a>(claim: &Cursor<'a>) -> &'a str {
    let annotation = claim.map("metadata.annotations").and_then(|it| it.get(BETA)?.as_str());
    annotation.unwrap_or_else(|| claim.text("spec.storageClassName"))
}

/// Sets the default class of an Ingress without a class.
pub(super) fn set_ingress_class(reader: &Reader, ingress: &mut Object) {
    const OLD: &str = "kubernetes.io/ingress.class";
    let has_annotation = Cursor::root(ingress).at("metadata.annotations").entry(OLD).is_set("");
    if Cursor::root(ingress).is_set("spec.ingressClassName") || has_annotation {
        return;
    }
    let classes = reader.known_objects("networking.k8s.io", "ingressclasses");
    if let Some(name) = default_class(&classes, &["ingressclass.kubernetes.io/is-default-class"]) {
        ensure_object(ingress, "spec").insert("ingressClassName".into(), name.into());
    }
}

/// If the written PriorityClass is the default, checks that no other class is the default. The error is the part of the
/// message after `priorityclasses "c" is forbidden: `.
pub(super) fn check_default_priority(reader: &Reader, class: &Object, operation: Operation) -> Result<(), String> {
    let is_default = |class: &Object| Cursor::root(class).is_true("globalDefault");
    if !is_default(class) {
        return Ok(());
    }
    let classes = reader.known_objects("scheduling.k8s.io", "priorityclasses");
    let defaults = classes.iter().filter(|it| is_default(it));
    let present = defaults.min_by_key(|it| Cursor::root(it).integer("value").unwrap_or(0));
    match present {
        Some(present) if operation == Operation::Create || present.name() != class.name() => Err(format!(
            "PriorityClass {} is already marked as default. Only one default can exist",
            present.name()
        )),
        _ => Ok(()),
    }
}
