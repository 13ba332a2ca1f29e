//! Strategic merge patch: the type defines which lists are merged and by which key (rules G4 to G7).

use std::collections::BTreeSet;

use super::go_json::{duplicate_fields, parse_with_duplicates};
use super::ordering::{ItemKey, by_key, failed, is_in, merge_ordered, no_merge_key};
use super::{Patched, cannot_apply};
use crate::api::json::{Map, Value};
use crate::api::json::{SmolStr, type_name};
use crate::api::nesting;
use crate::api::status::Status;
use crate::registry::types::go_text::{go_text, go_type};
use crate::registry::types::schema::{PatchStrategy, SchemaRef};

/// The directive in a map or list item.
const PATCH: &str = "$patch";
/// The directive with the list of fields to keep.
const RETAIN_KEYS: &str = "$retainKeys";
/// Prefix of the directive with the scalars to remove from a list.
const DELETE_FROM: &str = "$deleteFromPrimitiveList";
/// Prefix of the directive with the order of a list's items.
const SET_ORDER: &str = "$setElementOrder";

/// Applies a strategic merge patch to an object of this type.
pub(crate) fn strategic_patch(document: Value, body: &[u8], schema: SchemaRef<'_>) -> Result<Patched, Status> {
    let (patch, duplicates) = parse_with_duplicates(body).map_err(Status::bad_request)?;
    let mut patch = match patch {
        Value::Object(patch) => patch,
        Value::Null => Map::new(),
        other => {
            let found = type_name(&other);
            let text = format!("json: cannot unmarshal {found} into Go value of type map[string]interface {{}}");
            return Err(Status::bad_request(text));
        }
    };
    let original = match document {
        Value::Object(map) => map,
        _ => Map::new(),
    };
    let shown = go_text(&Value::Object(patch.clone()));
    let value = Value::Object(merge_map(original, &mut patch, schema)?);
    if nesting::levels_of_object(&value) > nesting::MAX {
        return Err(cannot_apply());
    }
    Ok(Patched {
        value,
        strict_errors: duplicate_fields(&duplicates),
        shown: Some(shown),
    })
}

/// Returns the error 400 for a malformed patch.
fn malformed(what: &str) -> Status {
    Status::bad_request(format!("invalid patch format of {what}"))
}

fn wrong_type(expected: &str, found: &Value) -> Status {
    failed(format!("expected a {expected}, but received a {}", go_type(found)))
}

fn unknown_directive(directive: &Value, patch: &Map) -> Status {
    let patch = go_text(&Value::Object(patch.clone()));
    failed(format!("unknown patch type: {} in map: {patch}", go_text(directive)))
}

fn field_of<'s>(schema: SchemaRef<'s>, name: &str) -> SchemaRef<'s> {
    schema.field(name).unwrap_or(SchemaRef::Deduced)
}

fn merge_map(mut original: Map, patch: &mut Map, schema: SchemaRef<'_>) -> Result<Map, Status> {
    if let Some(directive) = patch.get(PATCH) {
        return match directive.as_str() {
            Some("replace") => {
                patch.remove(PATCH);
                Ok(std::mem::take(patch))
            }
            Some("delete") => Ok(Map::new()),
            _ => Err(unknown_directive(directive, patch)),
        };
    }
    retain_keys(&mut original, patch)?;
    set_orders(&mut original, patch, schema)?;
    for (key, change) in std::mem::take(patch) {
        let (key, deletes) = match key.strip_prefix(DELETE_FROM) {
            None => (key.as_str(), false),
            Some(rest) => {
                let name = rest.strip_prefix('/').ok_or_else(|| malformed("primitive list"))?;
                (if name.is_empty() { key.as_str() } else { name }, true)
            }
        };
        if change.is_null() {
            original.remove(key);
            continue;
        }
        let field = field_of(schema, key);
        let strategy = field.patch_strategy();
        let merged = match (original.remove(key), change) {
            (Some(Value::Object(_)), change @ Value::Object(_)) if strategy.replace => Some(change),
            (Some(Value::Object(old)), Value::Object(mut change)) => {
                Some(Value::Object(merge_map(old, &mut change, field)?))
            }
            (Some(Value::Array(old)), Value::Array(change)) if strategy.merge || deletes => {
                Some(Value::Array(merge_list(old, change, field, strategy, deletes)?))
            }
            (Some(Value::Array(_)), change @ Value::Array(_)) => Some(change),
            // The original does not have the list, so nothing can be deleted.
            (old, _) if deletes => old,
            (_, mut change) => {
                discard_nulls(&mut change);
                without_directives(change)
            }
        };
        original.extend(merged.map(|it| (key.to_owned(), it)));
    }
    Ok(original)
}

