//! The strategies of Roles and ClusterRoles. Follows `ValidateRole` and `ValidateClusterRole` of
//! `pkg/apis/rbac/validation`.

use super::facts::Facts;
use super::strategy::{Context, Strategy};
use crate::api::field::FieldErrors;
use crate::api::json::Value;
use crate::api::object::Object;
use crate::registry::types::cursor::Cursor;
use crate::registry::types::{labels, names};

/// The strategy of Roles and ClusterRoles. Only ClusterRoles may contain non-resource URLs.
#[derive(Debug)]
pub(crate) struct Role {
    /// Set for a ClusterRole.
    pub(crate) is_cluster: bool,
}

impl Strategy for Role {
    fn facts(&self) -> &Facts {
        &Facts {
            name: names::path_segment,
            allows_create_on_update: true,
            ..Facts::DEFAULT
        }
    }

    fn validate(&self, object: &Object, errors: &mut FieldErrors) {
        let object = Cursor::root(object);
        for rule in object.items("rules") {
            self.validate_rule(&rule, errors);
        }
        if object.is_set("aggregationRule") && self.is_cluster {
            validate_selectors(&object.at("aggregationRule.clusterRoleSelectors"), errors);
        }
    }

    fn validate_update(&self, object: &Object, _old: &Object, errors: &mut FieldErrors, _context: &Context<'_>) {
        self.validate(object, errors);
    }
}

fn validate_selectors(selectors: &Cursor<'_>, errors: &mut FieldErrors) {
    if selectors.is_empty("") {
        let text = "at least one clusterRoleSelector required if aggregationRule is non-nil";
        errors.required(selectors, text);
    }
    for selector in selectors.items("") {
        let mut found = FieldErrors::new();
        labels::validate_selector(&selector, &mut found);
        if !found.is_empty() {
            // Like kube-apiserver, also reports that the selector cannot be converted.
            found.invalid(selector, Value::Null, "invalid label selector.");
        }
        errors.extend(found);
    }
}

impl Role {
    /// Checks a rule (`ValidatePolicyRule`).
    fn validate_rule(&self, rule: &Cursor<'_>, errors: &mut FieldErrors) {
        let (groups, resources, urls) = (rule.at("apiGroups"), rule.at("resources"), rule.at("nonResourceURLs"));
        if rule.is_empty("verbs") {
            errors.required(rule.at("verbs"), "verbs must contain at least one value");
        }
        if !urls.is_empty("") {
            if !self.is_cluster {
                let text = "namespaced rules cannot apply to non-resource URLs";
                errors.invalid(urls, urls.to_value(), text);
            }
            if ["apiGroups", "resources", "resourceNames"]
                .iter()
                .any(|it| !rule.is_empty(it))
            {
                let text = "rules cannot apply to both regular resources and non-resource URLs";
                errors.invalid(urls, urls.to_value(), text);
            }
            return;
        }
        if groups.is_empty("") {
            errors.required(groups, "resource rules must supply at least one api group");
        }
        if resources.is_empty("") {
            errors.required(resources, "resource rules must supply at least one resource");
        }
    }
}
