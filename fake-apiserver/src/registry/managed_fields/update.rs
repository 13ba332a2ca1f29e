//! Ownership by create, update and patch: the writer of a field owns it (rules H8, H16, H17).

use std::collections::BTreeSet;

use super::compare::{Changes, compare, no_fields};
use super::element::same;
use super::entries::{self, Identity};
use super::reconcile::reconcile;
use super::set::FieldSet;
use super::{Manager, Types, json};
use crate::api::json::{Map, Value};
use crate::api::object::Object;
use crate::registry::types::no_version::NoVersion;
use crate::registry::types::schema::SchemaRef;

/// Records in `new` the fields that this write changes compared to `live` (`None` if `new` is created).
///
/// Both are decoded and defaulted in the version of the request. Fields that the server sets later, such as an
/// allocated address or an incremented generation, are not owned by a manager.
pub(crate) fn track_update(types: &Types<'_, '_>, live: Option<&Object>, new: &mut Object, manager: &Manager<'_>) {
    let mut list = starting_entries(live, new, !manager.subresource.is_empty());
    if list.is_empty() && live.is_some_and(|live| !live.uid().is_empty()) {
        // The object is not tracked yet; the next apply starts tracking.
        return;
    }
    let fits = |object: &Object| super::typed::fits(types.schema, &object.0);
    if matches!(types.schema, SchemaRef::Custom(_)) && !(live.is_none_or(fits) && fits(new)) {
        // Fields with a type that the schema no longer declares cannot be owned: tracking restarts.
        return;
    }
    reconcile(types.schema, manager.api_version, &mut list);
    let old = live.map_or(no_fields(), |live| &live.0);
    let changes = compare(types.schema, old, &new.0, manager.reset);
    if changes.has_unknown_item {
        // `UpdateNoErrors`: an object that cannot be compared is not tracked.
        return;
    }
    let changed = !changes.is_empty();
    if changed || has_other_version(&list, manager.api_version) {
        let before = list.len();
        if take_from_owners(types, live, new, manager, &changes, &mut list).is_err() {
            return;
        }
        if !changes.touched.is_empty() {
            give(&mut list, changes.touched, manager);
        }
        if changed || list.len() != before {
            entries::cap_updaters(&mut list);
            entries::sort(&mut list);
        }
    }
    set_entries(new, list);
}

/// Removes the entries from `new`, and returns the initial entries: the entries that the client sent if they are valid,
/// otherwise the entries of `live`. If the client requests a reset, the list is empty. Entries sent to a subresource
/// are ignored.
fn starting_entries(live: Option<&Object>, new: &mut Object, is_subresource: bool) -> Vec<Value> {
    let sent = match new.0.get_mut("metadata") {
        Some(Value::Object(metadata)) => metadata.remove("managedFields"),
        _ => None,
    };
    let stored = live
        .and_then(Object::metadata)
        .and_then(|metadata| metadata.get("managedFields"))
        .and_then(Value::as_array);
    if let Some(Value::Array(sent)) = sent {
        if stored.is_some_and(|stored| *stored == sent) {
            return sent;
        }
        if !is_subresource {
            if entries::is_reset(&sent) {
                return Vec::new();
            }
            if let Ok(sent) = entries::canonical(sent) {
                return sent;
            }
        }
    }
    stored.cloned().unwrap_or_default()
}

/// Stores the entries in the object; an empty list removes `managedFields`.
pub(super) fn set_entries(object: &mut Object, list: Vec<Value>) {
    if list.is_empty() {
        if let Some(Value::Object(metadata)) = object.0.get_mut("metadata") {
            metadata.remove("managedFields");
        }
    } else {
        object.metadata_mut().insert("managedFields".into(), Value::Array(list));
    }
}

pub(super) fn has_other_version(list: &[Value], api_version: &str) -> bool {
    list.iter()
        .any(|entry| entries::text(entry, "apiVersion") != api_version)
}

/// Error for an object that cannot be converted to the version of an entry, or does not match the schema. managedFields
/// are then dropped, as in Go's `UpdateNoErrors`.
struct Unfit;

/// Removes the changed fields from all entries, and the entries that become empty or have an obsolete version.
fn take_from_owners(
    types: &Types<'_, '_>,
    live: Option<&Object>,
    new: &Object,
    manager: &Manager<'_>,
    changes: &Changes<'_>,
    list: &mut Vec<Value>,
) -> Result<(), Unfit> {
    let mut obsolete: BTreeSet<String> = BTreeSet::new();
    subtract_changes(list, manager.api_version, changes, Some(&Identity::of_update(manager)));
    for version in other_versions(list, manager.api_version) {
        let empty = Object::default();
        let old = live.unwrap_or(&empty);
        let both = |(schema, old)| (types.other)(new, &version).map(|(_, new)| (schema, old, new));
        match (types.other)(old, &version).and_then(both) {
            Ok((schema, old, new)) => {
                let fits = |object: &Object| {
                    super::typed::fits(schema, &object.0) && super::typed::declares(schema, &object.0)
                };
                if matches!(schema, SchemaRef::Custom(_)) && !(fits(&old) && fits(&new)) {
                    return Err(Unfit);
                }
                let changes = compare(schema, &old.0, &new.0, manager.reset);
                subtract_changes(list, &version, &changes, None);
            }
            Err(NoVersion::Obsolete) => _ = obsolete.insert(version),
            Err(NoVersion::Refused(_)) => return Err(Unfit),
        }
    }
    list.retain(|entry| !entries::is_empty(entry) && !obsolete.contains(entries::text(entry, "apiVersion")));
    Ok(())
}

