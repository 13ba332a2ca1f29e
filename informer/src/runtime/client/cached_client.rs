//! `CachedClient`: the client of a manager.

use std::any::TypeId;
use std::borrow::Borrow;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use kube::api::{DeleteParams, Patch};
use kube::core::{ApiResource, DynamicObject, PartialObjectMeta};
use kube::{Client, Resource};
use serde::Serialize;
use tokio_util::sync::CancellationToken;

use super::kind_client::{KindClient, Kinds, Subresource};
use super::list::{DeleteAllOf, List};
use super::unseen::Unseen;
use super::write::WriteOptions;
use crate::cache::SharedInformerFactory;
use crate::runtime::controller_builder::CACHE_SYNC_TIMEOUT;
use crate::{Cacheable, Error, ObjectKey};

/// Reads from caches and writes to the server (controller-runtime's `client.Client`). Copies are the same client;
/// [`Manager::cached_client`](crate::runtime::Manager::cached_client) makes one.
///
/// The first read of a type starts its informer and waits until that has synced, at most two minutes. A read never
/// answers with a state from before a write of this client, or of a copy of it: it waits for the cache to see the
/// write, at most 30 s, and then fails. For each type it remembers the last 4,096 writes that the cache has not seen.
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
pub struct CachedClient {
    pub(super) shared: Arc<Shared>,
    pub(super) reader: Reader,
    pub(super) options: WriteOptions,
    /// Types that are read from the server.
    pub(super) uncached: Arc<[TypeId]>,
}

pub(super) struct Shared {
    pub(super) client: Client,
    pub(super) factory: SharedInformerFactory,
    /// Cancelled when informers may start.
    started: CancellationToken,
    pub(super) unseen: Unseen,
    pub(super) cache_sync_timeout: Duration,
}

/// Target of reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reader {
    /// To the cache; its informer is started.
    Cache,
    /// To the cache, if its informer is started.
    StartedCache,
    Server,
}

impl CachedClient {
    /// A client that reads from the informers of a factory, and starts them. Its own writes are seen by the
    /// reconciles that make them if `client` is [observed](crate::reconcile::Writes).
    pub fn new(client: Client, factory: &SharedInformerFactory) -> Self {
        let started = CancellationToken::new();
        started.cancel();
        Self::of_manager(client, factory, started)
    }

    pub(in crate::runtime) fn of_manager(
        client: Client,
        factory: &SharedInformerFactory,
        started: CancellationToken,
    ) -> Self {
        Self {
            shared: Arc::new(Shared {
                client,
                factory: factory.clone(),
                started,
                unseen: Unseen::default(),
                cache_sync_timeout: CACHE_SYNC_TIMEOUT,
            }),
            reader: Reader::Cache,
            options: WriteOptions::default(),
            uncached: Arc::default(),
        }
    }

    /// The same client, which refuses to read a type of which no informer was started (`ReaderFailOnMissingInformer`).
    #[must_use]
    pub fn fail_on_missing_informer(mut self) -> Self {
        self.reader = Reader::StartedCache;
        self
    }

    /// The same client, which reads everything from the server (controller-runtime's `GetAPIReader`).
    #[must_use]
    pub fn live(mut self) -> Self {
        self.reader = Reader::Server;
        self
    }

