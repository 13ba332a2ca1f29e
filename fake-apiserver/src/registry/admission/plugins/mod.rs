//! The admission plugins of the API server itself that need nothing but its storage. `limit_ranger`, `service_account`
//! and `classes` fill in and refuse, `resource_quota` checks and `quota_controller` counts with `usage`; what a kind
//! alone is concerned with is its strategy's `admit`.

mod classes;
mod limit_ranger;
mod pod_security;
mod pod_security_checks;
pub(super) mod quota_controller;
mod resource_quota;
mod service_account;
mod usage;

use super::Admission;
use super::attributes::Attributes;
use crate::api::admission::Operation;
use crate::api::object::Object;
use crate::api::status::Status;
use crate::registry::request::Conditions;
use crate::registry::scheme::Row;

/// The optional plugins that are on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PluginSet {
    /// `ServiceAccount`: off by default, because nothing makes the ServiceAccounts that it asks for.
    pub(crate) service_account: bool,
    /// Set if `status` of ResourceQuotas is kept up to date as by the quota controller.
    pub(crate) counts_quota: bool,
}

/// Applies the mutating plugins, in their order.
pub(super) fn mutate(admission: &Admission, attributes: &mut Attributes<'_>) -> Result<(), Status> {
    if !attributes.subresource.is_empty() {
        return Ok(());
    }
    let row = attributes.row;
    let (group, resource) = (&*row.info.group, &*row.info.resource);
    let operation = attributes.operation;
    let Attributes { object, old, .. } = &mut *attributes;
    let Some(object) = object else { return Ok(()) };
    let refused = |object: &Object, why: String| Err(Status::forbidden(&row.info.group_resource(), object.name(), why));
    if (group, resource, operation) == ("", "pods", Operation::Create) {
        limit_ranger::set_defaults(&admission.reader, object);
        if admission.setup.plugins.service_account {
            service_account::admit(&admission.reader, object).or_else(|why| refused(object, why))?;
        }
        classes::set_overhead(&admission.reader, object).or_else(|why| refused(object, why))?;
    }
    if operation == Operation::Create {
        match (group, resource) {
            ("", "persistentvolumeclaims") => classes::set_storage_class(&admission.reader, object),
            ("networking.k8s.io", "ingresses") => classes::set_ingress_class(&admission.reader, object),
            _ => {}
        }
    }
    admission
        .reader
        .with_context(Conditions::default(), |context| {
            row.strategy().admit(object, old.as_ref(), context)
        })
        .or_else(|why| refused(object, why))
}

/// Applies the validating plugins, in their order.
pub(super) fn validate(admission: &Admission, attributes: &Attributes<'_>) -> Result<(), Status> {
    let row = attributes.row;
    let Some(object) = &attributes.object else {
        return Ok(());
    };
    let is_checked = match (&*row.info.group, &*row.info.resource, attributes.subresource) {
        ("", "pods", "") => attributes.operation == Operation::Create,
        ("", "pods", "resize") | ("", "persistentvolumeclaims", "") => true,
        _ => false,
    };
    if is_checked {
        limit_ranger::check(&admission.reader, &row.info.resource, object)
            .map_err(|why| Status::forbidden(&row.info.group_resource(), attributes.shown_name(), why))?;
    }
    if let ("", "persistentvolumeclaims", "", Some(old)) = (
        &*row.info.group,
        &*row.info.resource,
        attributes.subresource,
        &attributes.old,
    ) {
        classes::check_resize(&admission.reader, object, old)
            .map_err(|why| Status::forbidden(&row.info.group_resource(), attributes.shown_name(), why))?;
    }
    pod_security::check(&admission.reader, attributes, object)
}

/// Returns `true` if a plugin may examine writes of this resource: only in a server that has the plugins' own objects.
pub(super) fn may_validate(admission: &Admission, row: &Row) -> bool {
    let (group, resource) = (&*row.info.group, &*row.info.resource);
    resource_quota::is_used(&admission.reader)
        || (group.is_empty() && resource == "pods" && limit_ranger::is_used(&admission.reader))
        || (group.is_empty() && resource == "persistentvolumeclaims")
        || pod_security::concerns(group, resource)
}

/// Counts a write that has been accepted.
pub(super) fn charge_quota(admission: &Admission, attributes: &Attributes<'_>) -> Result<(), Status> {
    if !resource_quota::is_used(&admission.reader) {
        return Ok(());
    }
    resource_quota::charge(admission, attributes)
}

impl Admission {
    /// After a commit: configuration is read anew, and quotas are counted where that is asked for.
    pub(crate) fn written(&self, row: &Row, key: &crate::storage::Key) {
        if row.info.group == super::attributes::GROUP {
            self.invalidate();
        }
        if self.setup.plugins.counts_quota && !key.namespace().is_empty() {
            self.quota_controller.catch_up(&self.reader, &self.writer);
        }
    }
}
