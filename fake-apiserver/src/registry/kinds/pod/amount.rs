//! Quantities for validation, which treats invalid quantities as absent.

use crate::registry::types::quantity::Quantity;

/// Parses a quantity; `None` if it is invalid.
pub(super) fn read(text: &str) -> Option<Quantity> {
    Quantity::parse(text).ok()
}

/// Returns `true` if the amount, rounded to thousandths, is an integer.
pub(super) fn is_whole(amount: &Quantity) -> bool {
    amount.milli_value() % 1000 == 0
}

/// Returns `true` if `unit` is a positive integer and the amount is a multiple of it.
pub(super) fn is_multiple(amount: &Quantity, unit: &Quantity) -> bool {
    unit.signum() > 0 && is_whole(unit) && amount.value() % unit.value() == 0
}
