//! Requests that write: how they are made, and what is remembered of them.

use std::sync::Arc;

use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::core::Request;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::cached_client::CachedClient;
use super::kind_client::KindClient;
use crate::reconcile::Writes;
use crate::{Cacheable, Error, ObjectKey};

/// Options of all writes of a client.
#[derive(Clone, Debug, Default)]
pub(super) struct WriteOptions {
    pub(super) is_dry_run: bool,
    pub(super) field_owner: Option<Arc<str>>,
    pub(super) is_forced: bool,
}

impl WriteOptions {
    fn owner(&self) -> Option<String> {
        self.field_owner.as_deref().map(str::to_owned)
    }

    pub(super) fn post(&self) -> PostParams {
        PostParams {
            dry_run: self.is_dry_run,
            field_manager: self.owner(),
        }
    }

    pub(super) fn patch(&self) -> PatchParams {
        PatchParams {
            dry_run: self.is_dry_run,
            field_manager: self.owner(),
            ..PatchParams::default()
        }
    }

    pub(super) fn apply(&self, key: &ObjectKey) -> Result<PatchParams, Error> {
        if self.field_owner.is_none() {
            return Err(Error::refused(format!(
                "apply of {key}: the client has no field owner, which `field_owner` sets"
            )));
        }
        Ok(PatchParams {
            force: self.is_forced,
            ..self.patch()
        })
    }

    pub(super) fn delete(&self, params: &DeleteParams) -> DeleteParams {
        DeleteParams {
            dry_run: params.dry_run || self.is_dry_run,
            ..params.clone()
        }
    }
}

/// A request that may not have been built.
pub(super) type Built = Result<http::Request<Vec<u8>>, kube::core::request::Error>;

impl CachedClient {
    /// Sends a write, and remembers what it wrote.
    pub(super) async fn send<T: DeserializeOwned>(&self, request: Built) -> Result<T, Error> {
        self.writing(request, async |request| self.shared.client.request::<T>(request).await)
            .await
    }

    /// The same of a request that is answered with an object or a Status.
    pub(super) async fn send_delete<T>(&self, request: Built) -> Result<(), Error>
    where
        T: Clone + DeserializeOwned,
    {
        self.writing(request, async |request| {
            self.shared.client.request_status::<T>(request).await.map(drop)
        })
        .await
    }

    async fn writing<T>(
        &self,
        request: Built,
        send: impl AsyncFnOnce(http::Request<Vec<u8>>) -> Result<T, kube::Error>,
    ) -> Result<T, Error> {
        let request = request.map_err(kube::Error::BuildRequest)?;
        let (result, writes) = Writes::of(send(request)).await;
        self.shared.unseen.remember(&writes);
        Writes::pass_on(&writes);
        Ok(result?)
    }
}

/// Target of a write: the object itself, or a subresource of it.
#[derive(Clone, Copy, Debug)]
pub(super) enum Part<'a> {
    Whole,
    Sub(&'a str),
}

impl<K: Cacheable> KindClient<K> {
    fn request(&self, key: &ObjectKey) -> Request {
        Request::new(self.kinds.path(key.namespace()))
    }

    pub(super) async fn replace(&self, object: &K, part: Part<'_>) -> Result<K, Error>
    where
        K: Serialize,
    {
        let key = self.named_key("update", object)?;
        let (body, params) = (self.body(&key, object)?, self.client.options.post());
        let request = match part {
            Part::Whole => self.request(&key).replace(key.name(), &params, body),
            Part::Sub(name) => self.request(&key).replace_subresource(name, key.name(), &params, body),
        };
        self.client.send(request).await
    }

    pub(super) async fn send_patch(
        &self,
        key: &ObjectKey,
        part: Part<'_>,
        params: &PatchParams,
        patch: &Patch<impl Serialize + std::fmt::Debug>,
    ) -> Result<K, Error> {
        self.check_namespace("patch", key)?;
        let request = match part {
            Part::Whole => self.request(key).patch(key.name(), params, patch),
            Part::Sub(name) => self.request(key).patch_subresource(name, key.name(), params, patch),
        };
        self.client.send(request).await
    }

    pub(super) async fn send_apply(&self, object: &K, part: Part<'_>) -> Result<K, Error>
    where
        K: Serialize,
    {
        let key = self.named_key("apply", object)?;
        let params = self.client.options.apply(&key)?;
        let mut body = self.json(&key, object)?;
        // The server takes no owners of fields from those who apply.
        if let Some(metadata) = body["metadata"].as_object_mut() {
            metadata.remove("managedFields");
        }
        self.send_patch(&key, part, &params, &Patch::Apply(&body)).await
    }

    pub(super) async fn post(&self, object: &K) -> Result<K, Error>
    where
        K: Serialize,
    {
        let key = ObjectKey::of(object);
        self.check_namespace("create", &key)?;
        let body = self.body(&key, object)?;
        let request = self.request(&key).create(&self.client.options.post(), body);
        self.client.send(request).await
    }

    pub(super) async fn post_subresource<T>(
        &self,
        key: &ObjectKey,
        name: &str,
        body: &impl Serialize,
    ) -> Result<T, Error>
    where
        T: DeserializeOwned,
    {
        self.check_namespace("create", key)?;
        let body = serde_json::to_vec(body).map_err(|err| Error::decode(key.to_string(), err))?;
        let params = self.client.options.post();
        let request = self.request(key).create_subresource(name, key.name(), &params, body);
        self.client.send(request).await
    }

    pub(super) async fn remove(&self, key: &ObjectKey, params: &DeleteParams) -> Result<(), Error> {
        self.check_namespace("delete", key)?;
        let params = self.client.options.delete(params);
        let request = self.request(key).delete(key.name(), &params);
        self.client.send_delete::<Value>(request).await
    }

    pub(super) fn json(&self, key: &ObjectKey, object: &K) -> Result<Value, Error>
    where
        K: Serialize,
    {
        serde_json::to_value(object).map_err(|err| Error::decode(key.to_string(), err))
    }

    fn body(&self, key: &ObjectKey, object: &K) -> Result<Vec<u8>, Error>
    where
        K: Serialize,
    {
        serde_json::to_vec(object).map_err(|err| Error::decode(key.to_string(), err))
    }

    fn named_key(&self, verb: &str, object: &K) -> Result<ObjectKey, Error> {
        let key = ObjectKey::of(object);
        self.check_namespace(verb, &key)?;
        if key.name().is_empty() {
            let plural = &self.kinds.plural;
            return Err(Error::refused(format!("{verb} of {plural}: the object has no name")));
        }
        Ok(key)
    }

    /// # Errors
    ///
    /// If the key has a namespace and the type has none, or the other way round.
    pub(super) fn check_namespace(&self, verb: &str, key: &ObjectKey) -> Result<(), Error> {
        let fault = match (key.namespace(), self.kinds.is_of_cluster) {
            (None, false) => "has no namespace",
            (Some(_), true) => "has a namespace, which its type has not",
            (None, true) | (Some(_), false) => return Ok(()),
        };
        let plural = &self.kinds.plural;
        Err(Error::refused(format!("{verb} of {plural}: {:?} {fault}", key.name())))
    }
}
