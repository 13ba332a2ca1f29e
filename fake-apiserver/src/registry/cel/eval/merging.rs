//! Lists from JSON: their item types, the keys of sets and maps, and the results of `+` (`unstructuredList`,
//! `unstructuredSetList` and `unstructuredMapList` of `k8s.io/apiserver/pkg/cel/common`).

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::values::{EvalFailure, broken};
use crate::api::json::Value;
use crate::registry::cel::objects::{Key, Value as CelValue};
use crate::registry::cel::times::{Duration, Time};
use crate::registry::cel::value::from_json;

/// Type of a list from JSON, and of the sum of such a list and another list.
#[derive(Clone, Debug)]
pub(crate) struct ListType {
    pub(crate) merging: Merging,
    pub(crate) items: ItemType,
}

/// Rules for the comparison of a list with another list and for `+`.
#[derive(Clone, Debug)]
pub(crate) enum Merging {
    /// Compares items in order and appends items, like a computed list.
    Atomic,
    /// List of type `set`. Contains the keys of the items if the stored items differ from the items that expressions
    /// read, such as parsed times.
    Set(Option<StoredKeys>),
    /// List of type `map`, with the names of its keys; `None` for names that expressions must escape. Kubernetes does
    /// not find these keys in items, so it treats all items as if they had the same value.
    Map(Arc<[Option<String>]>),
}

/// Type of items in a list, according to the schema of the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ItemType {
    Bool,
    Int,
    Double,
    /// Strings, with or without a format.
    String,
    IntOrString,
    /// Another type. The types of added items are not checked.
    Other,
}

/// The keys of a set's items; `None` for items that are not equal to any other item.
pub(crate) type StoredKeys = Arc<[Option<SetKey>]>;

/// Key of a set's item: the value in Go, with its type. Times with an offset do not have a key, because Go compares the
/// addresses of their time zones.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum SetKey {
    Key(Key),
    Float(u64),
    Duration(Duration),
    Time(Time),
}

/// Returns the keys of stored items.
pub(crate) fn stored_keys(items: &[Value]) -> StoredKeys {
    let keys = items.iter().map(|it| set_key(&from_json(it)).ok().flatten());
    keys.collect()
}

/// Returns the key of a set's item, or the error of Go for a value that cannot be a key.
fn set_key(item: &CelValue) -> Result<Option<SetKey>, EvalFailure> {
    let key = match item {
        CelValue::Int(number) => Key::Int(*number),
        CelValue::UInt(number) => Key::Uint(*number),
        CelValue::Bool(flag) => Key::Bool(*flag),
        CelValue::String(text) => Key::String(Arc::clone(text)),
        // The addition converts -0.0 into 0.0.
        CelValue::Float(number) => return Ok(Some(SetKey::Float((*number + 0.0).to_bits()))),
        CelValue::Duration(length) => return Ok(Some(SetKey::Duration(*length))),
        CelValue::Timestamp(time) => return Ok(time.is_utc().then_some(SetKey::Time(*time))),
        CelValue::List(_) => return Err(unhashable("[]interface {}")),
        CelValue::Map(_) => return Err(unhashable("map[string]interface {}")),
        CelValue::Bytes(_) => return Err(unhashable("[]uint8")),
        CelValue::Opaque(_) | CelValue::Null => return Ok(None),
    };
    Ok(Some(SetKey::Key(key)))
}

fn unhashable(kind: &str) -> EvalFailure {
    EvalFailure::Error(format!("internal error: runtime error: hash of unhashable type {kind}"))
}

/// Returns the keys of all items in a set, given the keys that differ from the items.
fn set_keys(set: &[CelValue], stored: Option<&[Option<SetKey>]>) -> Result<Vec<Option<SetKey>>, EvalFailure> {
    match stored {
        Some(keys) => Ok(keys.to_vec()),
        None => set.iter().map(set_key).collect(),
    }
}

