//! Expressions on objects of no schema, as policies and match conditions have them: every field has its own name, and
//! types are found out at run time. Objects of `Object{…}` and `JSONPatch{…}` are maps.

use std::sync::Arc;

use kube_cel::cel::common::ast::{EntryExpr, Expr, LiteralValue, MapEntryExpr, MapExpr};
use kube_cel::cel::objects::{Key, Map as CelMap, OptionalValue};
use kube_cel::cel::parser::Expression;
use kube_cel::cel::{Context, Value as CelValue};

use super::eval::{self, EvalFailure, Meter};
use super::names::{undeclared, unknown_field, unknown_structs, unknown_variable};
use super::output::{self, Names, Output};
use super::parse::{parse, show_errors, visit_parts};
use super::value::from_json;
use crate::api::json::{Map, Value};

/// The most parts of a value that JSON is made of; no object of a request has as many.
const JSON_MAX: usize = 2_000_000;

/// An expression, parsed.
#[derive(Debug)]
pub(crate) struct Program(Expression);

/// A value of an expression, with its type.
#[derive(Clone, Debug)]
pub(crate) struct ProgramOutcome(pub(crate) CelValue);

/// Variables of an expression.
pub(crate) struct Bindings<'a> {
    /// Variables by name.
    pub(crate) values: &'a [(&'a str, &'a Value)],
    /// The fields of `variables`.
    pub(crate) variables: &'a [(String, ProgramOutcome)],
    /// Value of `authorizer`.
    pub(crate) authorizer: &'a ProgramOutcome,
    /// The functions that the expression can call.
    pub(crate) functions: &'a Context<'static>,
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
    /// Parses an expression; the error is the parser's.
    pub(crate) fn parse(expression: &str) -> Result<Self, String> {
        let mut program = parse(expression)?;
        structs_to_maps(&mut program);
        Ok(Self(program))
    }

    /// Evaluates it; what that costs comes with the value, or with why there is none.
    pub(crate) fn evaluate(&self, bindings: &Bindings<'_>) -> (Result<ProgramOutcome, String>, u64) {
        let mut variables: Vec<(&str, CelValue)> = Vec::new();
        for (name, value) in bindings.values {
            variables.push((name, from_json(value)));
        }
        let fields = bindings.variables.iter();
        let fields = fields.map(|(name, value)| (key(name), value.0.clone())).collect();
        variables.push(("variables", CelValue::Map(CelMap { map: Arc::new(fields) })));
        variables.push(("authorizer", bindings.authorizer.0.clone()));
        let mut meter = Meter::new(Meter::CALL);
        let result = eval::evaluate(&self.0, bindings.functions, variables, &mut meter);
        let result = result.map(ProgramOutcome).map_err(|failure| match failure {
            EvalFailure::Error(error) => error,
            EvalFailure::TooDear => "operation cancelled: actual cost limit exceeded".to_owned(),
        });
        (result, meter.spent())
    }

    /// The type of the value, as far as it is known; `variables` are the fields of the variable of this name.
    pub(crate) fn output(&self, variables: Option<&Names>) -> Option<Output> {
        output::output_of(&self.0, variables.unwrap_or(&Names::default()))
    }
}

