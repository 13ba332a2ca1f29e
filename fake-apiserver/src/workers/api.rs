//! `Api`: a controller's access to the cluster. Reads are function calls. Writes are requests that pass through all
//! stages: admission, managed fields, validation, the journal.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, USER_AGENT};
use http::{Method, Request};
use jiff::Timestamp;

use super::host::Host;
use super::identity::Identity;
use crate::api::json::{Value, json};
use crate::api::kubernetes_version::KubernetesVersion;
use crate::api::object::Object;
use crate::api::options::{DeleteOptions, PatchKind, PropagationPolicy};
use crate::api::status::StatusDetails;
use crate::api::user::SentBy;
use crate::entropy::Entropy;
use crate::registry::Registry;
use crate::registry::scheme::codec;
use crate::registry::scheme::{Row, Scheme};
use crate::storage::{Key, KeyRange, Stored};

/// The resources by their names in storage, in their stored version.
#[derive(Debug, Default)]
pub(crate) struct Rows {
    scheme: Arc<Scheme>,
    by_name: BTreeMap<Arc<str>, Arc<Row>>,
}

impl Rows {
    /// Updates the table; returns `true` if the served resources have changed.
    pub(super) fn refresh(&mut self, registry: &Registry) -> bool {
        let scheme = registry.reader.scheme();
        if Arc::ptr_eq(&scheme, &self.scheme) && !self.by_name.is_empty() {
            return false;
        }
        self.by_name.clear();
        for row in scheme.rows().filter(|row| row.is_stored()) {
            if row.is_storage_version {
                self.by_name.insert(Arc::clone(&row.storage), Arc::clone(row));
            }
        }
        self.scheme = scheme;
        true
    }

    pub(super) fn get(&self, resource: &str) -> Option<&Arc<Row>> {
        self.by_name.get(resource)
    }
}

/// A controller's access to the cluster.
///
/// A resource is named as in storage: `pods`, `apps/replicasets`, `example.com/widgets`. Objects are in the stored
/// version, which for built-in kinds is the newest stable one.
#[derive(Clone, Copy)]
pub(crate) struct Api<'a> {
    pub(super) host: &'a Arc<dyn Host>,
    pub(super) rows: &'a Rows,
    pub(super) identity: &'a Identity,
}

impl std::fmt::Debug for Api<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Api")
            .field("identity", self.identity)
            .finish_non_exhaustive()
    }
}

/// A request that failed.
#[derive(Clone, Debug, Default, thiserror::Error)]
#[error("{code} {reason}: {message}")]
pub(crate) struct RequestFailure {
    /// The HTTP status.
    pub(crate) code: u16,
    /// `reason` of the Status.
    pub(crate) reason: String,
    /// `message` of the Status.
    pub(crate) message: String,
    /// `details` of the Status.
    pub(crate) details: Box<StatusDetails>,
}

impl RequestFailure {
    /// Creates a failure that was not caused by a failed request, but is retried in the same way.
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            ..Self::default()
        }
    }

    fn of(code: u16, body: &[u8]) -> Self {
        let status: Value = serde_json::from_slice(body).unwrap_or_default();
        let text = |name: &str| status.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
        let details = status.get("details").cloned().unwrap_or_default();
        Self {
            code,
            reason: text("reason"),
            message: text("message"),
            details: serde_json::from_value(details.into()).unwrap_or_default(),
        }
    }

    /// Returns `true` if the object does not exist.
    pub(crate) fn is_not_found(&self) -> bool {
        self.code == 404
    }

    /// Returns `true` if the object has changed since it was read.
    pub(crate) fn is_conflict(&self) -> bool {
        self.code == 409 && self.reason == "Conflict"
    }

    /// Returns `true` if the object already exists.
    pub(crate) fn is_already_exists(&self) -> bool {
        self.code == 409 && self.reason == "AlreadyExists"
    }

    /// Returns `true` if the namespace is terminating and therefore accepts no new objects.
    pub(crate) fn is_namespace_terminating(&self) -> bool {
        self.code == 403 && self.details.causes.iter().any(|it| it.reason == "NamespaceTerminating")
    }
}

