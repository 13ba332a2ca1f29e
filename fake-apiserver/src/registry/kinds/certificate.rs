//! CertificateSigningRequests (`pkg/registry/certificates/certificates`, `pkg/apis/certificates/validation`), and the
//! other kinds of their group, which are selected by their signer.

use serde_json::{Map, Value, json};

use super::plain;
use super::strategy::{Context, FieldLabels, Strategy};
use crate::api::field::{FieldErrors, FieldPath, quote};
use crate::api::object::Object;
use crate::api::user::UserInfo;
use crate::registry::types::access::{at, ensure_object, list, objects, objects_mut, restore, text};
use crate::registry::types::names;
use crate::registry::types::pem::pem_blocks;

/// The shortest life of a certificate that may be asked for, in seconds.
const EXPIRATION_MIN: i64 = 600;
/// The signer of requests that named none in v1beta1.
const LEGACY_SIGNER: &str = "kubernetes.io/legacy-unknown";
/// Longest name of a signer's path: a namespace and a name (`ValidateSignerName`).
const SIGNER_MAX: usize = 571;

const APPROVED: &str = "Approved";
const DENIED: &str = "Denied";
const FAILED: &str = "Failed";

/// Usages of a certificate, in alphabetical order.
const USAGES: [&str; 23] = [
    "any",
    "cert sign",
    "client auth",
    "code signing",
    "content commitment",
    "crl sign",
    "data encipherment",
    "decipher only",
    "digital signature",
    "email protection",
    "encipher only",
    "ipsec end system",
    "ipsec tunnel",
    "ipsec user",
    "key agreement",
    "key encipherment",
    "microsoft sgc",
    "netscape sgc",
    "ocsp signing",
    "s/mime",
    "server auth",
    "signing",
    "timestamping",
];

/// The strategy of CertificateSigningRequests, their status and their approval.
#[derive(Debug)]
pub(crate) struct CertificateSigningRequest;

impl Strategy for CertificateSigningRequest {
    fn prepare_for_create(&self, object: &mut Object, context: &Context<'_>) {
        let spec = ensure_object(object, "spec");
        for field in ["username", "uid", "groups", "extra"] {
            spec.remove(field);
        }
        if let Some(user) = context.user {
            set_requester(spec, user);
        }
    }

    fn validate(&self, object: &Object, errors: &mut FieldErrors) {
        validate_request(object, None, errors);
    }

    fn prepare_for_update(&self, object: &mut Object, old: &Object, context: &Context<'_>) {
        restore(object, old, "spec");
        match context.subresource {
            "approval" => {
                populate_condition_timestamps(object, old, context);
                let conditions = at(object, "status.conditions").cloned();
                restore(object, old, "status");
                let status = ensure_object(object, "status");
                status.remove("conditions");
                status.extend(conditions.map(|it| ("conditions".to_owned(), it)));
            }
            "status" => {
                for kind in [APPROVED, DENIED] {
                    preserve_conditions(object, old, kind);
                }
                populate_condition_timestamps(object, old, context);
            }
            _ => restore(object, old, "status"),
        }
    }

    fn validate_update(&self, object: &Object, old: &Object, errors: &mut FieldErrors, context: &Context<'_>) {
        validate_request(object, Some(old), errors);
        validate_condition_changes(object, old, context.subresource == "approval", errors);
        let certificate = text(object, "status.certificate");
        let earlier = text(old, "status.certificate");
        if certificate != earlier {
            let path = FieldPath::new("status.certificate");
            if context.subresource != "status" {
                errors.forbidden(path, "updates may not set certificate content");
            } else if !earlier.is_empty() {
                errors.forbidden(path, "updates may not modify existing certificate content");
            }
        }
    }

    fn validate_name(&self, _name: &str, _is_prefix: bool) -> Vec<String> {
        Vec::new()
    }

    fn field_labels(&self) -> FieldLabels {
        plain::field_labels(&["spec.signerName"], false)
    }

