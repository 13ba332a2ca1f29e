//! The strategies of MutatingWebhookConfigurations and ValidatingWebhookConfigurations. Follows
//! `ValidateMutatingWebhookConfiguration`, `ValidateValidatingWebhookConfiguration` and their counterparts for updates
//! in `pkg/apis/admissionregistration/validation`.

use std::collections::BTreeSet;

use super::admission_rules::{default_rules, validate_conditions, validate_rule, warn_of_static_name};
use super::facts::{Facts, Generation};
use super::strategy::{Context, Strategy};
use crate::api::field::FieldErrors;
use crate::api::json::json;
use crate::api::kubernetes_version::KubernetesVersion;
use crate::api::object::Object;
use crate::registry::types::cursor::Cursor;
use crate::registry::types::edit::{default_value, items_mut, object_mut};
use crate::registry::types::webhook_client::validate_client;
use crate::registry::types::{labels, names};

const SIDE_EFFECTS: [&str; 2] = ["None", "NoneOnDryRun"];

/// The strategy of webhook configurations.
#[derive(Debug)]
pub(crate) struct WebhookConfiguration {
    /// Set if the webhooks change objects.
    pub(crate) is_mutating: bool,
    /// The version of Kubernetes.
    pub(crate) version: KubernetesVersion,
}

impl Strategy for WebhookConfiguration {
    fn facts(&self) -> &Facts {
        &Facts {
            allows_unconditional_update: false,
            generation: Generation::FromCreate,
            exact: &["webhooks"],
            ..Facts::DEFAULT
        }
    }

    fn default(&self, object: &mut Object) {
        for webhook in items_mut(object, "webhooks") {
            default_value(webhook, "failurePolicy", "Fail");
            default_value(webhook, "matchPolicy", "Equivalent");
            default_value(webhook, "namespaceSelector", json!({}));
            default_value(webhook, "objectSelector", json!({}));
            default_value(webhook, "timeoutSeconds", 10);
            if self.is_mutating {
                default_value(webhook, "reinvocationPolicy", "Never");
            }
            default_rules(webhook, "rules");
            if let Some(service) = object_mut(webhook, "clientConfig.service") {
                default_value(service, "port", 443);
            }
        }
    }

    fn validate(&self, object: &Object, errors: &mut FieldErrors) {
        self.validate_all(&Cursor::root(object), true, errors);
    }

    fn validate_update(&self, object: &Object, old: &Object, errors: &mut FieldErrors, _context: &Context<'_>) {
        let (new, old) = (Cursor::root(object), Cursor::root(old));
        self.validate_all(&new, has_other_conditions(&new, &old), errors);
    }

    fn warnings(&self, object: &Object, _old: Option<&Object>) -> Vec<String> {
        warn_of_static_name(self.version, object)
    }
}

/// Returns `true` if an update changes match conditions. Unchanged conditions are not checked again.
fn has_other_conditions(new: &Cursor<'_>, old: &Cursor<'_>) -> bool {
    let (new, old) = (new.at("webhooks"), old.at("webhooks"));
    new.list("").len() != old.list("").len()
        || new
            .items("")
            .zip(old.items(""))
            .any(|(new, old)| !new.same(&old, "matchConditions"))
}

impl WebhookConfiguration {
    fn validate_all(&self, object: &Cursor<'_>, with_conditions: bool, errors: &mut FieldErrors) {
        let mut seen = BTreeSet::new();
        for webhook in object.items("webhooks") {
            self.validate_webhook(&webhook, with_conditions, errors);
            validate_versions(&webhook.at("admissionReviewVersions"), errors);
            let name = webhook.at("name");
            if !name.as_text().is_empty() && !seen.insert(name.as_text().to_owned()) {
                errors.duplicate(name, name.as_text());
            }
        }
    }

    fn validate_webhook(&self, webhook: &Cursor<'_>, with_conditions: bool, errors: &mut FieldErrors) {
        check_full_name(&webhook.at("name"), errors);
        for rule in webhook.items("rules") {
            validate_rule(&rule, errors);
        }
        webhook.at("failurePolicy").check_one_of(&["Fail", "Ignore"], errors);
        webhook.at("matchPolicy").check_one_of(&["Equivalent", "Exact"], errors);
        let effects = webhook.at("sideEffects");
        if !effects.is_set("") {
            errors.required(effects, "must specify one of None, NoneOnDryRun");
        }
        effects.check_one_of(&SIDE_EFFECTS, errors);
        let timeout = webhook.at("timeoutSeconds");
        if let Some(seconds) = timeout.integer("").filter(|it| !(1..=30).contains(it)) {
            errors.invalid(timeout, seconds, "the timeout value must be between 1 and 30 seconds");
        }
        for field in ["namespaceSelector", "objectSelector"] {
            let selector = webhook.at(field);
            labels::validate_selector(&selector, errors);
        }
        if self.is_mutating {
            webhook
                .at("reinvocationPolicy")
                .check_one_of(&["IfNeeded", "Never"], errors);
        }
        validate_client(&webhook.at("clientConfig"), errors);
        if with_conditions {
            validate_conditions(self.version, &webhook.at("matchConditions"), false, errors);
        }
    }
}

/// Checks that a name is a domain with at least three parts (`IsFullyQualifiedName`).
fn check_full_name(name: &Cursor<'_>, errors: &mut FieldErrors) {
    if !name.check_required(errors) {
        return;
    }
    let problems = names::dns1123_subdomain(name.as_text(), false);
    if !problems.is_empty() {
        errors.invalid(name, name.as_text(), problems.join(","));
    } else if name.as_text().split('.').count() < 3 {
        let text = "should be a domain with at least three segments separated by dots";
        errors.invalid(name, name.as_text(), text);
    }
}

/// Checks `admissionReviewVersions` (`validateAdmissionReviewVersions`).
fn validate_versions(versions: &Cursor<'_>, errors: &mut FieldErrors) {
    if versions.is_empty("") {
        errors.required(versions, "must specify one of v1, v1beta1");
        return;
    }
    let mut seen = BTreeSet::new();
    for version in versions.items("") {
        if !seen.insert(version.as_text().to_owned()) {
            errors.invalid(version, version.as_text(), "duplicate version");
            continue;
        }
        version.check_texts(names::dns1035_label(version.as_text(), false), errors);
    }
    if !seen.contains("v1") && !seen.contains("v1beta1") {
        let text = "must include at least one of v1, v1beta1";
        errors.invalid(versions, versions.to_value(), text);
    }
}
