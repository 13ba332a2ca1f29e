//! Volumes of storage systems: little but required fields, since most of these drivers are gone.

use serde_json::Value;

use super::mounts::descending;
use crate::api::field::{FieldErrors, FieldPath};
use crate::registry::types::check::{in_range, optional_label, optional_one_of, required, required_label, wrong};
use crate::registry::types::names;
use crate::registry::types::view::{JsonMap, flag, integer, is_set, list, object, text};

/// Error for the number of a partition.
const PARTITION: &str = "must be between 0 and 255, inclusive";

/// Checks the settings of `source`.
pub(crate) fn validate_system(source: &str, settings: &JsonMap, path: &FieldPath, errors: &mut FieldErrors) {
    let needed: &[&str] = match source {
        "glusterfs" => &["endpoints", "path"],
        "azureFile" => &["secretName", "shareName"],
        "vsphereVolume" => &["volumePath"],
        "photonPersistentDisk" => &["pdID"],
        "portworxVolume" => &["volumeID"],
        "scaleIO" => &["gateway", "system", "volumeName"],
        "gitRepo" => &["repository"],
        "gcePersistentDisk" => &["pdName"],
        "awsElasticBlockStore" => &["volumeID"],
        "nfs" => &["server", "path"],
        "cinder" => &["volumeID"],
        "flexVolume" => &["driver"],
        _ => &[],
    };
    for field in needed {
        required(settings, field, path, errors);
    }
    match source {
        "gitRepo" => descending(text(settings, "directory"), || path.child("directory"), errors),
        "gcePersistentDisk" | "awsElasticBlockStore" => {
            if let Some(part) = integer(settings, "partition").filter(|part| !(0..=255).contains(part)) {
                errors.invalid(path.child("partition"), part, PARTITION);
            }
        }
        "nfs" => {
            let at = text(settings, "path");
            if !at.starts_with('/') {
                errors.invalid(path.child("path"), at, "must be an absolute path");
            }
        }
        "cinder" => validate_secret_name(settings, path, errors),
        "flexVolume" => validate_options(settings, path, errors),
        "csi" => validate_csi(settings, path, errors),
        "iscsi" => validate_iscsi(settings, path, errors),
        "fc" => validate_fc(settings, path, errors),
        "rbd" | "cephfs" => {
            if list(settings, "monitors").is_empty() {
                errors.required(path.child("monitors"), "");
            }
            if source == "rbd" {
                required(settings, "image", path, errors);
            }
        }
        "quobyte" => validate_quobyte(settings, path, errors),
        "flocker" => validate_flocker(settings, path, errors),
        "storageos" => {
            required_label(settings, "volumeName", path, errors);
            optional_label(settings, "volumeNamespace", path, errors);
            validate_secret_name(settings, path, errors);
        }
        "azureDisk" => validate_azure_disk(settings, path, errors),
        _ => {}
    }
}

fn validate_secret_name(settings: &JsonMap, path: &FieldPath, errors: &mut FieldErrors) {
    if let Some(secret) = object(settings, "secretRef") {
        required(secret, "name", &path.child("secretRef"), errors);
    }
}

fn validate_options(settings: &JsonMap, path: &FieldPath, errors: &mut FieldErrors) {
    for key in object(settings, "options").into_iter().flat_map(JsonMap::keys) {
        let namespace = key.split_once('/').map_or(key.as_str(), |(first, _)| first);
        let normalized = format!(".{}", namespace.to_lowercase());
        if normalized.ends_with(".kubernetes.io") || normalized.ends_with(".k8s.io") {
            let detail = "kubernetes.io and k8s.io namespaces are reserved";
            errors.invalid(path.child("options").key(key), key.as_str(), detail);
        }
    }
}

fn validate_csi(settings: &JsonMap, path: &FieldPath, errors: &mut FieldErrors) {
    if required(settings, "driver", path, errors) {
        let driver = text(settings, "driver");
        if driver.len() > 63 {
            errors.too_long(path.child("driver"), 63);
        }
        let texts = names::dns1123_subdomain(&driver.to_lowercase(), false);
        wrong(texts, driver, || path.child("driver"), errors);
    }
    if let Some(secret) = object(settings, "nodePublishSecretRef")
        && required(secret, "name", &path.child("nodePublishSecretRef"), errors)
    {
        let name = text(secret, "name");
        wrong(
            names::dns1123_subdomain(name, false),
            name,
            || path.child("name"),
            errors,
        );
    }
}

/// Error for an initiator of no known form.
const FORM: &str = "must be valid format starting with iqn, eui, or naa";

fn validate_iscsi(settings: &JsonMap, path: &FieldPath, errors: &mut FieldErrors) {
    required(settings, "targetPortal", path, errors);
    if required(settings, "iqn", path, errors) {
        validate_initiator(text(settings, "iqn"), FORM, || path.child("iqn"), errors);
    }
    in_range(settings, "lun", (0, 255), path, errors);
    let authenticates = |field| flag(settings, field) == Some(true);
    let secret = is_set(settings, "secretRef");
    if (authenticates("chapAuthDiscovery") || authenticates("chapAuthSession")) && !secret {
        errors.required(path.child("secretRef"), "");
    }
    if is_set(settings, "initiatorName") {
        validate_initiator(
            text(settings, "initiatorName"),
            FORM,
            || path.child("initiatorname"),
            errors,
        );
    }
}

