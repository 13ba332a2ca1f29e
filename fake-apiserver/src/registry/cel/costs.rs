//! Costs of CEL that both evaluations and estimates use, and the stack size of their recursive walks.

/// Cost of creating a list or a map.
pub(crate) const LIST: u64 = 10;
pub(crate) const MAP: u64 = 30;

/// Cost of an authorizer check.
pub(crate) const CHECK: u64 = 350_000;

/// Stack that a recursive call needs, and the size of the segment allocated if less is left, in bytes. The depth of
/// expressions is bounded.
pub(crate) const STACK_LEFT: usize = 256 * 1024;
pub(crate) const STACK_MORE: usize = 4 * 1024 * 1024;
