//! `PodSecurity`: the levels that the labels of a namespace ask of its Pods.

use crate::api::object::Object;
use crate::api::status::Status;
use crate::registry::Registry;
use crate::registry::admission::attributes::Attributes;

/// Whether writes of this resource are looked at.
pub(super) fn concerns(_group: &str, _resource: &str) -> bool {
    false
}

/// Refuses or warns of what the namespace's labels do not allow.
pub(super) fn check(
    _registry: &Registry,
    _attributes: &Attributes<'_>,
    _object: &Object,
    _warnings: &mut Vec<String>,
) -> Result<(), Status> {
    Ok(())
}
