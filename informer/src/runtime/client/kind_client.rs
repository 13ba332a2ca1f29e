//! `KindClient`: the client of one type.

use std::any::TypeId;
use std::borrow::Borrow;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use kube::Resource;
use kube::api::{DeleteParams, Patch};
use kube::core::{ApiResource, ClusterResourceScope, DynamicObject, PartialObjectMeta};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::time::{Instant, timeout};

use super::backend::{Backend, Reader};
use super::write_options::Part;
use crate::cache::{SharedInformer, SharedInformerFactory, late_caches};
use crate::object::Cacheable;
use crate::reconcile::{Asked, Write};
use crate::runtime::merge_patch::difference;
use crate::{CachedObject, Error, ObjectKey};

/// Maximum time for which a read waits for the cache to receive writes of the client.
const PATIENCE: Duration = Duration::from_secs(30);

/// Interval at which a waiting read queries the unknown outcomes of writes again.
const ASK_AGAIN: Duration = Duration::from_secs(1);

/// Time after which a waiting read compares the versions of the writes with the version of the server.
const COMPARE_AFTER: Duration = Duration::from_secs(5);

/// Reads and writes the objects of one type, with the methods of [`CachedClient`](super::CachedClient). Returned by
/// [`kind`](super::CachedClient::kind), [`dynamic`](super::CachedClient::dynamic) and
/// [`metadata`](super::CachedClient::metadata).
///
/// ```
/// use informer::ObjectKey;
/// use informer::runtime::CachedClient;
/// use kube::core::{ApiResource, GroupVersionKind};
///
/// # async fn read(client: CachedClient) -> Result<(), informer::Error> {
/// let widgets = client.dynamic(&ApiResource::from_gvk(&GroupVersionKind::gvk("example.com", "v1", "Widget")));
/// if let Some(widget) = widgets.get(&ObjectKey::new("shop", "gear")).await? {
///     println!("{}", widget.data["spec"]["size"]);
/// }
/// # Ok(())
/// # }
/// ```
pub struct KindClient<K> {
    pub(super) client: Backend,
    pub(super) kinds: Kinds<K>,
}

type Find<K> = Arc<dyn Fn(&SharedInformerFactory) -> SharedInformer<K> + Send + Sync>;
type Path = Arc<dyn Fn(Option<&str>) -> String + Send + Sync>;

/// The names of a type in messages and requests, and a function that finds its informer.
pub(super) struct Kinds<K> {
    find: Find<K>,
    path: Path,
    /// Plural for messages, such as `configmaps`.
    pub(super) plural: Arc<str>,
    /// Group and plural under which writes are recorded, such as `apps/deployments`.
    resource: Arc<str>,
    pub(super) is_of_cluster: bool,
    pub(super) is_metadata: bool,
}

impl<K> Kinds<K> {
    /// Takes the names and URL paths from the resource `R`. `find` returns the informer of `K`.
    fn named<R>(
        resource: R::DynamicType,
        find: impl Fn(&SharedInformerFactory) -> SharedInformer<K> + Send + Sync + 'static,
    ) -> Self
    where
        R: Resource<DynamicType: Send + Sync + 'static>,
    {
        let plural = R::plural(&resource);
        Self {
            find: Arc::new(find),
            resource: format!("{}/{plural}", R::group(&resource)).into(),
            plural: plural.as_ref().into(),
            path: Arc::new(move |namespace| R::url_path(&resource, namespace)),
            is_of_cluster: false,
            is_metadata: false,
        }
    }

    pub(super) fn path(&self, namespace: Option<&str>) -> String {
        (self.path)(namespace)
    }
}

impl<K: Cacheable + Resource<DynamicType = ()>> Kinds<K>
where
    K::Scope: 'static,
{
    pub(super) fn of_type() -> Self {
        Self {
            is_of_cluster: TypeId::of::<K::Scope>() == TypeId::of::<ClusterResourceScope>(),
            ..Self::named::<K>((), SharedInformerFactory::informer::<K>)
        }
    }
}

impl Kinds<DynamicObject> {
    pub(super) fn dynamic(resource: &ApiResource, is_of_cluster: bool) -> Self {
        let named = resource.clone();
        let find = move |factory: &SharedInformerFactory| {
            if is_of_cluster {
                factory.dynamic_of_cluster(&named)
            } else {
                factory.dynamic(&named)
            }
        };
        Self {
            is_of_cluster,
            ..Self::named::<DynamicObject>(resource.clone(), find)
        }
    }
}

