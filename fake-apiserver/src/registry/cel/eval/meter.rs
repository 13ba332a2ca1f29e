//! `Meter`: what an evaluation has cost, and when it costs too much.

use kube_cel::cel::objects::OptionalValue;
use kube_cel::cel::{ExecutionError, Value as CelValue};

/// Most work of an evaluation beside its cost: copies of values and comparisons within them, which cost nothing on a
/// real server. Reading ten parts costs one unit, so this is what all of [`Meter::CALL`] reads; no rule of a request
/// of 3 MiB comes near.
const WORK_MAX: u64 = 10 * Meter::CALL;

/// Reason for which an expression has no value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum EvalFailure {
    /// It is wrong, in the words of a real server where they are known.
    Error(String),
    /// It costs more than one expression may.
    TooDear,
}

impl From<ExecutionError> for EvalFailure {
    fn from(error: ExecutionError) -> Self {
        Self::Error(match error {
            ExecutionError::DivisionByZero(_) => "division by zero".to_owned(),
            ExecutionError::RemainderByZero(_) => "modulus by zero".to_owned(),
            ExecutionError::NoSuchKey(key) => format!("no such key: {key}"),
            // The library's texts show the values, which may be larger than any text.
            ExecutionError::NoSuchOverload
            | ExecutionError::NotSupportedAsMethod { .. }
            | ExecutionError::UnexpectedType { .. }
            | ExecutionError::UnsupportedBinaryOperator(..)
            | ExecutionError::UnsupportedIndex(..)
            | ExecutionError::UnsupportedKeyType(_)
            | ExecutionError::UnsupportedListIndex(_)
            | ExecutionError::UnsupportedMapIndex(_)
            | ExecutionError::UnsupportedTargetType { .. }
            | ExecutionError::UnsupportedUnaryOperator(..)
            | ExecutionError::ValuesNotComparable(..) => "no such overload".to_owned(),
            ExecutionError::Overflow(_, CelValue::UInt(_), _) => "unsigned integer overflow".to_owned(),
            ExecutionError::Overflow(_, CelValue::Int(_), _) => "integer overflow".to_owned(),
            ExecutionError::FunctionError { message, .. } => message,
            error => error.to_string(),
        })
    }
}

/// Meter of one evaluation, in units of CEL's cost.
#[derive(Debug)]
pub(crate) struct Meter {
    spent: u64,
    limit: u64,
    work: u64,
}

impl Meter {
    /// Most that one expression may cost at run time.
    pub(crate) const CALL: u64 = 1_000_000;

    pub(crate) fn new(limit: u64) -> Self {
        Self {
            spent: 0,
            limit,
            work: 0,
        }
    }

    /// Returns the cost so far.
    pub(crate) fn spent(&self) -> u64 {
        self.spent
    }

    pub(crate) fn charge(&mut self, cost: u64) -> Result<(), EvalFailure> {
        self.spent = self.spent.saturating_add(cost);
        match self.spent > self.limit {
            true => Err(EvalFailure::TooDear),
            false => Ok(()),
        }
    }

    /// Takes back what has been charged since so much was spent.
    pub(crate) fn forget_since(&mut self, spent: u64) {
        self.spent = spent;
    }

    /// Charges what reading so much of a text or of a list costs.
    pub(crate) fn charge_traversal(&mut self, size: usize, factor: usize) -> Result<(), EvalFailure> {
        self.charge((size.saturating_mul(factor)).div_ceil(10) as u64)
    }

    /// Counts copies and comparisons, which cost nothing.
    pub(crate) fn work(&mut self, copies: usize) -> Result<(), EvalFailure> {
        self.work = self.work.saturating_add(copies as u64);
        match self.work > WORK_MAX {
            true => Err(self.exhaust()),
            false => Ok(()),
        }
    }

    /// Counts the parts of a value to copy, and returns their number.
    pub(crate) fn weigh(&mut self, value: &CelValue) -> Result<usize, EvalFailure> {
        let left = WORK_MAX.saturating_sub(self.work);
        let weight = weight(value, usize::try_from(left).unwrap_or(usize::MAX));
        self.work(weight)?;
        Ok(weight)
    }

    /// Ends the evaluation as if it had cost too much.
    pub(crate) fn exhaust(&mut self) -> EvalFailure {
        self.spent = self.spent.max(self.limit.saturating_add(1));
        EvalFailure::TooDear
    }
}

/// The size of a value as expressions see it: characters, bytes, items or entries; 1 for all else.
pub(crate) fn size(value: &CelValue) -> usize {
    match value {
        CelValue::String(text) => text.chars().count(),
        CelValue::Bytes(bytes) => bytes.len(),
        CelValue::List(items) => items.len(),
        CelValue::Map(map) => map.map.len(),
        _ => 1,
    }
}

/// Returns the size of a value for a walk: at least this, where it is more than `most`. A value that shares its parts
/// may hold more than can ever be walked.
pub(crate) fn weight(value: &CelValue, most: usize) -> usize {
    let mut sum: usize = 1;
    let mut add = |more: usize, part: &CelValue| {
        sum += more;
        sum += weight(part, most.saturating_sub(sum));
        sum <= most
    };
    match value {
        CelValue::String(text) => sum += text.len() / 16,
        CelValue::Bytes(bytes) => sum += bytes.len() / 16,
        CelValue::List(items) => {
            items.iter().all(|item| add(0, item));
        }
        CelValue::Map(map) => {
            map.map.values().all(|item| add(1, item));
        }
        other => {
            if let Some(inner) = <&OptionalValue>::try_from(other).ok().and_then(OptionalValue::value) {
                add(0, inner);
            }
        }
    }
    sum
}