    fn field_values(&self, object: &Object) -> Vec<(&'static str, String)> {
        vec![("spec.signerName", text(object, "spec.signerName").to_owned())]
    }
}

/// Sets the requester of the certificate to the user of the request, replacing the body's.
fn set_requester(spec: &mut Map<String, Value>, user: &UserInfo) {
    spec.insert("username".into(), user.name.as_str().into());
    if !user.uid.is_empty() {
        spec.insert("uid".into(), user.uid.as_str().into());
    }
    if !user.groups.is_empty() {
        spec.insert("groups".into(), json!(user.groups));
    }
    if !user.extra.is_empty() {
        spec.insert("extra".into(), json!(user.extra));
    }
}

/// `preserveConditionInstances`: the conditions of this type are the old ones, unless some came or went.
fn preserve_conditions(object: &mut Object, old: &Object, kind: &str) {
    let kept: Vec<Value> = conditions_of(old, kind).map(|it| Value::Object(it.clone())).collect();
    if conditions_of(object, kind).count() != kept.len() {
        return;
    }
    let conditions = objects_mut(object, "status.conditions").filter(|it| text(it, "type") == kind);
    for (condition, kept) in conditions.zip(kept) {
        if let Value::Object(kept) = kept {
            *condition = kept;
        }
    }
}

/// `populateConditionTimestamps`: a missing lastTransitionTime is that of the old condition of the same type and
/// status, or now.
fn populate_condition_timestamps(object: &mut Object, old: &Object, context: &Context<'_>) {
    let now = Value::from(context.entropy.now_seconds());
    let is_unset = |it: &Map<String, Value>, field: &str| it.get(field).is_none_or(Value::is_null);
    for condition in objects_mut(object, "status.conditions") {
        if is_unset(condition, "lastUpdateTime") {
            condition.insert("lastUpdateTime".into(), now.clone());
        }
        if is_unset(condition, "lastTransitionTime") {
            let earlier = objects(old, "status.conditions").map(|(_, it)| it).find(|it| {
                ["type", "status"]
                    .iter()
                    .all(|field| text(it, field) == text(condition, field))
                    && !is_unset(it, "lastTransitionTime")
            });
            let time = earlier.and_then(|it| it.get("lastTransitionTime")).unwrap_or(&now);
            condition.insert("lastTransitionTime".into(), time.clone());
        }
    }
}

fn conditions_of<'a>(object: &'a Object, kind: &str) -> impl Iterator<Item = &'a Map<String, Value>> {
    objects(object, "status.conditions")
        .map(|(_, it)| it)
        .filter(move |it| text(it, "type") == kind)
}

/// `validateCertificateSigningRequest`; what the old object had wrong already is tolerated (`getValidationOptions`).
fn validate_request(object: &Object, old: Option<&Object>, errors: &mut FieldErrors) {
    let path = FieldPath::new("spec");
    let request = text(object, "spec.request");
    if pem_blocks(request)
        .next()
        .is_none_or(|block| block.kind != "CERTIFICATE REQUEST")
    {
        let shown = at(object, "spec.request").cloned().filter(|it| it != "");
        let text = "PEM block type must be CERTIFICATE REQUEST";
        errors.invalid(path.child("request"), shown.unwrap_or_default(), text);
    }
    validate_usages(object, old, errors);
    let signer = text(object, "spec.signerName");
    let is_legacy = |it: &Object| text(it, "spec.signerName") == LEGACY_SIGNER;
    if is_legacy(object) && !old.is_some_and(is_legacy) {
        let text = "the legacy signerName is not allowed via this API version";
        errors.invalid(path.child("signerName"), signer, text);
    } else {
        validate_signer_name(signer, &path.child("signerName"), errors);
    }
    let expiration = at(object, "spec.expirationSeconds").and_then(Value::as_i64);
    if let Some(seconds) = expiration.filter(|it| *it < EXPIRATION_MIN) {
        let text = "may not specify a duration less than 600 seconds (10 minutes)";
        errors.invalid(path.child("expirationSeconds"), seconds, text);
    }
    validate_conditions(object, old, errors);
    let certificate = text(object, "status.certificate");
    let tolerated = |old: &Object| {
        text(old, "status.certificate") == certificate || check_certificate(text(old, "status.certificate")).is_err()
    };
    if !old.is_some_and(tolerated)
        && let Err(problem) = check_certificate(certificate)
    {
        errors.invalid(FieldPath::new("status.certificate"), "<certificate data>", problem);
    }
}

