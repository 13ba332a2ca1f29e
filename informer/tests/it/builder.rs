//! Watches of a controller in addition to the reconciled type: other forms of objects, other key types, filters, later
//! watches.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::stream;
use informer::cache::{ByObject, IndexFn, SharedInformerFactory};
use informer::handler::{AnyEvent, enqueue};
use informer::queue::{ExponentialBackoff, RateLimiter};
use informer::reconcile::{Action, ReconcileError, Request};
use informer::runtime::{ControllerBuilder, Manager, RequestKey};
use informer::{CachedObject, ObjectKey, Storage};
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret};
use kube::core::ApiResource;
use testkit::TestCluster;
use testkit::objects::{config_map, pod, secret};

type Calls<R = String> = Arc<Mutex<Vec<R>>>;

/// A cluster with a manager, which runs after a controller was added.
struct Process {
    cluster: TestCluster,
    manager: Manager,
}

impl Process {
    fn new() -> Self {
        let cluster = TestCluster::start();
        let manager = Manager::new(cluster.client_named("controller"));
        Self { cluster, manager }
    }

    /// Completes a controller that records its keys, and runs the manager.
    fn run<R: RequestKey>(&self, builder: ControllerBuilder<Manager, R>) -> Calls<R> {
        let calls = Calls::<R>::default();
        let noted = Arc::clone(&calls);
        let reconcile = move |request: Request<R>| {
            noted.lock().expect("the lock is not poisoned").push(request.key);
            async { Ok::<_, ReconcileError>(Action::await_change()) }
        };
        builder.complete(reconcile).expect("the controller is complete");
        let manager = self.manager.clone();
        self.cluster
            .run(async move { manager.run(std::future::pending()).await });
        calls
    }
}

fn take<R>(calls: &Calls<R>) -> Vec<R> {
    std::mem::take(&mut *calls.lock().expect("the lock is not poisoned"))
}

fn text<R: ToString>(calls: &Calls<R>) -> Vec<String> {
    take(calls).iter().map(ToString::to_string).collect()
}

#[tokio::test(start_paused = true)]
async fn controller_watches_primary_and_owned_types_as_metadata() {
    let process = Process::new();
    let builder = process.manager.controller("c").for_metadata::<ConfigMap>();
    let calls = process.run(builder.owns_metadata::<Secret>());
    let owner = process.cluster.create(config_map("m").data("a", "b")).await;
    process.cluster.settle().await;
    assert_eq!(text(&calls), ["default/m"]);
    process.cluster.create(secret("s").owned_by(&owner)).await;
    process.cluster.settle().await;
    assert_eq!(text(&calls), ["default/m"]);
}

#[tokio::test(start_paused = true)]
async fn controller_may_reconcile_dynamic_types() {
    let process = Process::new();
    let (maps, secrets) = (ApiResource::erase::<ConfigMap>(&()), ApiResource::erase::<Secret>(&()));
    let builder = process
        .manager
        .controller("c")
        .for_dynamic(&maps)
        .owns_dynamic(&secrets);
    let calls = process.run(builder);
    let owner = process.cluster.create(config_map("m")).await;
    process.cluster.settle().await;
    process.cluster.create(secret("s").owned_by(&owner)).await;
    process.cluster.settle().await;
    assert_eq!(text(&calls), ["default/m", "default/m"]);
}

#[tokio::test(start_paused = true)]
async fn event_filter_applies_to_every_watch() {
    let process = Process::new();
    let named = |name: &'static str| {
        enqueue::mapped(move |_: &CachedObject<Secret>| [informer::ObjectKey::new("default", name)])
    };
    let is_active = |event: &AnyEvent<'_>| event.object().annotation("paused").is_none();
    let is_no_deletion = |event: &AnyEvent<'_>| !event.is_deletion();
    let builder = process
        .manager
        .controller("c")
        .for_::<ConfigMap>()
        .with_event_filter(is_active);
    let builder = builder
        .watches::<Secret>(named("of-a-secret"))
        .with_event_filter(is_no_deletion);
    let calls = process.run(builder);
    let paused = serde_json::json!({"paused": "yes"});
    process.cluster.create(config_map("a")).await;
    process
        .cluster
        .create(config_map("b").set("metadata.annotations", paused.clone()))
        .await;
    process
        .cluster
        .create(secret("s").set("metadata.annotations", paused))
        .await;
    process.cluster.settle().await;
    assert_eq!(text(&calls), ["default/a"]);
    process.cluster.create(secret("t")).await;
    process.cluster.delete::<ConfigMap>("a").await;
    process.cluster.settle().await;
    assert_eq!(text(&calls), ["default/of-a-secret"]);
}