impl<K> Kinds<PartialObjectMeta<K>>
where
    K: Resource<DynamicType = ()> + Send + Sync + 'static,
    K::Scope: 'static,
{
    pub(super) fn metadata() -> Self {
        Self {
            is_of_cluster: TypeId::of::<K::Scope>() == TypeId::of::<ClusterResourceScope>(),
            is_metadata: true,
            ..Self::named::<K>((), SharedInformerFactory::metadata::<K>)
        }
    }
}

impl<K: Cacheable> KindClient<K> {
    pub(super) fn new(client: &Backend, kinds: Kinds<K>) -> Self {
        Self {
            client: client.clone(),
            kinds,
        }
    }

    /// Returns the object with this key; see [`CachedClient::get`](super::CachedClient::get).
    ///
    /// # Errors
    ///
    /// See [`CachedClient::get`](super::CachedClient::get).
    pub async fn get(&self, key: &ObjectKey) -> Result<Option<Arc<K>>, Error> {
        let object = self.get_object(key).await?;
        object.map(|it| it.typed()).transpose()
    }

    /// Returns the object with this key without decoding it.
    ///
    /// # Errors
    ///
    /// See [`CachedClient::get`](super::CachedClient::get).
    pub async fn get_object(&self, key: &ObjectKey) -> Result<Option<CachedObject<K>>, Error> {
        self.check_namespace("get", key)?;
        if self.is_live() {
            return self.get_live(key).await;
        }
        let informer = self.informer(key.namespace(), Some(key)).await?;
        Ok(informer.cache().get(key))
    }

    /// Creates an object; see [`CachedClient::create`](super::CachedClient::create).
    ///
    /// # Errors
    ///
    /// See [`CachedClient::create`](super::CachedClient::create).
    pub async fn create(&self, object: &K) -> Result<K, Error>
    where
        K: Serialize,
    {
        self.post(object).await
    }

    /// Replaces an object; see [`CachedClient::update`](super::CachedClient::update).
    ///
    /// # Errors
    ///
    /// See [`CachedClient::update`](super::CachedClient::update).
    pub async fn update(&self, object: &K) -> Result<K, Error>
    where
        K: Serialize,
    {
        self.replace(object, Part::Whole).await
    }

    /// Patches an object; see [`CachedClient::patch`](super::CachedClient::patch).
    ///
    /// # Errors
    ///
    /// See [`CachedClient::patch`](super::CachedClient::patch).
    pub async fn patch(&self, key: &ObjectKey, patch: &Patch<impl Serialize + fmt::Debug>) -> Result<K, Error> {
        self.send_patch(key, Part::Whole, &self.client.options.patch(), patch)
            .await
    }

    /// Sends the differences between two states of an object as a patch; see
    /// [`CachedClient::patch_from`](super::CachedClient::patch_from).
    ///
    /// # Errors
    ///
    /// See [`CachedClient::patch_from`](super::CachedClient::patch_from).
    pub async fn patch_from(&self, before: &impl Borrow<K>, after: &K) -> Result<K, Error>
    where
        K: Serialize + Clone,
    {
        self.patch_difference(before.borrow(), after, Part::Whole).await
    }

    /// Applies an object; see [`CachedClient::apply`](super::CachedClient::apply).
    ///
    /// # Errors
    ///
    /// See [`CachedClient::apply`](super::CachedClient::apply).
    pub async fn apply(&self, object: &K) -> Result<K, Error>
    where
        K: Serialize,
    {
        self.send_apply(object, Part::Whole).await
    }

    /// Deletes an object; see [`CachedClient::delete`](super::CachedClient::delete).
    ///
    /// # Errors
    ///
    /// See [`CachedClient::delete`](super::CachedClient::delete).
    pub async fn delete(&self, key: &ObjectKey) -> Result<(), Error> {
        self.remove(key, &DeleteParams::default()).await
    }

    /// Deletes an object with options; see [`CachedClient::delete_with`](super::CachedClient::delete_with).
    ///
    /// # Errors
    ///
    /// See [`CachedClient::delete_with`](super::CachedClient::delete_with).
    pub async fn delete_with(&self, key: &ObjectKey, params: &DeleteParams) -> Result<(), Error> {
        self.remove(key, params).await
    }

    /// Returns a writer for the status of objects.
    pub fn status(&self) -> Subresource<K> {
        self.subresource("status")
    }

    /// Returns a writer for a subresource of objects, such as `status`, `scale` or `eviction`.
    pub fn subresource(&self, name: &str) -> Subresource<K> {
        Subresource {
            kind: self.clone(),
            name: name.to_owned(),
        }
    }

