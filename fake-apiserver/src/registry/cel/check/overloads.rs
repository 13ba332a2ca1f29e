//! Overload resolution: finds the overload of a function that accepts the arguments of a call.

use super::checker::Checker;
use super::declarations::{Overload, overloads};
use super::types::{Type, show_call};
use crate::registry::cel::ast::CallExpr;

impl Checker<'_> {
    /// Determines the type of a call. The target of a method is the first argument.
    pub(super) fn resolve(&mut self, id: u64, call: &CallExpr, mut args: Vec<Type>) -> Type {
        let name = call.func_name.as_str();
        let name = name.strip_prefix('.').unwrap_or(name);
        let environment = self.environment;
        let is_known = |it: &&Overload| environment.has(name, it);
        let mut known = overloads(name).iter().filter(is_known).peekable();
        if known.peek().is_none() {
            return self.undeclared(id, &call.func_name);
        }
        if let "_&&_" | "_||_" = name {
            return self.junction(id, call, &args);
        }
        let is_method = call.target.is_some();
        let mut result: Option<Type> = None;
        for overload in known.filter(|it| it.is_method == is_method) {
            let first = self.mapping.reserve(overload.parameters);
            let wanted: Vec<Type> = overload.args.iter().map(|it| instance(it, first)).collect();
            if !self.mapping.is_assignable(&args, &wanted) {
                continue;
            }
            let made = self.mapping.substitute(&instance(&overload.result, first), false);
            result = Some(match result {
                None => made,
                Some(before) if before.is_dyn() || made.is_exactly(&before) => before,
                Some(_) => Type::Dyn,
            });
        }
        result.unwrap_or_else(|| {
            for arg in &mut args {
                *arg = self.mapping.substitute(arg, true);
            }
            let applied = show_call(&args, is_method);
            self.report(
                id,
                format!("found no matching overload for '{name}' applied to '{applied}'"),
            );
            Type::Error
        })
    }

    /// Checks `&&` and `||`. Each operand of a wrong type is a separate error.
    fn junction(&mut self, _: u64, call: &CallExpr, args: &[Type]) -> Type {
        let mut result = Type::Bool;
        for (part, found) in call.args.iter().zip(args) {
            if !self.mapping.is_assignable(std::slice::from_ref(found), &[Type::Bool]) {
                self.mismatch(part.id, &Type::Bool, found);
                result = Type::Error;
            }
        }
        result
    }
}

/// Replaces the type parameters of a declared type with new ones, numbered from `first`, for one call.
fn instance(declared: &Type, first: usize) -> Type {
    match declared {
        Type::Param(number) => Type::Param(first + number),
        Type::List(inner) => Type::list(instance(inner, first)),
        Type::Map(keys, values) => Type::map(instance(keys, first), instance(values, first)),
        Type::Type(Some(inner)) => instance(inner, first).of_type(),
        Type::Opaque(name, parts) if !parts.is_empty() => {
            let parts = parts.iter().map(|it| instance(it, first)).collect();
            Type::Opaque(name.clone(), parts)
        }
        other => other.clone(),
    }
}