/// Returns the versions of the entries, except `api_version`, in the order of their first occurrence.
pub(super) fn other_versions(list: &[Value], api_version: &str) -> Vec<String> {
    let mut seen = BTreeSet::new();
    let versions = list.iter().map(|entry| entries::text(entry, "apiVersion"));
    let others = versions.filter(|it| *it != api_version && seen.insert(*it));
    others.map(str::to_owned).collect()
}

/// Removes the changes from the entries of one version. Touched fields are kept in the entry of `receiver`, the manager
/// that will own them.
fn subtract_changes(list: &mut [Value], version: &str, changes: &Changes<'_>, receiver: Option<&Identity<'_>>) {
    for entry in list {
        if entries::text(entry, "apiVersion") != version {
            continue;
        }
        let sets = [&changes.removed, &changes.touched];
        let is_receiver = receiver.is_some_and(|id| id.is_of(entry));
        subtract(entry, if is_receiver { &sets[..1] } else { &sets });
    }
}

/// Removes the fields of several sets from an entry.
pub(super) fn subtract(entry: &mut Value, sets: &[&FieldSet<'_>]) {
    if let Some(left) = entries::fields(entry).and_then(|fields| json::subtract(fields, sets)) {
        entries::set_fields(entry, left);
    }
}

/// Adds the fields to the manager's own `Update` entry.
fn give(list: &mut Vec<Value>, own: FieldSet<'_>, manager: &Manager<'_>) {
    let id = Identity::of_update(manager);
    match list.iter_mut().find(|entry| id.is_of(entry)) {
        Some(entry) => {
            if let Some(all) = entries::fields(entry).and_then(|fields| json::add(fields, &own)) {
                entries::set_fields(entry, all);
            }
            if let Some(entry) = entry.as_object_mut() {
                entry.insert("time".into(), manager.time.into());
            }
        }
        None => list.push(id.entry(json::encode(&own), Some(manager.time))),
    }
}

/// Restores the entries of `live` in `new` if the objects only differ in the times of their entries, so that an update
/// without changes remains a no-op (rules B7, H13). Must be called directly before storing, when `new` is final.
pub(crate) fn restore_times(live: &Object, new: &mut Object) {
    let (Some(old), Some(now)) = (managed_fields(live), managed_fields(new)) else {
        return;
    };
    let same_entry = |a: &Value, b: &Value| match (a.as_object(), b.as_object()) {
        (Some(a), Some(b)) => {
            let timeless = |map: &Map| map.len() - usize::from(map.contains_key("time"));
            timeless(a) == timeless(b) && a.iter().all(|(k, v)| k == "time" || b.get(k) == Some(v))
        }
        _ => false,
    };
    let have_other_times = |a: &Value, b: &Value| a.get("time") != b.get("time");
    // Metadata is compared first, because it is small and contains most differences.
    if old.len() == now.len()
        && same_metadata(live, new)
        && old.iter().zip(now).any(|(a, b)| have_other_times(a, b))
        && old.iter().zip(now).all(|(a, b)| same_entry(a, b))
        && same_but_metadata(live, new)
    {
        let old = old.clone();
        set_entries(new, old);
    }
}

fn managed_fields(object: &Object) -> Option<&Vec<Value>> {
    object.metadata()?.get("managedFields")?.as_array()
}

fn same_but_metadata(a: &Object, b: &Object) -> bool {
    let rest = |object: &Object| object.0.iter().filter(|(key, _)| *key != "metadata").count();
    rest(a) == rest(b)
        && a.0
            .iter()
            .all(|(key, value)| key == "metadata" || b.0.get(key).is_some_and(|it| same(value, it)))
}

fn same_metadata(a: &Object, b: &Object) -> bool {
    let skipped = |key: &str| matches!(key, "managedFields" | "resourceVersion");
    let within = |a: &Object, b: &Object| {
        let (Some(a), Some(b)) = (a.metadata(), b.metadata()) else {
            return false;
        };
        a.iter()
            .all(|(key, value)| skipped(key) || b.get(key).is_some_and(|it| same(value, it)))
    };
    within(a, b) && within(b, a)
}
