//! `Reinvocation`: the webhooks of a request that are asked again after a later change (rule P1).

use std::collections::BTreeSet;

use crate::api::object::Object;

/// State of a request's mutation so far (rule P1).
#[derive(Debug, Default)]
pub(super) struct Reinvocation {
    /// Webhooks with reinvocationPolicy IfNeeded that have been called and have not seen a change since.
    pub(super) asked: BTreeSet<usize>,
    /// Those to be asked again.
    pub(super) again: BTreeSet<usize>,
    /// Set if the whole chain is to be run a second time.
    pub(super) is_needed: bool,
    /// The object as the webhooks left it.
    pub(super) left: Option<Object>,
    /// Set once a patch has been applied, and the result read.
    pub(super) is_read_back: bool,
}

impl Reinvocation {
    /// A later mutation changed the object: those asked before have to see it.
    pub(super) fn changed(&mut self) {
        self.again.append(&mut self.asked);
        self.is_needed = true;
    }
}
