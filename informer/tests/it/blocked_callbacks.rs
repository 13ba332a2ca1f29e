//! Synchronous user functions that block their threads: other controllers continue, caches remain readable, and changes
//! are not lost.
//!
//! Only other threads can observe a blocked thread, so these tests use several threads. They wait for events, and do
//! not measure time.

use std::fmt;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use informer::cache::{
    FakeSource, IndexFn, ReflectorOptions, SharedInformer, SharedInformerBuilder, SharedInformerFactory,
};
use informer::handler::{AnyEvent, Event, enqueue};
use informer::queue::RateLimiter;
use informer::reconcile::{Action, ReconcileError, Request};
use informer::runtime::{Controller, ControllerBuilder};
use informer::{CachedObject, ObjectKey};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::core::Status;
use rstest::rstest;
use serde_json::json;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// A function that blocks its thread when it is first called for the object `bad`, until it is released.
#[derive(Clone)]
struct Blocks {
    entered: UnboundedSender<()>,
    is_released: Arc<(Mutex<bool>, Condvar)>,
}

impl Blocks {
    fn new() -> (Self, UnboundedReceiver<()>) {
        let (entered, called) = unbounded_channel();
        let is_released = Arc::default();
        (Self { entered, is_released }, called)
    }

    fn call(&self, name: &str) {
        if name != "bad" {
            return;
        }
        // The receiver is dropped at the end of the test.
        let _ = self.entered.send(());
        let (released, changed) = &*self.is_released;
        let released = released.lock().expect("the lock is not poisoned");
        drop(
            changed
                .wait_while(released, |it| !*it)
                .expect("the task does not panic"),
        );
    }

    fn release(&self) {
        let (released, changed) = &*self.is_released;
        *released.lock().expect("the lock is not poisoned") = true;
        changed.notify_all();
    }
}

/// Releases blocked threads, so that a failed test can end.
impl Drop for Blocks {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.release();
        }
    }
}

type Informer = SharedInformerBuilder<ConfigMap>;

/// The callback that is blocked in a test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Mapping,
    Predicate,
    EventFilter,
    Index,
    Transform,
    ErrorHandler,
    RateLimiter,
    Span,
}

impl Place {
    fn informer(self, builder: Informer, blocks: &Blocks) -> Informer {
        let blocks = blocks.clone();
        match self {
            Self::Index => builder.index(IndexFn::new("names", move |map: &CachedObject<ConfigMap>| {
                blocks.call(map.key().name());
                [map.key().name().to_owned()]
            })),
            Self::Transform => builder.transform(move |map: &mut ConfigMap| {
                blocks.call(map.metadata.name.as_deref().unwrap_or_default());
                Ok::<_, String>(())
            }),
            Self::ErrorHandler => {
                let mut options = ReflectorOptions::default();
                options.streaming_lists = false;
                builder.reflector(options).on_error(move |_| blocks.call("bad"))
            }
            Self::Mapping | Self::Predicate | Self::EventFilter | Self::RateLimiter | Self::Span => builder,
        }
    }

    fn controller(
        self,
        maps: &SharedInformer<ConfigMap>,
        builder: ControllerBuilder,
        blocks: &Blocks,
    ) -> ControllerBuilder {
        let blocks = blocks.clone();
        let all = |_: &Event<ConfigMap>| true;
        match self {
            Self::Mapping => {
                let mapping = enqueue::mapped(move |map: &CachedObject<ConfigMap>| {
                    blocks.call(map.key().name());
                    [map.key().clone()]
                });
                builder.informer(maps, &(), mapping, all)
            }
            Self::Predicate => {
                let predicate = move |event: &Event<ConfigMap>| {
                    blocks.call(event.object().key().name());
                    true
                };
                builder.informer(maps, &(), enqueue::object(), predicate)
            }
            Self::EventFilter => {
                let builder = builder.with_event_filter(move |event: &AnyEvent<'_>| {
                    blocks.call(event.object().key().name());
                    true
                });
                builder.informer(maps, &(), enqueue::object(), all)
            }
            Self::RateLimiter => {
                let builder = builder.rate_limiter(Limiter(blocks));
                builder.informer(maps, &(), enqueue::object(), all)
            }
            Self::Span => {
                let builder = builder.span(move |request: &Request| {
                    blocks.call(request.key.name());
                    tracing::Span::none()
                });
                builder.informer(maps, &(), enqueue::object(), all)
            }
            Self::Index | Self::Transform | Self::ErrorHandler => builder.informer(maps, &(), enqueue::object(), all),
        }
    }
}

struct Limiter(Blocks);

impl fmt::Debug for Limiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Limiter")
    }
}

impl RateLimiter<ObjectKey> for Limiter {
    fn when(&mut self, key: &ObjectKey) -> Duration {
        self.0.call(key.name());
        Duration::ZERO
    }

    fn forget(&mut self, _: &ObjectKey) {}

