//! Permissions that a write requires because of the objects to which it refers: the parameters of policies and of their
//! bindings (`authz.go` of `pkg/registry/admissionregistration`), and the devices of ResourceClaims
//! (`pkg/registry/resource`). They are checked after all other validation.

use std::collections::{BTreeMap, BTreeSet};

use super::Authorization;
use crate::api::field::{FieldErrors, FieldPath};
use crate::api::json::Value;
use crate::api::kubernetes_version::KubernetesVersion;
use crate::api::object::Object;
use crate::api::rbac::Attributes;
use crate::api::status::Status;
use crate::api::user::{MASTERS, UserInfo};
use crate::registry::request::WriteRequest;
use crate::registry::types::cursor::Cursor;

const POLICY_GROUP: &str = "admissionregistration.k8s.io";
/// Extra field of the user of a Pod's token: the Node of the Pod.
const NODE_NAME: &str = "authentication.kubernetes.io/node-name";

impl Authorization {
    /// Fails if the write requires a permission that the user lacks. `old` is the stored object.
    pub(in crate::registry) fn check_references(
        &self,
        request: &WriteRequest<'_>,
        object: &Object,
        old: Option<&Object>,
    ) -> Result<(), Status> {
        if !self.has_rbac() || request.user.is_in(MASTERS) {
            return Ok(());
        }
        let mut errors = FieldErrors::new();
        let info = &request.row.info;
        match (&*info.group, &*info.resource, &*request.info.subresource) {
            (POLICY_GROUP, "validatingadmissionpolicies" | "mutatingadmissionpolicies", "") => {
                self.check_param_kind(request, object, old, &mut errors);
            }
            (POLICY_GROUP, "validatingadmissionpolicybindings" | "mutatingadmissionpolicybindings", "") => {
                self.check_param_ref(request, object, old, &mut errors);
            }
            ("resource.k8s.io", "resourceclaims", "status") => {
                let is_enabled = self.reader.scheme().version >= KubernetesVersion::V1_36;
                if let Some(old) = old.filter(|_| is_enabled) {
                    let (object, old) = (Cursor::root(object), Cursor::root(old));
                    self.check_allocation(request, &object, &old, &mut errors);
                    self.check_devices(request, &object, &old, &mut errors);
                }
            }
            _ => {}
        }
        if errors.is_empty() {
            return Ok(());
        }
        Err(Status::invalid(&info.group_kind(), object.name(), &errors))
    }

    /// Checks that the user may read all objects of a policy's new `paramKind`.
    fn check_param_kind(
        &self,
        request: &WriteRequest<'_>,
        object: &Object,
        old: Option<&Object>,
        errors: &mut FieldErrors,
    ) {
        let policy = Cursor::root(object);
        let kind = policy.at("spec.paramKind");
        let is_same = |old: &Object| policy.same(&Cursor::root(old), "spec.paramKind");
        if !kind.is_set("") || old.is_some_and(is_same) {
            return;
        }
        let (api_version, name) = (kind.text("apiVersion"), kind.text("kind"));
        let resource = self.resource_of(api_version, name);
        let get = Attributes {
            verb: "get",
            group: group_of(api_version),
            resource: resource.as_deref().unwrap_or("*"),
            name: "*",
            namespace: "*",
            ..Attributes::default()
        };
        if !self.is_allowed(request.user, &get) {
            let why = format!(
                "user {} must have \"get\" permission on all objects of the referenced paramKind (kind={name}, \
                 apiVersion={api_version})",
                shown(request.user)
            );
            errors.forbidden(kind, why);
        }
    }

    /// Checks that the user may read the objects of a binding's `paramRef`. In Go, references are compared by the
    /// pointers to their fields, so that only a reference without such fields is ever equal to the old one.
    fn check_param_ref(
        &self,
        request: &WriteRequest<'_>,
        object: &Object,
        old: Option<&Object>,
        errors: &mut FieldErrors,
    ) {
        let binding = Cursor::root(object);
        let reference = binding.at("spec.paramRef");
        let has_pointer = reference.is_set("selector") || reference.is_set("parameterNotFoundAction");
        let is_same = |old: &Object| {
            let old = Cursor::root(old);
            !has_pointer && binding.same(&old, "spec.paramRef") && binding.same(&old, "spec.policyName")
        };
        if !reference.is_set("") || old.is_some_and(is_same) {
            return;
        }
        let policies = request.row.info.resource.replace("policybindings", "policies");
        let policy_name = binding.text("spec.policyName");
        let policies = self.reader.known_objects(POLICY_GROUP, &policies);
        let policy = policies.iter().find(|it| it.name() == policy_name);
        let policy = policy.map(|it| Cursor::root(it));
        let kind = policy.as_ref().and_then(|it| it.present("spec.paramKind"));
        let (api_version, name) = kind.map_or(("", ""), |it| (it.text("apiVersion"), it.text("kind")));
        let resource = self.resource_of(api_version, name);
        let verb = if reference.text("name").is_empty() {
            "list"
        } else {
            "get"
        };
        let read = Attributes {
            verb,
            group: if name.is_empty() { "*" } else { group_of(api_version) },
            resource: resource.as_deref().unwrap_or("*"),
            name: reference.text("name"),
            namespace: reference.text("namespace"),
            ..Attributes::default()
        };
        if self.is_allowed(request.user, &read) {
            return;
        }
        let user = shown(request.user);
        let lacks_all = |what: String| {
            format!(
                "{what} to determine minimum required permissions and user {user} does not have \"{verb}\" permission \
                 for all groups, versions and resources"
            )
        };
        let why = if policy.is_none() {
            lacks_all(format!("unable to get policy {policy_name}"))
        } else if !name.is_empty() && resource.is_none() {
            lacks_all(format!("unable to resolve paramKind &{{{api_version} {name}}}"))
        } else {
            // As in kube-apiserver, the error of a MutatingAdmissionPolicyBinding has the verb in place of the user.
            let is_mutating = request.row.info.resource == "mutatingadmissionpolicybindings";
            let (user, verb) = if is_mutating {
                (verb, user.as_str())
            } else {
                (user.as_str(), verb)
            };
            format!("user {user} does not have \"{verb}\" permission on the object referenced by paramRef")
        };
        errors.forbidden(reference, why);
    }

