//! `Controller`: connects caches, event handlers, a queue and workers.

use std::fmt;
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::{BoxFuture, Either, join_all, select};
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use super::intake::{Intake, Source, Watch};
use super::later_watches::{Later, LaterWatches};
use super::request_key::RequestKey;
use super::runnable::{Runnable, RunnableGroup};
use crate::cache::{SharedInformerFactory, late_caches};
use crate::error::text_of_panic;
use crate::queue::WorkQueue;
use crate::reconcile::{BoxError, Gate};
use crate::tasks::TaskGroup;
use crate::{Error, ObjectKey, spans};

/// Watches objects, and calls a [`Reconciler`](crate::reconcile::Reconciler) with the keys that their events enqueue.
///
/// ```
/// use std::time::Duration;
/// use informer::cache::SharedInformerFactory;
/// use informer::reconcile::{Action, ReconcileError, Request};
/// use informer::runtime::Controller;
/// use k8s_openapi::api::apps::v1::ReplicaSet;
/// use k8s_openapi::api::core::v1::Pod;
/// use tokio_util::sync::CancellationToken;
///
/// # async fn run(client: kube::Client, stop: CancellationToken) -> Result<(), informer::Error> {
/// let factory = SharedInformerFactory::new(client);
/// let sets = factory.informer::<ReplicaSet>().lister();
/// let controller = Controller::builder("counter", &factory)
///     .for_::<ReplicaSet>()
///     .owns::<Pod>()
///     .concurrency(4)
///     .build(move |request: Request| {
///         let sets = sets.clone();
///         async move {
///             let Some(set) = sets.get(&request.key) else {
///                 return Ok(Action::await_change()); // the object was deleted
///             };
///             println!("{} is at {}", request.key, set.resource_version());
///             Ok::<_, ReconcileError>(Action::requeue(Duration::from_secs(300)))
///         }
///     })?;
/// controller.run(stop).await
/// # }
/// ```
///
/// A controller starts to reconcile when all of its caches have synced, reconciles each key in at most one task at a
/// time, and retries failures with an increasing delay. Reconcilers read the objects from the caches.
pub struct Controller<R: RequestKey = ObjectKey> {
    parts: Parts<R>,
    /// The active watches and sources; `None` until they have been started.
    running: Option<Running>,
}

/// The components that the builder creates.
pub(super) struct Parts<R: RequestKey> {
    pub(super) name: String,
    pub(super) factory: SharedInformerFactory,
    pub(super) intake: Intake<R>,
    pub(super) watches: Vec<Watch<R>>,
    pub(super) sources: Vec<Source<R>>,
    /// `None` if read-your-writes is disabled.
    pub(super) gate: Option<Arc<Gate<R>>>,
    pub(super) workers: BoxFuture<'static, ()>,
    pub(super) later: Later,
    pub(super) ending: Ending<R>,
    /// Cancelled when the controller must stop.
    pub(super) stopping: Arc<CancellationToken>,
    pub(super) cache_sync_timeout: Duration,
    pub(super) needs_leader_election: bool,
    pub(super) is_warmed_up: bool,
}

/// Guard that ends the later watches and the queue of a controller when it is dropped, even if the controller was never
/// run.
pub(super) struct Ending<R: RequestKey> {
    pub(super) later: Later,
    pub(super) queue: WorkQueue<R>,
}

impl<R: RequestKey> Drop for Ending<R> {
    fn drop(&mut self) {
        self.later.end();
        self.queue.shut_down();
    }
}

/// The active watches and sources. They end when this value is dropped.
struct Running {
    removals: Vec<Box<dyn FnOnce() + Send>>,
    stop: CancellationToken,
    tasks: TaskGroup,
    /// Message of a panic in a source. Keys that the source would have added are lost, so the controller ends.
    panic: watch::Sender<Option<String>>,
}

impl Running {
    fn start(&self, source: BoxFuture<'static, ()>, span: tracing::Span) {
        let noted = self.panic.clone();
        let guarded = async move {
            if let Err(panic) = AssertUnwindSafe(source).catch_unwind().await {
                let panic = text_of_panic(&*panic);
                tracing::error!(panic, "a source of keys panicked");
                noted.send_replace(Some(panic.to_string()));
            }
        };
        self.tasks.spawn(guarded.instrument(span));
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.cancel();
        for remove in self.removals.drain(..) {
            remove();
        }
    }
}

impl<R: RequestKey> Controller<R> {
    pub(super) fn new(parts: Parts<R>) -> Self {
        Self { parts, running: None }
    }

    /// Returns the name of the controller.
    pub fn name(&self) -> &str {
        &self.parts.name
    }

    /// Returns the queue. Keys can also be added to it manually.
    pub fn queue(&self) -> WorkQueue<R> {
        self.parts.intake.queue.clone()
    }

