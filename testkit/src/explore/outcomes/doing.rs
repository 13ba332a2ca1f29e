//! `Doing`: a write that the test itself makes.

use std::time::Duration;

use fake_apiserver::Verb;

/// A write that the test itself makes.
#[derive(Clone, Debug)]
pub(crate) struct Doing {
    /// Virtual time since the run began.
    pub(crate) at: Duration,
    pub(crate) verb: Verb,
    /// The plural with its group: `deployments.apps`.
    pub(crate) resource: String,
    /// The subresource with a leading slash, such as `/status`; empty without one.
    pub(crate) subresource: String,
    /// `namespace/name`, or the name.
    pub(crate) object: String,
    /// Status code of the response.
    pub(crate) code: u16,
    /// `resourceVersion` in the response.
    pub(crate) wrote: Option<u64>,
}

impl Doing {
    /// Returns the resource and the object: `deployments.apps shop/blog`.
    pub(crate) fn key(&self) -> String {
        format!("{} {}", self.resource, self.object)
    }

    /// Describes the write: `CREATE deployments.apps shop/blog`.
    pub(crate) fn text(&self) -> String {
        let verb = self.verb.as_str().to_uppercase();
        format!("{verb} {}{} {}", self.resource, self.subresource, self.object)
    }
}
