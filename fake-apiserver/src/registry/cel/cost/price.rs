//! Estimated costs of the functions of CEL and of Kubernetes' libraries.

use super::coster::{Entries, PartCost};
use super::range::{CostRange, REGEX, TRAVERSAL};
use super::types::Type;
use crate::registry::cel::costs;

/// Assumed length of the regular expression of a named format.
const FORMAT_REGEX: f64 = 128.0;

/// Cost of a call, and bounds on the size of its result.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Price {
    pub(crate) cost: CostRange,
    /// Set if the cost includes the cost of the arguments.
    pub(crate) includes_args: bool,
    pub(crate) size: Option<CostRange>,
    pub(crate) entries: Option<Entries>,
}

impl Price {
    pub(crate) const ONE: Self = Self::of(CostRange::ONE);

    pub(crate) const fn of(cost: CostRange) -> Self {
        Self {
            cost,
            includes_args: false,
            size: None,
            entries: None,
        }
    }

    /// Creates a price that already includes the cost of the arguments.
    pub(crate) const fn whole(cost: CostRange) -> Self {
        Self {
            includes_args: true,
            ..Self::of(cost)
        }
    }

    fn sized(cost: CostRange, size: CostRange) -> Self {
        Self {
            size: Some(size),
            ..Self::of(cost)
        }
    }
}

/// Returns the estimated cost of a call of a function.
pub(crate) fn price_of(name: &str, target: Option<&PartCost>, args: &[PartCost]) -> Price {
    let price = match (target, args) {
        (Some(target), args) => of_method(name, target, args),
        (None, args) => of_function(name, args),
    };
    price.unwrap_or(Price::ONE)
}

fn of_method(name: &str, target: &PartCost, args: &[PartCost]) -> Option<Price> {
    let size = target.size_or_any();
    let argument = args.first().map(PartCost::size_or_any);
    Some(match name {
        "check" => Price::of(CostRange::exactly(costs::CHECK)),
        "fieldSelector" | "labelSelector" => {
            let length = argument?;
            // The cost of a list and of one requirement for every two characters; a requirement is a struct with a
            // list.
            let requirements = length.scaled(0.5).scaled(50.0);
            Price::of(CostRange::exactly(costs::LIST) + length.scaled(TRAVERSAL) + requirements)
        }
        "isSorted" | "sum" | "max" | "min" | "indexOf" | "lastIndexOf" => match &target.kind {
            Type::List(items) => Price::of(size.times(CostRange::ONE + traversal_of_item(target, items))),
            _ => Price::of(size.scaled(TRAVERSAL)),
        },
        "lowerAscii" | "upperAscii" | "substring" | "trim" => Price::sized(size.scaled(TRAVERSAL), size),
        "replace" => {
            let (from, to) = (argument?, args.get(1)?.size_or_any());
            Price::sized(size.scaled(2.0 * TRAVERSAL), replaced(size, from, to))
        }
        "split" => {
            let max = args.get(1).and_then(|it| it.number);
            let max = max.map_or(size.max, i64::cast_unsigned);
            Price::sized(size.scaled(2.0 * TRAVERSAL), CostRange { min: 0, max })
        }
        "join" => {
            let mut made = match &target.kind {
                Type::List(_) => size.times(item_size(target)),
                _ => CostRange::ZERO,
            };
            if let Some(separator) = argument {
                let separators = CostRange {
                    min: size.min.saturating_sub(1),
                    max: size.max.saturating_sub(1),
                };
                made = made + separator.times(separators);
            }
            Price::sized(made.scaled(TRAVERSAL), made)
        }
        "find" | "findAll" => {
            let cost = (size + CostRange::ONE).scaled(TRAVERSAL).times(argument?.scaled(REGEX));
            let found = CostRange { min: 0, max: size.max };
            Price::sized(cost, found)
        }
        "matches" => Price::of((size + CostRange::ONE).scaled(TRAVERSAL).times(argument?.scaled(REGEX))),
        "contains" => Price::of(size.scaled(TRAVERSAL).times(argument?.scaled(TRAVERSAL))),
        "startsWith" | "endsWith" => Price::of(argument?.scaled(TRAVERSAL)),
        "format" => Price::of(size.scaled(TRAVERSAL)),
        "containsIP" => Price::of(network(0, args.first())),
        "containsCIDR" => Price::of(network(1, args.first())),
        "validate" => Price::of(argument?.scaled(TRAVERSAL).scaled(FORMAT_REGEX * REGEX)),
        _ => return of_list_method(name, target, args),
    })
}

