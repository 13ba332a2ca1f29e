//! `update_status`: patches the status of an object.

use kube::{Client, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::OperationResult;
use super::merge_patch::{difference, json, send};
use crate::{Error, ObjectKey};

/// Changes the status of an object with `change`, and sends the differences as a patch. Returns
/// [`OperationResult::UpdatedStatusOnly`] if the status was changed. If there are no differences, does not send a
/// request. Changes outside of the status are ignored.
///
/// `object` must be the object as it was read. If the object was changed since then, the patch fails with a conflict. A
/// reconcile that returns this error is retried.
///
/// ```
/// use informer::runtime::update_status;
/// use k8s_openapi::api::core::v1::Pod;
///
/// # async fn ready(client: &kube::Client, pod: &Pod) -> Result<(), informer::Error> {
/// update_status(client, pod, |pod| {
///     pod.status.get_or_insert_default().message = Some("it is well".into());
/// })
/// .await?;
/// # Ok(())
/// # }
/// ```
///
/// # Errors
///
/// Fails if the request fails, for example with a conflict.
pub async fn update_status<K>(
    client: &Client,
    object: &K,
    change: impl FnOnce(&mut K),
) -> Result<OperationResult, Error>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Serialize,
{
    let key = ObjectKey::of(object);
    let mut wanted = object.clone();
    change(&mut wanted);
    let status = |of: &K| Ok::<_, Error>(json(&key, of)?["status"].take());
    let Some(patch) = difference(&status(object)?, &status(&wanted)?) else {
        return Ok(OperationResult::Unchanged);
    };
    let version = object.meta().resource_version.as_deref();
    let patch = serde_json::json!({"status": patch});
    send::<K>(client, &key, Some("status"), patch, version).await?;
    Ok(OperationResult::UpdatedStatusOnly)
}
