//! `CachedClient`: the client of a manager.

use std::borrow::Borrow;
use std::fmt;
use std::sync::Arc;

use kube::api::{DeleteParams, Patch, ValidationDirective};
use kube::core::{ApiResource, DynamicObject, PartialObjectMeta};
use kube::{Client, Resource};
use serde::Serialize;
use tokio_util::sync::CancellationToken;

use super::backend::{Backend, Reader};
use super::kind_client::{KindClient, Kinds, Subresource};
use super::list::{DeleteAllOf, ListRequest};
use crate::cache::SharedInformerFactory;
use crate::reconcile::Writes;
use crate::{Cacheable, Error, ObjectKey};

/// Reads from caches and writes to the server (controller-runtime's `client.Client`). Clones are the same client;
/// [`Manager::cached_client`](crate::runtime::Manager::cached_client) returns one.
///
/// The first read of a type starts its informer and waits until it has synced, at most two minutes. A read never
/// returns a state from before a write of this client or a clone of it: it waits until the cache has received the
/// write, at most 30 s, and then fails. For each type, at most 4,096 writes that the cache has not received are
/// recorded.
///
/// ```
/// use informer::reconcile::{Action, ReconcileError, Request};
/// use informer::runtime::Manager;
/// use k8s_openapi::api::core::v1::{ConfigMap, Secret};
///
/// fn add(manager: &Manager) -> Result<(), informer::Error> {
///     let client = manager.cached_client();
///     manager.controller("copier").for_::<ConfigMap>().complete(move |request: Request| {
///         let client = client.clone();
///         async move {
///             let Some(map) = client.get::<ConfigMap>(&request.key).await? else {
///                 return Ok(Action::await_change());
///             };
///             if client.get::<Secret>(&request.key).await?.is_none() {
///                 let mut copy = Secret { string_data: map.data.clone(), ..Secret::default() };
///                 copy.metadata.name = map.metadata.name.clone();
///                 copy.metadata.namespace = map.metadata.namespace.clone();
///                 client.create(&copy).await?;
///             }
///             Ok::<_, ReconcileError>(Action::await_change())
///         }
///     })
/// }
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> Result<(), informer::Error> {
/// # use testkit::{TestCluster, objects::config_map};
/// let cluster = TestCluster::builder().object(config_map("settings")).start();
/// let manager = Manager::new(cluster.client());
/// add(&manager)?;
/// cluster.run(async move { manager.run(std::future::pending()).await });
/// cluster.settle().await;
/// assert!(cluster.exists::<Secret>("settings"));
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct CachedClient(Backend);

impl CachedClient {
    /// Creates a client that reads from the informers of a factory, and starts them. Its writes are
    /// [observed](crate::reconcile::Writes), so that its reads wait for them.
    pub fn new(client: Client, factory: &SharedInformerFactory) -> Self {
        Self::of_observed(Writes::new().observe(&client), factory)
    }

    /// Creates a client like `new`, from a client that is already observed.
    pub(in crate::runtime) fn of_observed(client: Client, factory: &SharedInformerFactory) -> Self {
        let started = CancellationToken::new();
        started.cancel();
        Self::of_manager(client, factory, started)
    }

    pub(in crate::runtime) fn of_manager(
        client: Client,
        factory: &SharedInformerFactory,
        started: CancellationToken,
    ) -> Self {
        Self(Backend::new(client, factory, started))
    }

    /// Returns the same client, but it refuses to read a type without a started informer
    /// (`ReaderFailOnMissingInformer`).
    #[must_use]
    pub fn fail_on_missing_informer(mut self) -> Self {
        self.0.reader = Reader::StartedCache;
        self
    }

    /// Returns the same client, but it reads everything from the server (controller-runtime's `GetAPIReader`).
    #[must_use]
    pub fn live(mut self) -> Self {
        self.0.reader = Reader::Server;
        self
    }

    /// Returns the same client, but it reads this type from the server (`CacheOptions.DisableFor`).
    #[must_use]
    pub fn without_cache_for<K: 'static>(mut self) -> Self {
        self.0.read_from_server::<K>();
        self
    }

    /// Returns the same client, but its writes are only checked and not stored (`NewDryRunClient`).
    #[must_use]
    pub fn dry_run(mut self) -> Self {
        self.0.options.is_dry_run = true;
        self
    }

    /// Returns the same client with this field manager (`WithFieldOwner`).
    #[must_use]
    pub fn field_owner(mut self, owner: &str) -> Self {
        self.0.options.field_owner = Some(owner.into());
        self
    }

    /// Returns the same client, but [`apply`](Self::apply) takes over fields of other managers (`ForceOwnership`).
    #[must_use]
    pub fn force_ownership(mut self) -> Self {
        self.0.options.is_forced = true;
        self
    }

    /// Returns the same client with this treatment of unknown and duplicate fields (`WithFieldValidation`): `Strict`
    /// refuses them, `Warn` drops them with a warning, `Ignore` drops them. Default: the server's, which is `Warn`.
    #[must_use]
    pub fn field_validation(mut self, directive: ValidationDirective) -> Self {
        self.0.options.field_validation = Some(directive);
        self
    }

    /// Returns the client of a Rust type.
    pub fn kind<K>(&self) -> KindClient<K>
    where
        K: Cacheable + Resource<DynamicType = ()>,
        K::Scope: 'static,
    {
        KindClient::new(&self.0, Kinds::of_type())
    }

    /// Returns the client of a namespaced type given by its names.
    pub fn dynamic(&self, resource: &ApiResource) -> KindClient<DynamicObject> {
        KindClient::new(&self.0, Kinds::dynamic(resource, false))
    }

    /// Returns the client of a cluster-scoped type given by its names.
    pub fn dynamic_of_cluster(&self, resource: &ApiResource) -> KindClient<DynamicObject> {
        KindClient::new(&self.0, Kinds::dynamic(resource, true))
    }

    /// Returns a client that only handles the metadata of a type: reads, patches and deletions.
    pub fn metadata<K>(&self) -> KindClient<PartialObjectMeta<K>>
    where
        K: Resource<DynamicType = ()> + Send + Sync + 'static,
        K::Scope: 'static,
    {
        KindClient::new(&self.0, Kinds::metadata())
    }

    /// Returns the object with this key; `None` if it does not exist.
    ///
    /// # Errors
    ///
    /// If the cache cannot be read (see [`CachedClient`]), does not include the namespace, if the key has a namespace
    /// and the type is cluster-scoped or the reverse, or if the object does not match its type.
    pub async fn get<K>(&self, key: &ObjectKey) -> Result<Option<Arc<K>>, Error>
    where
        K: Cacheable + Resource<DynamicType = ()>,
        K::Scope: 'static,
    {
        self.kind().get(key).await
    }

    /// Builds a [`ListRequest`] of objects of a type: all, or those selected by its options.
    pub fn list<K>(&self) -> ListRequest<K>
    where
        K: Cacheable + Resource<DynamicType = ()>,
        K::Scope: 'static,
    {
        self.kind().list()
    }

    /// Creates an object; returns the object that the server stored.
    ///
    /// # Errors
    ///
    /// If the request fails, or if the object of a namespaced type does not have a namespace.
    pub async fn create<K>(&self, object: &K) -> Result<K, Error>
    where
        K: Cacheable + Resource<DynamicType = ()> + Serialize,
        K::Scope: 'static,
    {
        self.kind().create(object).await
    }

    /// Replaces an object. If it has a `resourceVersion`, this fails with a conflict if the object was written since it
    /// was read.
    ///
    /// # Errors
    ///
    /// As [`create`](Self::create).
    pub async fn update<K>(&self, object: &K) -> Result<K, Error>
    where
        K: Cacheable + Resource<DynamicType = ()> + Serialize,
        K::Scope: 'static,
    {
        self.kind().update(object).await
    }

    /// Patches an object.
    ///
    /// # Errors
    ///
    /// As [`create`](Self::create).
    pub async fn patch<K>(&self, key: &ObjectKey, patch: &Patch<impl Serialize + fmt::Debug>) -> Result<K, Error>
    where
        K: Cacheable + Resource<DynamicType = ()>,
        K::Scope: 'static,
    {
        self.kind().patch(key, patch).await
    }

    /// Patches the differences between two states of an object (`client.MergeFrom`), on the condition that it is still
    /// at the version of `before` (unless that is empty). Makes no request if the two are equal.
    ///
    /// # Errors
    ///
    /// See [`create`](Self::create). A conflict if the object was written since `before` was read.
    pub async fn patch_from<K>(&self, before: &impl Borrow<K>, after: &K) -> Result<K, Error>
    where
        K: Cacheable + Resource<DynamicType = ()> + Serialize + Clone,
        K::Scope: 'static,
    {
        self.kind().patch_from(before, after).await
    }

    /// Applies an object (server-side apply) as the [field owner](Self::field_owner) of this client.
    ///
    /// # Errors
    ///
    /// See [`create`](Self::create). Also fails if the client has no field owner, and with a conflict if another
    /// manager owns a field and the client does not [force](Self::force_ownership) its own.
    pub async fn apply<K>(&self, object: &K) -> Result<K, Error>
    where
        K: Cacheable + Resource<DynamicType = ()> + Serialize,
        K::Scope: 'static,
    {
        self.kind().apply(object).await
    }

    /// Deletes an object. With finalizers or a grace period it remains for a while.
    ///
    /// # Errors
    ///
    /// If the request fails: with [`Error::is_not_found`] if the object does not exist.
    pub async fn delete<K>(&self, key: &ObjectKey) -> Result<(), Error>
    where
        K: Cacheable + Resource<DynamicType = ()>,
        K::Scope: 'static,
    {
        self.kind::<K>().delete(key).await
    }

    /// Deletes an object with preconditions, a grace period or a propagation policy.
    ///
    /// # Errors
    ///
    /// See [`delete`](Self::delete). A conflict if a precondition does not hold.
    pub async fn delete_with<K>(&self, key: &ObjectKey, params: &DeleteParams) -> Result<(), Error>
    where
        K: Cacheable + Resource<DynamicType = ()>,
        K::Scope: 'static,
    {
        self.kind::<K>().delete_with(key, params).await
    }

    /// Builds a [`DeleteAllOf`], which deletes the selected objects by one request.
    pub fn delete_all_of<K>(&self) -> DeleteAllOf<K>
    where
        K: Cacheable + Resource<DynamicType = ()>,
        K::Scope: 'static,
    {
        self.kind().delete_all_of()
    }

    /// Writes the status of objects of a type.
    pub fn status<K>(&self) -> Subresource<K>
    where
        K: Cacheable + Resource<DynamicType = ()>,
        K::Scope: 'static,
    {
        self.kind().status()
    }

    /// Returns the underlying client, for requests that this one does not support.
    pub fn client(&self) -> Client {
        self.0.shared.client.clone()
    }
}

impl fmt::Debug for CachedClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CachedClient")
            .field("reader", &self.0.reader)
            .field("options", &self.0.options)
            .finish_non_exhaustive()
    }
}
