//! User functions that panic, hang, are slow or are cancelled: changes are not lost, and other functions continue.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use informer::cache::{ApiListWatch, HandlerOptions, IndexFn, SharedInformer, SharedInformerFactory};
use informer::handler::{AnyEvent, Event, HandlerError, HandlerFn, ResourceEventHandler, enqueue};
use informer::metrics::Metrics;
use informer::queue::RateLimiter;
use informer::reconcile::{Action, ReconcileError, Request};
use informer::runtime::{Controller, ControllerBuilder, Endpoints, Manager};
use informer::{CachedObject, ObjectKey};
use k8s_openapi::api::core::v1::ConfigMap;
use rstest::rstest;
use testkit::TestCluster;
use testkit::objects::config_map;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::spans::Lines;

/// A function that panics in its first calls.
#[derive(Clone)]
struct Panics(Arc<AtomicU32>);

impl Panics {
    fn times(count: u32) -> Self {
        Self(Arc::new(AtomicU32::new(count)))
    }

    fn call(&self) {
        let left = self
            .0
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |it| it.checked_sub(1));
        assert!(left.is_err(), "the user function panics");
    }
}

fn mapping(builder: ControllerBuilder, panics: Panics) -> ControllerBuilder {
    builder.watches::<ConfigMap>(enqueue::mapped(move |map: &CachedObject<ConfigMap>| {
        panics.call();
        [map.key().clone()]
    }))
}

fn predicate(builder: ControllerBuilder, panics: Panics) -> ControllerBuilder {
    builder.watches_where::<ConfigMap>(enqueue::object(), move |_: &Event<ConfigMap>| {
        panics.call();
        true
    })
}

fn event_filter(builder: ControllerBuilder, panics: Panics) -> ControllerBuilder {
    builder
        .with_event_filter(move |_: &AnyEvent<'_>| {
            panics.call();
            true
        })
        .for_::<ConfigMap>()
}

/// Function that adds a watch of ConfigMaps with a user function.
type Watching = fn(ControllerBuilder, Panics) -> ControllerBuilder;

#[rstest]
#[case::mapping(mapping)]
#[case::predicate(predicate)]
#[case::event_filter(event_filter)]
#[tokio::test(start_paused = true)]
async fn change_is_redelivered_after_a_panic_of_a_user_function(
    #[case] watching: Watching,
    #[values(1, 3)] times: u32,
) {
    let cluster = TestCluster::start();
    let (factory, metrics) = (SharedInformerFactory::new(cluster.client()), Metrics::new());
    let panics = Panics::times(0);
    let builder = watching(Controller::builder("maps", &factory), panics.clone());
    let seen: Arc<std::sync::Mutex<Vec<ObjectKey>>> = Arc::default();
    let noted = Arc::clone(&seen);
    let controller = builder.metrics(&metrics).build(move |request: Request| {
        noted.lock().expect("the lock is not poisoned").push(request.key);
        async { Ok::<_, ReconcileError>(Action::await_change()) }
    });
    cluster.run(
        controller
            .expect("the controller is complete")
            .run(CancellationToken::new()),
    );
    cluster.settle().await;
    panics.0.store(times, Ordering::Relaxed);
    cluster.create(config_map("a")).await;
    cluster.create(config_map("b")).await;
    cluster.advance(Duration::from_secs(30)).await;
    let mut seen = seen.lock().expect("the lock is not poisoned").clone();
    seen.sort();
    seen.dedup();
    assert_eq!(seen, ["a", "b"].map(|it| ObjectKey::new("default", it)));
    let figures = metrics.render();
    let counted = format!("informer_event_panics_total{{controller=\"maps\"}} {times}");
    assert!(figures.contains(&counted), "{figures}");
}

/// Behaviour of a user function for the object `bad`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    Panic,
    Hang,
    Slow,
}

impl Fault {
    async fn happen(self) {
        match self {
            Self::Panic => panic!("the user function panics"),
            Self::Hang => std::future::pending().await,
            Self::Slow => sleep(Duration::from_secs(5)).await,
        }
    }
}

struct Faulty(Fault);

impl ResourceEventHandler<ConfigMap> for Faulty {
    async fn on_event(&self, event: &Event<ConfigMap>) -> Result<(), HandlerError> {
        if event.object().key().name() == "bad" {
            self.0.happen().await;
        }
        Ok(())
    }
}

