//! Calls the functions of CEL and of Kubernetes' libraries.

use super::attributes::base_cost;
use super::evaluation::Evaluation;
use super::meter::Meter;
use super::patterns::pattern;
use super::sizes::size;
use super::values::{EvalFailure, Evaluated, NO_OVERLOAD, optional, overload, whole};
use super::{
    conversions, format, formats, lists, mismatch, network, operators, prices, quantities, strings, times, urls,
    versions,
};
use crate::registry::cel::ast::{CallExpr, Expr, Expression};
use crate::registry::cel::library::type_of;
use crate::registry::cel::objects::{OptionalValue, Value as CelValue};
use crate::registry::cel::syntax::{OPTIONAL_INDEX, OPTIONAL_SELECT, OPTIONAL_TARGET};

impl<'a> Evaluation<'a, '_> {
    pub(crate) fn function(&mut self, call: &'a CallExpr) -> Evaluated {
        let name = call.func_name.trim_start_matches('.');
        if let ("or" | "orValue", Some(target), [other]) = (name, &call.target, call.args.as_slice()) {
            return self.alternative(name, target, other);
        }
        if let (OPTIONAL_SELECT | OPTIONAL_INDEX, [container, key]) = (name, call.args.as_slice()) {
            return self.optional_entry(container, key);
        }
        let args = match self.arguments(call)? {
            Ok(args) => args,
            Err(error) => return Err(EvalFailure::Error(error)),
        };
        let is_method = call.target.is_some();
        if let Some(Expr::Ident(target)) = call.target.as_ref().map(|it| &it.expr)
            && target == OPTIONAL_TARGET
            && name == "value"
        {
            // cel-go evaluates a separate copy of the target to read its value.
            let target = self.scope.iter().rfind(|it| it.name == OPTIONAL_TARGET);
            let cost = target.map_or(0, |it| it.cost);
            self.meter.charge(cost)?;
        }
        // A call that would exceed the cost limit is not executed.
        self.meter.charge_ahead(prices::price(name, is_method, &args, None))?;
        let result = common(name, is_method, &args, self.meter).or_else(|| (self.functions)(name, &args));
        let result = result.unwrap_or_else(|| Err(mismatch::of_function(name, &args)));
        let result = match result {
            Err(EvalFailure::TooDear) => return result,
            Err(EvalFailure::Error(error)) if error == NO_OVERLOAD => {
                Err(mismatch::within_function(name, is_method, &args))
            }
            result => result,
        };
        self.meter
            .charge(prices::price(name, is_method, &args, result.as_ref().ok()))?;
        result
    }

    /// Evaluates `a.?b` and `a[?b]`. Reading an absent value costs nothing.
    fn optional_entry(&mut self, container: &'a Expression, key: &'a Expression) -> Evaluated {
        self.meter.charge(base_cost(container))?;
        let container = self.value(container)?;
        let key = self.attribute(key)?;
        let entry = operators::optional_entry(&container, &key);
        if <&OptionalValue>::try_from(&entry).is_ok_and(|it| it.value().is_some()) {
            self.meter.charge(1)?;
        }
        Ok(entry)
    }

    /// Evaluates the arguments of a call. Returns them with the target of a method first, or returns the error of an
    /// argument. With up to two arguments, all are evaluated, and the call is charged even if one fails. With more
    /// arguments, the first error ends the evaluation; the call is only charged if the last argument failed.
    fn arguments(&mut self, call: &'a CallExpr) -> Result<Result<Vec<CelValue>, String>, EvalFailure> {
        let count = call.args.len() + usize::from(call.target.is_some());
        let mut args = Vec::with_capacity(count);
        let mut wrong = None;
        for part in call.target.as_deref().into_iter().chain(&call.args) {
            match self.value(part) {
                Ok(value) => args.push(value),
                Err(EvalFailure::TooDear) => return Err(EvalFailure::TooDear),
                Err(EvalFailure::Error(error)) if count > 2 && args.len() + 1 < count => return Ok(Err(error)),
                Err(EvalFailure::Error(error)) => {
                    args.push(CelValue::Null);
                    wrong = wrong.or(Some(error));
                }
            }
        }
        match wrong {
            None => Ok(Ok(args)),
            Some(error) => {
                let name = call.func_name.trim_start_matches('.');
                let price = prices::price(name, call.target.is_some(), &args, None);
                self.meter.charge(price)?;
                Ok(Err(error))
            }
        }
    }

    /// Evaluates `or` and `orValue`. The alternative is only evaluated if it is used. The call itself costs nothing.
    fn alternative(&mut self, name: &str, target: &'a Expression, other: &'a Expression) -> Evaluated {
        let value = self.value(target)?;
        let Ok(optional) = <&OptionalValue>::try_from(&value) else {
            return Ok(value);
        };
        match optional.value() {
            Some(inner) if name == "orValue" => whole(inner),
            Some(_) => Ok(value),
            None => self.value(other),
        }
    }
}

