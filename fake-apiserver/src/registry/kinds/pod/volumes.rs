//! Volumes of a pod: their names, the one source each has, and the sources that come from the API.

use std::collections::BTreeSet;

use super::amount::read;
use super::env::{validate_field_ref, validate_resource_ref};
use super::mounts::{Volumes, no_backsteps, not_reserved};
use super::projected::validate_projected;
use super::volume_claims::validate_claim_template;
use super::volume_systems::validate_system;
use crate::api::field::{FieldErrors, FieldPath};
use crate::registry::types::check::{optional_one_of, required, required_label, required_one_of, wrong};
use crate::registry::types::names;
use crate::registry::types::view::{JsonMap, integer, is_set, items, object, text};

/// Fields of the pod that a volume may show.
const VOLUME_FIELDS: [&str; 5] = [
    "metadata.name",
    "metadata.namespace",
    "metadata.labels",
    "metadata.annotations",
    "metadata.uid",
];

/// The sources in the order in which they are looked at, with the name that errors give them.
const SOURCES: [(&str, &str); 30] = [
    ("emptyDir", "emptyDir"),
    ("hostPath", "hostPath"),
    ("gitRepo", "gitRepo"),
    ("gcePersistentDisk", "gcePersistentDisk"),
    ("awsElasticBlockStore", "awsElasticBlockStore"),
    ("secret", "secret"),
    ("nfs", "nfs"),
    ("iscsi", "iscsi"),
    ("glusterfs", "glusterfs"),
    ("flocker", "flocker"),
    ("persistentVolumeClaim", "persistentVolumeClaim"),
    ("rbd", "rbd"),
    ("cinder", "cinder"),
    ("cephfs", "cephFS"),
    ("quobyte", "quobyte"),
    ("downwardAPI", "downwarAPI"),
    ("fc", "fc"),
    ("flexVolume", "flexVolume"),
    ("configMap", "configMap"),
    ("azureFile", "azureFile"),
    ("vsphereVolume", "vsphereVolume"),
    ("photonPersistentDisk", "photonPersistentDisk"),
    ("portworxVolume", "portworxVolume"),
    ("azureDisk", "azureDisk"),
    ("storageos", "storageos"),
    ("projected", "projected"),
    ("scaleIO", "scaleIO"),
    ("csi", "csi"),
    ("ephemeral", "ephemeral"),
    ("image", "image"),
];

/// The kinds of host paths, sorted.
const HOST_PATH_TYPES: [&str; 8] = [
    "",
    "BlockDevice",
    "CharDevice",
    "Directory",
    "DirectoryOrCreate",
    "File",
    "FileOrCreate",
    "Socket",
];

/// Owner of the volumes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Owner<'a> {
    /// The pod's name; empty in templates.
    pub(super) name: &'a str,
    /// Set for a Pod, not a template.
    pub(super) is_pod: bool,
    /// Claims that a StatefulSet mounts under these names, instead of volumes of the same name.
    pub(super) claims: &'a BTreeSet<&'a str>,
}

/// Checks the volumes; the right ones by name are what mounts may name.
pub(super) fn validate_volumes<'a>(
    spec: &'a JsonMap,
    owner: Owner<'a>,
    path: &FieldPath,
    errors: &mut FieldErrors,
) -> Volumes<'a> {
    let mut known = Volumes::new();
    for (index, claim) in owner.claims.iter().enumerate() {
        let before = errors.iter().len();
        let at = || path.child("volumes").index(index).child("name");
        if claim.is_empty() {
            errors.required(at(), "");
        } else {
            wrong(names::dns1123_label(claim, false), claim, at, errors);
        }
        if errors.iter().len() == before {
            known.insert(claim, true);
        }
    }
    let own = items(spec, "volumes").filter(|(_, volume)| !owner.claims.contains(text(volume, "name")));
    for (index, (_, volume)) in own.enumerate() {
        let path = path.child("volumes").index(owner.claims.len() + index);
        let name = text(volume, "name");
        let before = errors.iter().len();
        validate_sources(volume, owner, &path, errors);
        required_label(volume, "name", &path, errors);
        if known.contains_key(name) {
            errors.duplicate(path.child("name"), name);
        }
        if errors.iter().len() == before {
            let claim = is_set(volume, "persistentVolumeClaim") || is_set(volume, "ephemeral");
            known.insert(name, claim);
        }
        validate_claim_name(volume, spec, owner, &path, errors);
    }
    known
}

/// A volume may not name the claim that another volume of the pod makes.
fn validate_claim_name(volume: &JsonMap, spec: &JsonMap, owner: Owner<'_>, path: &FieldPath, errors: &mut FieldErrors) {
    let Some(claim) = object(volume, "persistentVolumeClaim").filter(|_| !owner.name.is_empty()) else {
        return;
    };
    let name = text(claim, "claimName");
    let made = items(spec, "volumes").any(|(_, other)| {
        is_set(other, "ephemeral")
            && name.strip_prefix(owner.name).and_then(|it| it.strip_prefix('-')) == Some(text(other, "name"))
    });
    if made {
        let detail = "must not reference a PVC that gets created for an ephemeral volume";
        errors.invalid(path.child("persistentVolumeClaim.claimName"), name, detail);
    }
}