/// Checks the name of an iSCSI initiator or target; `form` is the text for one of no known form.
pub(crate) fn validate_initiator(name: &str, form: &str, path: impl Fn() -> FieldPath, errors: &mut FieldErrors) {
    let fits = if name.starts_with("iqn") {
        is_qualified_initiator(name)
    } else if let Some(rest) = name.strip_prefix("eui") {
        is_number(rest, 16)
    } else if let Some(rest) = name.strip_prefix("naa") {
        is_number(rest, 32)
    } else {
        errors.invalid(path(), name, form);
        return;
    };
    if !fits {
        errors.invalid(path(), name, "must be valid format");
    }
}

/// One character and then so many letters or digits.
fn is_number(rest: &str, length: usize) -> bool {
    let mut characters = rest.chars();
    characters.next().is_some()
        && characters.as_str().len() == length
        && characters.all(|character| character.is_ascii_alphanumeric())
}

/// `iqn.YYYY-MM.`, the authority, a colon and what the authority says.
fn is_qualified_initiator(name: &str) -> bool {
    let parts = name.strip_prefix("iqn.").and_then(|rest| rest.split_once('.'));
    let Some((date, rest)) = parts else {
        return false;
    };
    let Some((authority, own)) = rest.split_once(':') else {
        return false;
    };
    let dated = date.len() == 7
        && date.bytes().enumerate().all(|(place, byte)| {
            if place == 4 {
                byte == b'-'
            } else {
                byte.is_ascii_digit()
            }
        });
    let word = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.');
    let own_fits = !own.contains([',', ';', '*', '&', '$', '|']) && !own.contains(char::is_whitespace);
    dated && !authority.is_empty() && authority.bytes().all(word) && !own.is_empty() && own_fits
}

fn validate_fc(settings: &JsonMap, path: &FieldPath, errors: &mut FieldErrors) {
    let (targets, ids) = (list(settings, "targetWWNs"), list(settings, "wwids"));
    let at = || path.child("targetWWNs");
    if targets.is_empty() && ids.is_empty() {
        errors.required(at(), "must specify either targetWWNs or wwids, but not both");
    }
    if !targets.is_empty() && !ids.is_empty() {
        let detail = "targetWWNs and wwids can not be specified simultaneously";
        errors.invalid(at(), Value::Array(targets.to_vec()), detail);
    }
    if !targets.is_empty() {
        if !is_set(settings, "lun") {
            errors.required(path.child("lun"), "lun is required if targetWWNs is specified");
        }
        in_range(settings, "lun", (0, 255), path, errors);
    }
}

fn validate_quobyte(settings: &JsonMap, path: &FieldPath, errors: &mut FieldErrors) {
    let detail = "must be a host:port pair or multiple pairs separated by commas";
    let registry = text(settings, "registry");
    if registry.is_empty() {
        errors.required(path.child("registry"), detail);
    } else if text(settings, "tenant").len() >= 65 {
        let detail = "must be a UUID and may not exceed a length of 64 characters";
        errors.required(path.child("tenant"), detail);
    } else {
        for _ in registry.split(',').filter(|pair| pair.matches(':').count() != 1) {
            errors.invalid(path.child("registry"), registry, detail);
        }
    }
    required(settings, "volume", path, errors);
}

fn validate_flocker(settings: &JsonMap, path: &FieldPath, errors: &mut FieldErrors) {
    let (name, uuid) = (text(settings, "datasetName"), text(settings, "datasetUUID"));
    if name.is_empty() && uuid.is_empty() {
        errors.required(path.clone(), "one of datasetName and datasetUUID is required");
    }
    if !name.is_empty() && !uuid.is_empty() {
        let detail = "datasetName and datasetUUID can not be specified simultaneously";
        errors.invalid(path.clone(), "resource", detail);
    }
    if name.contains('/') {
        errors.invalid(path.child("datasetName"), name, "must not contain '/'");
    }
}

fn validate_azure_disk(settings: &JsonMap, path: &FieldPath, errors: &mut FieldErrors) {
    const MANAGED: &str =
        "/subscriptions/{sub-id}/resourcegroups/{group-name}/providers/microsoft.compute/disks/{disk-id}";
    const BLOB: &str = "https://{account-name}.blob.core.windows.net/{container-name}/{disk-name}.vhd";
    required(settings, "diskName", path, errors);
    required(settings, "diskURI", path, errors);
    optional_one_of(
        settings,
        "cachingMode",
        &["None", "ReadOnly", "ReadWrite"],
        path,
        errors,
    );
    optional_one_of(settings, "kind", &["Dedicated", "Managed", "Shared"], path, errors);
    let uri = text(settings, "diskURI");
    let (fits, form) = match text(settings, "kind") {
        "Managed" => (uri.starts_with("/subscriptions/"), MANAGED),
        _ => (uri.starts_with("https://"), BLOB),
    };
    if is_set(settings, "kind") && !fits {
        errors.not_supported(path.child("diskURI"), uri, &[form]);
    }
}