#[rstest]
#[tokio::test(start_paused = true)]
async fn faulty_handler_does_not_delay_other_handlers_and_can_be_removed(
    #[values(Fault::Panic, Fault::Hang, Fault::Slow)] fault: Fault,
) {
    let cluster = TestCluster::start();
    let maps = SharedInformer::<ConfigMap>::new(ApiListWatch::all::<ConfigMap>(cluster.client(), &()));
    let faulty = maps.add_handler(Faulty(fault)).expect("the informer has not stopped");
    let seen: Arc<std::sync::Mutex<Vec<String>>> = Arc::default();
    let noted = Arc::clone(&seen);
    let other = HandlerFn::new(move |event: &Event<ConfigMap>| {
        let name = event.object().key().name().to_owned();
        noted.lock().expect("the lock is not poisoned").push(name);
    });
    maps.add_handler(other).expect("the informer has not stopped");
    let stop = CancellationToken::new();
    let running = cluster.run({
        let (maps, stop) = (maps.clone(), stop.clone());
        async move { maps.run(stop.cancelled()).await }
    });
    maps.synced().await.expect("the cache syncs");
    for name in ["bad", "good"] {
        cluster.create(config_map(name)).await;
    }
    cluster.advance(Duration::from_secs(1)).await;
    assert_eq!(*seen.lock().expect("the lock is not poisoned"), ["bad", "good"]);
    assert_eq!(maps.lister().len(), 2);
    cluster.advance(Duration::from_secs(10)).await;
    assert_eq!(faulty.failures(), u64::from(fault == Fault::Panic));
    // The informer waits for the call that hangs. In a manager, the shutdown timeout limits this.
    maps.remove_handler(&faulty);
    assert!(faulty.has_synced());
    stop.cancel();
    cluster.advance(Duration::from_secs(10)).await;
    assert_eq!(running.is_running(), fault == Fault::Hang);
}

#[rstest]
#[tokio::test(start_paused = true)]
async fn faulty_reconcile_does_not_delay_other_keys(#[values(Fault::Panic, Fault::Hang, Fault::Slow)] fault: Fault) {
    let cluster = TestCluster::start();
    let (factory, metrics) = (SharedInformerFactory::new(cluster.client()), Metrics::new());
    let done: Arc<AtomicU32> = Arc::default();
    let count = Arc::clone(&done);
    let builder = Controller::builder("maps", &factory).for_::<ConfigMap>().concurrency(2);
    let builder = builder.reconcile_timeout(Duration::from_secs(30)).metrics(&metrics);
    let controller = builder.build(move |request: Request| {
        let count = Arc::clone(&count);
        async move {
            if request.key.name() == "bad" {
                fault.happen().await;
            } else {
                count.fetch_add(1, Ordering::Relaxed);
            }
            Ok::<_, ReconcileError>(Action::await_change())
        }
    });
    cluster.run(
        controller
            .expect("the controller is complete")
            .run(CancellationToken::new()),
    );
    cluster.settle().await;
    for name in ["bad", "good-1", "good-2"] {
        cluster.create(config_map(name)).await;
    }
    cluster.advance(Duration::from_secs(1)).await;
    assert_eq!(done.load(Ordering::Relaxed), 2);
    cluster.advance(Duration::from_secs(60)).await;
    let text = metrics.render();
    let counted = |name: &str| {
        let line = format!("controller_runtime_reconcile_{name}_total{{controller=\"maps\"}} 0");
        !text.contains(&line)
    };
    let expected = (fault != Fault::Slow, fault == Fault::Panic, fault == Fault::Hang);
    assert_eq!(
        (counted("errors"), counted("panics"), counted("timeouts")),
        expected,
        "{text}"
    );
}

/// A call in progress, which increments a counter when it ends.
struct Call(Arc<AtomicU32>);

