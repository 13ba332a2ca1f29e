//! Validation of volumes from storage systems. Most of these drivers were removed, so usually only required fields are
//! checked.

use super::mounts::descending;
use crate::api::field::FieldErrors;
use crate::api::json::Map;
use crate::registry::types::cursor::Cursor;
use crate::registry::types::names;

/// Error for an invalid partition number.
const PARTITION: &str = "must be between 1 and 255, inclusive";

/// Checks the settings of the volume source `source`.
pub(crate) fn validate_system(source: &str, settings: &Cursor<'_>, errors: &mut FieldErrors) {
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
        settings.at(field).check_required(errors);
    }
    match source {
        "gitRepo" => descending(&settings.at("directory"), errors),
        "gcePersistentDisk" | "awsElasticBlockStore" => {
            if let Some(part) = settings.integer("partition").filter(|part| !(0..=255).contains(part)) {
                errors.invalid(settings.at("partition"), part, PARTITION);
            }
        }
        "nfs" => {
            let path = settings.text("path");
            if !path.starts_with('/') {
                errors.invalid(settings.at("path"), path, "must be an absolute path");
            }
        }
        "cinder" => validate_secret_name(settings, errors),
        "flexVolume" => validate_options(settings, errors),
        "csi" => validate_csi(settings, errors),
        "iscsi" => validate_iscsi(settings, errors),
        "fc" => validate_fc(settings, errors),
        "rbd" | "cephfs" => {
            if settings.is_empty("monitors") {
                errors.required(settings.at("monitors"), "");
            }
            if source == "rbd" {
                settings.at("image").check_required(errors);
            }
        }
        "quobyte" => validate_quobyte(settings, errors),
        "flocker" => validate_flocker(settings, errors),
        "storageos" => {
            settings.at("volumeName").check_required_label(errors);
            settings.at("volumeNamespace").check_label(errors);
            validate_secret_name(settings, errors);
        }
        "azureDisk" => validate_azure_disk(settings, errors),
        _ => {}
    }
}

fn validate_secret_name(settings: &Cursor<'_>, errors: &mut FieldErrors) {
    if settings.is_set("secretRef") {
        settings.at("secretRef.name").check_required(errors);
    }
}

fn validate_options(settings: &Cursor<'_>, errors: &mut FieldErrors) {
    for key in settings.map("options").into_iter().flat_map(Map::keys) {
        let namespace = key.split_once('/').map_or(key.as_str(), |(first, _)| first);
        let normalized = format!(".{}", namespace.to_lowercase());
        if normalized.ends_with(".kubernetes.io") || normalized.ends_with(".k8s.io") {
            let detail = "kubernetes.io and k8s.io namespaces are reserved";
            errors.invalid(settings.at("options").entry(key), key.as_str(), detail);
        }
    }
}

fn validate_csi(settings: &Cursor<'_>, errors: &mut FieldErrors) {
    let driver = settings.at("driver");
    if driver.check_required(errors) {
        if driver.as_text().len() > 63 {
            errors.too_long(driver, 63);
        }
        driver.check_name(|it| names::dns1123_subdomain(&it.to_lowercase(), false), errors);
    }
    if settings.is_set("nodePublishSecretRef") && settings.at("nodePublishSecretRef.name").check_required(errors) {
        // As in kube-apiserver, errors about the name of the Secret have the path of a field `name` of the source.
        let name = settings.at("name").in_other(settings.get("nodePublishSecretRef.name"));
        name.check_name(|it| names::dns1123_subdomain(it, false), errors);
    }
}

/// Error for an initiator of an unknown format.
const FORM: &str = "must be valid format starting with iqn, eui, or naa";

fn validate_iscsi(settings: &Cursor<'_>, errors: &mut FieldErrors) {
    settings.at("targetPortal").check_required(errors);
    let target = settings.at("iqn");
    if target.check_required(errors) {
        validate_initiator(&target, FORM, errors);
    }
    settings.at("lun").check_range((0, 255), errors);
    let authenticates = |field| settings.flag(field) == Some(true);
    if (authenticates("chapAuthDiscovery") || authenticates("chapAuthSession")) && !settings.is_set("secretRef") {
        errors.required(settings.at("secretRef"), "");
    }
    if settings.is_set("initiatorName") {
        let name = settings.at("initiatorname").in_other(settings.get("initiatorName"));
        validate_initiator(&name, FORM, errors);
    }
}

