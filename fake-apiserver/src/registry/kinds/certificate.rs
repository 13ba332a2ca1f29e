//! The strategy of CertificateSigningRequests (`pkg/registry/certificates/certificates`,
//! `pkg/apis/certificates/validation`), and the static properties of the other kinds in their group.

use std::collections::BTreeSet;

use super::facts::{Facts, FieldLabels};
use super::strategy::{Context, Strategy};
use crate::api::field::{FieldErrors, quote};
use crate::api::json::{Map, Value, json};
use crate::api::object::Object;
use crate::api::user::UserInfo;
use crate::registry::types::cursor::Cursor;
use crate::registry::types::der::certificate_request_error;
use crate::registry::types::edit::{copy_field, default_value, ensure_object, items_mut};
use crate::registry::types::names;
use crate::registry::types::pem::pem_blocks;

/// Minimum lifetime of a certificate that may be requested, in seconds.
const EXPIRATION_MIN: i64 = 600;
/// The default signer of requests in v1beta1.
const LEGACY_SIGNER: &str = "kubernetes.io/legacy-unknown";
/// Maximum length of a signer's name (`ValidateSignerName`): a domain of 253 characters, a slash, and a path of 317
/// characters, which may contain a namespace, a dot and a name.
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
    fn facts(&self) -> &Facts {
        const {
            &Facts {
                name: |_, _| Vec::new(),
                fields: FieldLabels::of(&["spec.signerName"], false),
                ..Facts::DEFAULT
            }
        }
    }

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
        copy_field(old, object, "spec");
        match context.subresource {
            "approval" => {
                populate_condition_timestamps(object, old, context);
                let conditions = Cursor::root(object).get("status.conditions").cloned();
                copy_field(old, object, "status");
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
            _ => copy_field(old, object, "status"),
        }
    }

    fn validate_update(&self, object: &Object, old: &Object, errors: &mut FieldErrors, context: &Context<'_>) {
        validate_request(object, Some(old), errors);
        let (object, old) = (Cursor::root(object), Cursor::root(old));
        validate_condition_changes(&object, &old, context.subresource == "approval", errors);
        let certificate = object.at("status.certificate");
        if certificate.as_text() != old.text("status.certificate") {
            if context.subresource != "status" {
                errors.forbidden(certificate, "updates may not set certificate content");
            } else if !old.is_empty("status.certificate") {
                errors.forbidden(certificate, "updates may not modify existing certificate content");
            }
        }
    }
}

/// Sets the user fields of the spec to the authenticated user, replacing the values in the request body.
fn set_requester(spec: &mut Map, user: &UserInfo) {
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

/// Restores the old conditions of the type `kind`, unless their number changed (`preserveConditionInstances`).
fn preserve_conditions(object: &mut Object, old: &Object, kind: &str) {
    let kept: Vec<Value> = conditions_of(&Cursor::root(old), kind)
        .map(|it| it.to_value())
        .collect();
    if conditions_of(&Cursor::root(object), kind).count() != kept.len() {
        return;
    }
    let conditions = items_mut(object, "status.conditions").filter(|it| Cursor::root(it).text("type") == kind);
    for (condition, kept) in conditions.zip(kept) {
        if let Value::Object(kept) = kept {
            *condition = kept;
        }
    }
}

/// Sets missing times of conditions (`populateConditionTimestamps`). lastTransitionTime is copied from an old condition
/// with the same type and status; all other missing times are set to now.
fn populate_condition_timestamps(object: &mut Object, old: &Object, context: &Context<'_>) {
    let now = Value::from(context.entropy.now_seconds());
    let old = Cursor::root(old);
    for condition in items_mut(object, "status.conditions") {
        default_value(condition, "lastUpdateTime", now.clone());
        let new = Cursor::root(condition);
        let is_former = |it: &Cursor<'_>| {
            let is_same = ["type", "status"].iter().all(|field| it.text(field) == new.text(field));
            is_same && it.is_set("lastTransitionTime")
        };
        let former = old.items("status.conditions").find(is_former);
        let time = former.map_or_else(|| now.clone(), |it| it.at("lastTransitionTime").to_value());
        default_value(condition, "lastTransitionTime", time);
    }
}

