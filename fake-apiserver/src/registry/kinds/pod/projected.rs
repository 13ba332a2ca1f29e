//! Validation of projected volumes, which combine several sources in one directory.

use std::collections::BTreeSet;

use super::mounts::not_reserved;
use super::volume_files::{validate_downward_file, validate_key_paths, validate_mode};
use crate::api::field::FieldErrors;
use crate::registry::types::cursor::Cursor;
use crate::registry::types::labels;

/// Minimum and maximum lifetime of a projected token, in seconds.
const TOKEN_SECONDS: (i64, i64) = (600, 1 << 32);

/// The fields of a `podCertificate` with file paths, in the order in which overlaps are checked, and their names in
/// warnings.
pub(super) const CERTIFICATE_FILES: [(&str, &str); 3] = [
    ("certificateChainPath", "PodCertificate chain"),
    ("keyPath", "PodCertificate key"),
    ("credentialBundlePath", "PodCertificate credential bundle"),
];

/// The fields of a `podCertificate` with file paths, in the order of validation.
const CERTIFICATE_PATHS: [&str; 3] = ["credentialBundlePath", "keyPath", "certificateChainPath"];

/// Checks a projected volume.
pub(super) fn validate_projected(volume: &Cursor<'_>, errors: &mut FieldErrors) {
    validate_mode(&volume.at("defaultMode"), errors);
    let mut files = Files {
        volume,
        seen: BTreeSet::new(),
    };
    for source in volume.items("sources") {
        let mut sources = 0;
        for kind in ["secret", "configMap"] {
            if let Some(settings) = source.present(kind) {
                sources += 1;
                settings.at("name").check_required(errors);
                validate_key_paths(&settings, errors);
                for item in settings.items("items") {
                    files.take(item.text("path"), settings.text("name"), errors);
                }
            }
        }
        if let Some(downward) = source.present("downwardAPI") {
            sources += 1;
            for file in downward.items("items") {
                validate_downward_file(&file, &downward, errors);
                files.take(file.text("path"), file.text("path"), errors);
            }
        }
        if let Some(token) = source.present("serviceAccountToken") {
            sources += 1;
            validate_token(&token, volume, errors);
        }
        if let Some(bundle) = source.present("clusterTrustBundle") {
            sources += 1;
            validate_bundle(&bundle, errors);
            files.take(bundle.text("path"), bundle.text("path"), errors);
        }
        if let Some(certificate) = source.present("podCertificate") {
            sources += 1;
            validate_certificate(&certificate, errors);
            for field in CERTIFICATE_PATHS {
                files.take(certificate.text(field), certificate.text(field), errors);
            }
        }
        if sources > 1 {
            errors.forbidden(source, "may not specify more than 1 volume type per source");
        }
    }
}

/// The files of a projected volume. Two sources must not contain the same file.
struct Files<'a> {
    volume: &'a Cursor<'a>,
    seen: BTreeSet<String>,
}

impl Files<'_> {
    fn take(&mut self, file: &str, shown: &str, errors: &mut FieldErrors) {
        if !file.is_empty() && !self.seen.insert(file.to_owned()) {
            errors.invalid(self.volume, shown, "conflicting duplicate paths");
        }
    }
}

fn validate_token(token: &Cursor<'_>, volume: &Cursor<'_>, errors: &mut FieldErrors) {
    let expiration = token.at("expirationSeconds");
    let seconds = expiration.integer("").unwrap_or(0);
    if seconds < TOKEN_SECONDS.0 {
        errors.invalid(expiration, seconds, "may not specify a duration less than 10 minutes");
    }
    if seconds > TOKEN_SECONDS.1 {
        let detail = "may not specify a duration larger than 2^32 seconds";
        errors.invalid(expiration, seconds, detail);
    }
    // As in kube-apiserver, errors have the path of a field `path` of the volume.
    let path = volume.at("path").in_other(token.get("path"));
    if path.check_required(errors) {
        not_reserved(&path, errors);
    }
}

fn validate_bundle(bundle: &Cursor<'_>, errors: &mut FieldErrors) {
    let (name, signer, selector) = (bundle.at("name"), bundle.at("signerName"), bundle.at("labelSelector"));
    match (name.is_set(""), signer.is_set("")) {
        (true, true) => {
            let detail = "only one of name and signerName may be used";
            errors.invalid(bundle, bundle.to_value(), detail);
        }
        (true, false) => {
            if name.is_empty("") {
                errors.required(name, "must be a valid object name");
            }
            if selector.is_set("") {
                let detail = "labelSelector must be unset if name is specified";
                errors.invalid(selector, selector.to_value(), detail);
            }
        }
        (false, true) => {
            if signer.is_empty("") {
                errors.required(signer, "must be a valid signer name");
            }
            labels::validate_selector(&selector, errors);
        }
        (false, false) => errors.required(bundle, "either name or signerName must be specified"),
    }
    bundle.at("path").check_required(errors);
    not_reserved(&bundle.at("path"), errors);
}

fn validate_certificate(certificate: &Cursor<'_>, errors: &mut FieldErrors) {
    const KEYS: [&str; 6] = ["RSA3072", "RSA4096", "ECDSAP256", "ECDSAP384", "ECDSAP521", "ED25519"];
    certificate.at("keyType").check_supported(&KEYS, errors);
    let expiration = certificate.at("maxExpirationSeconds");
    if let Some(seconds) = expiration.integer("").filter(|seconds| *seconds < 3600) {
        let detail = "if provided, maxExpirationSeconds must be >= 3600";
        errors.invalid(expiration, seconds, detail);
    }
    for field in CERTIFICATE_PATHS {
        not_reserved(&certificate.at(field), errors);
    }
    if CERTIFICATE_PATHS.iter().all(|field| certificate.is_empty(field)) {
        let detail = "specify at least one of credentialBundlePath, keyPath, and certificateChainPath";
        errors.required(certificate, detail);
    }
}
