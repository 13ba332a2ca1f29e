//! `Value`: the value of a fault, such as its duration.

use std::ops::RangeInclusive;
use std::time::Duration;

/// Value of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Value {
    Nothing,
    Time(Duration),
    Number(i64),
}

/// The type of a fault's value.
pub(crate) enum Takes {
    Nothing,
    /// A time in milliseconds.
    Time,
    Number(RangeInclusive<i64>),
}

impl Value {
    /// Returns the time; zero for other values.
    pub(crate) fn time(self) -> Duration {
        match self {
            Self::Time(time) => time,
            Self::Nothing | Self::Number(_) => Duration::ZERO,
        }
    }

    /// Returns the number; zero for other values, or if the number does not fit into `N`.
    pub(crate) fn number<N: TryFrom<i64> + Default>(self) -> N {
        match self {
            Self::Number(number) => number.try_into().unwrap_or_default(),
            Self::Nothing | Self::Time(_) => N::default(),
        }
    }
}

impl Takes {
    /// Parses a value in a replay string.
    pub(crate) fn parse(&self, text: Option<&str>) -> Option<Value> {
        match self {
            Self::Nothing => Some(Value::Nothing),
            Self::Time => text?.parse().ok().map(Duration::from_millis).map(Value::Time),
            Self::Number(range) => text?.parse().ok().filter(|it| range.contains(it)).map(Value::Number),
        }
    }
}
