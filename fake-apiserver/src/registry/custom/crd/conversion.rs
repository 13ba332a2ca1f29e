//! Validation of `spec.conversion` (rules O4, O10).

use std::collections::BTreeSet;

use crate::api::field::FieldErrors;
use crate::api::object::Object;
use crate::registry::types::cursor::Cursor;
use crate::registry::types::names::dns1035_label;
use crate::registry::types::pem::bundle_error;
use crate::registry::types::webhook_client::validate_client;

/// Returns Go's error for the CA bundle of a CRD's conversion webhook, if the bundle is invalid.
pub(super) fn invalid_bundle(crd: &Object) -> Option<String> {
    bundle_error(Cursor::root(crd).text("spec.conversion.webhook.clientConfig.caBundle"))
}

/// Checks the conversion. Errors contain the paths of the internal type, which does not have the field `webhook`. An
/// invalid CA bundle is an error if `requires_bundle` is set.
pub(super) fn validate(conversion: &Cursor<'_>, requires_bundle: bool, errors: &mut FieldErrors) {
    if !conversion.is_set("") {
        return;
    }
    let strategy = conversion.at("strategy");
    strategy.check_required_one_of(&["None", "Webhook"], errors);
    let client = conversion.at("webhookClientConfig");
    let client = client.in_other(conversion.get("webhook.clientConfig"));
    let versions = conversion.at("conversionReviewVersions");
    let versions = versions.in_other(conversion.get("webhook.conversionReviewVersions"));
    if strategy.as_text() != "Webhook" {
        let text = "should not be set when strategy is not set to Webhook";
        if client.is_set("") {
            errors.forbidden(client, text);
        }
        if !versions.is_empty("") {
            errors.forbidden(versions, text);
        }
        return;
    }
    match client.is_set("") {
        false => errors.required(client, "required when strategy is set to Webhook"),
        true => {
            validate_client(&client, errors);
            let bundle = client.at("caBundle");
            if let Some(text) = bundle_error(bundle.as_text()).filter(|_| requires_bundle) {
                errors.invalid(bundle, bundle.as_text(), text);
            }
        }
    }
    validate_versions(&versions, errors);
}

fn validate_versions(versions: &Cursor<'_>, errors: &mut FieldErrors) {
    let all = versions.list("");
    if all.is_empty() {
        return errors.required(versions, "");
    }
    let mut seen = BTreeSet::new();
    for version in versions.items("") {
        if !seen.insert(version.as_text()) {
            errors.invalid(version, version.as_text(), "duplicate version");
            continue;
        }
        version.check_name(|it| dns1035_label(it, false), errors);
    }
    if !versions.texts("").any(|it| it == "v1" || it == "v1beta1") {
        errors.invalid(versions, all.to_vec(), "must include at least one of v1, v1beta1");
    }
}
