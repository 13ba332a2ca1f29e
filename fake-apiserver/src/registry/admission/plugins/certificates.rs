//! `CertificateApproval`, `CertificateSigning` and `CertificateSubjectRestriction`: users need a permission for the
//! signer to approve or sign a certificate request, and client certificates for `system:masters` are refused.

use super::Plugin;
use crate::api::field::quote;
use crate::api::object::Object;
use crate::api::rbac;
use crate::api::status::Status;
use crate::api::user::MASTERS;
use crate::registry::admission::Admission;
use crate::registry::admission::attributes::Attributes;
use crate::registry::types::cursor::Cursor;
use crate::registry::types::der::organizations;
use crate::registry::types::pem::pem_blocks;

const GROUP: &str = "certificates.k8s.io";
/// Signer of client certificates for kube-apiserver.
const CLIENT_SIGNER: &str = "kubernetes.io/kube-apiserver-client";

/// Returns `true` for CertificateSigningRequests, which these plugins check.
pub(super) fn concerns(group: &str, resource: &str) -> bool {
    (group, resource) == (GROUP, "certificatesigningrequests")
}

/// Checks a write of a CertificateSigningRequest or its subresources `approval` and `status`.
pub(super) fn check(admission: &Admission, attributes: &Attributes<'_>, object: &Object) -> Result<(), Status> {
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

/// Checks the permission to use `verb` on a signer, by the signer's name or domain.
fn check_signer(
    admission: &Admission,
    attributes: &Attributes<'_>,
    verb: &'static str,
    old: &Object,
) -> Result<(), String> {
    let signer = Cursor::root(old).text("spec.signerName");
    let domain = format!("{}/*", signer.split('/').next().unwrap_or_default());
    let is_allowed = |name: &str| {
        let right = rbac::Attributes {
            verb,
            group: GROUP,
            resource: "signers",
            name,
            ..rbac::Attributes::default()
        };
        admission.authorization.is_allowed(attributes.user, &right)
    };
    match is_allowed(signer) || is_allowed(&domain) {
        true => Ok(()),
        false => Err(format!(
            "user not permitted to {verb} requests with signerName {}",
            quote(signer)
        )),
    }
}