impl<'a> Api<'a> {
    /// Returns the clock and the random numbers.
    pub(crate) fn entropy(&self) -> &'a Entropy {
        &self.host.registry().reader.entropy
    }

    /// Returns the time of day.
    pub(crate) fn now(&self) -> Timestamp {
        self.entropy().now()
    }

    /// Returns the version of Kubernetes that the server serves.
    pub(crate) fn version(&self) -> KubernetesVersion {
        self.rows.scheme.version
    }

    /// Returns the served resources.
    pub(crate) fn scheme(&self) -> &'a Scheme {
        &self.rows.scheme
    }

    /// Signs a token of a ServiceAccount.
    pub(crate) fn sign(&self, claims: &Value) -> Result<String, String> {
        self.host.registry().access.tokens.sign(claims)
    }

    /// Returns all stored resources, by their names in storage.
    pub(crate) fn resources(&self) -> impl Iterator<Item = &'a Arc<Row>> {
        self.rows.by_name.values()
    }

    /// Returns a resource by its name in storage.
    pub(crate) fn resource(&self, resource: &str) -> Option<&'a Arc<Row>> {
        self.rows.get(resource)
    }

    /// Returns the served resource of a kind in a version.
    pub(crate) fn resource_of_kind(&self, api_version: &str, kind: &str) -> Option<Arc<Row>> {
        self.rows.scheme.lookup_kind(api_version, kind)
    }

    /// Returns an object in its stored form.
    pub(crate) fn stored(&self, resource: &str, key: &Key) -> Option<Arc<Stored>> {
        self.host.registry().reader.store.get(resource, key)
    }

    /// Returns a decoded object.
    pub(crate) fn get(&self, resource: &str, key: &Key) -> Option<Object> {
        let row = self.rows.get(resource)?;
        Some(codec::decode(row, &*self.stored(resource, key)?))
    }

    /// Returns the objects in their stored form, in the order of a list. An empty `namespace` selects all namespaces.
    pub(crate) fn list_stored(&self, resource: &str, namespace: &str) -> Vec<Arc<Stored>> {
        let range = KeyRange::of((!namespace.is_empty()).then_some(namespace));
        let snapshot = self.host.registry().reader.store.snapshot(resource);
        snapshot.range(&range).cloned().collect()
    }

    /// Returns the objects, in the order of a list. An empty `namespace` selects all namespaces.
    pub(crate) fn list(&self, resource: &str, namespace: &str) -> Vec<Object> {
        let Some(row) = self.rows.get(resource) else {
            return Vec::new();
        };
        let stored = self.list_stored(resource, namespace);
        stored.iter().map(|it| codec::decode(row, it)).collect()
    }

    /// Sends a POST; returns the object as stored. `namespace` is empty for cluster-scoped objects.
    pub(crate) async fn create(
        &self,
        resource: &str,
        namespace: &str,
        object: &Value,
    ) -> Result<Object, RequestFailure> {
        let path = self.path(resource, namespace, "", "")?;
        let body = self
            .request(Method::POST, &path, Some("application/json"), object)
            .await?;
        read(&body)
    }

    /// Sends a PUT of an object, or of a subresource such as `status`; `subresource` is empty for the object itself.
    /// The resourceVersion of the object, if it has one, is a precondition.
    pub(crate) async fn update(
        &self,
        resource: &str,
        subresource: &str,
        object: &Object,
    ) -> Result<Object, RequestFailure> {
        let path = self.path(resource, object.namespace(), object.name(), subresource)?;
        let body = Value::Object(object.0.clone());
        let body = self
            .request(Method::PUT, &path, Some("application/json"), &body)
            .await?;
        read(&body)
    }

    /// Sends a PATCH of an object or a subresource; `subresource` is empty for the object itself.
    pub(crate) async fn patch(
        &self,
        resource: &str,
        subresource: &str,
        key: &Key,
        kind: PatchKind,
        patch: &Value,
    ) -> Result<Object, RequestFailure> {
        let path = self.path(resource, key.namespace(), key.name(), subresource)?;
        let media_type = match kind {
            PatchKind::Json => "application/json-patch+json",
            PatchKind::Merge => "application/merge-patch+json",
            PatchKind::Strategic => "application/strategic-merge-patch+json",
            PatchKind::Apply => "application/apply-patch+yaml",
        };
        let body = self.request(Method::PATCH, &path, Some(media_type), patch).await?;
        read(&body)
    }

    /// Sends a DELETE with options and preconditions.
    pub(crate) async fn delete(
        &self,
        resource: &str,
        key: &Key,
        options: &DeleteOptions,
    ) -> Result<(), RequestFailure> {
        let path = self.path(resource, key.namespace(), key.name(), "")?;
        let body = delete_body(options);
        self.request(Method::DELETE, &path, Some("application/json"), &body)
            .await?;
        Ok(())
    }

    /// Deletes all objects of a resource in a namespace with one DELETE request.
    pub(crate) async fn delete_collection(
        &self,
        resource: &str,
        namespace: &str,
        options: &DeleteOptions,
    ) -> Result<(), RequestFailure> {
        let path = self.path(resource, namespace, "", "")?;
        let body = delete_body(options);
        self.request(Method::DELETE, &path, Some("application/json"), &body)
            .await?;
        Ok(())
    }

    /// Sends a request, and returns the response body.
    pub(crate) async fn request(
        &self,
        method: Method,
        path: &str,
        media_type: Option<&'static str>,
        body: &Value,
    ) -> Result<Bytes, RequestFailure> {
        let invalid = |error: &dyn std::fmt::Display| RequestFailure::new(format!("invalid path {path}: {error}"));
        let text = if body.is_null() {
            Vec::new()
        } else {
            body.to_string().into_bytes()
        };
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header(USER_AGENT, &*self.identity.user_agent);
        if let Some(media_type) = media_type {
            request = request.header(CONTENT_TYPE, media_type);
        }
        let mut request = request.body(Bytes::from(text)).map_err(|error| invalid(&error))?;
        request.extensions_mut().insert(SentBy(self.identity.worker));
        request.extensions_mut().insert(Arc::clone(&self.identity.user));
        let (head, body) = Arc::clone(self.host).call(request).await.into_parts();
        if head.status.is_success() {
            Ok(body)
        } else {
            Err(RequestFailure::of(head.status.as_u16(), &body))
        }
    }

    fn path(&self, resource: &str, namespace: &str, name: &str, subresource: &str) -> Result<String, RequestFailure> {
        let row = self.rows.get(resource);
        let row = row.ok_or_else(|| RequestFailure::new(format!("the resource {resource} is not served")))?;
        let mut path = String::with_capacity(96);
        let group = if row.info.group.is_empty() { "/api" } else { "/apis" };
        let _ = write!(path, "{group}/{}", row.api_version);
        if row.info.is_namespaced() && !namespace.is_empty() {
            let _ = write!(path, "/namespaces/{namespace}");
        }
        let _ = write!(path, "/{}", row.info.resource);
        for part in [name, subresource].into_iter().filter(|it| !it.is_empty()) {
            // Names of RBAC objects may contain all characters except slashes and percent signs.
            let part = percent_encoding::utf8_percent_encode(part, percent_encoding::NON_ALPHANUMERIC);
            let _ = write!(path, "/{part}");
        }
        Ok(path)
    }
}

fn read(body: &[u8]) -> Result<Object, RequestFailure> {
    let map = serde_json::from_slice(body)
        .map_err(|error| RequestFailure::new(format!("the response is not an object: {error}")))?;
    Ok(Object(map))
}

fn delete_body(options: &DeleteOptions) -> Value {
    let mut body = json!({"kind": "DeleteOptions", "apiVersion": "v1"});
    if let Some(seconds) = options.grace_period_seconds {
        body["gracePeriodSeconds"] = seconds.into();
    }
    if let Some(uid) = &options.uid {
        body["preconditions"]["uid"] = uid.as_str().into();
    }
    if let Some(version) = &options.resource_version {
        body["preconditions"]["resourceVersion"] = version.as_str().into();
    }
    if let Some(policy) = options.propagation_policy {
        body["propagationPolicy"] = match policy {
            PropagationPolicy::Orphan => "Orphan",
            PropagationPolicy::Background => "Background",
            PropagationPolicy::Foreground => "Foreground",
        }
        .into();
    }
    body
}
