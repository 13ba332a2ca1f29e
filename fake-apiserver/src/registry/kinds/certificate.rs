//! CertificateSigningRequests and the other kinds of their group, which are selected by their signer.

use super::plain;
use crate::api::field::{FieldErrors, FieldPath};
use crate::api::object::Object;
use crate::registry::strategy::{Context, FieldLabels, Strategy};
use crate::registry::types::access::{list, restore, text};

/// The strategy of CertificateSigningRequests.
#[derive(Debug)]
pub(crate) struct CertificateSigningRequest;

impl Strategy for CertificateSigningRequest {
    fn validate(&self, object: &Object, errors: &mut FieldErrors) {
        if text(object, "spec.request").is_empty() {
            errors.invalid(
                FieldPath::new("spec.request"),
                "",
                "PEM block type must be CERTIFICATE REQUEST",
            );
        }
        if list(object, "spec.usages").is_empty() {
            errors.required(FieldPath::new("spec.usages"), "");
        }
        let signer = text(object, "spec.signerName");
        if signer.is_empty() {
            errors.required(FieldPath::new("spec.signerName"), "");
        } else if !signer.contains('/') {
            let text = "must be a fully qualified domain and path of the form 'example.com/signer-name'";
            errors.invalid(FieldPath::new("spec.signerName"), signer, text);
        }
    }

    fn prepare_for_update(&self, object: &mut Object, old: &Object, context: &Context<'_>) {
        // What is asked for never changes; approval and status have subresources.
        restore(object, old, "spec");
        if context.subresource.is_empty() {
            restore(object, old, "status");
        }
    }

    fn validate_update(&self, _object: &Object, _old: &Object, _errors: &mut FieldErrors, _context: &Context<'_>) {}

    fn status_write_changes_labels(&self) -> bool {
        true
    }

    fn field_labels(&self) -> FieldLabels {
        plain::field_labels(&["spec.signerName"], false)
    }

    fn field_values(&self, object: &Object) -> Vec<(&'static str, String)> {
        vec![("spec.signerName", text(object, "spec.signerName").to_owned())]
    }
}

/// A kind that needs a resourceVersion and is selected by fields of its spec.
#[derive(Debug)]
pub(crate) struct Signed {
    /// The field labels.
    pub(crate) labels: &'static [&'static str],
    /// Whether objects live in namespaces.
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
