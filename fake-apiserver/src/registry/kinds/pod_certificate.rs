//! The strategy of PodCertificateRequests. Follows `ValidatePodCertificateRequestCreate` and its counterparts for
//! updates in `pkg/apis/certificates/validation`. Signatures are not verified, and only the form of an issued
//! certificate chain is checked.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::certificate::{signed, validate_signer_name};
use super::facts::Facts;
use super::plain::restore_metadata;
use super::strategy::{Context, Strategy};
use crate::api::field::{FieldError, FieldErrorKind, FieldErrors, FieldPath};
use crate::api::json::Value;
use crate::api::kubernetes_version::KubernetesVersion;
use crate::api::object::Object;
use crate::registry::types::conditions::validate_conditions;
use crate::registry::types::cursor::Cursor;
use crate::registry::types::der::{PublicKey, is_authority, request_key};
use crate::registry::types::edit::{default_value, ensure_object};
use crate::registry::types::names;
use crate::registry::types::pem::pem_blocks_of_text;

/// Maximum length of a uid, in bytes.
const UID_MAX: usize = 128;
/// Default lifetime of a certificate, in seconds.
const LIFETIME: i64 = 86_400;
/// Minimum lifetime of a certificate, in seconds.
const LIFETIME_MIN: i64 = 3_600;
/// Maximum lifetime of a certificate from a signer of Kubernetes, in seconds.
const KUBERNETES_LIFETIME_MAX: i64 = 86_400;
/// Maximum lifetime of a certificate from another signer, in seconds.
const LIFETIME_MAX: i64 = 91 * 86_400;
/// Maximum size of a PKCS#10 request, in bytes.
const REQUEST_MAX: usize = 10 << 10;
/// Maximum size of all annotations, in bytes.
const ANNOTATIONS_MAX: usize = 256 << 10;

/// The conditions that end a request.
const ENDS: [&str; 3] = ["Issued", "Denied", "Failed"];

/// The strategy of PodCertificateRequests.
#[derive(Debug)]
pub(crate) struct PodCertificateRequest {
    pub(crate) version: KubernetesVersion,
}

impl Strategy for PodCertificateRequest {
    fn facts(&self) -> &Facts {
        const { &signed(&["spec.signerName", "spec.podName", "spec.nodeName"], true) }
    }

    fn default(&self, object: &mut Object) {
        default_value(ensure_object(object, "spec"), "maxExpirationSeconds", LIFETIME);
    }

    fn validate(&self, object: &Object, errors: &mut FieldErrors) {
        let object = Cursor::root(object);
        let spec = object.at("spec");
        validate_signer_name(&spec.at("signerName"), errors);
        validate_annotations(&spec.at("unverifiedUserAnnotations"), errors);
        for (name, uid) in [
            ("podName", "podUID"),
            ("serviceAccountName", "serviceAccountUID"),
            ("nodeName", "nodeUID"),
        ] {
            spec.at(name)
                .check_name(|it| names::dns1123_subdomain(it, false), errors);
            let uid = spec.at(uid);
            if uid.as_text().is_empty() {
                errors.invalid(uid, "", "must not be empty");
            } else if uid.as_text().len() > UID_MAX {
                errors.too_long(uid, UID_MAX);
            }
        }
        validate_lifetime(&spec, errors);
        let is_set = |field: &str| !spec.is_empty(field);
        match (
            is_set("stubPKCS10Request"),
            is_set("pkixPublicKey"),
            is_set("proofOfPossession"),
        ) {
            (true, false, false) => validate_request(&spec.at("stubPKCS10Request"), errors),
            (false, true, true) => {}
            // Since 1.37, the key and its proof are dropped, so all three fields may be empty.
            (false, false, false) if self.version > KubernetesVersion::V1_36 => {}
            _ => {
                let text = "exactly one of (stubPKCS10Request) or (pkixPublicKey, proofOfPossession) must be set";
                errors.push(without_value(&spec.path(), text));
            }
        }
    }

    fn prepare_for_update(&self, object: &mut Object, old: &Object, context: &Context<'_>) {
        if context.subresource == "status" {
            restore_metadata(object, old);
        }
    }

    fn validate_update(&self, object: &Object, old: &Object, errors: &mut FieldErrors, context: &Context<'_>) {
        let (new, before) = (Cursor::root(object), Cursor::root(old));
        match context.subresource {
            "status" if errors.is_empty() => validate_status(&new.at("status"), &before.at("status"), errors),
            "status" => {}
            _ => new.at("spec").check_unchanged(&before.at("spec"), errors),
        }
    }
}

/// Returns an error that does not show the value.
fn without_value(path: &FieldPath, text: &str) -> FieldError {
    FieldError {
        path: path.clone(),
        kind: FieldErrorKind::Invalid,
        value: None,
        detail: text.to_owned(),
    }
}

/// Checks the annotations that the user sends to the signer (`ValidateUserAnnotations`).
fn validate_annotations(annotations: &Cursor<'_>, errors: &mut FieldErrors) {
    let mut size = 0;
    for (key, value) in annotations.entries("") {
        size += key.len() + value.as_text().len();
        let key = key.to_lowercase();
        let problems = names::qualified_name(&key);
        if !problems.is_empty() {
            annotations.refuse(&key, problems, errors);
        } else if !key.contains('/') {
            let text = "must be a domain-prefixed key (such as \"acme.io/foo\")";
            errors.invalid(annotations, key, text);
        }
    }
    if size > ANNOTATIONS_MAX {
        errors.too_long(annotations, ANNOTATIONS_MAX);
    }
}

