//! Validation of a pod's volumes: their names and sources.

use std::collections::BTreeSet;

use super::amount::read;
use super::mounts::{Volumes, no_backsteps};
use super::projected::validate_projected;
use super::volume_claims::validate_claim_template;
use super::volume_files::{validate_downward_file, validate_key_paths, validate_mode};
use super::volume_systems::validate_system;
use crate::api::field::{FieldErrors, quote};
use crate::registry::types::cursor::Cursor;
use crate::registry::types::names;

/// The volume sources in the order of validation, with their names in errors.
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

/// The types of host paths, sorted.
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

/// The Pod or template that contains the volumes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Owner<'a> {
    /// The pod's name; empty in templates.
    pub(super) name: &'a str,
    /// Set for a Pod, unset for a template.
    pub(super) is_pod: bool,
    /// Set for a mirror pod, which represents a static pod of a kubelet.
    pub(super) is_mirror: bool,
    /// Names of the volumes that a StatefulSet creates for its claims. They replace volumes with the same names.
    pub(super) claims: &'a BTreeSet<&'a str>,
}

/// Checks the volumes. Returns the valid volumes by name, for the checks of mounts.
pub(super) fn validate_volumes<'a>(spec: &'a Cursor<'a>, owner: Owner<'a>, errors: &mut FieldErrors) -> Volumes<'a> {
    let mut known = Volumes::new();
    let place = |index: usize| spec.at("volumes").path().index(index);
    for (index, claim) in owner.claims.iter().enumerate() {
        let texts = match claim.is_empty() {
            true => Vec::new(),
            false => names::dns1123_label(claim, false),
        };
        if claim.is_empty() {
            errors.required(place(index).child("name"), "");
        } else if texts.is_empty() {
            known.insert(claim, true);
        }
        for text in texts {
            errors.invalid(place(index).child("name"), *claim, text);
        }
    }
    // In errors, the indices of volumes start after the claims. Volumes with the name of a claim are skipped.
    let own = spec
        .items("volumes")
        .filter(|it| !owner.claims.contains(it.text("name")));
    for (index, volume) in own.enumerate() {
        match owner.claims.is_empty() {
            true => validate_volume(&volume, volume.text("name"), spec, owner, &mut known, errors),
            false => {
                let path = place(owner.claims.len() + index);
                let moved = Cursor::value_at(volume.get(""), &path);
                validate_volume(&moved, volume.text("name"), spec, owner, &mut known, errors);
            }
        }
    }
    known
}

fn validate_volume<'a>(
    volume: &Cursor<'_>,
    name: &'a str,
    spec: &Cursor<'_>,
    owner: Owner<'_>,
    known: &mut Volumes<'a>,
    errors: &mut FieldErrors,
) {
    let before = errors.iter().len();
    validate_sources(volume, owner, errors);
    volume.at("name").check_required_label(errors);
    if known.contains_key(name) {
        errors.duplicate(volume.at("name"), name);
    }
    if errors.iter().len() == before {
        known.insert(
            name,
            volume.is_set("persistentVolumeClaim") || volume.is_set("ephemeral"),
        );
    }
    if !owner.name.is_empty() && volume.is_set("persistentVolumeClaim") {
        validate_claim_name(&volume.at("persistentVolumeClaim.claimName"), spec, owner, errors);
    }
}

/// Checks that a volume does not refer to the claim of an ephemeral volume of the same pod.
fn validate_claim_name(claim: &Cursor<'_>, spec: &Cursor<'_>, owner: Owner<'_>, errors: &mut FieldErrors) {
    let rest = claim
        .as_text()
        .strip_prefix(owner.name)
        .and_then(|it| it.strip_prefix('-'));
    let is_made = |other: Cursor<'_>| other.is_set("ephemeral") && rest == Some(other.text("name"));
    if spec.items("volumes").any(is_made) {
        let detail = "must not reference a PVC that gets created for an ephemeral volume";
        errors.invalid(claim, claim.as_text(), detail);
    }
}

