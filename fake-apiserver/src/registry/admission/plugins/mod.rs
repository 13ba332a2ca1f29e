//! The admission plugins of kube-apiserver that depend on other stored objects or on the user's permissions.
//! `topology_labels` mutates, `limit_ranger`, `service_account`, `runtime_class` and `classes` mutate and validate,
//! `certificates`, `owner_references`, `pod_groups`, `pod_resize` and `pod_security` validate, in the order of
//! `validation`.
//! `resource_quota` checks and charges quotas, and `quota_controller` updates them; both use `usage`. `service_account`
//! uses `pod_secrets`. Plugins for a single kind are in the `admit` of its strategy. `types/plugins.rs` lists the
//! enabled plugins.

mod certificates;
mod classes;
mod limit_ranger;
mod owner_references;
mod pod_groups;
mod pod_resize;
mod pod_secrets;
mod pod_security;
mod pod_security_checks;
pub(super) mod quota_controller;
mod resource_quota;
mod runtime_class;
mod service_account;
mod topology_labels;
mod usage;
mod validation;

use super::Admission;
use super::attributes::Attributes;
use crate::api::admission::Operation;
use crate::api::object::Object;
use crate::api::status::Status;
use crate::registry::request::Conditions;
use crate::registry::scheme::Row;
pub(super) use validation::validate;

pub(crate) use crate::registry::types::plugins::{Plugin, PluginSet};

/// Runs the mutating plugins in order.
pub(super) fn mutate(admission: &Admission, attributes: &mut Attributes<'_>) -> Result<(), Status> {
    let row = attributes.row;
    let (group, resource) = (&*row.info.group, &*row.info.resource);
    let (operation, subresource) = (attributes.operation, attributes.subresource);
    let Attributes { object, old, .. } = &mut *attributes;
    let Some(object) = object else { return Ok(()) };
    let plugins = &admission.setup.plugins;
    let copies_labels = plugins.has(Plugin::PodTopologyLabels) && topology_labels::is_enabled(&admission.reader);
    let creates_pod = (group, resource, operation) == ("", "pods", Operation::Create);
    if !subresource.is_empty() {
        if creates_pod && subresource == "binding" && copies_labels {
            topology_labels::label_binding(&admission.reader, object);
        }
        let resizes = (group, resource, operation, subresource) == ("", "pods", Operation::Update, "resize");
        if resizes && plugins.has(Plugin::LimitRanger) && !old.as_ref().is_some_and(Object::is_terminating) {
            limit_ranger::set_defaults(&admission.reader, object);
        }
        return Ok(());
    }
    let refused = |object: &Object, why: String| Err(Status::forbidden(&row.info.group_resource(), object.name(), why));
    if creates_pod {
        if plugins.has(Plugin::LimitRanger) {
            limit_ranger::set_defaults(&admission.reader, object);
        }
        if plugins.service_account {
            service_account::admit(&admission.reader, object).or_else(|why| refused(object, why))?;
        }
    }
    admission
        .reader
        .with_context(Conditions::default(), |context| {
            row.strategy().admit(object, old.as_ref(), context)
        })
        .or_else(|why| refused(object, why))?;
    if creates_pod {
        if plugins.has(Plugin::RuntimeClass) {
            runtime_class::admit(&admission.reader, object).or_else(|why| refused(object, why))?;
        }
        if copies_labels {
            topology_labels::label_pod(&admission.reader, object);
        }
    }
    if operation == Operation::Create {
        match (group, resource) {
            ("", "persistentvolumeclaims") if plugins.has(Plugin::DefaultStorageClass) => {
                classes::set_storage_class(&admission.reader, object);
            }
            ("networking.k8s.io", "ingresses") if plugins.has(Plugin::DefaultIngressClass) => {
                classes::set_ingress_class(&admission.reader, object);
            }
            _ => {}
        }
    }
    Ok(())
}

/// Returns `true` if a plugin may have to check writes of this resource. Quotas are only checked if there are
/// ResourceQuotas.
pub(super) fn may_validate(admission: &Admission, row: &Row) -> bool {
    let (group, resource) = (&*row.info.group, &*row.info.resource);
    admission.setup.plugins.owner_references
        || resource_quota::is_used(&admission.reader)
        || matches!(
            (group, resource),
            ("", "pods" | "persistentvolumeclaims") | ("scheduling.k8s.io", "priorityclasses")
        )
        || pod_security::concerns(group, resource)
        || certificates::concerns(group, resource)
        || pod_groups::concerns(group, resource)
}

/// Charges an accepted write to the quotas.
pub(super) fn charge_quota(admission: &Admission, attributes: &Attributes<'_>) -> Result<(), Status> {
    if !resource_quota::is_used(&admission.reader) || !admission.setup.plugins.has(Plugin::ResourceQuota) {
        return Ok(());
    }
    resource_quota::charge(admission, attributes)
}

impl Admission {
    /// Called after a commit: marks the parsed configuration as outdated if one of its objects was written, and updates
    /// quotas if the quota controller is enabled.
    pub(crate) fn written(&self, row: &Row, key: &crate::storage::Key) {
        if row.info.group == super::attributes::GROUP {
            self.invalidate();
        }
        if self.setup.plugins.counts_quota && !key.namespace().is_empty() {
            self.quota_controller.catch_up(&self.reader, &self.writer);
        }
    }
}
