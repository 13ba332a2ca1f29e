//! `Runnable`: a part of a process that a manager starts and stops.

use std::fmt;

use futures::FutureExt;
use futures::future::BoxFuture;
use tokio_util::sync::CancellationToken;

use crate::reconcile::BoxError;

/// Group of a runnable, which determines when it runs. Groups start in this order; they stop in the order `Always`,
/// `Leader`, `Server`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum RunnableGroup {
    /// Starts before the caches and stops after them: servers for requests from outside.
    Server,
    /// Runs as long as the manager. Starts when the caches that no controller watches have synced; to wait for all
    /// caches with a lister, see [`Runnable::reads_caches`].
    Always,
    /// Runs as long as this process leads.
    Leader,
}

/// A part of a process that a [`Manager`](super::Manager) starts and stops.
pub trait Runnable: Send + 'static {
    /// Returns the name for messages; unique within a manager.
    fn name(&self) -> String;

    /// Returns the group. Default: `Leader`.
    fn group(&self) -> RunnableGroup {
        RunnableGroup::Leader
    }

    /// Returns `true` if it must not start until every cache with a [`Lister`](crate::cache::Lister) has synced.
    /// Default: `true`, except in the group `Always`, so that such a runnable may install the types that a controller
    /// waits for.
    fn reads_caches(&self) -> bool {
        self.group() == RunnableGroup::Leader
    }

    /// Prepares the runnable before this process leads. Default: does nothing. It completes before `run` is called, and
    /// nothing else waits for it.
    fn warm_up(&mut self) -> BoxFuture<'_, Result<(), BoxError>> {
        futures::future::ready(Ok(())).boxed()
    }

    /// Runs until it ends by itself or `stop` is cancelled. An error stops the manager.
    fn run(self: Box<Self>, stop: CancellationToken) -> BoxFuture<'static, Result<(), BoxError>>;
}

/// A function as a [`Runnable`]; see [`run_when_leader`] and [`run_always`].
pub struct FnRunnable {
    name: String,
    group: RunnableGroup,
    run: Box<dyn FnOnce(CancellationToken) -> BoxFuture<'static, Result<(), BoxError>> + Send>,
}

/// Runs a function as long as this process leads.
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

/// Runs a function as long as the manager runs.
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
