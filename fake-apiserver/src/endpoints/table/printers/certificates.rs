//! Printers of certificate requests and trust bundles.

use super::super::columns::{AGE, Column, NAME};
use super::super::duration;
use super::super::read::TableRow;
use super::Printer;

pub(super) const SIGNING_REQUEST: Printer = Printer {
    columns: &[
        NAME,
        AGE,
        Column::text(
            "SignerName",
            "Requested signer for the request. It is a qualified name in the form: `scope-hostname.io/name`. If \
             empty, it will be defaulted:\n 1. If it's a kubelet client certificate, it is assigned\n    \
             \"kubernetes.io/kube-apiserver-client-kubelet\".\n 2. If it's a kubelet serving certificate, it is \
             assigned\n    \"kubernetes.io/kubelet-serving\".\n 3. Otherwise, it is assigned \
             \"kubernetes.io/legacy-unknown\".\nDistribution of trust for signers happens out of band. You can \
             select on this field using `spec.signerName`.",
        ),
        Column::text("Requestor", "Base64-encoded PKCS#10 CSR data"),
        Column::text(
            "RequestedDuration",
            "expirationSeconds is the requested duration of validity of the issued certificate. The certificate \
             signer may issue a certificate with a different validity duration so a client must check the delta \
             between the notBefore and and notAfter fields in the issued certificate to determine the actual \
             duration.\n\nThe v1.22+ in-tree implementations of the well-known Kubernetes signers will honor \
             this field as long as the requested duration is not greater than the maximum duration they will \
             honor per the --cluster-signing-duration CLI flag to the Kubernetes controller \
             manager.\n\nCertificate signers may not honor this field for various reasons:\n\n  1. Old signer that \
             is unaware of the field (such as the in-tree\n     implementations prior to v1.22)\n  2. Signer whose \
             configured maximum is shorter than the requested duration\n  3. Signer whose configured minimum is \
             longer than the requested duration\n\nThe minimum valid value for expirationSeconds is 600, i.e. 10 \
             minutes.",
        ),
        Column::text(
            "Condition",
            "Conditions applied to the request, such as approval or denial.",
        ),
    ],
    cells: |row| {
        let seconds = row.at("spec.expirationSeconds");
        let requested = if seconds.is_set() {
            duration::of_seconds(seconds.int())
        } else {
            "<none>".to_owned()
        };
        vec![
            row.name(),
            row.age(),
            row.at("spec.signerName").text_or("<none>").into(),
            row.at("spec.username").text().into(),
            requested.into(),
            condition(row).into(),
        ]
    },
};

fn condition(row: TableRow<'_>) -> String {
    let has = |kind: &str| row.at("status.conditions").find("type", kind).is_some();
    let mut text = if has("Denied") {
        "Denied"
    } else if has("Approved") {
        "Approved"
    } else {
        "Pending"
    }
    .to_owned();
    if has("Failed") {
        text.push_str(",Failed");
    }
    if !row.at("status.certificate").text().is_empty() {
        text.push_str(",Issued");
    }
    text
}

pub(super) const CLUSTER_TRUST_BUNDLE: Printer = Printer {
    columns: &[
        NAME,
        Column::text(
            "SignerName",
            "signerName indicates the associated signer, if any.\n\nIn order to create or update a \
         ClusterTrustBundle that sets signerName, you must have the following cluster-scoped permission: \
         group=certificates.k8s.io resource=signers resourceName=<the signer name> verb=attest.\n\nIf signerName \
         is not empty, then the ClusterTrustBundle object must be named with the signer name as a prefix \
         (translating slashes to colons). For example, for the signer name `example.com/foo`, valid \
         ClusterTrustBundle object names include `example.com:foo:abc` and `example.com:foo:v1`.\n\nIf \
         signerName is empty, then the ClusterTrustBundle object's name must not have such a \
         prefix.\n\nList/watch requests for ClusterTrustBundles can filter on this field using a \
         `spec.signerName=NAME` field selector.",
        ),
    ],
    cells: |row| vec![row.name(), row.at("spec.signerName").text_or("<none>").into()],
};
