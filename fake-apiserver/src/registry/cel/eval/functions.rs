//! Functions: those that are called most, and what all of them cost. The others are the library's.

use std::cell::RefCell;
use std::collections::HashMap;
use std::net::IpAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Arc;

use jiff::Timestamp;
use kube_cel::cel::Value as CelValue;
use kube_cel::cel::common::ast::{CallExpr, Expr};
use kube_cel::cel::objects::OptionalValue;
use kube_cel::cel::parser::Expression;

use super::evaluation::{Evaluated, Evaluation, overload};
use super::meter::{EvalFailure, Meter, size};
use super::operators;
use crate::api::field::quote;
use crate::registry::cel::library::TIMESTAMP;
use crate::registry::cel::{costs, parse};
use crate::registry::types::net;
use crate::registry::types::pattern::Pattern;

/// Work of compiling a regular expression, beside its cost.
const COMPILE_WORK: usize = 2_000;

/// The longest text a function may make.
const TEXT_MAX: usize = 64 * 1024 * 1024;

/// The most parts of the arguments of a function of the library, whose errors show them. No request of 3 MiB has as
/// many.
const ARGS_MAX: usize = 4_000_000;

/// Regular expressions kept for the next evaluation; then they are forgotten.
const PATTERNS_MAX: usize = 64;

thread_local! {
    static PATTERNS: RefCell<HashMap<String, Rc<Pattern>>> = RefCell::default();
}

/// An optional value.
pub(crate) fn optional(value: Option<CelValue>) -> CelValue {
    CelValue::Opaque(Arc::new(value.map_or_else(OptionalValue::none, OptionalValue::of)))
}

impl<'a> Evaluation<'a, '_> {
    pub(crate) fn function(&mut self, call: &'a CallExpr) -> Evaluated {
        let name = call.func_name.as_str();
        let prefix = parse::namespace(call, |name| self.scope.iter().any(|(it, _)| *it == name));
        let mut args = Vec::with_capacity(call.args.len() + 1);
        if let (Some(target), None) = (&call.target, prefix) {
            args.push(self.value(target)?);
        }
        for arg in &call.args {
            args.push(self.value(arg)?);
        }
        let is_method = call.target.is_some() && prefix.is_none();
        if prefix.is_none()
            && let Some(result) = native(name, is_method, &args, self.meter)
        {
            return result;
        }
        charge(prefix, name, &args, self.meter)?;
        if let ("sum", true, [CelValue::List(items)]) = (name, is_method, args.as_slice()) {
            return sum(items);
        }
        let is_text = prefix.is_none() && !is_method && matches!(args.as_slice(), [CelValue::String(_)]);
        let result = self.library(prefix, name, is_method, args);
        match (result, read_as(name)) {
            (Err(EvalFailure::Error(_)), Some(kind)) if is_text => {
                let text = format!("type conversion error from 'string' to '{kind}'");
                Err(EvalFailure::Error(text))
            }
            (result, _) => result,
        }
    }

    /// Calls a function of the library with values.
    fn library(&mut self, prefix: Option<&str>, name: &str, is_method: bool, args: Vec<CelValue>) -> Evaluated {
        let mut weight: usize = 0;
        for arg in &args {
            weight += self.meter.weigh(arg)?;
        }
        if weight > ARGS_MAX {
            return Err(self.meter.exhaust());
        }
        let ident = |name: String| Expression {
            id: 0,
            expr: Expr::Ident(name),
        };
        let mut context = self.functions.new_inner_scope();
        let mut names = Vec::with_capacity(args.len());
        for (index, arg) in args.into_iter().enumerate() {
            let name = format!("@{index}");
            context.add_variable_from_value(name.as_str(), arg);
            names.push(ident(name));
        }
        let target = match prefix {
            Some(prefix) => Some(ident(prefix.to_owned())),
            None if is_method => Some(names.remove(0)),
            None => None,
        };
        let call = Expression {
            id: 0,
            expr: Expr::Call(CallExpr {
                func_name: name.to_owned(),
                target: target.map(Box::new),
                args: names,
            }),
        };
        let result = catch_unwind(AssertUnwindSafe(|| CelValue::resolve(&call, &context)));
        let value = result.map_err(|_| EvalFailure::Error("the expression cannot be evaluated".into()))??;
        self.meter.weigh(&value)?;
        Ok(value)
    }
}