#[tokio::test(start_paused = true)]
async fn reconcile_keys_may_have_any_type() {
    let process = Process::new();
    let node = enqueue::mapped(|pod: &CachedObject<Pod>| {
        let spec = pod.typed().ok().and_then(|it| it.spec.clone());
        spec.and_then(|it| it.node_name)
    });
    let builder = process.manager.controller("nodes").keyed_by::<String>();
    let calls = process.run(
        builder
            .watches::<Pod>(node)
            .stream(stream::iter(["from-a-stream".to_owned()])),
    );
    process.cluster.create(pod("a").set("spec.nodeName", "n1")).await;
    process.cluster.create(pod("b").set("spec.nodeName", "n1")).await;
    process.cluster.create(pod("c")).await;
    process.cluster.settle().await;
    let mut keys = take(&calls);
    keys.sort();
    keys.dedup();
    assert_eq!(keys, ["from-a-stream", "n1"]);
    let late = process.manager.controller("late").for_::<Pod>().keyed_by::<String>();
    let err = late.complete(|_: Request<String>| async { Ok::<_, ReconcileError>(Action::await_change()) });
    let err = err.expect_err("a watch was added before `keyed_by`").to_string();
    assert!(err.contains("`keyed_by` must precede all watches"), "{err}");
}

#[tokio::test(start_paused = true)]
async fn watches_can_be_added_to_a_running_controller_and_end_with_the_controller() {
    let cluster = TestCluster::start();
    let manager = Manager::new(cluster.client());
    let calls = Calls::<String>::default();
    let noted = Arc::clone(&calls);
    let reconcile = move |request: Request| {
        noted
            .lock()
            .expect("the lock is not poisoned")
            .push(request.key.to_string());
        async { Ok::<_, ReconcileError>(Action::await_change()) }
    };
    let controller = ControllerBuilder::new("c", &manager.factory())
        .for_::<ConfigMap>()
        .build(reconcile);
    let controller = controller.expect("the controller is complete");
    let watches = controller.later_watches();
    manager.add(controller).expect("the runnable is accepted");
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    cluster.run(async move { manager.run(async { drop(stopped.await) }).await });
    cluster.create(secret("s")).await;
    cluster.settle().await;
    assert!(take(&calls).is_empty());
    let registration = watches
        .watch::<Secret>(enqueue::object())
        .expect("the controller has not stopped");
    registration.synced().await.expect("the informer has not stopped");
    cluster.settle().await;
    assert_eq!(take(&calls), ["default/s"]);
    drop(stop);
    cluster.settle().await;
    let err = watches
        .watch::<Pod>(enqueue::object())
        .expect_err("the controller has ended");
    assert_eq!(err.to_string(), "controller \"c\" has ended");
}

#[tokio::test(start_paused = true)]
async fn each_type_may_have_its_own_cache_options() {
    let cluster = TestCluster::start();
    for (name, namespace) in [("a", "shop"), ("b", "shop"), ("c", "billing")] {
        let map = config_map(name).namespace(namespace).data("key", name);
        cluster
            .create(map.label("keep", if name == "b" { "no" } else { "yes" }))
            .await;
        cluster.create(secret(name).namespace(namespace)).await;
    }
    let by_name = IndexFn::new("name", |map: &CachedObject<ConfigMap>| [map.key().name().to_owned()]);
    let maps = ByObject::<ConfigMap>::new()
        .all_namespaces()
        .source(|it| it.labels("keep=yes"));
    let maps = maps.informer(move |it| {
        let without_data = |map: &mut ConfigMap| {
            map.data = None;
            Ok::<_, &str>(())
        };
        it.storage(Storage::Typed)
            .index(by_name.clone())
            .transform(without_data)
    });
    let builder = SharedInformerFactory::builder(cluster.client()).namespace("shop");
    let factory = builder
        .by_object(maps)
        .expect("the cache options are consistent")
        .build();
    let (maps, secrets) = (factory.informer::<ConfigMap>(), factory.informer::<Secret>());
    factory.start();
    factory.wait_for_cache_sync().await.expect("all caches sync");
    let keys: Vec<_> = maps.lister().list().iter().map(|it| it.key().to_string()).collect();
    assert_eq!(keys, ["billing/c", "shop/a"]);
    assert_eq!(
        secrets.lister().len(),
        2,
        "other types use the namespaces of the factory"
    );
    let found = maps.lister().by_index("name", "c").expect("the index exists");
    assert_eq!(found[0].typed().expect("the object is a ConfigMap").data, None);
}

#[tokio::test(start_paused = true)]
async fn inconsistent_cache_options_are_refused() {
    let cluster = TestCluster::start();
    let index = || IndexFn::new("name", |_: &CachedObject<ConfigMap>| Vec::<String>::new());
    let twice = ByObject::<ConfigMap>::new().informer(move |it| it.index(index()).index(index()));
    let builder = || SharedInformerFactory::builder(cluster.client());
    assert!(
        builder().by_object(twice).is_err(),
        "two indexes with the same name are refused"
    );
    let builder = builder()
        .by_object(ByObject::<ConfigMap>::new())
        .expect("the type has no earlier options");
    let err = builder
        .by_object(ByObject::<ConfigMap>::new())
        .expect_err("the type already has options")
        .to_string();
    assert!(err.contains("ConfigMap already has options"), "{err}");
}

