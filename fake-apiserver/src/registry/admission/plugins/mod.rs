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

use super::attributes::Attributes;
use crate::api::admission::Operation;
use crate::api::object::Object;
use crate::api::status::Status;
use crate::registry::Registry;
use crate::registry::scheme::Row;
use crate::registry::scheme::codec;
use crate::registry::write::Conditions;
use crate::storage::Range;

/// The optional plugins that are on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PluginSet {
    /// `ServiceAccount`: off by default, because nothing makes the ServiceAccounts that it asks for.
    pub(crate) service_account: bool,
    /// Set if `status` of ResourceQuotas is kept up to date as by the quota controller.
    pub(crate) counts_quota: bool,
}

/// Applies the mutating plugins, in their order.
pub(super) fn mutate(registry: &Registry, attributes: &mut Attributes<'_>) -> Result<(), Status> {
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
        limit_ranger::set_defaults(registry, object);
        limit_ranger::check(registry, resource, object).or_else(|why| refused(object, why))?;
        if registry.admission.setup().plugins.service_account {
            service_account::admit(registry, object).or_else(|why| refused(object, why))?;
        }
        classes::set_overhead(registry, object).or_else(|why| refused(object, why))?;
    }
    if operation == Operation::Create {
        match (group, resource) {
            ("", "persistentvolumeclaims") => classes::set_storage_class(registry, object),
            ("networking.k8s.io", "ingresses") => classes::set_ingress_class(registry, object),
            _ => {}
        }
    }
    registry
        .with_context(Conditions::default(), |context| {
            row.strategy().admit(object, old.as_ref(), context)
        })
        .or_else(|why| refused(object, why))
}

/// Applies the validating plugins, in their order.
pub(super) fn validate(registry: &Registry, attributes: &Attributes<'_>) -> Result<(), Status> {
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
        limit_ranger::check(registry, &row.info.resource, object)
            .map_err(|why| Status::forbidden(&row.info.group_resource(), attributes.shown_name(), why))?;
    }
    if let ("", "persistentvolumeclaims", "", Some(old)) = (
        &*row.info.group,
        &*row.info.resource,
        attributes.subresource,
        &attributes.old,
    ) {
        classes::check_resize(registry, object, old)
            .map_err(|why| Status::forbidden(&row.info.group_resource(), attributes.shown_name(), why))?;
    }
    pod_security::check(registry, attributes, object)
}

/// Returns `true` if a plugin may examine writes of this resource: only in a server that has the plugins' own objects.
pub(super) fn may_validate(registry: &Registry, row: &Row) -> bool {
    let (group, resource) = (&*row.info.group, &*row.info.resource);
    resource_quota::is_used(registry)
        || (group.is_empty() && resource == "pods" && limit_ranger::is_used(registry))
        || (group.is_empty() && resource == "persistentvolumeclaims")
        || pod_security::concerns(group, resource)
}

/// Counts a write that has been accepted.
pub(super) async fn charge_quota(registry: &Registry, attributes: &Attributes<'_>) -> Result<(), Status> {
    if !resource_quota::is_used(registry) {
        return Ok(());
    }
    resource_quota::charge(registry, attributes).await
}

impl Registry {
    /// After a commit: configuration is read anew, and quotas are counted where that is asked for.
    pub(crate) fn admission_written(&self, row: &Row, key: &crate::storage::Key) {
        if row.info.group == super::config::GROUP {
            self.admission.invalidate();
        }
        if self.admission.setup().plugins.counts_quota && !key.namespace().is_empty() {
            self.admission.quota_controller.catch_up(self);
        }
    }

    /// The objects of a resource in one namespace, in the order of their names.
    pub(super) fn objects_in(&self, group: &str, resource: &str, namespace: &str) -> Vec<Object> {
        let scheme = self.scheme();
        let Some(row) = scheme
            .rows()
            .find(|row| row.info.group == group && row.info.resource == resource && row.is_storage_version)
        else {
            return Vec::new();
        };
        let range = Range::of(Some(namespace));
        let snapshot = self.store.snapshot(&row.storage);
        snapshot
            .range(&range)
            .map(|stored| codec::decode(row, stored))
            .collect()
    }
}
