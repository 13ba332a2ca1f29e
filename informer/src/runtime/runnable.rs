//! `Runnable`: a component of a process that a manager starts and stops.

use std::fmt;

use futures::FutureExt;
use futures::future::BoxFuture;
use tokio_util::sync::CancellationToken;

use crate::reconcile::BoxError;

/// Group of a runnable, which determines when it starts and stops. Groups start in the order `Base`, `Server`,
/// `Always`, `Leader`; they stop in the order `Always`, `Leader`, `Server`, `Base`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum RunnableGroup {
    /// Starts first and stops last. Intended for components that other runnables use until they have stopped, such as
    /// the [`EventWriter`](super::EventWriter).
    Base,
    /// Starts before the caches and stops after them. Intended for servers that receive requests from outside the
    /// process.
    Server,
    /// Runs until the manager stops. Starts once the caches that no controller watches have synced, or, if
    /// [`Runnable::reads_caches`] returns `true`, once all caches with a lister have synced.
    Always,
    /// Runs while this process is the leader.
    Leader,
}

/// A component of a process that a [`Manager`](super::Manager) starts and stops.
pub trait Runnable: Send + 'static {
    /// Returns the name of the runnable, which must be unique within its manager.
    fn name(&self) -> String;

    /// Returns the group of the runnable. Default: `Leader`.
    fn group(&self) -> RunnableGroup {
        RunnableGroup::Leader
    }

    /// Returns `true` if the runnable must not start before all caches with a [`Lister`](crate::cache::Lister) have
    /// synced. Default: `true` only in the group `Leader`, so that runnables of the group `Always` can install the CRDs
    /// that controllers need.
    fn reads_caches(&self) -> bool {
        self.group() == RunnableGroup::Leader
    }

    /// Prepares a runnable of the group `Leader` before this process becomes the leader. `run` is called after this has
    /// completed; other runnables do not wait for it. Default: does nothing.
    fn warm_up(&mut self) -> BoxFuture<'_, Result<(), BoxError>> {
        futures::future::ready(Ok(())).boxed()
    }

    /// Runs until `stop` is cancelled, or completes earlier. If it fails, the manager stops.
    fn run(self: Box<Self>, stop: CancellationToken) -> BoxFuture<'static, Result<(), BoxError>>;
}

/// A [`Runnable`] that calls a function; see [`run_when_leader`] and [`run_always`].
pub struct FnRunnable {
    name: String,
    group: RunnableGroup,
    run: Box<dyn FnOnce(CancellationToken) -> BoxFuture<'static, Result<(), BoxError>> + Send>,
}

/// Returns a runnable that runs a function while this process is the leader.
pub fn run_when_leader<F, Fut>(name: &str, run: F) -> FnRunnable
where
    F: FnOnce(CancellationToken) -> Fut + Send + 'static,
    Fut: Future<Output = Result<(), BoxError>> + Send + 'static,
{
    FnRunnable {
        name: name.to_owned(),
        group: RunnableGroup::Leader,
        run: Box::new(move |stop| run(stop).boxed()),
    }
}

/// Returns a runnable that runs a function while the manager runs.
pub fn run_always<F, Fut>(name: &str, run: F) -> FnRunnable
where
    F: FnOnce(CancellationToken) -> Fut + Send + 'static,
    Fut: Future<Output = Result<(), BoxError>> + Send + 'static,
{
    FnRunnable {
        group: RunnableGroup::Always,
        ..run_when_leader(name, run)
    }
}

impl Runnable for FnRunnable {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn group(&self) -> RunnableGroup {
        self.group
    }

    fn run(self: Box<Self>, stop: CancellationToken) -> BoxFuture<'static, Result<(), BoxError>> {
        (self.run)(stop)
    }
}

impl fmt::Debug for FnRunnable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FnRunnable")
            .field("name", &self.name)
            .field("group", &self.group)
            .finish_non_exhaustive()
    }
}
