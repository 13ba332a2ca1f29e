//! `TaskGroup`: starts tasks, and aborts them when the group is dropped.

use std::future::{Future, poll_fn};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;

use tokio::runtime::Handle;
use tokio::task::JoinSet;

/// A group of tasks. They are aborted when the last clone of the group is dropped.
///
/// A task must not hold a clone of its own group, because the group would then never be dropped.
#[derive(Clone, Debug, Default)]
pub(crate) struct TaskGroup {
    /// Guards the list of tasks, because tasks on several threads may start further tasks.
    tasks: Arc<Mutex<JoinSet<()>>>,
    /// Held by the caller that waits for tasks, because a `JoinSet` only wakes the last caller that has polled it.
    waiting: Arc<tokio::sync::Mutex<()>>,
}

impl TaskGroup {
    /// Starts a task. Must be called within a tokio runtime.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        // Remove completed tasks, so that a long-lived group does not accumulate them.
        while tasks.try_join_next().is_some() {}
        tasks.spawn(task);
    }

    /// Starts a task on the given runtime. Can be called outside of a runtime.
    pub(crate) fn spawn_on(&self, task: impl Future<Output = ()> + Send + 'static, runtime: &Handle) {
        let _entered = runtime.enter();
        self.spawn(task);
    }

    /// Aborts all tasks at their next await points, and waits until they have ended.
    pub(crate) async fn abandon(&self) {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner).abort_all();
        self.finished().await;
    }

    /// Waits until all tasks have ended, without aborting them. If a task panics, resumes its panic without waiting for
    /// the other tasks.
    pub(crate) async fn joined(&self) {
        let waiting = self.waiting.lock().await;
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
        drop(waiting);
        if let Some(panic) = panic {
            std::panic::resume_unwind(panic);
        }
    }

    /// Waits until all tasks have ended, without aborting them.
    pub(crate) async fn finished(&self) {
        let _waiting = self.waiting.lock().await;
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::{sleep, timeout};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn every_waiter_is_woken_when_the_tasks_have_ended() {
        let tasks = TaskGroup::default();
        tasks.spawn(sleep(Duration::from_secs(1)));
        let waiters = [(); 3].map(|()| {
            let tasks = tasks.clone();
            tokio::spawn(async move { tasks.finished().await })
        });
        for waiter in waiters {
            let ended = timeout(Duration::from_secs(2), waiter).await;
            ended.expect("the waiter is woken").expect("the task does not panic");
        }
    }
}
