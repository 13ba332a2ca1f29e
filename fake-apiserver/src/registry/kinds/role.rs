//! Roles and ClusterRoles.

use serde_json::{Map, Value};

use super::strategy::{Context, Strategy};
use crate::api::field::{FieldErrors, FieldPath};
use crate::api::object::Object;
use crate::registry::types::access::{at, list, objects};
use crate::registry::types::{labels, names};

/// The strategy of Roles, and of ClusterRoles, which may speak of URLs too.
#[derive(Debug)]
pub(crate) struct Role {
    /// Set for a ClusterRole.
    pub(crate) is_cluster: bool,
}

impl Strategy for Role {
    fn validate(&self, object: &Object, errors: &mut FieldErrors) {
        for (index, rule) in objects(object, "rules") {
            self.validate_rule(rule, &FieldPath::new("rules").index(index), errors);
        }
        let selectors = list(object, "aggregationRule.clusterRoleSelectors");
        if at(object, "aggregationRule").is_some() && self.is_cluster {
            let path = FieldPath::new("aggregationRule.clusterRoleSelectors");
            if selectors.is_empty() {
                errors.required(
                    path.clone(),
                    "at least one clusterRoleSelector required if aggregationRule is non-nil",
                );
            }
            for (index, selector) in selectors.iter().enumerate() {
                let mut found = FieldErrors::new();
                labels::validate_selector(Some(selector), &path.index(index), &mut found);
                if !found.is_empty() {
                    // It cannot be made a selector either.
                    found.invalid(path.index(index), Value::Null, "invalid label selector.");
                }
                errors.extend(found);
            }
        }
    }

    fn validate_update(&self, object: &Object, _old: &Object, errors: &mut FieldErrors, _context: &Context<'_>) {
        self.validate(object, errors);
    }

    fn validate_name(&self, name: &str, is_prefix: bool) -> Vec<String> {
        names::path_segment(name, is_prefix)
    }

    fn allows_create_on_update(&self) -> bool {
        true
    }
}

impl Role {
    fn validate_rule(&self, rule: &Map<String, Value>, path: &FieldPath, errors: &mut FieldErrors) {
        if list(rule, "verbs").is_empty() {
            errors.required(path.child("verbs"), "verbs must contain at least one value");
        }
        let urls = list(rule, "nonResourceURLs");
        if !urls.is_empty() {
            let path = path.child("nonResourceURLs");
            if !self.is_cluster {
                errors.invalid(path.clone(), urls, "namespaced rules cannot apply to non-resource URLs");
            }
            let is_mixed = ["apiGroups", "resources", "resourceNames"]
                .iter()
                .any(|field| !list(rule, field).is_empty());
            if is_mixed {
                let text = "rules cannot apply to both regular resources and non-resource URLs";
                errors.invalid(path, urls, text);
            }
            return;
        }
        if list(rule, "apiGroups").is_empty() {
            errors.required(
                path.child("apiGroups"),
                "resource rules must supply at least one api group",
            );
        }
        if list(rule, "resources").is_empty() {
            errors.required(
                path.child("resources"),
                "resource rules must supply at least one resource",
            );
        }
    }
}
