//! Quantities for validation: an invalid one is treated as absent.

use crate::registry::types::quantity::Quantity;

/// Reads a quantity.
pub(super) fn read(text: &str) -> Option<Quantity> {
    Quantity::parse(text).ok()
}

/// Returns `true` if it is a whole number, to a thousandth.
pub(super) fn is_whole(amount: &Quantity) -> bool {
    amount.milli_value() % 1000 == 0
}

/// Returns `true` if it is some number of times a positive whole `unit`.
pub(super) fn is_multiple(amount: &Quantity, unit: &Quantity) -> bool {
    unit.signum() > 0 && is_whole(unit) && amount.value() % unit.value() == 0
}