fn validate_usages(object: &Object, old: Option<&Object>, errors: &mut FieldErrors) {
    let path = FieldPath::new("spec.usages");
    let usages = |it: &'_ Object| -> Vec<String> {
        let texts = list(it, "spec.usages").iter().filter_map(Value::as_str);
        texts.map(str::to_owned).collect()
    };
    let (new, earlier) = (usages(object), old.map(usages).unwrap_or_default());
    if new.is_empty() {
        errors.required(path.clone(), "");
    }
    let is_known = |it: &String| USAGES.contains(&it.as_str());
    if earlier.iter().all(is_known) {
        for (index, usage) in new.iter().enumerate().filter(|(_, it)| !is_known(it)) {
            errors.not_supported(path.index(index), usage.as_str(), &USAGES);
        }
    }
    let repeats = |all: &[String], index: usize| all.iter().take(index).any(|it| Some(it) == all.get(index));
    if !(0..earlier.len()).any(|index| repeats(&earlier, index)) {
        for (index, usage) in new.iter().enumerate().filter(|(index, _)| repeats(&new, *index)) {
            errors.duplicate(path.index(index), usage.as_str());
        }
    }
}

/// `validateConditions`.
fn validate_conditions(object: &Object, old: Option<&Object>, errors: &mut FieldErrors) {
    let path = FieldPath::new("status.conditions");
    let kinds = |it: &Object| -> Vec<String> {
        objects(it, "status.conditions")
            .map(|(_, it)| text(it, "type").to_owned())
            .collect()
    };
    let earlier = old.map(kinds).unwrap_or_default();
    let allows_empty = earlier.iter().any(String::is_empty);
    let allows_both = [APPROVED, DENIED]
        .iter()
        .all(|kind| earlier.iter().any(|it| it == kind));
    let allows_repeats =
        (1..earlier.len()).any(|index| earlier.iter().take(index).any(|it| Some(it) == earlier.get(index)));
    let mut seen: Vec<&str> = Vec::new();
    for (index, condition) in objects(object, "status.conditions") {
        let (kind, status) = (text(condition, "type"), text(condition, "status"));
        if kind.is_empty() && !allows_empty {
            errors.required(path.index(index).child("type"), "");
        }
        let supported: &[&str] = match kind {
            APPROVED | DENIED | FAILED => &["True"],
            _ => &["False", "True", "Unknown"],
        };
        if status.is_empty() {
            errors.required(path.index(index).child("status"), "");
        } else if !supported.contains(&status) {
            errors.not_supported(path.index(index).child("status"), status, supported);
        }
        let excluded = match kind {
            APPROVED => Some(DENIED),
            DENIED => Some(APPROVED),
            _ => None,
        };
        if !allows_both && excluded.is_some_and(|it| seen.contains(&it)) {
            errors.invalid(
                path.clone(),
                kind,
                "Approved and Denied conditions are mutually exclusive",
            );
        }
        if !allows_repeats && seen.contains(&kind) {
            errors.duplicate(path.index(index).child("type"), kind);
        }
        seen.push(kind);
    }
}

