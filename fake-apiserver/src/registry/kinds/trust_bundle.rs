//! The strategy of ClusterTrustBundles. Follows `ValidateClusterTrustBundle` and `ValidateClusterTrustBundleUpdate` of
//! `pkg/apis/certificates/validation`.

use std::collections::BTreeMap;

use super::certificate::{signed, validate_signer_name};
use super::facts::Facts;
use super::strategy::{Context, Strategy};
use crate::api::field::FieldErrors;
use crate::api::object::Object;
use crate::registry::types::cursor::Cursor;
use crate::registry::types::der::is_authority;
use crate::registry::types::names;
use crate::registry::types::pem::pem_blocks_of_text;

/// Maximum size of a bundle, in bytes.
const BUNDLE_MAX: usize = 1 << 20;

/// The strategy of ClusterTrustBundles.
#[derive(Debug)]
pub(crate) struct ClusterTrustBundle;

impl Strategy for ClusterTrustBundle {
    fn facts(&self) -> &Facts {
        const {
            &Facts {
                // The rule for names depends on the signer, so `validate` checks it.
                name: |_, _| Vec::new(),
                ..signed(&["spec.signerName"], false)
            }
        }
    }

    fn validate(&self, object: &Object, errors: &mut FieldErrors) {
        validate_name_and_signer(object, errors);
        validate_bundle(&Cursor::root(object).at("spec.trustBundle"), errors);
    }

    fn validate_update(&self, object: &Object, old: &Object, errors: &mut FieldErrors, _context: &Context<'_>) {
        let (new, before) = (Cursor::root(object), Cursor::root(old));
        validate_name_and_signer(object, errors);
        if new.text("spec.trustBundle") != before.text("spec.trustBundle") {
            validate_bundle(&new.at("spec.trustBundle"), errors);
        }
        new.at("spec.signerName")
            .check_text_unchanged(&before.at("spec.signerName"), errors);
    }
}

/// Checks the name (`ValidateClusterTrustBundleName`) and the signer.
fn validate_name_and_signer(object: &Object, errors: &mut FieldErrors) {
    let object = Cursor::root(object);
    let signer = object.at("spec.signerName");
    for (field, is_prefix) in [("metadata.generateName", true), ("metadata.name", false)] {
        let name = object.at(field);
        if !name.as_text().is_empty() {
            name.check_name(|it| wrong_in_name(it, is_prefix, signer.as_text()), errors);
        }
    }
    if !signer.as_text().is_empty() {
        validate_signer_name(&signer, errors);
    }
}

fn wrong_in_name(name: &str, is_prefix: bool, signer: &str) -> Vec<String> {
    if signer.is_empty() {
        return match name.contains(':') {
            true => vec!["ClusterTrustBundle without signer name must not have \":\" in its name".to_owned()],
            false => names::dns1123_subdomain(name, is_prefix),
        };
    }
    let prefix = format!("{}:", signer.replace('/', ":"));
    match name.strip_prefix(&prefix) {
        Some(rest) => names::dns1123_subdomain(rest, is_prefix),
        None => vec![format!(
            "ClusterTrustBundle for signerName {signer} must be named with prefix {prefix}"
        )],
    }
}

/// Checks that a bundle consists of distinct CA certificates without PEM headers (`validateTrustBundle`).
fn validate_bundle(bundle: &Cursor<'_>, errors: &mut FieldErrors) {
    const OMITTED: &str = "<value omitted>";
    if bundle.as_text().len() > BUNDLE_MAX {
        return errors.too_long(bundle, BUNDLE_MAX);
    }
    let mut is_malformed = false;
    let mut entries: BTreeMap<Vec<u8>, Vec<usize>> = BTreeMap::new();
    for (at, block) in pem_blocks_of_text(bundle.as_text()).enumerate() {
        let problem = if block.kind != "CERTIFICATE" {
            format!("entry {at} has bad block type: {}", block.kind)
        } else if block.has_headers {
            format!("entry {at} has PEM block headers")
        } else {
            match is_authority(&block.der) {
                None => format!("entry {at} does not parse as X.509"),
                Some(false) => format!("entry {at} does not have the CA bit set"),
                Some(true) => {
                    entries.entry(block.der).or_default().push(at);
                    continue;
                }
            }
        };
        is_malformed = true;
        errors.invalid(bundle, OMITTED, problem);
    }
    if is_malformed {
        return;
    }
    if entries.is_empty() {
        errors.invalid(bundle, OMITTED, "at least one trust anchor must be provided");
    }
    for indices in entries.values().filter(|it| it.len() > 1) {
        let indices = indices.iter().map(usize::to_string).collect::<Vec<_>>().join(" ");
        let text = format!("duplicate trust anchor (indices [{indices}])");
        errors.invalid(bundle, OMITTED, text);
    }
}
