//! The operators of CEL and their costs.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::sync::Arc;

use super::merging::{ListType, Merging};
use super::meter::Meter;
use super::sizes::size;
use super::values::{EvalFailure, Evaluated, NO_OVERLOAD, optional, overload, whole};
use super::{arithmetic, conversions, merging, mismatch};
use crate::registry::cel::library::type_name;
use crate::registry::cel::objects::{Key, Map, OptionalValue, Value as CelValue};
use crate::registry::types::names::CEL_RESERVED;

/// Maximum length of a concatenated list. kube-apiserver does not need this limit, because its concatenated lists refer
/// to their operands instead of copying them.
const ITEMS_MAX: usize = 2_000_000;

pub(crate) fn is_binary(name: &str) -> bool {
    matches!(
        name,
        "_==_" | "_!=_" | "_<_" | "_<=_" | "_>_" | "_>=_" | "_+_" | "_-_" | "_*_" | "_/_" | "_%_"
    )
}

pub(crate) fn unary(name: &str, value: CelValue, meter: &mut Meter) -> Evaluated {
    meter.charge(1)?;
    match (name, value) {
        ("!_", CelValue::Bool(value)) => Ok(CelValue::Bool(!value)),
        ("-_", CelValue::Int(value)) => match value.checked_neg() {
            Some(value) => Ok(CelValue::Int(value)),
            None => Err(EvalFailure::Error("integer overflow".into())),
        },
        ("-_", CelValue::Float(value)) => Ok(CelValue::Float(-value)),
        _ => Err(overload()),
    }
}

pub(crate) fn binary(name: &str, left: CelValue, right: CelValue, meter: &mut Meter) -> Evaluated {
    match name {
        "_==_" | "_!=_" => {
            match (name, &left) {
                // Comparing library values has a constant cost.
                ("_==_", CelValue::Opaque(_)) if <&OptionalValue>::try_from(&left).is_err() => meter.charge(1)?,
                _ => meter.charge_traversal(size(&left).min(size(&right)), 1)?,
            }
            if name == "_==_" && is_incomparable(&left, &right) {
                return Err(overload());
            }
            Ok(CelValue::Bool(equal(&left, &right, meter)? == (name == "_==_")))
        }
        "_<_" | "_<=_" | "_>_" | "_>=_" => {
            meter.charge_traversal(size(&left).min(size(&right)), 1)?;
            let order = match (&left, &right) {
                (CelValue::Bytes(left), CelValue::Bytes(right)) => Some(left.cmp(right)),
                (CelValue::Float(left), CelValue::Float(right)) if left.is_nan() || right.is_nan() => {
                    return Ok(CelValue::Bool(false));
                }
                (CelValue::Null | CelValue::List(_) | CelValue::Map(_) | CelValue::Opaque(_), _) => None,
                (left, right) => left.partial_cmp(right),
            };
            let order = order.ok_or_else(|| mismatch::of_operator(name, &left))?;
            Ok(CelValue::Bool(match name {
                "_<_" => order == Ordering::Less,
                "_<=_" => order != Ordering::Greater,
                "_>_" => order == Ordering::Greater,
                _ => order != Ordering::Less,
            }))
        }
        "_+_" => add(left, right, meter),
        _ => {
            meter.charge(1)?;
            compute(name, &left, &right)
        }
    }
}

/// Returns `true` if `left` is a library value and `right` has a different type other than null: cel-go cannot compare
/// them.
fn is_incomparable(left: &CelValue, right: &CelValue) -> bool {
    let is_library = matches!(left, CelValue::Opaque(_)) && <&OptionalValue>::try_from(left).is_err();
    is_library && !matches!(right, CelValue::Null) && type_name(left) != type_name(right)
}

fn compute(name: &str, left: &CelValue, right: &CelValue) -> Evaluated {
    match arithmetic::compute(name, left, right) {
        Err(EvalFailure::Error(error)) if error == NO_OVERLOAD => Err(mismatch::of_operator(name, left)),
        result => result,
    }
}