fn conditions_of<'a>(request: &'a Cursor<'a>, kind: &'a str) -> impl Iterator<Item = Cursor<'a>> {
    request
        .items("status.conditions")
        .filter(move |it| it.text("type") == kind)
}

/// Checks a CertificateSigningRequest (`validateCertificateSigningRequest`). Kinds of errors that the old object
/// already has are tolerated (`getValidationOptions`).
fn validate_request(object: &Object, old: Option<&Object>, errors: &mut FieldErrors) {
    let object = Cursor::root(object);
    let old = old.map(|old| Cursor::root(old));
    let old = old.as_ref();
    let request = object.at("spec.request");
    if let Some(text) = request_error(request.as_text()) {
        let shown = request.get("").cloned().filter(|it| it != "");
        errors.invalid(request, shown.unwrap_or_default(), text);
    }
    validate_usages(&object, old, errors);
    let signer = object.at("spec.signerName");
    let is_legacy = |it: &Cursor<'_>| it.text("spec.signerName") == LEGACY_SIGNER;
    if is_legacy(&object) && !old.is_some_and(is_legacy) {
        let text = "the legacy signerName is not allowed via this API version";
        errors.invalid(signer, signer.as_text(), text);
    } else {
        validate_signer_name(&signer, errors);
    }
    let expiration = object.at("spec.expirationSeconds");
    if let Some(seconds) = expiration.integer("").filter(|it| *it < EXPIRATION_MIN) {
        let text = "may not specify a duration less than 600 seconds (10 minutes)";
        errors.invalid(expiration, seconds, text);
    }
    validate_conditions(&object.at("status.conditions"), old, errors);
    let certificate = object.at("status.certificate");
    let tolerated = |old: &Cursor<'_>| {
        let earlier = old.text("status.certificate");
        earlier == certificate.as_text() || check_certificate(earlier).is_err()
    };
    if !old.is_some_and(tolerated)
        && let Err(problem) = check_certificate(certificate.as_text())
    {
        errors.invalid(certificate, "<certificate data>", problem);
    }
}

/// Returns the error for an invalid certificate request (`validateCSR`). The signature is not verified.
fn request_error(request: &str) -> Option<String> {
    match pem_blocks(request).next() {
        Some(block) if block.kind == "CERTIFICATE REQUEST" => certificate_request_error(&block.der),
        Some(_) | None => Some("PEM block type must be CERTIFICATE REQUEST".to_owned()),
    }
}

/// Returns one flag per item of a list: `true` if the item equals an earlier item.
fn repeated(all: &[&str]) -> Vec<bool> {
    let mut seen = BTreeSet::new();
    all.iter().map(|it| !seen.insert(*it)).collect()
}

fn validate_usages(object: &Cursor<'_>, old: Option<&Cursor<'_>>, errors: &mut FieldErrors) {
    let usages = object.at("spec.usages");
    let new: Vec<&str> = usages.texts("").collect();
    let earlier: Vec<&str> = old.into_iter().flat_map(|old| old.texts("spec.usages")).collect();
    if new.is_empty() {
        errors.required(usages, "");
    }
    if earlier.iter().all(|it| USAGES.contains(it)) {
        for usage in usages.items("") {
            usage.check_supported(&USAGES, errors);
        }
    }
    if !repeated(&earlier).contains(&true) {
        let all = usages.items("").zip(repeated(&new));
        for (usage, _) in all.filter(|(_, is_repeated)| *is_repeated) {
            errors.duplicate(usage, usage.as_text());
        }
    }
}

