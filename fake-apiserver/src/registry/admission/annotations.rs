//! Audit annotations that record webhook calls, modelled on `webhookAnnotator` of k8s.io/apiserver.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::value::RawValue;

use super::attributes::Attributes;
use super::config::Webhook;
use crate::api::json::marshal;

/// Value of the annotation `mutation.webhook.admission.k8s.io`, with the field order of the Go struct.
#[derive(Serialize)]
struct Mutation<'a> {
    configuration: &'a str,
    webhook: &'a str,
    mutated: bool,
}

/// Value of the annotation `patch.webhook.admission.k8s.io`.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Patch<'a> {
    configuration: &'a str,
    webhook: &'a str,
    patch: &'a [Operation],
    patch_type: &'static str,
}

/// An operation of a JSON patch, with its fields sorted by name.
type Operation = BTreeMap<String, Box<RawValue>>;

/// Adds the annotation for a call of a mutating webhook.
pub(super) fn mutation(attributes: &Attributes<'_>, webhook: &Webhook, place: &str, mutated: bool) {
    attributes.annotate(format!("mutation.webhook.admission.k8s.io/{place}"), || {
        marshal(&Mutation {
            configuration: &webhook.configuration,
            webhook: &webhook.name,
            mutated,
        })
    });
}

/// Adds the annotation with the patch of a mutating webhook, if the event's audit level includes bodies.
pub(super) fn patch(attributes: &Attributes<'_>, webhook: &Webhook, place: &str, patch: &[u8]) {
    let operations: Vec<Operation> = serde_json::from_slice(patch).unwrap_or_default();
    if operations.is_empty() {
        return;
    }
    let annotations = &attributes.remarks.annotations;
    annotations.add_of_body(format!("patch.webhook.admission.k8s.io/{place}"), || {
        marshal(&Patch {
            configuration: &webhook.configuration,
            webhook: &webhook.name,
            patch: &operations,
            patch_type: "JSONPatch",
        })
    });
}

/// Adds the annotation for a failed webhook call that was ignored. `phase` is `mutation` or `validating`.
pub(super) fn failed_open(attributes: &Attributes<'_>, phase: &str, webhook: &Webhook, place: &str) {
    let key = format!("failed-open.{phase}.webhook.admission.k8s.io/{place}");
    attributes.annotate(key, || webhook.name.clone());
}
