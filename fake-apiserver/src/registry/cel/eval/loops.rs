//! Evaluates loops, to which macros expand, and the variables that macros bind.

use std::sync::Arc;

use super::evaluation::{Evaluation, Slot, SlotValue};
use super::operators;
use super::values::{EvalFailure, Evaluated, overload};
use crate::registry::cel::ast::{ComprehensionExpr, Expr, Expression, ListExpr};
use crate::registry::cel::costs;
use crate::registry::cel::library::type_name;
use crate::registry::cel::objects::{Key, Value as CelValue};
use crate::registry::cel::syntax::{MAP_INSERT, OPTIONAL_TARGET, UNUSED};

impl<'a> Evaluation<'a, '_> {
    pub(super) fn comprehension(&mut self, it: &'a ComprehensionExpr) -> Evaluated {
        if it.iter_var == UNUSED {
            return self.binding(it);
        }
        let range = self.value(&it.iter_range)?;
        let items = match &range {
            CelValue::List(items) => Arc::clone(items),
            CelValue::Map(map) => {
                self.meter.work(map.map.len())?;
                let mut keys: Vec<&Key> = map.map.keys().collect();
                keys.sort();
                Arc::new(keys.into_iter().map(CelValue::from).collect())
            }
            other => {
                let kind = go_type(other);
                return Err(EvalFailure::Error(match it.iter_var2 {
                    Some(_) => format!("unsupported comprehension range type: {kind}"),
                    None => format!("got '{kind}', expected iterable type"),
                }));
            }
        };
        let start = self.value(&it.accu_init)?;
        let depth = self.scope.len();
        self.scope.push(Slot::new(&it.accu_var, Ok(start)));
        self.scope.push(Slot::new(&it.iter_var, Ok(CelValue::Null)));
        if let Some(second) = &it.iter_var2 {
            self.scope.push(Slot::new(second, Ok(CelValue::Null)));
        }
        let result = self.iterate(it, &range, &items, depth);
        self.scope.truncate(depth + 1);
        let result = result.and_then(|()| self.value(&it.result));
        self.scope.truncate(depth);
        result
    }

    /// Evaluates a macro that binds a variable. The variable is evaluated on first use. The target of a macro on an
    /// optional value is evaluated immediately, because the macro tests it first.
    pub(super) fn binding(&mut self, it: &'a ComprehensionExpr) -> Evaluated {
        let depth = self.scope.len();
        let mut slot = Slot {
            name: &it.accu_var,
            value: SlotValue::Later(&it.accu_init),
            cost: 0,
        };
        if it.accu_var == OPTIONAL_TARGET {
            let spent = self.meter.spent();
            let value = self.value(&it.accu_init)?;
            slot.cost = self.meter.spent() - spent;
            slot.value = SlotValue::Known(Ok(value));
        }
        self.scope.push(slot);
        let result = self.value(&it.result);
        self.scope.truncate(depth);
        result
    }

    /// Runs all iterations. The accumulator is at index `at` of the scope, followed by the variables of the item.
    pub(super) fn iterate(
        &mut self,
        it: &'a ComprehensionExpr,
        range: &CelValue,
        items: &[CelValue],
        at: usize,
    ) -> Result<(), EvalFailure> {
        let collects = matches!(it.accu_init.expr, Expr::List(_) | Expr::Map(_));
        for (index, item) in items.iter().enumerate() {
            self.meter.work(1)?;
            let (first, second) = match (&it.iter_var2, range) {
                (None, _) => (item.clone(), None),
                (Some(_), CelValue::Map(_)) => (item.clone(), Some(operators::entry(range, item)?)),
                (Some(_), _) => {
                    let index = i64::try_from(index).unwrap_or(i64::MAX);
                    (CelValue::Int(index), Some(item.clone()))
                }
            };
            self.scope[at + 1].value = SlotValue::Known(Ok(first));
            if let Some(second) = second {
                self.scope[at + 2].value = SlotValue::Known(Ok(second));
            }
            if let CelValue::Bool(false) = self.value(&it.loop_cond)? {
                break;
            }
            let collected = match collects {
                true => self.collect(&it.loop_step, &it.accu_var, at),
                false => None,
            };
            let next = match collected {
                Some(Ok(())) => continue,
                Some(Err(error)) => Err(error),
                None => self.value(&it.loop_step),
            };
            let next = match next {
                Ok(value) => Ok(value),
                Err(EvalFailure::TooDear) => return Err(EvalFailure::TooDear),
                Err(error) if collects => return Err(error),
                Err(EvalFailure::Error(error)) => Err(error),
            };
            self.scope[at].value = SlotValue::Known(next);
        }
        Ok(())
    }

    /// Runs a step that adds to the accumulated list or map; returns `None` for other steps.
    fn collect(&mut self, step: &'a Expression, accu: &str, at: usize) -> Option<Result<(), EvalFailure>> {
        let Expr::Call(call) = &step.expr else { return None };
        match (call.func_name.as_str(), call.args.as_slice()) {
            ("_?_:_", [condition, yes, no]) if is_ident(no, accu) && collects(yes, accu) => {
                match self.value(condition) {
                    Ok(CelValue::Bool(true)) => self.collect(yes, accu, at),
                    Ok(CelValue::Bool(false)) => Some(Ok(())),
                    Ok(_) => Some(Err(overload())),
                    Err(error) => Some(Err(error)),
                }
            }
            ("_+_", [list, more]) if is_ident(list, accu) => match &more.expr {
                Expr::List(items) => Some(self.append(more.id, items, at)),
                _ => None,
            },
            (MAP_INSERT, [map, entry @ ..]) if is_ident(map, accu) => Some(self.insert(entry, at)),
            _ => None,
        }
    }

    /// Appends items to the accumulated list.
    fn append(&mut self, id: u64, more: &'a ListExpr, at: usize) -> Result<(), EvalFailure> {
        let list = if self.constants.contains_key(&id) {
            0
        } else {
            costs::LIST
        };
        self.meter.charge(list + 2)?;
        let items = self.elements(more)?;
        if let SlotValue::Known(Ok(CelValue::List(list))) = &mut self.scope[at].value {
            Arc::make_mut(list).extend(items);
        }
        Ok(())
    }

    /// Inserts a key with its value, or all entries of a map, into the accumulated map.
    fn insert(&mut self, entry: &'a [Expression], at: usize) -> Result<(), EvalFailure> {
        self.meter.charge(2)?;
        let entries: Vec<(Key, CelValue)> = match entry {
            [key, value] => {
                let key = self.value(key)?.try_into().map_err(|_| overload())?;
                vec![(key, self.value(value)?)]
            }
            [map] => match self.value(map)? {
                CelValue::Map(map) => {
                    self.meter.work(map.map.len())?;
                    map.map
                        .iter()
                        .map(|(key, value)| (key.clone(), value.clone()))
                        .collect()
                }
                _ => return Err(overload()),
            },
            _ => return Err(overload()),
        };
        let SlotValue::Known(Ok(CelValue::Map(map))) = &mut self.scope[at].value else {
            return Err(overload());
        };
        let map = Arc::make_mut(&mut map.map);
        for (key, value) in entries {
            if map.contains_key(&key) {
                return Err(EvalFailure::Error(format!("insert failed: key {key} already exists")));
            }
            map.insert(key, value);
        }
        Ok(())
    }
}

/// Returns the Go type of a value that is neither a list nor a map.
fn go_type(value: &CelValue) -> &str {
    match value {
        CelValue::Int(_) => "types.Int",
        CelValue::UInt(_) => "types.Uint",
        CelValue::Float(_) => "types.Double",
        CelValue::String(_) => "types.String",
        CelValue::Bytes(_) => "types.Bytes",
        CelValue::Bool(_) => "types.Bool",
        CelValue::Duration(_) => "types.Duration",
        CelValue::Timestamp(_) => "types.Timestamp",
        CelValue::Null => "types.Null",
        other => type_name(other),
    }
}

fn is_ident(expression: &Expression, name: &str) -> bool {
    matches!(&expression.expr, Expr::Ident(it) if it == name)
}

/// Returns `true` if a step adds to the accumulator.
fn collects(step: &Expression, accu: &str) -> bool {
    let Expr::Call(call) = &step.expr else { return false };
    match (call.func_name.as_str(), call.args.as_slice()) {
        ("_+_", [list, more]) => is_ident(list, accu) && matches!(more.expr, Expr::List(_)),
        (MAP_INSERT, [map, ..]) => is_ident(map, accu),
        _ => false,
    }
}
