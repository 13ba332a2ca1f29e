//! The order of the validating plugins, as in `AllOrderedPlugins` of kube-apiserver.

use super::{
    Plugin, certificates, classes, limit_ranger, owner_references, pod_groups, pod_resize, pod_security, runtime_class,
    service_account,
};
use crate::api::admission::Operation;
use crate::api::object::Object;
use crate::api::status::Status;
use crate::registry::admission::Admission;
use crate::registry::admission::attributes::Attributes;

/// Runs the validating plugins in order.
pub(in super::super) fn validate(admission: &Admission, attributes: &Attributes<'_>) -> Result<(), Status> {
    let Some(object) = &attributes.object else {
        return Ok(());
    };
    let row = attributes.row;
    let (group, resource, subresource) = (&*row.info.group, &*row.info.resource, attributes.subresource);
    let (operation, old) = (attributes.operation, attributes.old.as_ref());
    let (reader, plugins) = (&admission.reader, &admission.setup.plugins);
    let refused = |why: String| Status::forbidden(&row.info.group_resource(), attributes.shown_name(), why);
    let creates = |of_group: &str, of_resource: &str| {
        operation == Operation::Create && (group, resource, subresource) == (of_group, of_resource, "")
    };
    let is_limited = match (group, resource, subresource) {
        ("", "pods", "") => operation == Operation::Create,
        ("", "pods", "resize") | ("", "persistentvolumeclaims", "") => true,
        _ => false,
    };
    // An object that is being deleted may exceed limits that were set later.
    if is_limited && !old.is_some_and(Object::is_terminating) && plugins.has(Plugin::LimitRanger) {
        limit_ranger::check(reader, resource, object).map_err(refused)?;
    }
    if plugins.service_account
        && (group, resource, subresource, operation) == ("", "pods", "ephemeralcontainers", Operation::Update)
    {
        let account = service_account::account_of_ephemeral_containers(reader, object).map_err(refused)?;
        // In Go, this error is not converted to a Status, so it is an internal error without a reason.
        let failed = |why: String| Status::new(500, "", why);
        service_account::check_ephemeral_containers(&account, object).map_err(failed)?;
    }
    if plugins.has(Plugin::PodSecurity) {
        pod_security::check(reader, attributes, object)?;
    }
    if (group, resource) == ("scheduling.k8s.io", "priorityclasses") && plugins.has(Plugin::Priority) {
        classes::check_default_priority(reader, object, operation).map_err(refused)?;
    }
    if plugins.owner_references {
        owner_references::check(admission, attributes, object).map_err(refused)?;
    }
    if let ("", "persistentvolumeclaims", "", Some(old)) = (group, resource, subresource, old)
        && plugins.has(Plugin::PersistentVolumeClaimResize)
    {
        classes::check_resize(reader, object, old).map_err(refused)?;
    }
    if creates("", "pods") && plugins.has(Plugin::RuntimeClass) {
        runtime_class::check(reader, object).map_err(refused)?;
    }
    if certificates::concerns(group, resource) {
        certificates::check(admission, attributes, object)?;
    }
    if pod_groups::concerns(group, resource) && creates(group, resource) && plugins.has(Plugin::PodGroupWorkloadExists)
    {
        pod_groups::check(reader, object).map_err(refused)?;
    }
    if let ("", "pods", "resize", Some(old)) = (group, resource, subresource, old)
        && plugins.has(Plugin::PodResizeValidator)
        && pod_resize::is_enabled(reader)
    {
        pod_resize::check(reader, object, old).map_err(|refusal| refusal.into_status(refused))?;
    }
    Ok(())
}
