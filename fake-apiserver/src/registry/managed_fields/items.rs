//! Path elements of list items (rule H11).

use std::borrow::Cow;

use super::element::Element;
use crate::api::json::Value;
use crate::registry::types::schema::{ListKeys, ListType, SchemaRef};

/// Returns the path element of an item in a set or map list. Fails with the message of a refused apply.
pub(super) fn item_element<'a>(list: SchemaRef<'_>, item: &'a Value) -> Result<Element<'a>, String> {
    match list.list_type() {
        ListType::Atomic => Err("invalid indexing of non-associative list".to_owned()),
        ListType::Set => set_element(item),
        ListType::Map(keys) => key_element(list, keys, item),
    }
}

fn set_element(item: &Value) -> Result<Element<'_>, String> {
    match item {
        Value::Object(_) => Err("associative list without keys has an element that's a map type".to_owned()),
        Value::Array(_) => Err("not supported: associative list with lists as elements".to_owned()),
        Value::Null => Err("associative list without keys has an element that's an explicit null".to_owned()),
        Value::Bool(_) | Value::Number(_) | Value::String(_) => Ok(Element::Value(Cow::Borrowed(item))),
    }
}

fn key_element<'a>(list: SchemaRef<'_>, keys: ListKeys<'_>, item: &'a Value) -> Result<Element<'a>, String> {
    let map = match item {
        Value::Object(map) => map,
        Value::Null => return Err("associative list with keys may not have a null element".to_owned()),
        _ => return Err("associative list with keys may not have non-map elements".to_owned()),
    };
    let mut found = Vec::new();
    for name in keys.iter() {
        // The name is borrowed from the item, which lives longer than the name in the schema.
        if let Some((name, value)) = map.get_key_value(name) {
            found.push((Cow::Borrowed(name.as_str()), Cow::Borrowed(value)));
        } else if let Some(default) = list.key_default(name) {
            found.push((Cow::Owned(name.to_owned()), Cow::Owned(default)));
        }
    }
    if found.is_empty() {
        let names: Vec<String> = keys.iter().map(crate::api::field::quote).collect();
        return Err(format!(
            "associative list with keys has an element that omits all key fields [{}] (and doesn't have default \
             values for any key fields)",
            names.join(" ")
        ));
    }
    found.sort_by(|(a, _), (b, _)| a.cmp(b));
    Ok(Element::Key(found))
}
