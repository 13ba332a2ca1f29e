//! `Controller`: the interface between a worker and the pump. Each controller has a queue.

use std::fmt;
use std::sync::Arc;

use futures::future::BoxFuture;
use tokio::time::Instant;

use super::api::{Api, RequestFailure, Rows};
use super::host::Host;
use super::identity::Identity;
use super::observed::Observed;
use super::queue::WorkQueue;

/// A controller of a worker: it observes changes, enqueues keys, and then syncs each of them. See the [module](super)
/// for an example.
///
/// A controller is level-triggered: its memory can be rebuilt from the objects. After a fork or a relist (after
/// `ApiServer::restore`, or when the log was compacted), only delayed keys and the backoff of failed keys are lost.
pub(crate) trait Controller: Send + 'static {
    /// Key of an object to sync; a key is synced at most once at a time.
    type Key: Clone + Ord + fmt::Debug + Send + Sync + 'static;

    /// Returns the user and the client name of the controller's requests.
    fn identity(&self) -> Identity;

    /// Returns the resources that the controller observes.
    fn follows(&self) -> Follows;

    /// Clears the controller's memory. Afterwards all objects are observed again as if they were new.
    fn reset(&mut self) {}

    /// Observes a change, in the order of revisions. This method must only update the memory and add keys to the queue.
    fn observe(&mut self, change: &Observed<'_>, queue: &mut WorkQueue<Self::Key>);

    /// Called when the served resources have changed.
    fn served_changed(&mut self, queue: &mut WorkQueue<Self::Key>) {
        let _ = queue;
    }

    /// Called before each turn of the controller, to enqueue keys after changes other than changes of objects, such as
    /// a new script of Pods.
    fn poked(&mut self, queue: &mut WorkQueue<Self::Key>) {
        let _ = queue;
    }

    /// Reconciles a key. All changes so far have been observed. A failed key is retried after 5 ms, 10 ms, and so on
    /// (see [`WorkQueue`]).
    fn sync(
        &mut self,
        key: Self::Key,
        context: &mut Context<'_, Self::Key>,
    ) -> impl Future<Output = Result<(), RequestFailure>> + Send;
}

/// Resources that a controller observes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Follows {
    /// Every resource, including custom ones that are added later.
    All,
    /// The resources with these names in storage: `pods`, `apps/replicasets`.
    These(&'static [&'static str]),
}

/// Context of a controller while it syncs a key.
#[derive(Debug)]
pub(crate) struct Context<'a, K> {
    /// Access to the cluster.
    pub(crate) api: Api<'a>,
    /// The controller's queue, for adding keys again.
    pub(crate) queue: &'a mut WorkQueue<K>,
}

/// A controller with its queue, independent of the type of its keys.
pub(crate) trait Lane: Send {
    fn reset(&mut self);
    fn observe(&mut self, change: &Observed<'_>);
    fn served_changed(&mut self);
    /// Returns `true` if a key is ready.
    fn is_ready(&mut self) -> bool;
    /// Returns the time at which the next delayed key is due.
    fn next_due(&self) -> Option<Instant>;
    /// Syncs the next key.
    fn run_one<'a>(&'a mut self, host: &'a Arc<dyn Host>, rows: &'a Rows) -> BoxFuture<'a, ()>;
}

/// A controller with its queue.
pub(super) struct Runner<C: Controller> {
    controller: C,
    identity: Identity,
    queue: WorkQueue<C::Key>,
}

impl<C: Controller> Runner<C> {
    pub(super) fn new(controller: C) -> Self {
        Self {
            identity: controller.identity(),
            controller,
            queue: WorkQueue::default(),
        }
    }
}

impl<C: Controller> Lane for Runner<C> {
    fn reset(&mut self) {
        self.queue.clear();
        self.controller.reset();
    }

    fn observe(&mut self, change: &Observed<'_>) {
        let wanted = match self.controller.follows() {
            Follows::All => true,
            Follows::These(resources) => resources.contains(&&**change.resource),
        };
        if wanted {
            self.controller.observe(change, &mut self.queue);
        }
    }

    fn served_changed(&mut self) {
        self.controller.served_changed(&mut self.queue);
    }

    fn is_ready(&mut self) -> bool {
        self.controller.poked(&mut self.queue);
        self.queue.is_ready()
    }

    fn next_due(&self) -> Option<Instant> {
        self.queue.next_due()
    }

    fn run_one<'a>(&'a mut self, host: &'a Arc<dyn Host>, rows: &'a Rows) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            let Some(key) = self.queue.pop() else { return };
            let api = Api {
                host,
                rows,
                identity: &self.identity,
            };
            let mut context = Context {
                api,
                queue: &mut self.queue,
            };
            match self.controller.sync(key.clone(), &mut context).await {
                Ok(()) => self.queue.forget(&key),
                Err(failure) => {
                    tracing::debug!(worker = self.identity.worker, ?key, %failure, "a sync failed and will be retried");
                    self.queue.retry(key);
                }
            }
        })
    }
}
