//! `SharedInformer`: one copy of a type, and all who want to be told of changes.

use super::{IndexFn, ListWatch, Lister};
use crate::handler::ResourceEventHandler;
use crate::object::Cacheable;
use crate::{Error, ResourceVersion};
use std::marker::PhantomData;
use std::time::Duration;

/// How a [`SharedInformer`] is to be.
pub struct SharedInformerBuilder<K>(PhantomData<fn(K)>);

impl<K: Cacheable> SharedInformerBuilder<K> {
    /// Adds an index.
    #[must_use]
    pub fn index(self, index: IndexFn<K>) -> Self {
        let _ = index;
        self
    }
    /// The seed of all waiting times. Default 0.
    #[must_use]
    pub fn seed(self, seed: u64) -> Self {
        let _ = seed;
        self
    }
    /// `managedFields` are cut out before anything is kept.
    #[must_use]
    pub fn strip_managed_fields(self) -> Self {
        self
    }
    /// How often handlers that do not say otherwise are told everything again. Default: never.
    #[must_use]
    pub fn resync_period(self, period: Duration) -> Self {
        let _ = period;
        self
    }
    /// The informer.
    pub fn build(self) -> SharedInformer<K> {
        SharedInformer(PhantomData)
    }
}

/// What one handler wants.
#[derive(Clone, Debug, Default)]
pub struct HandlerOptions {
    /// How often it is told everything again; `None` for the informer's default, zero for never; at least a second.
    pub resync_period: Option<Duration>,
    /// What becomes of events that it is too slow for.
    pub queue: HandlerQueue,
    /// Its name in messages.
    pub name: Option<String>,
}

/// What becomes of events that a handler is too slow for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HandlerQueue {
    /// They wait, however many.
    #[default]
    Unbounded,
    /// Beyond so many, those of one object are merged into one.
    Coalescing(usize),
}

/// A handler of an informer. It stays when this is dropped.
#[derive(Clone, Debug)]
pub struct HandlerRegistration(());

impl HandlerRegistration {
    /// Whether the handler has been told everything that was there when it began.
    pub fn has_synced(&self) -> bool {
        false
    }
    /// Waits for that, or until the handler is removed or the informer has stopped: then it is an error.
    pub async fn synced(&self) -> Result<(), Error> {
        Ok(())
    }
    /// How many events it failed to handle, by an error or a panic.
    pub fn failures(&self) -> u64 {
        0
    }
}

/// One copy of a type for all who want to read it and to be told of changes. Copies of it are the same informer.
pub struct SharedInformer<K>(PhantomData<fn(K)>);

impl<K> Clone for SharedInformer<K> {
    fn clone(&self) -> Self {
        Self(PhantomData)
    }
}

impl<K: Cacheable> SharedInformer<K> {
    /// An informer with all defaults.
    pub fn new(source: impl ListWatch) -> Self {
        Self::builder(source).build()
    }
    /// An informer to be configured.
    pub fn builder(source: impl ListWatch) -> SharedInformerBuilder<K> {
        let _ = source;
        SharedInformerBuilder(PhantomData)
    }
    /// Tells `handler` of everything there is and then of every change. At any time; fails once stopped.
    pub fn add_handler(&self, handler: impl ResourceEventHandler<K>) -> Result<HandlerRegistration, Error> {
        self.add_handler_with(handler, HandlerOptions::default())
    }
    /// The same with options.
    pub fn add_handler_with(
        &self,
        handler: impl ResourceEventHandler<K>,
        options: HandlerOptions,
    ) -> Result<HandlerRegistration, Error> {
        let _ = (handler, options);
        Ok(HandlerRegistration(()))
    }
    /// Tells it nothing more; what it is being told is finished.
    pub fn remove_handler(&self, registration: &HandlerRegistration) {
        let _ = registration;
    }
    /// Adds an index, at any time. Fails if the name is taken, and once stopped.
    pub fn add_index(&self, index: IndexFn<K>) -> Result<(), Error> {
        let _ = index;
        Ok(())
    }
    /// Reads the cache.
    pub fn lister(&self) -> Lister<K> {
        Lister::new()
    }
    /// Whether the first list is in the cache.
    pub fn has_synced(&self) -> bool {
        false
    }
    /// Waits for that; an error if the informer stops before.
    pub async fn synced(&self) -> Result<(), Error> {
        Ok(())
    }
    /// The version of the last list, event or bookmark.
    pub fn last_sync_resource_version(&self) -> ResourceVersion {
        ResourceVersion::default()
    }
    /// Whether it has run and ended.
    pub fn is_stopped(&self) -> bool {
        false
    }
    /// Keeps the copy up to date until `shutdown` is ready; then handlers finish what they were told. Fails if it was
    /// called before. Dropping the future stops all at once.
    pub async fn run(&self, shutdown: impl Future<Output = ()> + Send) -> Result<(), Error> {
        shutdown.await;
        Ok(())
    }
}