    /// Returns `true` if reads are sent to the server.
    pub(super) fn is_live(&self) -> bool {
        self.client.reader_of::<K>() == Reader::Server
    }

    /// Returns the informer once its cache has synced and contains this client's writes to the object with this key, or
    /// to all objects if `key` is `None`. Fails if the cache does not include the namespace.
    pub(super) async fn informer(
        &self,
        namespace: Option<&str>,
        key: Option<&ObjectKey>,
    ) -> Result<SharedInformer<K>, Error> {
        self.client.check_started()?;
        let (shared, path) = (&self.client.shared, self.kinds.path(None));
        let informer = match (shared.factory.started::<K>(&path), self.client.reader) {
            (Some(informer), _) => informer,
            (None, Reader::StartedCache) => {
                return Err(Error::refused(format!(
                    "{path} is not cached: its informer was not started, and this client does not start informers"
                )));
            }
            (None, Reader::Cache | Reader::Server) => {
                let informer = (self.kinds.find)(&shared.factory);
                shared.factory.start();
                informer
            }
        };
        if let Some(namespace) = namespace.filter(|it| !informer.covers(it)) {
            return Err(Error::refused(format!(
                "{path}: the namespace {namespace:?} is not in the cache, which is limited to some namespaces"
            )));
        }
        let limit = shared.cache_sync_timeout;
        timeout(limit, informer.synced())
            .await
            .map_err(|_| late_caches(limit, &[(path.as_str(), informer.reason())]))??;
        self.own_writes_seen(&informer, key).await?;
        Ok(informer)
    }

    async fn own_writes_seen(&self, informer: &SharedInformer<K>, key: Option<&ObjectKey>) -> Result<(), Error> {
        let shared = &self.client.shared;
        let caches = || shared.factory.caches_of(&self.kinds.resource);
        let first = || shared.unseen.first(&self.kinds.resource, key, informer, caches);
        if first().is_none() {
            return Ok(());
        }
        let (cache, began) = (informer.cache(), Instant::now());
        let seen = async {
            let mut is_compared = false;
            loop {
                self.client.shared.unseen.learn(&self.kinds.resource, key).await;
                // If the server did not respond, or if another outcome becomes unknown in the meantime, query again.
                let received = cache.until(|| first().is_none());
                if timeout(ASK_AGAIN, received).await.is_ok() {
                    return;
                }
                if !is_compared && began.elapsed() >= COMPARE_AFTER {
                    is_compared = self.question_lost_writes(first()).await;
                }
            }
        };
        timeout(PATIENCE, seen).await.map_err(|_| {
            let what = first().map_or_else(String::new, |write| format!(" to {}", write.key));
            Error::gated(format!(
                "the cache of {} has not received the last write of this client{what} within {PATIENCE:?}",
                informer.name()
            ))
        })
    }

    /// Compares the recorded writes with the version of the server. If the first list of a cache is from a server that
    /// was restored from a backup, the cache does not detect this, and never receives the lost writes. Their current
    /// state is read instead. `missing` is the first write that the cache has not received. Returns `false` if the
    /// server has not responded.
    async fn question_lost_writes(&self, missing: Option<Write>) -> bool {
        let Some(missing) = missing else {
            return true;
        };
        let (client, requested) = (&self.client.shared.client, Instant::now());
        let path = |key: &ObjectKey| self.kinds.path(key.namespace());
        match Asked::current(client.clone(), path(&missing.key)).await {
            Ok(current) => {
                let ask = |key: &ObjectKey| Asked::new(client.clone(), path(key), key.name());
                let unseen = &self.client.shared.unseen;
                unseen.question_lost(&self.kinds.resource, &current, requested, ask);
                true
            }
            Err(err) => {
                tracing::debug!(%err, "the version of the server is unknown");
                err.code().is_some_and(|code| code != 429 && code < 500)
            }
        }
    }

    async fn get_live(&self, key: &ObjectKey) -> Result<Option<CachedObject<K>>, Error> {
        let request = kube::core::Request::new(self.kinds.path(key.namespace()));
        let params = kube::api::GetParams::default();
        let request = if self.kinds.is_metadata {
            request.get_metadata(key.name(), &params)
        } else {
            request.get(key.name(), &params)
        };
        let request = request.map_err(kube::Error::BuildRequest)?;
        match self
            .client
            .shared
            .client
            .request_text(request)
            .await
            .map_err(Error::from)
        {
            Ok(text) => CachedObject::decode(&text).map(Some),
            Err(err) if err.is_not_found() => Ok(None),
            Err(err) => Err(err),
        }
    }

