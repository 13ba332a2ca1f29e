//! `CertificateApproval`, `CertificateSigning`, `CertificateSubjectRestriction` and `ClusterTrustBundleAttest`: users
//! need a permission for the signer to approve or sign a certificate request and to write a trust bundle, and client
//! certificates for `system:masters` are refused. The permission to sign a PodCertificateRequest is always required.

use super::Plugin;
use crate::api::field::{FieldErrors, FieldPath, quote};
use crate::api::json::{Map, Value};
use crate::api::object::Object;
use crate::api::rbac;
use crate::api::status::Status;
use crate::api::user::MASTERS;
use crate::registry::admission::Admission;
use crate::registry::admission::attributes::Attributes;
use crate::registry::authorization::changes_only_gc_fields;
use crate::registry::types::cursor::Cursor;
use crate::registry::types::der::organizations;
use crate::registry::types::pem::pem_blocks;

const GROUP: &str = "certificates.k8s.io";
/// Signer of client certificates for kube-apiserver.
const CLIENT_SIGNER: &str = "kubernetes.io/kube-apiserver-client";

/// Returns `true` for the resources that these plugins check.
pub(super) fn concerns(group: &str, resource: &str) -> bool {
    group == GROUP
        && matches!(
            resource,
            "certificatesigningrequests" | "clustertrustbundles" | "podcertificaterequests"
        )
}

/// Checks a write of a certificate request or a trust bundle.
pub(super) fn check(admission: &Admission, attributes: &Attributes<'_>, object: &Object) -> Result<(), Status> {
    match &*attributes.row.info.resource {
        "clustertrustbundles" => check_bundle(admission, attributes, object),
        "podcertificaterequests" => check_pod_request(admission, attributes, object),
        _ => check_request(admission, attributes, object),
    }
}

/// Checks that the user may attest for the signer of a new or changed ClusterTrustBundle.
fn check_bundle(admission: &Admission, attributes: &Attributes<'_>, object: &Object) -> Result<(), Status> {
    let signer = Cursor::root(object).text("spec.signerName");
    let old = attributes.old.as_ref();
    if signer.is_empty()
        || !admission.setup.plugins.has(Plugin::ClusterTrustBundleAttest)
        || old.is_some_and(|old| changes_only_gc_fields(object, old))
        || is_allowed_for(admission, attributes, "attest", signer)
    {
        return Ok(());
    }
    let why = format!("user not permitted to attest for signerName {}", quote(signer));
    Err(Status::forbidden(
        &attributes.row.info.group_resource(),
        attributes.shown_name(),
        why,
    ))
}

/// Checks that the user may sign for the signer of a PodCertificateRequest whose status changes. In kube-apiserver,
/// this is part of the validation.
fn check_pod_request(admission: &Admission, attributes: &Attributes<'_>, object: &Object) -> Result<(), Status> {
    let Some(old) = attributes.old.as_ref().filter(|_| attributes.subresource == "status") else {
        return Ok(());
    };
    let signer = Cursor::root(old).text("spec.signerName");
    if !changes_status(object, old) || is_allowed_for(admission, attributes, "sign", signer) {
        return Ok(());
    }
    let mut errors = FieldErrors::default();
    let user = quote(&attributes.user.name);
    let why = format!("User {user} is not permitted to \"sign\" for signer {}", quote(signer));
    errors.forbidden(FieldPath::new("spec.signerName"), why);
    let kind = attributes.row.info.group_kind();
    Err(Status::invalid(&kind, attributes.shown_name(), &errors))
}

/// Returns `true` if a write changes the status. An empty list is treated as absent.
fn changes_status(object: &Object, old: &Object) -> bool {
    let fields = |object: &'_ Object| -> Map {
        let status = Cursor::root(object).map_or_empty("status").iter();
        let is_kept = |value: &Value| !value.is_null() && value.as_array().is_none_or(|list| !list.is_empty());
        let kept = status.filter(|(_, value)| is_kept(value));
        kept.map(|(name, value)| (name.clone(), value.clone())).collect()
    };
    fields(object) != fields(old)
}

/// Checks a write of a CertificateSigningRequest or its subresources `approval` and `status`.
fn check_request(admission: &Admission, attributes: &Attributes<'_>, object: &Object) -> Result<(), Status> {
    let has = |plugin| admission.setup.plugins.has(plugin);
    let refused = match (attributes.subresource, &attributes.old) {
        ("", None) if has(Plugin::CertificateSubjectRestriction) => check_subject(object),
        ("approval", Some(old)) if has(Plugin::CertificateApproval) => {
            check_signer(admission, attributes, "approve", old)
        }
        ("status", Some(old)) if has(Plugin::CertificateSigning) && is_signed(object, old) => {
            check_signer(admission, attributes, "sign", old)
        }
        _ => Ok(()),
    };
    refused.map_err(|why| Status::forbidden(&attributes.row.info.group_resource(), attributes.shown_name(), why))
}

fn check_subject(object: &Object) -> Result<(), String> {
    let request = Cursor::root(object);
    if request.text("spec.signerName") != CLIENT_SIGNER {
        return Ok(());
    }
    let block = pem_blocks(request.text("spec.request")).next();
    let groups = block.map(|it| organizations(&it.der)).unwrap_or_default();
    match groups.iter().any(|it| it == MASTERS) {
        true => Err(format!(
            "use of {CLIENT_SIGNER} signer with {MASTERS} group is not allowed"
        )),
        false => Ok(()),
    }
}

/// Returns `true` if a write of the status changes the certificate or the conditions.
fn is_signed(object: &Object, old: &Object) -> bool {
    let (object, old) = (Cursor::root(object), Cursor::root(old));
    object.text("status.certificate") != old.text("status.certificate")
        || object.list("status.conditions") != old.list("status.conditions")
}

/// Checks the permission to use `verb` on the signer of a CertificateSigningRequest.
fn check_signer(
    admission: &Admission,
    attributes: &Attributes<'_>,
    verb: &'static str,
    old: &Object,
) -> Result<(), String> {
    let signer = Cursor::root(old).text("spec.signerName");
    match is_allowed_for(admission, attributes, verb, signer) {
        true => Ok(()),
        false => Err(format!(
            "user not permitted to {verb} requests with signerName {}",
            quote(signer)
        )),
    }
}

/// Returns `true` if the user may use `verb` on a signer, by the signer's name or domain
/// (`IsAuthorizedForSignerName`).
fn is_allowed_for(admission: &Admission, attributes: &Attributes<'_>, verb: &'static str, signer: &str) -> bool {
    let domain = format!("{}/*", signer.split('/').next().unwrap_or_default());
    [signer, &domain].into_iter().any(|name| {
        let permission = rbac::Attributes {
            verb,
            group: GROUP,
            resource: "signers",
            name,
            ..rbac::Attributes::default()
        };
        admission.authorization.is_allowed(attributes.user, &permission)
    })
}
