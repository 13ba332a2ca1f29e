//! `ByObject`: options of the informer of one type.

use std::fmt;
use std::sync::Arc;

use super::fake_source::FakeSource;
use super::informer::{SharedInformer, SharedInformerBuilder};
use super::list_watch::ApiListWatch;
use crate::Error;
use crate::object::Cacheable;

/// Options of the informer of one type (controller-runtime's `cache.ByObject`). Options that are not set default to the
/// factory's options. Passed to
/// [`SharedInformerFactoryBuilder::by_object`](super::SharedInformerFactoryBuilder::by_object).
///
/// ```
/// use informer::Storage;
/// use informer::cache::{ByObject, SharedInformerFactory, indexes};
/// use k8s_openapi::api::core::v1::{ConfigMap, Pod};
///
/// # fn factory(client: kube::Client) -> Result<SharedInformerFactory, informer::Error> {
/// let pods = ByObject::<Pod>::new()
///     .namespace("shop")
///     .source(|pods| pods.labels("app=web"))
///     .informer(|pods| pods.storage(Storage::Typed).index(indexes::field("spec.nodeName")));
/// let maps = ByObject::<ConfigMap>::new().informer(|maps| {
///     maps.transform(|map| {
///         map.binary_data = None;
///         Ok::<_, &str>(())
///     })
/// });
/// Ok(SharedInformerFactory::builder(client).by_object(pods)?.by_object(maps)?.build())
/// # }
/// ```
pub struct ByObject<K> {
    pub(super) namespaces: Option<Vec<String>>,
    source: Vec<Arc<dyn Fn(ApiListWatch) -> ApiListWatch + Send + Sync>>,
    informer: Vec<Arc<Change<K>>>,
}

type Change<K> = dyn Fn(SharedInformerBuilder<K>) -> SharedInformerBuilder<K> + Send + Sync;

impl<K: Cacheable> ByObject<K> {
    /// Creates options that do not override any option of the factory.
    pub fn new() -> Self {
        Self {
            namespaces: None,
            source: Vec::new(),
            informer: Vec::new(),
        }
    }

    /// Watches only objects in this namespace, instead of the factory's namespaces. Each further call adds a namespace.
    #[must_use]
    pub fn namespace(mut self, namespace: &str) -> Self {
        let namespaces = self.namespaces.get_or_insert_default();
        if !namespaces.iter().any(|it| it == namespace) {
            namespaces.push(namespace.to_owned());
        }
        self
    }

    /// Watches objects in all namespaces, instead of the factory's namespaces.
    #[must_use]
    pub fn all_namespaces(mut self) -> Self {
        self.namespaces = Some(Vec::new());
        self
    }

    /// Changes list and watch requests, for example by adding label or field selectors. Applied after the factory's
    /// `tweak`.
    #[must_use]
    pub fn source(mut self, change: impl Fn(ApiListWatch) -> ApiListWatch + Send + Sync + 'static) -> Self {
        self.source.push(Arc::new(change));
        self
    }

    /// Changes the informer's options, such as storage, transforms, indexes and the resync period.
    #[must_use]
    pub fn informer(
        mut self,
        change: impl Fn(SharedInformerBuilder<K>) -> SharedInformerBuilder<K> + Send + Sync + 'static,
    ) -> Self {
        self.informer.push(Arc::new(change));
        self
    }

    /// Checks the options.
    ///
    /// # Errors
    ///
    /// Fails if two indexes have the same name.
    pub(super) fn check(&self) -> Result<(), Error> {
        self.change_informer(SharedInformer::builder(FakeSource::new()))
            .build()
            .map(drop)
    }

    pub(super) fn change_source(&self, source: ApiListWatch) -> ApiListWatch {
        self.source.iter().fold(source, |source, change| change(source))
    }

    pub(super) fn change_informer(&self, builder: SharedInformerBuilder<K>) -> SharedInformerBuilder<K> {
        self.informer.iter().fold(builder, |builder, change| change(builder))
    }
}

impl<K: Cacheable> Default for ByObject<K> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K> fmt::Debug for ByObject<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ByObject")
            .field("namespaces", &self.namespaces)
            .finish_non_exhaustive()
    }
}
