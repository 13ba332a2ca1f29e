//! Sizes of values, used to compute costs.

use super::network;
use crate::registry::cel::library::TYPE_START;
use crate::registry::cel::objects::{OptionalValue, Value as CelValue};

/// Returns the size of a value: the number of characters, bytes, items or entries; for an address or a CIDR range, the
/// number of bytes; for an optional value, the size of its content; otherwise 1.
pub(crate) fn size(value: &CelValue) -> usize {
    match value {
        CelValue::String(text) if text.starts_with(TYPE_START) => 1,
        CelValue::String(text) => text.chars().count(),
        CelValue::Bytes(bytes) => bytes.len(),
        CelValue::List(items) => items.len(),
        CelValue::Map(map) => map.len(),
        CelValue::Opaque(_) => match <&OptionalValue>::try_from(value) {
            Ok(optional) => optional.value().map_or(1, size),
            Err(_) => network::size(value).unwrap_or(1),
        },
        _ => 1,
    }
}
