//! Functions of lists, modelled on cel-go's library `lists`.

use std::cmp::Ordering;

use super::arithmetic;
use super::meter::Meter;
use super::operators::equal;
use super::strings;
use super::values::{EvalFailure, Evaluated, list, optional, overload};
use crate::registry::cel::costs;
use crate::registry::cel::objects::{OptionalValue, Value as CelValue};

/// Calls a function of lists; returns `None` for other functions.
pub(super) fn call(name: &str, args: &[CelValue], meter: &mut Meter) -> Option<Evaluated> {
    let [CelValue::List(items), rest @ ..] = args else {
        return range(name, args, meter);
    };
    Some(match (name, rest) {
        ("@sortByAssociatedKeys", [CelValue::List(keys)]) => sort_by(items, keys, meter),
        ("sort", []) => sort_by(items, items, meter),
        ("isSorted", []) => is_sorted(items),
        ("min", []) => extreme(items, "min", Ordering::Less),
        ("max", []) => extreme(items, "max", Ordering::Greater),
        ("sum", []) => sum(items),
        ("indexOf", [item]) => position(items.iter().enumerate(), item, meter),
        ("lastIndexOf", [item]) => position(items.iter().enumerate().rev(), item, meter),
        ("first", []) => Ok(optional(items.first().cloned())),
        ("last", []) => Ok(optional(items.last().cloned())),
        ("reverse", []) => Ok(list(items.iter().rev().cloned().collect())),
        ("slice", [CelValue::Int(start), CelValue::Int(end)]) => slice(items, *start, *end),
        ("flatten", []) => flatten(items, 1, meter).map(list),
        ("flatten", [CelValue::Int(depth)]) => match *depth < 0 {
            true => fail("level must be non-negative".to_owned()),
            false => flatten(items, *depth, meter).map(list),
        },
        ("distinct", []) => distinct(items, meter),
        ("unwrapOpt" | "optional.unwrap", []) => unwrap(items),
        ("join", []) => strings::join(items, "", meter),
        ("join", [CelValue::String(separator)]) => strings::join(items, separator, meter),
        ("sets.contains", [CelValue::List(others)]) => contains(items, others, meter).map(CelValue::Bool),
        ("sets.intersects", [CelValue::List(others)]) => intersects(items, others, meter),
        ("sets.equivalent", [CelValue::List(others)]) => {
            let both = contains(items, others, meter).and_then(|it| Ok(it && contains(others, items, meter)?));
            both.map(CelValue::Bool)
        }
        _ => return None,
    })
}

fn range(name: &str, args: &[CelValue], meter: &mut Meter) -> Option<Evaluated> {
    match (name, args) {
        ("lists.range", [CelValue::Int(count)]) => {
            let count = usize::try_from(*count).unwrap_or(0);
            if let Err(failure) = meter.charge_ahead(count as u64).and_then(|()| meter.work(count)) {
                return Some(Err(failure));
            }
            let numbers = (0..count).map(|it| CelValue::Int(i64::try_from(it).unwrap_or(i64::MAX)));
            Some(Ok(list(numbers.collect())))
        }
        _ => None,
    }
}

fn is_sorted(items: &[CelValue]) -> Evaluated {
    for pair in items.windows(2) {
        match order(&pair[0], &pair[1]) {
            Ok(Ordering::Greater) => return Ok(CelValue::Bool(false)),
            Ok(_) => {}
            Err(_) => return Err(overload()),
        }
    }
    Ok(CelValue::Bool(true))
}

/// Returns the smallest or the largest item.
fn extreme(items: &[CelValue], name: &str, wanted: Ordering) -> Evaluated {
    let Some((first, rest)) = items.split_first() else {
        return fail(format!("{name} called on empty list"));
    };
    let mut found = first;
    for item in rest {
        match order(item, found) {
            Ok(order) if order == wanted => found = item,
            Ok(_) => {}
            Err(_) => return Err(overload()),
        }
    }
    Ok(found.clone())
}

/// Returns the sum of a list's items; 0 for an empty list.
fn sum(items: &[CelValue]) -> Evaluated {
    let Some((first, rest)) = items.split_first() else {
        return Ok(CelValue::Int(0));
    };
    let is_number = |it: &CelValue| {
        matches!(
            it,
            CelValue::Int(_) | CelValue::UInt(_) | CelValue::Float(_) | CelValue::Duration(_)
        )
    };
    if !items.iter().all(is_number) {
        return Err(overload());
    }
    rest.iter()
        .try_fold(first.clone(), |sum, item| arithmetic::compute("_+_", &sum, item))
}

/// Returns the index of the first of these items that equals `wanted`; -1 if there is none.
fn position<'v>(
    mut items: impl Iterator<Item = (usize, &'v CelValue)>,
    wanted: &CelValue,
    meter: &mut Meter,
) -> Evaluated {
    let found = items.find_map(|(at, item)| match equal(item, wanted, meter) {
        Ok(true) => Some(Ok(CelValue::Int(i64::try_from(at).unwrap_or(i64::MAX)))),
        Ok(false) => None,
        Err(failure) => Some(Err(failure)),
    });
    found.unwrap_or(Ok(CelValue::Int(-1)))
}

