//! `Meter`: what an evaluation has cost, and when it costs too much.

use kube_cel::cel::{ExecutionError, Value as CelValue};

/// What an evaluation may do beside its cost: copies of values which cost nothing on a real server, where they are
/// shared. No rule of a request of 3 MiB comes near.
const WORK_MAX: u64 = 50_000_000;

/// Why an expression has no value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in super::super) enum Failure {
    /// It is wrong, in the words of a real server where they are known.
    Error(String),
    /// It costs more than one expression may.
    TooDear,
}

impl From<ExecutionError> for Failure {
    fn from(error: ExecutionError) -> Self {
        Self::Error(match error {
            ExecutionError::DivisionByZero(_) => "division by zero".to_owned(),
            ExecutionError::RemainderByZero(_) => "modulus by zero".to_owned(),
            ExecutionError::NoSuchKey(key) => format!("no such key: {key}"),
            ExecutionError::NoSuchOverload | ExecutionError::UnsupportedBinaryOperator(..) => {
                "no such overload".to_owned()
            }
            ExecutionError::Overflow(_, CelValue::UInt(_), _) => "unsigned integer overflow".to_owned(),
            ExecutionError::Overflow(_, CelValue::Int(_), _) => "integer overflow".to_owned(),
            ExecutionError::FunctionError { message, .. } => message,
            error => error.to_string(),
        })
    }
}

/// What has been spent of what one evaluation may cost, in units of CEL's cost.
#[derive(Debug)]
pub(in super::super) struct Meter {
    spent: u64,
    limit: u64,
    work: u64,
}

impl Meter {
    /// What one expression may cost at run time.
    pub(in super::super) const CALL: u64 = 1_000_000;

    pub(in super::super) fn new(limit: u64) -> Self {
        Self {
            spent: 0,
            limit,
            work: 0,
        }
    }

    /// What has been spent.
    pub(in super::super) fn spent(&self) -> u64 {
        self.spent
    }

    pub(super) fn charge(&mut self, cost: u64) -> Result<(), Failure> {
        self.spent = self.spent.saturating_add(cost);
        match self.spent > self.limit {
            true => Err(Failure::TooDear),
            false => Ok(()),
        }
    }

    /// Charges what reading so much of a text or of a list costs.
    pub(super) fn charge_traversal(&mut self, size: usize, factor: usize) -> Result<(), Failure> {
        self.charge((size.saturating_mul(factor)).div_ceil(10) as u64)
    }

    /// Counts copies, which cost nothing.
    pub(super) fn work(&mut self, copies: usize) -> Result<(), Failure> {
        self.work = self.work.saturating_add(copies as u64);
        match self.work > WORK_MAX {
            true => Err(self.exhaust()),
            false => Ok(()),
        }
    }

    /// Ends the evaluation as if it had cost too much.
    pub(super) fn exhaust(&mut self) -> Failure {
        self.spent = self.spent.max(self.limit.saturating_add(1));
        Failure::TooDear
    }
}

/// The size of a value as expressions see it: characters, bytes, items or entries; 1 for all else.
pub(super) fn size(value: &CelValue) -> usize {
    match value {
        CelValue::String(text) => text.chars().count(),
        CelValue::Bytes(bytes) => bytes.len(),
        CelValue::List(items) => items.len(),
        CelValue::Map(map) => map.map.len(),
        _ => 1,
    }
}

/// How much there is to copy of a value.
pub(super) fn weight(value: &CelValue) -> usize {
    match value {
        CelValue::String(text) => 1 + text.len() / 16,
        CelValue::Bytes(bytes) => 1 + bytes.len() / 16,
        CelValue::List(items) => items.iter().fold(1, |sum, item| sum + weight(item)),
        CelValue::Map(map) => map.map.values().fold(1, |sum, item| sum + 1 + weight(item)),
        _ => 1,
    }
}
