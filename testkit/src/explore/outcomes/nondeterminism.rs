//! `Nondeterminism`: two runs of the same plan that differ.

use super::outcome::Outcome;
use crate::explore::plans::Plan;

/// Two runs of the same plan that differ.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Nondeterminism {
    pub(crate) plan: String,
    pub(crate) what: String,
}

impl Nondeterminism {
    pub(crate) fn new(plan: &Plan, what: &str) -> Self {
        Self {
            plan: plan.to_string(),
            what: what.to_owned(),
        }
    }

    /// Returns the first difference between two runs of the same plan; `None` if they are equal.
    pub(crate) fn between(plan: &Plan, one: &Outcome, other: &Outcome) -> Option<Self> {
        let mut steps = one.trace.iter().zip(&other.trace);
        let difference = steps.find(|(one, other)| one.signature() != other.signature());
        let what = match difference {
            Some((one, other)) => format!("{} in one run, {} in the other", one.signature(), other.signature()),
            None if one.trace.len() != other.trace.len() => "one run continues after the other has ended".to_owned(),
            None => return None,
        };
        Some(Self::new(plan, &what))
    }
}
