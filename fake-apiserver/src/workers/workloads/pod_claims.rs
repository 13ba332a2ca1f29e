//! The PersistentVolumeClaims that Pods use: named ones, and the claims of their ephemeral volumes.

use super::cluster::controller_of;
use crate::api::json::Map;
use crate::api::object::Object;
use crate::registry::types::cursor::Cursor;

/// Returns the names of the claims that a Pod uses.
pub(crate) fn claims(pod: &Object) -> Vec<String> {
    let volumes = Cursor::root(pod).maps("spec.volumes");
    volumes
        .filter_map(|it| named_claim(it).or_else(|| ephemeral_claim(pod, it)))
        .collect()
}

pub(crate) fn named_claim(volume: &Map) -> Option<String> {
    let source = Cursor::root(volume).map("persistentVolumeClaim")?;
    Some(Cursor::root(source).text("claimName").to_owned())
}

/// Returns the name of the claim of an ephemeral volume.
pub(crate) fn ephemeral_claim(pod: &Object, volume: &Map) -> Option<String> {
    Cursor::root(volume).map("ephemeral")?;
    Some(format!("{}-{}", pod.name(), Cursor::root(volume).text("name")))
}

/// Returns the reason if a claim with the name of an ephemeral volume was not created for the Pod (Go's
/// `VolumeIsForPod`).
pub(crate) fn foreign(pod: &Object, claim: &Object) -> Option<String> {
    if controller_of(claim).is_some_and(|(_, _, uid)| uid == pod.uid()) {
        return None;
    }
    let (namespace, pod) = (pod.namespace(), pod.name());
    let named = format!("{namespace}/{}", claim.name());
    Some(format!(
        "PVC {named} was not created for pod {namespace}/{pod} (pod is not owner)"
    ))
}

/// Returns `true` if a Pod protects a claim from deletion: from its assignment to a node until its removal. Claims of
/// ephemeral volumes are only protected until the kubelet has stopped the Pod (`podUsesPVC`).
pub(crate) fn protects(pod: &Object, claim: &Object) -> bool {
    if Cursor::root(pod).text("spec.nodeName").is_empty() {
        return false;
    }
    let mut volumes = Cursor::root(pod).maps("spec.volumes");
    volumes.any(|it| {
        let of_pod = ephemeral_claim(pod, it).filter(|_| !is_shut_down(pod) && foreign(pod, claim).is_none());
        named_claim(it).or(of_pod).is_some_and(|it| it == claim.name())
    })
}

/// Returns `true` if a deleted Pod has been stopped by its kubelet, or was deleted without a grace period
/// (`podIsShutDown`).
pub(crate) fn is_shut_down(pod: &Object) -> bool {
    let grace = Cursor::root(pod).integer("metadata.deletionGracePeriodSeconds");
    pod.is_terminating() && grace == Some(0)
}
