//! `ListRequest` and `DeleteAllOf`: requests that list or delete the selected objects of a type.

use std::fmt;
use std::future::IntoFuture;
use std::sync::Arc;

use futures::future::BoxFuture;
use kube::api::{DeleteParams, ListParams};
use kube::core::{Request, Selector};
use serde_json::Value;
use serde_json::value::RawValue;

use super::kind_client::KindClient;
use crate::cache::{Lister, indexes};
use crate::object::{Cacheable, ItemTypes};
use crate::{CachedObject, Error, ObjectKey};

/// A request for the objects of a type (controller-runtime's `List` and its options). Objects from a cache are ordered
/// by key. Returned by [`CachedClient::list`](super::CachedClient::list), and sent when it is awaited.
///
/// Lists objects that match all options. Reads from the cache that select by a [field](Self::field) require an index,
/// which [`Manager::index_field`](crate::runtime::Manager::index_field) adds.
///
/// ```
/// use informer::runtime::{CachedClient, Manager};
/// use k8s_openapi::api::core::v1::Pod;
///
/// # async fn read(manager: Manager) -> Result<(), informer::Error> {
/// manager.index_field::<Pod>("spec.nodeName")?;
/// // … in a reconcile …
/// let client = manager.cached_client();
/// let pods = client.list::<Pod>().in_namespace("shop").labels([("app", "web")]);
/// println!("{} Pods", pods.field("spec.nodeName", "node-1").await?.len());
/// # Ok(())
/// # }
/// ```
#[must_use = "a list is not read until it is awaited"]
pub struct ListRequest<K> {
    kind: KindClient<K>,
    wanted: Wanted,
    indexes: Vec<(String, String)>,
    owner: Option<String>,
    limit: Option<usize>,
}

impl<K: Cacheable> KindClient<K> {
    /// Starts building a list request; see [`CachedClient::list`](super::CachedClient::list).
    pub fn list(&self) -> ListRequest<K> {
        ListRequest::new(self.clone())
    }

    /// Starts building a deletion of several objects; see
    /// [`CachedClient::delete_all_of`](super::CachedClient::delete_all_of).
    pub fn delete_all_of(&self) -> DeleteAllOf<K> {
        DeleteAllOf::new(self.clone())
    }
}

impl<K: Cacheable> ListRequest<K> {
    fn new(kind: KindClient<K>) -> Self {
        Self {
            kind,
            wanted: Wanted::default(),
            indexes: Vec::new(),
            owner: None,
            limit: None,
        }
    }

    /// Selects objects in this namespace (controller-runtime's `InNamespace`).
    pub fn in_namespace(mut self, namespace: &str) -> Self {
        self.wanted.namespace = Some(namespace.to_owned());
        self
    }

