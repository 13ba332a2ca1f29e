//! The strategy of ResourceQuotas. Follows `ValidateResourceQuota`, `ValidateResourceQuotaUpdate` and
//! `ValidateResourceQuotaStatusUpdate` of `pkg/apis/core/validation`.

use super::facts::Facts;
use super::pod::resources::{validate_quantity_value, validate_resource_name};
use super::strategy::{Context, Strategy};
use crate::api::field::FieldErrors;
use crate::api::json::Value;
use crate::api::object::Object;
use crate::registry::types::check::IMMUTABLE;
use crate::registry::types::cursor::Cursor;
use crate::registry::types::edit::copy_field;
use crate::registry::types::quantity::Quantity;

const STANDARD: [&str; 19] = [
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
];
const OF_PODS: [&str; 7] = [
    "pods",
    "cpu",
    "memory",
    "limits.cpu",
    "limits.memory",
    "requests.cpu",
    "requests.memory",
];

/// The strategy of ResourceQuotas.
#[derive(Debug)]
pub(crate) struct ResourceQuota;

impl Strategy for ResourceQuota {
    fn facts(&self) -> &Facts {
        &Facts {
            returns_deleted_object: true,
            ..Facts::DEFAULT
        }
    }

    fn validate(&self, object: &Object, errors: &mut FieldErrors) {
        let object = Cursor::root(object);
        let spec = object.at("spec");
        validate_amounts(&spec.at("hard"), errors);
        validate_scopes(&spec, errors);
        if spec.is_set("scopeSelector") {
            validate_scope_selector(&spec, errors);
        }
    }

    fn prepare_for_update(&self, object: &mut Object, old: &Object, context: &Context<'_>) {
        if context.subresource == "status" {
            copy_field(old, object, "spec");
        }
    }

    fn validate_update(&self, object: &Object, old: &Object, errors: &mut FieldErrors, context: &Context<'_>) {
        let (new, old) = (Cursor::root(object), Cursor::root(old));
        if !context.subresource.is_empty() {
            validate_amounts(&new.at("status.hard"), errors);
            validate_amounts(&new.at("status.used"), errors);
            return;
        }
        self.validate(object, errors);
        let scopes = |it: &Cursor<'_>| {
            let mut scopes = it.list("spec.scopes").to_vec();
            scopes.sort_by_key(ToString::to_string);
            scopes.dedup();
            scopes
        };
        if scopes(&new) != scopes(&old) {
            errors.invalid(new.at("spec.scopes"), new.at("spec.scopes").to_value(), IMMUTABLE);
        }
    }

    fn warnings(&self, object: &Object, old: Option<&Object>) -> Vec<String> {
        if old.is_some() {
            return Vec::new();
        }
        let hard = Cursor::root(object).map_or_empty("spec.hard");
        let amount = |name: String| {
            let amount = Quantity::parse(hard.get(&name)?.as_str()?).ok()?;
            Some((name, amount))
        };
        let warning = |resource: &&str| {
            let bare = || amount((*resource).to_owned()).filter(|_| matches!(*resource, "cpu" | "memory"));
            let (request_name, request) = amount(format!("requests.{resource}")).or_else(bare)?;
            let (limit_name, limit) = amount(format!("limits.{resource}"))?;
            (request > limit)
                .then(|| format!("ResourceQuota {request_name} ({request}) should be less than {limit_name} ({limit})"))
        };
        ["cpu", "memory", "storage", "ephemeral-storage"]
            .iter()
            .filter_map(warning)
            .collect()
    }
}

/// Checks the name and the amount of each resource (`ValidateResourceQuotaResourceName` and
/// `ValidateResourceQuantityValue`).
fn validate_amounts(amounts: &Cursor<'_>, errors: &mut FieldErrors) {
    for (name, amount) in amounts.entries("") {
        validate_resource_name(name, &amount, errors);
        if !name.contains('/') && !is_counted(name) {
            errors.invalid(amount, name, "must be a standard resource for quota");
        }
        validate_quantity_value(name, &amount, errors);
    }
}

/// Returns `true` for a standard resource of quotas (`IsStandardQuotaResourceName`).
fn is_counted(name: &str) -> bool {
    STANDARD.contains(&name) || name.starts_with("hugepages-") || name.starts_with("requests.hugepages-")
}

