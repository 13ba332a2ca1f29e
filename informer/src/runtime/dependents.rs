//! `Dependents`: creates owned objects and keeps them in their desired state.

use std::fmt;
use std::sync::Arc;

use kube::api::PostParams;
use kube::core::Request;
use kube::{Client, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::merge_patch::{difference, json, send};
use super::owner_references;
use crate::cache::Lister;
use crate::{Cacheable, Error, ObjectKey};

/// The dependent objects of one type, read from a cache and written by a client. Returned by
/// [`Manager::dependents`](super::Manager::dependents). A controller that uses it should
/// [own](super::ControllerBuilder::owns) the type, so that it is notified of changes.
///
/// ```
/// use informer::runtime::{Dependents, Manager};
/// use k8s_openapi::api::apps::v1::ReplicaSet;
/// use k8s_openapi::api::core::v1::ConfigMap;
///
/// # async fn reconcile(maps: &Dependents<ConfigMap>, set: &ReplicaSet) -> Result<(), informer::Error> {
/// // let maps = manager.dependents::<ConfigMap>();
/// let map = maps
///     .ensure(set, "settings", |map| {
///         map.data.get_or_insert_default().insert("color".into(), "red".into());
///     })
///     .await?;
/// println!("{:?}", map.metadata.resource_version);
/// # Ok(())
/// # }
/// ```
pub struct Dependents<K> {
    client: Client,
    lister: Lister<K>,
}

impl<K> Dependents<K>
where
    K: Cacheable + Resource<DynamicType = ()>,
{
    /// Creates a handle to the dependent objects in `lister`. The client should be
    /// [observed](crate::reconcile::Writes), so that the next reconcile reads the writes of the current reconcile.
    pub fn new(client: Client, lister: Lister<K>) -> Self {
        Self { client, lister }
    }

    /// Creates or patches the object with this name in the owner's namespace, so that it has the state that `change`
    /// sets and `owner` is its controller. Returns the resulting object. Does not send a request if the object already
    /// has this state.
    ///
    /// `change` receives the existing object or an empty one, and should only set fields that the caller is responsible
    /// for. Only differences are patched, so fields that are unknown to this program, or that a transform removed from
    /// the cache, are kept. Write-only fields such as `stringData` of Secrets always differ, so set the corresponding
    /// stored field (`data`) instead.
    ///
    /// # Errors
    ///
    /// Fails if the object has a different controller, `change` changes its name or namespace, the name or uid of the
    /// owner is missing, or a request fails. If the cache was outdated, the request fails, for example with a conflict
    /// or because the object already exists; the reconcile is then retried.
    pub async fn ensure<O>(&self, owner: &O, name: &str, change: impl FnOnce(&mut K)) -> Result<Arc<K>, Error>
    where
        O: Resource<DynamicType = ()>,
        K: Clone + Default + Serialize + DeserializeOwned,
    {
        let key = match ObjectKey::of(owner).namespace() {
            Some(namespace) => ObjectKey::new(namespace, name),
            None => ObjectKey::cluster(name),
        };
        self.ensure_at(owner, &key, change).await
    }

    /// Same as [`ensure`](Self::ensure), for an object in any namespace or a cluster-scoped object. If it is not in the
    /// owner's namespace, the owner must be cluster-scoped.
    ///
    /// # Errors
    ///
    /// See [`ensure`](Self::ensure). Also fails if the owner is in a different namespace.
    pub async fn ensure_at<O>(&self, owner: &O, key: &ObjectKey, change: impl FnOnce(&mut K)) -> Result<Arc<K>, Error>
    where
        O: Resource<DynamicType = ()>,
        K: Clone + Default + Serialize + DeserializeOwned,
    {
        let found = self.get(key)?;
        let mut wanted = match &found {
            Some(found) => K::clone(found),
            None => {
                let mut empty = K::default();
                empty.meta_mut().name = Some(key.name().to_owned());
                empty.meta_mut().namespace = key.namespace().map(str::to_owned);
                empty
            }
        };
        change(&mut wanted);
        if ObjectKey::of(&wanted) != *key {
            let other = ObjectKey::of(&wanted);
            return Err(Error::refused(format!(
                "ensure: the change must keep the object's identity: was {key}, is {other}"
            )));
        }
        owner_references::set_controller(&mut wanted, owner)?;
        let Some(found) = found else {
            return self.create(key, &wanted).await.map(Arc::new);
        };
        match difference(&json(key, &*found)?, &json(key, &wanted)?) {
            None => Ok(found),
            Some(patch) => {
                let version = found.meta().resource_version.as_deref();
                send(&self.client, key, None, patch, version).await.map(Arc::new)
            }
        }
    }

    /// Returns the object with this key from the cache.
    ///
    /// # Errors
    ///
    /// Fails if the cached object does not match type `K`.
    pub fn get(&self, key: &ObjectKey) -> Result<Option<Arc<K>>, Error> {
        self.lister.get(key).map(|it| it.typed()).transpose()
    }

    async fn create(&self, key: &ObjectKey, wanted: &K) -> Result<K, Error>
    where
        K: Serialize + DeserializeOwned,
    {
        let body = serde_json::to_vec(wanted).map_err(|err| Error::decode(key.to_string(), err))?;
        let request = Request::new(K::url_path(&(), key.namespace()))
            .create(&PostParams::default(), body)
            .map_err(kube::Error::BuildRequest)?;
        Ok(self.client.request(request).await?)
    }
}

impl<K> Clone for Dependents<K> {
    fn clone(&self) -> Self {
        Self {
            client: self.client.clone(),
            lister: self.lister.clone(),
        }
    }
}

impl<K> fmt::Debug for Dependents<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Dependents").field(&self.lister).finish()
    }
}
