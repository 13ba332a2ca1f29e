//! The order of merged lists. Items of the patch keep the order of the patch, the other items keep the order on the
//! server, and both are interleaved.

use std::collections::BTreeMap;

use crate::api::json::{Map, Value};
use crate::api::status::Status;
use crate::registry::types::go_text::{go_text, go_type};

/// Identity of an item: its merge key, or the value of a scalar.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ItemKey(String);

impl ItemKey {
    /// Returns the key that identifies an item.
    pub(super) fn of(item: &Value, merge_key: Option<&str>) -> Result<Self, Status> {
        let value = match merge_key {
            None => item,
            Some(name) => {
                let map = item.as_object().ok_or_else(|| {
                    let found = go_type(item);
                    failed(format!("expected a map[string]interface {{}}, but received a {found}"))
                })?;
                map.get(name).ok_or_else(|| no_merge_key(map, name))?
            }
        };
        Ok(Self(value.to_string()))
    }
}

/// Returns the first index of each key.
pub(super) fn by_key(keys: &[ItemKey]) -> BTreeMap<&ItemKey, usize> {
    let mut places = BTreeMap::new();
    for (i, key) in keys.iter().enumerate() {
        places.entry(key).or_insert(i);
    }
    places
}

/// Returns `true` if the keys from [`by_key`] contain a key.
pub(super) fn is_in(places: &BTreeMap<&ItemKey, usize>, key: &ItemKey) -> bool {
    places.contains_key(key)
}

/// Sorts items by the positions of their keys in `order`. Items that are not in `order` follow in their original order.
fn sorted_by(mut items: Vec<(Value, ItemKey)>, order: &BTreeMap<&ItemKey, usize>) -> Vec<(Value, ItemKey)> {
    items.sort_by_key(|(_, key)| order.get(key).copied().unwrap_or(usize::MAX));
    items
}

/// Orders merged items. Items in `patch_order` keep that order, and all others keep the order of `server_order`. If the
/// two conflict, an item that is only on the server precedes an item of the patch that followed it on the server.
pub(super) fn merge_ordered(
    merged: Vec<Value>,
    patch_order: &[ItemKey],
    server_order: &[ItemKey],
    merge_key: Option<&str>,
) -> Result<Vec<Value>, Status> {
    let (in_patch, on_server) = (by_key(patch_order), by_key(server_order));
    let (mut patched, mut others) = (Vec::new(), Vec::new());
    for item in merged {
        let key = ItemKey::of(&item, merge_key)?;
        if is_in(&in_patch, &key) {
            patched.push((item, key));
        } else {
            others.push((item, key));
        }
    }
    let mut left = sorted_by(others, &on_server).into_iter().peekable();
    let mut right = sorted_by(patched, &in_patch).into_iter().peekable();
    let mut out = Vec::new();
    loop {
        let take_left = match (left.peek(), right.peek()) {
            (None, None) => return Ok(out),
            (Some(_), None) => true,
            (None, Some(_)) => false,
            (Some((_, l)), Some((_, r))) => matches!(
                (on_server.get(l), on_server.get(r)),
                (Some(l), Some(r)) if l < r
            ),
        };
        let next = if take_left { left.next() } else { right.next() };
        out.extend(next.map(|(item, _)| item));
    }
}

/// Returns the error 500 with the message of Go's library.
pub(super) fn failed(text: impl Into<String>) -> Status {
    Status::new(500, "", text)
}

/// Returns the error 500 for an item of a list that lacks the merge key.
pub(super) fn no_merge_key(item: &Map, key: &str) -> Status {
    let item = go_text(&Value::Object(item.clone()));
    failed(format!("map: {item} does not contain declared merge key: {key}"))
}
