//! Checks shared by webhook configurations and admission policies: rules, selectors and match conditions
//! (`pkg/apis/admissionregistration/validation`).

use std::collections::BTreeSet;

use crate::api::field::FieldErrors;
use crate::api::json::{Map, json};
use crate::api::kubernetes_version::KubernetesVersion;
use crate::api::object::Object;
use crate::registry::cel;
use crate::registry::types::cursor::Cursor;
use crate::registry::types::edit::{default_value, items_mut};
use crate::registry::types::{labels, names};

/// Supported operations, in the order used by error messages.
const OPERATIONS: [&str; 5] = ["*", "CONNECT", "CREATE", "DELETE", "UPDATE"];
/// The operations that can change an object.
const MUTATING_OPERATIONS: [&str; 4] = ["*", "CONNECT", "CREATE", "UPDATE"];
/// Maximum number of match conditions in a webhook or a policy.
const CONDITIONS_MAX: usize = 64;

/// Fills in the default scope of rules.
pub(super) fn default_rules(map: &mut Map, field: &str) {
    for rule in items_mut(map, field) {
        default_value(rule, "scope", "*");
    }
}

/// Fills in the defaults of `MatchResources`.
pub(super) fn default_match(resources: &mut Map) {
    default_value(resources, "matchPolicy", "Equivalent");
    default_value(resources, "namespaceSelector", json!({}));
    default_value(resources, "objectSelector", json!({}));
    for field in ["resourceRules", "excludeResourceRules"] {
        default_rules(resources, field);
    }
}

/// Checks the match constraints of a policy (`validateMatchResources`).
pub(super) fn validate_match(resources: &Cursor<'_>, errors: &mut FieldErrors) {
    resources
        .at("matchPolicy")
        .check_one_of(&["Equivalent", "Exact"], errors);
    for field in ["namespaceSelector", "objectSelector"] {
        let selector = resources.at(field);
        labels::validate_selector(&selector, errors);
    }
    for field in ["resourceRules", "excludeResourceRules"] {
        for rule in resources.items(field) {
            let mut seen = BTreeSet::new();
            for name in rule.items("resourceNames") {
                name.check_texts(names::path_segment(name.as_text(), false), errors);
                if !seen.insert(name.as_text().to_owned()) {
                    errors.duplicate(name, name.as_text());
                }
            }
            validate_rule(&rule, errors);
        }
    }
}

/// Checks that the rules of a mutating policy only contain operations that can change an object.
pub(super) fn validate_mutating_operations(resources: &Cursor<'_>, errors: &mut FieldErrors) {
    for rule in resources.items("resourceRules") {
        for operation in rule.items("operations") {
            if !MUTATING_OPERATIONS.contains(&operation.as_text()) {
                let path = resources.at("resourceRules.operations");
                errors.not_supported(path, operation.as_text(), &MUTATING_OPERATIONS);
            }
        }
    }
}

/// Checks a rule of a webhook or a policy (`validateRuleWithOperations`).
pub(super) fn validate_rule(rule: &Cursor<'_>, errors: &mut FieldErrors) {
    let operations = rule.at("operations");
    check_list(&operations, "operations", errors);
    for operation in operations.items("") {
        if !OPERATIONS.contains(&operation.as_text()) {
            errors.not_supported(operation, operation.as_text(), &OPERATIONS);
        }
    }
    check_list(&rule.at("apiGroups"), "API groups", errors);
    let versions = rule.at("apiVersions");
    check_list(&versions, "API versions", errors);
    for version in versions.items("") {
        version.check_required(errors);
    }
    validate_resources(&rule.at("resources"), errors);
    rule.at("scope").check_one_of(&["*", "Cluster", "Namespaced"], errors);
}

/// Checks that a list is not empty, and that it has no other items if it contains `*`.
fn check_list(list: &Cursor<'_>, what: &str, errors: &mut FieldErrors) {
    let items = list.list("");
    if items.is_empty() {
        errors.required(list, "");
    }
    if items.len() > 1 && items.iter().any(|it| it == "*") {
        let text = format!("if '*' is present, must not specify other {what}");
        errors.invalid(list, list.to_value(), text);
    }
}

