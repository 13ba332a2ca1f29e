//! Fields of Pods and their templates that depend on feature gates that are disabled by default. These fields are
//! dropped before validation, unless the stored object has them (`DropDisabledPodFields` of `pkg/api/pod`).

use super::defaults::CONTAINER_LISTS;
use super::windows::containers;
use crate::api::json::Map;
use crate::api::kubernetes_version::KubernetesVersion;
use crate::api::object::Object;
use crate::registry::types::cursor::Cursor;
use crate::registry::types::edit::{items_mut, object_mut};

/// Returns the path of the pod spec in objects of this resource.
fn spec_way(group: &str, resource: &str) -> Option<&'static str> {
    Some(match (group, resource) {
        ("", "pods") => "spec",
        ("", "podtemplates") => "template.spec",
        ("", "replicationcontrollers")
        | ("apps", "daemonsets" | "deployments" | "replicasets" | "statefulsets")
        | ("batch", "jobs") => "spec.template.spec",
        ("batch", "cronjobs") => "spec.jobTemplate.spec.template.spec",
        _ => return None,
    })
}

/// Drops fields that depend on disabled gates from a written object.
pub(crate) fn drop_disabled(
    version: KubernetesVersion,
    (group, resource): (&str, &str),
    object: &mut Object,
    old: Option<&Object>,
) {
    let Some(way) = spec_way(group, resource) else {
        return;
    };
    let Some(spec) = object_mut(object, way) else {
        return;
    };
    let old = old.map(|old| Cursor::root(old));
    let old = old.as_ref().and_then(|old| old.present(way));
    // `schedulingGroup` depends on the gate GenericWorkload.
    if !old.is_some_and(|it| it.is_set("schedulingGroup")) {
        spec.remove("schedulingGroup");
    }
    // `stopSignal` depends on the gate ContainerStopSignals.
    if !old.is_some_and(|it| containers(&it).any(|it| it.is_set("lifecycle.stopSignal"))) {
        for list in CONTAINER_LISTS {
            items_mut(spec, list).for_each(drop_stop_signal);
        }
    }
    // The gates below are enabled by default since 1.37.
    if version >= KubernetesVersion::V1_37 {
        return;
    }
    for (source, keeps) in [
        // Depends on the gate ClusterTrustBundleProjection. Sources of the stored object are dropped as well.
        ("clusterTrustBundle", false),
        // Depends on the gate PodCertificateRequest.
        ("podCertificate", true),
    ] {
        if !(keeps && old.is_some_and(|it| has_source(&it, source))) {
            drop_source(spec, source);
        }
    }
}

/// Drops `lifecycle.stopSignal`, and also `lifecycle` if it has no other fields.
fn drop_stop_signal(container: &mut Map) {
    let Some(lifecycle) = object_mut(container, "lifecycle") else {
        return;
    };
    if lifecycle.remove("stopSignal").is_some_and(|it| !it.is_null()) && lifecycle.is_empty() {
        container.remove("lifecycle");
    }
}

fn has_source(spec: &Cursor<'_>, source: &str) -> bool {
    let mut volumes = spec.items("volumes");
    volumes.any(|volume| volume.items("projected.sources").any(|it| it.is_set(source)))
}

fn drop_source(spec: &mut Map, source: &str) {
    for volume in items_mut(spec, "volumes") {
        for entry in items_mut(volume, "projected.sources") {
            entry.remove(source);
        }
    }
}
