//! `Workers`: take keys from a queue, reconcile them, and requeue them according to the results.

use std::fmt;
use std::hash::Hash;
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures::FutureExt;
use futures::future::{join, pending, select};
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{Instrument, Span};

use super::gate::{Gate, Passage};
use super::reconcile_error::ReconcileError;
use super::reconciler::{Action, Reconciler, Request, Then};
use super::shard::Shard;
use super::span::SpanOf;
use super::stats::{Ending, Stats};
use super::writes::Writes;
use crate::Error;
use crate::error::text_of_panic;
use crate::metrics::{Collect, Metrics};
use crate::queue::{AddOptions, WorkItem, WorkQueue};
use crate::tasks::TaskGroup;

/// Options of the workers of a controller.
#[derive(Clone, Debug)]
pub(crate) struct WorkersConfig {
    /// Name of the controller, in messages and metrics.
    pub(crate) name: String,
    /// Number of keys that are reconciled concurrently; at least 1.
    pub(crate) concurrency: usize,
    /// Time limit of a reconcile.
    pub(crate) timeout: Option<Duration>,
    /// Set if a panic only fails the reconcile. Otherwise a panic ends the controller.
    pub(crate) recovers_panics: bool,
    /// Cancelled when the controller must stop.
    pub(crate) stop: Arc<CancellationToken>,
}

/// The checks that a key must pass before it is reconciled.
pub(crate) struct Doors<R> {
    /// Delays a key until the caches have received the writes of its last reconcile.
    pub(crate) gate: Option<Arc<Gate<R>>>,
    /// Checks that this process owns the key.
    pub(crate) shard: Option<Arc<dyn Shard<R>>>,
}

