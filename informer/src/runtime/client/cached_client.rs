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

/// Reads from caches and writes to the server (controller-runtime's `client.Client`). Returned by
/// [`Manager::cached_client`](crate::runtime::Manager::cached_client). Clones share caches and tracked writes.
///
/// The first read of a type starts its informer and waits up to two minutes for it to sync. Reads include all earlier
/// writes of this client and its clones: a read waits until the cache has received them, and fails after 30 s. The
/// writes of at most 4,096 objects per type are tracked.
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
    /// Creates a client that reads from the informers of a factory and starts them if necessary. Its writes are
    /// [observed](crate::reconcile::Writes), so that its reads can wait for them.
    pub fn new(client: Client, factory: &SharedInformerFactory) -> Self {
        Self::of_observed(Writes::new().observe(&client), factory)
    }

    /// Same as [`new`](Self::new), for a client that is already observed.
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

    /// Returns a client that fails to read a type if its informer has not been started (controller-runtime's
    /// `ReaderFailOnMissingInformer`).
    #[must_use]
    pub fn fail_on_missing_informer(mut self) -> Self {
        self.0.reader = Reader::StartedCache;
        self
    }

    /// Returns a client that reads everything from the server (controller-runtime's `GetAPIReader`).
    #[must_use]
    pub fn live(mut self) -> Self {
        self.0.reader = Reader::Server;
        self
    }

    /// Returns a client that reads type `K` from the server (controller-runtime's `CacheOptions.DisableFor`).
    #[must_use]
    pub fn without_cache_for<K: 'static>(mut self) -> Self {
        self.0.read_from_server::<K>();
        self
    }

    /// Returns a client that sends all writes as dry runs (controller-runtime's `NewDryRunClient`).
    #[must_use]
    pub fn dry_run(mut self) -> Self {
        self.0.options.is_dry_run = true;
        self
    }

    /// Returns a client that writes with this field manager (controller-runtime's `WithFieldOwner`).
    #[must_use]
    pub fn field_owner(mut self, owner: &str) -> Self {
        self.0.options.field_owner = Some(owner.into());
        self
    }

    /// Returns a client that takes over fields from other field managers in [`apply`](Self::apply)
    /// (controller-runtime's `ForceOwnership`).
    #[must_use]
    pub fn force_ownership(mut self) -> Self {
        self.0.options.is_forced = true;
        self
    }

    /// Returns a client that sets how the server handles unknown and duplicate fields (controller-runtime's
    /// `WithFieldValidation`): `Strict` refuses them, `Warn` drops them with a warning, `Ignore` drops them. Default:
    /// the server's default, which is `Warn`.
    #[must_use]
    pub fn field_validation(mut self, directive: ValidationDirective) -> Self {
        self.0.options.field_validation = Some(directive);
        self
    }

    /// Returns a client for type `K`.
    pub fn kind<K>(&self) -> KindClient<K>
    where
        K: Cacheable + Resource<DynamicType = ()>,
        K::Scope: 'static,
    {
        KindClient::new(&self.0, Kinds::of_type())
    }

    /// Returns a client for a namespaced resource without a Rust type.
    pub fn dynamic(&self, resource: &ApiResource) -> KindClient<DynamicObject> {
        KindClient::new(&self.0, Kinds::dynamic(resource, false))
    }

    /// Returns a client for a cluster-scoped resource without a Rust type.
    pub fn dynamic_of_cluster(&self, resource: &ApiResource) -> KindClient<DynamicObject> {
        KindClient::new(&self.0, Kinds::dynamic(resource, true))
    }

    /// Returns a client that only handles the metadata of a type. It supports reads, patches and deletions.
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
    /// Fails if the cache cannot be read (see [`CachedClient`]) or does not include the namespace, if the key has a
    /// namespace although the type is cluster-scoped or vice versa, if the object does not match its type, or if a read
    /// from the server fails.
    pub async fn get<K>(&self, key: &ObjectKey) -> Result<Option<Arc<K>>, Error>
    where
        K: Cacheable + Resource<DynamicType = ()>,
        K::Scope: 'static,
    {
        self.kind().get(key).await
    }

    /// Starts building a [`ListRequest`] for objects of a type. Without further options, it lists all objects.
    pub fn list<K>(&self) -> ListRequest<K>
    where
        K: Cacheable + Resource<DynamicType = ()>,
        K::Scope: 'static,
    {
        self.kind().list()
    }

    /// Creates an object. Returns the object as stored by the server.
    ///
    /// # Errors
    ///
    /// Fails if the request fails, or if the object has no namespace although its type is namespaced, or vice versa.
    pub async fn create<K>(&self, object: &K) -> Result<K, Error>
    where
        K: Cacheable + Resource<DynamicType = ()> + Serialize,
        K::Scope: 'static,
    {
        self.kind().create(object).await
    }

    /// Replaces an object. If `object` has a `resourceVersion` and the stored object has changed since then, fails with
    /// a conflict.
    ///
    /// # Errors
    ///
    /// See [`create`](Self::create).
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
    /// See [`create`](Self::create).
    pub async fn patch<K>(&self, key: &ObjectKey, patch: &Patch<impl Serialize + fmt::Debug>) -> Result<K, Error>
    where
        K: Cacheable + Resource<DynamicType = ()>,
        K::Scope: 'static,
    {
        self.kind().patch(key, patch).await
    }

    /// Sends the differences between two states of an object as a merge patch (controller-runtime's
    /// `client.MergeFrom`). If `before` has a `resourceVersion`, the patch requires that the object is still at this
    /// version. If there are no differences, does not send a request.
    ///
    /// # Errors
    ///
    /// See [`create`](Self::create). Fails with a conflict if the object was changed since `before` was read.
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
    /// See [`create`](Self::create). Also fails if the client does not have a field owner, and with a conflict if
    /// another field manager owns a field and [`force_ownership`](Self::force_ownership) is not set.
    pub async fn apply<K>(&self, object: &K) -> Result<K, Error>
    where
        K: Cacheable + Resource<DynamicType = ()> + Serialize,
        K::Scope: 'static,
    {
        self.kind().apply(object).await
    }

    /// Deletes an object. If it has finalizers or a grace period, it still exists for some time.
    ///
    /// # Errors
    ///
    /// Fails if the request fails. If the object does not exist, [`Error::is_not_found`] returns `true` for the error.
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
    /// See [`delete`](Self::delete). Fails with a conflict if a precondition is not met.
    pub async fn delete_with<K>(&self, key: &ObjectKey, params: &DeleteParams) -> Result<(), Error>
    where
        K: Cacheable + Resource<DynamicType = ()>,
        K::Scope: 'static,
    {
        self.kind::<K>().delete_with(key, params).await
    }

    /// Starts building a [`DeleteAllOf`], which deletes the selected objects with a single request.
    pub fn delete_all_of<K>(&self) -> DeleteAllOf<K>
    where
        K: Cacheable + Resource<DynamicType = ()>,
        K::Scope: 'static,
    {
        self.kind().delete_all_of()
    }

    /// Returns a writer for the status of objects of a type.
    pub fn status<K>(&self) -> Subresource<K>
    where
        K: Cacheable + Resource<DynamicType = ()>,
        K::Scope: 'static,
    {
        self.kind().status()
    }

    /// Returns the underlying kube client, for requests that this client does not support.
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
