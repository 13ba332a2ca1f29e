//! `fieldsV1`: reading and writing field sets, and changing them where they lie.

use super::element::{BadFields, Element};
use super::set::{FieldSet, Node};
use crate::api::json::{Map, SmolStr, Value};

/// The key that says that a path with children is itself in the set.
const SELF: &str = ".";

/// Reads a `fieldsV1` object. Absent or null is the empty set.
pub(super) fn decode(fields: Option<&Value>) -> Result<FieldSet<'_>, BadFields> {
    match fields {
        None | Some(Value::Null) => Ok(FieldSet::new()),
        Some(Value::Object(map)) => decode_map(map).map(|(children, _)| children),
        Some(_) => Err(BadFields),
    }
}

/// Reads one key of a `fieldsV1` object with what lies below it.
pub(super) fn decode_one<'a>(key: &'a str, value: &'a Value) -> Result<FieldSet<'a>, BadFields> {
    let mut set = FieldSet::new();
    if let (Some(element), Value::Object(map)) = (Element::parse(key)?, value) {
        let (children, member) = decode_map(map)?;
        set.push(element, member, children);
    }
    Ok(set)
}

/// The children, and whether the object stands for a member itself.
fn decode_map(map: &Map) -> Result<(FieldSet<'_>, bool), BadFields> {
    let mut set = FieldSet::new();
    let mut member = false;
    for (key, value) in map {
        if key == SELF {
            member = true;
            continue;
        }
        let Some(element) = Element::parse(key)? else {
            continue;
        };
        let (children, is_member) = match value {
            Value::Object(map) => decode_map(map)?,
            Value::Null => (FieldSet::new(), true),
            _ => return Err(BadFields),
        };
        set.push(element, is_member, children);
    }
    set.sort();
    member |= set.is_empty();
    Ok((set, member))
}

/// Writes a set as a `fieldsV1` object.
pub(super) fn encode(set: &FieldSet<'_>) -> Map {
    encode_level(set, false, &mut String::new())
}

fn encode_node(node: &Node<'_>, key: &mut String) -> Map {
    encode_level(&node.children, node.member, key)
}

/// `member` says whether what is above the set is in it, too. `key` is room for keys.
fn encode_level(set: &FieldSet<'_>, member: bool, key: &mut String) -> Map {
    let is_named = member && !set.is_empty();
    let mut map = Map::with_capacity(set.nodes().len() + usize::from(is_named));
    if is_named {
        map.insert(SELF.into(), Value::Object(Map::new()));
    }
    for node in set.nodes() {
        write_key(node, key);
        let name = SmolStr::new(&key);
        map.insert(name, Value::Object(encode_node(node, key)));
    }
    map
}

fn write_key(node: &Node<'_>, key: &mut String) {
    key.clear();
    node.element.write(key);
}

/// Returns `true` if a path of `set` is among the fields.
pub(super) fn touches(fields: &Map, set: &FieldSet<'_>) -> bool {
    touches_with(fields, set, &mut String::new())
}

fn touches_with(fields: &Map, set: &FieldSet<'_>, key: &mut String) -> bool {
    set.nodes().iter().any(|node| {
        write_key(node, key);
        let Some(Value::Object(child)) = fields.get(key.as_str()) else {
            return false;
        };
        (node.member && (child.is_empty() || child.contains_key(SELF))) || touches_with(child, &node.children, key)
    })
}

/// Returns `true` if the fields are exactly those of `set`.
pub(super) fn are(fields: &Map, set: &FieldSet<'_>) -> bool {
    are_with(fields, set, 0, &mut String::new())
}

/// `extra` is how many keys there are beside those of the nodes.
fn are_with(fields: &Map, set: &FieldSet<'_>, extra: usize, key: &mut String) -> bool {
    if fields.len() != set.nodes().len() + extra {
        return false;
    }
    // Both are sorted, plain fields alike: as long as those stand beside each other, none is searched for.
    let mut beside = fields.iter().filter(|(key, _)| *key != SELF);
    set.nodes().iter().all(|node| {
        let child = match (beside.next(), &node.element) {
            (Some((field, child)), Element::Field(name)) if field.strip_prefix("f:") == Some(&**name) => Some(child),
            (_, element) => {
                key.clear();
                element.write(key);
                fields.get(key.as_str())
            }
        };
        let Some(Value::Object(child)) = child else {
            return false;
        };
        let is_self = usize::from(child.contains_key(SELF));
        let member = child.is_empty() || is_self == 1;
        member == node.member && are_with(child, &node.children, is_self, key)
    })
}

/// Takes the paths of `set` out of the fields; says whether there were any.
pub(super) fn subtract(fields: &mut Map, set: &FieldSet<'_>) -> bool {
    subtract_with(fields, set, &mut String::new())
}

fn subtract_with(fields: &mut Map, set: &FieldSet<'_>, key: &mut String) -> bool {
    let mut changed = false;
    for node in set.nodes() {
        write_key(node, key);
        let Some(Value::Object(child)) = fields.get_mut(key.as_str()) else {
            continue;
        };
        let mut member = child.is_empty() || child.contains_key(SELF);
        if node.member && member {
            member = false;
            changed = true;
            child.remove(SELF);
        }
        changed |= subtract_with(child, &node.children, key);
        if child.keys().all(|it| it == SELF) {
            // Nothing below is left: what stays is the member alone, or nothing.
            if member {
                child.clear();
            } else {
                write_key(node, key);
                fields.remove(key.as_str());
            }
        }
    }
    changed
}

/// Adds the paths of `set` to the fields.
pub(super) fn add(fields: &mut Map, set: &FieldSet<'_>) {
    add_with(fields, set, &mut String::new());
}

fn add_with(fields: &mut Map, set: &FieldSet<'_>, key: &mut String) {
    for node in set.nodes() {
        write_key(node, key);
        match fields.get_mut(key.as_str()) {
            Some(Value::Object(child)) => {
                let member = node.member || child.is_empty() || child.contains_key(SELF);
                child.remove(SELF);
                add_with(child, &node.children, key);
                if member && !child.is_empty() {
                    child.insert(SELF.into(), Value::Object(Map::new()));
                }
            }
            _ => {
                let name = SmolStr::new(&key);
                fields.insert(name, Value::Object(encode_node(node, key)));
            }
        }
    }
}