fn slice(items: &[CelValue], start: i64, end: i64) -> Evaluated {
    if start < 0 || end < 0 {
        return fail(format!("cannot slice({start}, {end}), negative indexes not supported"));
    }
    if start > end {
        return fail(format!(
            "cannot slice({start}, {end}), start index must be less than or equal to end index"
        ));
    }
    let at = |number: i64| usize::try_from(number).unwrap_or(usize::MAX);
    match items.get(at(start)..at(end)) {
        Some(items) => Ok(list(items.to_vec())),
        None => fail(format!("cannot slice({start}, {end}), list is length {}", items.len())),
    }
}

/// Flattens nested lists, up to `depth` levels.
fn flatten(items: &[CelValue], depth: i64, meter: &mut Meter) -> Result<Vec<CelValue>, EvalFailure> {
    meter.work(items.len())?;
    let mut flat = Vec::with_capacity(items.len());
    for item in items {
        match item {
            CelValue::List(inner) if depth > 0 => {
                let inner = stacker::maybe_grow(costs::STACK_LEFT, costs::STACK_MORE, || {
                    flatten(inner, depth - 1, meter)
                });
                flat.extend(inner?);
            }
            other => flat.push(other.clone()),
        }
    }
    Ok(flat)
}

fn distinct(items: &[CelValue], meter: &mut Meter) -> Evaluated {
    charge_comparisons(items, meter)?;
    let mut found: Vec<CelValue> = Vec::new();
    for item in items {
        let mut is_new = true;
        for other in &found {
            if equal(item, other, meter)? {
                is_new = false;
                break;
            }
        }
        if is_new {
            found.push(item.clone());
        }
    }
    Ok(list(found))
}

/// Returns the contents of the optional items that have a value.
fn unwrap(items: &[CelValue]) -> Evaluated {
    let mut found = Vec::new();
    for item in items {
        let value = <&OptionalValue>::try_from(item).map_err(|_| overload())?;
        found.extend(value.value().cloned());
    }
    Ok(list(found))
}

/// Returns `true` if `items` contains each item of `others`.
fn contains(items: &[CelValue], others: &[CelValue], meter: &mut Meter) -> Result<bool, EvalFailure> {
    for other in others {
        let mut is_there = false;
        for item in items {
            if equal(other, item, meter)? {
                is_there = true;
                break;
            }
        }
        if !is_there {
            return Ok(false);
        }
    }
    Ok(true)
}

fn intersects(items: &[CelValue], others: &[CelValue], meter: &mut Meter) -> Evaluated {
    for item in items {
        for other in others {
            if equal(item, other, meter)? {
                return Ok(CelValue::Bool(true));
            }
        }
    }
    Ok(CelValue::Bool(false))
}

/// Sorts the items by their keys.
pub(super) fn sort_by(items: &[CelValue], keys: &[CelValue], meter: &mut Meter) -> Evaluated {
    charge_comparisons(keys, meter)?;
    if items.len() != keys.len() {
        return fail(format!(
            "@sortByAssociatedKeys() expected a list of the same size as the associated keys list, but got {} and {} \
             elements respectively",
            items.len(),
            keys.len()
        ));
    }
    let mut pairs: Vec<(&CelValue, &CelValue)> = keys.iter().zip(items).collect();
    let mut wrong = None;
    pairs.sort_by(|(one, _), (other, _)| {
        order(one, other).unwrap_or_else(|error| {
            wrong = Some(error);
            Ordering::Equal
        })
    });
    match wrong {
        Some(error) => fail(error.to_owned()),
        None => Ok(list(pairs.into_iter().map(|(_, item)| item.clone()).collect())),
    }
}

/// Compares two values of the same ordered type.
pub(super) fn order(one: &CelValue, other: &CelValue) -> Result<Ordering, &'static str> {
    const COMPARABLE: &str = "list elements must be comparable";
    Ok(match (one, other) {
        (CelValue::Int(one), CelValue::Int(other)) => one.cmp(other),
        (CelValue::UInt(one), CelValue::UInt(other)) => one.cmp(other),
        (CelValue::Float(one), CelValue::Float(other)) => one.partial_cmp(other).unwrap_or(Ordering::Equal),
        (CelValue::Bool(one), CelValue::Bool(other)) => one.cmp(other),
        (CelValue::String(one), CelValue::String(other)) => one.cmp(other),
        (CelValue::Bytes(one), CelValue::Bytes(other)) => one.cmp(other),
        (CelValue::Duration(one), CelValue::Duration(other)) => one.cmp(other),
        (CelValue::Timestamp(one), CelValue::Timestamp(other)) => one.cmp(other),
        (CelValue::List(_) | CelValue::Map(_) | CelValue::Opaque(_) | CelValue::Null, _) => return Err(COMPARABLE),
        _ => return Err("list elements must have the same type"),
    })
}

/// Fails if comparing every pair of items would exceed the cost limit. The call itself is charged later.
fn charge_comparisons(items: &[CelValue], meter: &mut Meter) -> Result<(), EvalFailure> {
    let pairs = items.len().saturating_mul(items.len());
    meter.charge_ahead((pairs as u64).saturating_mul(2))?;
    meter.work(pairs)
}

fn fail(error: String) -> Evaluated {
    Err(EvalFailure::Error(error))
}
