//! `TaskGroup`: spawns all tasks of the server. A task ends with its group.

use std::future::{Future, poll_fn};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::task::Poll;

use tokio::task::JoinSet;

/// Tasks that are stopped when the last clone of their group is dropped.
///
/// A task must not own a clone of its group, because the group would then never be dropped.
#[derive(Clone, Debug, Default)]
pub(crate) struct TaskGroup {
    /// The tasks of the group, behind a lock because tasks on several threads may start further tasks.
    tasks: Arc<Mutex<JoinSet<()>>>,
}

/// A group that may have ended.
#[derive(Clone, Debug)]
pub(crate) struct WeakTaskGroup(Weak<Mutex<JoinSet<()>>>);

impl WeakTaskGroup {
    /// Starts a task, unless the group has ended. Must be called within a tokio runtime.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        if let Some(tasks) = self.0.upgrade() {
            TaskGroup { tasks }.spawn(task);
        }
    }
}

impl TaskGroup {
    /// Returns a reference that does not keep the group alive.
    pub(crate) fn downgrade(&self) -> WeakTaskGroup {
        WeakTaskGroup(Arc::downgrade(&self.tasks))
    }

    /// Starts a task. Must be called within a tokio runtime.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        // Removes finished tasks, so that a long-lived group does not keep their handles.
        while tasks.try_join_next().is_some() {}
        tasks.spawn(task);
    }

    /// Waits until all tasks have ended on their own.
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

#[cfg(test)]
mod tests {
    use tokio::sync::oneshot;

    use super::*;

    #[tokio::test]
    async fn task_ends_when_its_group_is_dropped() {
        let (held, mut ended) = oneshot::channel::<()>();
        let group = TaskGroup::default();
        group.spawn(async move {
            let _held = held;
            std::future::pending::<()>().await;
        });

        tokio::task::yield_now().await;
        assert_eq!(ended.try_recv(), Err(oneshot::error::TryRecvError::Empty));
        drop(group);
        assert!(ended.await.is_err(), "the task's values are dropped with it");
    }

    #[tokio::test]
    async fn finished_waits_for_all_tasks() {
        let group = TaskGroup::default();
        let (done, mut result) = oneshot::channel();
        group.spawn(async {});
        group.spawn(async move {
            tokio::task::yield_now().await;
            done.send(()).expect("the test is waiting");
        });
        group.finished().await;
        assert_eq!(result.try_recv(), Ok(()));
    }
}