/// Decided conditions stay, and only a write of the approval brings new ones
/// (`validateCertificateSigningRequestUpdate`).
fn validate_condition_changes(object: &Object, old: &Object, is_approval: bool, errors: &mut FieldErrors) {
    let path = FieldPath::new("status.conditions");
    for kind in [APPROVED, DENIED, FAILED] {
        if conditions_of(object, kind).count() < conditions_of(old, kind).count() {
            let text = format!("updates may not remove a condition of type \"{kind}\"");
            errors.forbidden(path.clone(), text);
        }
    }
    if is_approval {
        return;
    }
    for kind in [APPROVED, DENIED] {
        let (new, earlier) = (conditions_of(object, kind).count(), conditions_of(old, kind).count());
        let verb = if new > earlier {
            "add"
        } else if new == earlier && !conditions_of(object, kind).eq(conditions_of(old, kind)) {
            "modify"
        } else {
            continue;
        };
        errors.forbidden(
            path.clone(),
            format!("updates may not {verb} a condition of type \"{kind}\""),
        );
    }
}

/// `validation.ValidateSignerName`: a domain, and a path whose parts are subdomains.
pub(crate) fn validate_signer_name(signer: &str, path: &FieldPath, errors: &mut FieldErrors) {
    if signer.is_empty() {
        errors.required(path.clone(), "");
        return;
    }
    let Some((domain, name)) = signer.split_once('/').filter(|(_, name)| !name.contains('/')) else {
        let text = "must be a fully qualified domain and path of the form 'example.com/signer-name'";
        errors.invalid(path.clone(), signer, text);
        return;
    };
    if domain.len() > names::SUBDOMAIN_MAX {
        errors.too_long(path.clone(), names::SUBDOMAIN_MAX);
    }
    validate_labels(domain, names::dns1123_label, path, errors);
    if !domain.contains('.') {
        errors.invalid(
            path.clone(),
            domain,
            "should be a domain with at least two segments separated by dots",
        );
    }
    validate_labels(name, names::dns1123_subdomain, path, errors);
    if signer.len() > SIGNER_MAX {
        errors.too_long(path.clone(), SIGNER_MAX);
    }
}

/// Validates the parts between the dots; the first error is reported.
fn validate_labels(whole: &str, rule: fn(&str, bool) -> Vec<String>, path: &FieldPath, errors: &mut FieldErrors) {
    let wrong = whole
        .split('.')
        .map(|label| (label, rule(label, false)))
        .find(|(_, problems)| !problems.is_empty());
    for problem in wrong.iter().flat_map(|(_, problems)| problems) {
        let label = quote(wrong.as_ref().map_or("", |(label, _)| label));
        errors.invalid(path.clone(), whole, format!("validating label {label}: {problem}"));
    }
}

/// `validateCertificate`: nothing, or certificates in PEM and nothing else. What is in them is not read beyond the
/// outermost element.
fn check_certificate(encoded: &str) -> Result<(), String> {
    if encoded.is_empty() {
        return Ok(());
    }
    let mut found = false;
    for block in pem_blocks(encoded) {
        if block.kind != "CERTIFICATE" {
            let kind = quote(&block.kind);
            return Err(format!("only CERTIFICATE PEM blocks are allowed, found {kind}"));
        }
        if block.has_headers {
            return Err("no PEM block headers are permitted".to_owned());
        }
        if block.der.first() != Some(&0x30) {
            return Err("x509: malformed certificate".to_owned());
        }
        found = true;
    }
    match found {
        true => Ok(()),
        false => Err("must contain at least one CERTIFICATE PEM block".to_owned()),
    }
}

/// A kind that needs a resourceVersion and is selected by fields of its spec.
#[derive(Debug)]
pub(crate) struct Signed {
    /// The field labels.
    pub(crate) labels: &'static [&'static str],
    /// Set if objects live in namespaces.
    pub(crate) is_namespaced: bool,
}

impl Strategy for Signed {
    fn allows_unconditional_update(&self) -> bool {
        false
    }

    fn field_labels(&self) -> FieldLabels {
        plain::field_labels(self.labels, self.is_namespaced)
    }

    fn field_values(&self, object: &Object) -> Vec<(&'static str, String)> {
        let value = |label: &&'static str| (*label, text(object, label).to_owned());
        self.labels.iter().map(value).collect()
    }
}
