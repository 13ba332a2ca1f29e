//! `update_status`: says in an object's status how it is.

use kube::{Client, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::OperationResult;
use super::merge_patch::{difference, json, send};
use crate::{Error, ObjectKey};

/// Changes the status of an object as `change` says, by one patch of what differs, and without a request where nothing
/// does. What `change` does to anything but the status is not written.
///
/// `object` is the object as it was read: if it has been written since, the answer is a conflict, and a reconcile that
/// ends with it is called again when the newer object is there.
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
/// If the request fails, with a conflict among others.
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
    Ok(OperationResult::Updated)
}
