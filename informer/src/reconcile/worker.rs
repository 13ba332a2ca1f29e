//! `Workers`: the loop. Get a key, reconcile it, then forget it, requeue it or back off.

use std::fmt;
use std::hash::Hash;
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures::FutureExt;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use super::gate::{Gate, Passage};
use super::reconciler::{Action, ReconcileError, Reconciler, Request, Then};
use super::shard::Shard;
use super::stats::{Ending, Stats};
use super::writes::Writes;
use crate::error::text_of_panic;
use crate::metrics::{Collect, Metrics};
use crate::queue::{AddOptions, Work, WorkQueue};
use crate::tasks::TaskGroup;

/// Configuration of the workers.
#[derive(Clone, Debug)]
pub(crate) struct WorkersConfig {
    /// The controller's, in messages and metrics.
    pub(crate) name: String,
    /// Number of keys worked on at a time; at least 1.
    pub(crate) concurrency: usize,
    /// Time limit of one reconcile.
    pub(crate) timeout: Option<Duration>,
    /// Set if a panic is an error of its key; otherwise it ends the controller.
    pub(crate) recovers_panics: bool,
    /// Cancelled when the controller is to stop.
    pub(crate) stop: Arc<CancellationToken>,
}

/// The doors a key has to pass before it is worked on.
pub(crate) struct Doors<R> {
    /// The caches have seen the writes made for it.
    pub(crate) gate: Option<Arc<Gate<R>>>,
    /// It is for this process.
    pub(crate) shard: Option<Arc<dyn Shard<R>>>,
}

/// Works on the keys of a queue until it is shut down.
pub(crate) struct Workers<R: Clone + Eq + Hash, C> {
    queue: WorkQueue<R>,
    reconciler: C,
    config: WorkersConfig,
    stats: Arc<Stats>,
    gate: Option<Arc<Gate<R>>>,
    shard: Option<Arc<dyn Shard<R>>>,
    calls: AtomicU64,
}