    /// Returns a handle for adding watches later, even while the controller is running (controller-runtime's
    /// `Controller.Watch`).
    pub fn later_watches(&self) -> LaterWatches<R> {
        let Parts {
            name,
            factory,
            intake,
            gate,
            later,
            ..
        } = &self.parts;
        LaterWatches::new(name, intake, factory, gate.as_ref(), later)
    }

    /// Runs the controller until `stop` is cancelled, then waits for the reconciles in progress. Starts the informers
    /// of the factory if necessary.
    ///
    /// # Errors
    ///
    /// Fails if the caches do not sync in time, an informer was stopped, or a
    /// [source](super::ControllerBuilder::source) of keys panicked.
    pub async fn run(self, stop: CancellationToken) -> Result<(), Error> {
        let span = spans::controller(&self.parts.name);
        self.run_until(stop).instrument(span).await
    }

    async fn run_until(mut self, stop: CancellationToken) -> Result<(), Error> {
        match stop.run_until_cancelled(self.begin()).await {
            None => return Ok(()),
            // If the caches stop on the same signal, they may stop before they have synced.
            Some(Err(_)) if stop.is_cancelled() => return Ok(()),
            Some(begun) => begun?,
        }
        let Parts {
            name,
            intake,
            workers,
            stopping,
            ending,
            ..
        } = self.parts;
        let mut panicked = self.running.as_ref().map(|it| it.panic.subscribe());
        let panicked = pin!(async {
            match &mut panicked {
                Some(panic) => panic
                    .wait_for(Option::is_some)
                    .await
                    .map(|it| it.clone())
                    .ok()
                    .flatten(),
                None => None,
            }
        });
        match select(select(workers, panicked), pin!(stop.cancelled())).await {
            Either::Left((Either::Left(((), _)), _)) => {}
            Either::Left((Either::Right((panic, _)), _)) => {
                stopping.cancel();
                let panic = panic.unwrap_or_default();
                return Err(Error::refused(format!(
                    "controller {name:?}: a source of keys panicked: {panic}"
                )));
            }
            Either::Right(((), running)) => {
                stopping.cancel();
                intake.queue.shut_down();
                running.await;
            }
        }
        drop(ending);
        if let Some(mut running) = self.running.take() {
            running.stop.cancel();
            let tasks = std::mem::take(&mut running.tasks);
            drop(running);
            tasks.finished().await;
        }
        Ok(())
    }

    /// Starts the watches and sources, and waits until all caches and handlers have synced. Does nothing if they were
    /// already started.
    async fn begin(&mut self) -> Result<(), Error> {
        if self.running.is_some() {
            return Ok(());
        }
        let parts = &mut self.parts;
        let mut running = Running {
            removals: Vec::new(),
            stop: CancellationToken::new(),
            tasks: TaskGroup::default(),
            panic: watch::Sender::new(None),
        };
        let (mut names, mut syncing) = (Vec::new(), Vec::new());
        for watch in parts.watches.drain(..) {
            let watch = watch(&parts.intake)?;
            running.removals.push(watch.remove);
            names.push((watch.name, watch.has_synced, watch.reason));
            syncing.push(watch.synced);
        }
        let span = spans::controller(&parts.name);
        for source in parts.sources.drain(..) {
            running.start(source(parts.intake.clone(), running.stop.clone()), span.clone());
        }
        parts.factory.start();
        let all = timeout(parts.cache_sync_timeout, join_all(syncing))
            .await
            .map_err(|_| {
                let late = names.iter().filter(|(_, has_synced, _)| !has_synced());
                let late: Vec<_> = late.map(|(name, _, reason)| (name.as_str(), reason())).collect();
                let (name, err) = (&parts.name, late_caches(parts.cache_sync_timeout, &late));
                Error::refused(format!("controller {name:?}: {err}"))
            })?;
        all.into_iter().collect::<Result<(), Error>>()?;
        self.running = Some(running);
        Ok(())
    }
}

impl<R: RequestKey> Runnable for Controller<R> {
    fn name(&self) -> String {
        self.parts.name.clone()
    }

    fn group(&self) -> RunnableGroup {
        if self.parts.needs_leader_election {
            RunnableGroup::Leader
        } else {
            RunnableGroup::Always
        }
    }

    fn reads_caches(&self) -> bool {
        true
    }

    fn warm_up(&mut self) -> BoxFuture<'_, Result<(), BoxError>> {
        Box::pin(async {
            if self.parts.is_warmed_up {
                self.begin().await?;
            }
            Ok(())
        })
    }

    fn run(self: Box<Self>, stop: CancellationToken) -> BoxFuture<'static, Result<(), BoxError>> {
        Box::pin(async move { Ok((*self).run(stop).await?) })
    }
}

impl<R: RequestKey> fmt::Debug for Controller<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Controller")
            .field("name", &self.parts.name)
            .field("queue", &self.parts.intake.queue)
            .finish_non_exhaustive()
    }
}
