//! `TaskGroup`: the one place that starts tasks. A task ends with its group.

use std::future::{Future, poll_fn};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;

use tokio::runtime::Handle;
use tokio::task::JoinSet;

/// Tasks that are stopped when the last clone of their group is dropped.
///
/// A task must not hold a clone of its own group: it would keep itself alive.
#[derive(Clone, Debug, Default)]
pub(crate) struct TaskGroup {
    /// Guards the list of tasks; a lock because tasks of several threads may start more.
    tasks: Arc<Mutex<JoinSet<()>>>,
}

impl TaskGroup {
    /// Starts a task. Must be called within a tokio runtime.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        // A group that lives long must not remember every task it ever had.
        while tasks.try_join_next().is_some() {}
        tasks.spawn(task);
    }

    /// The same on a runtime within which the caller need not be.
    pub(crate) fn spawn_on(&self, task: impl Future<Output = ()> + Send + 'static, runtime: &Handle) {
        let _entered = runtime.enter();
        self.spawn(task);
    }

    /// Ends every task where it waits, and waits for that.
    pub(crate) async fn abandon(&self) {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner).abort_all();
        self.finished().await;
    }

    /// Waits until every task has ended by itself; a panic of one of them goes on here.
    pub(crate) async fn joined(&self) {
        let panic = poll_fn(|cx| {
            let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
            loop {
                match tasks.poll_join_next(cx) {
                    Poll::Ready(Some(Err(err))) if err.is_panic() => return Poll::Ready(Some(err.into_panic())),
                    Poll::Ready(Some(_ended)) => {}
                    Poll::Ready(None) => return Poll::Ready(None),
                    Poll::Pending => return Poll::Pending,
                }
            }
        })
        .await;
        if let Some(panic) = panic {
            std::panic::resume_unwind(panic);
        }
    }

    /// Waits until every task has ended by itself.
    pub(crate) async fn finished(&self) {
        poll_fn(|cx| {
            let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
            loop {
                match tasks.poll_join_next(cx) {
                    Poll::Ready(Some(_ended)) => {}
                    Poll::Ready(None) => return Poll::Ready(()),
                    Poll::Pending => return Poll::Pending,
                }
            }
        })
        .await;
    }
}