    async fn patch_difference(&self, before: &K, after: &K, part: Part<'_>) -> Result<K, Error>
    where
        K: Serialize + Clone,
    {
        let (key, other) = (ObjectKey::of(before), ObjectKey::of(after));
        if key != other {
            return Err(Error::refused(format!(
                "patch: the change must keep the object's identity: was {key}, is {other}"
            )));
        }
        let pick = |object: &K| -> Result<Value, Error> {
            let mut json = self.json(&key, object)?;
            Ok(match part {
                Part::Whole => json,
                Part::Sub(name) => serde_json::json!({ name: json[name].take() }),
            })
        };
        let Some(mut patch) = difference(&pick(before)?, &pick(after)?) else {
            return Ok(before.clone());
        };
        if let Some(version) = before.meta().resource_version.as_deref() {
            patch["metadata"]["resourceVersion"] = version.into();
        }
        self.send_patch(&key, part, &self.client.options.patch(), &Patch::Merge(&patch))
            .await
    }
}

/// Writes a subresource of objects of one type (controller-runtime's `SubResourceWriter`); see
/// [`CachedClient::status`](super::CachedClient::status).
///
/// ```
/// use informer::ObjectKey;
/// use informer::runtime::CachedClient;
/// use k8s_openapi::api::core::v1::Pod;
///
/// # async fn ready(client: CachedClient, key: &ObjectKey) -> Result<(), informer::Error> {
/// if let Some(before) = client.get::<Pod>(key).await? {
///     let mut pod = Pod::clone(&before);
///     pod.status.get_or_insert_default().message = Some("it is well".into());
///     client.status::<Pod>().patch_from(&before, &pod).await?;
/// }
/// # Ok(())
/// # }
/// ```
pub struct Subresource<K> {
    kind: KindClient<K>,
    name: String,
}

impl<K: Cacheable> Subresource<K> {
    /// Replaces the subresource. Other parts of the object are not written.
    ///
    /// # Errors
    ///
    /// See [`CachedClient::update`](super::CachedClient::update).
    pub async fn update(&self, object: &K) -> Result<K, Error>
    where
        K: Serialize,
    {
        self.kind.replace(object, Part::Sub(&self.name)).await
    }

    /// Patches the subresource.
    ///
    /// # Errors
    ///
    /// See [`CachedClient::patch`](super::CachedClient::patch).
    pub async fn patch(&self, key: &ObjectKey, patch: &Patch<impl Serialize + fmt::Debug>) -> Result<K, Error> {
        let params = self.kind.client.options.patch();
        self.kind.send_patch(key, Part::Sub(&self.name), &params, patch).await
    }

    /// Sends the differences between two states of an object as a patch, but only the differences in the field with the
    /// name of the subresource, such as `status`.
    ///
    /// # Errors
    ///
    /// See [`CachedClient::patch_from`](super::CachedClient::patch_from).
    pub async fn patch_from(&self, before: &impl Borrow<K>, after: &K) -> Result<K, Error>
    where
        K: Serialize + Clone,
    {
        self.kind
            .patch_difference(before.borrow(), after, Part::Sub(&self.name))
            .await
    }

    /// Applies the subresource.
    ///
    /// # Errors
    ///
    /// See [`CachedClient::apply`](super::CachedClient::apply).
    pub async fn apply(&self, object: &K) -> Result<K, Error>
    where
        K: Serialize,
    {
        self.kind.send_apply(object, Part::Sub(&self.name)).await
    }

    /// Creates the subresource: an `Eviction`, a `Binding` or a `TokenRequest`.
    ///
    /// # Errors
    ///
    /// See [`CachedClient::create`](super::CachedClient::create).
    pub async fn create<T: DeserializeOwned>(&self, key: &ObjectKey, body: &impl Serialize) -> Result<T, Error> {
        self.kind.post_subresource(key, &self.name, body).await
    }
}

impl<K> Clone for Kinds<K> {
    fn clone(&self) -> Self {
        Self {
            find: Arc::clone(&self.find),
            path: Arc::clone(&self.path),
            plural: Arc::clone(&self.plural),
            resource: Arc::clone(&self.resource),
            ..*self
        }
    }
}

impl<K> Clone for KindClient<K> {
    fn clone(&self) -> Self {
        Self {
            client: self.client.clone(),
            kinds: self.kinds.clone(),
        }
    }
}

impl<K> fmt::Debug for KindClient<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KindClient({})", self.kinds.plural)
    }
}

impl<K> fmt::Debug for Subresource<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Subresource({:?}, {:?})", self.kind, self.name)
    }
}