    /// Selects objects with these labels (controller-runtime's `MatchingLabels`).
    pub fn labels<'a>(self, labels: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        self.selector(selector_of(labels))
    }

    /// Selects objects that match a label selector (controller-runtime's `MatchingLabelsSelector`).
    pub fn selector(mut self, selector: Selector) -> Self {
        self.wanted.selectors.push(selector);
        self
    }

    /// Selects objects by the value of a field, such as `spec.nodeName` (controller-runtime's `MatchingFields`). Reads
    /// from the cache require an index of this field, created with [`indexes::field`].
    pub fn field(mut self, path: &str, value: &str) -> Self {
        self.wanted.fields.push((path.to_owned(), value.to_owned()));
        self
    }

    /// Selects objects with this value in an index of the informer. Reads from the server do not support this option.
    pub fn index(mut self, index: &str, value: &str) -> Self {
        self.indexes.push((index.to_owned(), value.to_owned()));
        self
    }

    /// Selects objects that have an owner with this uid. Adds the index [`indexes::owner_uid`] if it is missing. Reads
    /// from the server do not support this option.
    pub fn owned_by(mut self, uid: &str) -> Self {
        self.owner = Some(uid.to_owned());
        self
    }

    /// Sets the maximum number of objects, in the order of their keys (controller-runtime's `Limit`). Default: no
    /// limit.
    pub fn limit(mut self, limit: usize) -> Self {
        self.limit = Some(limit);
        self
    }

    /// Returns the objects without decoding them.
    ///
    /// # Errors
    ///
    /// Fails if the cache cannot be read (see [`CachedClient`](super::CachedClient)) or does not include the namespace,
    /// if an index is missing, if a namespace is selected for a cluster-scoped type, or if a read from the server fails
    /// or selects by an index or an owner.
    pub async fn objects(self) -> Result<Vec<CachedObject<K>>, Error> {
        let namespace = self.wanted.namespace.clone();
        if let Some(namespace) = &namespace
            && self.kind.kinds.is_of_cluster
        {
            self.kind.check_namespace("list", &ObjectKey::new(namespace, ""))?;
        }
        if self.kind.is_live() {
            return self.read_server().await;
        }
        let informer = self.kind.informer(namespace.as_deref(), None).await?;
        let lister = informer.cache();
        if self.owner.is_some() && !lister.has_index("owner") {
            // Ignore the error if another task has added the index in the meantime.
            let _ = informer.add_index(indexes::owner_uid());
        }
        self.read_cache(&lister)
    }

    fn read_cache(&self, lister: &Lister<K>) -> Result<Vec<CachedObject<K>>, Error> {
        let mut indexes = self.indexes.clone();
        for (path, value) in &self.wanted.fields {
            let index = format!("field:{path}");
            if !lister.has_index(&index) {
                let plural = &self.kind.kinds.plural;
                return Err(Error::refused(format!(
                    "list of {plural}: the field {path} has no index {index:?}: add it with `Manager::index_field`"
                )));
            }
            indexes.push((index, value.clone()));
        }
        indexes.extend(self.owner.iter().map(|uid| ("owner".to_owned(), uid.clone())));
        let found = match (indexes.split_first(), &self.wanted.namespace) {
            (Some(((index, value), _)), _) => lister.by_index(index, value)?,
            (None, Some(namespace)) => lister.namespace(namespace).list(),
            (None, None) => lister.list(),
        };
        let mut others = Vec::new();
        for (index, value) in indexes.iter().skip(1) {
            others.push(lister.index_keys(index, value)?);
        }
        let is_meant = |object: &CachedObject<K>| {
            let namespace = self.wanted.namespace.as_deref();
            namespace.is_none_or(|it| object.key().namespace() == Some(it))
                // The keys of an index are sorted.
                && others.iter().all(|keys| keys.binary_search(object.key()).is_ok())
                && self.wanted.selectors.iter().all(|it| object.matches(it))
        };
        let found = found.into_iter().filter(is_meant);
        Ok(found.take(self.limit.unwrap_or(usize::MAX)).collect())
    }

    async fn read_server(self) -> Result<Vec<CachedObject<K>>, Error> {
        if self.owner.is_some() || !self.indexes.is_empty() {
            let plural = &self.kind.kinds.plural;
            return Err(Error::refused(format!(
                "list of {plural}: the server does not support indexes"
            )));
        }
        if self.limit == Some(0) {
            // The server does not limit a list with this limit.
            return Ok(Vec::new());
        }
        let params = ListParams {
            limit: self.limit.and_then(|it| u32::try_from(it).ok()),
            ..self.wanted.params()
        };
        let request = Request::new(self.kind.kinds.path(self.wanted.namespace.as_deref()));
        let request = if self.kind.kinds.is_metadata {
            request.list_metadata(&params)
        } else {
            request.list(&params)
        };
        let request = request.map_err(kube::Error::BuildRequest)?;
        let list: Items = self.kind.client.shared.client.request(request).await?;
        let types = ItemTypes::of_list::<K>(&list.kind, &list.api_version);
        let whole = list
            .items
            .iter()
            .map(|it| CachedObject::decode(&types.of_item(it.get())));
        whole.collect()
    }
}

/// A list whose objects have not been decoded.
#[derive(Default, serde::Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Items {
    kind: String,
    api_version: String,
    items: Vec<Box<RawValue>>,
}

/// Selectors of a list or of a deletion of several objects.
#[derive(Debug, Default)]
struct Wanted {
    namespace: Option<String>,
    selectors: Vec<Selector>,
    fields: Vec<(String, String)>,
}

