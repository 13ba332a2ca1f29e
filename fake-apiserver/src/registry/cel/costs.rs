//! CEL costs shared by evaluation and estimation, and the stack sizes for recursive calls.

/// Cost of creating a list or a map.
pub(crate) const LIST: u64 = 10;
pub(crate) const MAP: u64 = 30;

/// Cost of an authorizer check.
pub(crate) const CHECK: u64 = 350_000;

/// Minimum stack for a recursive call, and the size of the segment that is allocated if less is left, in bytes. The
/// depth of expressions is limited.
pub(crate) const STACK_LEFT: usize = 256 * 1024;
pub(crate) const STACK_MORE: usize = 4 * 1024 * 1024;
