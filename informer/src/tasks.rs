//! `TaskGroup`: starts tasks, and aborts them when the group is dropped.

use std::any::Any;
use std::future::{Future, poll_fn};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;

use tokio::runtime::Handle;
use tokio::task::{JoinError, JoinSet};

/// A group of tasks. They are aborted when the last clone of the group is dropped.
///
/// A task must not hold a clone of its own group, because the group would then never be dropped.
#[derive(Clone, Debug, Default)]
pub(crate) struct TaskGroup {
    /// Guards the tasks, because tasks on several threads may start further tasks.
    tasks: Arc<Mutex<Tasks>>,
    /// Held by the caller that waits for tasks, because a `JoinSet` only wakes the last caller that has polled it.
    waiting: Arc<tokio::sync::Mutex<()>>,
}

#[derive(Debug, Default)]
struct Tasks {
    running: JoinSet<()>,
    /// The first panic of a task that no caller has received yet.
    panic: Option<Box<dyn Any + Send>>,
}

impl Tasks {
    fn note(&mut self, ended: Result<(), JoinError>) {
        if let Err(err) = ended
            && err.is_panic()
        {
            self.panic.get_or_insert(err.into_panic());
        }
    }
}

impl TaskGroup {
    /// Starts a task. Must be called within a tokio runtime.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let mut tasks = self.lock();
        // Remove completed tasks, so that a long-lived group does not accumulate them.
        while let Some(ended) = tasks.running.try_join_next() {
            tasks.note(ended);
        }
        tasks.running.spawn(task);
    }

    /// Starts a task on the given runtime. Can be called outside of a runtime.
    pub(crate) fn spawn_on(&self, task: impl Future<Output = ()> + Send + 'static, runtime: &Handle) {
        let _entered = runtime.enter();
        self.spawn(task);
    }

    /// Aborts all tasks at their next await points, without waiting for them.
    pub(crate) fn abort(&self) {
        self.lock().running.abort_all();
    }

    /// Waits until all tasks have ended, without aborting them. If a task panics, resumes its panic without waiting for
    /// the other tasks.
    pub(crate) async fn joined(&self) {
        let waiting = self.waiting.lock().await;
        let panic = poll_fn(|cx| {
            let mut tasks = self.lock();
            loop {
                if let Some(panic) = tasks.panic.take() {
                    return Poll::Ready(Some(panic));
                }
                match tasks.running.poll_join_next(cx) {
                    Poll::Ready(Some(ended)) => tasks.note(ended),
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
            let mut tasks = self.lock();
            loop {
                match tasks.running.poll_join_next(cx) {
                    Poll::Ready(Some(_ended)) => {}
                    Poll::Ready(None) => return Poll::Ready(()),
                    Poll::Pending => return Poll::Pending,
                }
            }
        })
        .await;
    }

    fn lock(&self) -> MutexGuard<'_, Tasks> {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::panic::AssertUnwindSafe;
    use std::time::Duration;

    use futures::FutureExt;
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

    #[tokio::test(start_paused = true)]
    async fn panic_of_a_task_that_ended_before_the_next_one_started_is_resumed() {
        let tasks = TaskGroup::default();
        tasks.spawn(async { std::panic::resume_unwind(Box::new("oh")) });
        tokio::task::yield_now().await;
        tasks.spawn(async {});
        let joined = AssertUnwindSafe(tasks.joined()).catch_unwind().await;
        assert!(joined.is_err());
    }
}
