//! Costs and result types of operators and calls.

use std::rc::Rc;

use super::coster::{Coster, Entries, PartCost};
use super::price::{self, Price};
use super::range::{CostRange, TRAVERSAL};
use super::types::Type;
use crate::registry::cel::ast::CallExpr;
use crate::registry::cel::syntax::{MAP_INSERT, OPTIONAL_INDEX, OPTIONAL_SELECT};

impl Coster {
    pub(crate) fn call(&mut self, call: &CallExpr) -> PartCost {
        let name = call.func_name.trim_start_matches('.').to_owned();
        let mut args: Vec<PartCost> = call.args.iter().map(|it| self.part(it)).collect();
        if name == "dyn" && args.len() == 1 {
            let mut part = args.remove(0);
            part.cost = part.cost + CostRange::ONE;
            part.kind = Type::Dyn;
            return part;
        }
        let target = call.target.as_ref().map(|target| self.part(target));
        let args_cost = args.iter().fold(CostRange::ZERO, |sum, arg| sum + arg.cost);
        let prices = prices(&name, target.as_ref(), &args);
        let (mut cost, mut size, mut entries) = (CostRange { min: u64::MAX, max: 0 }, None, None);
        for price in prices {
            cost = cost.or(match price.includes_args {
                true => price.cost,
                false => price.cost + args_cost,
            });
            size = match (size, price.size) {
                (Some(one), Some(other)) => Some(CostRange::or(one, other)),
                (one, other) => one.or(other),
            };
            entries = entries.or(price.entries);
        }
        let target_cost = target.as_ref().map_or(CostRange::ZERO, |it| it.cost);
        let kind = result_type(&name, target.as_ref(), &args);
        let of = (name == "_[_]").then(|| args.first().map(|it| &it.place)).flatten();
        self.called(target_cost + cost, kind, size, entries, of)
    }
}

/// Returns the costs of an operator or function, one for each overload that may apply. There are several if the types
/// of the operands are unknown (`dyn`).
fn prices(name: &str, target: Option<&PartCost>, args: &[PartCost]) -> Vec<Price> {
    match (name, args) {
        ("_&&_" | "_||_", [left, right]) => {
            let min = left.cost.min;
            let max = left.cost.max.saturating_add(right.cost.max);
            vec![Price::whole(CostRange { min, max })]
        }
        ("_?_:_", [condition, yes, no]) => {
            let mut price = Price::whole(condition.cost + yes.cost.or(no.cost));
            price.size = Some(size_beside(yes, no).or(size_beside(no, yes)));
            price.entries = Entries::or(yes.entries, no.entries);
            vec![price]
        }
        ("_==_" | "_!=_", [left, right]) => vec![equality(name, left, right)],
        ("_<_" | "_<=_" | "_>_" | "_>=_", [left, right]) => comparisons(left, right),
        ("_+_", [left, right]) => sums(left, right),
        ("@in" | "_in_", [_, container]) => match container.kind {
            Type::List(_) => vec![Price::of(container.size_or_any())],
            Type::Dyn => vec![Price::of(container.size_or_any()), Price::ONE],
            _ => vec![Price::ONE],
        },
        ("_[_]", [container, _]) => {
            let mut price = Price::ONE;
            price.size = container.entries.map(|it| it.values);
            vec![price]
        }
        _ => vec![price::price_of(name, target, args)],
    }
}

/// Returns the size of one branch of a conditional. An empty optional has the type of the other branch, as in cel-go's
/// checker.
fn size_beside(part: &PartCost, other: &PartCost) -> CostRange {
    match &part.kind {
        Type::Optional(inner) if matches!(**inner, Type::Unknown) && other.kind.is_scalar() => CostRange::ONE,
        _ => part.size_or_any(),
    }
}

/// Returns the cost of a comparison, which depends on the size of the shorter value.
fn traversal_of_both(left: &PartCost, right: &PartCost) -> Price {
    let max = left.size_or_any().max.min(right.size_or_any().max);
    Price::of(CostRange { min: max.min(1), max }.scaled(TRAVERSAL))
}

fn equality(name: &str, left: &PartCost, right: &PartCost) -> Price {
    match (&left.kind, &right.kind) {
        (Type::Named(one), Type::Named(other)) if one == other && *one != "type" && name == "_==_" => Price::ONE,
        _ => traversal_of_both(left, right),
    }
}

fn comparisons(left: &PartCost, right: &PartCost) -> Vec<Price> {
    let is_text = |part: &PartCost| matches!(part.kind, Type::String | Type::Bytes);
    let is_dyn = |part: &PartCost| matches!(part.kind, Type::Dyn);
    match (is_text(left) || is_text(right), is_dyn(left) && is_dyn(right)) {
        (true, _) => vec![traversal_of_both(left, right)],
        (false, true) => vec![traversal_of_both(left, right), Price::ONE],
        (false, false) => vec![Price::ONE],
    }
}

fn sums(left: &PartCost, right: &PartCost) -> Vec<Price> {
    let size = left.size_or_any() + right.size_or_any();
    let joined = |cost: CostRange| {
        let mut price = Price::of(cost);
        price.size = Some(size);
        price.entries = Entries::or(left.entries, right.entries);
        price
    };
    let text = || joined(size.scaled(TRAVERSAL));
    let list = || joined(CostRange::ONE);
    let kinds = [&left.kind, &right.kind];
    if kinds.iter().any(|it| matches!(it, Type::String | Type::Bytes)) {
        vec![text()]
    } else if kinds.iter().any(|it| matches!(it, Type::List(_))) {
        vec![list()]
    } else if kinds.iter().all(|it| matches!(it, Type::Dyn)) {
        vec![text(), list(), Price::ONE]
    } else {
        vec![Price::ONE]
    }
}

