//! The strategy of StatefulSets.

use serde_json::json;

use super::metadata::invalid_printed;
use super::pod::defaults::default_template;
use super::pod::validation::Template;
use super::pod::{default_claim_spec, go_struct, validate_claim_spec, warnings};
use super::strategy::{Context, Strategy};
use super::workload_rules::{
    Selection, default_conditions, number_or_percent, parts, validate_always, validate_at_most_all, validate_available,
    validate_collisions, validate_counts, validate_number_or_percent, validate_parts, validate_selected,
    validate_selector, wrong_selector,
};
use crate::api::field::{FieldErrors, FieldPath};
use crate::api::object::Object;
use crate::registry::types::check::{not_negative, optional_label};
use crate::registry::types::names;
use crate::registry::types::view::{
    JsonMap, default_number, default_object, default_text, integer, is_set, items, items_mut, object, object_made,
    object_or_empty, same, text,
};

/// Error for an update of any other field.
const FIXED: &str = "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', \
    'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are \
    forbidden";

/// Warning for a limit below zero.
const KEEPS_ALL: &str = "spec.revisionHistoryLimit: a negative value retains all historical revisions; a value >= 0 is \
    recommended";

/// Fields that an update may change.
const CHANGEABLE: [&str; 7] = [
    "replicas",
    "template",
    "updateStrategy",
    "minReadySeconds",
    "ordinals",
    "revisionHistoryLimit",
    "persistentVolumeClaimRetentionPolicy",
];

/// StatefulSets.
#[derive(Debug)]
pub(crate) struct StatefulSetStrategy;

/// Set if immutable fields are checked again.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Check {
    New,
    Update,
}

impl Strategy for StatefulSetStrategy {
    fn default(&self, object: &mut Object) {
        if let Some(spec) = object_made(object, "spec") {
            default_spec(spec);
        }
        if let Some(status) = object_made(object, "status") {
            default_number(status, "replicas", 0);
            default_number(status, "availableReplicas", 0);
            default_conditions(status, &["lastTransitionTime"]);
        }
    }

    fn prepare_for_create(&self, object: &mut Object, _context: &Context<'_>) {
        object.insert("status".to_owned(), json!({ "replicas": 0, "availableReplicas": 0 }));
    }

    fn validate(&self, object: &Object, errors: &mut FieldErrors) {
        validate_spec(
            object_or_empty(object, "spec"),
            Check::New,
            &FieldPath::new("spec"),
            errors,
        );
    }

    fn validate_update(&self, object: &Object, old: &Object, errors: &mut FieldErrors, context: &Context<'_>) {
        let ((spec, status), (old_spec, old_status)) = (parts(object), parts(old));
        if context.subresource == "status" {
            validate_status(status, old_status, &FieldPath::new("status"), errors);
            return;
        }
        let path = FieldPath::new("spec");
        validate_spec(spec, Check::Update, &path, errors);
        let fixed = |key: &&String| !CHANGEABLE.contains(&key.as_str());
        if spec
            .keys()
            .chain(old_spec.keys())
            .filter(fixed)
            .any(|key| !same(spec, old_spec, key))
        {
            errors.forbidden(path, FIXED);
        }
    }

    fn warnings(&self, object: &Object, old: Option<&Object>) -> Vec<String> {
        let changed = |old: &Object| self.raises_generation(object, old);
        let mut warnings = warnings::of_workload(object, old, "spec.template", "", changed);
        if integer(parts(object).0, "revisionHistoryLimit").is_some_and(|limit| limit < 0) {
            warnings.push(KEEPS_ALL.to_owned());
        }
        warnings
    }

    fn validate_name(&self, name: &str, is_prefix: bool) -> Vec<String> {
        names::dns1123_label(name, is_prefix)
    }

    fn has_generation(&self) -> bool {
        true
    }

    fn raises_generation(&self, object: &Object, old: &Object) -> bool {
        !same(object, old, "spec")
    }
}

fn default_spec(spec: &mut JsonMap) {
    default_number(spec, "replicas", 1);
    default_template(spec);
    for claim in items_mut(spec, "volumeClaimTemplates") {
        default_text(claim, "kind", "PersistentVolumeClaim");
        default_text(claim, "apiVersion", "v1");
        default_object(claim, "metadata");
        if let Some(claim_spec) = object_made(claim, "spec") {
            default_claim_spec(claim_spec);
        }
        if let Some(status) = object_made(claim, "status") {
            default_text(status, "phase", "Pending");
        }
    }
    if !is_set(spec, "serviceName") {
        default_text(spec, "serviceName", "");
    }
    default_text(spec, "podManagementPolicy", "OrderedReady");
    if let Some(strategy) = object_made(spec, "updateStrategy") {
        if text(strategy, "type").is_empty() {
            default_text(strategy, "type", "RollingUpdate");
            default_object(strategy, "rollingUpdate");
        }
        if text(strategy, "type") == "RollingUpdate"
            && let Some(rolling) = crate::registry::types::view::object_mut(strategy, "rollingUpdate")
        {
            default_number(rolling, "partition", 0);
        }
    }
    default_number(spec, "revisionHistoryLimit", 10);
    if let Some(policy) = object_made(spec, "persistentVolumeClaimRetentionPolicy") {
        default_text(policy, "whenDeleted", "Retain");
        default_text(policy, "whenScaled", "Retain");
    }
}

