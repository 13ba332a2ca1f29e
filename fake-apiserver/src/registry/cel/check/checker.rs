//! `Checker`: traverses an expression, determines the type of each node, and reports undeclared names and type errors.

use super::checked::Checked;
use super::environment::Environment;
use super::literals;
use super::types::{StructType, Type};
use super::unify::{Mapping, most_general};
use crate::registry::cel::ast::{
    CallExpr, ComprehensionExpr, EntryExpr, Expr, Expression, ListExpr, LiteralValue, MapExpr, SelectExpr, StructExpr,
};
use crate::registry::cel::costs;
use crate::registry::cel::parse::ERRORS_MAX;
use crate::registry::cel::syntax::{OPTIONAL_SELECT, OPTIONAL_TARGET, Parsed};

/// An error with the byte offset at which it is reported.
type Problem = (usize, String);

/// Determines the types of all nodes of an expression, or returns its errors in the order of cel-go.
pub(crate) fn check(parsed: &Parsed, environment: &Environment) -> Result<Checked, Vec<Problem>> {
    let mut checker = Checker {
        parsed,
        environment,
        mapping: Mapping::default(),
        locals: Vec::new(),
        types: Vec::new(),
        problems: Vec::new(),
    };
    checker.check(&parsed.expression);
    if !checker.problems.is_empty() {
        return Err(checker.problems);
    }
    let mapping = checker.mapping;
    let types = checker
        .types
        .into_iter()
        .map(|it| it.map(|it| mapping.substitute(&it, true)));
    let checked = Checked::new(types.collect(), parsed.expression.id);
    let problems = literals::problems(parsed, &checked);
    match problems.is_empty() {
        true => Ok(checked),
        false => Err(problems),
    }
}

/// The state of checking one expression.
pub(super) struct Checker<'a> {
    parsed: &'a Parsed,
    pub(super) environment: &'a Environment,
    pub(super) mapping: Mapping,
    /// Variables of the enclosing macros, innermost last.
    locals: Vec<(&'a str, Type)>,
    types: Vec<Option<Type>>,
    problems: Vec<Problem>,
}

impl<'a> Checker<'a> {
    /// Checks a node and returns its type.
    fn check(&mut self, part: &'a Expression) -> Type {
        let kind = match &part.expr {
            Expr::Literal(literal) => of_literal(literal),
            Expr::Ident(name) => self.ident(part.id, name),
            Expr::Select(select) => self.select(part, select),
            Expr::Call(call) => stacker::maybe_grow(costs::STACK_LEFT, costs::STACK_MORE, || self.call(part.id, call)),
            Expr::List(list) => self.list(list),
            Expr::Map(map) => self.map(map),
            Expr::Struct(made) => self.made_struct(part.id, made),
            Expr::Comprehension(it) => {
                stacker::maybe_grow(costs::STACK_LEFT, costs::STACK_MORE, || self.comprehension(it))
            }
            Expr::Unspecified => Type::Error,
        };
        let id = usize::try_from(part.id).unwrap_or_default();
        if self.types.len() <= id {
            self.types.resize(id + 1, None);
        }
        self.types[id] = Some(kind.clone());
        kind
    }

    /// Reports an error at the position of a node.
    pub(super) fn report(&mut self, id: u64, text: String) {
        self.problems.push((self.parsed.place(id), text));
    }

    pub(super) fn undeclared(&mut self, id: u64, name: &str) -> Type {
        self.report(id, format!("undeclared reference to '{name}' (in container '')"));
        Type::Error
    }

    pub(super) fn mismatch(&mut self, id: u64, expected: &Type, found: &Type) {
        self.report(id, format!("expected type '{expected}' but found '{found}'"));
    }

    fn find(&self, name: &str) -> Option<Type> {
        let name = name.strip_prefix('.').unwrap_or(name);
        let local = self.locals.iter().rev().find(|(it, _)| *it == name);
        local
            .map(|(_, kind)| kind.clone())
            .or_else(|| self.environment.find(name))
    }

    fn ident(&mut self, id: u64, name: &str) -> Type {
        match self.find(name) {
            Some(kind) => kind,
            None => self.undeclared(id, name),
        }
    }