    /// The same client, which reads this type from the server (`CacheOptions.DisableFor`).
    #[must_use]
    pub fn without_cache_for<K: 'static>(mut self) -> Self {
        self.uncached = self.uncached.iter().copied().chain([TypeId::of::<K>()]).collect();
        self
    }

    /// The same client, whose writes are checked and not stored (`NewDryRunClient`).
    #[must_use]
    pub fn dry_run(mut self) -> Self {
        self.options.is_dry_run = true;
        self
    }

    /// The same client, whose writes are those of this field manager (`WithFieldOwner`).
    #[must_use]
    pub fn field_owner(mut self, owner: &str) -> Self {
        self.options.field_owner = Some(owner.into());
        self
    }

    /// The same client, whose [`apply`](Self::apply) takes fields over that others own (`ForceOwnership`).
    #[must_use]
    pub fn force_ownership(mut self) -> Self {
        self.options.is_forced = true;
        self
    }

    /// The client of one type, known when the program is compiled.
    pub fn kind<K>(&self) -> KindClient<K>
    where
        K: Cacheable + Resource<DynamicType = ()>,
        K::Scope: 'static,
    {
        KindClient::new(self, Kinds::of_type())
    }

    /// The client of a type with namespaces that is known by its names.
    pub fn dynamic(&self, resource: &ApiResource) -> KindClient<DynamicObject> {
        KindClient::new(self, Kinds::dynamic(resource, false))
    }

    /// The same of a type without namespaces.
    pub fn dynamic_of_cluster(&self, resource: &ApiResource) -> KindClient<DynamicObject> {
        KindClient::new(self, Kinds::dynamic(resource, true))
    }

    /// The client of a type of which only the metadata is kept: reads, patches and deletions.
    pub fn metadata<K>(&self) -> KindClient<PartialObjectMeta<K>>
    where
        K: Resource<DynamicType = ()> + Send + Sync + 'static,
        K::Scope: 'static,
    {
        KindClient::new(self, Kinds::metadata())
    }

    /// The object of this key; `None` if there is none.
    ///
    /// # Errors
    ///
    /// If the cache cannot be read (see [`CachedClient`]), or the object is not of its type.
    pub async fn get<K>(&self, key: &ObjectKey) -> Result<Option<Arc<K>>, Error>
    where
        K: Cacheable + Resource<DynamicType = ()>,
        K::Scope: 'static,
    {
        self.kind().get(key).await
    }

    /// Builds a [`List`] of objects of a type: all, or those selected by its options.
    pub fn list<K>(&self) -> List<K>
    where
        K: Cacheable + Resource<DynamicType = ()>,
        K::Scope: 'static,
    {
        self.kind().list()
    }

    /// Creates an object; answers with what the server made of it.
    ///
    /// # Errors
    ///
    /// If the request fails, or the object has no namespace where its type has.
    pub async fn create<K>(&self, object: &K) -> Result<K, Error>
    where
        K: Cacheable + Resource<DynamicType = ()> + Serialize,
        K::Scope: 'static,
    {
        self.kind().create(object).await
    }

    /// Replaces an object. With its `resourceVersion` that fails with a conflict if it was written since it was read.
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

    /// Patches what differs between two states of an object (`client.MergeFrom`), if it is still at the version of
    /// `before` where that has one; without a request if nothing differs.
    ///
    /// # Errors
    ///
    /// As [`create`](Self::create), with a conflict if the object was written since `before` was read.
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
    /// As [`create`](Self::create), if the client has no field owner, and with a conflict if another owns a field and
    /// the client does not [force](Self::force_ownership) its own.
    pub async fn apply<K>(&self, object: &K) -> Result<K, Error>
    where
        K: Cacheable + Resource<DynamicType = ()> + Serialize,
        K::Scope: 'static,
    {
        self.kind().apply(object).await
    }

    /// Deletes an object; with finalizers or a grace period it stays for a while.
    ///
    /// # Errors
    ///
    /// If the request fails: with [`Error::is_not_found`] if there is no such object.
    pub async fn delete<K>(&self, key: &ObjectKey) -> Result<(), Error>
    where
        K: Cacheable + Resource<DynamicType = ()>,
        K::Scope: 'static,
    {
        self.kind::<K>().delete(key).await
    }

    /// The same with preconditions, a grace period or a propagation policy.
    ///
    /// # Errors
    ///
    /// As [`delete`](Self::delete), with a conflict if a precondition does not hold.
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

    /// The client behind, for requests that this one has not.
    pub fn client(&self) -> Client {
        self.shared.client.clone()
    }

    /// Returns the reader of this type: the cache or the server.
    pub(super) fn reader_of<K: 'static>(&self) -> Reader {
        if self.uncached.contains(&TypeId::of::<K>()) {
            Reader::Server
        } else {
            self.reader
        }
    }

    /// # Errors
    ///
    /// If the manager does not run yet.
    pub(super) fn check_started(&self) -> Result<(), Error> {
        if self.shared.started.is_cancelled() {
            return Ok(());
        }
        Err(Error::refused(
            "the cache is not started: the client reads from it once the manager runs",
        ))
    }
}

impl fmt::Debug for CachedClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CachedClient")
            .field("reader", &self.reader)
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}