/// Calls a function; returns `None` if no overload accepts these arguments.
fn common(name: &str, is_method: bool, args: &[CelValue], meter: &mut Meter) -> Option<Evaluated> {
    let found = match (name, args) {
        ("dyn", [value]) if !is_method => Some(Ok(value.clone())),
        ("type", [value]) if !is_method => Some(Ok(type_of(value))),
        ("size", [value @ (CelValue::String(_) | CelValue::Bytes(_) | CelValue::List(_) | CelValue::Map(_))]) => {
            Some(Ok(CelValue::Int(i64::try_from(size(value)).unwrap_or(i64::MAX))))
        }
        ("hasValue" | "value", [value]) if is_method => Some(of_optional(name, value)),
        ("optional.none", []) => Some(Ok(optional(None))),
        ("optional.of", [value]) => Some(Ok(optional(Some(value.clone())))),
        ("optional.ofNonZeroValue", [value]) => {
            let value = (!is_zero(value)).then(|| value.clone());
            Some(Ok(optional(value)))
        }
        ("startsWith" | "endsWith" | "contains" | "matches", [CelValue::String(text), CelValue::String(part)]) => {
            Some(of_texts(name, text, part, meter))
        }
        ("format", [CelValue::String(text), CelValue::List(args)]) => Some(format::call(text, args, meter)),
        ("strings.quote", [CelValue::String(text)]) => Some(Ok(strings::quote(text))),
        ("jsonpatch.escapeKey", [CelValue::String(text)]) => Some(Ok(strings::escape_key(text))),
        _ => None,
    };
    found
        .or_else(|| formats::call(name, args))
        .or_else(|| quantities::call(name, is_method, args))
        .or_else(|| versions::call(name, is_method, args))
        .or_else(|| urls::call(name, is_method, args))
        .or_else(|| network::call(name, is_method, args))
        .or_else(|| match (is_method, args) {
            (false, [value]) => conversions::call(name, value),
            (true, [CelValue::String(text), rest @ ..]) => strings::call(name, text, rest, meter),
            _ => None,
        })
        .or_else(|| if is_method { times::call(name, args) } else { None })
        .or_else(|| lists::call(name, args, meter))
}

fn of_optional(name: &str, value: &CelValue) -> Evaluated {
    let optional = <&OptionalValue>::try_from(value);
    let optional = optional.map_err(|_| overload())?;
    match (name, optional.value()) {
        ("hasValue", value) => Ok(CelValue::Bool(value.is_some())),
        (_, Some(value)) => whole(value),
        (_, None) => Err(EvalFailure::Error("optional.none() dereference".into())),
    }
}

/// Returns `true` for the default (zero) value of a type.
fn is_zero(value: &CelValue) -> bool {
    match value {
        CelValue::Bool(value) => !value,
        CelValue::Int(value) => *value == 0,
        CelValue::UInt(value) => *value == 0,
        CelValue::Float(value) => *value == 0.0,
        CelValue::String(text) => text.is_empty(),
        CelValue::Bytes(bytes) => bytes.is_empty(),
        CelValue::List(items) => items.is_empty(),
        CelValue::Map(map) => map.map.is_empty(),
        CelValue::Duration(length) => length.nanoseconds() == 0,
        CelValue::Null => true,
        _ => false,
    }
}

fn of_texts(name: &str, text: &str, part: &str, meter: &mut Meter) -> Evaluated {
    Ok(CelValue::Bool(match name {
        "startsWith" => text.starts_with(part),
        "endsWith" => text.ends_with(part),
        "contains" => text.contains(part),
        _ => {
            meter.work(text.len() / 16)?;
            let pattern = pattern(part, meter)?;
            pattern
                .is_match(text)
                .map_err(|error| EvalFailure::Error(error.to_owned()))?
        }
    }))
}