    /// Returns the resource of a kind.
    fn resource_of(&self, api_version: &str, kind: &str) -> Option<String> {
        let row = self.reader.scheme().lookup_kind(api_version, kind)?;
        Some(row.info.resource.to_string())
    }

    /// Checks that the user may allocate a claim (`AuthorizedForBinding`).
    fn check_allocation(
        &self,
        request: &WriteRequest<'_>,
        claim: &Cursor<'_>,
        old: &Cursor<'_>,
        errors: &mut FieldErrors,
    ) {
        if claim.same(old, "status.allocation") && claim.same(old, "status.reservedFor") {
            return;
        }
        let bind = Attributes {
            subresource: "binding",
            namespace: "",
            name: "",
            ..request.info.attributes()
        };
        if let Err(refusal) = self.authorize(request.user, &bind) {
            let why = format!(
                "changing status.allocation or status.reservedFor requires resource=\"resourceclaims/binding\", \
                 verb=\"{}\" permission: {}",
                bind.verb, refusal.message
            );
            errors.forbidden(claim.at("status.allocation"), why);
        }
    }

    /// Checks that the user may write device statuses for the drivers whose statuses change
    /// (`AuthorizedForDeviceStatus`).
    fn check_devices(
        &self,
        request: &WriteRequest<'_>,
        claim: &Cursor<'_>,
        old: &Cursor<'_>,
        errors: &mut FieldErrors,
    ) {
        if !claim.is_set("status.allocation") {
            return;
        }
        let attributes = request.info.attributes();
        let mut verbs = vec![format!("arbitrary-node:{}", attributes.verb)];
        if is_on_node(request.user, node_of(claim)) {
            verbs.insert(0, format!("associated-node:{}", attributes.verb));
        }
        for driver in changed_drivers(claim, old) {
            let checks = verbs.iter().map(|verb| {
                let write = Attributes {
                    verb,
                    subresource: "driver",
                    name: driver,
                    ..attributes
                };
                self.authorize(request.user, &write)
            });
            let refusals: Result<Vec<Status>, ()> = checks.map(|it| it.err().ok_or(())).collect();
            if let Some(first) = refusals.ok().and_then(|it| it.into_iter().next()) {
                let why = format!(
                    "changing status.devices requires resource=\"resourceclaims/driver\", verb=\"[{}]\" permission: {}",
                    verbs.join(" "),
                    first.message
                );
                errors.forbidden(FieldPath::new("status.devices"), why);
            }
        }
    }
}

fn group_of(api_version: &str) -> &str {
    api_version.split_once('/').map_or("", |(group, _)| group)
}

/// Formats a user like a pointer to Go's `user.DefaultInfo`.
fn shown(user: &UserInfo) -> String {
    let extra = user.extra.iter();
    let extra: Vec<String> = extra
        .map(|(key, values)| format!("{key}:[{}]", values.join(" ")))
        .collect();
    format!(
        "&{{{} {} [{}] map[{}]}}",
        user.name,
        user.uid,
        user.groups.join(" "),
        extra.join(" ")
    )
}

/// Returns the drivers whose device statuses were added, removed or changed (`getModifiedDrivers`).
fn changed_drivers<'a>(claim: &Cursor<'a>, old: &Cursor<'a>) -> BTreeSet<&'a str> {
    let devices = |claim: &Cursor<'a>| -> BTreeMap<[&'a str; 4], &'a Value> {
        let devices = claim.list("status.devices").iter();
        let text = |device: &'a Value, field| device.get(field).and_then(Value::as_str).unwrap_or_default();
        let key = |it: &'a Value| ["driver", "pool", "device", "shareID"].map(|field| text(it, field));
        devices.map(|it| (key(it), it)).collect()
    };
    let (new, old) = (devices(claim), devices(old));
    let changed = new.iter().filter(|(key, device)| old.get(*key) != Some(device));
    let removed = old.iter().filter(|(key, _)| !new.contains_key(*key));
    changed.chain(removed).map(|(key, _)| key[0]).collect()
}

/// Returns the Node of an allocation with a node selector that consists only of the Node's name.
fn node_of<'a>(claim: &Cursor<'a>) -> Option<&'a str> {
    let [term] = claim.list("status.allocation.nodeSelector.nodeSelectorTerms") else {
        return None;
    };
    let term = Cursor::document(term);
    let [field] = term.list("matchFields") else {
        return None;
    };
    let field = Cursor::document(field);
    let is_name = (field.text("key"), field.text("operator")) == ("metadata.name", "In");
    match field.list("values") {
        [name] if is_name && term.is_empty("matchExpressions") => name.as_str(),
        _ => None,
    }
}

/// Returns `true` if the user is the ServiceAccount of a Pod on the Node.
fn is_on_node(user: &UserInfo, node: Option<&str>) -> bool {
    let own = user.extra.get(NODE_NAME).map(Vec::as_slice);
    user.as_service_account().is_some() && matches!((node, own), (Some(node), Some([own])) if node == own)
}
