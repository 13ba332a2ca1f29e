//! `create_or_update`: makes an object as it should be.

use std::fmt;

use kube::Resource;
use kube::api::{Api, PostParams};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::{Error, ObjectKey};

/// Result of the operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OperationResult {
    /// Nothing: it is as it should be.
    Unchanged,
    /// There was none.
    Created,
    /// It was another.
    Updated,
    /// It was another, and so was its status.
    UpdatedStatus,
    /// Its status was another.
    UpdatedStatusOnly,
}

/// Reads the object of `initial`'s name; creates it as `change` makes it of `initial` if there is none, else writes it
/// as `change` makes it of what is there, if that differs (controller-runtime's `CreateOrUpdate`).
///
/// `change` should set those fields only that matter to it: all others stay as the server and others set them.
///
/// ```
/// use informer::Error;
/// use informer::runtime::{OperationResult, create_or_update};
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use kube::{Api, Resource};
///
/// # async fn ensure(maps: Api<ConfigMap>) -> Result<(), Error> {
/// let mut map = ConfigMap::default();
/// map.meta_mut().name = Some("settings".into());
/// let (map, result) = create_or_update(&maps, map, |map| {
///     map.data.get_or_insert_default().insert("color".into(), "red".into());
///     Ok(())
/// })
/// .await?;
/// println!("{:?}: {result:?}", map.metadata.resource_version);
/// # Ok(())
/// # }
/// ```
///
/// # Errors
///
/// If `initial` has no name, `change` fails or changes name or namespace, or a request fails: a conflict among them, if
/// somebody else wrote meanwhile.
pub async fn create_or_update<K>(
    api: &Api<K>,
    mut initial: K,
    change: impl FnOnce(&mut K) -> Result<(), Error>,
) -> Result<(K, OperationResult), Error>
where
    K: Resource + Clone + DeserializeOwned + Serialize + fmt::Debug,
{
    let key = ObjectKey::of(&initial);
    if key.name().is_empty() {
        return Err(Error::refused("create or update: the object has no name"));
    }
    let Some(found) = api.get_opt(key.name()).await? else {
        change(&mut initial)?;
        is_same_object(&key, &ObjectKey::of(&initial))?;
        let created = api.create(&PostParams::default(), &initial).await?;
        return Ok((created, OperationResult::Created));
    };
    let mut wanted = found.clone();
    change(&mut wanted)?;
    is_same_object(&ObjectKey::of(&found), &ObjectKey::of(&wanted))?;
    let json = |object: &K| serde_json::to_value(object).map_err(|err| Error::decode(key.to_string(), err));
    if json(&found)? == json(&wanted)? {
        return Ok((found, OperationResult::Unchanged));
    }
    let updated = api.replace(key.name(), &PostParams::default(), &wanted).await?;
    Ok((updated, OperationResult::Updated))
}

fn is_same_object(before: &ObjectKey, after: &ObjectKey) -> Result<(), Error> {
    if before == after {
        return Ok(());
    }
    Err(Error::refused(format!(
        "create or update: the change may not make {before} {after}"
    )))
}
