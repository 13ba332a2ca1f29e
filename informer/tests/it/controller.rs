//! Controllers: triggers, results of reconciles, and shutdown.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use informer::cache::SharedInformerFactory;
use informer::handler::{enqueue, predicates};
use informer::metrics::Metrics;
use informer::queue::{FastSlow, LOW_PRIORITY};
use informer::reconcile::{Action, ReconcileError, Request, Writes};
use informer::runtime::{Controller, ControllerBuilder};
use informer::{Error, ObjectKey};
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret};
use kube::Api;
use kube::api::PostParams;
use rstest::rstest;
use testkit::objects::{config_map, pod, secret};
use testkit::{TestCluster, Verb, faults};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Recorded calls of a reconciler.
#[derive(Clone, Default)]
struct Calls(Arc<Mutex<Vec<(Request, Instant)>>>);

impl Calls {
    fn take(&self) -> Vec<String> {
        let calls = std::mem::take(&mut *self.0.lock().expect("the lock is not poisoned"));
        calls.iter().map(|(it, _)| it.key.name().to_owned()).collect()
    }

    /// Returns the milliseconds between consecutive calls.
    fn gaps(&self) -> Vec<u128> {
        let calls = self.0.lock().expect("the lock is not poisoned");
        calls
            .windows(2)
            .map(|pair| (pair[1].1 - pair[0].1).as_millis())
            .collect()
    }

    /// Returns a reconciler that records its calls and returns the result of `answer`.
    fn reconciler<F>(
        &self,
        answer: F,
    ) -> impl Fn(Request) -> std::future::Ready<Result<Action, ReconcileError>> + Send + Sync + 'static
    where
        F: Fn(&Request) -> Result<Action, ReconcileError> + Send + Sync + 'static,
    {
        let calls = self.clone();
        move |request| {
            calls
                .0
                .lock()
                .expect("the lock is not poisoned")
                .push((request.clone(), Instant::now()));
            std::future::ready(answer(&request))
        }
    }
}

fn done(_: &Request) -> Result<Action, ReconcileError> {
    Ok(Action::await_change())
}

/// Runs a controller of ConfigMaps.
fn run(
    cluster: &TestCluster,
    configure: impl FnOnce(ControllerBuilder) -> ControllerBuilder,
    answer: impl Fn(&Request) -> Result<Action, ReconcileError> + Send + Sync + 'static,
) -> (Calls, CancellationToken) {
    let (calls, stop) = (Calls::default(), CancellationToken::new());
    let factory = SharedInformerFactory::new(cluster.client());
    let builder = Controller::builder("maps", &factory).for_::<ConfigMap>();
    let controller = configure(builder)
        .build(calls.reconciler(answer))
        .expect("the controller is complete");
    cluster.run({
        let stop = stop.clone();
        async move {
            controller.run(stop).await.expect("the caches sync");
            factory.shutdown().await;
        }
    });
    (calls, stop)
}

#[tokio::test(start_paused = true)]
async fn changes_and_deletions_enqueue_the_key_of_the_object() {
    let cluster = TestCluster::start();
    cluster.create(config_map("a")).await;
    let (calls, _stop) = run(&cluster, |it| it, done);
    cluster.settle().await;
    assert_eq!(calls.take(), ["a"]);
    cluster.create(config_map("b")).await;
    cluster.settle().await;
    assert_eq!(calls.take(), ["b"]);
    cluster
        .patch::<ConfigMap>("a", serde_json::json!({"data": {"color": "red"}}))
        .await;
    cluster.settle().await;
    assert_eq!(calls.take(), ["a"]);
    cluster.delete::<ConfigMap>("a").await;
    cluster.settle().await;
    assert_eq!(calls.take(), ["a"], "deleted objects are reconciled, too");
}

