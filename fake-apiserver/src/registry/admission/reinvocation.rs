//! `Reinvocation`: the webhooks of a request that are called again after a later change (rule P1).

use std::collections::BTreeSet;

use crate::api::object::Object;

/// State of a request's mutation so far (rule P1).
#[derive(Debug, Default)]
pub(super) struct Reinvocation {
    /// Called webhooks with reinvocationPolicy IfNeeded; the object is unchanged since their call.
    pub(super) asked: BTreeSet<usize>,
    /// Webhooks to be called again.
    pub(super) again: BTreeSet<usize>,
    /// Set if the whole chain must run again.
    pub(super) is_needed: bool,
    /// The object after the last webhook.
    pub(super) left: Option<Object>,
    /// Set after the first patch was applied and its result parsed.
    pub(super) is_read_back: bool,
}

impl Reinvocation {
    /// Called after another change of the object: schedules the earlier webhooks again.
    pub(super) fn changed(&mut self) {
        self.again.append(&mut self.asked);
        self.is_needed = true;
    }
}
