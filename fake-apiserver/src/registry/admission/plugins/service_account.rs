//! `ServiceAccount`: sets the ServiceAccount of a new Pod, and adds its token and its pull secrets (rule P9). Disabled
//! by default.

use super::pod_secrets;
use crate::api::json::json;
use crate::api::object::Object;
use crate::registry::reader::Reader;
use crate::registry::types::cursor::Cursor;
use crate::registry::types::edit::{ensure_object, items_mut};

/// ServiceAccount of a Pod that does not set one.
const DEFAULT: &str = "default";
/// Mount path of the token in containers.
const MOUNT_PATH: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
/// Lifetime of a projected token in seconds, same as in kube-apiserver.
const TOKEN_SECONDS: i64 = 3607;
/// Annotation of a mirror pod, which a kubelet creates for a static pod.
const MIRROR: &str = "kubernetes.io/config.mirror";

/// Completes a new Pod. Fails with the part of the message after `pods "p" is forbidden: `.
pub(super) fn admit(reader: &Reader, pod: &mut Object) -> Result<(), String> {
    if Cursor::root(pod).at("metadata.annotations").entry(MIRROR).is_set("") {
        return check_mirror(pod);
    }
    let mut name = Cursor::root(pod).text("spec.serviceAccountName").to_owned();
    if name.is_empty() {
        DEFAULT.clone_into(&mut name);
        let spec = ensure_object(pod, "spec");
        spec.insert("serviceAccountName".into(), DEFAULT.into());
        spec.insert("serviceAccount".into(), DEFAULT.into());
    }
    let account = &account_of(reader, pod, &name)?;
    let mounts = Cursor::root(pod)
        .flag("spec.automountServiceAccountToken")
        .or_else(|| Cursor::root(account).flag("automountServiceAccountToken"))
        .unwrap_or(true);
    if mounts {
        mount_token(reader, pod);
    }
    let secrets = Cursor::root(account).list("imagePullSecrets");
    if Cursor::root(pod).is_empty("spec.imagePullSecrets") && !secrets.is_empty() {
        let secrets = secrets.to_vec();
        ensure_object(pod, "spec").insert("imagePullSecrets".into(), secrets.into());
    }
    if pod_secrets::are_limited(account) {
        pod_secrets::check(account, pod)?;
    }
    Ok(())
}

/// Returns the ServiceAccount of a Pod, for a change of its ephemeral containers.
pub(super) fn account_of_ephemeral_containers(reader: &Reader, pod: &Object) -> Result<Object, String> {
    let name = Cursor::root(pod).text("spec.serviceAccountName");
    if name.is_empty() {
        let (namespace, name) = (pod.namespace(), pod.name());
        return Err(format!("no service account specified for pod {namespace}/{name}"));
    }
    account_of(reader, pod, name)
}

/// Checks the Secrets of a Pod's ephemeral containers (`limitEphemeralContainerSecretReferences`).
pub(super) fn check_ephemeral_containers(account: &Object, pod: &Object) -> Result<(), String> {
    match pod_secrets::are_limited(account) {
        true => pod_secrets::check_ephemeral_containers(account, pod),
        false => Ok(()),
    }
}

fn account_of(reader: &Reader, pod: &Object, name: &str) -> Result<Object, String> {
    let namespace = pod.namespace();
    let account = reader.stored_object("serviceaccounts", namespace, name);
    account.ok_or_else(|| {
        format!("error looking up service account {namespace}/{name}: serviceaccount \"{name}\" not found")
    })
}

/// Checks that a mirror pod does not use a ServiceAccount, the token of a ServiceAccount, or Secrets.
fn check_mirror(pod: &Object) -> Result<(), String> {
    if !Cursor::root(pod).is_empty("spec.serviceAccountName") {
        return Err("a mirror pod may not reference service accounts".to_owned());
    }
    if pod_secrets::are_referenced(pod) {
        return Err("a mirror pod may not reference secrets".to_owned());
    }
    let is_token = |source: Cursor<'_>| source.is_set("serviceAccountToken");
    let mut volumes = Cursor::root(pod).maps("spec.volumes");
    if volumes.any(|volume| Cursor::root(volume).items("projected.sources").any(is_token)) {
        return Err("a mirror pod may not use ServiceAccountToken volume projections".to_owned());
    }
    Ok(())
}

/// Mounts a token into every container, unless the container has another mount at this path. An existing token volume
/// is reused.
fn mount_token(reader: &Reader, pod: &mut Object) {
    const PREFIX: &str = "kube-api-access-";
    let read = Cursor::root(pod);
    let present = read.maps("spec.volumes").map(|it| Cursor::root(it).text("name"));
    let present = present
        .filter(|name| name.starts_with(PREFIX))
        .map(str::to_owned)
        .next();
    let is_new = present.is_none();
    let name = present.unwrap_or_else(|| format!("{PREFIX}{}", reader.entropy.name_suffix()));
    let mut is_mounted = false;
    for path in ["spec.initContainers", "spec.containers"] {
        for container in items_mut(pod, path) {
            let has_one = Cursor::root(container)
                .items("volumeMounts")
                .any(|it| it.text("mountPath") == MOUNT_PATH);
            if has_one {
                continue;
            }
            let mounts = container.entry("volumeMounts").or_insert_with(|| json!([]));
            if mounts.is_null() {
                *mounts = json!([]);
            }
            if let Some(mounts) = mounts.as_array_mut() {
                mounts.push(json!({"name": name, "readOnly": true, "mountPath": MOUNT_PATH}));
                is_mounted = true;
            }
        }
    }
    if !(is_mounted && is_new) {
        return;
    }
    let volume = json!({"name": name, "projected": {"sources": [
        {"serviceAccountToken": {"expirationSeconds": TOKEN_SECONDS, "path": "token"}},
        {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
        {"downwardAPI": {"items": [
            {"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}},
        ]}},
    ], "defaultMode": 420}});
    let volumes = ensure_object(pod, "spec").entry("volumes").or_insert_with(|| json!([]));
    if volumes.is_null() {
        *volumes = json!([]);
    }
    if let Some(volumes) = volumes.as_array_mut() {
        volumes.push(volume);
    }
}
