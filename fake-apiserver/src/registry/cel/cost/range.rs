//! `CostRange`: lower and upper bound of a cost or a size.

use std::ops::Add;

/// Cost of traversing a character of a string.
pub(crate) const TRAVERSAL: f64 = 0.1;

/// Cost of matching a regular expression, for each of its characters.
pub(crate) const REGEX: f64 = 0.25;

/// Lower and upper bound of a cost or a size. Sums and products saturate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CostRange {
    pub(crate) min: u64,
    pub(crate) max: u64,
}

impl CostRange {
    /// An unknown size or cost: from 0 to the maximum.
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

    /// Multiplies both bounds by a factor, and rounds up.
    pub(crate) fn scaled(self, factor: f64) -> Self {
        Self {
            min: scale(self.min, factor),
            max: scale(self.max, factor),
        }
    }

    /// Returns the smallest range that includes both ranges.
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
    reason = "kube-apiserver computes with the same type, and casts saturate"
)]
fn scale(value: u64, factor: f64) -> u64 {
    (value as f64 * factor).ceil() as u64
}
