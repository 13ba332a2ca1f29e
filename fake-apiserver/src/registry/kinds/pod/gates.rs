//! Fields of Pods and of their templates behind feature gates that are off by default in 1.36: they are dropped before
//! anything is checked, unless the stored object has them (`DropDisabledPodFields` of `pkg/api/pod`).

use serde_json::Value;

use crate::api::object::Object;
use crate::registry::types::access;
use crate::registry::types::view::{JsonMap, is_set, items, items_mut, object, object_mut};

const CONTAINERS: [&str; 3] = ["initContainers", "containers", "ephemeralContainers"];

/// The way to the Pod's spec in an object of this resource.
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

/// Drops what is behind gates from an object that is written.
pub(crate) fn drop_disabled(group: &str, resource: &str, object: &mut Object, old: Option<&Object>) {
    let Some(way) = spec_way(group, resource) else {
        return;
    };
    let old = old.and_then(|it| access::at(it, way)).and_then(Value::as_object);
    let Some(spec) = access::object_mut(object, way) else {
        return;
    };
    // GenericWorkload
    if !old.is_some_and(|it| is_set(it, "schedulingGroup")) {
        spec.remove("schedulingGroup");
    }
    // ContainerStopSignals
    if !old.is_some_and(has_stop_signal) {
        for list in CONTAINERS {
            items_mut(spec, list).for_each(drop_stop_signal);
        }
    }
    for (source, keeps) in [
        // ClusterTrustBundleProjection
        ("clusterTrustBundle", false),
        // PodCertificateRequest
        ("podCertificate", true),
    ] {
        if !(keeps && old.is_some_and(|it| has_source(it, source))) {
            drop_source(spec, source);
        }
    }
}

fn has_stop_signal(spec: &JsonMap) -> bool {
    let mut containers = CONTAINERS.iter().flat_map(|list| items(spec, list));
    containers.any(|(_, it)| object(it, "lifecycle").is_some_and(|it| is_set(it, "stopSignal")))
}

/// A lifecycle that has nothing else goes, too.
fn drop_stop_signal(container: &mut JsonMap) {
    let Some(lifecycle) = object_mut(container, "lifecycle") else {
        return;
    };
    if lifecycle.remove("stopSignal").is_some_and(|it| !it.is_null()) && lifecycle.is_empty() {
        container.remove("lifecycle");
    }
}

fn has_source(spec: &JsonMap, source: &str) -> bool {
    items(spec, "volumes")
        .filter_map(|(_, volume)| object(volume, "projected"))
        .any(|projected| items(projected, "sources").any(|(_, it)| is_set(it, source)))
}

fn drop_source(spec: &mut JsonMap, source: &str) {
    for volume in items_mut(spec, "volumes") {
        if let Some(projected) = object_mut(volume, "projected") {
            for entry in items_mut(projected, "sources") {
                entry.remove(source);
            }
        }
    }
}
