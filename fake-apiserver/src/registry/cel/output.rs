//! `Output`: the type of what an expression makes, as cel-go's checker finds it where objects have no schema.
//!
//! `None` is a type that is not known here, though a real server knows it: nothing is refused for it.

use std::fmt;

use kube_cel::cel::common::ast::{CallExpr, ComprehensionExpr, EntryExpr, Expr, LiteralValue};
use kube_cel::cel::parser::Expression;

use super::parse;
use super::program::Program;

/// A type, shown as cel-go writes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Output {
    Named(&'static str),
    /// An `Object` or a part of one, or a `JSONPatch`, by its name.
    Struct(String),
    List(Box<Output>),
    Map(Box<Output>, Box<Output>),
    Optional(Box<Output>),
}

/// The largest type that is kept for a name, in the types that it is made of. A map of a name to itself doubles its
/// type, so that those of a few dozen names in a row would fill the memory.
const SIZE_MAX: usize = 256;

const BOOL: Option<Output> = Some(Output::Named("bool"));
const BYTES: Option<Output> = Some(Output::Named("bytes"));
const DOUBLE: Option<Output> = Some(Output::Named("double"));
const DYN: Option<Output> = Some(Output::Named("dyn"));
const INT: Option<Output> = Some(Output::Named("int"));
const NULL: Option<Output> = Some(Output::Named("null_type"));
const STRING: Option<Output> = Some(Output::Named("string"));
const UINT: Option<Output> = Some(Output::Named("uint"));

/// Fields of `request` that are texts, and those with fields that are texts.
const REQUEST_TEXTS: [&str; 5] = ["name", "namespace", "operation", "requestSubResource", "subResource"];
const REQUEST_KINDS: [&str; 4] = ["kind", "resource", "requestKind", "requestResource"];

impl Output {
    /// The number of types that it is made of.
    fn size(&self) -> usize {
        1 + match self {
            Self::Named(_) | Self::Struct(_) => 0,
            Self::List(inner) | Self::Optional(inner) => inner.size(),
            Self::Map(keys, values) => keys.size() + values.size(),
        }
    }
}

/// Names with a type: variables of macros, and the fields of `variables`.
#[derive(Clone, Debug, Default)]
pub(crate) struct Names(Vec<(String, Option<Output>)>);

impl Names {
    /// Adds a field of `variables` and its expression, which sees those before it.
    pub(crate) fn declare(&mut self, name: &str, expression: &str) {
        let program = Program::parse(expression).ok();
        let kind = program.and_then(|it| it.output(Some(self)));
        self.push(name, kind);
    }

    /// Adds a name, which hides an earlier one.
    fn push(&mut self, name: &str, kind: Option<Output>) {
        let kind = kind.filter(|it| it.size() <= SIZE_MAX);
        self.0.push((name.to_owned(), kind));
    }

    /// Returns `true` if there is such a name.
    pub(crate) fn contains(&self, name: &str) -> bool {
        self.find(name).is_some()
    }

    fn find(&self, name: &str) -> Option<&Option<Output>> {
        let mut found = self.0.iter().rev();
        found.find(|(it, _)| it == name).map(|(_, kind)| kind)
    }
}

/// The type of an expression on a request; `variables` are the fields of the variable of this name.
pub(crate) fn output_of(expression: &Expression, variables: &Names) -> Option<Output> {
    let mut walk = Walk {
        variables,
        locals: Names::default(),
    };
    walk.output(expression)
}

struct Walk<'a> {
    variables: &'a Names,
    locals: Names,
}