/// Returns `true` for a standard scope (`IsStandardResourceQuotaScope`).
fn is_scope(scope: &str) -> bool {
    matches!(
        scope,
        "BestEffort"
            | "CrossNamespacePodAffinity"
            | "NotBestEffort"
            | "NotTerminating"
            | "PriorityClass"
            | "Terminating"
            | "VolumeAttributesClass"
    )
}

/// Returns `true` if a scope applies to a resource (`IsResourceQuotaScopeValidForResource`).
fn applies(scope: &str, resource: &str) -> bool {
    match scope {
        "BestEffort" => resource == "pods",
        "VolumeAttributesClass" => matches!(resource, "persistentvolumeclaims" | "requests.storage"),
        _ => !is_scope(scope) || OF_PODS.contains(&resource),
    }
}

/// Counts the resources of `spec.hard` to which a scope does not apply.
fn count_unfit(spec: &Cursor<'_>, scope: &str) -> usize {
    let resources = spec.map("hard").into_iter().flatten();
    resources
        .filter(|(name, _)| is_counted(name) && !applies(scope, name))
        .count()
}

/// Checks `spec.scopes` (`validateResourceQuotaScopes`).
fn validate_scopes(spec: &Cursor<'_>, errors: &mut FieldErrors) {
    let scopes = spec.at("scopes");
    for scope in scopes.items("") {
        if !is_scope(scope.as_text()) {
            errors.invalid(scopes, scopes.to_value(), "unsupported scope");
        }
        for _ in 0..count_unfit(spec, scope.as_text()) {
            errors.invalid(scopes, scopes.to_value(), "unsupported scope applied to resource");
        }
    }
    let found: Vec<&str> = scopes.list("").iter().filter_map(Value::as_str).collect();
    refuse_conflicts(&found, &scopes, spec, errors);
}

fn refuse_conflicts(found: &[&str], at: &Cursor<'_>, spec: &Cursor<'_>, errors: &mut FieldErrors) {
    for pair in [["BestEffort", "NotBestEffort"], ["Terminating", "NotTerminating"]] {
        if pair.iter().all(|scope| found.contains(scope)) {
            errors.invalid(at, spec.at("scopes").to_value(), "conflicting scopes");
        }
    }
}

/// Checks `spec.scopeSelector` (`validateScopedResourceSelectorRequirement`). As in kube-apiserver, error paths lack
/// the index of the expression.
fn validate_scope_selector(spec: &Cursor<'_>, errors: &mut FieldErrors) {
    let selector = spec.at("scopeSelector");
    let expressions = selector.at("matchExpressions");
    let mut found = Vec::new();
    for expression in expressions.items("") {
        let (scope, operator) = (expression.text("scopeName"), expression.text("operator"));
        if !is_scope(scope) {
            errors.invalid(expressions.at("scopeName"), scope, "unsupported scope");
        }
        for _ in 0..count_unfit(spec, scope) {
            let text = "unsupported scope applied to resource";
            errors.invalid(expressions, selector.to_value(), text);
        }
        let takes_values = matches!(scope, "PriorityClass" | "VolumeAttributesClass") || !is_scope(scope);
        if !takes_values && operator != "Exists" {
            let text = "must be 'Exists' when scope is any of ResourceQuotaScopeTerminating, \
                        ResourceQuotaScopeNotTerminating, ResourceQuotaScopeBestEffort, \
                        ResourceQuotaScopeNotBestEffort or ResourceQuotaScopeCrossNamespacePodAffinity";
            errors.invalid(expressions.at("operator"), operator, text);
        }
        let has_values = !expression.is_empty("values");
        match operator {
            "In" | "NotIn" if !has_values => {
                let text = "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector";
                errors.required(expressions.at("values"), text);
            }
            "Exists" | "DoesNotExist" if has_values => {
                let text = "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector";
                errors.invalid(expressions.at("values"), expression.at("values").to_value(), text);
            }
            "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
            _ => errors.invalid(expressions.at("operator"), operator, "not a valid selector operator"),
        }
        found.push(scope.to_owned());
    }
    let found: Vec<&str> = found.iter().map(String::as_str).collect();
    refuse_conflicts(&found, &expressions, spec, errors);
}
