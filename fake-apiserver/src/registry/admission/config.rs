//! Parses webhooks and policies from the objects of `admissionregistration.k8s.io`, again after each change.

use std::time::Duration;

use super::Admission;
use super::attributes::GROUP;
use super::matching::Match;
use super::plugins::Plugin;
use super::policies::Policies;
use crate::registry::types::cursor::Cursor;
use crate::registry::types::endpoint::Endpoint;
use crate::registry::types::review_version::ReviewVersion;

/// Default timeout of a webhook, in seconds.
const TIMEOUT_SECONDS: i64 = 10;

/// All configured webhooks and policies, in the order of evaluation.
#[derive(Debug, Default)]
pub(super) struct Configured {
    pub(super) mutating: Vec<Webhook>,
    pub(super) validating: Vec<Webhook>,
    pub(super) policies: Policies,
}

/// A webhook of a MutatingWebhookConfiguration or ValidatingWebhookConfiguration.
#[derive(Debug)]
pub(super) struct Webhook {
    pub(super) name: String,
    /// Name of the configuration that contains the webhook.
    pub(super) configuration: String,
    pub(super) endpoint: Endpoint,
    pub(super) matches: Match,
    /// Set for `failurePolicy: Ignore`.
    pub(super) ignores_failure: bool,
    pub(super) timeout: Duration,
    /// Set if dry runs may call the webhook.
    pub(super) allows_dry_run: bool,
    /// Set for `reinvocationPolicy: IfNeeded`.
    pub(super) is_reinvoked: bool,
    /// Version of the AdmissionReviews sent to the webhook; `None` if it accepts no version that the server supports.
    pub(super) review: Option<ReviewVersion>,
}

impl Webhook {
    fn parse(configuration: &str, webhook: &Cursor<'_>) -> Self {
        let seconds = webhook.integer("timeoutSeconds").unwrap_or(TIMEOUT_SECONDS);
        Self {
            name: webhook.text("name").to_owned(),
            configuration: configuration.to_owned(),
            endpoint: Endpoint::parse(webhook),
            matches: Match::of_webhook(webhook),
            ignores_failure: webhook.text("failurePolicy") == "Ignore",
            timeout: Duration::from_secs(u64::try_from(seconds).unwrap_or_default()),
            allows_dry_run: matches!(webhook.text("sideEffects"), "None" | "NoneOnDryRun"),
            is_reinvoked: webhook.text("reinvocationPolicy") == "IfNeeded",
            review: ReviewVersion::first_of(webhook.texts("admissionReviewVersions")),
        }
    }
}

impl Admission {
    /// Reads all configuration objects. Configurations are sorted by name; their webhooks keep their order.
    pub(super) fn read_configuration(&self) -> Configured {
        let plugins = &self.setup.plugins;
        let webhooks = |resource: &str, plugin: Plugin| -> Vec<Webhook> {
            if !plugins.has(plugin) {
                return Vec::new();
            }
            let configurations = self.reader.stored_objects(GROUP, resource);
            let all = configurations
                .iter()
                .flat_map(|it| Cursor::root(it).maps("webhooks").map(|webhook| (it.name(), webhook)));
            all.map(|(name, webhook)| Webhook::parse(name, &Cursor::root(webhook)))
                .collect()
        };
        Configured {
            mutating: webhooks("mutatingwebhookconfigurations", Plugin::MutatingAdmissionWebhook),
            validating: webhooks("validatingwebhookconfigurations", Plugin::ValidatingAdmissionWebhook),
            policies: Policies::read(&self.reader, plugins),
        }
    }
}