impl Drop for Call {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

struct Hanging(Arc<AtomicU32>);

impl ResourceEventHandler<ConfigMap> for Hanging {
    async fn on_event(&self, _: &Event<ConfigMap>) -> Result<(), HandlerError> {
        let _call = Call(Arc::clone(&self.0));
        std::future::pending().await
    }
}

#[rstest]
#[case::handler(true)]
#[case::reconcile(false)]
#[tokio::test(start_paused = true)]
async fn call_in_progress_is_dropped_when_the_process_crashes(#[case] is_handler: bool) {
    let cluster = TestCluster::start();
    let ended: Arc<AtomicU32> = Arc::default();
    let running = if is_handler {
        let maps = SharedInformer::<ConfigMap>::new(ApiListWatch::all::<ConfigMap>(cluster.client(), &()));
        maps.add_handler(Hanging(Arc::clone(&ended)))
            .expect("the informer has not stopped");
        cluster.run(async move { maps.run(std::future::pending()).await })
    } else {
        let (factory, ended) = (SharedInformerFactory::new(cluster.client()), Arc::clone(&ended));
        let controller = Controller::builder("maps", &factory)
            .for_::<ConfigMap>()
            .build(move |_: Request| {
                let call = Call(Arc::clone(&ended));
                async move {
                    let _call = call;
                    std::future::pending::<Result<Action, ReconcileError>>().await
                }
            });
        cluster.run(
            controller
                .expect("the controller is complete")
                .run(CancellationToken::new()),
        )
    };
    cluster.create(config_map("a")).await;
    cluster.advance(Duration::from_secs(1)).await;
    assert_eq!(ended.load(Ordering::Relaxed), 0);
    running.crash();
    cluster.advance(Duration::from_secs(1)).await;
    assert_eq!(ended.load(Ordering::Relaxed), 1);
}

/// Function that creates an informer with a user function that panics for the object `bad`.
type Panicking = fn(ApiListWatch) -> SharedInformer<ConfigMap>;

fn index(source: ApiListWatch) -> SharedInformer<ConfigMap> {
    let index = IndexFn::new("picky", |map: &CachedObject<ConfigMap>| {
        assert_ne!(map.key().name(), "bad", "the user function panics");
        [map.key().name().to_owned()]
    });
    let builder = SharedInformer::builder(source).index(index);
    builder.build().expect("the controller is complete")
}

fn transform(source: ApiListWatch) -> SharedInformer<ConfigMap> {
    let builder = SharedInformer::builder(source).transform(|map: &mut ConfigMap| {
        assert_ne!(map.metadata.name.as_deref(), Some("bad"), "the user function panics");
        Ok::<_, String>(())
    });
    builder.build().expect("the controller is complete")
}

fn error_handler(source: ApiListWatch) -> SharedInformer<ConfigMap> {
    let builder = SharedInformer::builder(source).on_error(|_| panic!("the user function panics"));
    builder.build().expect("the controller is complete")
}

#[rstest]
#[case::index(index, &["bad", "good"])]
#[case::transform(transform, &["good"])]
#[case::error_handler(error_handler, &["bad", "good"])]
#[tokio::test(start_paused = true)]
async fn panic_in_a_user_function_of_an_informer_does_not_affect_other_objects(
    #[case] panicking: Panicking,
    #[case] stored: &[&str],
) {
    let cluster = TestCluster::start();
    let source = ApiListWatch::all::<ConfigMap>(cluster.client_named("cache"), &());
    let refused = cluster.inject(testkit::faults::status(403, "Forbidden").client("cache").times(3));
    let maps = panicking(source);
    let runs = maps.clone();
    cluster.run(async move { runs.run(std::future::pending()).await });
    maps.synced().await.expect("the cache syncs");
    assert!(refused.hits() > 0);
    for name in ["bad", "good"] {
        cluster.create(config_map(name)).await;
    }
    cluster.advance(Duration::from_secs(1)).await;
    let names: Vec<_> = maps
        .lister()
        .list()
        .iter()
        .map(|it| it.key().name().to_owned())
        .collect();
    assert_eq!(names, stored);
}

/// A handler that fails for the object `bad`, and panics for the object `worse`.
struct Failing;

impl ResourceEventHandler<ConfigMap> for Failing {
    async fn on_event(&self, event: &Event<ConfigMap>) -> Result<(), HandlerError> {
        match event.object().key().name() {
            "bad" => Err("not accepted".into()),
            "worse" => panic!("the user function panics"),
            _ => Ok(()),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn failed_handlers_and_index_functions_are_counted_and_logged_with_the_object() {
    let (lines, _guard) = Lines::start();
    let (cluster, metrics) = (TestCluster::start(), Metrics::new());
    let maps = index(ApiListWatch::all::<ConfigMap>(cluster.client(), &()));
    maps.register_metrics(&metrics);
    let options = HandlerOptions {
        name: Some("failing".to_owned()),
        ..HandlerOptions::default()
    };
    let failing = maps.add_handler_with(Failing, options);
    let failing = failing.expect("the informer has not stopped");
    let runs = maps.clone();
    cluster.run(async move { runs.run(std::future::pending()).await });
    maps.synced().await.expect("the cache syncs");
    let counted = |handler: u32, index: u32| {
        let text = metrics.render();
        let labels = "name=\"/api/v1/configmaps\",type=\"ConfigMap\"";
        for line in [
            format!("informer_handler_failures_total{{{labels},handler=\"failing\"}} {handler}\n"),
            format!("informer_index_panics_total{{{labels},index=\"picky\"}} {index}\n"),
        ] {
            assert!(text.contains(&line), "{text}");
        }
    };
    counted(0, 0);
    for name in ["bad", "worse", "good"] {
        cluster.create(config_map(name)).await;
    }
    cluster.advance(Duration::from_secs(1)).await;
    counted(2, 1);
    assert_eq!(failing.failures(), 2);
    for (message, object) in [
        ("the handler failed: not accepted", "object=default/bad "),
        (
            "the handler panicked: the user function panics",
            "object=default/worse ",
        ),
        ("an index function panicked", "object=default/bad@"),
    ] {
        let logged = lines.with(message);
        assert!(logged.len() == 1 && logged[0].contains(object), "{logged:?}");
    }
    maps.remove_handler(&failing);
    counted(2, 1);
}

/// Function that adds a user function to a controller. The user function panics after ten seconds or at the first
/// failure.
type Ending = fn(ControllerBuilder<Manager>) -> ControllerBuilder<Manager>;

async fn panic_later() {
    sleep(Duration::from_secs(10)).await;
    panic!("the user function panics");
}

fn source(builder: ControllerBuilder<Manager>) -> ControllerBuilder<Manager> {
    builder.source(|_, _| panic_later())
}

fn two_sources(builder: ControllerBuilder<Manager>) -> ControllerBuilder<Manager> {
    builder.source(|_, _| async {}).source(|_, _| panic_later())
}

fn stream(builder: ControllerBuilder<Manager>) -> ControllerBuilder<Manager> {
    builder.stream(futures::stream::once(async {
        panic_later().await;
        ObjectKey::new("default", "a")
    }))
}

fn trigger(builder: ControllerBuilder<Manager>) -> ControllerBuilder<Manager> {
    builder.reconcile_all_on(futures::stream::once(panic_later()))
}

fn warmed_up(builder: ControllerBuilder<Manager>) -> ControllerBuilder<Manager> {
    source(builder).warm_up()
}

struct PanickingLimiter;

impl fmt::Debug for PanickingLimiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PanickingLimiter")
    }
}

impl RateLimiter<ObjectKey> for PanickingLimiter {
    fn when(&mut self, _: &ObjectKey) -> Duration {
        panic!("the user function panics")
    }