/// Compares two values. A shared part is compared at each of its occurrences, and each comparison counts as work.
pub(super) fn equal(left: &CelValue, right: &CelValue, meter: &mut Meter) -> Result<bool, EvalFailure> {
    let optional = |value| <&OptionalValue>::try_from(value).ok();
    match (left, right) {
        (CelValue::List(left), CelValue::List(right)) if left.len() == right.len() => {
            meter.work(1 + left.len())?;
            match meter.list_type(left).map(|it| it.merging) {
                Some(Merging::Set(stored)) => return merging::includes(left, stored.as_deref(), right),
                Some(Merging::Map(keys)) => return has_same_items(left, right, &keys, meter),
                Some(Merging::Atomic) | None => {}
            }
            for (left, right) in left.iter().zip(right.iter()) {
                if !equal(left, right, meter)? {
                    return Ok(false);
                }
            }
            Ok(true)
        }
        (CelValue::Map(left), CelValue::Map(right)) if left.len() == right.len() => {
            meter.work(1 + left.len())?;
            for (key, left) in left.map.iter() {
                match find(right, &CelValue::from(key)) {
                    Some(right) if equal(left, right, meter)? => {}
                    _ => return Ok(false),
                }
            }
            has_same_hidden(left, right, meter)
        }
        (CelValue::List(_) | CelValue::Map(_), CelValue::List(_) | CelValue::Map(_)) => Ok(false),
        (left, right) => match (optional(left), optional(right)) {
            (Some(left), Some(right)) => match (left.value(), right.value()) {
                (Some(left), Some(right)) => equal(left, right, meter),
                (left, right) => Ok(left.is_none() && right.is_none()),
            },
            _ => {
                meter.work(if size(left) == size(right) { size(left) / 16 } else { 0 })?;
                Ok(left == right)
            }
        },
    }
}

/// Compares the hidden entries of `left` with the entries of another map. As in Go, keys that the other map lacks are
/// skipped (`unstructuredMap.Equal`).
fn has_same_hidden(left: &Map, right: &Map, meter: &mut Meter) -> Result<bool, EvalFailure> {
    for (key, value) in left.hidden.iter().flat_map(|it| it.iter()) {
        let other = right.hidden.as_ref().and_then(|it| it.get(key));
        let is_same = match other {
            Some(other) => equal(value, other, meter)?,
            None => !right.map.contains_key(key),
        };
        if !is_same {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Returns `true` if each item of another list equals the item of `list`, a list of type `map`, with the same keys.
fn has_same_items(
    list: &[CelValue],
    items: &[CelValue],
    keys: &[Option<String>],
    meter: &mut Meter,
) -> Result<bool, EvalFailure> {
    let by_key = list.iter().filter_map(|it| Some((merging::item_key(it, keys)?, it)));
    let by_key: HashMap<String, &CelValue> = by_key.collect();
    for item in items {
        let same = merging::item_key(item, keys).and_then(|key| by_key.get(&key).copied());
        match same {
            Some(other) if equal(other, item, meter)? => {}
            _ => return Ok(false),
        }
    }
    Ok(true)
}

fn add(left: CelValue, right: CelValue, meter: &mut Meter) -> Evaluated {
    match (left, right) {
        (CelValue::String(mut left), CelValue::String(right)) => {
            let sizes = left.chars().count() + right.chars().count();
            meter.charge_traversal(sizes, 1)?;
            Arc::make_mut(&mut left).push_str(&right);
            Ok(CelValue::String(left))
        }
        (CelValue::Bytes(mut left), CelValue::Bytes(right)) => {
            meter.charge_traversal(left.len() + right.len(), 1)?;
            Arc::make_mut(&mut left).extend_from_slice(&right);
            Ok(CelValue::Bytes(left))
        }
        (CelValue::List(left), CelValue::List(right)) => {
            meter.charge(1)?;
            if left.len() + right.len() > ITEMS_MAX {
                return Err(meter.exhaust());
            }
            meter.work(left.len() + right.len())?;
            add_lists(left, right, meter)
        }
        (left, right) => {
            meter.charge(1)?;
            compute("_+_", &left, &right)
        }
    }
}

/// Computes `left + right`. The type of the left list determines how the lists are added. If the left list is empty and
/// computed, the result is the right list, as in cel-go.
fn add_lists(left: Arc<Vec<CelValue>>, right: Arc<Vec<CelValue>>, meter: &mut Meter) -> Evaluated {
    let Some(ListType { merging, items }) = meter.list_type(&left) else {
        if left.is_empty() {
            return Ok(CelValue::List(right));
        }
        let mut items = left;
        Arc::make_mut(&mut items).extend(right.iter().cloned());
        return Ok(CelValue::List(items));
    };
    let (sum, merging) = match merging {
        Merging::Atomic => (merging::append(&left, &right, items), Merging::Atomic),
        Merging::Set(stored) => {
            let (sum, keys) = merging::union(&left, stored.as_deref(), &right, items)?;
            (sum, Merging::Set(Some(keys)))
        }
        Merging::Map(keys) => (merging::merge(&left, &right, &keys), Merging::Map(keys)),
    };
    let sum = Arc::new(sum);
    meter.record_sum(&sum, ListType { merging, items });
    Ok(CelValue::List(sum))
}

/// Evaluates `item in container`, for the items of a list or the keys of a map.
pub(crate) fn contains(item: &CelValue, container: &CelValue, is_free: bool, meter: &mut Meter) -> Evaluated {
    match container {
        CelValue::List(items) => {
            if !is_free {
                meter.charge(items.len() as u64)?;
            }
            meter.work(items.len())?;
            is_item(item, items, meter)
        }
        CelValue::Map(map) => {
            meter.charge(1)?;
            Ok(CelValue::Bool(find(map, item).is_some()))
        }
        _ => Err(overload()),
    }
}

/// Evaluates `item in items`. A list from JSON compares its items with `item`, and fails if none is equal and a
/// comparison fails. A computed list compares `item` with its items, and ignores failures. The order matters if lists
/// of different types are compared.
fn is_item(item: &CelValue, items: &Arc<Vec<CelValue>>, meter: &mut Meter) -> Evaluated {
    let is_typed = meter.list_type(items).is_some();
    let mut failed = None;
    for other in items.iter() {
        let is_equal = match is_typed {
            true => whole(other).and_then(|other| equal(&other, item, meter)),
            false => equal(item, other, meter),
        };
        match is_equal {
            Ok(true) => return Ok(CelValue::Bool(true)),
            Ok(false) => {}
            Err(EvalFailure::TooDear) => return Err(EvalFailure::TooDear),
            Err(failure) => failed = failed.or(Some(failure)),
        }
    }
    match failed {
        Some(failure) if is_typed => Err(failure),
        _ => Ok(CelValue::Bool(false)),
    }
}

/// Returns the value of a key in a map. Numbers match equal integer keys of a different type.
fn find<'a>(map: &'a Map, key: &CelValue) -> Option<&'a CelValue> {
    let get = |key: Key| map.map.get(&key);
    if let Some(value) = Key::try_from(key.clone()).ok().and_then(get) {
        return Some(value);
    }
    let number = whole_number(key)?;
    let int = i64::try_from(number).ok().map(Key::Int);
    let uint = u64::try_from(number).ok().map(Key::Uint);
    int.and_then(get).or_else(|| uint.and_then(get))
}

/// Returns a number as an integer, if it does not have a fractional part.
fn whole_number(value: &CelValue) -> Option<i128> {
    match value {
        CelValue::Int(number) => Some((*number).into()),
        CelValue::UInt(number) => Some((*number).into()),
        #[expect(
            clippy::cast_possible_truncation,
            reason = "it is a whole number, and the range is checked"
        )]
        CelValue::Float(number) if number.fract() == 0.0 && number.abs() < 2e19 => Some(*number as i128),
        _ => None,
    }
}