#[tokio::test(start_paused = true)]
async fn manager_reports_the_state_of_its_caches() {
    let cluster = TestCluster::start();
    for (name, namespace) in [("a", "shop"), ("b", "shop"), ("c", "billing")] {
        cluster.create(config_map(name).namespace(namespace)).await;
        cluster.create(secret(name).namespace(namespace)).await;
    }
    let maps = ByObject::<ConfigMap>::new().all_namespaces();
    let builder = Manager::builder(cluster.client_named("operator"));
    let builder = builder
        .cache(|it| it.namespace("shop").by_object(maps))
        .expect("the cache options are consistent");
    let manager = builder.build().expect("a manager without leader election can be built");
    let (maps, secrets) = (manager.lister::<ConfigMap>(), manager.lister::<Secret>());
    cluster.run({
        let manager = manager.clone();
        async move { manager.run(std::future::pending()).await }
    });
    cluster.settle().await;
    assert_eq!((maps.len(), secrets.len()), (3, 2));
    let text = manager.metrics().render();
    let sent = cluster.requests().client("operator").count();
    assert!(
        text.contains(&format!(
            "rest_client_requests_total{{code=\"200\",method=\"GET\"}} {sent}"
        )),
        "{text}"
    );
    let twice = ByObject::<ConfigMap>::new;
    let builder = Manager::builder(cluster.client());
    assert!(builder.cache(|it| it.by_object(twice())?.by_object(twice())).is_err());
}

/// Returns the timeouts that informers request for their watches, which are random.
async fn watch_timeouts(manager_seed: u64, cache_seed: u64) -> Vec<String> {
    let cluster = TestCluster::start();
    let builder = Manager::builder(cluster.client()).seed(manager_seed);
    let builder = builder.cache(|it| Ok::<_, informer::Error>(it.seed(cache_seed)));
    let builder = builder.expect("the cache options are consistent");
    let manager = builder.build().expect("a manager without leader election can be built");
    manager.factory().informer::<ConfigMap>();
    manager.factory().informer::<Secret>();
    cluster.run(async move { manager.run(std::future::pending()).await });
    cluster.settle().await;
    let requests = cluster.journal().requests();
    let mut timeouts: Vec<_> = requests
        .iter()
        .filter_map(|it| it.path.split_once("timeoutSeconds="))
        .map(|(_, rest)| rest.split('&').next().unwrap_or_default().to_owned())
        .collect();
    timeouts.sort();
    timeouts
}

#[tokio::test(start_paused = true)]
async fn seed_of_the_cache_overrides_the_seed_of_the_manager() {
    let timeouts = watch_timeouts(1, 7).await;
    assert_eq!(timeouts.len(), 2, "{timeouts:?}");
    assert_eq!(watch_timeouts(2, 7).await, timeouts);
    assert_ne!(watch_timeouts(1, 8).await, timeouts);
    assert_eq!(watch_timeouts(7, 0).await, timeouts);
}

/// A rate limiter that counts the calls of `forget` and `num_requeues`.
#[derive(Clone, Debug, Default)]
struct Asked(Arc<AtomicU32>, ExponentialBackoff<ObjectKey>);

impl RateLimiter<ObjectKey> for Asked {
    fn when(&mut self, key: &ObjectKey) -> Duration {
        self.1.when(key)
    }

    fn forget(&mut self, key: &ObjectKey) {
        self.0.fetch_add(1, Ordering::Relaxed);
        self.1.forget(key);
    }

    fn num_requeues(&self, key: &ObjectKey) -> u32 {
        self.0.fetch_add(1, Ordering::Relaxed);
        self.1.num_requeues(key)
    }
}

#[tokio::test(start_paused = true)]
async fn rate_limiter_is_only_called_for_failed_keys() {
    let process = Process::new();
    let (limiter, failures) = (Asked::default(), Arc::new(Mutex::new(Vec::new())));
    let (asked, seen) = (Arc::clone(&limiter.0), Arc::clone(&failures));
    let builder = process
        .manager
        .controller("c")
        .for_::<ConfigMap>()
        .rate_limiter(limiter);
    let reconcile = move |request: Request| {
        let fails = request.key.name() == "bad" && request.failures < 2;
        seen.lock()
            .expect("the lock is not poisoned")
            .push((request.key.name().to_owned(), request.failures));
        async move {
            if fails {
                return Err(ReconcileError::from("not yet"));
            }
            Ok(Action::await_change())
        }
    };
    builder.complete(reconcile).expect("the controller is complete");
    let manager = process.manager.clone();
    process
        .cluster
        .run(async move { manager.run(std::future::pending()).await });
    process.cluster.create(config_map("good")).await;
    process.cluster.settle().await;
    assert_eq!((take(&failures).len(), asked.load(Ordering::Relaxed)), (1, 0));
    process.cluster.create(config_map("bad")).await;
    process.cluster.settle().await;
    // Success resets the failures, so the next change starts with zero failures.
    let change = serde_json::json!({"data": {"a": "b"}});
    let _: testkit::Object = process.cluster.patch(config_map("bad"), change).await;
    process.cluster.settle().await;
    let failures: Vec<_> = take(&failures).into_iter().map(|(_, failures)| failures).collect();
    assert_eq!(failures, [0, 1, 2, 0, 1, 2]);
    assert_eq!(
        asked.load(Ordering::Relaxed),
        6,
        "the limiter is called for each failure and to reset it"
    );
}
