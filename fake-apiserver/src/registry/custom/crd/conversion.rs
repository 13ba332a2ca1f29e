//! Validation of `spec.conversion` (rules O4, O10).

use serde_json::{Map, Value};

use super::node::Node;
use crate::api::field::{FieldErrors, FieldPath};
use crate::registry::types::cursor::Cursor;
use crate::registry::types::names::dns1035_label;
use crate::registry::types::webhook_client::validate_client;

/// Checks the conversion; errors name the fields of the internal form, in which `webhook` is flat.
pub(super) fn validate(conversion: Option<&Value>, path: &FieldPath, errors: &mut FieldErrors) {
    let Some(conversion) = conversion.and_then(Value::as_object).map(Node) else {
        return;
    };
    let strategy = conversion.text("strategy");
    match strategy {
        "" => errors.required(path.child("strategy"), ""),
        "None" | "Webhook" => {}
        other => errors.not_supported(path.child("strategy"), other, &["None", "Webhook"]),
    }
    let webhook = conversion.schema("webhook");
    let client = webhook.and_then(|it| it.schema("clientConfig"));
    let versions = webhook.map_or(&[][..], |it| it.list("conversionReviewVersions"));
    let client_path = path.child("webhookClientConfig");
    let versions_path = path.child("conversionReviewVersions");
    if strategy != "Webhook" {
        let text = "should not be set when strategy is not set to Webhook";
        if client.is_some() {
            errors.forbidden(client_path, text);
        }
        if !versions.is_empty() {
            errors.forbidden(versions_path, text);
        }
        return;
    }
    match client {
        None => errors.required(client_path, "required when strategy is set to Webhook"),
        Some(client) => validate_client(&Cursor::map_at(client.0, &client_path), errors),
    }
    validate_versions(versions, &versions_path, errors);
}

fn validate_versions(versions: &[Value], path: &FieldPath, errors: &mut FieldErrors) {
    if versions.is_empty() {
        return errors.required(path.clone(), "");
    }
    for (index, version) in versions.iter().enumerate() {
        let text = version.as_str().unwrap_or_default();
        if versions[..index].contains(version) {
            errors.invalid(path.index(index), text, "duplicate version");
            continue;
        }
        for problem in dns1035_label(text, false) {
            errors.invalid(path.index(index), text, problem);
        }
    }
    if !versions.iter().any(|it| it == "v1" || it == "v1beta1") {
        errors.invalid(
            path.clone(),
            versions.to_vec(),
            "must include at least one of v1, v1beta1",
        );
    }
}

/// Gives a webhook's service its default port (rule O1).
pub(super) fn default(conversion: &mut Map<String, Value>) {
    let service = conversion
        .get_mut("webhook")
        .and_then(|it| it.get_mut("clientConfig"))
        .and_then(|it| it.get_mut("service"));
    if let Some(service) = service.and_then(Value::as_object_mut) {
        service.entry("port").or_insert_with(|| 443.into());
    }
}