fn validate_lifetime(spec: &Cursor<'_>, errors: &mut FieldErrors) {
    let domain = spec.text("signerName").split('/').next().unwrap_or_default();
    let max = match domain == "kubernetes.io" || domain.ends_with(".kubernetes.io") {
        true => KUBERNETES_LIFETIME_MAX,
        false => LIFETIME_MAX,
    };
    let lifetime = spec.at("maxExpirationSeconds");
    let seconds = lifetime.integer("").filter(|it| !(LIFETIME_MIN..=max).contains(it));
    if let Some(seconds) = seconds {
        let text = format!("must be in the range [{LIFETIME_MIN}, {max}]");
        errors.invalid(lifetime, seconds, text);
    }
}

/// Checks a PKCS#10 request (`validateStubPKCS10Request`). The signature is not verified.
fn validate_request(request: &Cursor<'_>, errors: &mut FieldErrors) {
    let der = STANDARD.decode(request.as_text()).unwrap_or_default();
    if der.len() > REQUEST_MAX {
        return errors.too_long(request, REQUEST_MAX);
    }
    match request_key(&der) {
        None => errors.push(without_value(&request.path(), "must be a valid PKCS#10 CSR")),
        Some(PublicKey::Rsa { bits: 3072 | 4096 } | PublicKey::Known) => {}
        Some(PublicKey::Rsa { bits }) => {
            let text = "RSA keys must have modulus size 3072 or 4096";
            errors.invalid(request, format!("{bits}-bit modulus"), text);
        }
        Some(PublicKey::Other) => {
            let text = "unknown public key type; supported types are Ed25519, ECDSA, and RSA";
            errors.push(without_value(&request.path(), text));
        }
    }
}

/// Checks an updated status (`ValidatePodCertificateRequestStatusUpdate`).
fn validate_status(new: &Cursor<'_>, old: &Cursor<'_>, errors: &mut FieldErrors) {
    let conditions = new.at("conditions");
    let mut known = 0;
    for (at, condition) in conditions.items("").enumerate() {
        // As in kube-apiserver, the error path contains the index as a field name.
        let path = conditions.path().child(&format!("[{at}]"));
        let kind = condition.text("type");
        if !ENDS.contains(&kind) {
            errors.not_supported(path.child("type"), kind, &ENDS);
            continue;
        }
        known += 1;
        if known > 1 {
            let text = "There may be at most one condition with type \"Issued\", \"Denied\", or \"Failed\"";
            errors.invalid(path.child("type"), kind, text);
        }
        if condition.text("status") != "True" {
            errors.not_supported(path.child("status"), condition.text("status"), &["True"]);
        }
    }
    validate_conditions(&conditions, errors);
    if !errors.is_empty() {
        return;
    }
    let end = |status: &Cursor<'_>| {
        let mut all = status.maps("conditions").map(Cursor::root);
        all.any(|it| ENDS.contains(&it.text("type")) && it.text("status") == "True")
    };
    let kind = conditions.items("").next().map(|it| it.text("type").to_owned());
    let others_are_empty = || new.fields().all(|(name, it)| name == "conditions" || it.is_empty(""));
    let text = match kind.as_deref() {
        _ if end(old) => {
            (!new.same(old, "")).then_some("immutable after PodCertificateRequest is issued, denied, or failed")
        }
        Some("Issued") => return validate_chain(new, errors),
        Some(_) => (!others_are_empty())
            .then_some("non-condition status fields must be empty when denying or failing the PodCertificateRequest"),
        None => (!new.same(old, ""))
            .then_some("status is immutable unless transitioning to \"Issued\", \"Denied\", or \"Failed\""),
    };
    if let Some(text) = text {
        errors.push(without_value(&new.path(), text));
    }
}

/// Checks that an issued certificate chain is well formed, and that the times of the certificate are set.
fn validate_chain(status: &Cursor<'_>, errors: &mut FieldErrors) {
    let chain = status.at("certificateChain");
    let mut blocks = pem_blocks_of_text(chain.as_text());
    let problem = match blocks.next() {
        None => Some("issued certificate chain must contain at least one certificate"),
        Some(leaf) if leaf.kind != "CERTIFICATE" => {
            Some("issued certificate chain must consist entirely of CERTIFICATE PEM blocks")
        }
        Some(leaf) if is_authority(&leaf.der).is_none() => Some("leaf certificate does not parse as valid X.509"),
        Some(_) => None,
    };
    if let Some(problem) = problem {
        return errors.invalid(chain, chain.as_text(), problem);
    }
    for (field, text) in [
        (
            "notBefore",
            "must be present and consistent with the issued certificate",
        ),
        ("notAfter", "must be present and consistent with the issued certificate"),
        (
            "beginRefreshAt",
            "must be present and in the range [notbefore+10min, notafter-10min]",
        ),
    ] {
        if !status.is_set(field) {
            errors.required(status.at(field), text);
        }
    }
    if !errors.is_empty() {
        return;
    }
    for block in blocks {
        let problem = match block.kind.as_str() {
            "CERTIFICATE" if is_authority(&block.der).is_some() => continue,
            "CERTIFICATE" => "intermediate certificate does not parse as valid X.509",
            _ => "issued certificate chain must consist entirely of CERTFICATE PEM blocks",
        };
        return errors.invalid(chain, Value::from(chain.as_text()), problem);
    }
}
