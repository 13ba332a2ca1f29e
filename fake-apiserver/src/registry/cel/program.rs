//! Expressions about objects without a schema, as in policies and match conditions: fields are not escaped, and types
//! are determined at run time. The objects `Object{…}` and `JSONPatch{…}` are represented as maps.

use std::collections::HashMap;
use std::sync::Arc;

use super::eval::{self, EvalFailure, Meter, MoreFunctions, Plan, no_more_functions, plan_of};
use super::parse::{parse, visit_parts};
use super::value::from_json;
use crate::api::json::{Map, Value};
use crate::registry::cel::ast::{EntryExpr, Expr, Expression, LiteralValue, MapEntryExpr, MapExpr};
use crate::registry::cel::objects::{Key, Map as CelMap, OptionalValue, Value as CelValue};

/// Maximum number of parts in a value that is converted to JSON. Objects in requests have fewer.
const JSON_MAX: usize = 2_000_000;

/// A parsed expression.
#[derive(Debug)]
pub(crate) struct Program(Plan);

/// The result of evaluating an expression.
#[derive(Clone, Debug)]
pub(crate) struct ProgramOutcome(pub(crate) CelValue);

/// The variables and functions that are available to an expression.
pub(crate) struct Bindings<'a> {
    /// The variables, as pairs of a name and a value.
    pub(crate) values: &'a [(&'a str, &'a Value)],
    /// The fields of the variable `variables`.
    pub(crate) variables: &'a [(String, ProgramOutcome)],
    /// The value of the variable `authorizer`.
    pub(crate) authorizer: &'a ProgramOutcome,
    /// Additional functions that are available to the expression.
    pub(crate) functions: MoreFunctions,
}

impl std::fmt::Debug for Bindings<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut shown = f.debug_struct("Bindings");
        shown.field("values", &self.values).field("variables", &self.variables);
        shown.field("authorizer", &self.authorizer).finish_non_exhaustive()
    }
}

fn key(name: &str) -> Key {
    Key::String(Arc::new(name.to_owned()))
}

impl Program {
    /// Parses an expression. Fails with cel-go's messages.
    pub(crate) fn parse(expression: &str) -> Result<Self, String> {
        let mut program = parse(expression)?;
        structs_to_maps(&mut program);
        plan_of(program, no_more_functions)
            .map(Self)
            .map_err(|error| format!("program instantiation failed: {error}"))
    }

    /// Evaluates the expression, and returns its value or error, and the cost.
    pub(crate) fn evaluate(&self, bindings: &Bindings<'_>) -> (Result<ProgramOutcome, String>, u64) {
        let mut variables: Vec<(&str, CelValue)> = Vec::new();
        for (name, value) in bindings.values {
            variables.push((name, from_json(value)));
        }
        let fields = bindings.variables.iter();
        let fields: HashMap<_, _> = fields.map(|(name, value)| (key(name), value.0.clone())).collect();
        variables.push(("variables", CelValue::Map(CelMap::from(fields))));
        variables.push(("authorizer", bindings.authorizer.0.clone()));
        let mut meter = Meter::new(Meter::CALL);
        let result = eval::evaluate(&self.0, bindings.functions, variables, &mut meter);
        let result = result.map(ProgramOutcome).map_err(|failure| match failure {
            EvalFailure::Error(error) => error,
            EvalFailure::TooDear => "operation cancelled: actual cost limit exceeded".to_owned(),
        });
        (result, meter.spent())
    }
}

/// Replaces structs, which mutating policies may return, with maps, because evaluation does not support structs.
fn structs_to_maps(expression: &mut Expression) {
    if let Expr::Struct(made) = &mut expression.expr {
        let entries = std::mem::take(&mut made.entries).into_iter().map(|mut entry| {
            if let EntryExpr::StructField(field) = &mut entry.expr {
                let id = entry.id;
                let key = Expression {
                    id,
                    expr: Expr::Literal(LiteralValue::String(std::mem::take(&mut field.field))),
                };
                let value = std::mem::take(&mut field.value);
                let optional = field.optional;
                entry.expr = EntryExpr::MapEntry(MapEntryExpr { key, value, optional });
            }
            entry
        });
        let entries = entries.collect();
        expression.expr = Expr::Map(MapExpr { entries });
    }
    visit_parts(expression, &mut structs_to_maps);
}

impl ProgramOutcome {
    /// Returns the value as a bool; `None` for other types.
    pub(crate) fn as_bool(&self) -> Option<bool> {
        match &self.0 {
            CelValue::Bool(value) => Some(*value),
            _ => None,
        }
    }

    /// Returns the value as a string; `None` for other types.
    pub(crate) fn as_text(&self) -> Option<&str> {
        match &self.0 {
            CelValue::String(text) => Some(text),
            _ => None,
        }
    }

    /// Returns `true` for `null`.
    pub(crate) fn is_null(&self) -> bool {
        matches!(self.0, CelValue::Null)
    }

    /// Returns the name of the value's type.
    pub(crate) fn type_name(&self) -> String {
        self.0.kind().to_owned()
    }

    /// Converts the value to JSON, or returns the reason for a failure.
    pub(crate) fn to_json(&self) -> Result<Value, String> {
        // A part that occurs several times in the value is repeated in JSON.
        if eval::weight(&self.0, JSON_MAX) > JSON_MAX {
            return Err("the result is too large".to_owned());
        }
        to_json(&self.0).ok_or_else(|| "the result is not JSON".to_owned())
    }
}

fn to_json(value: &CelValue) -> Option<Value> {
    Some(match value {
        CelValue::Null => Value::Null,
        CelValue::Bool(value) => Value::Bool(*value),
        CelValue::Int(value) => Value::from(*value),
        CelValue::UInt(value) => Value::from(*value),
        CelValue::Float(value) => Value::from(*value),
        CelValue::String(text) => Value::from(text.as_str()),
        CelValue::List(items) => items.iter().map(to_json).collect::<Option<Vec<_>>>()?.into(),
        CelValue::Map(map) => {
            let mut fields = Map::new();
            for (name, value) in map.map.iter() {
                let Key::String(name) = name else { return None };
                fields.insert(name.as_str().into(), to_json(value)?);
            }
            Value::Object(fields)
        }
        CelValue::Opaque(opaque) => match opaque.downcast_ref::<OptionalValue>() {
            Some(optional) => to_json(optional.value()?)?,
            None => return None,
        },
        _ => return None,
    })
}
