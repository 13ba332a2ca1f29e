//! The strategy of StatefulSets.

use super::facts::{Facts, Generation};
use super::metadata::invalid_printed;
use super::pod::defaults::default_template;
use super::pod::validation::Template;
use super::pod::{default_claim_spec, go_struct, validate_claim_spec, warnings};
use super::strategy::{Context, Strategy};
use super::workload_rules::{
    Selection, default_conditions, number_or_percent, validate_always, validate_at_most_all, validate_available,
    validate_collisions, validate_counts, validate_number_or_percent, validate_parts, validate_selected,
    validate_selector, wrong_selector,
};
use crate::api::field::FieldErrors;
use crate::api::json::{Map, json};
use crate::api::kubernetes_version::KubernetesVersion;
use crate::api::object::Object;
use crate::registry::types::cursor::Cursor;
use crate::registry::types::edit::{default_object, default_text, default_value, ensure_object, items_mut, object_mut};
use crate::registry::types::names;

/// Error for an update of an immutable field.
const FIXED: &str = "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', \
    'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are \
    forbidden";

/// Warning for a negative `revisionHistoryLimit`.
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

/// Field that depends on the gate MaxUnavailableStatefulSet, which is enabled since 1.37.
const MAX_UNAVAILABLE: &str = "spec.updateStrategy.rollingUpdate.maxUnavailable";

/// The strategy of StatefulSets.
#[derive(Debug)]
pub(crate) struct StatefulSetStrategy {
    /// The version of Kubernetes.
    pub(crate) version: KubernetesVersion,
}

/// The type of write to check. Updates do not check the values of immutable fields again.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Check {
    New,
    Update,
}

impl Strategy for StatefulSetStrategy {
    fn facts(&self) -> &Facts {
        &Facts {
            name: names::dns1123_label,
            generation: Generation::FromCreate,
            ..Facts::DEFAULT
        }
    }

    fn default(&self, object: &mut Object) {
        default_spec(self.version, ensure_object(object, "spec"));
        let status = ensure_object(object, "status");
        default_value(status, "replicas", 0);
        default_value(status, "availableReplicas", 0);
        default_conditions(status, &["lastTransitionTime"]);
    }

    fn prepare_for_create(&self, object: &mut Object, _context: &Context<'_>) {
        object.insert("status".into(), json!({ "replicas": 0, "availableReplicas": 0 }));
        self.drop_max_unavailable(object, None);
    }

    fn prepare_for_update(&self, object: &mut Object, old: &Object, _context: &Context<'_>) {
        self.drop_max_unavailable(object, Some(old));
    }

    fn validate(&self, object: &Object, errors: &mut FieldErrors) {
        validate_spec(self.version, &Cursor::root(object).at("spec"), Check::New, errors);
    }

    fn validate_update(&self, object: &Object, old: &Object, errors: &mut FieldErrors, context: &Context<'_>) {
        let (new, was) = (Cursor::root(object), Cursor::root(old));
        if context.subresource == "status" {
            validate_status(&new.at("status"), &was.at("status"), errors);
            return;
        }
        let spec = new.at("spec");
        validate_spec(self.version, &spec, Check::Update, errors);
        if !spec.same_but(&was.at("spec"), &CHANGEABLE) {
            errors.forbidden(spec, FIXED);
        }
    }

    fn warnings(&self, object: &Object, old: Option<&Object>) -> Vec<String> {
        let changed = |old: &Object| self.raises_generation(object, old);
        let mut warnings = warnings::of_workload(object, old, "spec.template", "", changed);
        for claim in Cursor::root(object).at("spec").items("volumeClaimTemplates") {
            // As in kube-apiserver, warning paths lack the field `spec` on create and contain its Go name on update.
            let path = match old {
                None => claim.path(),
                Some(_) => claim.path().child("Spec"),
            };
            warnings::of_claim(&Cursor::value_at(claim.get("spec"), &path), &mut warnings);
        }
        if Cursor::root(object)
            .integer("spec.revisionHistoryLimit")
            .is_some_and(|limit| limit < 0)
        {
            warnings.push(KEEPS_ALL.to_owned());
        }
        warnings
    }

    fn raises_generation(&self, object: &Object, old: &Object) -> bool {
        !Cursor::root(object).same(&Cursor::root(old), "spec")
    }
}

impl StatefulSetStrategy {
    /// Drops `maxUnavailable` if the gate is disabled, unless the stored object has it
    /// (`dropStatefulSetDisabledFields`).
    fn drop_max_unavailable(&self, object: &mut Object, old: Option<&Object>) {
        let is_kept = old.is_some_and(|old| Cursor::root(old).is_set(MAX_UNAVAILABLE));
        if is_kept || self.version >= KubernetesVersion::V1_37 {
            return;
        }
        if let Some(rolling) = object_mut(object, "spec.updateStrategy.rollingUpdate") {
            rolling.remove("maxUnavailable");
        }
    }
}