fn validate_sources(volume: &Cursor<'_>, owner: Owner<'_>, errors: &mut FieldErrors) {
    let mut found = false;
    for (source, called) in SOURCES {
        let Some(settings) = volume.present(source) else {
            continue;
        };
        if found {
            errors.forbidden(volume.at(called), "may not specify more than 1 volume type");
            if source == "iscsi" {
                validate_portal_length(volume, &settings, errors);
            }
            continue;
        }
        found = true;
        match source {
            "emptyDir" => validate_empty_dir(&settings, errors),
            "hostPath" => validate_host_path(&settings, errors),
            "secret" => validate_files(&settings, "secretName", errors),
            "configMap" => validate_files(&settings, "name", errors),
            "persistentVolumeClaim" => {
                settings.at("claimName").check_required(errors);
            }
            "downwardAPI" => validate_downward(&settings, errors),
            "projected" => validate_projected(&settings, errors),
            "ephemeral" => validate_ephemeral(volume, &settings, owner, errors),
            "gcePersistentDisk" => {
                // As in kube-apiserver, the error path has a field that does not exist.
                let shown = volume.at("persistentDisk").in_other(settings.get(""));
                validate_system(source, &shown, errors);
            }
            "image" => {
                if owner.is_pod {
                    settings.at("reference").check_required(errors);
                }
                let policies = ["Always", "IfNotPresent", "Never"];
                settings.at("pullPolicy").check_required_one_of(&policies, errors);
            }
            _ => validate_system(source, &settings, errors),
        }
        if source == "iscsi" {
            validate_portal_length(volume, &settings, errors);
        }
    }
    if !found {
        errors.required(volume, "must specify a volume type");
    }
}

/// Checks the total length of an iSCSI volume's name and target portal. This check also applies if the volume has
/// another source.
fn validate_portal_length(volume: &Cursor<'_>, iscsi: &Cursor<'_>, errors: &mut FieldErrors) {
    let (name, portal) = (volume.text("name"), iscsi.text("targetPortal"));
    if iscsi.is_set("initiatorName") && name.len() + 1 + portal.len() > 64 {
        let detail = "Total length of <volume name>:<iscsi.targetPortal> must be under 64 characters if \
                      iscsi.initiatorName is specified.";
        errors.invalid(volume.at("name"), name, detail);
    }
}

fn validate_empty_dir(settings: &Cursor<'_>, errors: &mut FieldErrors) {
    let limit = settings.at("sizeLimit");
    if read(limit.as_text()).is_some_and(|limit| limit.signum() < 0) {
        errors.forbidden(limit, "SizeLimit field must be a valid resource quantity");
    }
}

/// Checks a path on the node and the type of the file there.
pub(crate) fn validate_host_path(settings: &Cursor<'_>, errors: &mut FieldErrors) {
    let path = settings.at("path");
    if path.check_required(errors) {
        no_backsteps(&path, errors);
        settings.at("type").check_one_of(&HOST_PATH_TYPES, errors);
    }
}

fn validate_files(settings: &Cursor<'_>, name: &str, errors: &mut FieldErrors) {
    settings.at(name).check_required(errors);
    validate_mode(&settings.at("defaultMode"), errors);
    validate_key_paths(settings, errors);
}

fn validate_downward(settings: &Cursor<'_>, errors: &mut FieldErrors) {
    validate_mode(&settings.at("defaultMode"), errors);
    for file in settings.items("items") {
        validate_downward_file(&file, settings, errors);
    }
}

fn validate_ephemeral(volume: &Cursor<'_>, settings: &Cursor<'_>, owner: Owner<'_>, errors: &mut FieldErrors) {
    let template = settings.at("volumeClaimTemplate");
    let name = volume.text("name");
    match template.is_set("") {
        false => errors.required(template, ""),
        true => validate_claim_template(&template, errors),
    }
    if !owner.name.is_empty() && !name.is_empty() {
        let claim = format!("{}-{name}", owner.name);
        for text in names::dns1123_subdomain(&claim, false) {
            errors.invalid(volume.at("name"), name, format!("PVC name {}: {text}", quote(&claim)));
        }
    }
}
