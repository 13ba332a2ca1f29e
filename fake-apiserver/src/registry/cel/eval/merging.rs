//! Lists of type `set` and `map`: their keys, and the results of `+` (`unstructuredSetList` and `unstructuredMapList`
//! of `k8s.io/apiserver/pkg/cel/common`).

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::values::{EvalFailure, broken};
use crate::registry::cel::objects::{Key, Value as CelValue};

/// Type of a list that ignores the order of its items in comparisons, and merges another list with `+`.
#[derive(Clone, Debug)]
pub(crate) enum Merging {
    Set,
    /// List of type `map`, with the names of its keys; `None` for names that expressions must escape. Kubernetes does
    /// not find these keys in items, so it treats all items as if they had the same value.
    Map(Arc<[Option<String>]>),
}

/// Key of a set's item: the stored value in Go.
#[derive(PartialEq, Eq, Hash)]
enum SetKey {
    Key(Key),
    Float(u64),
}

/// Returns the key of a set's item, or the error of Go for a value that cannot be a key. Times and durations do not
/// have a key: Go compares the parsed value with the stored text, so they are never found.
fn set_key(item: &CelValue) -> Result<Option<SetKey>, EvalFailure> {
    let key = match item {
        CelValue::Int(number) => Key::Int(*number),
        CelValue::UInt(number) => Key::Uint(*number),
        CelValue::Bool(flag) => Key::Bool(*flag),
        CelValue::String(text) => Key::String(Arc::clone(text)),
        // The addition converts -0.0 into 0.0.
        CelValue::Float(number) => return Ok(Some(SetKey::Float((*number + 0.0).to_bits()))),
        CelValue::List(_) => return Err(unhashable("[]interface {}")),
        CelValue::Map(_) => return Err(unhashable("map[string]interface {}")),
        CelValue::Bytes(_) => return Err(unhashable("[]uint8")),
        CelValue::Duration(_) | CelValue::Timestamp(_) | CelValue::Opaque(_) | CelValue::Null => return Ok(None),
    };
    Ok(Some(SetKey::Key(key)))
}

fn unhashable(kind: &str) -> EvalFailure {
    EvalFailure::Error(format!("internal error: runtime error: hash of unhashable type {kind}"))
}

/// Returns the keys of a set. Bytes are stored as text, which never equals parsed bytes.
fn set_keys(set: &[CelValue]) -> Result<HashSet<SetKey>, EvalFailure> {
    let mut keys = HashSet::with_capacity(set.len());
    for item in set.iter().filter(|it| !matches!(it, CelValue::Bytes(_))) {
        keys.extend(set_key(item)?);
    }
    Ok(keys)
}

/// Returns `true` if a set contains every item of another list.
pub(super) fn includes(set: &[CelValue], items: &[CelValue]) -> Result<bool, EvalFailure> {
    let keys = set_keys(set)?;
    for item in items {
        if !set_key(item)?.is_some_and(|key| keys.contains(&key)) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Returns the items of a set, followed by the items of another list that the set does not contain.
pub(super) fn union(set: &[CelValue], items: &[CelValue]) -> Result<Vec<CelValue>, EvalFailure> {
    let mut keys = set_keys(set)?;
    let mut union = set.to_vec();
    for item in items {
        match set_key(item)? {
            Some(key) => union.extend(keys.insert(key).then(|| item.clone())),
            None => union.push(unread(item)),
        }
    }
    Ok(union)
}

/// Returns an item that was added to a set. Kubernetes does not accept parsed times and durations as items when it
/// reads them.
fn unread(item: &CelValue) -> CelValue {
    match item {
        CelValue::Timestamp(_) => broken("invalid data, expected string, got time.Time".to_owned()),
        CelValue::Duration(_) => broken("invalid data, expected string, got time.Duration".to_owned()),
        other => other.clone(),
    }
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
