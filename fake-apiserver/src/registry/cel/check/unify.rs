//! `Mapping`: the types bound to type parameters, and the assignability of types.

use std::collections::HashMap;
use std::sync::Arc;

use super::types::Type;

/// The types to which type parameters are bound so far.
#[derive(Default)]
pub(super) struct Mapping {
    found: HashMap<usize, Type>,
    /// The changes of the current attempt, which are undone if it fails.
    trail: Vec<(usize, Option<Type>)>,
    next: usize,
}

impl Mapping {
    /// Creates a new type parameter.
    pub(super) fn parameter(&mut self) -> Type {
        Type::Param(self.reserve(1))
    }

    /// Reserves `count` new type parameters, and returns the number of the first.
    pub(super) fn reserve(&mut self, count: usize) -> usize {
        let first = self.next;
        self.next += count;
        first
    }

    /// Returns `true` if each type can be assigned to its counterpart. Binds type parameters.
    pub(super) fn is_assignable(&mut self, from: &[Type], to: &[Type]) -> bool {
        self.trail.clear();
        if self.all_assignable(from, to) {
            return true;
        }
        while let Some((parameter, before)) = self.trail.pop() {
            match before {
                Some(before) => self.found.insert(parameter, before),
                None => self.found.remove(&parameter),
            };
        }
        false
    }

    fn all_assignable(&mut self, from: &[Type], to: &[Type]) -> bool {
        from.len() == to.len() && from.iter().zip(to).all(|(one, other)| self.assignable(one, other))
    }

    fn set(&mut self, parameter: usize, to: Type) {
        let before = self.found.insert(parameter, to);
        self.trail.push((parameter, before));
    }

    fn assignable(&mut self, one: &Type, other: &Type) -> bool {
        if let Type::Param(parameter) = other {
            match self.stands_for(*parameter, one) {
                (true, _) => return true,
                (false, true) => return false,
                (false, false) => {}
            }
        }
        if let Type::Param(parameter) = one {
            return self.stands_for(*parameter, other).0;
        }
        if one.is_dyn_or_error() || other.is_dyn_or_error() {
            return true;
        }
        match (one, other) {
            (Type::Null, it) | (it, Type::Null) => is_nullable(it),
            (Type::Type(_), Type::Type(_)) => true,
            (Type::List(one), Type::List(other)) => self.assignable(one, other),
            (Type::Map(key, value), Type::Map(other_key, other_value)) => {
                self.assignable(key, other_key) && self.assignable(value, other_value)
            }
            (Type::Opaque(name, parts), Type::Opaque(other_name, others)) => {
                name == other_name && self.all_assignable(parts, others)
            }
            (one, other) => one.is_exactly(other),
        }
    }

    /// Tries to bind a type parameter to a type. Returns two flags: the first is set on success, the second if the
    /// parameter was already bound.
    fn stands_for(&mut self, parameter: usize, one: &Type) -> (bool, bool) {
        if matches!(one, Type::Param(it) if *it == parameter) {
            return (true, true);
        }
        if let Some(found) = self.found.get(&parameter).cloned() {
            if one.is_exactly(&found) {
                return (true, true);
            }
            if !self.assignable(one, &found) {
                return (false, true);
            }
            let general = most_general(one, &found);
            if self.is_free_of(parameter, &general) {
                self.set(parameter, general);
            }
            return (true, true);
        }
        if self.is_free_of(parameter, one) {
            self.set(parameter, one.clone());
            return (true, false);
        }
        (false, false)
    }

    /// Returns `true` if a type does not contain the parameter.
    fn is_free_of(&self, parameter: usize, within: &Type) -> bool {
        match within {
            Type::Param(it) if *it == parameter => false,
            Type::Param(it) => self.found.get(it).is_none_or(|found| self.is_free_of(parameter, found)),
            Type::List(inner) | Type::Type(Some(inner)) => self.is_free_of(parameter, inner),
            Type::Map(keys, values) => self.is_free_of(parameter, keys) && self.is_free_of(parameter, values),
            Type::Opaque(_, parts) => parts.iter().all(|it| self.is_free_of(parameter, it)),
            _ => true,
        }
    }

    /// Replaces the parameters of a type with the types to which they are bound. With `to_dyn`, unbound parameters
    /// become `dyn`.
    pub(super) fn substitute(&self, of: &Type, to_dyn: bool) -> Type {
        match of {
            Type::Param(parameter) => match self.found.get(parameter) {
                Some(found) => self.substitute(found, to_dyn),
                None if to_dyn => Type::Dyn,
                None => of.clone(),
            },
            Type::List(inner) => Type::list(self.substitute(inner, to_dyn)),
            Type::Map(keys, values) => Type::map(self.substitute(keys, to_dyn), self.substitute(values, to_dyn)),
            Type::Type(Some(inner)) => Type::Type(Some(Arc::new(self.substitute(inner, to_dyn)))),
            Type::Opaque(name, parts) if !parts.is_empty() => {
                let parts = parts.iter().map(|it| self.substitute(it, to_dyn)).collect();
                Type::Opaque(Arc::clone(name), parts)
            }
            other => other.clone(),
        }
    }
}

fn is_nullable(kind: &Type) -> bool {
    matches!(
        kind,
        Type::Null | Type::Opaque(..) | Type::Struct(_) | Type::Duration | Type::Timestamp
    )
}

/// Returns the more general of two compatible types.
pub(super) fn most_general(one: &Type, other: &Type) -> Type {
    match is_equal_or_less_specific(one, other) {
        true => one.clone(),
        false => other.clone(),
    }
}

fn is_equal_or_less_specific(one: &Type, other: &Type) -> bool {
    match (one, other) {
        (Type::Dyn | Type::Any | Type::Param(_), _) => true,
        (_, Type::Dyn | Type::Any | Type::Param(_)) => false,
        (Type::List(one), Type::List(other)) => is_equal_or_less_specific(one, other),
        (Type::Map(key, value), Type::Map(other_key, other_value)) => {
            is_equal_or_less_specific(key, other_key) && is_equal_or_less_specific(value, other_value)
        }
        (Type::Opaque(name, parts), Type::Opaque(other_name, others)) => {
            let is_same = name == other_name && parts.len() == others.len();
            let mut pairs = parts.iter().zip(others);
            is_same && pairs.all(|(one, other)| is_equal_or_less_specific(one, other))
        }
        (Type::Type(_), Type::Type(_)) => true,
        (one, other) => one.is_exactly(other),
    }
}
