//! Owner references, which cause objects to be deleted together with their owners.
//!
//! ```
//! use informer::runtime::owner_references;
//! use k8s_openapi::api::apps::v1::ReplicaSet;
//! use k8s_openapi::api::core::v1::Pod;
//! use kube::Resource;
//!
//! let mut set = ReplicaSet::default();
//! (set.meta_mut().name, set.meta_mut().uid) = (Some("web".into()), Some("1234".into()));
//! let mut pod = Pod::default();
//! owner_references::set_controller(&mut pod, &set)?;
//! assert!(owner_references::is_controlled_by(&pod, &set));
//! # Ok::<(), informer::Error>(())
//! ```

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::Resource;

use crate::{Error, ObjectKey};

/// Makes `owner` the controller of `object`: adds an owner reference with `controller` and `blockOwnerDeletion`
/// (controller-runtime's `SetControllerReference`).
///
/// # Errors
///
/// Fails if a different object is the controller, if the name or the uid of the owner is missing, if the owner is in a
/// different namespace, or if the owner is namespaced and the object has a name but no namespace.
pub fn set_controller<K, O>(object: &mut K, owner: &O) -> Result<(), Error>
where
    K: Resource,
    O: Resource<DynamicType = ()>,
{
    let mut reference = reference_to(object, owner)?;
    if let Some(other) = controller_of(object).filter(|it| !is_same(it, &reference)) {
        let (object, kind, name) = (ObjectKey::of(object), &other.kind, &other.name);
        return Err(Error::refused(format!(
            "object {object} is already owned by another {kind} controller {name}"
        )));
    }
    reference.controller = Some(true);
    reference.block_owner_deletion = Some(true);
    upsert(object, reference);
    Ok(())
}

/// Adds an owner reference to `owner` (controller-runtime's `SetOwnerReference`).
///
/// # Errors
///
/// Fails in the same cases as [`set_controller`], except if a different object is the controller.
pub fn set_owner<K, O>(object: &mut K, owner: &O) -> Result<(), Error>
where
    K: Resource,
    O: Resource<DynamicType = ()>,
{
    let reference = reference_to(object, owner)?;
    upsert(object, reference);
    Ok(())
}

/// Removes the owner reference to `owner`.
///
/// # Errors
///
/// Fails if `owner` is not an owner of `object`, or cannot be one (see [`set_owner`]).
pub fn remove_owner<K, O>(object: &mut K, owner: &O) -> Result<(), Error>
where
    K: Resource,
    O: Resource<DynamicType = ()>,
{
    let reference = reference_to(object, owner)?;
    let key = ObjectKey::of(object);
    let references = object.meta_mut().owner_references.get_or_insert_default();
    let before = references.len();
    references.retain(|it| !is_same(it, &reference));
    if references.len() == before {
        return Err(Error::refused(format!(
            "{key} does not have an owner reference for {}",
            reference.name
        )));
    }
    Ok(())
}

/// Returns `true` if `object` has an owner reference to `owner`, compared by group, kind and name.
pub fn has_owner<K, O>(object: &K, owner: &O) -> bool
where
    K: Resource,
    O: Resource<DynamicType = ()>,
{
    reference_to(object, owner).is_ok_and(|reference| all(object).iter().any(|it| is_same(it, &reference)))
}

/// Returns the owner reference to the controller of `object`.
pub fn controller_of(object: &impl Resource) -> Option<&OwnerReference> {
    all(object).iter().find(|it| it.controller == Some(true))
}

/// Returns `true` if `owner` is the controller of `object`, compared by uid.
pub fn is_controlled_by(object: &impl Resource, owner: &impl Resource) -> bool {
    let uid = owner.meta().uid.as_deref();
    uid.is_some() && controller_of(object).map(|it| it.uid.as_str()) == uid
}

fn all(object: &impl Resource) -> &[OwnerReference] {
    object.meta().owner_references.as_deref().unwrap_or_default()
}

fn reference_to<K, O>(object: &K, owner: &O) -> Result<OwnerReference, Error>
where
    K: Resource,
    O: Resource<DynamicType = ()>,
{
    let (key, owner_key) = (ObjectKey::of(object), ObjectKey::of(owner));
    let refused = |why: &str| {
        Err(Error::refused(format!(
            "owner reference from {key} to {owner_key}: {why}"
        )))
    };
    if let Some(namespace) = owner_key.namespace() {
        match key.namespace() {
            Some(own) if own == namespace => {}
            // If the object has neither a namespace nor a name yet, it will be created in the owner's namespace.
            None if object.meta().name.is_none() => {}
            None => return refused("cluster-scoped resource must not have a namespace-scoped owner"),
            Some(_) => return refused("cross-namespace owner references are disallowed"),
        }
    }
    match (&owner.meta().name, &owner.meta().uid) {
        (Some(name), Some(uid)) => Ok(OwnerReference {
            api_version: O::api_version(&()).into_owned(),
            kind: O::kind(&()).into_owned(),
            name: name.clone(),
            uid: uid.clone(),
            ..OwnerReference::default()
        }),
        _ => refused("the owner has no name or no uid, because it was never stored"),
    }
}

fn upsert(object: &mut impl Resource, reference: OwnerReference) {
    let references = object.meta_mut().owner_references.get_or_insert_default();
    match references.iter_mut().find(|it| is_same(it, &reference)) {
        Some(place) => *place = reference,
        None => references.push(reference),
    }
}

/// Returns `true` if both references refer to the same object, compared by group, kind and name.
fn is_same(one: &OwnerReference, other: &OwnerReference) -> bool {
    let group = |it: &OwnerReference| it.api_version.rsplit_once('/').map(|(group, _)| group.to_owned());
    group(one) == group(other) && one.kind == other.kind && one.name == other.name
}
