//! Costs of CEL that an evaluation counts and an estimate foresees, and the stack both have for their walk.

/// Cost of making a list or a map.
pub(crate) const LIST: u64 = 10;
pub(crate) const MAP: u64 = 30;

/// Cost of an authorizer check.
pub(crate) const CHECK: u64 = 350_000;

/// The stack that must be left for a call, and how much there is then, in bytes. Expressions are not deep without end.
pub(crate) const STACK_LEFT: usize = 256 * 1024;
pub(crate) const STACK_MORE: usize = 4 * 1024 * 1024;