/// Reconciles the keys of a queue until the queue is shut down.
pub(crate) struct Workers<R: Clone + Eq + Hash, C> {
    queue: WorkQueue<R>,
    reconciler: C,
    config: WorkersConfig,
    span: SpanOf<R>,
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
        span: SpanOf<R>,
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
            span,
            stats,
            gate,
            shard,
            calls: AtomicU64::new(0),
        }
    }

    /// Reconciles keys. Returns when the queue is shut down and all workers are done. Dropping the future drops the
    /// reconciles in progress.
    ///
    /// If panics are not recovered, resumes a panic of the reconciler.
    pub(crate) async fn run(self) {
        let this = Arc::new(self);
        let tasks = TaskGroup::default();
        for _ in 0..this.config.concurrency {
            let this = Arc::clone(&this);
            tasks.spawn(async move {
                let mut next = this.queue.get().await;
                while let Some(work) = next {
                    let ended = this.process(&work).await;
                    next = work.next_at(ended).await;
                }
            });
        }
        let sweeping = async {
            match &this.gate {
                Some(gate) => gate.sweep().await,
                None => pending().await,
            }
        };
        let replaying = async {
            match &this.shard {
                Some(shard) => shard.replay_gained().await,
                None => pending().await,
            }
        };
        let _first = select(pin!(tasks.joined()), pin!(join(sweeping, replaying))).await;
    }

    /// Processes a key from the queue. Returns the time at which the reconcile ended; `None` if the key was not
    /// reconciled.
    async fn process(&self, work: &WorkItem<R>) -> Option<Instant> {
        let stay = match &self.shard {
            None => None,
            Some(shard) => match shard.begin(work) {
                Some(stay) => Some((shard, stay)),
                None => {
                    // The next owner of the key does not receive the number of failures.
                    self.queue.forget_work(work);
                    return None;
                }
            },
        };
        let mut taken = work.taken();
        let gate = self.gate.as_ref().filter(|it| it.has_caches());
        if let Some(gate) = gate {
            let mut passage = gate.look(work, false);
            if passage == Passage::Ask {
                gate.ask(work).await;
                passage = gate.look(work, true);
                taken = None;
            }
            match passage {
                Passage::Open => {}
                Passage::Ask => {
                    self.back_off(work, None);
                    return None;
                }
                Passage::Held(pause) => {
                    self.add(work, pause, None);
                    return None;
                }
                Passage::Stuck(why) => {
                    let span = self.span(&self.request(work));
                    span.in_scope(|| self.finish(work, Err(Error::gated(why).into()), None));
                    return None;
                }
            }
        }
        self.stats.started();
        let started = taken.unwrap_or_else(Instant::now);
        let request = self.request(work);
        let span = self.span(&request);
        // Pin the future in place. It is large, and every enclosing future to which it is moved would reserve space for
        // it again.
        let call = pin!(async {
            match &stay {
                None => Some(self.call(request, &span).await),
                Some((_, stay)) => stay.keep(pin!(self.call(request, &span))).await,
            }
        });
        let result = match gate {
            None => call.await,
            Some(gate) => {
                let (result, writes) = Writes::of(call).await;
                gate.remember(work, writes);
                result
            }
        };
        let ended = Instant::now();
        let took = ended.saturating_duration_since(started);
        match (result, &stay) {
            (Some(result), _) => span.in_scope(|| self.finish(work, result, Some(took))),
            (None, Some((shard, _))) => {
                span.in_scope(|| tracing::error!("the key was lost during its reconcile"));
                self.stats.ended(took, Ending::Error);
                self.queue.forget_work(work);
                shard.set_aside(work);
            }
            (None, None) => {}
        }
        Some(ended)
    }

    fn request(&self, work: &WorkItem<R>) -> Request<R> {
        Request {
            key: work.key().clone(),
            failures: self.queue.num_requeues_of(work),
            priority: work.priority(),
            id: self.calls.fetch_add(1, Ordering::Relaxed) + 1,
            stop: Arc::clone(&self.config.stop),
        }
    }

    /// Creates the span of a reconcile. If the user's function panics, returns a disabled span.
    fn span(&self, request: &Request<R>) -> Span {
        std::panic::catch_unwind(AssertUnwindSafe(|| (self.span)(request))).unwrap_or_else(|panic| {
            let (controller, key) = (&self.config.name, &request.key);
            let panic = text_of_panic(&*panic);
            tracing::error!(controller, ?key, panic, "the function that creates spans panicked");
            Span::none()
        })
    }

    /// Calls the reconciler within the span. Returns timeouts and recovered panics as errors.
    async fn call(&self, request: Request<R>, span: &Span) -> Result<Action, ReconcileError> {
        let call = pin!(async { self.reconciler.reconcile(request).await }.instrument(span.clone()));
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

    /// Logs and counts the result, and requeues the key accordingly.
    fn finish(&self, work: &WorkItem<R>, result: Result<Action, ReconcileError>, took: Option<Duration>) {
        let ending = match &result {
            Ok(action) => match action.then {
                Then::Await => Ending::Success,
                Then::After(_) | Then::At(_) => Ending::RequeueAfter,
                Then::BackOff => Ending::Requeue,
            },
            Err(err) if err.is_terminal() => Ending::TerminalError,
            Err(_) => Ending::Error,
        };
        match took {
            Some(took) => self.stats.ended(took, ending),
            None => self.stats.held_too_long(),
        }
        match result {
            Ok(action) => {
                if action.then != Then::BackOff {
                    self.queue.forget_work(work);
                }
                match action.then {
                    Then::Await => {}
                    Then::After(after) => self.add(work, after, action.priority),
                    Then::At(at) => self.add(work, at.saturating_duration_since(Instant::now()), action.priority),
                    Then::BackOff => self.back_off(work, action.priority),
                }
            }
            Err(error) => {
                tracing::error!(%error, is_terminal = error.is_terminal(), "reconciler error");
                if !error.is_terminal() {
                    self.back_off(work, None);
                }
            }
        }
    }

    fn add(&self, work: &WorkItem<R>, after: Duration, priority: Option<i32>) {
        let options = AddOptions {
            priority: priority.unwrap_or(work.priority()),
            after,
            ..AddOptions::default()
        };
        self.queue.add_with(work.key().clone(), options);
    }

    fn back_off(&self, work: &WorkItem<R>, priority: Option<i32>) {
        let options = AddOptions {
            priority: priority.unwrap_or(work.priority()),
            is_rate_limited: true,
            ..AddOptions::default()
        };
        self.queue.add_with(work.key().clone(), options);
    }
}