impl<R, C> Workers<R, C>
where
    R: Clone + Eq + Hash + fmt::Debug + Send + Sync + 'static,
    C: Reconciler<R>,
{
    pub(crate) fn new(
        queue: WorkQueue<R>,
        reconciler: C,
        mut config: WorkersConfig,
        Doors { gate, shard }: Doors<R>,
        metrics: &Metrics,
    ) -> Self {
        config.concurrency = config.concurrency.max(1);
        let stats = Arc::new(Stats::new(&config.name, config.concurrency));
        let collector: Arc<dyn Collect> = stats.clone();
        metrics.register(&collector);
        Self {
            queue,
            reconciler,
            config,
            stats,
            gate,
            shard,
            calls: AtomicU64::new(0),
        }
    }

    /// Returns when the queue is shut down and every worker is done. Dropping it drops the reconciles in progress.
    ///
    /// A panic of a reconcile goes on here, if panics are not recovered.
    pub(crate) async fn run(self) {
        let this = Arc::new(self);
        let tasks = TaskGroup::default();
        for _ in 0..this.config.concurrency {
            let this = Arc::clone(&this);
            tasks.spawn(async move {
                while let Some(work) = this.queue.get().await {
                    this.process(work).await;
                }
            });
        }
        tasks.joined().await;
    }

    async fn process(&self, work: Work<R>) {
        let stay = match &self.shard {
            None => None,
            Some(shard) => match shard.begin(&work) {
                Some(stay) => Some((shard, stay)),
                // Its failures are for its next owner to count.
                None => return self.queue.forget_work(&work),
            },
        };
        let gate = self.gate.as_ref().filter(|it| it.has_caches());
        if let Some(gate) = gate {
            let mut passage = gate.look(&work, false);
            if passage == Passage::Ask {
                gate.ask(&work).await;
                passage = gate.look(&work, true);
            }
            match passage {
                Passage::Open => {}
                Passage::Ask => return self.back_off(work, None),
                Passage::Held(pause) => return self.add(work, pause, None),
                Passage::Stuck(why) => return self.finish(work, Err(ReconcileError::from(why)), None),
            }
        }
        self.stats.started();
        let started = Instant::now();
        let request = Request {
            key: work.key().clone(),
            failures: self.queue.num_requeues_of(&work),
            priority: work.priority(),
            id: self.calls.fetch_add(1, Ordering::Relaxed) + 1,
            stop: Arc::clone(&self.config.stop),
        };
        let id = request.id;
        // Pinned where it stands: a reconcile is large, and each future that took it over would hold it once more.
        let call = pin!(async {
            match &stay {
                None => Some(self.call(request).await),
                Some((_, stay)) => stay.keep(pin!(self.call(request))).await,
            }
        });
        let result = match gate {
            None => call.await,
            Some(gate) => {
                let (result, writes) = Writes::of(call).await;
                gate.remember(&work, writes);
                result
            }
        };
        match (result, &stay) {
            (Some(result), _) => self.finish(work, result, Some((started, id))),
            (None, Some((shard, _))) => {
                let (controller, key) = (&self.config.name, work.key());
                tracing::error!(
                    controller,
                    ?key,
                    reconcile_id = id,
                    "the key was lost during its reconcile"
                );
                self.stats.ended(started.elapsed(), Ending::Error);
                self.queue.forget_work(&work);
                shard.set_aside(&work);
            }
            (None, None) => {}
        }
    }

    /// Calls the reconciler. Its panic and its taking too long are errors.
    async fn call(&self, request: Request<R>) -> Result<Action, ReconcileError> {
        let call = pin!(async { self.reconciler.reconcile(request).await });
        let call = pin!(async {
            if !self.config.recovers_panics {
                return call.await;
            }
            AssertUnwindSafe(call).catch_unwind().await.unwrap_or_else(|panic| {
                self.stats.panicked();
                Err(format!("panic: {} [recovered]", text_of_panic(&*panic)).into())
            })
        });
        let Some(limit) = self.config.timeout else {
            return call.await;
        };
        timeout(limit, call).await.unwrap_or_else(|_| {
            self.stats.timed_out();
            Err(format!("the reconcile took longer than {limit:?}").into())
        })
    }

    /// Gives the key back, to be worked on again as the result says.
    fn finish(&self, work: Work<R>, result: Result<Action, ReconcileError>, call: Option<(Instant, u64)>) {
        let ending = match &result {
            Ok(action) => match action.then {
                Then::Await => Ending::Success,
                Then::After(_) | Then::At(_) => Ending::RequeueAfter,
                Then::BackOff => Ending::Requeue,
            },
            Err(err) if err.is_terminal() => Ending::TerminalError,
            Err(_) => Ending::Error,
        };
        match call {
            Some((started, _)) => self.stats.ended(started.elapsed(), ending),
            None => self.stats.held_too_long(),
        }
        match result {
            Ok(action) => {
                if action.then != Then::BackOff {
                    self.queue.forget_work(&work);
                }
                match action.then {
                    Then::Await => {}
                    Then::After(after) => self.add(work, after, action.priority),
                    Then::At(at) => self.add(work, at.saturating_duration_since(Instant::now()), action.priority),
                    Then::BackOff => self.back_off(work, action.priority),
                }
            }
            Err(error) => {
                let (controller, key, id) = (&self.config.name, work.key(), call.map(|(_, id)| id));
                tracing::error!(controller, ?key, reconcile_id = id, %error, "reconciler error");
                if !error.is_terminal() {
                    self.back_off(work, None);
                }
            }
        }
    }

    fn add(&self, work: Work<R>, after: Duration, priority: Option<i32>) {
        let options = AddOptions {
            priority: priority.unwrap_or(work.priority()),
            after,
            is_rate_limited: false,
        };
        self.queue.add_with(work.key().clone(), options);
    }

    fn back_off(&self, work: Work<R>, priority: Option<i32>) {
        let options = AddOptions {
            priority: priority.unwrap_or(work.priority()),
            after: Duration::ZERO,
            is_rate_limited: true,
        };
        self.queue.add_with(work.key().clone(), options);
    }
}