impl Walk<'_> {
    fn output(&mut self, expression: &Expression) -> Option<Output> {
        match &expression.expr {
            Expr::Literal(literal) => match literal {
                LiteralValue::Boolean(_) => BOOL,
                LiteralValue::Bytes(_) => BYTES,
                LiteralValue::Double(_) => DOUBLE,
                LiteralValue::Int(_) => INT,
                LiteralValue::Null => NULL,
                LiteralValue::String(_) => STRING,
                LiteralValue::UInt(_) => UINT,
            },
            Expr::Ident(name) => match (self.locals.find(name), name.as_str()) {
                (Some(kind), _) => kind.clone(),
                (None, "object" | "oldObject" | "params") => DYN,
                (None, _) => None,
            },
            Expr::Select(select) if select.test => BOOL,
            Expr::Select(select) => self.field(&select.operand, &select.field),
            Expr::List(list) => self.joined(list.elements.iter()).map(list_of),
            Expr::Map(map) => {
                let entries = map.entries.iter().map(|it| match &it.expr {
                    EntryExpr::MapEntry(entry) => Some((&entry.key, &entry.value)),
                    EntryExpr::StructField(_) => None,
                });
                let entries: Vec<_> = entries.collect::<Option<_>>()?;
                let keys = self.joined(entries.iter().map(|(key, _)| *key))?;
                let values = self.joined(entries.iter().map(|(_, value)| *value))?;
                Some(Output::Map(Box::new(keys), Box::new(values)))
            }
            Expr::Call(call) => self.call(call),
            Expr::Comprehension(macro_) => self.comprehension(macro_),
            Expr::Struct(made) if is_of_mutations(&made.type_name) => Some(Output::Struct(made.type_name.clone())),
            Expr::Struct(_) | Expr::Unspecified => None,
        }
    }

    /// The one type of all parts, which is dyn if there are none.
    fn joined<'e>(&mut self, parts: impl Iterator<Item = &'e Expression>) -> Option<Output> {
        let mut parts = parts.map(|it| self.output(it));
        match parts.next() {
            None => DYN,
            Some(first) => parts.fold(first, join),
        }
    }

    fn field(&mut self, operand: &Expression, field: &str) -> Option<Output> {
        match &operand.expr {
            Expr::Ident(name) if !self.locals.contains(name) => match name.as_str() {
                "variables" => return self.variables.find(field).cloned().flatten(),
                "request" if REQUEST_TEXTS.contains(&field) => return STRING,
                "request" if field == "dryRun" => return BOOL,
                "request" if field == "options" => return DYN,
                _ => {}
            },
            Expr::Select(outer) => match (&outer.operand.expr, outer.field.as_str(), field) {
                (Expr::Ident(name), ..) if self.locals.contains(name) => {}
                (Expr::Ident(name), kind, _) if name == "request" && REQUEST_KINDS.contains(&kind) => return STRING,
                (Expr::Ident(name), "userInfo", "username" | "uid") if name == "request" => return STRING,
                (Expr::Ident(name), "userInfo", "groups") if name == "request" => return STRING.map(list_of),
                (Expr::Ident(name), "metadata", "name" | "namespace") if name == "namespaceObject" => return STRING,
                _ => {}
            },
            _ => {}
        }
        selected(self.output(operand)?)
    }

    fn call(&mut self, call: &CallExpr) -> Option<Output> {
        let name = call.func_name.as_str();
        let namespace = parse::namespace(call, |name| self.locals.contains(name));
        if let Some("optional") = namespace {
            return match (name, call.args.as_slice()) {
                ("none", []) => DYN.map(optional),
                ("of" | "ofNonZeroValue", [value]) => self.output(value).map(optional),
                _ => None,
            };
        }
        if let Some(known) = always(name) {
            return known;
        }
        if namespace.is_some() {
            return None;
        }
        let target = call.target.as_ref().map(|it| self.output(it));
        let args: Vec<Option<Output>> = call.args.iter().map(|it| self.output(it)).collect();
        match (name, target, args.as_slice()) {
            ("_+_" | "_-_" | "_*_" | "_/_" | "_%_", None, [left, right]) => match (left.clone()?, right.clone()?) {
                (Output::Named("dyn"), other) | (other, Output::Named("dyn")) => Some(other),
                (left, right) => (left == right).then_some(left),
            },
            ("-_", None, [operand]) => operand.clone(),
            ("_?_:_", None, [_, yes, no]) => join(yes.clone(), no.clone()),
            ("_[_]", None, [container, _]) => selected(container.clone()?),
            (parse::OPTIONAL_SELECT | "_[?_]", None, [container, _]) => match container.clone()? {
                Output::Optional(inner) => selected(*inner).map(optional),
                other => selected(other).map(optional),
            },
            ("or", Some(target), [other]) => match (target?, other.clone()?) {
                (Output::Optional(one), Output::Optional(other)) => join(Some(*one), Some(*other)).map(optional),
                _ => None,
            },
            ("sum" | "min" | "max", Some(target), []) => selected(target?),
            ("value", Some(target), []) => match target? {
                Output::Optional(inner) => Some(*inner),
                _ => None,
            },
            ("orValue", Some(target), [other]) => match target? {
                Output::Optional(inner) => join(Some(*inner), other.clone()),
                _ => None,
            },
            _ => None,
        }
    }

    fn comprehension(&mut self, it: &ComprehensionExpr) -> Option<Output> {
        let (range, depth) = (self.output(&it.iter_range), self.locals.0.len());
        let (first, second) = match (range, &it.iter_var2) {
            (Some(Output::List(items)), None) => (Some(*items), None),
            (Some(Output::List(items)), Some(_)) => (INT, Some(*items)),
            (Some(Output::Map(keys, values)), _) => (Some(*keys), Some(*values)),
            (Some(Output::Named("dyn")), _) => (DYN, DYN),
            _ => (None, None),
        };
        let start = self.output(&it.accu_init);
        self.locals.push(&it.accu_var, start.clone());
        self.locals.push(&it.iter_var, first);
        if let Some(name) = &it.iter_var2 {
            self.locals.push(name, second);
        }
        // The type of a list's items shows in the step that adds to it.
        if let Some(Output::List(_)) = start {
            let made = added(&it.loop_step).and_then(|item| self.output(item)).map(list_of);
            self.locals.0[depth].1 = made;
        }
        self.locals.0.truncate(depth + 1);
        let result = self.output(&it.result);
        self.locals.0.truncate(depth);
        result
    }
}