/// Checks the conditions of a CertificateSigningRequest (`validateConditions`).
fn validate_conditions(conditions: &Cursor<'_>, old: Option<&Cursor<'_>>, errors: &mut FieldErrors) {
    let earlier = old.into_iter().flat_map(|old| old.list("status.conditions"));
    let earlier: Vec<&str> = earlier.map(|it| it["type"].as_str().unwrap_or_default()).collect();
    let allows_empty = earlier.contains(&"");
    let allows_both = [APPROVED, DENIED].iter().all(|kind| earlier.contains(kind));
    let allows_repeats = repeated(&earlier).contains(&true);
    let mut seen: BTreeSet<&str> = BTreeSet::new();
    for condition in conditions.items("") {
        let kind = condition.text("type");
        if kind.is_empty() && !allows_empty {
            errors.required(condition.at("type"), "");
        }
        let supported: &[&str] = match kind {
            APPROVED | DENIED | FAILED => &["True"],
            _ => &["False", "True", "Unknown"],
        };
        condition.at("status").check_required_one_of(supported, errors);
        let excluded = match kind {
            APPROVED => Some(DENIED),
            DENIED => Some(APPROVED),
            _ => None,
        };
        if !allows_both && excluded.is_some_and(|it| seen.contains(&it)) {
            let text = "Approved and Denied conditions are mutually exclusive";
            errors.invalid(conditions, kind, text);
        }
        if !allows_repeats && seen.contains(&kind) {
            errors.duplicate(condition.at("type"), kind);
        }
        seen.insert(kind);
    }
}

/// Checks that the conditions `Approved`, `Denied` and `Failed` are not removed, and that only writes of `/approval`
/// add or change `Approved` and `Denied` (`validateCertificateSigningRequestUpdate`).
fn validate_condition_changes(object: &Cursor<'_>, old: &Cursor<'_>, is_approval: bool, errors: &mut FieldErrors) {
    let conditions = object.at("status.conditions");
    for kind in [APPROVED, DENIED, FAILED] {
        if conditions_of(object, kind).count() < conditions_of(old, kind).count() {
            let text = format!("updates may not remove a condition of type \"{kind}\"");
            errors.forbidden(conditions, text);
        }
    }
    if is_approval {
        return;
    }
    for kind in [APPROVED, DENIED] {
        let (new, earlier) = (conditions_of(object, kind).count(), conditions_of(old, kind).count());
        let mut pairs = conditions_of(object, kind).zip(conditions_of(old, kind));
        let verb = if new > earlier {
            "add"
        } else if new == earlier && pairs.any(|(new, old)| !new.same(&old, "")) {
            "modify"
        } else {
            continue;
        };
        let text = format!("updates may not {verb} a condition of type \"{kind}\"");
        errors.forbidden(conditions, text);
    }
}

/// Checks the name of a signer (`ValidateSignerName`): a domain, a slash, and a path with parts separated by dots.
pub(super) fn validate_signer_name(signer: &Cursor<'_>, errors: &mut FieldErrors) {
    let text = signer.as_text();
    if !signer.check_required(errors) {
        return;
    }
    let Some((domain, name)) = text.split_once('/').filter(|(_, name)| !name.contains('/')) else {
        let detail = "must be a fully qualified domain and path of the form 'example.com/signer-name'";
        errors.invalid(signer, text, detail);
        return;
    };
    if domain.len() > names::SUBDOMAIN_MAX {
        errors.too_long(signer, names::SUBDOMAIN_MAX);
    }
    validate_labels(signer, domain, names::dns1123_label, errors);
    if !domain.contains('.') {
        let detail = "should be a domain with at least two segments separated by dots";
        errors.invalid(signer, domain, detail);
    }
    validate_labels(signer, name, names::dns1123_subdomain, errors);
    if text.len() > SIGNER_MAX {
        errors.too_long(signer, SIGNER_MAX);
    }
}

/// Checks the dot-separated parts of `whole` with `rule`. Only the errors of the first invalid part are reported.
fn validate_labels(signer: &Cursor<'_>, whole: &str, rule: fn(&str, bool) -> Vec<String>, errors: &mut FieldErrors) {
    let labels = whole.split('.').map(|label| (label, rule(label, false)));
    for (label, problems) in labels.filter(|(_, problems)| !problems.is_empty()).take(1) {
        for problem in problems {
            let detail = format!("validating label {}: {problem}", quote(label));
            errors.invalid(signer, whole, detail);
        }
    }
}

/// Checks that an encoded certificate is empty or only contains PEM blocks of certificates (`validateCertificate`).
/// Only the outermost DER tag of each certificate is checked.
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

/// Returns the static properties of a kind with these field labels. Updates require a resourceVersion.
pub(crate) const fn signed(labels: &'static [&'static str], is_namespaced: bool) -> Facts {
    Facts {
        allows_unconditional_update: false,
        fields: FieldLabels::of(labels, is_namespaced),
        ..Facts::DEFAULT
    }
}