/// Returns the cost of a method that creates a list from the items of another list.
fn of_list_method(name: &str, target: &PartCost, args: &[PartCost]) -> Option<Price> {
    let size = target.size_or_any();
    Some(match name {
        "slice" => match args {
            [from, to] => {
                let written = |part: &PartCost| part.number.map(|it| u64::try_from(it).unwrap_or(0));
                let (from, to) = (written(from).unwrap_or(0), written(to).unwrap_or(size.max));
                // The subtraction in kube-apiserver wraps below 0, so a slice that ends before its start has the
                // highest cost.
                listed(1.0, CostRange::exactly(to.wrapping_sub(from)))
            }
            _ => return None,
        },
        "reverse" if matches!(target.kind, Type::List(_)) => listed(1.0, size),
        "distinct" => listed(2.0, size.times(size)),
        "sort" => listed(comparison(&target.kind), size.times(size)),
        "@sortByAssociatedKeys" => {
            let keys = args.first()?.size_or_any();
            listed(comparison(&args.first()?.kind), keys.times(keys))
        }
        "flatten" => {
            let depth = args.first().map_or(Some(1), |it| it.number);
            let depth = depth.map_or(u64::MAX, |it| u64::try_from(it).unwrap_or(0));
            #[expect(clippy::cast_precision_loss, reason = "kube-apiserver computes with the same type")]
            let factor = depth as f64;
            listed(factor, size)
        }
        _ => return None,
    })
}

fn of_function(name: &str, args: &[PartCost]) -> Option<Price> {
    let size = args.first()?.size_or_any();
    Some(match name {
        "url" | "jsonpatch.escapeKey" | "strings.quote" => Price::sized(size.scaled(TRAVERSAL), size),
        "cidr" | "isIP" | "isCIDR" | "ip" | "quantity" | "isQuantity" | "semver" | "isSemver" => {
            Price::of(size.scaled(TRAVERSAL))
        }
        "ip.isCanonical" => Price::of(size.scaled(2.0 * TRAVERSAL)),
        "bytes" if matches!(args.first()?.kind, Type::String) => {
            let max = size.max.saturating_mul(4);
            Price::sized(size.scaled(TRAVERSAL), CostRange { min: size.min, max })
        }
        "string" if matches!(args.first()?.kind, Type::Bytes) => {
            let min = size.min / 4;
            Price::sized(size.scaled(TRAVERSAL), CostRange { min, max: size.max })
        }
        "sets.contains" | "sets.intersects" => Price::of(size.times(args.get(1)?.size_or_any()) + CostRange::ONE),
        "sets.equivalent" => Price::of(size.times(args.get(1)?.size_or_any()).scaled(2.0) + CostRange::ONE),
        "lists.range" => {
            let count = args.first()?.number.map(|it| u64::try_from(it).unwrap_or(0));
            listed(1.0, count.map_or(CostRange::ANY, CostRange::exactly))
        }
        _ => return None,
    })
}

/// Returns the cost of two comparisons of list items, including the cost of reading strings.
fn comparison(list: &Type) -> f64 {
    match list {
        Type::List(items) if matches!(**items, Type::String | Type::Bytes) => 2.0 + TRAVERSAL,
        _ => 2.0,
    }
}

/// Returns the cost of creating a list of this size.
fn listed(factor: f64, size: CostRange) -> Price {
    Price::sized(
        size.scaled(factor) + CostRange::ONE + CostRange::exactly(costs::LIST),
        size,
    )
}

/// Returns the size of a list's items.
fn item_size(list: &PartCost) -> CostRange {
    match (list.place.element_size(), &list.kind) {
        (Some(size), _) => size,
        (None, Type::List(items)) if matches!(**items, Type::Unknown) => CostRange::ONE,
        (None, _) => CostRange::ANY,
    }
}

fn traversal_of_item(list: &PartCost, items: &Type) -> CostRange {
    match items {
        Type::String | Type::Bytes => item_size(list).scaled(TRAVERSAL),
        _ => CostRange::ZERO,
    }
}

/// Returns the cost of comparing two addresses of 4 or 16 bytes, plus the cost of a mask if `masks` is positive. If
/// `other` is a string, the cost of parsing it is added.
fn network(masks: u64, other: Option<&PartCost>) -> CostRange {
    let address = CostRange { min: 4, max: 16 };
    let mut cost = (address + address).scaled(TRAVERSAL);
    if masks > 0 {
        cost = cost + address.scaled(TRAVERSAL) + CostRange::ONE;
    }
    match other {
        Some(other) if matches!(other.kind, Type::String) => cost + other.size_or_any().scaled(TRAVERSAL),
        _ => cost,
    }
}

/// Returns the size of a string after all occurrences of `from` were replaced with `to`.
fn replaced(text: CostRange, from: CostRange, to: CostRange) -> CostRange {
    let divided = |a: u64, b: u64| a.div_ceil(b);
    let (most, kept_most) = match from.min {
        0 => (text.max.saturating_add(1), text.max),
        _ if to.max <= from.min => (0, text.max),
        shortest => (divided(text.max, shortest), 0),
    };
    let (fewest, kept_fewest) = match from.max {
        0 => (text.min.saturating_add(1), text.min),
        _ if from.max <= to.min => (0, text.min),
        longest => (divided(text.min, longest), 0),
    };
    let count = CostRange { min: fewest, max: most };
    let kept = CostRange {
        min: kept_fewest,
        max: kept_most,
    };
    count.times(to) + kept
}