fn validate_spec(spec: &JsonMap, check: Check, path: &FieldPath, errors: &mut FieldErrors) {
    match text(spec, "podManagementPolicy") {
        "" => errors.required(path.child("podManagementPolicy"), ""),
        "OrderedReady" | "Parallel" => {}
        other => {
            let detail = "must be 'OrderedReady' or 'Parallel'";
            errors.invalid(path.child("podManagementPolicy"), other, detail);
        }
    }
    validate_rollout(
        object_or_empty(spec, "updateStrategy"),
        &path.child("updateStrategy"),
        errors,
    );
    if let Some(policy) = object(spec, "persistentVolumeClaimRetentionPolicy") {
        let path = path.child("persistentVolumeClaimRetentionPolicy");
        for field in ["whenDeleted", "whenScaled"] {
            let value = text(policy, field);
            if !["Retain", "Delete"].contains(&value) {
                errors.not_supported(path.child(field), value, &["Retain", "Delete"]);
            }
        }
    }
    if check == Check::New {
        for (index, claim) in items(spec, "volumeClaimTemplates") {
            let path = path.child("volumeClaimTemplates").index(index).child("spec");
            validate_claim_spec(object_or_empty(claim, "spec"), &path, errors);
        }
    }
    not_negative(spec, "replicas", path, errors);
    not_negative(spec, "minReadySeconds", path, errors);
    not_negative(
        object_or_empty(spec, "ordinals"),
        "start",
        &path.child("ordinals"),
        errors,
    );
    if check == Check::New {
        optional_label(spec, "serviceName", path, errors);
    }
    validate_selector(spec, "statefulset", path, errors);
    validate_template(spec, path, errors);
}

fn validate_template(spec: &JsonMap, path: &FieldPath, errors: &mut FieldErrors) {
    let claims = items(spec, "volumeClaimTemplates").map(|(_, claim)| text(object_or_empty(claim, "metadata"), "name"));
    let template = Template {
        claims: claims.collect(),
        names_pods: true,
        ..Template::of(spec)
    };
    match Selection::of(object(spec, "selector")) {
        Selection::Wrong => wrong_selector(spec, path, "", errors),
        selection => {
            validate_selected(&selection, &template, path, errors);
            template.validate(&path.child("template"), errors);
            template.validate_metadata(&path.child("template"), errors);
        }
    }
    validate_always(&template, "StatefulSet", path, errors);
}

fn validate_rollout(strategy: &JsonMap, path: &FieldPath, errors: &mut FieldErrors) {
    let rolling = object(strategy, "rollingUpdate");
    match (text(strategy, "type"), rolling) {
        ("", _) => errors.required(path.clone(), ""),
        ("OnDelete", Some(rolling)) => {
            let printed = go_struct(rolling, &["partition", "maxUnavailable"]);
            let detail = "only allowed for updateStrategy 'RollingUpdate'";
            invalid_printed(path.child("rollingUpdate"), &printed, detail, errors);
        }
        ("RollingUpdate", Some(rolling)) => {
            let path = path.child("rollingUpdate");
            not_negative(rolling, "partition", &path, errors);
            if is_set(rolling, "maxUnavailable") {
                validate_number_or_percent(rolling, "maxUnavailable", &path, errors);
                if number_or_percent(rolling, "maxUnavailable") == 0 {
                    let shown = crate::registry::types::view::value_of(rolling, "maxUnavailable");
                    errors.invalid(path.child("maxUnavailable"), shown, "cannot be 0");
                }
                validate_at_most_all(rolling, "maxUnavailable", &path, errors);
            }
        }
        ("OnDelete" | "RollingUpdate", None) => {}
        _ => {
            let printed = go_struct(strategy, &["type", "rollingUpdate"]);
            invalid_printed(path.clone(), &printed, "must be 'RollingUpdate' or 'OnDelete'", errors);
        }
    }
}

fn validate_status(status: &JsonMap, old: &JsonMap, path: &FieldPath, errors: &mut FieldErrors) {
    const COUNTS: [&str; 7] = [
        "replicas",
        "readyReplicas",
        "currentReplicas",
        "updatedReplicas",
        "availableReplicas",
        "observedGeneration",
        "collisionCount",
    ];
    validate_counts(status, &COUNTS, path, errors);
    let parts = [
        "readyReplicas",
        "currentReplicas",
        "updatedReplicas",
        "availableReplicas",
    ];
    validate_parts(status, &parts, path, errors);
    validate_available(status, "cannot be greater than status.readyReplicas", path, errors);
    validate_collisions(status, old, path, errors);
}
