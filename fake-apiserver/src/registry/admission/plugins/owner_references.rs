//! `OwnerReferencesPermissionEnforcement`, which is off by default: to change the owners of an object, a user needs the
//! permission to delete the object. To let the object block the deletion of an owner, the user needs the permission to
//! update the finalizers of this owner.

use std::collections::BTreeMap;

use crate::api::admission::Operation;
use crate::api::field::quote;
use crate::api::json::{Map, Value};
use crate::api::object::Object;
use crate::api::rbac;
use crate::registry::admission::Admission;
use crate::registry::admission::attributes::Attributes;
use crate::registry::types::cursor::Cursor;

const OWNERS: &str = "metadata.ownerReferences";

/// Permission to update the finalizers of all objects. With it, permissions for single owners are not required.
const ALL_FINALIZERS: rbac::Attributes<'static> = rbac::Attributes {
    verb: "update",
    group: "*",
    resource: "*",
    subresource: "finalizers",
    namespace: "",
    name: "*",
    path: "",
};

/// Checks the permissions for the new owners of an object.
pub(super) fn check(admission: &Admission, attributes: &Attributes<'_>, object: &Object) -> Result<(), String> {
    let old = attributes.old.as_ref();
    let is_write = matches!(attributes.operation, Operation::Create | Operation::Update);
    // The status of a Pod never changes its owners.
    let is_exempt = attributes.is_about("", "pods") && attributes.subresource == "status";
    if !is_write || is_exempt || owners(object) == old.map_or(&[] as &[Value], owners) {
        return Ok(());
    }
    if attributes.operation == Operation::Update {
        let info = &attributes.row.info;
        let delete = rbac::Attributes {
            verb: "delete",
            group: &info.group,
            resource: &info.resource,
            subresource: attributes.subresource,
            namespace: &attributes.namespace,
            name: &attributes.name,
            path: "",
        };
        let what = "cannot set an ownerRef on a resource you can't delete";
        require(admission, attributes, &delete, what)?;
    }
    let blocked = newly_blocked(object, old);
    if blocked.is_empty() || admission.authorization.is_allowed(attributes.user, &ALL_FINALIZERS) {
        return Ok(());
    }
    blocked
        .into_iter()
        .try_for_each(|owner| check_owner(admission, attributes, owner))
}

fn owners(object: &Object) -> &[Value] {
    Cursor::root(object).list(OWNERS)
}

/// Returns the owners with `blockOwnerDeletion`, except for owners that already had it before the update.
fn newly_blocked<'a>(object: &'a Object, old: Option<&Object>) -> Vec<&'a Map> {
    let blocks = |owner: &Map| Cursor::root(owner).flag("blockOwnerDeletion") == Some(true);
    let before = old.into_iter().flat_map(|it| Cursor::root(it).maps(OWNERS));
    // If several owners have the same uid, the last one counts.
    let before: BTreeMap<&str, bool> = before.map(|it| (Cursor::root(it).text("uid"), blocks(it))).collect();
    let has_blocked = |owner: &Map| before.get(Cursor::root(owner).text("uid")) == Some(&true);
    let owners = Cursor::root(object).maps(OWNERS);
    owners.filter(|it| blocks(it) && !has_blocked(it)).collect()
}

/// Checks the permission to update the finalizers of an owner.
fn check_owner(admission: &Admission, attributes: &Attributes<'_>, owner: &Map) -> Result<(), String> {
    let owner = Cursor::root(owner);
    let (api_version, kind) = (owner.text("apiVersion"), owner.text("kind"));
    let Some(row) = admission.reader.scheme().lookup_kind(api_version, kind) else {
        return Err(format!(
            "cannot set blockOwnerDeletion in this case because cannot find RESTMapping for APIVersion {api_version} \
             Kind {kind}: no matches for kind {} in version {}",
            quote(kind),
            quote(api_version)
        ));
    };
    let update = rbac::Attributes {
        verb: "update",
        group: &row.info.group,
        resource: &row.info.resource,
        subresource: "finalizers",
        namespace: match row.info.is_namespaced() {
            true => attributes.namespace.as_str(),
            false => "",
        },
        name: owner.text("name"),
        path: "",
    };
    let what = "cannot set blockOwnerDeletion if an ownerReference refers to a resource you can't set finalizers on";
    require(admission, attributes, &update, what)
}

/// Returns an error that begins with `what` if the user lacks a permission. It contains the reason, followed by the
/// `<nil>` of Go for an absent error.
fn require(
    admission: &Admission,
    attributes: &Attributes<'_>,
    permission: &rbac::Attributes<'_>,
    what: &str,
) -> Result<(), String> {
    let decision = admission.authorization.decide(attributes.user, permission);
    match decision.is_allowed {
        true => Ok(()),
        false => Err(format!("{what}: {}, <nil>", decision.reason)),
    }
}
