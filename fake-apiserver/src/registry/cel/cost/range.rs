//! `CostRange`: the least and the most that something costs, or the sizes it can have.

use std::ops::Add;

/// Cost of traversing a character of a string.
pub(crate) const TRAVERSAL: f64 = 0.1;

/// Cost of applying a regular expression, a character of it.
pub(crate) const REGEX: f64 = 0.25;

/// Two bounds. All sums and products end at the largest number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CostRange {
    pub(crate) min: u64,
    pub(crate) max: u64,
}

impl CostRange {
    /// Nothing is known.
    pub(crate) const ANY: Self = Self { min: 0, max: u64::MAX };
    pub(crate) const ZERO: Self = Self::exactly(0);
    pub(crate) const ONE: Self = Self::exactly(1);

    pub(crate) const fn exactly(value: u64) -> Self {
        Self { min: value, max: value }
    }

    pub(crate) fn times(self, other: Self) -> Self {
        Self {
            min: self.min.saturating_mul(other.min),
            max: self.max.saturating_mul(other.max),
        }
    }

    /// Multiplied by a factor, rounded up.
    pub(crate) fn scaled(self, factor: f64) -> Self {
        Self {
            min: scale(self.min, factor),
            max: scale(self.max, factor),
        }
    }

    /// Returns the smallest range that includes both.
    pub(crate) fn or(self, other: Self) -> Self {
        Self {
            min: self.min.min(other.min),
            max: self.max.max(other.max),
        }
    }
}

impl Add for CostRange {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            min: self.min.saturating_add(other.min),
            max: self.max.saturating_add(other.max),
        }
    }
}

#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "kube-apiserver computes with the same type, and casts end at the largest number"
)]
fn scale(value: u64, factor: f64) -> u64 {
    (value as f64 * factor).ceil() as u64
}
