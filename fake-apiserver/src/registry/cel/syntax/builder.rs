//! `Builder`: assigns numbers and positions to the nodes of an expression during parsing, and collects errors.

use crate::registry::cel::ast::{CallExpr, Expr, Expression};

pub(super) struct Builder {
    places: Vec<usize>,
    errors: Vec<(usize, String)>,
}

impl Builder {
    pub(super) fn new() -> Self {
        // Number 0 is reserved.
        Self {
            places: vec![0],
            errors: Vec::new(),
        }
    }

    /// Returns the positions of the nodes by number, and the errors.
    pub(super) fn finish(self) -> (Vec<usize>, Vec<(usize, String)>) {
        (self.places, self.errors)
    }

    /// Assigns a new number to a node at a position.
    pub(super) fn id(&mut self, place: usize) -> u64 {
        self.places.push(place);
        self.places.len() as u64 - 1
    }

    pub(super) fn place_of(&self, id: u64) -> usize {
        self.places[usize::try_from(id).unwrap_or_default()]
    }

    /// Creates a node at a position.
    pub(super) fn made(&mut self, place: usize, expr: Expr) -> Expression {
        Expression {
            id: self.id(place),
            expr,
        }
    }

    pub(super) fn report(&mut self, place: usize, text: &str) {
        self.errors.push((place, text.to_owned()));
    }

    /// Reports an error, and returns a placeholder for the invalid node.
    pub(super) fn wrong(&mut self, place: usize, text: impl Into<String>) -> Expression {
        self.errors.push((place, text.into()));
        self.made(place, Expr::Unspecified)
    }
}

/// Creates a call of a function or an operator.
pub(super) fn global(id: u64, name: &str, args: Vec<Expression>) -> Expression {
    Expression {
        id,
        expr: Expr::Call(CallExpr {
            func_name: name.to_owned(),
            target: None,
            args,
        }),
    }
}