impl Wanted {
    /// Returns the selectors as query parameters of a request.
    fn params(&self) -> ListParams {
        let labels = self.selectors.iter().map(ToString::to_string);
        // An empty selector selects all objects.
        let labels: Vec<_> = labels.filter(|it| !it.is_empty()).collect();
        let fields = self
            .fields
            .iter()
            .map(|(path, value)| format!("{path}={}", escaped(value)));
        let fields: Vec<_> = fields.collect();
        let joined = |texts: &[String]| Some(texts.join(",")).filter(|it| !it.is_empty());
        ListParams {
            label_selector: joined(&labels),
            field_selector: joined(&fields),
            ..ListParams::default()
        }
    }
}

/// Escapes the characters of a value that have a meaning in field selectors (apimachinery's `fields.EscapeValue`).
fn escaped(value: &str) -> String {
    let mut text = String::with_capacity(value.len());
    for char in value.chars() {
        if matches!(char, '\\' | ',' | '=') {
            text.push('\\');
        }
        text.push(char);
    }
    text
}

fn selector_of<'a>(labels: impl IntoIterator<Item = (&'a str, &'a str)>) -> Selector {
    let labels = labels.into_iter();
    labels
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}

impl<K: Cacheable> IntoFuture for ListRequest<K> {
    type Output = Result<Vec<Arc<K>>, Error>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move { self.objects().await?.iter().map(CachedObject::typed).collect() })
    }
}

/// A request that deletes all selected objects of a type (controller-runtime's `DeleteAllOf`). Returned by
/// [`CachedClient::delete_all_of`](super::CachedClient::delete_all_of), and sent when it is awaited.
///
/// Namespaced types require [`in_namespace`](Self::in_namespace).
#[must_use = "objects are not deleted until this is awaited"]
pub struct DeleteAllOf<K> {
    kind: KindClient<K>,
    wanted: Wanted,
    params: DeleteParams,
}

impl<K: Cacheable> DeleteAllOf<K> {
    fn new(kind: KindClient<K>) -> Self {
        Self {
            kind,
            wanted: Wanted::default(),
            params: DeleteParams::default(),
        }
    }

    /// Selects objects in this namespace.
    pub fn in_namespace(mut self, namespace: &str) -> Self {
        self.wanted.namespace = Some(namespace.to_owned());
        self
    }

    /// Selects objects with these labels.
    pub fn labels<'a>(self, labels: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        self.selector(selector_of(labels))
    }

    /// Selects objects that match a label selector.
    pub fn selector(mut self, selector: Selector) -> Self {
        self.wanted.selectors.push(selector);
        self
    }

    /// Selects objects by the value of a field, if the server supports it as a field selector.
    pub fn field(mut self, path: &str, value: &str) -> Self {
        self.wanted.fields.push((path.to_owned(), value.to_owned()));
        self
    }

    /// Sets options of the deletion, such as grace period and propagation policy.
    pub fn params(mut self, params: DeleteParams) -> Self {
        self.params = params;
        self
    }

    async fn send(self) -> Result<(), Error> {
        let plural = &self.kind.kinds.plural;
        if self.wanted.namespace.is_none() && !self.kind.kinds.is_of_cluster {
            return Err(Error::refused(format!(
                "delete of all {plural}: the namespace is missing"
            )));
        }
        let params = self.kind.client.options.delete(&self.params);
        let request = Request::new(self.kind.kinds.path(self.wanted.namespace.as_deref()));
        let request = request.delete_collection(&params, &self.wanted.params());
        self.kind.client.send_delete::<Value>(request).await
    }
}

impl<K: Cacheable> IntoFuture for DeleteAllOf<K> {
    type Output = Result<(), Error>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.send())
    }
}

impl<K> fmt::Debug for ListRequest<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ListRequest")
            .field("kind", &self.kind)
            .field("wanted", &self.wanted)
            .finish_non_exhaustive()
    }
}

impl<K> fmt::Debug for DeleteAllOf<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeleteAllOf")
            .field("kind", &self.kind)
            .field("wanted", &self.wanted)
            .finish_non_exhaustive()
    }
}