fn default_spec(version: KubernetesVersion, spec: &mut Map) {
    default_value(spec, "replicas", 1);
    default_template(spec);
    for claim in items_mut(spec, "volumeClaimTemplates") {
        // Other values are ignored, also if they are stored (`Convert_v1_StatefulSetSpec_To_apps_StatefulSetSpec`).
        claim.insert("kind".into(), "PersistentVolumeClaim".into());
        claim.insert("apiVersion".into(), "v1".into());
        default_object(claim, "metadata");
        default_claim_spec(ensure_object(claim, "spec"));
        default_text(ensure_object(claim, "status"), "phase", "Pending");
    }
    default_value(spec, "serviceName", "");
    default_text(spec, "podManagementPolicy", "OrderedReady");
    let strategy = ensure_object(spec, "updateStrategy");
    if Cursor::root(strategy).is_empty("type") {
        default_text(strategy, "type", "RollingUpdate");
        default_object(strategy, "rollingUpdate");
    }
    if strategy["type"] == "RollingUpdate"
        && let Some(rolling) = object_mut(strategy, "rollingUpdate")
    {
        default_value(rolling, "partition", 0);
        if version >= KubernetesVersion::V1_37 {
            default_value(rolling, "maxUnavailable", 1);
        }
    }
    default_value(spec, "revisionHistoryLimit", 10);
    let policy = ensure_object(spec, "persistentVolumeClaimRetentionPolicy");
    default_text(policy, "whenDeleted", "Retain");
    default_text(policy, "whenScaled", "Retain");
}

fn validate_spec(version: KubernetesVersion, spec: &Cursor<'_>, check: Check, errors: &mut FieldErrors) {
    let management = spec.at("podManagementPolicy");
    match management.as_text() {
        "" => errors.required(management, ""),
        "OrderedReady" | "Parallel" => {}
        other => errors.invalid(management, other, "must be 'OrderedReady' or 'Parallel'"),
    }
    validate_rollout(&spec.at("updateStrategy"), errors);
    if let Some(policy) = spec.present("persistentVolumeClaimRetentionPolicy") {
        for field in ["whenDeleted", "whenScaled"] {
            policy.at(field).check_supported(&["Retain", "Delete"], errors);
        }
    }
    if check == Check::New {
        for claim in spec.items("volumeClaimTemplates") {
            validate_claim_spec(&claim.at("spec"), errors);
        }
    }
    for number in ["replicas", "minReadySeconds", "ordinals.start"] {
        spec.at(number).check_not_negative(errors);
    }
    if check == Check::New {
        spec.at("serviceName").check_label(errors);
    }
    validate_selector(&spec.at("selector"), "statefulset", errors);
    validate_template(version, spec, errors);
}

fn validate_template(version: KubernetesVersion, spec: &Cursor<'_>, errors: &mut FieldErrors) {
    let template = Template {
        claims: spec
            .items("volumeClaimTemplates")
            .map(|claim| claim.text("metadata.name"))
            .collect(),
        names_pods: true,
        ..Template::of(spec)
    };
    let selector = spec.at("selector");
    match Selection::of(&selector) {
        Selection::Wrong => wrong_selector(&selector, "", errors),
        selection => {
            validate_selected(&selection, &template, errors);
            // Versions before 1.34 do not check the pod spec of the template.
            if version >= KubernetesVersion::V1_34 {
                template.validate(errors);
            }
            template.validate_metadata(errors);
        }
    }
    validate_always(&template, "StatefulSet", errors);
}

fn validate_rollout(strategy: &Cursor<'_>, errors: &mut FieldErrors) {
    let rolling = strategy.at("rollingUpdate");
    match (strategy.text("type"), rolling.is_set("")) {
        ("", _) => errors.required(strategy, ""),
        ("OnDelete", true) => {
            let printed = go_struct(&rolling, &["partition", "maxUnavailable"]);
            let detail = "only allowed for updateStrategy 'RollingUpdate'";
            invalid_printed(rolling, &printed, detail, errors);
        }
        ("RollingUpdate", true) => {
            rolling.at("partition").check_not_negative(errors);
            if let Some(unavailable) = rolling.present("maxUnavailable") {
                validate_number_or_percent(&unavailable, errors);
                if number_or_percent(&unavailable) == 0 {
                    errors.invalid(unavailable, unavailable.to_value(), "cannot be 0");
                }
                validate_at_most_all(&unavailable, errors);
            }
        }
        ("OnDelete" | "RollingUpdate", false) => {}
        _ => {
            let printed = go_struct(strategy, &["type", "rollingUpdate"]);
            invalid_printed(strategy, &printed, "must be 'RollingUpdate' or 'OnDelete'", errors);
        }
    }
}

fn validate_status(status: &Cursor<'_>, old: &Cursor<'_>, errors: &mut FieldErrors) {
    const COUNTS: [&str; 7] = [
        "replicas",
        "readyReplicas",
        "currentReplicas",
        "updatedReplicas",
        "availableReplicas",
        "observedGeneration",
        "collisionCount",
    ];
    const PARTS: [&str; 4] = [
        "readyReplicas",
        "currentReplicas",
        "updatedReplicas",
        "availableReplicas",
    ];
    validate_counts(status, &COUNTS, errors);
    validate_parts(status, &PARTS, errors);
    validate_available(status, "cannot be greater than status.readyReplicas", errors);
    validate_collisions(status, old, errors);
}
