//! `RuntimeClass`: copies the overhead and the scheduling of a class to new Pods, and checks the overhead of Pods.
//! Errors are the part of the message after `pods "p" is forbidden: `.

use std::sync::Arc;

use crate::api::json::Value;
use crate::api::object::Object;
use crate::registry::reader::Reader;
use crate::registry::types::cursor::Cursor;
use crate::registry::types::edit::ensure_object;

const MISMATCH: &str = "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead";

/// Sets the overhead and the scheduling of a new Pod from its class.
pub(super) fn admit(reader: &Reader, pod: &mut Object) -> Result<(), String> {
    let Some(class) = class_of(reader, pod)? else {
        return Ok(());
    };
    if let Some(fixed) = Cursor::root(&class).get("overhead.podFixed") {
        let pod_overhead = Cursor::root(pod).get("spec.overhead");
        if !Cursor::root(pod).is_empty("spec.overhead") && pod_overhead != Some(fixed) {
            return Err(MISMATCH.to_owned());
        }
        ensure_object(pod, "spec").insert("overhead".into(), fixed.clone());
    }
    schedule(&class, pod)
}

/// Checks that a new Pod has the overhead of its class, and no other.
pub(super) fn check(reader: &Reader, pod: &Object) -> Result<(), String> {
    let class = class_of(reader, pod)?;
    let fixed = class.as_ref().and_then(|it| Cursor::root(it).get("overhead.podFixed"));
    let root = Cursor::root(pod);
    match fixed {
        Some(fixed) if root.get("spec.overhead") != Some(fixed) => Err(MISMATCH.to_owned()),
        None if !root.is_empty("spec.overhead") => {
            Err("pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead".to_owned())
        }
        Some(_) | None => Ok(()),
    }
}

/// Returns the RuntimeClass that a Pod references, if any; fails if it does not exist.
fn class_of(reader: &Reader, pod: &Object) -> Result<Option<Arc<Object>>, String> {
    let name = Cursor::root(pod).text("spec.runtimeClassName");
    if name.is_empty() {
        return Ok(None);
    }
    let classes = reader.known_objects("node.k8s.io", "runtimeclasses");
    let class = classes.into_iter().find(|it| it.name() == name);
    let missing = || format!("pod rejected: RuntimeClass \"{name}\" not found");
    class.ok_or_else(missing).map(Some)
}

fn schedule(class: &Object, pod: &mut Object) -> Result<(), String> {
    let root = Cursor::root(class);
    let Some(scheduling) = root.present("scheduling") else {
        return Ok(());
    };
    let wanted = scheduling.map_or_empty("nodeSelector");
    if !wanted.is_empty() {
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
    let merged = merge(
        Cursor::root(pod).list("spec.tolerations"),
        scheduling.list("tolerations"),
    );
    if !merged.is_empty() {
        ensure_object(pod, "spec").insert("tolerations".into(), merged.into());
    }
    Ok(())
}

/// Merges two lists of tolerations. If one toleration covers another, only the covering one is kept
/// (`MergeTolerations`).
fn merge(first: &[Value], second: &[Value]) -> Vec<Value> {
    let all: Vec<&Value> = first.iter().chain(second).collect();
    let mut merged: Vec<&Value> = Vec::new();
    for (index, &toleration) in all.iter().enumerate() {
        let is_covered = merged.iter().any(|it| covers(it, toleration));
        // The first of two equal tolerations is kept.
        let mut later = all.iter().skip(index + 1);
        if !is_covered && !later.any(|it| *it != toleration && covers(it, toleration)) {
            merged.push(toleration);
        }
    }
    merged.into_iter().cloned().collect()
}

/// Returns `true` if `wide` tolerates all taints that `narrow` tolerates (`isSuperset`).
fn covers(wide: &Value, narrow: &Value) -> bool {
    if wide == narrow {
        return true;
    }
    let (wide, narrow) = (Cursor::document(wide), Cursor::document(narrow));
    let operator = wide.text("operator");
    let covers_key = wide.text("key") == narrow.text("key") || (wide.text("key").is_empty() && operator == "Exists");
    let effect = wide.text("effect");
    let covers_effect = effect.is_empty() || effect == narrow.text("effect");
    let covers_time = match wide.integer("tolerationSeconds").filter(|_| effect == "NoExecute") {
        Some(most) => narrow.integer("tolerationSeconds").is_some_and(|it| it <= most),
        None => true,
    };
    let covers_value = match operator {
        "" | "Equal" => narrow.text("operator") == "Equal" && narrow.text("value") == wide.text("value"),
        "Exists" => true,
        _ => false,
    };
    covers_key && covers_effect && covers_time && covers_value
}