    fn num_requeues(&self, _: &ObjectKey) -> u32 {
        1
    }
}

/// A controller with its own cache.
struct Running {
    source: FakeSource,
    maps: SharedInformer<ConfigMap>,
    reconciled: UnboundedReceiver<String>,
    stop: CancellationToken,
    tasks: [JoinHandle<()>; 2],
}

impl Running {
    fn start(place: Place, blocks: &Blocks) -> Self {
        let source = FakeSource::new();
        if place == Place::ErrorHandler {
            source.fail_lists(Some(Status::failure("no", "Forbidden").with_code(403)));
        }
        let builder = place.informer(SharedInformer::builder(source.clone()), blocks);
        let maps = builder.build().expect("the controller is complete");
        let factory = SharedInformerFactory::new(client());
        let builder = Controller::builder("maps", &factory);
        let (sender, reconciled) = unbounded_channel();
        let controller = place.controller(&maps, builder, blocks).build(move |request: Request| {
            let is_first = request.failures == 0;
            // The receiver is dropped at the end of the test.
            let _ = sender.send(request.key.name().to_owned());
            async move {
                if place == Place::RateLimiter && is_first && request.key.name() == "bad" {
                    return Err(ReconcileError::from("once more"));
                }
                Ok(Action::await_change())
            }
        });
        let controller = controller.expect("the controller is complete");
        let stop = CancellationToken::new();
        let (cache, until, stopped) = (maps.clone(), stop.clone(), stop.clone());
        let tasks = [
            tokio::spawn(async move {
                cache
                    .run(until.cancelled())
                    .await
                    .expect("the informer was not run before")
            }),
            tokio::spawn(async move { controller.run(stopped).await.expect("the caches sync") }),
        ];
        Self {
            source,
            maps,
            reconciled,
            stop,
            tasks,
        }
    }

    fn create(&self, name: &str) {
        self.source
            .add(json!({"metadata": {"name": name, "namespace": "default"}}));
    }

    /// Waits until these objects were reconciled, in any order.
    async fn reconciled(&mut self, names: &[&str]) {
        let mut left = names.to_vec();
        while !left.is_empty() {
            let name = self.reconciled.recv().await.expect("the controller runs");
            if let Some(at) = left.iter().position(|it| *it == name) {
                left.remove(at);
            }
        }
    }

    async fn stopped(self) {
        self.stop.cancel();
        for task in self.tasks {
            task.await.expect("the task does not panic");
        }
    }
}

/// Returns a client that is never used.
fn client() -> kube::Client {
    let never = tower::service_fn(|_: http::Request<kube::client::Body>| {
        std::future::pending::<Result<http::Response<kube::client::Body>, std::convert::Infallible>>()
    });
    kube::Client::new(never, "default")
}

#[rstest]
#[case::mapping(Place::Mapping)]
#[case::predicate(Place::Predicate)]
#[case::event_filter(Place::EventFilter)]
#[case::index(Place::Index)]
#[case::transform(Place::Transform)]
#[case::error_handler(Place::ErrorHandler)]
#[case::rate_limiter(Place::RateLimiter)]
#[case::span(Place::Span)]
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn user_function_that_blocks_a_thread_only_delays_its_own_controller(#[case] place: Place) {
    let ((blocks, mut called), (never, _)) = (Blocks::new(), Blocks::new());
    never.release();
    let (mut blocked, mut other) = (Running::start(place, &blocks), Running::start(place, &never));
    for running in [&blocked, &other] {
        running.create("bad");
    }
    called.recv().await.expect("the call arrives");
    for source in [&blocked.source, &other.source] {
        source.fail_lists(None);
    }
    // While the function hangs, another controller works, and the cache of this controller can be read.
    other.create("good");
    other.reconciled(&["good"]).await;
    assert!(blocked.maps.lister().list().len() <= 1);
    // Once the function returns, changes have not been lost.
    blocks.release();
    blocked.create("good");
    let calls: &[&str] = if place == Place::RateLimiter {
        &["bad", "bad", "good"]
    } else {
        &["bad", "good"]
    };
    blocked.reconciled(calls).await;
    blocked.stopped().await;
    other.stopped().await;
}

#[rstest]
#[case::mapping(Place::Mapping)]
#[case::predicate(Place::Predicate)]
#[case::event_filter(Place::EventFilter)]
#[case::index(Place::Index)]
#[case::transform(Place::Transform)]
#[case::error_handler(Place::ErrorHandler)]
#[case::rate_limiter(Place::RateLimiter)]
#[case::span(Place::Span)]
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn controller_stops_after_a_blocking_call_returns(#[case] place: Place) {
    let (blocks, mut called) = Blocks::new();
    let running = Running::start(place, &blocks);
    running.create("bad");
    called.recv().await.expect("the call arrives");
    running.stop.cancel();
    assert!(!running.tasks.iter().all(JoinHandle::is_finished));
    blocks.release();
    running.stopped().await;
}
