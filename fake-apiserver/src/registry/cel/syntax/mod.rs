//! The syntax of CEL: tokens, the parser with the position of each part, literals and macros. Parsing stops at the
//! first syntax error, and `errors` then finds all of them with their texts. This module reports the errors of literals
//! and macros.

mod builder;
mod errors;
mod lexer;
mod literal;
mod macros;
mod parser;

#[cfg(test)]
mod tests;

pub(crate) use errors::syntax_errors;
pub(crate) use macros::{MAP_INSERT, UNUSED};
pub(crate) use parser::{Parsed, Refused, parse};

/// The macros and libraries of an expression that differ from those of other expressions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Dialect {
    /// Set if `cel.bind` is a macro.
    pub(crate) binds: bool,
    /// The minor version of Kubernetes that determines the available libraries.
    pub(crate) libraries: u8,
}

impl Dialect {
    /// The dialect of rules and policies that are already stored, which may come from any version.
    pub(crate) const STORED: Self = Self {
        binds: false,
        libraries: u8::MAX,
    };
}

/// The function of `a.?b`.
pub(crate) const OPTIONAL_SELECT: &str = "_?._";

/// The function of `a[?b]`.
pub(crate) const OPTIONAL_INDEX: &str = "_[?_]";

/// The variable that contains the optional target of a macro, so that it is evaluated once.
pub(crate) const OPTIONAL_TARGET: &str = "@optional";