/// Returns the value of a key in a map, or the item of a list at an index.
pub(crate) fn entry(container: &CelValue, key: &CelValue) -> Evaluated {
    let show = |key: &CelValue| match key {
        CelValue::Int(key) => key.to_string(),
        CelValue::UInt(key) => key.to_string(),
        CelValue::Bool(key) => key.to_string(),
        CelValue::String(key) => key.to_string(),
        CelValue::Float(key) => conversions::float(*key),
        other => format!("{other:?}"),
    };
    match (container, key) {
        (CelValue::Map(map), key) => {
            if !matches!(key, CelValue::Float(_)) && Key::try_from(key.clone()).is_err() {
                return Err(overload());
            }
            let value = find(map, key).cloned();
            value.ok_or_else(|| EvalFailure::Error(format!("no such key: {}", show(key))))
        }
        (CelValue::List(items), CelValue::Int(_) | CelValue::UInt(_) | CelValue::Float(_)) => {
            let at = match key {
                #[expect(
                    clippy::cast_possible_truncation,
                    clippy::cast_sign_loss,
                    reason = "it is a whole number"
                )]
                CelValue::Float(at) if at.fract() == 0.0 && (0.0..1e15).contains(at) => Some(*at as usize),
                CelValue::Int(at) => usize::try_from(*at).ok(),
                CelValue::UInt(at) => usize::try_from(*at).ok(),
                _ => None,
            };
            let value = at.and_then(|at| items.get(at)).cloned();
            value.ok_or_else(|| EvalFailure::Error(format!("index out of bounds: {}", show(key))))
        }
        (CelValue::List(_), key) => Err(EvalFailure::Error(format!(
            "unsupported index type '{}' in list",
            type_name(key)
        ))),
        (_, key) => Err(EvalFailure::Error(format!("no such key: {}", show(key)))),
    }
}

/// Returns an entry of a map or list as an optional value. The map or list may itself be optional.
pub(crate) fn optional_entry(container: &CelValue, key: &CelValue) -> CelValue {
    let inner = match <&OptionalValue>::try_from(container) {
        Ok(optional) => optional.value(),
        Err(_) => Some(container),
    };
    optional(inner.and_then(|it| match (it, key) {
        (CelValue::Map(map), CelValue::String(name)) => field(map, name),
        _ => entry(it, key).ok(),
    }))
}

/// Returns a field of an object. A reserved word is accepted both escaped and unescaped.
pub(super) fn field(map: &Map, name: &str) -> Option<CelValue> {
    let get = |name: String| map.map.get(&Key::String(Arc::new(name))).cloned();
    let is_reserved = CEL_RESERVED.contains(&name);
    get(name.to_owned()).or_else(|| is_reserved.then(|| get(format!("__{name}__"))).flatten())
}
