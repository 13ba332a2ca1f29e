//! `PodTopologyLabels`: copies the zone and the region of a Node to Pods that are created with this Node, and to
//! Bindings, in place of their own labels. A Binding's labels are added to its Pod.

use crate::api::kubernetes_version::KubernetesVersion;
use crate::api::object::Object;
use crate::registry::reader::Reader;
use crate::registry::types::cursor::Cursor;
use crate::registry::types::edit::ensure_object;

/// Labels that are copied.
const LABELS: [&str; 2] = ["topology.kubernetes.io/zone", "topology.kubernetes.io/region"];

/// Returns `true` if the gate `PodTopologyLabelsAdmission` is enabled by default.
pub(super) fn is_enabled(reader: &Reader) -> bool {
    reader.scheme().version >= KubernetesVersion::V1_35
}

/// Sets the labels of the Node on a new Pod.
pub(super) fn label_pod(reader: &Reader, pod: &mut Object) {
    let node = Cursor::root(pod).text("spec.nodeName").to_owned();
    label(reader, pod, &node);
}

/// Sets the labels of the Node on a Binding.
pub(super) fn label_binding(reader: &Reader, binding: &mut Object) {
    let target = Cursor::root(binding);
    // A Binding without a kind also assigns the Pod to a Node, but the plugin ignores it.
    if target.text("target.kind") == "Node" {
        let node = target.text("target.name").to_owned();
        label(reader, binding, &node);
    }
}

fn label(reader: &Reader, object: &mut Object, node: &str) {
    let Some(node) = reader.stored_object("nodes", "", node).filter(|_| !node.is_empty()) else {
        return;
    };
    let node = Cursor::root(&node);
    let Some(known) = node.map("metadata.labels") else {
        return;
    };
    for name in LABELS {
        if let Some(value) = known.get(name) {
            ensure_object(object.metadata_mut(), "labels").insert(name.into(), value.clone());
        }
    }
}
