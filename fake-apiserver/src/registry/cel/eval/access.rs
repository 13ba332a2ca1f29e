//! Evaluates field selections, `has()`, index operations and the branches of conditionals, and charges the costs of
//! reading fields and items.

use super::attributes::{base_cost, is_attribute};
use super::evaluation::Evaluation;
use super::values::{EvalFailure, Evaluated, broken, optional, whole};
use super::{conversions, operators};
use crate::registry::cel::ast::{Expression, SelectExpr};
use crate::registry::cel::library::dotted_type;
use crate::registry::cel::objects::{OptionalValue, Value as CelValue};

impl<'a> Evaluation<'a, '_> {
    pub(super) fn select(&mut self, select: &'a SelectExpr) -> Evaluated {
        if let Some(kind) = self.message_type(select) {
            return Ok(kind);
        }
        if select.test {
            return self.presence(select);
        }
        self.meter.charge(base_cost(&select.operand))?;
        let operand = self.value(&select.operand)?;
        if let Ok(it) = <&OptionalValue>::try_from(&operand) {
            let found = it.value().and_then(|it| field(it, &select.field));
            self.meter.charge(u64::from(found.is_some()))?;
            return Ok(optional(found));
        }
        self.meter.charge(1)?;
        match field(&operand, &select.field) {
            Some(found) => whole(&found),
            None => Err(EvalFailure::Error(format!("no such key: {}", select.field))),
        }
    }

    /// Evaluates `has(a.b)`. Charges one unit, unless `a` is an attribute, for which the evaluation of `a` has charged
    /// it. The unit is refunded if an attribute fails, or if `a` is an optional value without the field.
    pub(super) fn presence(&mut self, select: &'a SelectExpr) -> Evaluated {
        let is_attribute = is_attribute(&select.operand);
        let operand = match self.value(&select.operand) {
            Err(EvalFailure::Error(error)) => {
                self.meter.refund(u64::from(is_attribute));
                return Err(EvalFailure::Error(error));
            }
            operand => operand?,
        };
        self.meter.charge(u64::from(!is_attribute))?;
        let inner = match <&OptionalValue>::try_from(&operand) {
            Ok(optional) => optional.value(),
            Err(_) => Some(&operand),
        };
        let found = inner.and_then(|it| field(it, &select.field));
        let is_there = found.is_some();
        found.map(|it| whole(&it)).transpose()?;
        let is_optional = <&OptionalValue>::try_from(&operand).is_ok();
        self.meter.refund(u64::from(is_optional && !is_there));
        Ok(CelValue::Bool(is_there))
    }

    /// Returns the type with a dotted name such as `google.protobuf.Duration`, unless a variable hides the name.
    fn message_type(&self, select: &SelectExpr) -> Option<CelValue> {
        let kind = dotted_type(&select.operand, &select.field)?;
        let is_hidden = |name: &str| self.scope.iter().any(|it| it.name == name);
        let first = ["google", "net", "kubernetes"].into_iter().find(|it| is_hidden(it));
        first.is_none().then_some(kind)
    }

    /// Evaluates a branch of a conditional. If the branch computes an optional value, cel-go converts its content to a
    /// native value and back. This fails for the types of Kubernetes' libraries, and unwraps nested optional values.
    pub(super) fn branch(&mut self, expression: &'a Expression) -> Evaluated {
        let value = self.attribute(expression)?;
        if is_attribute(expression) {
            return Ok(value);
        }
        let inner = match <&OptionalValue>::try_from(&value) {
            Ok(it) => it.value().cloned(),
            Err(_) => return Ok(value),
        };
        match inner {
            Some(CelValue::Opaque(opaque)) => {
                let opaque = CelValue::Opaque(opaque);
                match <&OptionalValue>::try_from(&opaque) {
                    Ok(inner) => Ok(optional(Some(inner.value().cloned().unwrap_or(CelValue::Null)))),
                    Err(_) => Ok(optional(Some(broken(conversions::unsupported(&opaque))))),
                }
            }
            _ => Ok(value),
        }
    }

    /// Evaluates `container[key]`.
    pub(super) fn index(&mut self, container: &'a Expression, key: &'a Expression) -> Evaluated {
        self.meter.charge(base_cost(container))?;
        let container = self.value(container)?;
        let key = match self.attribute(key) {
            Err(EvalFailure::Error(error)) => {
                self.meter.charge(1)?;
                return Err(EvalFailure::Error(error));
            }
            key => key?,
        };
        if <&OptionalValue>::try_from(&container).is_ok() {
            let entry = operators::optional_entry(&container, &key);
            let is_there = <&OptionalValue>::try_from(&entry).is_ok_and(|it| it.value().is_some());
            self.meter.charge(u64::from(is_there))?;
            return Ok(entry);
        }
        self.meter.charge(1)?;
        whole(&operators::entry(&container, &key)?)
    }
}

/// Returns a field of a value; `None` if the value does not have it.
fn field(value: &CelValue, name: &str) -> Option<CelValue> {
    match value {
        CelValue::Map(map) => operators::field(map, name),
        _ => None,
    }
}
