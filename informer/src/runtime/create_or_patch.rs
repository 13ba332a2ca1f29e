//! `create_or_patch`: creates an object, or patches the fields that differ from the desired state.

use std::fmt;

use kube::Resource;
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::create_or_update::{Kept, OperationResult};
use super::merge_patch::{difference, json};
use crate::{Error, ObjectKey};

/// Brings an object into its desired state (controller-runtime's `CreateOrPatch`). If no object with the name of
/// `initial` exists, applies `change` to `initial` and creates it; if the server ignores the status in the create,
/// patches the status afterwards. Otherwise applies `change` to the existing object and sends the differences as
/// patches: first a patch of the object, then a patch of its status.
///
/// Patches only contain changed fields and no resource version, so they do not cause conflicts.
///
/// ```
/// use informer::runtime::{OperationResult, create_or_patch};
/// use k8s_openapi::api::core::v1::Pod;
/// use kube::Api;
/// use testkit::{TestCluster, objects::pod};
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> Result<(), informer::Error> {
/// let cluster = TestCluster::builder().object(pod("web")).start();
/// let mut web = Pod::default();
/// web.metadata.name = Some("web".into());
/// let (web, result) = create_or_patch(&Api::default_namespaced(cluster.client()), web, |pod| {
///     pod.status.get_or_insert_default().message = Some("it is well".into());
///     Ok(())
/// })
/// .await?;
/// assert_eq!(result, OperationResult::UpdatedStatusOnly);
/// let status = web.status.unwrap_or_default();
/// assert_eq!(status.message.as_deref(), Some("it is well"));
/// # Ok(())
/// # }
/// ```
///
/// # Errors
///
/// Fails if the name of `initial` is missing, `change` fails or changes name or namespace, or a request fails.
pub async fn create_or_patch<K>(
    api: &Api<K>,
    mut initial: K,
    change: impl FnOnce(&mut K) -> Result<(), Error>,
) -> Result<(K, OperationResult), Error>
where
    K: Resource + Clone + DeserializeOwned + Serialize + fmt::Debug,
{
    let kept = Kept::of("create or patch", &initial)?;
    let key = &kept.key;
    let Some(found) = api.get_opt(key.name()).await? else {
        change(&mut initial)?;
        kept.check(&initial)?;
        let status = status_of(&mut json(key, &initial)?);
        let created = api.create(&PostParams::default(), &initial).await?;
        // If the type has a status subresource, the server ignores the status in a create, so it is written separately.
        let has_written = status.is_null() || status_of(&mut json(key, &created)?) == status;
        if has_written {
            return Ok((created, OperationResult::Created));
        }
        let created = patch_status(api, key, &status).await?;
        return Ok((created, OperationResult::Created));
    };
    let mut wanted = found.clone();
    change(&mut wanted)?;
    Kept::of(kept.what, &found)?.check(&wanted)?;
    let (mut before, mut after) = (json(key, &found)?, json(key, &wanted)?);
    let status = difference(&status_of(&mut before), &status_of(&mut after));
    let rest = difference(&before, &after);
    let mut object = found;
    if let Some(patch) = &rest {
        object = api
            .patch(key.name(), &PatchParams::default(), &Patch::Merge(patch))
            .await?;
    }
    if let Some(status) = &status {
        object = patch_status(api, key, status).await?;
    }
    let result = match (rest.is_some(), status.is_some()) {
        (false, false) => OperationResult::Unchanged,
        (true, false) => OperationResult::Updated,
        (true, true) => OperationResult::UpdatedStatus,
        (false, true) => OperationResult::UpdatedStatusOnly,
    };
    Ok((object, result))
}

async fn patch_status<K>(api: &Api<K>, key: &ObjectKey, status: &Value) -> Result<K, Error>
where
    K: Clone + DeserializeOwned + fmt::Debug,
{
    let patch = Patch::Merge(json!({ "status": status }));
    Ok(api.patch_status(key.name(), &PatchParams::default(), &patch).await?)
}

/// Removes and returns the status of an object.
fn status_of(object: &mut Value) -> Value {
    let status = object.as_object_mut().and_then(|it| it.remove("status"));
    status.unwrap_or_default()
}
