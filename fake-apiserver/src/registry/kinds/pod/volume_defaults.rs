//! The defaults of a pod's volumes.

use super::image;
use crate::api::json::{Map, Value};
use crate::registry::types::cursor::Cursor;
use crate::registry::types::edit::{default_object, default_text, default_value, ensure_object, items_mut, object_mut};

/// The default mode of files from Secrets, ConfigMaps, the downward API and projected volumes: 0644.
const FILE_MODE: i64 = 420;

/// Fills in the defaults of a volume. A volume without a source becomes an `emptyDir`.
pub(super) fn default_volume(volume: &mut Map) {
    if !volume.iter().any(|(key, value)| key != "name" && !value.is_null()) {
        volume.insert("emptyDir".into(), Value::Object(Map::new()));
        return;
    }
    for source in ["secret", "configMap", "downwardAPI", "projected"] {
        if let Some(source) = object_mut(volume, source) {
            default_value(source, "defaultMode", FILE_MODE);
        }
    }
    if let Some(path) = object_mut(volume, "hostPath") {
        default_value(path, "type", "");
    }
    items_mut(volume, "downwardAPI.items").for_each(default_references);
    items_mut(volume, "projected.sources").for_each(default_projection);
    if let Some(image) = object_mut(volume, "image") {
        default_pull_policy(image, "pullPolicy", "reference");
    }
    if let Some(template) = object_mut(volume, "ephemeral.volumeClaimTemplate") {
        default_object(template, "metadata");
        default_claim_spec(ensure_object(template, "spec"));
    }
    default_storage_systems(volume);
}

/// Fills in the defaults of the spec of a PersistentVolumeClaim.
pub(crate) fn default_claim_spec(claim: &mut Map) {
    default_object(claim, "resources");
    default_value(claim, "volumeMode", "Filesystem");
}

fn default_projection(source: &mut Map) {
    items_mut(source, "downwardAPI.items").for_each(default_references);
    if let Some(token) = object_mut(source, "serviceAccountToken") {
        default_value(token, "expirationSeconds", 3600);
    }
}

/// Sets the defaults of storage systems, in a pod's volume or in the spec of a PersistentVolume.
pub(crate) fn default_storage_systems(volume: &mut Map) {
    if let Some(iscsi) = object_mut(volume, "iscsi") {
        default_text(iscsi, "iscsiInterface", "default");
    }
    if let Some(rbd) = object_mut(volume, "rbd") {
        default_text(rbd, "pool", "rbd");
        default_text(rbd, "user", "admin");
        default_text(rbd, "keyring", "/etc/ceph/keyring");
    }
    if let Some(disk) = object_mut(volume, "azureDisk") {
        default_value(disk, "cachingMode", "ReadWrite");
        default_value(disk, "fsType", "ext4");
        default_value(disk, "readOnly", false);
        default_value(disk, "kind", "Shared");
    }
    if let Some(scale_io) = object_mut(volume, "scaleIO") {
        default_text(scale_io, "storageMode", "ThinProvisioned");
        default_text(scale_io, "fsType", "xfs");
    }
}

/// Sets the field `policy`, if it is unset, to the default pull policy for the image in the field `image`.
pub(super) fn default_pull_policy(owner: &mut Map, policy: &str, image: &str) {
    let read = Cursor::root(owner);
    if read.is_empty(policy) {
        let value = image::default_pull_policy(read.text(image));
        default_text(owner, policy, value);
    }
}

/// Fills in the defaults of `fieldRef` and `resourceFieldRef`, in environment variables and downward API volumes.
pub(super) fn default_references(source: &mut Map) {
    if let Some(field) = object_mut(source, "fieldRef") {
        default_text(field, "apiVersion", "v1");
    }
    if let Some(resource) = object_mut(source, "resourceFieldRef") {
        default_value(resource, "divisor", "0");
    }
}
