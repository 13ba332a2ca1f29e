//! The strategies of RoleBindings and ClusterRoleBindings. Follows `ValidateRoleBinding` and
//! `ValidateClusterRoleBinding` of `pkg/apis/rbac/validation`.

use super::facts::Facts;
use super::metadata::invalid_printed;
use super::strategy::{Context, Strategy};
use crate::api::field::{FieldErrors, quote};
use crate::api::object::Object;
use crate::registry::types::cursor::Cursor;
use crate::registry::types::edit::{default_text, items_mut, object_mut};
use crate::registry::types::names;

const GROUP: &str = "rbac.authorization.k8s.io";

/// The strategy of RoleBindings and ClusterRoleBindings.
#[derive(Debug)]
pub(crate) struct RoleBinding {
    /// Set for a ClusterRoleBinding.
    pub(crate) is_cluster: bool,
}

impl Strategy for RoleBinding {
    fn facts(&self) -> &Facts {
        &Facts {
            name: names::path_segment,
            allows_create_on_update: true,
            ..Facts::DEFAULT
        }
    }

    fn default(&self, object: &mut Object) {
        if let Some(role) = object_mut(object, "roleRef") {
            default_text(role, "apiGroup", GROUP);
        }
        for subject in items_mut(object, "subjects") {
            if subject
                .get("kind")
                .is_some_and(|kind| kind == "User" || kind == "Group")
            {
                default_text(subject, "apiGroup", GROUP);
            }
        }
    }

    fn validate(&self, object: &Object, errors: &mut FieldErrors) {
        let object = Cursor::root(object);
        let role = object.at("roleRef");
        let (group, kind, name) = (role.at("apiGroup"), role.at("kind"), role.at("name"));
        if group.as_text() != GROUP {
            errors.not_supported(group, group.as_text(), &[GROUP]);
        }
        let kinds: &[&str] = match self.is_cluster {
            true => &["ClusterRole"],
            false => &["Role", "ClusterRole"],
        };
        if !kinds.contains(&kind.as_text()) {
            errors.not_supported(kind, kind.as_text(), kinds);
        }
        if name.check_required(errors) {
            name.check_texts(names::path_segment(name.as_text(), false), errors);
        }
        for subject in object.items("subjects") {
            self.validate_subject(&subject, errors);
        }
    }

    fn validate_update(&self, object: &Object, old: &Object, errors: &mut FieldErrors, _context: &Context<'_>) {
        self.validate(object, errors);
        let role = Cursor::root(object);
        if !role.same(&Cursor::root(old), "roleRef") {
            let role = role.at("roleRef");
            // The error prints the fields in the order of kube-apiserver's internal type.
            let [group, kind, name] = ["apiGroup", "kind", "name"].map(|it| quote(role.text(it)));
            let printed = format!("{{\"APIGroup\":{group},\"Kind\":{kind},\"Name\":{name}}}");
            invalid_printed(role.path(), &printed, "cannot change roleRef", errors);
        }
    }
}

impl RoleBinding {
    /// Checks a subject (`ValidateRoleBindingSubject`).
    fn validate_subject(&self, subject: &Cursor<'_>, errors: &mut FieldErrors) {
        let (name, kind, group) = (subject.at("name"), subject.at("kind"), subject.at("apiGroup"));
        name.check_required(errors);
        match kind.as_text() {
            "ServiceAccount" => {
                name.check_subdomain(errors);
                if !group.as_text().is_empty() {
                    errors.not_supported(group, group.as_text(), &[""]);
                }
                if self.is_cluster {
                    subject.at("namespace").check_required(errors);
                }
            }
            "User" | "Group" => {
                if group.as_text() != GROUP {
                    errors.not_supported(group, group.as_text(), &[GROUP]);
                }
            }
            other => errors.not_supported(kind, other, &["ServiceAccount", "User", "Group"]),
        }
    }
}