#[tokio::test(start_paused = true)]
async fn owned_objects_enqueue_the_owner_and_watched_objects_the_mapped_keys() {
    let cluster = TestCluster::start();
    let map = cluster.create(config_map("owner")).await;
    let (calls, _stop) = run(
        &cluster,
        |it| {
            it.owns::<Secret>()
                .watches_metadata::<Pod>(enqueue::mapped(|pod: &informer::CachedObject<_>| {
                    [ObjectKey::new("default", &format!("of-{}", pod.key().name()))]
                }))
        },
        done,
    );
    cluster.settle().await;
    calls.take();
    cluster.create(secret("owned").owned_by(&map)).await;
    cluster.create(secret("free")).await;
    cluster.settle().await;
    assert_eq!(calls.take(), ["owner"]);
    cluster.create(pod("web")).await;
    cluster.settle().await;
    assert_eq!(calls.take(), ["of-web"]);
    cluster.delete::<Secret>("owned").await;
    cluster.settle().await;
    assert_eq!(calls.take(), ["owner"]);
}

#[tokio::test(start_paused = true)]
async fn deletion_found_by_a_relist_is_reconciled() {
    let cluster = TestCluster::start();
    cluster.create(config_map("a")).await;
    let (calls, _stop) = run(&cluster, |it| it, done);
    cluster.settle().await;
    calls.take();
    let cut = cluster.inject(faults::server_error().on(Verb::Watch, "configmaps"));
    cluster.watches().on("configmaps").end();
    cluster.delete::<ConfigMap>("a").await;
    cluster.expire_watches();
    cluster.advance(Duration::from_secs(1)).await;
    drop(cut);
    cluster.advance(Duration::from_secs(120)).await;
    assert_eq!(calls.take(), ["a"]);
}

