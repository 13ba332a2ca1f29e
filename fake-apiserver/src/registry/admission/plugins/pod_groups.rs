//! `PodGroupWorkloadExists`: a new PodGroup is refused if it refers to a missing or terminating Workload, or to a
//! template that the Workload does not have.

use crate::api::field::quote;
use crate::api::object::Object;
use crate::registry::reader::Reader;
use crate::registry::types::cursor::Cursor;

/// Returns `true` for the resource that the plugin checks.
pub(super) fn concerns(group: &str, resource: &str) -> bool {
    (group, resource) == ("scheduling.k8s.io", "podgroups")
}

/// Checks a new PodGroup. Fails with the reason of the refusal.
pub(super) fn check(reader: &Reader, pod_group: &Object) -> Result<(), String> {
    let object = Cursor::root(pod_group);
    let Some(reference) = object.present("spec.podGroupTemplateRef.workload") else {
        return Ok(());
    };
    let (name, template) = (reference.text("workloadName"), reference.text("podGroupTemplateName"));
    let workloads = reader.objects_in("scheduling.k8s.io", "workloads", pod_group.namespace());
    let Some(workload) = workloads.iter().find(|it| it.name() == name) else {
        return Err(format!("PodGroup rejected: Workload {} not found", quote(name)));
    };
    if workload.is_terminating() {
        return Err(format!("PodGroup rejected: Workload {} is being deleted", quote(name)));
    }
    let workload = Cursor::root(workload);
    let mut templates = workload.items("spec.podGroupTemplates");
    match templates.any(|it| it.text("name") == template) {
        true => Ok(()),
        false => Err(format!(
            "PodGroup rejected: PodGroupTemplate {} not found in Workload {}",
            quote(template),
            quote(name)
        )),
    }
}