    fn select(&mut self, part: &'a Expression, select: &'a SelectExpr) -> Type {
        if let Some(kind) = qualified_name(part).and_then(|name| self.find(&name)) {
            return kind;
        }
        let kind = self.field(part.id, &select.operand, &select.field, false);
        match select.test {
            true => Type::Bool,
            false => self.mapping.substitute(&kind, false),
        }
    }

    /// Returns the type of a field that is selected or tested with `has`.
    fn field(&mut self, id: u64, operand: &'a Expression, field: &str, is_optional: bool) -> Type {
        let operand = self.check(operand);
        let operand = self.mapping.substitute(&operand, false);
        let target = operand.inner().unwrap_or(&operand);
        let kind = match target {
            Type::Map(_, values) => (**values).clone(),
            Type::Struct(declared) => self.struct_field(id, declared, field),
            Type::Param(_) => {
                self.mapping.is_assignable(&[Type::Dyn], std::slice::from_ref(target));
                Type::Dyn
            }
            Type::Dyn | Type::Any | Type::Error => Type::Dyn,
            other if other.is_object() => {
                self.report(id, format!("unexpected failed resolution of '{other}'"));
                Type::Error
            }
            other => {
                let text = format!("type '{other}' does not support field selection");
                self.report(id, text);
                Type::Dyn
            }
        };
        match is_optional || operand.inner().is_some() {
            true => Type::optional(kind),
            false => kind,
        }
    }

    fn struct_field(&mut self, id: u64, declared: &StructType, field: &str) -> Type {
        declared.field(field).unwrap_or_else(|| {
            self.report(id, format!("undefined field '{field}'"));
            Type::Error
        })
    }

    fn call(&mut self, id: u64, call: &'a CallExpr) -> Type {
        if let (OPTIONAL_SELECT, [operand, field]) = (call.func_name.as_str(), call.args.as_slice())
            && let Expr::Literal(LiteralValue::String(field)) = &field.expr
        {
            let kind = self.field(id, operand, field, true);
            return self.mapping.substitute(&kind, false);
        }
        let mut args: Vec<Type> = call.args.iter().map(|it| self.check(it)).collect();
        if let Some(target) = &call.target {
            args.insert(0, self.check(target));
        }
        self.resolve(id, call, args)
    }

    fn list(&mut self, list: &'a ListExpr) -> Type {
        let mut items = None;
        for (index, element) in list.elements.iter().enumerate() {
            let mut kind = self.check(element);
            if list.optional_indices.contains(&index) {
                kind = self.unwrapped(element.id, kind);
            }
            items = Some(self.joined(items, kind));
        }
        Type::list(items.unwrap_or_else(|| self.mapping.parameter()))
    }

    fn map(&mut self, map: &'a MapExpr) -> Type {
        let mut found = None;
        for entry in &map.entries {
            let EntryExpr::MapEntry(entry) = &entry.expr else {
                continue;
            };
            let (keys, values) = found.unzip();
            let key = self.check(&entry.key);
            let keys = self.joined(keys, key);
            let mut value = self.check(&entry.value);
            if entry.optional {
                value = self.unwrapped(entry.value.id, value);
            }
            let values = self.joined(values, value);
            found = Some((keys, values));
        }
        let (keys, values) = found.unwrap_or_else(|| (self.mapping.parameter(), self.mapping.parameter()));
        Type::map(keys, values)
    }

    /// Returns the type inside an optional element, entry or field.
    fn unwrapped(&mut self, id: u64, kind: Type) -> Type {
        match kind.inner() {
            Some(inner) => inner.clone(),
            None => {
                if !kind.is_dyn() {
                    self.mismatch(id, &Type::optional(kind.clone()), &kind);
                }
                kind
            }
        }
    }

    /// Combines the type of the previous items with the type of the next item. Returns `dyn` if the types differ.
    fn joined(&mut self, before: Option<Type>, next: Type) -> Type {
        let Some(before) = before else { return next };
        match self.is_assignable(&before, &next) {
            true => most_general(&before, &next),
            false => Type::Dyn,
        }
    }

    fn is_assignable(&mut self, one: &Type, other: &Type) -> bool {
        let slice = std::slice::from_ref;
        self.mapping.is_assignable(slice(one), slice(other))
    }