    fn forget(&mut self, _: &ObjectKey) {}

    fn num_requeues(&self, _: &ObjectKey) -> u32 {
        0
    }
}

fn rate_limiter(builder: ControllerBuilder<Manager>) -> ControllerBuilder<Manager> {
    builder.rate_limiter(PanickingLimiter)
}

/// A controller cannot continue if a source of keys has panicked, or if the delay of a key is unknown.
#[rstest]
#[case::source(source)]
#[case::two_sources(two_sources)]
#[case::stream(stream)]
#[case::trigger(trigger)]
#[case::warmed_up_source(warmed_up)]
#[case::rate_limiter(rate_limiter)]
#[tokio::test(start_paused = true)]
async fn panicking_source_or_rate_limiter_ends_the_manager(#[case] ending: Ending) {
    let cluster = TestCluster::start();
    let manager = Manager::new(cluster.client());
    let builder = ending(manager.controller("maps").for_::<ConfigMap>());
    let reconcile = |_: Request| async { Err::<Action, _>(ReconcileError::from("not yet")) };
    builder.complete(reconcile).expect("the controller is complete");
    let ended: Arc<std::sync::Mutex<Option<String>>> = Arc::default();
    let noted = Arc::clone(&ended);
    cluster.run(async move {
        let result = manager.run(std::future::pending()).await;
        let err = result.expect_err("the manager ends with an error").to_string();
        *noted.lock().expect("the lock is not poisoned") = Some(err);
    });
    cluster.advance(Duration::from_secs(5)).await;
    assert_eq!(*ended.lock().expect("the lock is not poisoned"), None);
    cluster.create(config_map("a")).await;
    cluster.advance(Duration::from_secs(10)).await;
    let ended = ended.lock().expect("the lock is not poisoned").clone();
    let ended = ended.expect("the manager has ended");
    assert!(
        ended.contains("maps") && ended.contains("panic") && ended.contains(": the user function panics"),
        "{ended}"
    );
}

#[test]
fn panicking_health_check_fails() {
    let endpoints = Endpoints::new(&Metrics::new());
    endpoints.add_readyz("good", || Ok(()));
    endpoints.add_readyz("bad", || panic!("the user function panics"));
    let all = endpoints.answer("/readyz", "");
    assert_eq!(
        (all.code, all.body.as_str()),
        (500, "[-]bad failed: reason withheld\n[+]good ok\nreadyz check failed\n")
    );
    let bad = endpoints.answer("/readyz/bad", "");
    assert_eq!(bad.code, 500);
    assert!(bad.body.contains("panic: the user function panics"), "{}", bad.body);
    assert_eq!(endpoints.answer("/readyz/good", "").code, 200);
}
