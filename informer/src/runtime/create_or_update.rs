//! `create_or_update`: creates an object, or updates it to its desired state.

use std::fmt;

use kube::Resource;
use kube::api::{Api, PostParams};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::{Error, ObjectKey};

/// Result of [`create_or_update`], [`create_or_patch`](super::create_or_patch()) or
/// [`update_status`](super::update_status()).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OperationResult {
    /// The object was already in the desired state.
    Unchanged,
    /// The object did not exist and was created.
    Created,
    /// The object was changed. If [`create_or_patch`](super::create_or_patch()) returns this, its status was not
    /// changed.
    Updated,
    /// The object and its status were changed.
    UpdatedStatus,
    /// Only the status was changed.
    UpdatedStatusOnly,
}

/// Brings an object into its desired state (controller-runtime's `CreateOrUpdate`). If no object with the name of
/// `initial` exists, applies `change` to `initial` and creates it. Otherwise applies `change` to the existing object,
/// and updates it if it has changed.
///
/// `change` should only set fields that the caller is responsible for. All other fields keep the values that the server
/// and other clients have set.
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
/// Fails if the name of `initial` is missing, `change` fails or changes name or namespace, or a request fails, for
/// example with a conflict because another client has changed the object in the meantime.
pub async fn create_or_update<K>(
    api: &Api<K>,
    mut initial: K,
    change: impl FnOnce(&mut K) -> Result<(), Error>,
) -> Result<(K, OperationResult), Error>
where
    K: Resource + Clone + DeserializeOwned + Serialize + fmt::Debug,
{
    let kept = Kept::of("create or update", &initial)?;
    let key = &kept.key;
    let Some(found) = api.get_opt(key.name()).await? else {
        change(&mut initial)?;
        kept.check(&initial)?;
        let created = api.create(&PostParams::default(), &initial).await?;
        return Ok((created, OperationResult::Created));
    };
    let mut wanted = found.clone();
    change(&mut wanted)?;
    Kept::of(kept.what, &found)?.check(&wanted)?;
    let json = |object: &K| serde_json::to_value(object).map_err(|err| Error::decode(key.to_string(), err));
    if json(&found)? == json(&wanted)? {
        return Ok((found, OperationResult::Unchanged));
    }
    let updated = api.replace(key.name(), &PostParams::default(), &wanted).await?;
    Ok((updated, OperationResult::Updated))
}

/// The original key of an object, which a change must not modify.
pub(super) struct Kept {
    /// Name of the operation, for errors.
    pub(super) what: &'static str,
    pub(super) key: ObjectKey,
}

impl Kept {
    pub(super) fn of(what: &'static str, object: &impl Resource) -> Result<Self, Error> {
        let key = ObjectKey::of(object);
        if key.name().is_empty() {
            return Err(Error::refused(format!("{what}: the object has no name")));
        }
        Ok(Self { what, key })
    }

    pub(super) fn check(&self, changed: &impl Resource) -> Result<(), Error> {
        let (what, before, after) = (self.what, &self.key, ObjectKey::of(changed));
        if *before == after {
            return Ok(());
        }
        Err(Error::refused(format!(
            "{what}: the change must keep the object's identity: was {before}, is {after}"
        )))
    }
}