/// Returns `true` if a set contains every item of another list.
pub(super) fn includes(
    set: &[CelValue],
    stored: Option<&[Option<SetKey>]>,
    items: &[CelValue],
) -> Result<bool, EvalFailure> {
    let keys: HashSet<SetKey> = set_keys(set, stored)?.into_iter().flatten().collect();
    for item in items {
        if !set_key(item)?.is_some_and(|key| keys.contains(&key)) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Returns the items of a set, followed by the items of another list that the set does not contain, and the keys of all
/// these items.
pub(super) fn union(
    set: &[CelValue],
    stored: Option<&[Option<SetKey>]>,
    items: &[CelValue],
    kind: ItemType,
) -> Result<(Vec<CelValue>, StoredKeys), EvalFailure> {
    let mut keys = set_keys(set, stored)?;
    let mut known: HashSet<SetKey> = keys.iter().flatten().cloned().collect();
    let mut union = set.to_vec();
    for item in items {
        let key = set_key(item)?;
        if key.as_ref().is_none_or(|it| known.insert(it.clone())) {
            union.push(reread(item, kind));
            keys.push(key);
        }
    }
    Ok((union, keys.into()))
}

/// Returns the items of an atomic list, followed by the items of another list.
pub(super) fn append(list: &[CelValue], items: &[CelValue], kind: ItemType) -> Vec<CelValue> {
    let added = items.iter().map(|it| reread(it, kind));
    list.iter().cloned().chain(added).collect()
}

/// Returns an item that was added to a list, as Kubernetes reads it with the schema of the list's items
/// (`UnstructuredToVal`). It does not accept parsed times, durations and bytes as strings.
fn reread(item: &CelValue, kind: ItemType) -> CelValue {
    let expected = match (kind, item) {
        #[expect(clippy::cast_precision_loss, reason = "Go converts it as precisely")]
        (ItemType::Double, CelValue::Int(number)) => return CelValue::Float(*number as f64),
        (ItemType::Other, _)
        | (_, CelValue::Opaque(_))
        | (ItemType::Bool, CelValue::Bool(_))
        | (ItemType::Int | ItemType::IntOrString, CelValue::Int(_))
        | (ItemType::Double, CelValue::Float(_))
        | (ItemType::String | ItemType::IntOrString, CelValue::String(_)) => return item.clone(),
        (ItemType::IntOrString, _) => {
            let error = "invalid data, expected XIntOrString value to be either a string or integer";
            return broken(error.to_owned());
        }
        (ItemType::Bool, _) => "bool",
        (ItemType::Int, _) => "int",
        (ItemType::Double, _) => "float",
        (ItemType::String, _) => "string",
    };
    let found = match item {
        CelValue::Int(_) => "int64",
        CelValue::UInt(_) => "uint64",
        CelValue::Float(_) => "float64",
        CelValue::String(_) => "string",
        CelValue::Bytes(_) => "[]uint8",
        CelValue::Bool(_) => "bool",
        CelValue::Duration(_) => "time.Duration",
        CelValue::Timestamp(_) => "time.Time",
        CelValue::List(_) => "[]ref.Val",
        CelValue::Map(_) => "map[ref.Val]ref.Val",
        CelValue::Null => "structpb.NullValue",
        CelValue::Opaque(_) => return item.clone(),
    };
    broken(format!("invalid data, expected {expected}, got {found}"))
}

/// Returns the key of an item in a list of type `map`, as text; `None` for items that are not objects.
pub(super) fn item_key(item: &CelValue, keys: &[Option<String>]) -> Option<String> {
    let CelValue::Map(map) = item else { return None };
    let parts = keys.iter().map(|name| {
        let name = name.clone().map(|it| Key::String(Arc::new(it)));
        format!("{:?}", name.and_then(|it| map.map.get(&it)))
    });
    Some(Vec::from_iter(parts).join(","))
}

/// Returns the items of a list of type `map`, replaced with the items of another list that have the same keys, and
/// followed by its other items.
pub(super) fn merge(list: &[CelValue], items: &[CelValue], keys: &[Option<String>]) -> Vec<CelValue> {
    let mut merged = list.to_vec();
    let places = list.iter().enumerate();
    let places = places.filter_map(|(at, item)| Some((item_key(item, keys)?, at)));
    let places: HashMap<String, usize> = places.collect();
    for item in items {
        match item_key(item, keys).and_then(|key| places.get(&key)) {
            Some(at) => merged[*at] = item.clone(),
            None => merged.push(item.clone()),
        }
    }
    merged
}
