//! CEL costs shared by evaluation and estimation, and the stack sizes for recursive calls.

/// Cost of creating a list.
pub(crate) const LIST: u64 = 10;
/// Cost of creating a map.
pub(crate) const MAP: u64 = 30;

/// Cost of an authorizer check.
pub(crate) const CHECK: u64 = 350_000;

/// Minimum remaining stack for a recursive call, in bytes.
pub(crate) const STACK_LEFT: usize = 256 * 1024;
/// Size of the stack segment that is allocated if less than [`STACK_LEFT`] remains, in bytes.
pub(crate) const STACK_MORE: usize = 4 * 1024 * 1024;
