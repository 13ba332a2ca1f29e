//! Removes fields that a manager applied before and no longer applies (rule H5).

use super::element::Element;
use super::items::item_element;
use super::set::{FieldSet, Node};
use super::typed::field_set;
use crate::api::json::{Map, Value};
use crate::registry::types::schema::{ListType, SchemaRef};

/// Removes from an object the fields that are in `last`, but neither in `set` nor in `others`. All sets have the
/// object's version. Returns `true` if a field was removed. Only the parts with dropped fields are visited.
pub(super) fn prune_dropped(
    schema: SchemaRef<'_>,
    map: &mut Map,
    last: &FieldSet<'_>,
    set: &FieldSet<'_>,
    others: &[&FieldSet<'_>],
) -> bool {
    let mut changed = false;
    for node in last.nodes() {
        let Element::Field(name) = &node.element else {
            continue;
        };
        let still = set.child(&node.element);
        let all_kept = still.is_some_and(|it| (it.member || !node.member) && node.children.is_subset(&it.children));
        if all_kept {
            continue;
        }
        let owners = others.iter().filter_map(|owned| owned.child(&node.element));
        let field = schema.field(name).unwrap_or(SchemaRef::Deduced);
        match (map.get_mut(name.as_ref()), still) {
            // A part of the field is still applied, so the field is kept, and its parts are examined separately.
            (Some(Value::Object(value)), Some(still)) if !still.children.is_empty() && !field.is_atomic_map() => {
                let below: Vec<_> = owners.map(|it| &it.children).collect();
                changed |= prune_dropped(field, value, &node.children, &still.children, &below);
            }
            (Some(value), still) => {
                let mut owned = still.map_or_else(FieldSet::new, |still| one(still.clone()));
                for owner in owners {
                    owned = owned.union(one(owner.clone()));
                }
                let part = Map::from_iter([(name.clone().into_owned(), value.clone())]);
                let last = one(node.clone());
                let pruned = without_last(schema, &part, &last);
                let pruned = put_back_owned(schema, &part, &pruned, owned);
                if let Some(mut left) = put_back_dangling(schema, &part, &pruned, &last) {
                    changed = true;
                    match left.remove(name.as_ref()) {
                        Some(left) => *value = left,
                        None => {
                            map.remove(name.as_ref());
                        }
                    }
                }
            }
            (None, _) => {}
        }
    }
    changed
}

/// Returns a set with one node.
fn one(node: Node<'_>) -> FieldSet<'_> {
    let mut set = FieldSet::new();
    set.push(node.element, node.member, node.children);
    set
}

/// Removes the members of `set`, with all fields below them, from an object.
pub(super) fn remove_fields(schema: SchemaRef<'_>, map: &mut Map, set: &FieldSet<'_>) {
    for node in set.nodes() {
        let Element::Field(name) = &node.element else {
            continue;
        };
        if node.member {
            map.remove(name.as_ref());
        } else if let Some(value) = map.get_mut(name.as_ref()) {
            remove(schema.field(name).unwrap_or(SchemaRef::Deduced), value, &node.children);
        }
    }
}

/// Removes the fields in `set` from a value. A list or map that becomes empty is kept.
fn remove(schema: SchemaRef<'_>, value: &mut Value, set: &FieldSet<'_>) {
    match value {
        Value::Object(map) if schema.is_atomic_map() => map.clear(),
        Value::Object(map) => remove_fields(schema, map, set),
        Value::Array(items) if schema.list_type() == ListType::Atomic => items.clear(),
        Value::Array(items) => remove_items(schema, items, set),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn remove_items(schema: SchemaRef<'_>, items: &mut Vec<Value>, set: &FieldSet<'_>) {
    let item_schema = schema.items();
    items.retain_mut(|item| {
        let found = item_element(schema, item).ok();
        match found.and_then(|element| set.child(&element)) {
            Some(node) if node.member => false,
            Some(node) => {
                remove(item_schema, item, &node.children);
                true
            }
            None => true,
        }
    });
}

/// Adds every declared field on the path to a member: the owner of `spec.a` also owns `spec`.
pub(super) fn with_named_fields<'a>(schema: SchemaRef<'_>, set: FieldSet<'a>) -> FieldSet<'a> {
    let mut out = FieldSet::new();
    for node in set.into_nodes() {
        let mut member = node.member;
        let below = match &node.element {
            Element::Field(name) => {
                member |= !node.children.is_empty() && schema.declares(name);
                schema.field(name).unwrap_or(SchemaRef::Deduced)
            }
            Element::Key(_) => schema.items(),
            Element::Value(_) | Element::Index(_) => SchemaRef::Deduced,
        };
        let children = with_named_fields(below, node.children);
        out.push(node.element, member, children);
    }
    out
}

/// Returns the fields of an object, including every declared field on the path to a member.
fn named<'a>(schema: SchemaRef<'_>, object: &'a Map) -> FieldSet<'a> {
    with_named_fields(schema, field_set(schema, object))
}

/// Returns `merged` without the fields in `last`, before the fields of other managers are restored.
pub(super) fn without_last(schema: SchemaRef<'_>, merged: &Map, last: &FieldSet<'_>) -> Map {
    let mut pruned = merged.clone();
    remove_fields(schema, &mut pruned, &with_named_fields(schema, last.clone()));
    pruned
}

/// Returns `pruned` with the fields of `merged` that are in `owned`.
pub(super) fn put_back_owned(schema: SchemaRef<'_>, merged: &Map, pruned: &Map, owned: FieldSet<'_>) -> Map {
    let gone = named(schema, merged)
        .difference(&named(schema, pruned))
        .difference(&with_named_fields(schema, owned));
    let mut out = merged.clone();
    remove_fields(schema, &mut out, &gone);
    out
}

/// Returns `pruned` with all fields of `merged` that are not in `last`, because a manager may only remove its own
/// fields. `None` if this restores all fields.
pub(super) fn put_back_dangling(schema: SchemaRef<'_>, merged: &Map, pruned: &Map, last: &FieldSet<'_>) -> Option<Map> {
    let gone = named(schema, merged)
        .difference(&named(schema, pruned))
        .intersection(&with_named_fields(schema, last.clone()));
    if gone.is_empty() {
        return None;
    }
    let mut out = merged.clone();
    remove_fields(schema, &mut out, &gone);
    Some(out)
}
