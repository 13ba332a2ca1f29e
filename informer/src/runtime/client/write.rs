//! Writes of a [`KindClient`](super::KindClient).

use kube::api::{DeleteParams, Patch, PatchParams};
use kube::core::Request;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::kind_client::KindClient;
use super::write_options::Part;
use crate::{Cacheable, Error, ObjectKey};

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
        // The server refuses server-side apply of objects with `managedFields`.
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

    /// Checks that the key has a namespace if and only if the type is namespaced.
    ///
    /// # Errors
    ///
    /// Fails if the key has a namespace but the type is cluster-scoped, or vice versa.
    pub(super) fn check_namespace(&self, verb: &str, key: &ObjectKey) -> Result<(), Error> {
        let fault = match (key.namespace(), self.kinds.is_of_cluster) {
            (None, false) => "has no namespace",
            (Some(_), true) => "has a namespace, but its type is cluster-scoped",
            (None, true) | (Some(_), false) => return Ok(()),
        };
        let plural = &self.kinds.plural;
        Err(Error::refused(format!("{verb} of {plural}: {:?} {fault}", key.name())))
    }
}
