//! Admission by expressions: policies and match conditions (rules P5, P7, P8), evaluated by `registry/cel`. Without the
//! feature `cel`, `absent.rs` replaces this module.

mod authorizer;
mod environment;
mod params;
#[cfg(feature = "workers")]
mod type_check;
mod validating;
mod mutating;

use super::attributes::GROUP;
use super::plugins::{Plugin, PluginSet};
use crate::api::object::Object;
use crate::registry::reader::Reader;
use crate::registry::types::cursor::Cursor;
use mutating::MutatingPolicy;
use validating::Policy;

#[cfg(feature = "workers")]
pub(crate) use type_check::type_warnings;

/// All policies with bindings, sorted by name.
#[derive(Debug, Default)]
pub(super) struct Policies {
    validating: Vec<Policy>,
    mutating: Vec<MutatingPolicy>,
}

impl Policies {
    /// Reads the stored policies and their bindings.
    pub(super) fn read(reader: &Reader, plugins: &PluginSet) -> Self {
        let stored = |plugin: Plugin, resource: &str| match plugins.has(plugin) {
            true => reader.stored_objects(GROUP, resource),
            false => Vec::new(),
        };
        let (validating, mutating) = (Plugin::ValidatingAdmissionPolicy, Plugin::MutatingAdmissionPolicy);
        Self {
            validating: validating::read(
                &stored(validating, "validatingadmissionpolicies"),
                &stored(validating, "validatingadmissionpolicybindings"),
            ),
            mutating: mutating::read(
                &stored(mutating, "mutatingadmissionpolicies"),
                &stored(mutating, "mutatingadmissionpolicybindings"),
            ),
        }
    }

    /// Returns `true` if a policy may change objects.
    pub(super) fn may_mutate(&self) -> bool {
        !self.mutating.is_empty()
    }

    /// Returns `true` if a policy validates objects.
    pub(super) fn may_validate(&self) -> bool {
        !self.validating.is_empty()
    }
}

/// Returns the bindings of a policy, sorted by name.
fn bindings_of<'a>(policy: &str, bindings: &'a [Object]) -> impl Iterator<Item = &'a Object> {
    bindings
        .iter()
        .filter(move |it| Cursor::root(it).text("spec.policyName") == policy)
}