fn validate_sources(volume: &JsonMap, owner: Owner<'_>, path: &FieldPath, errors: &mut FieldErrors) {
    let mut found = false;
    for (source, called) in SOURCES {
        let Some(settings) = object(volume, source) else {
            continue;
        };
        if found {
            errors.forbidden(path.child(called), "may not specify more than 1 volume type");
            continue;
        }
        found = true;
        let path = path.child(source);
        match source {
            "emptyDir" => validate_empty_dir(settings, &path, errors),
            "hostPath" => validate_host_path(settings, &path, errors),
            "secret" => validate_files(settings, "secretName", &path, errors),
            "configMap" => validate_files(settings, "name", &path, errors),
            "persistentVolumeClaim" => {
                required(settings, "claimName", &path, errors);
            }
            "downwardAPI" => validate_downward(settings, &path, errors),
            "projected" => validate_projected(settings, &path, errors),
            "ephemeral" => validate_ephemeral(settings, text(volume, "name"), owner, &path, errors),
            "image" => {
                if owner.is_pod {
                    required(settings, "reference", &path, errors);
                }
                let policies = ["Always", "IfNotPresent", "Never"];
                required_one_of(settings, "pullPolicy", &policies, &path, errors);
            }
            _ => validate_system(source, settings, &path, errors),
        }
    }
    if !found {
        errors.required(path.clone(), "must specify a volume type");
    }
}

fn validate_empty_dir(settings: &JsonMap, path: &FieldPath, errors: &mut FieldErrors) {
    let limit = read(text(settings, "sizeLimit"));
    if limit.is_some_and(|limit| limit.signum() < 0) {
        errors.forbidden(
            path.child("sizeLimit"),
            "SizeLimit field must be a valid resource quantity",
        );
    }
}

/// Checks a path on the node and the type of what is there.
pub(crate) fn validate_host_path(settings: &JsonMap, path: &FieldPath, errors: &mut FieldErrors) {
    if required(settings, "path", path, errors) {
        no_backsteps(text(settings, "path"), || path.child("path"), errors);
        optional_one_of(settings, "type", &HOST_PATH_TYPES, path, errors);
    }
}

fn validate_files(settings: &JsonMap, name: &str, path: &FieldPath, errors: &mut FieldErrors) {
    required(settings, name, path, errors);
    validate_mode(settings, "defaultMode", path, errors);
    validate_key_paths(settings, path, errors);
}

/// Checks `items` of a Secret or ConfigMap: keys and the paths they become.
pub(super) fn validate_key_paths(settings: &JsonMap, path: &FieldPath, errors: &mut FieldErrors) {
    for (index, item) in items(settings, "items") {
        let path = path.child("items").index(index);
        required(item, "key", &path, errors);
        required(item, "path", &path, errors);
        not_reserved(text(item, "path"), || path.child("path"), errors);
        validate_mode(item, "mode", &path, errors);
    }
}

/// Checks the permission bits of a file.
pub(super) fn validate_mode(settings: &JsonMap, field: &str, path: &FieldPath, errors: &mut FieldErrors) {
    if let Some(mode) = integer(settings, field).filter(|mode| !(0..=0o777).contains(mode)) {
        let detail = "must be a number between 0 and 0777 (octal), both inclusive";
        errors.invalid(path.child(field), mode, detail);
    }
}

fn validate_downward(settings: &JsonMap, path: &FieldPath, errors: &mut FieldErrors) {
    validate_mode(settings, "defaultMode", path, errors);
    for (_, file) in items(settings, "items") {
        validate_downward_file(file, path, errors);
    }
}

/// Checks one file of the downward API; `path` is that of the list's owner, as the server has it.
pub(super) fn validate_downward_file(file: &JsonMap, path: &FieldPath, errors: &mut FieldErrors) {
    required(file, "path", path, errors);
    not_reserved(text(file, "path"), || path.child("path"), errors);
    match (object(file, "fieldRef"), object(file, "resourceFieldRef")) {
        (Some(field), resource) => {
            validate_field_ref(field, &VOLUME_FIELDS, &path.child("fieldRef"), errors);
            if resource.is_some() {
                let detail = "fieldRef and resourceFieldRef can not be specified simultaneously";
                errors.invalid(path.clone(), "resource", detail);
            }
        }
        (None, Some(resource)) => validate_resource_ref(resource, true, &path.child("resourceFieldRef"), errors),
        (None, None) => errors.required(path.clone(), "one of fieldRef and resourceFieldRef is required"),
    }
    validate_mode(file, "mode", path, errors);
}

fn validate_ephemeral(settings: &JsonMap, volume: &str, owner: Owner<'_>, path: &FieldPath, errors: &mut FieldErrors) {
    match object(settings, "volumeClaimTemplate") {
        None => errors.required(path.child("volumeClaimTemplate"), ""),
        Some(template) => validate_claim_template(template, &path.child("volumeClaimTemplate"), errors),
    }
    if !owner.name.is_empty() && !volume.is_empty() {
        let claim = format!("{}-{volume}", owner.name);
        for text in names::dns1123_subdomain(&claim, false) {
            errors.invalid(path.child("name"), volume, format!("PVC name \"{claim}\": {text}"));
        }
    }
}
