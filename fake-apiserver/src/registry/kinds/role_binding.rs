//! RoleBindings and ClusterRoleBindings.

use serde_json::{Map, Value};

use super::metadata::invalid_printed;
use super::strategy::{Context, Strategy};
use crate::api::field::{FieldErrors, FieldPath};
use crate::api::object::Object;
use crate::registry::types::access::{at, default_to, object_mut, objects, objects_mut, text};
use crate::registry::types::names;

const GROUP: &str = "rbac.authorization.k8s.io";

/// The strategy of RoleBindings and ClusterRoleBindings.
#[derive(Debug)]
pub(crate) struct RoleBinding {
    /// Set for a ClusterRoleBinding.
    pub(crate) is_cluster: bool,
}

impl Strategy for RoleBinding {
    fn default(&self, object: &mut Object) {
        if let Some(role) = object_mut(object, "roleRef") {
            default_to(role, "apiGroup", GROUP);
        }
        for subject in objects_mut(object, "subjects") {
            if matches!(text(subject, "kind"), "User" | "Group") {
                default_to(subject, "apiGroup", GROUP);
            }
        }
    }

    fn validate(&self, object: &Object, errors: &mut FieldErrors) {
        let role = FieldPath::new("roleRef");
        let group = text(object, "roleRef.apiGroup");
        if group != GROUP {
            errors.not_supported(role.child("apiGroup"), group, &[GROUP]);
        }
        let kinds: &[&str] = if self.is_cluster {
            &["ClusterRole"]
        } else {
            &["Role", "ClusterRole"]
        };
        let kind = text(object, "roleRef.kind");
        if !kinds.contains(&kind) {
            errors.not_supported(role.child("kind"), kind, kinds);
        }
        let name = text(object, "roleRef.name");
        if name.is_empty() {
            errors.required(role.child("name"), "");
        } else {
            for text in names::path_segment(name, false) {
                errors.invalid(role.child("name"), name, text);
            }
        }
        for (index, subject) in objects(object, "subjects") {
            self.validate_subject(subject, &FieldPath::new("subjects").index(index), errors);
        }
    }

    fn validate_update(&self, object: &Object, old: &Object, errors: &mut FieldErrors, _context: &Context<'_>) {
        self.validate(object, errors);
        if object.get("roleRef") != old.get("roleRef") {
            // The fields of the server's own type, in its order.
            let field = |name: &str| {
                let value = at(object, &format!("roleRef.{name}")).cloned();
                value.unwrap_or_else(|| "".into())
            };
            let printed = format!(
                "{{\"APIGroup\":{},\"Kind\":{},\"Name\":{}}}",
                field("apiGroup"),
                field("kind"),
                field("name")
            );
            invalid_printed(FieldPath::new("roleRef"), &printed, "cannot change roleRef", errors);
        }
    }

    fn validate_name(&self, name: &str, is_prefix: bool) -> Vec<String> {
        names::path_segment(name, is_prefix)
    }

    fn allows_create_on_update(&self) -> bool {
        true
    }
}

impl RoleBinding {
    fn validate_subject(&self, subject: &Map<String, Value>, path: &FieldPath, errors: &mut FieldErrors) {
        let (name, kind, group) = (text(subject, "name"), text(subject, "kind"), text(subject, "apiGroup"));
        if name.is_empty() {
            errors.required(path.child("name"), "");
        }
        match kind {
            "ServiceAccount" => {
                if !name.is_empty() {
                    for text in names::dns1123_subdomain(name, false) {
                        errors.invalid(path.child("name"), name, text);
                    }
                }
                if !group.is_empty() {
                    errors.not_supported(path.child("apiGroup"), group, &[""]);
                }
                if self.is_cluster && text(subject, "namespace").is_empty() {
                    errors.required(path.child("namespace"), "");
                }
            }
            "User" | "Group" => {
                if group != GROUP {
                    errors.not_supported(path.child("apiGroup"), group, &[GROUP]);
                }
            }
            other => errors.not_supported(path.child("kind"), other, &["ServiceAccount", "User", "Group"]),
        }
    }
}
