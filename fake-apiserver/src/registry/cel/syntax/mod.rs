//! The syntax of CEL: the lexer, the parser with the position of each node, literals and macros. Parsing stops at the
//! first syntax error; `errors` then finds all syntax errors with their messages. Errors in literals and macros are
//! reported during parsing.

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

/// The optional macros and libraries that are available to an expression.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Dialect {
    /// Set if `cel.bind` is a macro.
    pub(crate) binds: bool,
    /// Minor version of Kubernetes that determines the available libraries.
    pub(crate) libraries: u8,
}

impl Dialect {
    /// The dialect of stored rules and policies, which may have been written by any version.
    pub(crate) const STORED: Self = Self {
        binds: false,
        libraries: u8::MAX,
    };
}

/// Function for `a.?b`.
pub(crate) const OPTIONAL_SELECT: &str = "_?._";

/// Function for `a[?b]`.
pub(crate) const OPTIONAL_INDEX: &str = "_[?_]";

/// Variable for the optional target of a macro, so that the target is only evaluated once.
pub(crate) const OPTIONAL_TARGET: &str = "@optional";