/// The type of what an expression makes, as far as it can be known without evaluating it.
pub(crate) fn static_type(expression: &Expression) -> Option<&'static str> {
    match &expression.expr {
        Expr::Literal(literal) => Some(match literal {
            LiteralValue::Boolean(_) => "bool",
            LiteralValue::Bytes(_) => "bytes",
            LiteralValue::Double(_) => "double",
            LiteralValue::Int(_) => "int",
            LiteralValue::Null => "null_type",
            LiteralValue::String(_) => "string",
            LiteralValue::UInt(_) => "uint",
        }),
        Expr::List(_) => Some("list"),
        Expr::Map(_) | Expr::Struct(_) => Some("map"),
        Expr::Call(call) => match call.func_name.as_str() {
            "_==_" | "_!=_" | "_<_" | "_<=_" | "_>_" | "_>=_" | "_&&_" | "_||_" | "!_" | "@in" | "_in_" => Some("bool"),
            "_+_" | "_-_" | "_*_" | "_/_" | "_%_" => {
                let mut types = call.args.iter().map(static_type);
                let first = types.next().flatten()?;
                types.all(|it| it == Some(first)).then_some(first)
            }
            "size" => Some("int"),
            "string" => Some("string"),
            "startsWith" | "endsWith" | "contains" | "matches" | "bool" => Some("bool"),
            _ => None,
        },
        Expr::Unspecified | Expr::Ident(_) | Expr::Select(_) | Expr::Comprehension(_) => None,
    }
}

/// The library evaluates no structs; policies write their results with them.
fn structs_to_maps(expression: &mut Expression) {
    if let Expr::Struct(made) = &mut expression.expr {
        let entries = std::mem::take(&mut made.entries).into_iter().map(|mut entry| {
            if let EntryExpr::StructField(field) = &mut entry.expr {
                let id = entry.id;
                let key = Expression {
                    id,
                    expr: Expr::Literal(LiteralValue::String(std::mem::take(&mut field.field).into())),
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
    /// The truth, if the value is one.
    pub(crate) fn as_bool(&self) -> Option<bool> {
        match &self.0 {
            CelValue::Bool(value) => Some(*value),
            _ => None,
        }
    }

    /// The text, if the value is one.
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

    /// The name of the value's type.
    pub(crate) fn type_name(&self) -> String {
        self.0.type_of().to_string()
    }

    /// The value as JSON; else why it cannot be.
    pub(crate) fn to_json(&self) -> Result<Value, String> {
        // Parts that the value shares are written out in JSON.
        if eval::weight(&self.0, JSON_MAX) > JSON_MAX {
            return Err("the result is too large".to_owned());
        }
        to_json(&self.0).ok_or_else(|| "the result is no JSON".to_owned())
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

/// Returns the errors that are known without evaluating an expression that must make a value of one of the types
/// `wanted`, if any are named, and sees these names; `variables` are the fields of the one that is called so.
pub(crate) fn problem(expression: &str, wanted: &[&str], known: &[&str], variables: Option<&Names>) -> Option<String> {
    let program = match parse(expression) {
        Ok(program) => program,
        Err(error) => return Some(format!("compilation failed: {}", error.replace("\n|", "\n |"))),
    };
    let failed = |errors| show_errors(expression, errors).map(|it| format!("compilation failed: {it}"));
    let mutates = matches!(wanted, ["Object" | "list(JSONPatch)"]);
    let is_struct = |name: &str| mutates && output::is_of_mutations(name);
    let mut unknown = unknown_structs(&program, expression, &is_struct);
    unknown.extend(unknown_variable(&program, known).map(|name| (expression.find(name).unwrap_or(0), name)));
    if !unknown.is_empty() {
        return failed(unknown.into_iter().map(undeclared).collect());
    }
    let is_field = |name: &str| variables.is_none_or(|fields| fields.contains(name));
    if let Some(name) = unknown_field(&program, "variables", &is_field) {
        // The error stands at the dot.
        let dot = expression
            .find(&format!("variables.{name}"))
            .map(|it| it + "variables".len());
        return failed(vec![(dot.unwrap_or(0), format!("undefined field '{name}'"))]);
    }
    let found = output::output_of(&program, variables.unwrap_or(&Names::default()))?.to_string();
    match wanted {
        [] => None,
        wanted if wanted.contains(&found.as_str()) => None,
        [wanted] => Some(format!("must evaluate to {wanted} but got {found}")),
        several => {
            let several = several.join(" ");
            Some(format!("must evaluate to one of [{several}] but got {found}"))
        }
    }
}
