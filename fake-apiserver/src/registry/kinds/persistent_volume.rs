//! PersistentVolumes.

use serde_json::{Map, Value, json};

use super::persistent_volume_claim::{add_finalizer, validate_access_modes};
use super::strategy::{Context, Strategy};
use crate::api::field::{FieldErrors, FieldPath};
use crate::api::object::Object;
use crate::registry::types::access::{at, default_to, ensure_object, object_mut, restore, text};

/// Keeps a volume that a claim still uses.
const PROTECTION: &str = "kubernetes.io/pv-protection";
const RECLAIM_POLICIES: [&str; 3] = ["Delete", "Recycle", "Retain"];
/// What a volume may be made of; exactly one is set.
const SOURCES: [&str; 22] = [
    "awsElasticBlockStore",
    "azureDisk",
    "azureFile",
    "cephfs",
    "cinder",
    "csi",
    "fc",
    "flexVolume",
    "flocker",
    "gcePersistentDisk",
    "glusterfs",
    "hostPath",
    "iscsi",
    "local",
    "nfs",
    "photonPersistentDisk",
    "portworxVolume",
    "quobyte",
    "rbd",
    "scaleIO",
    "storageos",
    "vsphereVolume",
];

/// The strategy of PersistentVolumes.
#[derive(Debug)]
pub(crate) struct PersistentVolume;

impl Strategy for PersistentVolume {
    fn default(&self, object: &mut Object) {
        let spec = ensure_object(object, "spec");
        default_to(spec, "persistentVolumeReclaimPolicy", "Retain");
        default_to(spec, "volumeMode", "Filesystem");
        if let Some(host_path) = object_mut(spec, "hostPath")
            && host_path.get("type").is_none_or(Value::is_null)
        {
            host_path.insert("type".into(), json!(""));
        }
        default_to(ensure_object(object, "status"), "phase", "Pending");
    }

    fn prepare_for_create(&self, object: &mut Object, context: &Context<'_>) {
        let status = json!({"phase": "Pending", "lastPhaseTransitionTime": context.entropy.now_seconds()});
        object.insert("status".into(), status);
        add_finalizer(object, PROTECTION);
    }

    fn validate(&self, object: &Object, errors: &mut FieldErrors) {
        let path = FieldPath::new("spec");
        validate_access_modes(object, errors);
        let empty = Map::new();
        let spec = at(object, "spec").and_then(Value::as_object).unwrap_or(&empty);
        if at(spec, "capacity")
            .and_then(Value::as_object)
            .is_none_or(Map::is_empty)
        {
            errors.required(path.child("capacity"), "");
        } else if at(spec, "capacity.storage").is_none() {
            let given = at(spec, "capacity").and_then(Value::as_object).into_iter().flatten();
            for (resource, _) in given {
                errors.not_supported(path.child("capacity"), resource.as_str(), &["storage"]);
            }
        }
        let policy = text(spec, "persistentVolumeReclaimPolicy");
        if !RECLAIM_POLICIES.contains(&policy) {
            errors.not_supported(path.child("persistentVolumeReclaimPolicy"), policy, &RECLAIM_POLICIES);
        }
        let mode = text(spec, "volumeMode");
        if !matches!(mode, "" | "Block" | "Filesystem") {
            errors.not_supported(path.child("volumeMode"), mode, &["Block", "Filesystem"]);
        }
        let mut sources = SOURCES.iter().filter(|source| at(spec, source).is_some());
        if sources.next().is_none() {
            errors.required(path, "must specify a volume type");
        } else {
            for source in sources {
                errors.forbidden(path.child(source), "may not specify more than 1 volume type");
            }
        }
    }

    fn prepare_for_update(&self, object: &mut Object, old: &Object, context: &Context<'_>) {
        if context.subresource == "status" {
            restore(object, old, "spec");
            if at(object, "status.phase") != at(old, "status.phase") {
                let now = context.entropy.now_seconds();
                ensure_object(object, "status").insert("lastPhaseTransitionTime".into(), now.into());
            }
        }
    }

    fn validate_update(&self, object: &Object, old: &Object, errors: &mut FieldErrors, context: &Context<'_>) {
        if !context.subresource.is_empty() {
            return;
        }
        self.validate(object, errors);
        let source = |it: &Object, source| at(it, "spec").and_then(|spec| spec.get(source)).cloned();
        if SOURCES.iter().any(|name| source(object, *name) != source(old, *name)) {
            let text = "spec.persistentvolumesource is immutable after creation";
            errors.forbidden(FieldPath::new("spec.persistentvolumesource"), text);
        }
        if at(object, "spec.volumeMode") != at(old, "spec.volumeMode") {
            let path = FieldPath::new("volumeMode");
            errors.invalid(path, text(object, "spec.volumeMode"), "field is immutable");
        }
    }

    fn returns_deleted_object(&self) -> bool {
        true
    }
}
