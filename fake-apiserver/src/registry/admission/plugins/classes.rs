//! `RuntimeClass`, `DefaultStorageClass`, `DefaultIngressClass` and `PersistentVolumeClaimResize`: copy fields of a
//! class to the objects that use it, set default classes, and check that a class permits an operation.

use std::sync::Arc;

use crate::api::json::{Map, Value};
use crate::api::object::Object;
use crate::registry::reader::Reader;
use crate::registry::types::cursor::Cursor;
use crate::registry::types::edit::ensure_object;
use crate::registry::types::quantity::Quantity;

/// Sets the overhead and the scheduling of a new Pod from its RuntimeClass. Fails with the part of the message after
/// `pods "p" is forbidden: `.
pub(super) fn set_overhead(reader: &Reader, pod: &mut Object) -> Result<(), String> {
    let name = Cursor::root(pod).text("spec.runtimeClassName").to_owned();
    let has_overhead = |pod: &Object| !Cursor::root(pod).is_empty("spec.overhead");
    if name.is_empty() {
        if has_overhead(pod) {
            return Err(
                "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead".to_owned(),
            );
        }
        return Ok(());
    }
    let classes = reader.known_objects("node.k8s.io", "runtimeclasses");
    let class = classes.iter().find(|it| it.name() == name);
    let class = class.ok_or_else(|| format!("pod rejected: RuntimeClass \"{name}\" not found"))?;
    match Cursor::root(class).get("overhead.podFixed") {
        Some(fixed) if has_overhead(pod) && Cursor::root(pod).get("spec.overhead") != Some(fixed) => {
            return Err("pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead".to_owned());
        }
        Some(fixed) => {
            ensure_object(pod, "spec").insert("overhead".into(), fixed.clone());
        }
        None if has_overhead(pod) => {
            return Err(
                "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead".to_owned(),
            );
        }
        None => {}
    }
    schedule(class, pod)
}

fn schedule(class: &Object, pod: &mut Object) -> Result<(), String> {
    let wanted = Cursor::root(class).map("scheduling.nodeSelector");
    if let Some(wanted) = wanted.filter(|it| !it.is_empty()) {
        let selector = ensure_object(ensure_object(pod, "spec"), "nodeSelector");
        for (key, value) in wanted {
            let own = selector.get(key).filter(|own| *own != value);
            if let Some(own) = own.and_then(Value::as_str) {
                let theirs = value.as_str().unwrap_or_default();
                return Err(format!(
                    "conflict: runtimeClass.scheduling.nodeSelector[{key}] = {theirs}; \
                     pod.spec.nodeSelector[{key}] = {own}"
                ));
            }
            selector.insert(key.clone(), value.clone());
        }
    }
    let tolerations = Cursor::root(class).list("scheduling.tolerations");
    if !tolerations.is_empty() {
        let own = Cursor::root(pod).list("spec.tolerations");
        let missing = tolerations.iter().filter(|it| !own.contains(it));
        let all: Vec<Value> = own.iter().chain(missing).cloned().collect();
        ensure_object(pod, "spec").insert("tolerations".into(), all.into());
    }
    Ok(())
}

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
    let class = class_of(claim);
    let classes = reader.known_objects("storage.k8s.io", "storageclasses");
    let allows = |it: &Arc<Object>| it.name() == class && Cursor::root(it).flag("allowVolumeExpansion") == Some(true);
    if class.is_empty() || class_of(old) != class || !classes.iter().any(allows) {
        let why = "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must \
                   support resize";
        return Err(why.to_owned());
    }
    Ok(())
}

/// Returns the class of a claim, or an empty string.
fn class_of(claim: &Object) -> &str {
    let annotation = Cursor::root(claim)
        .map("metadata.annotations")
        .and_then(|it| it.get(BETA)?.as_str());
    annotation.unwrap_or_else(|| Cursor::root(claim).text("spec.storageClassName"))
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
