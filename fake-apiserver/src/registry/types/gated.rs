//! Drops fields that depend on feature gates that are disabled in the served version of Kubernetes, but not in the
//! default version. As in kube-apiserver, they are dropped before validation (`dropDisabledFields` of the packages in
//! `pkg/registry`). The strategies of kinds drop fields with gates that are also disabled in the default version.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};

use super::schema::builtin::{Shape, StructType};
use crate::api::json::{Map, Value};

/// Drops the fields for which [`is_gated`](super::schema::builtin::Field::is_gated) returns `true`, at any depth.
pub(crate) fn drop_gated(shape: &'static Shape, object: &mut Map) {
    if !leads_to_gated(shape) {
        return;
    }
    match shape.structure() {
        Some(structure) => {
            for field in structure.fields() {
                if field.is_gated() {
                    object.remove(field.name());
                } else if let Some(value) = object.get_mut(field.name()) {
                    drop_in(field.shape(), value);
                }
            }
        }
        None => {
            let values = shape.values();
            for value in object.values_mut() {
                values.into_iter().for_each(|shape| drop_in(shape, value));
            }
        }
    }
}

fn drop_in(shape: &'static Shape, value: &mut Value) {
    match value {
        Value::Object(map) => drop_gated(shape, map),
        Value::Array(items) => {
            let Some(shape) = shape.items() else { return };
            items.iter_mut().for_each(|item| drop_in(shape, item));
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Returns `true` if values of the type can contain a gated field. Most types cannot.
fn leads_to_gated(shape: &'static Shape) -> bool {
    static KNOWN: Mutex<BTreeMap<usize, bool>> = Mutex::new(BTreeMap::new());
    let key = std::ptr::from_ref(shape).addr();
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    *known.entry(key).or_insert_with(|| reaches(shape, &mut BTreeSet::new()))
}

fn reaches(shape: &'static Shape, seen: &mut BTreeSet<usize>) -> bool {
    let below = |structure: &'static StructType, seen: &mut BTreeSet<usize>| {
        seen.insert(std::ptr::from_ref(structure).addr())
            && structure
                .fields()
                .iter()
                .any(|field| field.is_gated() || reaches(field.shape(), seen))
    };
    match shape.structure() {
        Some(structure) => below(structure, seen),
        None => shape
            .items()
            .or_else(|| shape.values())
            .is_some_and(|inner| reaches(inner, seen)),
    }
}
