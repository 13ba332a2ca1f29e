//! Admission by expressions: policies and match conditions (rules P5, P7, P8). It knows the attributes of a request and
//! which of them match; the language is `registry/cel`. `absent.rs` stands here where that is not built.

mod authorizer;
mod environment;
mod params;
mod validating;
mod mutating;

use super::attributes::GROUP;
use crate::api::object::Object;
use crate::registry::reader::Reader;
use crate::registry::types::cursor::Cursor;
use mutating::MutatingPolicy;
use validating::Policy;

/// All policies that are bound, in the order of their names.
#[derive(Debug, Default)]
pub(super) struct Policies {
    validating: Vec<Policy>,
    mutating: Vec<MutatingPolicy>,
}

impl Policies {
    /// Reads the stored policies and their bindings.
    pub(super) fn read(reader: &Reader) -> Self {
        let stored = |resource: &str| reader.stored_objects(GROUP, resource);
        Self {
            validating: validating::read(
                &stored("validatingadmissionpolicies"),
                &stored("validatingadmissionpolicybindings"),
            ),
            mutating: mutating::read(
                &stored("mutatingadmissionpolicies"),
                &stored("mutatingadmissionpolicybindings"),
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

/// The bindings of a policy, in the order of their names.
fn bindings_of<'a>(policy: &str, bindings: &'a [Object]) -> impl Iterator<Item = &'a Object> {
    bindings
        .iter()
        .filter(move |it| Cursor::root(it).text("spec.policyName") == policy)
}
