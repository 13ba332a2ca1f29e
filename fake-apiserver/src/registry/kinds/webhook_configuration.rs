//! MutatingWebhookConfigurations and ValidatingWebhookConfigurations.

use serde_json::{Map, Value, json};

use super::strategy::{Context, Strategy};
use crate::api::field::{FieldErrors, FieldPath};
use crate::api::object::Object;
use crate::registry::types::access::{at, default_to, list, number, object_mut, objects, objects_mut, text};
use crate::registry::types::{labels, names};

/// The strategy of webhook configurations.
#[derive(Debug)]
pub(crate) struct WebhookConfiguration {
    /// Set if the webhooks change objects.
    pub(crate) is_mutating: bool,
}

impl Strategy for WebhookConfiguration {
    fn default(&self, object: &mut Object) {
        for webhook in objects_mut(object, "webhooks") {
            default_to(webhook, "failurePolicy", "Fail");
            default_to(webhook, "matchPolicy", "Equivalent");
            default_to(webhook, "namespaceSelector", json!({}));
            default_to(webhook, "objectSelector", json!({}));
            default_to(webhook, "timeoutSeconds", 10);
            if self.is_mutating {
                default_to(webhook, "reinvocationPolicy", "Never");
            }
            for rule in objects_mut(webhook, "rules") {
                default_to(rule, "scope", "*");
            }
            if let Some(service) = object_mut(webhook, "clientConfig.service") {
                default_to(service, "port", 443);
            }
        }
    }

    fn validate(&self, object: &Object, errors: &mut FieldErrors) {
        let mut seen: Vec<&str> = Vec::new();
        for (index, webhook) in objects(object, "webhooks") {
            let path = FieldPath::new("webhooks").index(index);
            self.validate_webhook(webhook, &path, errors);
            let name = text(webhook, "name");
            if !name.is_empty() && seen.contains(&name) {
                errors.duplicate(path.child("name"), name);
            }
            seen.push(name);
        }
    }

    fn validate_update(&self, object: &Object, _old: &Object, errors: &mut FieldErrors, _context: &Context<'_>) {
        self.validate(object, errors);
    }

    fn allows_unconditional_update(&self) -> bool {
        false
    }

    fn has_generation(&self) -> bool {
        true
    }
}

impl WebhookConfiguration {
    fn validate_webhook(&self, webhook: &Map<String, Value>, path: &FieldPath, errors: &mut FieldErrors) {
        validate_webhook_name(text(webhook, "name"), &path.child("name"), errors);
        labels::validate_selector(
            at(webhook, "namespaceSelector"),
            &path.child("namespaceSelector"),
            errors,
        );
        labels::validate_selector(at(webhook, "objectSelector"), &path.child("objectSelector"), errors);
        validate_enum(webhook, "failurePolicy", &["Fail", "Ignore"], path, errors);
        validate_enum(webhook, "matchPolicy", &["Equivalent", "Exact"], path, errors);
        if text(webhook, "sideEffects").is_empty() {
            errors.required(path.child("sideEffects"), "must specify one of None, NoneOnDryRun");
        }
        validate_enum(webhook, "sideEffects", &["None", "NoneOnDryRun"], path, errors);
        let seconds = number(webhook, "timeoutSeconds").unwrap_or(10);
        if !(1..=30).contains(&seconds) {
            let text = "the timeout value must be between 1 and 30 seconds";
            errors.invalid(path.child("timeoutSeconds"), seconds, text);
        }
        if self.is_mutating {
            validate_enum(webhook, "reinvocationPolicy", &["IfNeeded", "Never"], path, errors);
        }
        if list(webhook, "admissionReviewVersions").is_empty() {
            let text = "must specify one of v1, v1beta1";
            errors.required(path.child("admissionReviewVersions"), text);
        } else if !list(webhook, "admissionReviewVersions").iter().any(|it| it == "v1") {
            let versions = list(webhook, "admissionReviewVersions");
            let text = match versions.iter().any(|it| it == "v1beta1") {
                true => "this server speaks v1 alone, which must be included",
                false => "must include at least one of v1, v1beta1",
            };
            errors.invalid(path.child("admissionReviewVersions"), versions, text);
        }
        validate_client(webhook, &path.child("clientConfig"), errors);
        for (index, rule) in objects(webhook, "rules") {
            validate_rule(rule, &path.child("rules").index(index), errors);
        }
    }
}

/// The name of a webhook has a domain of three parts at least.
fn validate_webhook_name(name: &str, path: &FieldPath, errors: &mut FieldErrors) {
    if name.is_empty() {
        errors.required(path.clone(), "");
        return;
    }
    let problems = names::dns1123_subdomain(name, false);
    if !problems.is_empty() {
        errors.invalid(path.clone(), name, problems.join(","));
    } else if name.split('.').count() < 3 {
        let text = "should be a domain with at least three segments separated by dots";
        errors.invalid(path.clone(), name, text);
    }
}

fn validate_enum(
    map: &Map<String, Value>,
    field: &str,
    supported: &[&str],
    path: &FieldPath,
    errors: &mut FieldErrors,
) {
    let value = text(map, field);
    if !value.is_empty() && !supported.contains(&value) {
        errors.not_supported(path.child(field), value, supported);
    }
}

fn validate_client(webhook: &Map<String, Value>, path: &FieldPath, errors: &mut FieldErrors) {
    let url = at(webhook, "clientConfig.url").and_then(Value::as_str);
    let service = at(webhook, "clientConfig.service").and_then(Value::as_object);
    match (url, service) {
        (Some(url), None) => {
            if !url.starts_with("https://") {
                let text = "'https' is the only allowed URL scheme; desired format: https://host[/path]";
                errors.invalid(path.child("url"), url, text);
            }
        }
        (None, Some(service)) => {
            for field in ["name", "namespace"] {
                if text(service, field).is_empty() {
                    let text = format!("service {field} is required");
                    errors.required(path.child("service").child(field), text);
                }
            }
        }
        (Some(_), Some(_)) | (None, None) => {
            errors.required(path.clone(), "exactly one of url or service is required");
        }
    }
}

/// Checks which requests a webhook or a policy is asked of.
pub(crate) fn validate_rule(rule: &Map<String, Value>, path: &FieldPath, errors: &mut FieldErrors) {
    let scope = text(rule, "scope");
    for field in ["operations", "apiGroups", "apiVersions", "resources"] {
        let values = list(rule, field);
        let path = path.child(field);
        if values.is_empty() {
            errors.required(path.clone(), "");
        }
        if field != "resources" && values.len() > 1 && values.iter().any(|it| it == "*") {
            let text = match field {
                "operations" => "if '*' is present, must not specify other operations",
                "apiGroups" => "if '*' is present, must not specify other API groups",
                _ => "if '*' is present, must not specify other API versions",
            };
            errors.invalid(path.clone(), values, text);
        }
        if field == "operations" {
            let supported = ["*", "CONNECT", "CREATE", "DELETE", "UPDATE"];
            for (index, operation) in values.iter().enumerate() {
                let operation = operation.as_str().unwrap_or_default();
                if !supported.contains(&operation) {
                    errors.not_supported(path.index(index), operation, &supported);
                }
            }
        }
    }
    if !matches!(scope, "" | "*" | "Cluster" | "Namespaced") {
        errors.not_supported(path.child("scope"), scope, &["*", "Cluster", "Namespaced"]);
    }
}
