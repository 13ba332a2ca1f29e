//! Creates plans: evaluates the constant parts of an expression once (`decOptimize` of cel-go's interpreter).

use std::collections::HashMap;

use super::evaluation::{MoreFunctions, evaluate_part};
use super::meter::Meter;
use super::plan::Plan;
use super::values::EvalFailure;
use crate::registry::cel::ast::{CallExpr, EntryExpr, Expr, Expression, LiteralValue};
use crate::registry::cel::costs;
use crate::registry::cel::library::{TYPE_NAMES, dotted_type};
use crate::registry::cel::objects::Value as CelValue;
use crate::registry::cel::parse::parts;
use crate::registry::types::pattern::Pattern;

/// Conversions that are constant if their argument is constant.
const CONVERSIONS: [&str; 10] = [
    "bool",
    "bytes",
    "double",
    "duration",
    "dyn",
    "int",
    "string",
    "timestamp",
    "type",
    "uint",
];

/// Creates the plan of an expression, or returns the error of a constant part.
pub(crate) fn plan_of(expression: Expression, functions: MoreFunctions) -> Result<Plan, String> {
    let mut planner = Planner {
        functions,
        constants: HashMap::new(),
        error: None,
    };
    planner.visit(&expression);
    let constants = planner.constants;
    match planner.error {
        Some(error) => Err(error),
        None => Ok(Plan { expression, constants }),
    }
}

struct Planner {
    functions: MoreFunctions,
    constants: HashMap<u64, CelValue>,
    error: Option<String>,
}

impl Planner {
    fn visit(&mut self, part: &Expression) {
        stacker::maybe_grow(costs::STACK_LEFT, costs::STACK_MORE, || {
            parts(part, &mut |it| self.visit(it))
        });
        if self.error.is_some() {
            return;
        }
        match &part.expr {
            Expr::List(list) if list.elements.iter().all(|it| self.is_constant(it)) => self.fold(part),
            Expr::Map(map) => {
                let mut entries = map.entries.iter();
                let is_constant = entries.all(|entry| match &entry.expr {
                    EntryExpr::MapEntry(it) => self.is_constant(&it.key) && self.is_constant(&it.value),
                    EntryExpr::StructField(_) => false,
                });
                if is_constant {
                    self.fold(part);
                }
            }
            Expr::Call(call) => self.call(part, call),
            _ => {}
        }
    }

    fn call(&mut self, part: &Expression, call: &CallExpr) {
        let name = call.func_name.as_str();
        match (name, call.target.as_deref(), call.args.as_slice()) {
            ("@in", None, [_, list]) => {
                if let Some(CelValue::List(items)) = self.constants.get(&list.id)
                    && items.is_empty()
                {
                    self.constants.insert(part.id, CelValue::Bool(false));
                }
            }
            (_, None, [arg]) if CONVERSIONS.contains(&name) && self.is_constant(arg) => self.fold(part),
            ("matches", None, [_, pattern]) | ("matches" | "find" | "findAll", Some(_), [pattern, ..]) => {
                let known = match &pattern.expr {
                    Expr::Literal(LiteralValue::String(text)) => Some(text.clone()),
                    _ => match self.constants.get(&pattern.id) {
                        Some(CelValue::String(text)) => Some(text.to_string()),
                        _ => None,
                    },
                };
                let pattern = known.map(|text| Pattern::new(&text));
                self.error = pattern.and_then(|it| it.error().map(str::to_owned));
            }
            _ => {}
        }
    }

    fn is_constant(&self, part: &Expression) -> bool {
        let is_type = |name: &str| TYPE_NAMES.contains(&name.trim_start_matches('.'));
        match &part.expr {
            Expr::Literal(_) => true,
            Expr::Ident(name) => is_type(name),
            Expr::Select(select) => !select.test && dotted_type(&select.operand, &select.field).is_some(),
            _ => self.constants.contains_key(&part.id),
        }
    }

    /// Evaluates a constant part of the expression, and stores its value.
    fn fold(&mut self, part: &Expression) {
        let mut meter = Meter::new(Meter::CALL);
        match evaluate_part(part, &self.constants, self.functions, &mut meter) {
            Ok(value) => {
                self.constants.insert(part.id, value);
            }
            Err(EvalFailure::Error(error)) => self.error = Some(error),
            // The part is too expensive to be evaluated in advance.
            Err(EvalFailure::TooDear) => {}
        }
    }
}
