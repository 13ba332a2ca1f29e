//! ResourceQuotas.

use serde_json::Value;

use super::strategy::{Context, Strategy};
use crate::api::field::{FieldErrors, FieldPath};
use crate::api::object::Object;
use crate::registry::types::access::{at, list, restore};
use crate::registry::types::labels;
use crate::registry::types::quantity::Quantity;

const STANDARD: [&str; 20] = [
    "cpu",
    "memory",
    "ephemeral-storage",
    "requests.cpu",
    "requests.memory",
    "requests.storage",
    "requests.ephemeral-storage",
    "limits.cpu",
    "limits.memory",
    "limits.ephemeral-storage",
    "pods",
    "resourcequotas",
    "services",
    "replicationcontrollers",
    "secrets",
    "persistentvolumeclaims",
    "configmaps",
    "services.nodeports",
    "services.loadbalancers",
    "storage",
];
const SCOPES: [&str; 7] = [
    "BestEffort",
    "CrossNamespacePodAffinity",
    "NotBestEffort",
    "NotTerminating",
    "PriorityClass",
    "Terminating",
    "VolumeAttributesClass",
];

/// The strategy of ResourceQuotas.
#[derive(Debug)]
pub(crate) struct ResourceQuota;

impl Strategy for ResourceQuota {
    fn validate(&self, object: &Object, errors: &mut FieldErrors) {
        let hard = at(object, "spec.hard").and_then(Value::as_object);
        for (name, quantity) in hard.into_iter().flatten() {
            let path = FieldPath::new("spec.hard").key(name);
            labels::validate_key(name, &path, errors);
            if !name.contains('/') && !is_standard(name) {
                let text = "must be a standard resource type or fully qualified";
                errors.invalid(path.clone(), name.as_str(), text);
                errors.invalid(path.clone(), name.as_str(), "must be a standard resource for quota");
            }
            let quantity = quantity.as_str().unwrap_or_default();
            if Quantity::parse(quantity).is_ok_and(|it| it.signum() < 0) {
                errors.invalid(path, quantity, "must be greater than or equal to 0");
            }
        }
        for scope in list(object, "spec.scopes").iter().filter_map(Value::as_str) {
            if !SCOPES.contains(&scope) {
                errors.invalid(
                    FieldPath::new("spec.scopes"),
                    list(object, "spec.scopes"),
                    "unsupported scope",
                );
            }
        }
    }

    fn prepare_for_update(&self, object: &mut Object, old: &Object, context: &Context<'_>) {
        if context.subresource == "status" {
            restore(object, old, "spec");
        }
    }

    fn validate_update(&self, object: &Object, old: &Object, errors: &mut FieldErrors, context: &Context<'_>) {
        if !context.subresource.is_empty() {
            return;
        }
        self.validate(object, errors);
        let scopes = |it: &Object| {
            let mut scopes = list(it, "spec.scopes").to_vec();
            scopes.sort_by_key(ToString::to_string);
            scopes
        };
        if scopes(object) != scopes(old) {
            errors.invalid(
                FieldPath::new("spec.scopes"),
                list(object, "spec.scopes"),
                "field is immutable",
            );
        }
    }

    fn returns_deleted_object(&self) -> bool {
        true
    }
}

fn is_standard(name: &str) -> bool {
    STANDARD.contains(&name)
        || ["hugepages-", "requests.hugepages-", "count/"]
            .iter()
            .any(|prefix| name.starts_with(prefix))
}
