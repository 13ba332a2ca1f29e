//! Replaces `policies` if the feature `cel` is disabled: policies are ignored, and match conditions are refused.

#![expect(clippy::unused_self, reason = "with the feature it uses self")]

use super::Admission;
use super::attributes::Attributes;
use super::matching::Matched;
use super::plugins::PluginSet;
use super::reinvocation::Reinvocation;
use crate::api::object::Object;
use crate::api::status::Status;
use crate::registry::reader::Reader;
use crate::registry::scheme::Scheme;

/// Returns no warnings: without CEL the server rejects policies that contain expressions.
pub(crate) fn type_warnings(_: &Object, _: &Scheme) -> Vec<(String, String)> {
    Vec::new()
}

/// Always empty: policies with expressions cannot be stored.
#[derive(Debug, Default)]
pub(super) struct Policies;

impl Policies {
    pub(super) fn read(_: &Reader, _: &PluginSet) -> Self {
        Self
    }

    pub(super) fn may_mutate(&self) -> bool {
        false
    }

    pub(super) fn may_validate(&self) -> bool {
        false
    }
}

impl Admission {
    pub(super) async fn meets_conditions(
        &self,
        conditions: &[(String, String)],
        _ignores_failure: bool,
        attributes: &Attributes<'_>,
        _matched: &Matched,
    ) -> Result<bool, Status> {
        if conditions.is_empty() {
            return Ok(true);
        }
        let why = "matchConditions require the feature cel of the crate fake-apiserver";
        Err(Status::forbidden(
            &attributes.row.info.group_resource(),
            &attributes.name,
            why,
        ))
    }

    pub(super) async fn validate_by_policies(&self, _: &Policies, _: &Attributes<'_>) -> Result<(), Status> {
        Ok(())
    }

    pub(super) async fn mutate_by_policies(
        &self,
        _: &Policies,
        _: &mut Attributes<'_>,
        _: &mut Reinvocation,
        _: bool,
    ) -> Result<(), Status> {
        Ok(())
    }
}