    fn made_struct(&mut self, id: u64, made: &'a StructExpr) -> Type {
        let name = made.type_name.as_str();
        let Some(kind) = self.find(name) else {
            return self.undeclared(id, name);
        };
        let Type::Type(inner) = kind else {
            self.report(id, format!("'{}' is not a type", kind.runtime_name()));
            return self.fields(made, None, Type::Error);
        };
        match inner.as_deref() {
            Some(Type::Struct(declared)) => self.fields(made, Some(declared), Type::Struct(declared.clone())),
            // The well-known types of Protobuf become CEL values.
            Some(known) if name.trim_start_matches('.').starts_with("google.protobuf.") => {
                self.fields(made, None, known.clone())
            }
            other => {
                let name = other.map_or_else(|| "type".to_owned(), Type::runtime_name);
                self.report(id, format!("'{name}' is not a message type"));
                self.fields(made, None, Type::Error)
            }
        }
    }

    fn fields(&mut self, made: &'a StructExpr, declared: Option<&StructType>, result: Type) -> Type {
        for entry in &made.entries {
            let EntryExpr::StructField(field) = &entry.expr else {
                continue;
            };
            let mut value = self.check(&field.value);
            let wanted = match declared {
                Some(declared) => self.struct_field(entry.id, declared, &field.field),
                None => Type::Dyn,
            };
            if field.optional {
                value = self.unwrapped(field.value.id, value);
            }
            if !self.is_assignable(&wanted, &value) {
                let name = &field.field;
                let text = format!("expected type of field '{name}' is '{wanted}' but provided type is '{value}'");
                self.report(entry.id, text);
            }
        }
        result
    }

    fn comprehension(&mut self, it: &'a ComprehensionExpr) -> Type {
        let range = self.check(&it.iter_range);
        let before = self.problems.len();
        let start = self.check(&it.accu_init);
        if it.accu_var == OPTIONAL_TARGET && self.problems.len() < ERRORS_MAX {
            // cel-go checks two copies of the target, so every macro in a chain doubles the errors.
            self.problems.extend_from_within(before..);
        }
        let range = self.mapping.substitute(&range, false);
        let depth = self.locals.len();
        self.locals.push((&it.accu_var, start.clone()));
        let has_two = it.iter_var2.is_some();
        let (first, second) = match &range {
            Type::List(items) if has_two => (Type::Int, (**items).clone()),
            Type::List(items) => ((**items).clone(), Type::Dyn),
            Type::Map(keys, values) => ((**keys).clone(), (**values).clone()),
            Type::Dyn | Type::Any | Type::Error | Type::Param(_) => {
                self.is_assignable(&Type::Dyn, &range);
                (Type::Dyn, Type::Dyn)
            }
            other => {
                let text = format!(
                    "expression of type '{other}' cannot be range of a comprehension (must be list, map, or dynamic)"
                );
                self.report(it.iter_range.id, text);
                (Type::Error, Type::Error)
            }
        };
        self.locals.push((&it.iter_var, first));
        if let Some(name) = &it.iter_var2 {
            self.locals.push((name, second));
        }
        let condition = self.check(&it.loop_cond);
        self.assert(&it.loop_cond, &Type::Bool, &condition);
        let step = self.check(&it.loop_step);
        self.assert(&it.loop_step, &start, &step);
        self.locals.truncate(depth + 1);
        let result = self.check(&it.result);
        self.locals.truncate(depth);
        self.mapping.substitute(&result, false)
    }

    fn assert(&mut self, part: &Expression, wanted: &Type, found: &Type) {
        if !self.is_assignable(wanted, found) {
            self.mismatch(part.id, wanted, found);
        }
    }
}

fn of_literal(literal: &LiteralValue) -> Type {
    match literal {
        LiteralValue::Boolean(_) => Type::Bool,
        LiteralValue::Bytes(_) => Type::Bytes,
        LiteralValue::Double(_) => Type::Double,
        LiteralValue::Int(_) => Type::Int,
        LiteralValue::Null => Type::Null,
        LiteralValue::String(_) => Type::String,
        LiteralValue::UInt(_) => Type::Uint,
    }
}

/// Returns the dotted name of a variable and the fields selected from it, such as `a.b.c`.
pub(super) fn qualified_name(part: &Expression) -> Option<String> {
    match &part.expr {
        Expr::Ident(name) => Some(name.clone()),
        Expr::Select(select) if !select.test => Some(format!("{}.{}", qualified_name(&select.operand)?, select.field)),
        _ => None,
    }
}
