//! Merges an applied object into the live one: applied values replace live values, and no value is removed.

use std::collections::BTreeMap;

use super::element::{Element, same};
use super::items::item_element;
use crate::api::json::{Map, Value};
use crate::registry::types::schema::{ListType, SchemaRef};

/// Merges `config` into `live`; returns `true` if anything changed.
pub(super) fn merge_maps(schema: SchemaRef<'_>, live: &mut Map, config: &Map) -> bool {
    let mut changed = false;
    let mut fields = schema.walk();
    for (name, value) in config {
        match live.get_mut(name) {
            Some(old) => changed |= merge(fields.field(name).unwrap_or(SchemaRef::Deduced), old, value),
            None => {
                live.insert(name.clone(), value.clone());
                changed = true;
            }
        }
    }
    changed
}

fn merge(schema: SchemaRef<'_>, live: &mut Value, config: &Value) -> bool {
    match (live, config) {
        (Value::Object(live), Value::Object(config))
            if !schema.is_atomic_map() && (!live.is_empty() || !config.is_empty()) =>
        {
            merge_maps(schema, live, config)
        }
        (Value::Array(live), Value::Array(config))
            if schema.list_type() != ListType::Atomic && (!live.is_empty() || !config.is_empty()) =>
        {
            merge_lists(schema, live, config)
        }
        // Applying null does not change a non-empty map or list.
        (Value::Object(live), Value::Null) if !schema.is_atomic_map() && !live.is_empty() => false,
        (Value::Array(live), Value::Null) if schema.list_type() != ListType::Atomic && !live.is_empty() => false,
        (live, config) => {
            let changed = !same(live, config);
            if changed {
                *live = config.clone();
            }
            changed
        }
    }
}

/// Returns the path elements of a list's items; `None` for items without an identity.
fn elements<'a>(schema: SchemaRef<'_>, list: &'a [Value]) -> Vec<Option<Element<'a>>> {
    list.iter().map(|item| item_element(schema, item).ok()).collect()
}

/// Returns the index of each element; `None` if the element occurs more than once, because duplicates are not merged.
fn places<'e, 'a>(elements: &'e [Option<Element<'a>>]) -> BTreeMap<&'e Element<'a>, Option<usize>> {
    let mut places = BTreeMap::new();
    for (i, element) in elements.iter().enumerate() {
        if let Some(element) = element {
            places
                .entry(element)
                .and_modify(|place| *place = None)
                .or_insert(Some(i));
        }
    }
    places
}

/// One item of a merged list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Item {
    Live(usize),
    Config(usize),
    Both(usize, usize),
}

fn merge_lists(schema: SchemaRef<'_>, live: &mut Vec<Value>, config: &[Value]) -> bool {
    let plan = merge_order(&elements(schema, live), &elements(schema, config));
    let items = schema.items();
    let in_place = plan.len() == live.len()
        && plan.iter().enumerate().all(|(at, item)| match item {
            Item::Live(i) | Item::Both(i, _) => *i == at,
            Item::Config(_) => false,
        });
    if in_place {
        let mut changed = false;
        for item in plan {
            if let Item::Both(i, j) = item {
                changed |= merge(items, &mut live[i], &config[j]);
            }
        }
        return changed;
    }
    let mut old: Vec<Value> = std::mem::take(live);
    for item in plan {
        live.push(match item {
            Item::Live(i) => std::mem::take(&mut old[i]),
            Item::Config(j) => config[j].clone(),
            Item::Both(i, j) => {
                let mut value = std::mem::take(&mut old[i]);
                merge(items, &mut value, &config[j]);
                value
            }
        });
    }
    true
}

/// Returns the order of a merged list. Applied items keep the order of the applied list. An item that only the live
/// list has is placed before the item that follows it in the live list.
fn merge_order<'a>(left: &[Option<Element<'a>>], right: &[Option<Element<'a>>]) -> Vec<Item> {
    let (in_left, in_right) = (places(left), places(right));
    let is_in_right = |it: &Option<Element<'a>>| it.as_ref().is_some_and(|it| in_right.contains_key(it));
    let mut shared = right.iter().flatten().filter(|it| in_left.contains_key(it));
    let mut next_shared = shared.next();
    let mut merged: Vec<bool> = vec![false; right.len()];
    let is_merged = |merged: &[bool], it: &Option<Element<'a>>| {
        let place = it.as_ref().and_then(|it| in_right.get(it));
        place.is_some_and(|place| place.is_none_or(|j| merged[j]))
    };
    let both = |j: usize| match right[j].as_ref().and_then(|it| in_left.get(it)) {
        Some(Some(i)) => Item::Both(*i, j),
        // The item is absent from the live list, or occurs more than once: the applied item replaces all occurrences.
        Some(None) | None => Item::Config(j),
    };
    let mut out = Vec::with_capacity(left.len().max(right.len()));
    let (mut i, mut j) = (0, 0);
    while i < left.len() || j < right.len() {
        if i < left.len() && j < right.len() {
            if left[i].is_some() && left[i] == right[j] {
                out.push(both(j));
                merged[j] = true;
                (i, j) = (i + 1, j + 1);
                next_shared = shared.next();
                continue;
            }
            if is_in_right(&left[i]) && next_shared.is_some() && next_shared != left[i].as_ref() {
                i += 1;
                continue;
            }
        }
        if i < left.len() {
            if !is_in_right(&left[i]) {
                out.push(Item::Live(i));
                i += 1;
                continue;
            }
            if is_merged(&merged, &left[i]) {
                i += 1;
            }
        }
        if j < right.len() {
            out.push(both(j));
            merged[j] = true;
            if next_shared.is_some() && next_shared == right[j].as_ref() {
                next_shared = shared.next();
            }
            j += 1;
        }
    }
    out
}
