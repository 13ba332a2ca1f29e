//! `Checked`: the types that the checker has determined for the nodes of an expression.

use super::types::Type;

/// The types of all nodes of an expression.
#[derive(Clone, Debug)]
pub(crate) struct Checked {
    /// The type of the expression.
    pub(crate) output: Type,
    types: Vec<Option<Type>>,
}

impl Checked {
    /// Creates the result from the types of the nodes by number, and the number of the root node.
    pub(super) fn new(types: Vec<Option<Type>>, whole: u64) -> Self {
        let mut checked = Self {
            output: Type::Dyn,
            types,
        };
        checked.output = checked.type_of(whole).clone();
        checked
    }

    /// Returns the type of a node; `dyn` if it is unknown.
    pub(crate) fn type_of(&self, id: u64) -> &Type {
        let id = usize::try_from(id).unwrap_or(usize::MAX);
        self.types.get(id).and_then(Option::as_ref).unwrap_or(&Type::Dyn)
    }
}