/// The list that a step of `map` or `filter` adds, behind the condition of the step: its one item.
fn added(step: &Expression) -> Option<&Expression> {
    match &step.expr {
        Expr::Call(call) => match (call.func_name.as_str(), call.args.as_slice()) {
            ("_?_:_", [_, yes, _]) => added(yes),
            ("_+_", [_, list]) => match &list.expr {
                Expr::List(list) => list.elements.first(),
                _ => None,
            },
            _ => None,
        },
        _ => None,
    }
}

/// The type that a function makes of any arguments.
fn always(name: &str) -> Option<Option<Output>> {
    Some(match name {
        "_==_" | "_!=_" | "_<_" | "_<=_" | "_>_" | "_>=_" | "_&&_" | "_||_" | "!_" | "@in" | "_in_" | "startsWith"
        | "endsWith" | "contains" | "matches" | "bool" | "hasValue" | "isSorted" | "allowed" | "errored" => BOOL,
        "size" | "int" | "indexOf" | "lastIndexOf" => INT,
        "string" | "lowerAscii" | "upperAscii" | "replace" | "substring" | "trim" | "join" | "format" | "charAt"
        | "reason" | "error" => STRING,
        "double" => DOUBLE,
        "uint" => UINT,
        "bytes" => BYTES,
        "dyn" => DYN,
        "duration" => Some(Output::Named("google.protobuf.Duration")),
        "timestamp" => Some(Output::Named("google.protobuf.Timestamp")),
        "quantity" => Some(Output::Named("kubernetes.Quantity")),
        "url" => Some(Output::Named("kubernetes.URL")),
        "split" | "findAll" => STRING.map(list_of),
        _ => return None,
    })
}

fn list_of(items: Output) -> Output {
    Output::List(Box::new(items))
}

fn optional(inner: Output) -> Output {
    Output::Optional(Box::new(inner))
}

/// The type of a field or of an item.
fn selected(container: Output) -> Option<Output> {
    match container {
        Output::Named("dyn") => DYN,
        Output::List(items) => Some(*items),
        Output::Map(_, values) => Some(*values),
        Output::Optional(inner) => selected(*inner).map(optional),
        Output::Struct(_) | Output::Named(_) => None,
    }
}

/// Returns `true` if mutations of policies know a struct of this name.
pub(super) fn is_of_mutations(name: &str) -> bool {
    matches!(name, "Object" | "JSONPatch") || name.starts_with("Object.")
}

/// The type of either of two values.
fn join(one: Option<Output>, other: Option<Output>) -> Option<Output> {
    match (one?, other?) {
        (Output::Named("dyn"), _) | (_, Output::Named("dyn")) => DYN,
        (one, other) => (one == other).then_some(one),
    }
}

impl fmt::Display for Output {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Named(name) => f.write_str(name),
            Self::Struct(name) => f.write_str(name),
            Self::List(items) => write!(f, "list({items})"),
            Self::Map(keys, values) => write!(f, "map({keys}, {values})"),
            Self::Optional(inner) => write!(f, "optional_type({inner})"),
        }
    }
}
