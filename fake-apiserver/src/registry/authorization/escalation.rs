//! Privilege escalation: a user cannot grant permissions that they do not have. Checks writes of Roles and bindings
//! (rule Q2).

use super::{Authorization, GROUP, Rbac};
use crate::api::json::Value;
use crate::api::object::Object;
use crate::api::rbac::{Attributes, PolicyRule, quoted};
use crate::api::status::Status;
use crate::api::user::MASTERS;
use crate::registry::request::WriteRequest;
use crate::registry::types::cursor::Cursor;

/// Metadata fields whose changes are not checked, because the garbage collector or the server makes them.
const UNTOLD: [&str; 4] = ["finalizers", "managedFields", "ownerReferences", "resourceVersion"];

impl Authorization {
    /// Fails if the write of a Role or binding would grant a permission that the user lacks, unless the user may
    /// `escalate` or `bind` the role. `old` is the stored object.
    pub(in crate::registry) fn check_escalation(
        &self,
        request: &WriteRequest<'_>,
        object: &Object,
        old: Option<&Object>,
    ) -> Result<(), Status> {
        let Some(rbac) = self.rbac.as_ref().filter(|_| request.row.info.group == GROUP) else {
            return Ok(());
        };
        if request.user.is_in(MASTERS) || old.is_some_and(|old| changes_only_gc_fields(object, old)) {
            return Ok(());
        }
        match &*request.row.info.resource {
            "roles" | "clusterroles" => self.check_role(request, object, old),
            "rolebindings" | "clusterrolebindings" => self.check_binding(rbac, request, object),
            _ => Ok(()),
        }
    }

    fn check_role(&self, request: &WriteRequest<'_>, role: &Object, old: Option<&Object>) -> Result<(), Status> {
        let info = request.info;
        let escalate = Attributes {
            verb: "escalate",
            group: GROUP,
            resource: &info.resource,
            name: &info.name,
            namespace: &info.namespace,
            ..Attributes::default()
        };
        if self.is_allowed(request.user, &escalate) {
            return Ok(());
        }
        self.check_held(request, role.name(), &PolicyRule::of_role(role))?;
        let aggregates = |role: &Object| !Cursor::root(role).is_empty("aggregationRule.clusterRoleSelectors");
        if aggregates(role) || old.is_some_and(aggregates) {
            // The selectors may match other roles later, so the user needs all permissions.
            let held = self.check_held(request, role.name(), &PolicyRule::everything());
            let why = "must have cluster-admin privileges to use the aggregationRule";
            held.map_err(|_| Status::forbidden(&request.row.info.group_resource(), role.name(), why))?;
        }
        Ok(())
    }

    fn check_binding(&self, rbac: &Rbac, request: &WriteRequest<'_>, binding: &Object) -> Result<(), Status> {
        let role = Cursor::root(binding);
        let (kind, name) = (role.text("roleRef.kind"), role.text("roleRef.name"));
        let namespace = &request.info.namespace;
        let bind = Attributes {
            verb: "bind",
            group: role.text("roleRef.apiGroup"),
            resource: if kind == "Role" { "roles" } else { "clusterroles" },
            name,
            namespace,
            ..Attributes::default()
        };
        if self.is_allowed(request.user, &bind) {
            return Ok(());
        }
        let rules = self.policy(rbac).role(kind, namespace, name).map_err(|missing| {
            // Same as in kube-apiserver: the error contains the requested resource instead of the missing role's.
            Status::not_found(&request.row.info.group_resource(), &missing.name)
        })?;
        self.check_held(request, binding.name(), &rules)
    }

    /// Fails if the user lacks a permission granted by `rules`.
    fn check_held(&self, request: &WriteRequest<'_>, name: &str, rules: &[PolicyRule]) -> Result<(), Status> {
        let user = request.user;
        let (held, errors) = self.rules_of(user, &request.info.namespace);
        let missing = PolicyRule::missing(&held, rules);
        if missing.is_empty() {
            return Ok(());
        }
        let mut shown: Vec<String> = PolicyRule::compact(missing).iter().map(ToString::to_string).collect();
        shown.sort();
        shown.dedup();
        let mut why = format!(
            "user {} (groups={}) is attempting to grant RBAC permissions not currently held:\n{}",
            crate::api::field::quote(&user.name),
            quoted(&user.groups),
            shown.join("\n")
        );
        if !errors.is_empty() {
            why = format!("{why}; resolution errors: [{}]", errors.join(" "));
        }
        Err(Status::forbidden(&request.row.info.group_resource(), name, why))
    }
}

/// Returns `true` if an update only changes metadata that the garbage collector or the server changes
/// (`IsOnlyMutatingGCFields`). Such an update does not need further permissions.
pub(in crate::registry) fn changes_only_gc_fields(object: &Object, old: &Object) -> bool {
    let told = |object: &Object| {
        let mut object = object.clone();
        for field in UNTOLD {
            object.metadata_mut().remove(field);
        }
        Value::Object(object.0)
    };
    told(object) == told(old)
}