/// Functions that need no library; `None` if the function is another one.
fn native(name: &str, is_method: bool, args: &[CelValue], meter: &mut Meter) -> Option<Evaluated> {
    let result = match (name, args) {
        ("dyn", [value]) if !is_method => meter.charge(1).map(|()| value.clone()),
        ("size", [value]) => meter.charge(1).and_then(|()| match value {
            CelValue::String(_) | CelValue::Bytes(_) | CelValue::List(_) | CelValue::Map(_) => {
                Ok(CelValue::Int(i64::try_from(size(value)).unwrap_or(i64::MAX)))
            }
            _ => Err(overload()),
        }),
        ("optionalSelect__", [container, key]) => meter.charge(1).map(|()| operators::optional_entry(container, key)),
        ("hasValue" | "value", [value]) if is_method => meter.charge(1).and_then(|()| {
            let optional = <&OptionalValue>::try_from(value).map_err(|_| overload())?;
            match (name, optional.value()) {
                ("hasValue", value) => Ok(CelValue::Bool(value.is_some())),
                (_, Some(value)) => Ok(value.clone()),
                (_, None) => Err(EvalFailure::Error("optional.none() dereference".into())),
            }
        }),
        ("orValue" | "or", [value, other]) if is_method => meter.charge(1).and_then(|()| {
            let optional = <&OptionalValue>::try_from(value).map_err(|_| overload())?;
            Ok(match (name, optional.value()) {
                ("orValue", Some(inner)) => inner.clone(),
                (_, Some(_)) => value.clone(),
                (_, None) => other.clone(),
            })
        }),
        ("startsWith" | "endsWith" | "contains" | "matches", [text, part]) => of_texts(name, text, part, meter),
        ("isCIDR" | "cidr", [CelValue::String(text)]) if !is_method => return range(name, text, meter),
        ("int" | "string" | "bytes" | "bool" | "timestamp" | "duration", [value]) if !is_method => {
            let converted = converted(name, value)?;
            meter.charge(1).map(|()| converted)
        }
        ("join", [items]) if is_method => join(items, "", meter),
        ("join", [items, CelValue::String(separator)]) if is_method => join(items, separator, meter),
        _ => return None,
    };
    Some(result)
}

/// Returns the type that a function reads from a text, as cel-go names it.
fn read_as(name: &str) -> Option<&'static str> {
    Some(match name {
        "int" => "int",
        "uint" => "uint",
        "double" => "double",
        "bool" => "bool",
        "duration" => "google.protobuf.Duration",
        "timestamp" => "google.protobuf.Timestamp",
        _ => return None,
    })
}

/// `isCIDR`, and `cidr` of a text that is no range. The library takes leading zeros, which Go's `netip` does not.
fn range(name: &str, text: &Arc<String>, meter: &mut Meter) -> Option<Evaluated> {
    let is_mapped = |address: IpAddr| matches!(address, IpAddr::V6(it) if it.to_ipv4_mapped().is_some());
    let is_range = net::parse_cidr(text).is_some_and(|(address, _)| !is_mapped(address));
    if name == "cidr" && is_range {
        return None;
    }
    if let Err(failure) = meter.charge_traversal(text.chars().count(), 1) {
        return Some(Err(failure));
    }
    Some(match name {
        "cidr" => Err(EvalFailure::Error(format!(
            "network address parse error during conversion from string: netip.ParsePrefix({})",
            quote(text)
        ))),
        _ => Ok(CelValue::Bool(is_range)),
    })
}

/// Conversions that the library lacks: to the type that a value already has, and those of times.
fn converted(name: &str, value: &CelValue) -> Option<CelValue> {
    let text = |text: String| CelValue::String(Arc::new(text));
    Some(match (name, value) {
        ("timestamp", CelValue::Timestamp(_)) | ("duration", CelValue::Duration(_)) | ("bytes", CelValue::Bytes(_)) => {
            value.clone()
        }
        ("timestamp", CelValue::Int(seconds)) => TIMESTAMP.of(&Timestamp::from_second(*seconds).ok()?.to_string())?,
        ("int", CelValue::Timestamp(at)) => CelValue::Int(at.timestamp()),
        ("string", CelValue::Timestamp(at)) => text(at.to_rfc3339().replace("+00:00", "Z")),
        ("bool", CelValue::Bool(_)) => value.clone(),
        ("bool", CelValue::String(text)) => match text.as_str() {
            "1" | "t" | "T" | "true" | "TRUE" | "True" => CelValue::Bool(true),
            "0" | "f" | "F" | "false" | "FALSE" | "False" => CelValue::Bool(false),
            _ => return None,
        },
        ("string", CelValue::Bool(flag)) => text(flag.to_string()),
        _ => return None,
    })
}

fn of_texts(name: &str, text: &CelValue, part: &CelValue, meter: &mut Meter) -> Evaluated {
    let (CelValue::String(text), CelValue::String(part)) = (text, part) else {
        return Err(overload());
    };
    let tenth = |size: usize| size.div_ceil(10) as u64;
    let (length, part_length) = (text.chars().count(), part.chars().count());
    Ok(CelValue::Bool(match name {
        "startsWith" => {
            meter.charge(tenth(part_length))?;
            text.starts_with(part.as_str())
        }
        "endsWith" => {
            meter.charge(tenth(part_length))?;
            text.ends_with(part.as_str())
        }
        "contains" => {
            meter.charge(tenth(length).saturating_mul(tenth(part_length)))?;
            text.contains(part.as_str())
        }
        _ => {
            meter.charge(tenth(length + 1).saturating_mul(part_length.div_ceil(4) as u64))?;
            let pattern = pattern(part, meter)?;
            pattern
                .is_match(text)
                .map_err(|error| EvalFailure::Error(error.to_owned()))?
        }
    }))
}