/// Checks the name of an iSCSI initiator or target. `form` is the error message for an unknown format.
pub(crate) fn validate_initiator(initiator: &Cursor<'_>, form: &str, errors: &mut FieldErrors) {
    let name = initiator.as_text();
    let fits = if name.starts_with("iqn") {
        is_qualified_initiator(name)
    } else if let Some(rest) = name.strip_prefix("eui") {
        is_number(rest, 16)
    } else if let Some(rest) = name.strip_prefix("naa") {
        is_number(rest, 32)
    } else {
        errors.invalid(initiator, name, form);
        return;
    };
    if !fits {
        errors.invalid(initiator, name, "must be valid format");
    }
}

/// Returns `true` for any character followed by exactly `length` letters or digits.
fn is_number(rest: &str, length: usize) -> bool {
    let mut characters = rest.chars();
    characters.next().is_some()
        && characters.as_str().len() == length
        && characters.all(|character| character.is_ascii_alphanumeric())
}

/// Returns `true` for `iqn.YYYY-MM.`, followed by a naming authority, a colon and a string that the authority defines.
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

fn validate_fc(settings: &Cursor<'_>, errors: &mut FieldErrors) {
    let targets = settings.at("targetWWNs");
    match (targets.is_empty(""), settings.is_empty("wwids")) {
        (true, true) => errors.required(targets, "must specify either targetWWNs or wwids, but not both"),
        (false, false) => {
            let detail = "targetWWNs and wwids can not be specified simultaneously";
            errors.invalid(targets, targets.to_value(), detail);
        }
        (true, false) | (false, true) => {}
    }
    if !targets.is_empty("") {
        let lun = settings.at("lun");
        if !lun.is_set("") {
            errors.required(lun, "lun is required if targetWWNs is specified");
        }
        lun.check_range((0, 255), errors);
    }
}

fn validate_quobyte(settings: &Cursor<'_>, errors: &mut FieldErrors) {
    let detail = "must be a host:port pair or multiple pairs separated by commas";
    let registry = settings.at("registry");
    if registry.is_empty("") {
        errors.required(registry, detail);
    } else if settings.text("tenant").len() >= 65 {
        let detail = "must be a UUID and may not exceed a length of 64 characters";
        errors.required(settings.at("tenant"), detail);
    } else {
        let pairs = registry.as_text().split(',');
        for _ in pairs.filter(|pair| !is_host_port(pair)) {
            errors.invalid(registry, registry.as_text(), detail);
        }
    }
    settings.at("volume").check_required(errors);
}

/// Returns `true` if Go's `net.SplitHostPort` accepts the string. The host may only contain colons within brackets.
fn is_host_port(pair: &str) -> bool {
    let Some((host, port)) = pair.rsplit_once(':') else {
        return false;
    };
    let inner = match host.strip_prefix('[') {
        Some(rest) => rest.strip_suffix(']'),
        None => Some(host).filter(|host| !host.contains(':')),
    };
    inner.is_some_and(|inner| !inner.contains(['[', ']'])) && !port.contains(['[', ']'])
}

fn validate_flocker(settings: &Cursor<'_>, errors: &mut FieldErrors) {
    let (name, uuid) = (settings.text("datasetName"), settings.text("datasetUUID"));
    if name.is_empty() && uuid.is_empty() {
        errors.required(settings, "one of datasetName and datasetUUID is required");
    }
    if !name.is_empty() && !uuid.is_empty() {
        let detail = "datasetName and datasetUUID can not be specified simultaneously";
        errors.invalid(settings, "resource", detail);
    }
    if name.contains('/') {
        errors.invalid(settings.at("datasetName"), name, "must not contain '/'");
    }
}

fn validate_azure_disk(settings: &Cursor<'_>, errors: &mut FieldErrors) {
    const MANAGED: &str =
        "/subscriptions/{sub-id}/resourcegroups/{group-name}/providers/microsoft.compute/disks/{disk-id}";
    const BLOB: &str = "https://{account-name}.blob.core.windows.net/{container-name}/{disk-name}.vhd";
    let (uri, kind) = (settings.at("diskURI"), settings.at("kind"));
    settings.at("diskName").check_required(errors);
    uri.check_required(errors);
    let modes = ["None", "ReadOnly", "ReadWrite"];
    settings.at("cachingMode").check_one_of(&modes, errors);
    kind.check_one_of(&["Dedicated", "Managed", "Shared"], errors);
    let (start, form) = match kind.as_text() {
        "Managed" => ("/subscriptions/", MANAGED),
        _ => ("https://", BLOB),
    };
    if kind.is_set("") && !uri.as_text().starts_with(start) {
        errors.not_supported(uri, uri.as_text(), &[form]);
    }
}