/// Operators and functions that return a bool.
#[rustfmt::skip]
const PREDICATES: &[&str] = &[
    "_&&_", "_||_", "!_", "_==_", "_!=_", "_<_", "_<=_", "_>_", "_>=_", "@in", "_in_", "@not_strictly_false",
    "startsWith", "endsWith", "contains", "matches", "bool", "hasValue", "isSorted", "isURL", "isIP", "isCIDR",
    "isQuantity", "isSemver", "isInteger", "isGreaterThan", "isLessThan", "containsIP", "containsCIDR",
    "ip.isCanonical", "isUnspecified", "isLoopback", "isLinkLocalMulticast", "isLinkLocalUnicast", "isGlobalUnicast",
    "sets.contains", "sets.intersects", "sets.equivalent", "allowed", "errored",
];

/// Functions that return a string.
#[rustfmt::skip]
const TEXTS: &[&str] = &[
    "string", "lowerAscii", "upperAscii", "substring", "trim", "replace", "join", "find", "charAt", "format",
    "strings.quote", "getScheme", "getHost", "getHostname", "getPort", "getEscapedPath",
    "jsonpatch.escapeKey",
];

/// Returns the type of an operator's or function's result.
fn result_type(name: &str, target: Option<&PartCost>, args: &[PartCost]) -> Type {
    let first = target.or(args.first()).map_or(Type::Unknown, |it| it.kind.clone());
    match name {
        "_?_:_" => match args {
            [
                _,
                PartCost {
                    kind: Type::Null | Type::Unknown,
                    ..
                },
                no,
            ] => no.kind.clone(),
            [_, yes, _] => yes.kind.clone(),
            _ => Type::Unknown,
        },
        "_+_" | "_-_" | "_*_" | "_/_" | "_%_" => arithmetic(args),
        "-_" | "reverse" | "distinct" | "sort" | "@sortByAssociatedKeys" | "slice" | "abs" => first,
        "flatten" => first.element(),
        "first" | "last" => Type::optional(first.element()),
        "_[_]" => match &first {
            Type::Optional(inner) => Type::optional(inner.element()),
            other => other.element(),
        },
        OPTIONAL_SELECT | OPTIONAL_INDEX => {
            let inner = match &first {
                Type::Optional(inner) => (**inner).clone(),
                other => other.clone(),
            };
            let field = args.get(1).and_then(|it| it.text.as_deref()).unwrap_or_default();
            Type::optional(match inner {
                Type::Object(_) => inner.field(field),
                other => other.element(),
            })
        }
        "optional.of" | "optional.ofNonZeroValue" => Type::optional(first),
        "optional.none" => Type::optional(Type::Unknown),
        "or" => first,
        "value" => first.inner(),
        "orValue" => match first.inner() {
            Type::Unknown => args.first().map_or(Type::Unknown, |it| it.kind.clone()),
            inner => inner,
        },
        "sum" | "min" | "max" => first.element(),
        MAP_INSERT => match args {
            [_, key, value] => Type::Map(Rc::new(key.kind.clone()), Rc::new(value.kind.clone())),
            [_, entries] => entries.kind.clone(),
            _ => Type::Unknown,
        },
        _ => fixed_type(name),
    }
}

/// Returns the result type of a function, if it does not depend on the arguments.
fn fixed_type(name: &str) -> Type {
    match name {
        _ if PREDICATES.contains(&name) => Type::Bool,
        _ if TEXTS.contains(&name) => Type::String,
        "size" | "int" | "indexOf" | "lastIndexOf" | "compareTo" | "asInteger" | "sign" | "major" | "minor"
        | "patch" | "prefixLength" | "family" => Type::Int,
        "uint" => Type::Uint,
        "double" | "asApproximateFloat" => Type::Double,
        "bytes" => Type::Bytes,
        "split" | "findAll" => Type::list(Type::String),
        "lists.range" => Type::list(Type::Int),
        "duration" => Type::Duration,
        "timestamp" => Type::Timestamp,
        "getQuery" => Type::Map(Rc::new(Type::String), Rc::new(Type::list(Type::String))),
        "url" => Type::Named("url"),
        "ip" => Type::Named("ip"),
        "cidr" | "masked" => Type::Named("cidr"),
        "quantity" | "add" | "sub" => Type::Named("quantity"),
        "semver" => Type::Named("semver"),
        "type" => Type::Named("type"),
        "validate" => Type::optional(Type::list(Type::String)),
        _ if name.starts_with("get") => Type::Int,
        _ => Type::Unknown,
    }
}

fn arithmetic(args: &[PartCost]) -> Type {
    let [left, right] = args else { return Type::Unknown };
    match (&left.kind, &right.kind) {
        (Type::List(items), Type::List(_)) if matches!(**items, Type::Unknown) => right.kind.clone(),
        (Type::Timestamp, Type::Timestamp) => Type::Duration,
        (_, Type::Timestamp) => Type::Timestamp,
        (Type::Dyn | Type::Unknown, other) => other.clone(),
        (other, _) => other.clone(),
    }
}
