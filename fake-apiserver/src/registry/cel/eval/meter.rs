//! `Meter`: the accumulated cost of an evaluation, and its limits.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use super::merging::ListType;
use super::values::EvalFailure;
use crate::registry::cel::objects::{OptionalValue, Value as CelValue};

/// Maximum amount of work that CEL does not charge for in one evaluation: copies of values and comparisons within them.
/// Reading ten parts costs one unit, so the limit equals the number of parts that can be read for [`Meter::CALL`]
/// units.
const WORK_MAX: u64 = 10 * Meter::CALL;

/// Lists from JSON with their types. They are identified by their addresses, so a list that is computed from one of
/// them does not have a type, except for the result of `+`.
#[derive(Clone, Debug, Default)]
pub(crate) struct TypedLists(Arc<BTreeMap<usize, ListType>>);

impl TypedLists {
    /// Adds a list, which must not be dropped while `self` is used.
    pub(crate) fn insert(&mut self, list: &Arc<Vec<CelValue>>, kind: ListType) {
        Arc::make_mut(&mut self.0).insert(Arc::as_ptr(list).addr(), kind);
    }
}

/// Meter of one evaluation, in units of CEL's cost.
#[derive(Debug)]
pub(crate) struct Meter {
    spent: u64,
    limit: u64,
    work: u64,
    /// The lists of each variable. The variables of the evaluation keep these lists alive.
    typed: Vec<TypedLists>,
    /// Sums of these lists, at most one for each unit of the cost limit. A weak reference does not keep the items of a
    /// list, but ensures that no other list gets the same address.
    sums: BTreeMap<usize, (Weak<Vec<CelValue>>, ListType)>,
}

impl Meter {
    /// Cost limit of one expression at run time.
    pub(crate) const CALL: u64 = 1_000_000;

    pub(crate) fn new(limit: u64) -> Self {
        Self {
            spent: 0,
            limit,
            work: 0,
            typed: Vec::new(),
            sums: BTreeMap::new(),
        }
    }

    /// Sets the types of the lists in the variables.
    pub(crate) fn with_typed(self, typed: Vec<TypedLists>) -> Self {
        Self { typed, ..self }
    }

    /// Returns the type of a list from JSON or of a sum of such lists; `None` for other lists.
    pub(super) fn list_type(&self, list: &Arc<Vec<CelValue>>) -> Option<ListType> {
        let address = Arc::as_ptr(list).addr();
        let declared = self.typed.iter().find_map(|it| it.0.get(&address));
        let kind = declared.or_else(|| self.sums.get(&address).map(|(_, kind)| kind));
        kind.cloned()
    }

    /// Records the type of a sum.
    pub(super) fn record_sum(&mut self, list: &Arc<Vec<CelValue>>, kind: ListType) {
        let address = Arc::as_ptr(list).addr();
        self.sums.insert(address, (Arc::downgrade(list), kind));
    }

    /// Returns the accumulated cost.
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

    /// Fails if this additional cost would exceed the limit. The cost is not charged yet.
    pub(crate) fn charge_ahead(&mut self, cost: u64) -> Result<(), EvalFailure> {
        match self.spent.saturating_add(cost) > self.limit {
            true => Err(self.exhaust()),
            false => Ok(()),
        }
    }

    /// Subtracts a cost that was charged before.
    pub(crate) fn refund(&mut self, cost: u64) {
        self.spent = self.spent.saturating_sub(cost);
    }

    /// Charges the cost of reading a string or list of this size.
    pub(crate) fn charge_traversal(&mut self, size: usize, factor: usize) -> Result<(), EvalFailure> {
        self.charge((size.saturating_mul(factor)).div_ceil(10) as u64)
    }

    /// Counts copies and comparisons, for which CEL does not charge.
    pub(crate) fn work(&mut self, copies: usize) -> Result<(), EvalFailure> {
        self.work = self.work.saturating_add(copies as u64);
        match self.work > WORK_MAX {
            true => Err(self.exhaust()),
            false => Ok(()),
        }
    }

    /// Ends the evaluation as if it had exceeded the cost limit.
    pub(crate) fn exhaust(&mut self) -> EvalFailure {
        self.spent = self.spent.max(self.limit.saturating_add(1));
        EvalFailure::TooDear
    }
}

/// Returns the number of parts of a value. Stops counting above `most`, because a value with shared parts can have too
/// many to visit.
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
            let hidden = map.hidden.iter().flat_map(|it| it.values());
            map.map.values().chain(hidden).all(|item| add(1, item));
        }
        other => {
            if let Some(inner) = <&OptionalValue>::try_from(other).ok().and_then(OptionalValue::value) {
                add(0, inner);
            }
        }
    }
    sum
}
