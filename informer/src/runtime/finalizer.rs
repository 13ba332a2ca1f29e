//! Finalizers, which keep deleted objects until their external resources have been cleaned up.

use std::fmt;
use std::sync::Arc;

use kube::api::{Api, Patch, PatchParams};
use kube::{Resource, ResourceExt};
use serde::de::DeserializeOwned;
use serde_json::json;

use crate::Error;
use crate::reconcile::{Action, ReconcileError};

/// Stage of an object's deletion, for [`finalize`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Deletion<K> {
    /// The object is not being deleted, and has the finalizer.
    No(Arc<K>),
    /// The object is being deleted. The finalizer is removed once the cleanup has succeeded.
    Pending(Arc<K>),
}

/// Reconciles an object that requires cleanup when it is deleted (controller-runtime's `pkg/finalizer`).
///
/// If the object is not being deleted, adds the finalizer if necessary, and calls `work` with [`Deletion::No`]. If the
/// object is being deleted and has the finalizer, calls `work` with [`Deletion::Pending`], and removes the finalizer if
/// `work` succeeds. Ignores objects that are being deleted and do not have the finalizer.
///
/// ```
/// use std::sync::Arc;
/// use informer::reconcile::{Action, ReconcileError};
/// use informer::runtime::{Deletion, finalize};
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use kube::Api;
///
/// # async fn reconcile(maps: Api<ConfigMap>, map: Arc<ConfigMap>) -> Result<Action, ReconcileError> {
/// finalize(&maps, "example.com/bucket", map, async |map| match map {
///     Deletion::No(_map) => Ok(Action::await_change()),      // make the bucket
///     Deletion::Pending(_map) => Ok(Action::await_change()), // remove the bucket
/// })
/// .await
/// # }
/// ```
///
/// # Errors
///
/// Fails if `work` or a request fails. A conflict means that `object` was outdated; its next event triggers another
/// reconcile.
pub async fn finalize<K>(
    api: &Api<K>,
    name: &str,
    object: Arc<K>,
    work: impl AsyncFnOnce(Deletion<K>) -> Result<Action, ReconcileError>,
) -> Result<Action, ReconcileError>
where
    K: Resource + Clone + DeserializeOwned + fmt::Debug,
{
    let is_deleted = object.meta().deletion_timestamp.is_some();
    match (is_deleted, has_finalizer(&*object, name)) {
        (false, true) => work(Deletion::No(object)).await,
        (false, false) => {
            let object = add_finalizer(api, name, &*object).await?;
            work(Deletion::No(Arc::new(object))).await
        }
        (true, true) => {
            let action = work(Deletion::Pending(Arc::clone(&object))).await?;
            remove_finalizer(api, name, &*object).await?;
            Ok(action)
        }
        (true, false) => Ok(Action::await_change()),
    }
}

/// Returns `true` if the object has this finalizer.
pub fn has_finalizer(object: &impl Resource, name: &str) -> bool {
    object.finalizers().iter().any(|it| it == name)
}

/// Adds a finalizer if the object has not changed since it was read. Returns the new state of the object. If the object
/// already has the finalizer, does not send a request.
///
/// # Errors
///
/// Fails if the request fails, for example with a conflict.
pub async fn add_finalizer<K>(api: &Api<K>, name: &str, object: &K) -> Result<K, Error>
where
    K: Resource + Clone + DeserializeOwned + fmt::Debug,
{
    if has_finalizer(object, name) {
        return Ok(object.clone());
    }
    let mut finalizers = object.finalizers().to_vec();
    finalizers.push(name.to_owned());
    write(api, object, &finalizers).await
}

/// Removes a finalizer if the object has not changed since it was read. If the object does not have the finalizer, does
/// not send a request. Succeeds if the object no longer exists.
///
/// # Errors
///
/// Fails if the request fails, for example with a conflict.
pub async fn remove_finalizer<K>(api: &Api<K>, name: &str, object: &K) -> Result<(), Error>
where
    K: Resource + Clone + DeserializeOwned + fmt::Debug,
{
    if !has_finalizer(object, name) {
        return Ok(());
    }
    let mut finalizers = object.finalizers().to_vec();
    finalizers.retain(|it| it != name);
    match write(api, object, &finalizers).await {
        Ok(_) => Ok(()),
        Err(err) if err.is_not_found() => Ok(()),
        Err(err) => Err(err),
    }
}

/// Writes all finalizers with a merge patch. The patch replaces the whole list, so it requires that the object has not
/// changed since it was read.
async fn write<K>(api: &Api<K>, object: &K, finalizers: &[String]) -> Result<K, Error>
where
    K: Resource + Clone + DeserializeOwned + fmt::Debug,
{
    let patch = json!({"metadata": {"finalizers": finalizers, "resourceVersion": object.resource_version()}});
    Ok(api
        .patch(&object.name_any(), &PatchParams::default(), &Patch::Merge(patch))
        .await?)
}