/// The sum of the items of a list, 0 if it has none.
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
        .try_fold(first.clone(), |sum, item| Ok((sum + item.clone())?))
}

/// The items of a list as one text, whose size is known before it is made.
fn join(items: &CelValue, separator: &str, meter: &mut Meter) -> Evaluated {
    let CelValue::List(items) = items else {
        return Err(overload());
    };
    meter.work(items.len())?;
    let mut texts = Vec::with_capacity(items.len());
    for item in items.iter() {
        let CelValue::String(text) = item else {
            return Err(overload());
        };
        texts.push(text.as_str());
    }
    let separators = separator.len().saturating_mul(texts.len().saturating_sub(1));
    let bytes = texts
        .iter()
        .fold(separators, |sum, text| sum.saturating_add(text.len()));
    if bytes > TEXT_MAX {
        return Err(meter.exhaust());
    }
    let made = texts.join(separator);
    meter.charge_traversal(made.chars().count(), 2)?;
    Ok(CelValue::String(Arc::new(made)))
}

/// A regular expression, which is compiled once for many evaluations.
fn pattern(text: &str, meter: &mut Meter) -> Result<Rc<Pattern>, EvalFailure> {
    let known = PATTERNS.with_borrow(|known| known.get(text).cloned());
    if let Some(pattern) = known {
        return Ok(pattern);
    }
    meter.work(COMPILE_WORK + text.len())?;
    let pattern = Rc::new(Pattern::new(text));
    PATTERNS.with_borrow_mut(|known| {
        if known.len() >= PATTERNS_MAX {
            known.clear();
        }
        known.insert(text.to_owned(), Rc::clone(&pattern));
    });
    Ok(pattern)
}

/// Charges what a function of the library costs.
fn charge(prefix: Option<&str>, name: &str, args: &[CelValue], meter: &mut Meter) -> Result<(), EvalFailure> {
    let size = |index: usize| args.get(index).map_or(0, size);
    match (prefix, name) {
        (Some("sets"), "contains" | "intersects" | "equivalent") => {
            let factor = if name == "equivalent" { 2 } else { 1 };
            meter.charge(size(0).saturating_mul(size(1)).saturating_mul(factor).saturating_add(1) as u64)?;
            pairs(args, size(0).max(size(1)), meter)
        }
        (Some("ip"), "isCanonical") => meter.charge_traversal(size(0), 2),
        (Some("lists"), "range") => match args {
            [CelValue::Int(count)] => meter.charge(
                u64::try_from(*count)
                    .unwrap_or_default()
                    .saturating_add(costs::LIST + 1),
            ),
            _ => meter.charge(1),
        },
        (None, "check") => meter.charge(costs::CHECK),
        (None, "isSorted" | "sum" | "max" | "min" | "indexOf" | "lastIndexOf") => match args.first() {
            Some(CelValue::String(_) | CelValue::Bytes(_)) => meter.charge_traversal(size(0), 1),
            Some(value) => meter.weigh(value).and_then(|weight| meter.charge(weight as u64)),
            None => meter.charge(1),
        },
        (
            None,
            "url" | "lowerAscii" | "upperAscii" | "substring" | "trim" | "cidr" | "isIP" | "isCIDR" | "ip" | "quantity"
            | "isQuantity" | "semver" | "isSemver" | "bytes" | "format",
        )
        | (Some("strings" | "jsonpatch"), _) => meter.charge_traversal(size(0), 1),
        (None, "split") => meter.charge_traversal(size(0), 2),
        (None, "replace") => {
            meter.charge_traversal(size(0), 2)?;
            let made = (size(0) / size(1).max(1)).saturating_add(1).saturating_mul(size(2));
            match made > TEXT_MAX {
                true => Err(meter.exhaust()),
                false => Ok(()),
            }
        }
        (None, "find" | "findAll") => {
            meter.work(COMPILE_WORK + size(1))?;
            let regex = size(1).div_ceil(4) as u64;
            meter.charge(((size(0) + 1).div_ceil(10) as u64).saturating_mul(regex))
        }
        (None, "distinct" | "sort") => {
            let compared = size(0).saturating_mul(size(0)).saturating_mul(2) as u64;
            meter.charge(compared.saturating_add(costs::LIST + 1))?;
            pairs(args, size(0), meter)
        }
        _ => meter.charge(1),
    }
}

/// Counts the comparisons of each item with so many others.
fn pairs(args: &[CelValue], others: usize, meter: &mut Meter) -> Result<(), EvalFailure> {
    for arg in args {
        let weight = meter.weigh(arg)?;
        meter.work(weight.saturating_mul(others))?;
    }
    Ok(())
}
