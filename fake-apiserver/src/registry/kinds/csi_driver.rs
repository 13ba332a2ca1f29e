//! The strategy of CSIDrivers. Follows `ValidateCSIDriver` and `ValidateCSIDriverUpdate` of
//! `pkg/apis/storage/validation`.

use std::collections::BTreeSet;

use super::facts::{Facts, Generation};
use super::strategy::{Context, Strategy};
use crate::api::field::{FieldErrors, FieldPath};
use crate::api::json::json;
use crate::api::kubernetes_version::KubernetesVersion;
use crate::api::object::Object;
use crate::registry::types::check::IMMUTABLE;
use crate::registry::types::cursor::Cursor;
use crate::registry::types::edit::{default_value, ensure_object};

const PREVENTS_SCHEDULING: &str = "preventPodSchedulingIfMissing";
const POLICIES: [&str; 3] = ["File", "None", "ReadWriteOnceWithFSType"];
const MODES: [&str; 2] = ["Persistent", "Ephemeral"];
/// Minimum lifetime of a token, in seconds.
const EXPIRATION_MIN: i64 = 600;
const EXPIRATION_MAX: i64 = 1 << 32;
const ALLOCATABLE_PERIOD_MIN: i64 = 10;

/// The strategy of CSIDrivers.
#[derive(Debug)]
pub(crate) struct CsiDriver {
    /// The version of Kubernetes. Since 1.37, the field that depends on the gate `VolumeLimitScaling` is kept.
    pub(crate) version: KubernetesVersion,
}

impl Strategy for CsiDriver {
    fn facts(&self) -> &Facts {
        &Facts {
            // In kube-apiserver, `PrepareForCreate` does not set a generation.
            generation: Generation::FromFirstChange,
            allows_unconditional_update: false,
            returns_deleted_object: true,
            ..Facts::DEFAULT
        }
    }

    fn default(&self, object: &mut Object) {
        let spec = ensure_object(object, "spec");
        default_value(spec, "attachRequired", true);
        default_value(spec, "fsGroupPolicy", "ReadWriteOnceWithFSType");
        for field in ["podInfoOnMount", "storageCapacity", "requiresRepublish", "seLinuxMount"] {
            default_value(spec, field, false);
        }
        if self.keeps_limit_scaling() {
            default_value(spec, PREVENTS_SCHEDULING, false);
        }
        if spec
            .get("volumeLifecycleModes")
            .is_none_or(|it| it.is_null() || *it == json!([]))
        {
            spec.insert("volumeLifecycleModes".into(), json!(["Persistent"]));
        }
    }

    fn prepare_for_create(&self, object: &mut Object, _context: &Context<'_>) {
        self.drop_disabled(object, None);
    }

    fn validate(&self, object: &Object, errors: &mut FieldErrors) {
        let object = Cursor::root(object);
        let spec = object.at("spec");
        spec.at("fsGroupPolicy").check_one_of(&POLICIES, errors);
        validate_token_requests(&spec.at("tokenRequests"), errors);
        let modes = spec.at("volumeLifecycleModes");
        for mode in modes.items("") {
            if !MODES.contains(&mode.as_text()) {
                errors.not_supported(modes, mode.as_text(), &MODES);
            }
        }
        let period = spec.at("nodeAllocatableUpdatePeriodSeconds");
        if let Some(seconds) = period.integer("").filter(|it| *it < ALLOCATABLE_PERIOD_MIN) {
            errors.invalid(period, seconds, "must be greater than or equal to 10 seconds");
        }
        let in_secrets = spec.at("serviceAccountTokenInSecrets");
        if in_secrets.is_set("") && spec.is_empty("tokenRequests") {
            let text = "serviceAccountTokenInSecrets is set but no tokenRequests are specified";
            errors.invalid(in_secrets, in_secrets.to_value(), text);
        }
    }

    fn prepare_for_update(&self, object: &mut Object, old: &Object, _context: &Context<'_>) {
        self.drop_disabled(object, Some(old));
    }

    fn validate_update(&self, object: &Object, old: &Object, errors: &mut FieldErrors, _context: &Context<'_>) {
        self.validate(object, errors);
        let (new, old) = (Cursor::root(object), Cursor::root(old));
        let required = new.at("spec.attachRequired");
        if !new.same(&old, "spec.attachRequired") {
            errors.invalid(FieldPath::new("spec.attachedRequired"), required.to_value(), IMMUTABLE);
        }
        new.at("spec.volumeLifecycleModes")
            .check_unchanged(&old.at("spec.volumeLifecycleModes"), errors);
    }

    fn warnings(&self, object: &Object, old: Option<&Object>) -> Vec<String> {
        let new = Cursor::root(object);
        let is_changed = old.is_none_or(|old| !new.same(&Cursor::root(old), "spec.tokenRequests"));
        if !is_changed || new.is_empty("spec.tokenRequests") || new.is_set("spec.serviceAccountTokenInSecrets") {
            return Vec::new();
        }
        let text = "spec.serviceAccountTokenInSecrets is unset; if supported by this CSI driver, set to true to \
                    prevent possible logging of tokens in volume attributes";
        vec![text.to_owned()]
    }
}

impl CsiDriver {
    fn keeps_limit_scaling(&self) -> bool {
        self.version >= KubernetesVersion::V1_37
    }

    /// Drops the field that depends on the gate `VolumeLimitScaling`, unless the stored object has it
    /// (`dropDisabledFields`).
    fn drop_disabled(&self, object: &mut Object, old: Option<&Object>) {
        let had = old.is_some_and(|old| Cursor::root(old).at("spec").is_set(PREVENTS_SCHEDULING));
        if !had && !self.keeps_limit_scaling() {
            ensure_object(object, "spec").remove(PREVENTS_SCHEDULING);
        }
    }
}

/// Checks the token requests of a driver (`validateTokenRequests`).
fn validate_token_requests(requests: &Cursor<'_>, errors: &mut FieldErrors) {
    let mut audiences = BTreeSet::new();
    for request in requests.items("") {
        let audience = request.at("audience");
        if !audiences.insert(audience.as_text().to_owned()) {
            errors.duplicate(audience, audience.as_text());
            continue;
        }
        let expiration = request.at("expirationSeconds");
        match expiration.integer("") {
            Some(seconds) if seconds < EXPIRATION_MIN => {
                errors.invalid(expiration, seconds, "may not specify a duration less than 10 minutes");
            }
            Some(seconds) if seconds > EXPIRATION_MAX => {
                errors.invalid(
                    expiration,
                    seconds,
                    "may not specify a duration larger than 2^32 seconds",
                );
            }
            _ => {}
        }
    }
}
