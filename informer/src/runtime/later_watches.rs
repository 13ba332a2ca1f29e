//! `LaterWatches`: adds watches to a controller, possibly while it runs.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kube::Resource;
use tokio::time::Instant;

use super::intake::Intake;
use super::request_key::RequestKey;
use crate::cache::{HandlerRegistration, SharedInformer, SharedInformerFactory, WeakInformer};
use crate::cache_state::CacheState;
use crate::handler::{Event, Predicate, ToKeys};
use crate::reconcile::{Collection, Gate};
use crate::{Cacheable, Error, ObjectKey, ResourceVersion};

/// A handle for adding watches to a controller, before or while it runs; see
/// [`Controller::later_watches`](super::Controller::later_watches). Clones refer to the same controller.
///
/// The controller does not wait until the caches of these watches have synced. Once such a cache has synced, keys are
/// held back until it has received their writes, as with the caches of other watches.
///
/// ```
/// use informer::handler::enqueue;
/// use informer::runtime::{Controller, LaterWatches};
/// use k8s_openapi::api::apps::v1::ReplicaSet;
/// use k8s_openapi::api::core::v1::Pod;
///
/// # fn add(watches: &LaterWatches) -> Result<(), informer::Error> {
/// // let watches = controller.later_watches();
/// watches.watch::<Pod>(enqueue::controller::<ReplicaSet>())?;
/// # Ok(())
/// # }
/// ```
pub struct LaterWatches<R: RequestKey = ObjectKey> {
    name: String,
    intake: Intake<R>,
    factory: SharedInformerFactory,
    gate: Option<Arc<Gate<R>>>,
    later: Later,
}

/// Watches that are added after the controller was built, and that end with the controller.
#[derive(Clone, Default)]
pub(super) struct Later(Arc<Mutex<Added>>);

#[derive(Default)]
struct Added {
    has_ended: bool,
    /// The watches that have not ended, and the functions that end them.
    removals: Vec<(HandlerRegistration, Box<dyn FnOnce() + Send>)>,
}

impl Later {
    fn added(&self) -> MutexGuard<'_, Added> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends all watches. After this, watches can no longer be added.
    pub(super) fn end(&self) {
        let removals = {
            let mut added = self.added();
            added.has_ended = true;
            std::mem::take(&mut added.removals)
        };
        for (_, remove) in removals {
            remove();
        }
    }
}

impl<R: RequestKey> LaterWatches<R> {
    pub(super) fn new(
        name: &str,
        intake: &Intake<R>,
        factory: &SharedInformerFactory,
        gate: Option<&Arc<Gate<R>>>,
        later: &Later,
    ) -> Self {
        Self {
            name: name.to_owned(),
            intake: intake.clone(),
            factory: factory.clone(),
            gate: gate.cloned(),
            later: later.clone(),
        }
    }

    /// Watches a type. Starts its informer if necessary.
    ///
    /// # Errors
    ///
    /// Fails if the controller or the informer has stopped.
    pub fn watch<K>(&self, to_keys: impl ToKeys<K, R>) -> Result<HandlerRegistration, Error>
    where
        K: Cacheable + Resource<DynamicType = ()>,
        K::Scope: 'static,
    {
        let informer = self.factory.informer::<K>();
        let registration = self.informer(&informer, &(), to_keys, |_: &Event<K>| true)?;
        self.factory.start();
        Ok(registration)
    }

    /// Watches with an informer that the caller runs.
    ///
    /// # Errors
    ///
    /// Fails if the controller or the informer has stopped.
    pub fn informer<K: Cacheable>(
        &self,
        informer: &SharedInformer<K>,
        resource: &K::DynamicType,
        to_keys: impl ToKeys<K, R>,
        predicate: impl Predicate<K>,
    ) -> Result<HandlerRegistration, Error> {
        let collection = Collection::of::<K>(None, resource);
        self.add(Some(collection), informer, to_keys, predicate)
    }

    /// Watches with an informer of a different cluster; see
    /// [`ControllerBuilder::remote_informer`](super::ControllerBuilder::remote_informer).
    ///
    /// # Errors
    ///
    /// Fails if the controller or the informer has stopped.
    pub fn remote_informer<K: Cacheable>(
        &self,
        informer: &SharedInformer<K>,
        to_keys: impl ToKeys<K, R>,
        predicate: impl Predicate<K>,
    ) -> Result<HandlerRegistration, Error> {
        self.add(None, informer, to_keys, predicate)
    }

    /// Adds a key to the queue with a low priority, like a key from an initial list.
    pub(super) fn add_key(&self, key: R) {
        self.intake.add(key, true);
    }

    /// Starts a watch. If `collection` is given, a key is held back until the informer has received the writes of the
    /// key's last reconcile to this collection.
    pub(super) fn add<K: Cacheable>(
        &self,
        collection: Option<Collection>,
        informer: &SharedInformer<K>,
        to_keys: impl ToKeys<K, R>,
        predicate: impl Predicate<K>,
    ) -> Result<HandlerRegistration, Error> {
        let mut added = self.later.added();
        if added.has_ended {
            return Err(Error::refused(format!("controller {:?} has ended", self.name)));
        }
        let registration = self.intake.watch(informer, to_keys, predicate)?;
        if let (Some(gate), Some(collection)) = (&self.gate, collection) {
            let (informer, watch) = (informer.downgrade(), registration.clone());
            gate.join(collection, Arc::new(Watched { informer, watch }));
        }
        let (informer, watch) = (informer.downgrade(), registration.clone());
        let remove = move || {
            if let Some(informer) = informer.upgrade() {
                informer.remove_handler(&watch);
            }
        };
        added.removals.retain(|(watch, _)| !watch.has_ended());
        added.removals.push((registration.clone(), Box::new(remove)));
        Ok(registration)
    }
}

/// Cache of a watch that was added later. Keys wait for it only between its first sync and the end of the watch. Does
/// not keep the cache alive.
struct Watched<K> {
    informer: WeakInformer<K>,
    watch: HandlerRegistration,
}

impl<K: Cacheable> CacheState for Watched<K> {
    fn may_have(&self, key: &ObjectKey, labels: Option<&BTreeMap<String, String>>) -> bool {
        let informer = self
            .informer
            .upgrade()
            .filter(|it| it.has_synced() && !self.has_ended());
        informer.is_some_and(|it| it.may_have(key, labels))
    }

    fn resource_version(&self, key: &ObjectKey) -> ResourceVersion {
        self.informer
            .upgrade()
            .map(|it| it.version_for(key))
            .unwrap_or_default()
    }

    fn uid(&self, key: &ObjectKey) -> Option<String> {
        self.informer.upgrade()?.uid(key)
    }

    fn is_deleting(&self, key: &ObjectKey) -> bool {
        self.informer.upgrade().is_some_and(|it| it.is_deleting(key))
    }

    fn restored(&self, key: &ObjectKey) -> Option<Instant> {
        self.informer.upgrade()?.restored(key)
    }

    fn has_ended(&self) -> bool {
        self.watch.has_ended()
    }
}

impl<R: RequestKey> Clone for LaterWatches<R> {
    fn clone(&self) -> Self {
        Self {
            name: self.name.clone(),
            intake: self.intake.clone(),
            factory: self.factory.clone(),
            gate: self.gate.clone(),
            later: self.later.clone(),
        }
    }
}

impl<R: RequestKey> fmt::Debug for LaterWatches<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LaterWatches")
            .field("controller", &self.name)
            .finish_non_exhaustive()
    }
}