/// Removes nulls from values that the original lacks, because they cannot delete anything there.
fn discard_nulls(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.retain(|_, it| !it.is_null());
            map.values_mut().for_each(discard_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(discard_nulls),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Removes maps with the directive `$patch` from values that the original lacks.
fn without_directives(value: Value) -> Option<Value> {
    match value {
        Value::Object(map) if map.contains_key(PATCH) => None,
        Value::Object(map) => {
            let kept = map.into_iter();
            let kept = kept.filter_map(|(key, it)| Some((key, without_directives(it)?)));
            Some(Value::Object(kept.collect()))
        }
        Value::Array(items) => {
            let kept = items.into_iter().filter_map(without_directives);
            Some(Value::Array(kept.collect()))
        }
        scalar => Some(scalar),
    }
}

/// Applies `$retainKeys`: removes all fields that it does not list.
fn retain_keys(original: &mut Map, patch: &mut Map) -> Result<(), Status> {
    let Some(keep) = patch.remove(RETAIN_KEYS) else {
        return Ok(());
    };
    let Value::Array(keep) = keep else {
        return Err(malformed("retainKeys"));
    };
    let keep: BTreeSet<&str> = keep.iter().filter_map(Value::as_str).collect();
    for (key, value) in patch.iter() {
        let is_directive = key.starts_with(DELETE_FROM) || key.starts_with(SET_ORDER);
        if !value.is_null() && !is_directive && !keep.contains(key.as_str()) {
            return Err(malformed("retainKeys"));
        }
    }
    original.retain(|key, _| keep.contains(key.as_str()));
    Ok(())
}

/// Merges the lists that have a `$setElementOrder`, and removes them from the patch.
fn set_orders(original: &mut Map, patch: &mut Map, schema: SchemaRef<'_>) -> Result<(), Status> {
    let directives: Vec<SmolStr> = patch.keys().filter(|key| key.starts_with(SET_ORDER)).cloned().collect();
    for directive in directives {
        let order = match patch.remove(&directive) {
            Some(Value::Array(order)) => order,
            other => return Err(wrong_type("[]interface {}", &other.unwrap_or_default())),
        };
        let key = directive
            .strip_prefix(SET_ORDER)
            .and_then(|rest| rest.strip_prefix('/'))
            .ok_or_else(|| malformed("setElementOrder list"))?;
        let field = field_of(schema, key);
        let strategy = field.patch_strategy();
        let list = |value: Option<Value>| match value {
            None => Ok(None),
            Some(Value::Array(items)) => Ok(Some(items)),
            Some(other) => Err(wrong_type("[]interface {}", &other)),
        };
        let old = list(original.get(key).cloned())?;
        let change = list(patch.remove(key))?;
        check_order(change.as_deref().unwrap_or_default(), &order, strategy.merge_key)?;
        let server_order = old.clone().unwrap_or_default();
        if old.is_some() || change.is_some() {
            element_type(&server_order, change.as_deref().unwrap_or_default())?;
        }
        let merged = match (old, change) {
            (None, None) => continue,
            (Some(old), None) => old,
            (None, Some(change)) => change.into_iter().filter_map(without_directives).collect(),
            (Some(old), Some(change)) if strategy.merge => merge_list(old, change, field, strategy, false)?,
            (Some(_), Some(change)) => change,
        };
        let ordered = put_in_order(merged, &order, &server_order, strategy.merge_key)?;
        original.insert(key.into(), Value::Array(ordered));
    }
    Ok(())
}

/// Checks that a non-empty directive lists all items of the patch in the same order. Items with `$patch` are skipped.
fn check_order(change: &[Value], order: &[Value], merge_key: Option<&str>) -> Result<(), Status> {
    if change.is_empty() || order.is_empty() {
        return Ok(());
    }
    let mut rest = order.iter();
    for item in change {
        if item.as_object().is_some_and(|item| item.contains_key(PATCH)) {
            continue;
        }
        let wanted = ItemKey::of(item, merge_key)?;
        let mut found = false;
        for named in rest.by_ref() {
            if ItemKey::of(named, merge_key)? == wanted {
                found = true;
                break;
            }
        }
        if !found {
            let list = |items: &[Value]| go_text(&Value::Array(items.to_vec()));
            return Err(failed(format!(
                "The order in patch list:\n{}\n doesn't match {SET_ORDER} list:\n{}\n",
                list(change),
                list(order)
            )));
        }
    }
    Ok(())
}

/// Returns the Go type that all items have in common. Fails if their types differ, if the first item is a list, or if
/// there are no items.
fn element_type(old: &[Value], change: &[Value]) -> Result<&'static str, Status> {
    let mut found = None;
    for item in old.iter().chain(change) {
        let this = go_type(item);
        if found.is_none() && item.is_array() {
            return Err(cannot_apply());
        }
        if *found.get_or_insert(this) != this {
            let lists = Value::Array(vec![Value::Array(old.to_vec()), Value::Array(change.to_vec())]);
            let text = go_text(&lists);
            return Err(failed(format!("list element types are not identical: {text}")));
        }
    }
    found.ok_or_else(|| failed("no elements in any of the given slices"))
}

fn merge_list(
    old: Vec<Value>,
    change: Vec<Value>,
    list: SchemaRef<'_>,
    strategy: PatchStrategy,
    deletes: bool,
) -> Result<Vec<Value>, Status> {
    if old.is_empty() && change.is_empty() {
        return Ok(old);
    }
    if element_type(&old, &change)? != "map[string]interface {}" {
        return merge_scalars(old, change, deletes);
    }
    let Some(merge_key) = strategy.merge_key else {
        return Err(failed("cannot merge lists without merge key for type struct"));
    };
    let (old, change) = apply_directives(old, change, merge_key)?;
    let server_order = old
        .iter()
        .map(|it| ItemKey::of(it, Some(merge_key)))
        .collect::<Result<Vec<_>, _>>()?;
    let patch_order = change
        .iter()
        .map(|it| ItemKey::of(it, Some(merge_key)))
        .collect::<Result<Vec<_>, _>>()?;
    let merged = merge_items(old, change, list.items(), merge_key)?;
    merge_ordered(merged, &patch_order, &server_order, Some(merge_key))
}

fn merge_scalars(old: Vec<Value>, change: Vec<Value>, deletes: bool) -> Result<Vec<Value>, Status> {
    let keys = |items: &[Value]| {
        items
            .iter()
            .map(|it| ItemKey::of(it, None))
            .collect::<Result<Vec<_>, _>>()
    };
    let (server_order, patch_order) = (keys(&old)?, keys(&change)?);
    let named = by_key(&patch_order);
    if deletes {
        let kept = old.into_iter().zip(server_order).filter(|(_, key)| !is_in(&named, key));
        return Ok(kept.map(|(item, _)| item).collect());
    }
    let mut merged = Vec::with_capacity(old.len() + change.len());
    let mut seen = BTreeSet::new();
    for (item, key) in old
        .into_iter()
        .chain(change)
        .zip(server_order.iter().chain(&patch_order))
    {
        if seen.insert(key) {
            merged.push(item);
        }
    }
    merge_ordered(merged, &patch_order, &server_order, None)
}

/// Applies the items that are directives. Returns the remaining old items, and the items to merge.
fn apply_directives(
    mut old: Vec<Value>,
    change: Vec<Value>,
    merge_key: &str,
) -> Result<(Vec<Value>, Vec<Value>), Status> {
    let mut items = Vec::with_capacity(change.len());
    let mut deleted = Vec::new();
    let mut replace = false;
    for item in change {
        let Some((directive, map)) = item.as_object().and_then(|map| Some((map.get(PATCH)?, map))) else {
            items.push(item);
            continue;
        };
        match directive.as_str() {
            Some("delete") => match map.get(merge_key) {
                Some(value) => deleted.push(ItemKey::of(value, None)?),
                None => return Err(no_merge_key(map, merge_key)),
            },
            Some("replace") => replace = true,
            Some("merge") => return Err(failed("merging lists cannot yet be specified in the patch")),
            _ => return Err(unknown_directive(directive, map)),
        }
    }
    if replace {
        return Ok((items, Vec::new()));
    }
    if !deleted.is_empty() {
        let deleted = by_key(&deleted);
        old.retain(|item| match item.get(merge_key).map(|value| ItemKey::of(value, None)) {
            Some(Ok(key)) => !is_in(&deleted, &key),
            _ => true,
        });
    }
    Ok((old, items))
}

/// Merges each item into the item with the same key, or appends it.
fn merge_items(
    mut old: Vec<Value>,
    change: Vec<Value>,
    items: SchemaRef<'_>,
    merge_key: &str,
) -> Result<Vec<Value>, Status> {
    let mut places = std::collections::BTreeMap::new();
    for (i, item) in old.iter().enumerate() {
        if let Some(value) = item.get(merge_key) {
            places.entry(ItemKey::of(value, None)?).or_insert(i);
        }
    }
    for item in change {
        let key = match item.as_object().map(|map| map.get(merge_key).ok_or(map)) {
            Some(Ok(value)) => ItemKey::of(value, None)?,
            Some(Err(map)) => return Err(no_merge_key(map, merge_key)),
            None => return Err(wrong_type("map[string]interface {}", &item)),
        };
        let place = *places.entry(key).or_insert(old.len());
        match (old.get_mut(place), item) {
            (Some(Value::Object(into)), Value::Object(mut change)) => {
                *into = merge_map(std::mem::take(into), &mut change, items)?;
            }
            (_, item) => old.push(item),
        }
    }
    Ok(old)
}

/// Sorts the items that the directive lists into the directive's order. Other items keep the order on the server.
fn put_in_order(
    merged: Vec<Value>,
    order: &[Value],
    server_order: &[Value],
    merge_key: Option<&str>,
) -> Result<Vec<Value>, Status> {
    let keys = |items: &[Value]| {
        items
            .iter()
            .map(|it| ItemKey::of(it, merge_key))
            .collect::<Result<Vec<_>, _>>()
    };
    merge_ordered(merged, &keys(order)?, &keys(server_order)?, merge_key)
}