#[rstest]
#[case::error(&[5, 10, 20, 40], |_: &Request| Err("the reconcile fails".into()))]
#[case::back_off(&[5, 10, 20, 40], |_: &Request| Ok(Action::back_off()))]
#[case::panic(&[5, 10, 20, 40], |_: &Request| panic!("the reconcile panics"))]
#[case::requeue(&[3000, 3000, 3000, 3000], |_: &Request| Ok(Action::requeue(Duration::from_secs(3))))]
#[case::terminal(&[], |_: &Request| Err(ReconcileError::terminal("the reconcile cannot succeed")))]
#[case::requeue_resets_failures(&[5, 60_000, 5, 60_000], |it: &Request| match it.failures {
    0 => Err("once".into()),
    _ => Ok(Action::requeue(Duration::from_secs(60))),
})]
#[case::requeue_after_zero(&[], |_: &Request| Ok(Action::requeue(Duration::ZERO)))]
#[tokio::test(start_paused = true)]
async fn reconcile_result_determines_the_next_reconcile(
    #[case] gaps: &[u128],
    #[case] answer: fn(&Request) -> Result<Action, ReconcileError>,
) {
    let cluster = TestCluster::start();
    cluster.create(config_map("a")).await;
    let (calls, stop) = run(&cluster, |it| it, answer);
    cluster.advance(Duration::from_secs(200)).await;
    stop.cancel();
    let got = calls.gaps();
    // Tokio's timers have a resolution of a millisecond.
    let is_close = got.iter().zip(gaps).all(|(got, gap)| got.abs_diff(*gap) <= 1);
    assert!(
        is_close && got.len() >= gaps.len() && (!gaps.is_empty() || got.is_empty()),
        "{got:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn success_resets_failures_of_a_custom_rate_limiter() {
    let cluster = TestCluster::start();
    cluster.create(config_map("a")).await;
    let limiter = FastSlow::new(Duration::from_secs(1), Duration::from_secs(30), 2);
    let seen = Arc::new(Mutex::new(Vec::new()));
    let told = Arc::clone(&seen);
    let (calls, _stop) = run(
        &cluster,
        |it| it.rate_limiter(limiter),
        move |request| {
            let mut told = told.lock().expect("the lock is not poisoned");
            told.push(request.failures);
            if told.len() < 4 {
                Err("not yet".into())
            } else {
                Ok(Action::await_change())
            }
        },
    );
    cluster.advance(Duration::from_secs(60)).await;
    assert_eq!(calls.gaps(), [1000, 1000, 30_000]);
    cluster
        .patch::<ConfigMap>("a", serde_json::json!({"data": {"color": "red"}}))
        .await;
    cluster.settle().await;
    assert_eq!(*seen.lock().expect("the lock is not poisoned"), [0, 1, 2, 3, 0]);
}

#[tokio::test(start_paused = true)]
async fn changes_have_a_higher_priority_than_initial_objects() {
    let cluster = TestCluster::start();
    for name in ["a", "b"] {
        cluster.create(config_map(name)).await;
    }
    let (calls, _stop) = run(&cluster, |it| it, done);
    cluster.settle().await;
    let all: Vec<_> = calls
        .0
        .lock()
        .expect("the lock is not poisoned")
        .iter()
        .map(|it| it.0.priority)
        .collect();
    assert_eq!(all, [LOW_PRIORITY, LOW_PRIORITY]);
    calls.take();
    cluster.create(config_map("c")).await;
    cluster.settle().await;
    assert_eq!(calls.0.lock().expect("the lock is not poisoned")[0].0.priority, 0);
}

#[tokio::test(start_paused = true)]
async fn predicate_filters_updates_but_not_deletions() {
    let cluster = TestCluster::start();
    let (calls, stop) = (Calls::default(), CancellationToken::new());
    let factory = SharedInformerFactory::new(cluster.client());
    let controller = Controller::builder("pods", &factory)
        .for_where::<Pod>(predicates::generation_changed())
        .build(calls.reconciler(done))
        .expect("the controller is complete");
    cluster.run(controller.run(stop.clone()));
    cluster.create(pod("a")).await;
    cluster.settle().await;
    assert_eq!(calls.take(), ["a"]);
    cluster
        .patch_status::<Pod>("a", serde_json::json!({"phase": "Running"}))
        .await;
    cluster.settle().await;
    assert!(calls.take().is_empty());
    let api: Api<Pod> = Api::default_namespaced(cluster.client());
    let now = kube::api::DeleteParams::default().grace_period(0);
    api.delete("a", &now).await.expect("the object exists");
    cluster.settle().await;
    assert_eq!(calls.take(), ["a"]);
}

#[tokio::test(start_paused = true)]
async fn reconcile_timeout_is_counted_as_an_error() {
    let cluster = TestCluster::start();
    cluster.create(config_map("a")).await;
    let metrics = Metrics::new();
    let factory = SharedInformerFactory::new(cluster.client());
    let controller = Controller::builder("slow", &factory)
        .for_::<ConfigMap>()
        .reconcile_timeout(Duration::from_secs(2))
        .metrics(&metrics)
        .build(|request: Request| async move {
            match request.failures {
                0 => futures::future::pending().await,
                1 => panic!("the reconcile panics"),
                2 => Err(ReconcileError::terminal("the reconcile cannot succeed")),
                _ => Ok(Action::await_change()),
            }
        })
        .expect("the controller is complete");
    cluster.run(controller.run(CancellationToken::new()));
    cluster.advance(Duration::from_secs(10)).await;
    let text = metrics.render();
    for line in [
        "controller_runtime_reconcile_timeouts_total{controller=\"slow\"} 1",
        "controller_runtime_reconcile_panics_total{controller=\"slow\"} 1",
        "controller_runtime_reconcile_errors_total{controller=\"slow\"} 3",
        "controller_runtime_terminal_reconcile_errors_total{controller=\"slow\"} 1",
        "controller_runtime_reconcile_total{controller=\"slow\",result=\"error\"} 3",
        "controller_runtime_reconcile_total{controller=\"slow\",result=\"success\"} 0",
        "controller_runtime_active_workers{controller=\"slow\"} 0",
        "controller_runtime_max_concurrent_reconciles{controller=\"slow\"} 1",
        "controller_runtime_reconcile_time_seconds_count{controller=\"slow\"} 3",
        "workqueue_retries_total{name=\"slow\",controller=\"slow\"} 2",
    ] {
        assert!(text.lines().any(|it| it == line), "{line} is not in\n{text}");
    }
}

#[tokio::test(start_paused = true)]
async fn reconciles_wait_for_cache_sync_with_a_timeout() {
    let cluster = TestCluster::start();
    cluster.create(config_map("a")).await;
    let broken = cluster.inject(faults::server_error().on(Verb::List, "secrets"));
    let broken_watch = cluster.inject(faults::server_error().on(Verb::Watch, "secrets"));
    let calls = Calls::default();
    let factory = SharedInformerFactory::new(cluster.client());
    let controller = Controller::builder("both", &factory)
        .for_::<ConfigMap>()
        .owns::<Secret>()
        .build(calls.reconciler(done))
        .expect("the controller is complete");
    let began = Instant::now();
    let err = controller
        .run(CancellationToken::new())
        .await
        .expect_err("Secrets cannot be listed");
    assert_eq!(began.elapsed(), Duration::from_secs(120));
    assert!(err.to_string().contains("\"both\": timed out after 120s"), "{err}");
    assert!(calls.take().is_empty() && broken.hits() + broken_watch.hits() > 1);
}

#[rstest]
#[case(1)]
#[case(3)]
#[tokio::test(start_paused = true)]
async fn concurrency_is_limited_and_shutdown_waits_for_reconciles(#[case] concurrency: usize) {
    let cluster = TestCluster::start();
    for name in ["a", "b", "c", "d", "e"] {
        cluster.create(config_map(name)).await;
    }
    // Keys in progress, their maximum number, and completed keys.
    let counts = Arc::new(Mutex::new((0, 0, 0)));
    let factory = SharedInformerFactory::new(cluster.client());
    let (told, stop) = (Arc::clone(&counts), CancellationToken::new());
    let controller = Controller::builder("maps", &factory)
        .for_::<ConfigMap>()
        .concurrency(concurrency)
        .build(move |_: Request| {
            let told = Arc::clone(&told);
            async move {
                {
                    let mut told = told.lock().expect("the lock is not poisoned");
                    told.0 += 1;
                    told.1 = told.0.max(told.1);
                }
                tokio::time::sleep(Duration::from_secs(10)).await;
                let mut told = told.lock().expect("the lock is not poisoned");
                (told.0, told.2) = (told.0 - 1, told.2 + 1);
                Ok::<_, ReconcileError>(Action::await_change())
            }
        })
        .expect("the controller is complete");
    let running = cluster.run(controller.run(stop.clone()));
    cluster.advance(Duration::from_secs(5)).await;
    stop.cancel();
    cluster.advance(Duration::from_secs(2)).await;
    assert!(running.is_running(), "shutdown waits for running reconciles");
    cluster.advance(Duration::from_secs(10)).await;
    assert!(!running.is_running());
    let (active, most, done) = *counts.lock().expect("the lock is not poisoned");
    assert_eq!(
        (active, most, done),
        (0, concurrency, concurrency),
        "shutdown starts no further reconciles"
    );
}

#[tokio::test(start_paused = true)]
async fn channel_and_function_can_be_sources() {
    let cluster = TestCluster::start();
    let (keys, receiver) = tokio::sync::mpsc::channel(4);
    let (calls, _stop) = run(
        &cluster,
        |it| {
            it.channel(receiver).source(|queue, stop| async move {
                queue.add(ObjectKey::new("default", "from-source"));
                stop.cancelled().await;
            })
        },
        done,
    );
    cluster.settle().await;
    keys.send(ObjectKey::new("default", "from-channel"))
        .await
        .expect("the channel is open");
    cluster.settle().await;
    assert_eq!(calls.take(), ["from-source", "from-channel"]);
}

#[rstest]
#[case::no_source(|it: ControllerBuilder| it, "nothing to watch")]
#[case::two_types(|it: ControllerBuilder| it.for_::<Pod>().for_::<Secret>(), "`for_` was called twice")]
#[case::owns_before_for(|it: ControllerBuilder| it.owns::<Pod>(), "`for_` must be called before `owns` for Pod")]
#[tokio::test(start_paused = true)]
async fn invalid_controller_configuration_is_refused(
    #[case] configure: fn(ControllerBuilder) -> ControllerBuilder,
    #[case] why: &str,
) {
    let cluster = TestCluster::start();
    let factory = SharedInformerFactory::new(cluster.client());
    let builder = configure(Controller::builder("bad", &factory));
    let err: Error = builder
        .build(|_: Request| async { Ok::<_, ReconcileError>(Action::await_change()) })
        .expect_err(why);
    assert!(err.to_string().contains(why), "{err}");
}

/// Returns a controller that creates a Secret for each ConfigMap unless the cache contains one. Each Secret has a new
/// name, so that a reconcile with a stale cache is detected.
fn maker(client: kube::Client, factory: &SharedInformerFactory, is_gated: bool) -> Controller {
    let secrets = factory.informer::<Secret>().lister();
    let api: Api<Secret> = Api::default_namespaced(client);
    let mut builder = Controller::builder("maker", factory)
        .for_::<ConfigMap>()
        .owns::<Secret>();
    if !is_gated {
        builder = builder.without_read_your_writes();
    }
    let built = builder.build(move |request: Request| {
        let (secrets, api) = (secrets.clone(), api.clone());
        async move {
            if secrets.is_empty() {
                let mut made = Secret::default();
                made.metadata.generate_name = Some(format!("{}-", request.key.name()));
                api.create(&PostParams::default(), &made).await?;
            }
            // Requeue before any event can arrive.
            Ok::<_, ReconcileError>(Action::requeue(Duration::from_millis(1)))
        }
    });
    built.expect("the controller is complete")
}

#[rstest]
#[case::with_the_gate(true)]
#[case::without_the_gate(false)]
#[tokio::test(start_paused = true)]
async fn gate_holds_a_key_back_until_the_cache_has_its_writes(#[case] is_gated: bool) {
    let cluster = TestCluster::start();
    cluster.create(config_map("a")).await;
    // At first, Secrets can be listed but not watched, so the cache only changes with each list.
    let broken = cluster.inject(faults::server_error().on(Verb::Watch, "secrets"));
    let factory = SharedInformerFactory::new(cluster.client());
    let controller = maker(Writes::new().observe(&cluster.client()), &factory, is_gated);
    cluster.run(controller.run(CancellationToken::new()));
    cluster.advance(Duration::from_secs(10)).await;
    drop(broken);
    cluster.advance(Duration::from_secs(60)).await;
    let made = cluster.list::<Secret>().len();
    match is_gated {
        true => assert_eq!(made, 1),
        false => assert!(
            made > 1,
            "without the gate the object must be created more than once, not {made} times"
        ),
    }
}

#[rstest]
#[case::by_priority(|it: ControllerBuilder| it, [LOW_PRIORITY, 7, 7])]
#[case::first_come_first_served(|it: ControllerBuilder| it.first_come_first_served(), [0, 0, 0])]
#[tokio::test(start_paused = true)]
async fn action_can_change_the_priority_of_a_key_permanently(
    #[case] configure: fn(ControllerBuilder) -> ControllerBuilder,
    #[case] priorities: [i32; 3],
) {
    let cluster = TestCluster::start();
    cluster.create(config_map("a")).await;
    let (calls, _stop) = run(&cluster, configure, |request| match request.id {
        1 => Ok(Action::requeue(Duration::from_secs(1)).with_priority(7)),
        2 => Err("the reconcile fails".into()),
        _ => Ok(Action::await_change()),
    });
    cluster.advance(Duration::from_secs(5)).await;
    let all = calls.0.lock().expect("the lock is not poisoned");
    let all: Vec<_> = all.iter().map(|it| it.0.priority).collect();
    assert_eq!(all, priorities);
}