/// Checks the resources of a rule (`validateResources`).
fn validate_resources(resources: &Cursor<'_>, errors: &mut FieldErrors) {
    if resources.is_empty("") {
        errors.required(resources, "");
    }
    let (mut any_subresource, mut any_resource) = (BTreeSet::new(), BTreeSet::new());
    let mut has_plain = false;
    for item in resources.items("") {
        let text = item.as_text();
        if !item.check_required(errors) {
            continue;
        }
        let Some((resource, subresource)) = text.split_once('/') else {
            has_plain = text != "*";
            continue;
        };
        if any_subresource.contains(resource) {
            let detail = format!("if '{resource}/*' is present, must not specify {text}");
            errors.invalid(item, text, detail);
        }
        if any_resource.contains(subresource) {
            let detail = format!("if '*/{subresource}' is present, must not specify {text}");
            errors.invalid(item, text, detail);
        }
        if subresource == "*" {
            any_subresource.insert(resource.to_owned());
        }
        if resource == "*" {
            any_resource.insert(subresource.to_owned());
        }
    }
    let has = |text: &str| resources.list("").iter().any(|it| it == text);
    if resources.list("").len() > 1 && has("*/*") {
        let text = "if '*/*' is present, must not specify other resources";
        errors.invalid(resources, resources.to_value(), text);
    }
    if has("*") && has_plain {
        let text = "if '*' is present, must not specify other resources without subresources";
        errors.invalid(resources, resources.to_value(), text);
    }
}

/// Checks the match conditions of a webhook or a policy (`validateMatchConditions`).
pub(super) fn validate_conditions(
    version: KubernetesVersion,
    conditions: &Cursor<'_>,
    has_params: bool,
    errors: &mut FieldErrors,
) {
    let count = conditions.list("").len();
    if count > CONDITIONS_MAX {
        errors.too_many(conditions, count, CONDITIONS_MAX);
    }
    let mut seen = BTreeSet::new();
    for condition in conditions.items("") {
        let (name, expression) = (condition.at("name"), condition.at("expression"));
        match expression.as_text().trim() {
            "" => errors.required(expression, ""),
            text => RuleScope::of_requests(version, has_params).check(&expression, text, &["bool"], errors),
        }
        if name.check_required(errors) {
            name.check_texts(names::qualified_name(name.as_text()), errors);
            if !seen.insert(name.as_text().to_owned()) {
                errors.duplicate(name, name.as_text());
            }
        }
    }
}

/// The variables that are available to an expression.
#[derive(Clone, Debug)]
pub(super) struct RuleScope {
    pub(super) names: cel::requests::Names,
}

impl RuleScope {
    /// Creates the scope of expressions about a request.
    pub(super) fn of_requests(version: KubernetesVersion, has_params: bool) -> Self {
        let names = cel::requests::Names::of_requests(version, has_params);
        Self { names }
    }

    /// Adds an error at `at` if the expression `text` does not compile, or if the type of its result is not in
    /// `wanted`. An empty list permits all types. Without the feature `cel`, all expressions are refused.
    pub(super) fn check(&self, at: &Cursor<'_>, text: &str, wanted: &[&str], errors: &mut FieldErrors) {
        if !cel::IS_EVALUATED {
            let text = "expressions are not supported by this server, which is built without the feature cel";
            errors.forbidden(at, text);
        } else if let Some(problem) = cel::requests::problem(text, wanted, &self.names) {
            errors.invalid(at, text, problem);
        }
    }
}

/// Returns the warning about a name that is reserved for configurations in manifests (`static_suffix.go`).
pub(super) fn warn_of_static_name(version: KubernetesVersion, object: &Object) -> Vec<String> {
    if version < KubernetesVersion::V1_36 || !object.name().ends_with(".static.k8s.io") {
        return Vec::new();
    }
    let text = "metadata.name: names ending with \".static.k8s.io\" are reserved for static manifest-based \
                configurations and cannot be managed via the API";
    vec![text.to_owned()]
}
