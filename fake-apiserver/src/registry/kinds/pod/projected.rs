//! Projected volumes: several sources in one directory.

use std::collections::BTreeSet;

use super::mounts::not_reserved;
use super::volumes::{validate_downward_file, validate_key_paths, validate_mode};
use crate::api::field::{FieldErrors, FieldPath};
use crate::registry::types::check::required;
use crate::registry::types::labels;
use crate::registry::types::view::{JsonMap, integer, is_set, items, object, text, value_of};

/// The least and the most seconds a projected token lives.
const TOKEN_SECONDS: (i64, i64) = (600, 1 << 32);

/// Checks a projected volume.
pub(super) fn validate_projected<'a>(volume: &'a JsonMap, path: &FieldPath, errors: &mut FieldErrors) {
    validate_mode(volume, "defaultMode", path, errors);
    let mut seen: BTreeSet<&'a str> = BTreeSet::new();
    for (index, source) in items(volume, "sources") {
        let at = path.child("sources").index(index);
        let mut sources = 0;
        for kind in ["secret", "configMap"] {
            if let Some(settings) = object(source, kind) {
                sources += 1;
                let at = at.child(kind);
                required(settings, "name", &at, errors);
                validate_key_paths(settings, &at, errors);
                for (_, item) in items(settings, "items") {
                    take(text(item, "path"), text(settings, "name"), &mut seen, path, errors);
                }
            }
        }
        if let Some(settings) = object(source, "downwardAPI") {
            sources += 1;
            for (_, file) in items(settings, "items") {
                validate_downward_file(file, &at.child("downwardAPI"), errors);
                take(text(file, "path"), text(file, "path"), &mut seen, path, errors);
            }
        }
        if let Some(token) = object(source, "serviceAccountToken") {
            sources += 1;
            validate_token(token, &at.child("serviceAccountToken"), path, errors);
        }
        if let Some(bundle) = object(source, "clusterTrustBundle") {
            sources += 1;
            validate_bundle(bundle, &at.child("clusterTrustBundle"), errors);
            take(text(bundle, "path"), text(bundle, "path"), &mut seen, path, errors);
        }
        if let Some(certificate) = object(source, "podCertificate") {
            sources += 1;
            validate_certificate(certificate, &at.child("podCertificate"), errors);
            for field in CERTIFICATE_PATHS {
                take(
                    text(certificate, field),
                    text(certificate, field),
                    &mut seen,
                    path,
                    errors,
                );
            }
        }
        if sources > 1 {
            errors.forbidden(at, "may not specify more than 1 volume type per source");
        }
    }
}

/// Notes a path that a source fills; two may not fill the same.
fn take<'a>(file: &'a str, shown: &str, seen: &mut BTreeSet<&'a str>, path: &FieldPath, errors: &mut FieldErrors) {
    if !file.is_empty() && !seen.insert(file) {
        errors.invalid(path.clone(), shown, "conflicting duplicate paths");
    }
}

fn validate_token(token: &JsonMap, at: &FieldPath, volume: &FieldPath, errors: &mut FieldErrors) {
    let seconds = integer(token, "expirationSeconds").unwrap_or(0);
    if seconds < TOKEN_SECONDS.0 {
        let detail = "may not specify a duration less than 10 minutes";
        errors.invalid(at.child("expirationSeconds"), seconds, detail);
    }
    if seconds > TOKEN_SECONDS.1 {
        let detail = "may not specify a duration larger than 2^32 seconds";
        errors.invalid(at.child("expirationSeconds"), seconds, detail);
    }
    if required(token, "path", volume, errors) {
        not_reserved(text(token, "path"), || volume.child("path"), errors);
    }
}

fn validate_bundle(bundle: &JsonMap, at: &FieldPath, errors: &mut FieldErrors) {
    match (is_set(bundle, "name"), is_set(bundle, "signerName")) {
        (true, true) => {
            let printed = serde_json::Value::Object(bundle.clone());
            errors.invalid(at.clone(), printed, "only one of name and signerName may be used");
        }
        (true, false) => {
            if text(bundle, "name").is_empty() {
                errors.required(at.child("name"), "must be a valid object name");
            }
            if is_set(bundle, "labelSelector") {
                let detail = "labelSelector must be unset if name is specified";
                errors.invalid(at.child("labelSelector"), value_of(bundle, "labelSelector"), detail);
            }
        }
        (false, true) => {
            if text(bundle, "signerName").is_empty() {
                errors.required(at.child("signerName"), "must be a valid signer name");
            }
            labels::validate_selector(bundle.get("labelSelector"), &at.child("labelSelector"), errors);
        }
        (false, false) => errors.required(at.clone(), "either name or signerName must be specified"),
    }
    required(bundle, "path", at, errors);
    not_reserved(text(bundle, "path"), || at.child("path"), errors);
}

const CERTIFICATE_PATHS: [&str; 3] = ["credentialBundlePath", "keyPath", "certificateChainPath"];

fn validate_certificate(certificate: &JsonMap, at: &FieldPath, errors: &mut FieldErrors) {
    const KEYS: [&str; 6] = ["RSA3072", "RSA4096", "ECDSAP256", "ECDSAP384", "ECDSAP521", "ED25519"];
    let key = text(certificate, "keyType");
    if !KEYS.contains(&key) {
        errors.not_supported(at.child("keyType"), key, &KEYS);
    }
    if let Some(seconds) = integer(certificate, "maxExpirationSeconds").filter(|seconds| *seconds < 3600) {
        let detail = "if provided, maxExpirationSeconds must be >= 3600";
        errors.invalid(at.child("maxExpirationSeconds"), seconds, detail);
    }
    let mut paths = 0;
    for field in CERTIFICATE_PATHS {
        let file = text(certificate, field);
        if !file.is_empty() {
            paths += 1;
            not_reserved(file, || at.child(field), errors);
        }
    }
    if paths == 0 {
        let detail = "specify at least one of credentialBundlePath, keyPath, and certificateChainPath";
        errors.required(at.clone(), detail);
    }
}
