//! `PodResizeValidator`: a Pod on a Node can only be resized if the Node runs Linux and has the requested resources.

use super::usage;
use crate::api::kubernetes_version::KubernetesVersion;
use crate::api::object::Object;
use crate::api::status::Status;
use crate::registry::reader::Reader;
use crate::registry::types::cursor::Cursor;
use crate::registry::types::quantity::Quantity;

/// Converts a quantity to an integer.
type Measure = fn(&Quantity) -> i64;

/// The reason why a Pod cannot be resized.
pub(super) struct Refusal {
    /// The part of the message after `pods "p" is forbidden: `.
    why: String,
    /// Type of the cause; empty without a cause.
    cause: &'static str,
}

impl Refusal {
    pub(super) fn into_status(self, refused: impl Fn(String) -> Status) -> Status {
        let status = refused(self.why);
        match self.cause {
            "" => status,
            cause => status.with_cause(cause, "", ""),
        }
    }
}

/// Returns `true` if this version of Kubernetes has the plugin.
pub(super) fn is_enabled(reader: &Reader) -> bool {
    reader.scheme().version >= KubernetesVersion::V1_36
}

/// Checks the resize of a Pod that has a Node.
pub(super) fn check(reader: &Reader, pod: &Object, old: &Object) -> Result<(), Refusal> {
    let (root, old) = (Cursor::root(pod), Cursor::root(old));
    let name = root.text("spec.nodeName");
    let is_changed = root.integer("metadata.generation") != old.integer("metadata.generation");
    if name.is_empty() || !is_changed {
        return Ok(());
    }
    let node = reader.stored_object("nodes", "", name).ok_or_else(|| Refusal {
        why: format!("node \"{name}\" not found"),
        cause: "",
    })?;
    let system = Cursor::root(&node)
        .map_or_empty("metadata.labels")
        .get("kubernetes.io/os");
    if let Some(system) = system.filter(|it| **it != "linux") {
        let system = system.as_str().unwrap_or_default();
        return Err(Refusal {
            why: format!("pod resize is only supported on linux nodes, node \"{name}\" is \"{system}\""),
            cause: "UnsupportedPlatform",
        });
    }
    let measures = [
        ("cpu", Quantity::milli_value as Measure),
        ("memory", Quantity::value as Measure),
    ];
    let allocatable = Cursor::root(&node).map_or_empty("status.allocatable");
    let excess = |(resource, number): (&str, fn(&Quantity) -> i64)| {
        let available = allocatable
            .get(resource)
            .and_then(|it| Quantity::parse(it.as_str()?).ok());
        let available = available.unwrap_or_else(|| Quantity::from_int(0));
        let requested = usage::of_pod(resource, &root.at("spec")).filter(|it| *it > available)?;
        let (requested, available) = (number(&requested), number(&available));
        Some(format!("{resource}, requested: {requested}, allocatable: {available}"))
    };
    let short: Vec<String> = measures.into_iter().filter_map(excess).collect();
    match short.is_empty() {
        true => Ok(()),
        false => Err(Refusal {
            why: format!("node didn't have enough allocatable resources: {}", short.join("; ")),
            cause: "NodeCapacity",
        }),
    }
}
