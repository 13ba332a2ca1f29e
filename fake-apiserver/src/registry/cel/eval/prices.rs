//! Run-time costs of functions, modelled on cel-go's `interpreter/runtimecost.go` and
//! `k8s.io/apiserver/pkg/cel/library/cost.go`.

use super::formats;
use super::sizes::size;
use crate::registry::cel::costs;
use crate::registry::cel::objects::Value as CelValue;

/// Returns the cost of a call. The target of a method is the first argument. `result` is `None` if the call failed.
pub(super) fn price(name: &str, is_method: bool, args: &[CelValue], result: Option<&CelValue>) -> u64 {
    let sizes = |index: usize| args.get(index).map_or(0, size);
    let made = || result.map_or(1, size);
    let listed = |factor: usize, size: usize| {
        let cost = size.saturating_mul(factor) as u64;
        cost.saturating_add(costs::LIST + 1)
    };
    match name {
        "check" => costs::CHECK,
        "fieldSelector" | "labelSelector" => selector(sizes(1)),
        "isSorted" | "sum" | "max" | "min" | "indexOf" | "lastIndexOf" => args.first().map_or(0, traversal),
        "url"
        | "lowerAscii"
        | "upperAscii"
        | "substring"
        | "trim"
        | "jsonpatch.escapeKey"
        | "cidr"
        | "isIP"
        | "isCIDR"
        | "quantity"
        | "isQuantity"
        | "semver"
        | "isSemver"
        | "startsWith"
        | "endsWith"
        | "strings.quote"
        | "format" => tenths(sizes(0), 1),
        "ip" if !is_method => tenths(sizes(0), 1),
        "bytes" if matches!(args, [CelValue::String(_)]) => tenths(sizes(0), 1),
        "string" if matches!(args, [CelValue::Bytes(_)]) => tenths(sizes(0), 1),
        "ip.isCanonical" | "replace" | "split" => tenths(sizes(0), 2),
        "join" => tenths(made(), 2),
        "find" | "findAll" => regex(sizes(0), sizes(1)),
        "matches" if is_method => regex(sizes(0), sizes(1)),
        "contains" => tenths(sizes(0), 1).saturating_mul(tenths(sizes(1), 1)),
        "containsIP" => tenths(2 * sizes(0), 1) + text_tenths(args.get(1)),
        "containsCIDR" => tenths(2 * sizes(0), 1) + tenths(sizes(0), 1) + 1 + text_tenths(args.get(1)),
        "validate" => match args.first().and_then(formats::regex_size) {
            Some(length) => regex(sizes(1), length),
            None => 1,
        },
        "sets.contains" | "sets.intersects" => pairs(sizes(0), sizes(1), 1),
        "sets.equivalent" => pairs(sizes(0), sizes(1), 2),
        "slice" | "lists.range" => listed(1, made()),
        "reverse" if matches!(args.first(), Some(CelValue::List(_))) => listed(1, made()),
        "flatten" => match args.get(1) {
            Some(CelValue::Int(depth)) => listed(usize::try_from(*depth).unwrap_or(0), sizes(0)),
            _ => listed(1, sizes(0)),
        },
        "distinct" | "sort" => compared(args.first()),
        "@sortByAssociatedKeys" => compared(args.get(1)),
        _ => 1,
    }
}

/// Returns `factor` tenths of a size, rounded up.
fn tenths(size: usize, factor: usize) -> u64 {
    size.saturating_mul(factor).div_ceil(10) as u64
}

fn text_tenths(arg: Option<&CelValue>) -> u64 {
    match arg {
        // An argument with an error is replaced by null.
        Some(text @ (CelValue::String(_) | CelValue::Null)) => tenths(size(text), 1),
        _ => 0,
    }
}

/// Returns the cost of matching a string of length `text` against a regular expression of length `pattern`.
fn regex(text: usize, pattern: usize) -> u64 {
    tenths(text + 1, 1).saturating_mul(pattern.div_ceil(4) as u64)
}

fn pairs(one: usize, other: usize, factor: usize) -> u64 {
    let pairs = one.saturating_mul(other).saturating_mul(factor) as u64;
    pairs.saturating_add(1)
}

/// Returns the cost of reading a value with all its parts.
fn traversal(value: &CelValue) -> u64 {
    match value {
        CelValue::String(text) => text.len() as u64 / 10,
        CelValue::Bytes(bytes) => bytes.len() as u64 / 10,
        CelValue::List(items) => items.iter().map(traversal).fold(0, u64::saturating_add),
        CelValue::Map(map) => map.map.iter().fold(0, |sum, (key, value)| {
            let key = traversal(&CelValue::from(key));
            sum.saturating_add(key).saturating_add(traversal(value))
        }),
        _ => 1,
    }
}

/// Returns the cost of comparing each item of a list with every other item.
fn compared(list: Option<&CelValue>) -> u64 {
    let Some(CelValue::List(items)) = list else { return 1 };
    let pairs = items.len().saturating_mul(items.len()) as u64;
    let factor = match items.first() {
        Some(CelValue::String(_) | CelValue::Bytes(_)) => 21,
        _ => 20,
    };
    let cost = pairs.saturating_mul(factor) / 10;
    cost.saturating_add(costs::LIST + 1)
}

/// Returns the cost of parsing a selector: a list with one requirement for every two characters.
fn selector(length: usize) -> u64 {
    let requirements = length.div_ceil(2) as u64;
    tenths(length, 1) + requirements.saturating_mul(50) + costs::LIST
}
