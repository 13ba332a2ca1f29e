//! Read-your-writes for types with several caches: selection of the caches that must receive a controller's writes.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use informer::ObjectKey;
use informer::cache::{ApiListWatch, SharedInformer, SharedInformerFactory};
use informer::handler::{Event, ToKeys, enqueue};
use informer::metrics::Metrics;
use informer::reconcile::{Action, ReconcileError, Request, Writes};
use informer::runtime::{Controller, ControllerBuilder};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret};
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use rstest::rstest;
use serde_json::json;
use testkit::objects::{config_map, namespace, secret};
use testkit::{TestCluster, Verb, faults};
use tokio_util::sync::CancellationToken;

/// Returns a running informer of the Secrets of a source.
fn part(cluster: &TestCluster, source: ApiListWatch) -> SharedInformer<Secret> {
    let informer = SharedInformer::new(source);
    let runs = informer.clone();
    cluster.run(async move { runs.run(std::future::pending()).await });
    informer
}

/// Adds an informer only for its cache: its events do not trigger reconciles.
fn with(builder: ControllerBuilder, informer: &SharedInformer<Secret>) -> ControllerBuilder {
    builder.informer(informer, &(), nobody(), |_: &Event<Secret>| true)
}

fn nobody() -> impl ToKeys<Secret> {
    enqueue::mapped(|_: &informer::CachedObject<Secret>| Vec::<ObjectKey>::new())
}

/// Runs a controller that, for a single ConfigMap, writes a Secret in each call and requeues after a second. Returns
/// the number of calls.
fn writer(
    cluster: &TestCluster,
    builder: ControllerBuilder,
    written: &ObjectKey,
    app: &'static str,
) -> Arc<Mutex<u32>> {
    let (controller, calls) = to_write(cluster, builder, written, app);
    cluster.run(controller.run(CancellationToken::new()));
    calls
}

/// Same as `writer`, but returns the future to run.
fn to_write(
    cluster: &TestCluster,
    builder: ControllerBuilder,
    written: &ObjectKey,
    app: &'static str,
) -> (Controller, Arc<Mutex<u32>>) {
    let calls: Arc<Mutex<u32>> = Arc::default();
    let count = Arc::clone(&calls);
    let client = Writes::new().observe(&cluster.client());
    let api: Api<Secret> = Api::namespaced(client, written.namespace().unwrap_or("default"));
    let name = written.name().to_owned();
    let controller = builder.build(move |_: Request| {
        let (api, name) = (api.clone(), name.clone());
        let call = {
            let mut count = count.lock().expect("the lock is not poisoned");
            *count += 1;
            count.to_string()
        };
        async move {
            let patch = json!({"metadata": {"labels": {"app": app}, "annotations": {"call": call}}});
            api.patch(&name, &PatchParams::default(), &Patch::Merge(patch)).await?;
            Ok::<_, ReconcileError>(Action::requeue(Duration::from_secs(1)))
        }
    });
    (controller.expect("the controller is complete"), calls)
}

async fn two_namespaces() -> TestCluster {
    let cluster = TestCluster::start();
    for name in ["shop", "billing"] {
        cluster.create(namespace(name)).await;
        cluster.create(secret("s").namespace(name).label("app", name)).await;
    }
    cluster.create(config_map("a")).await;
    cluster
}

fn by_namespace(cluster: &TestCluster, part: &str) -> ApiListWatch {
    ApiListWatch::namespaced::<Secret>(cluster.client(), part, &())
}

fn by_label(cluster: &TestCluster, part: &str) -> ApiListWatch {
    ApiListWatch::all::<Secret>(cluster.client(), &()).labels(&format!("app in (x,{part}), !y"))
}

fn by_label_and_field(cluster: &TestCluster, part: &str) -> ApiListWatch {
    by_label(cluster, part).fields("type=Opaque")
}

#[rstest]
#[case::namespaces(by_namespace)]
#[case::labels(by_label)]
#[case::labels_and_fields(by_label_and_field)]
#[tokio::test(start_paused = true)]
async fn cache_that_excludes_the_written_object_does_not_hold_keys_back(
    #[case] source: fn(&TestCluster, &str) -> ApiListWatch,
    #[values(["shop", "billing"], ["billing", "shop"])] order: [&str; 2],
) {
    let cluster = two_namespaces().await;
    let factory = SharedInformerFactory::new(cluster.client());
    let mut builder = Controller::builder("writer", &factory).for_::<ConfigMap>();
    for name in order {
        builder = with(builder, &part(&cluster, source(&cluster, name)));
    }
    let calls = writer(&cluster, builder, &ObjectKey::new("billing", "s"), "billing");
    cluster.advance(Duration::from_millis(10_500)).await;
    assert_eq!(*calls.lock().expect("the lock is not poisoned"), 11);
}

#[tokio::test(start_paused = true)]
async fn key_waits_for_the_cache_of_the_written_namespace() {
    let cluster = two_namespaces().await;
    let factory = SharedInformerFactory::builder(cluster.client())
        .namespace("shop")
        .namespace("billing")
        .namespace("default")
        .build();
    let builder = Controller::builder("writer", &factory)
        .for_::<ConfigMap>()
        .owns::<Secret>();
    let calls = writer(&cluster, builder, &ObjectKey::new("billing", "s"), "billing");
    cluster.advance(Duration::from_millis(10_500)).await;
    assert_eq!(*calls.lock().expect("the lock is not poisoned"), 11);
}

#[tokio::test(start_paused = true)]
async fn key_waits_for_every_cache_that_may_contain_the_written_object() {
    let cluster = two_namespaces().await;
    // The cache of this namespace does not advance, but the cache of the other namespace does.
    let broken = cluster.inject(faults::server_error().on(Verb::Watch, "secrets").namespace("billing"));
    let factory = SharedInformerFactory::new(cluster.client());
    let [shop, billing] =
        ["shop", "billing"].map(|it| part(&cluster, ApiListWatch::namespaced::<Secret>(cluster.client(), it, &())));
    let client = Writes::new().observe(&cluster.client());
    let (api, made) = (Api::<Secret>::namespaced(client, "billing"), billing.lister());
    let builder = with(
        with(Controller::builder("maker", &factory).for_::<ConfigMap>(), &shop),
        &billing,
    );
    let controller = builder.build(move |_: Request| {
        let (api, made) = (api.clone(), made.clone());
        async move {
            if made.len() < 2 {
                let mut secret = Secret::default();
                secret.metadata.generate_name = Some("made-".to_owned());
                api.create(&PostParams::default(), &secret).await?;
            }
            Ok::<_, ReconcileError>(Action::requeue(Duration::from_millis(100)))
        }
    });
    cluster.run(
        controller
            .expect("the controller is complete")
            .run(CancellationToken::new()),
    );
    for number in 0..20 {
        cluster.advance(Duration::from_millis(500)).await;
        cluster.create(secret(&format!("n-{number}")).namespace("shop")).await;
    }
    drop(broken);
    cluster.advance(Duration::from_secs(60)).await;
    let all = cluster.list::<Secret>();
    let made = all.iter().filter(|it| it.metadata.generate_name.is_some());
    assert_eq!(made.count(), 1);
}

#[tokio::test(start_paused = true)]
async fn key_waits_until_the_cache_removes_an_object_that_no_longer_matches() {
    let cluster = two_namespaces().await;
    let factory = SharedInformerFactory::new(cluster.client());
    let source = ApiListWatch::all::<Secret>(cluster.client_named("part"), &()).labels("app=billing");
    let part = part(&cluster, source);
    let builder = with(Controller::builder("writer", &factory).for_::<ConfigMap>(), &part);
    cluster.settle().await;
    cluster.watches().client("part").hold();
    let calls = writer(&cluster, builder, &ObjectKey::new("billing", "s"), "other");
    cluster.advance(Duration::from_secs(10)).await;
    assert_eq!(
        *calls.lock().expect("the lock is not poisoned"),
        1,
        "the key waits while the cache has the object"
    );
    cluster.watches().client("part").resume();
    cluster.advance(Duration::from_millis(5_500)).await;
    assert!(*calls.lock().expect("the lock is not poisoned") > 5);
}

#[rstest]
#[tokio::test(start_paused = true)]
async fn writes_to_the_own_cluster_do_not_wait_for_other_clusters(#[values(false, true)] is_later: bool) {
    let (home, away) = (two_namespaces().await, TestCluster::start());
    away.create(secret("s")).await;
    let remote = part(&away, ApiListWatch::all::<Secret>(away.client(), &()));
    let factory = SharedInformerFactory::new(home.client());
    let mut builder = Controller::builder("writer", &factory);
    builder = if is_later {
        builder.for_::<ConfigMap>()
    } else {
        builder.remote_informer(&remote, enqueue::object(), |_: &Event<Secret>| true)
    };
    let (controller, calls) = to_write(&home, builder, &ObjectKey::new("billing", "s"), "billing");
    if is_later {
        let watches = controller.later_watches();
        let added = watches.remote_informer(&remote, nobody(), |_: &Event<Secret>| true);
        added
            .expect("the runnable is accepted")
            .synced()
            .await
            .expect("the cache syncs");
    }
    home.run(controller.run(CancellationToken::new()));
    home.advance(Duration::from_millis(10_500)).await;
    assert_eq!(*calls.lock().expect("the lock is not poisoned"), 11);
}

#[rstest]
#[tokio::test(start_paused = true)]
async fn key_waits_until_a_watch_added_later_receives_its_writes(#[values(false, true)] is_of_factory: bool) {
    let cluster = TestCluster::start();
    let factory = SharedInformerFactory::new(cluster.client_named("cache"));
    let secrets = factory.informer::<Secret>();
    let (api, made) = (
        Api::<Secret>::default_namespaced(Writes::new().observe(&cluster.client())),
        secrets.lister(),
    );
    let builder = Controller::builder("maker", &factory).for_::<ConfigMap>();
    let controller = builder.build(move |_: Request| {
        let (api, made) = (api.clone(), made.clone());
        async move {
            if made.is_empty() {
                let mut secret = Secret::default();
                secret.metadata.generate_name = Some("made-".to_owned());
                api.create(&PostParams::default(), &secret).await?;
            }
            Ok::<_, ReconcileError>(Action::requeue(Duration::from_millis(100)))
        }
    });
    let controller = controller.expect("the controller is complete");
    let watches = controller.later_watches();
    cluster.run(controller.run(CancellationToken::new()));
    cluster.settle().await;
    let added = if is_of_factory {
        watches.watch::<Secret>(nobody())
    } else {
        factory.start();
        watches.informer(&secrets, &(), nobody(), |_: &Event<Secret>| true)
    };
    let added = added.expect("the informer has not stopped");
    added.synced().await.expect("the cache syncs");
    cluster.watches().client("cache").on("secrets").hold();
    cluster.create(config_map("a")).await;
    cluster.advance(Duration::from_secs(10)).await;
    cluster.watches().client("cache").on("secrets").resume();
    cluster.advance(Duration::from_secs(60)).await;
    assert_eq!(cluster.list::<Secret>().len(), 1, "the object was not created again");
}

#[tokio::test(start_paused = true)]
async fn watch_added_later_only_holds_keys_back_between_its_sync_and_end() {
    let cluster = two_namespaces().await;
    let source = ApiListWatch::all::<Secret>(cluster.client_named("part"), &());
    let silent =
        [Verb::List, Verb::Watch].map(|it| cluster.inject(faults::server_error().client("part").on(it, "secrets")));
    let part = part(&cluster, source);
    let factory = SharedInformerFactory::new(cluster.client());
    let builder = Controller::builder("writer", &factory).for_::<ConfigMap>();
    let (controller, calls) = to_write(&cluster, builder, &ObjectKey::new("billing", "s"), "billing");
    let watches = controller.later_watches();
    cluster.run(controller.run(CancellationToken::new()));
    let added = watches.informer(&part, &(), nobody(), |_: &Event<Secret>| true);
    let added = added.expect("the informer has not stopped");
    let calls_in_ten_seconds = async || {
        let before = *calls.lock().expect("the lock is not poisoned");
        cluster.advance(Duration::from_millis(10_500)).await;
        *calls.lock().expect("the lock is not poisoned") - before
    };
    assert!(!added.has_synced() && calls_in_ten_seconds().await >= 10);
    drop(silent);
    added.synced().await.expect("the cache syncs");
    assert!(
        calls_in_ten_seconds().await >= 10,
        "the key does not wait if all caches receive its writes"
    );
    cluster.watches().client("part").hold();
    assert!(
        calls_in_ten_seconds().await <= 1,
        "the key waits if a cache receives no writes"
    );
    part.remove_handler(&added);
    assert!(
        calls_in_ten_seconds().await >= 10,
        "the key does not wait for a removed watch"
    );
}

/// Returns the number of calls in ten seconds of a controller that calls `act` for each Namespace and requeues after a
/// second.
async fn calls_for_a_namespace<F, Fut>(act: F) -> u32
where
    F: Fn(Api<Namespace>) -> Fut + Clone + Send + Sync + 'static,
    Fut: Future<Output = Result<(), kube::Error>> + Send,
{
    // The Namespace stays Terminating, because no controller removes `spec.finalizers`.
    let cluster = TestCluster::start();
    cluster.create(namespace("shop")).await;
    let calls: Arc<Mutex<u32>> = Arc::default();
    let count = Arc::clone(&calls);
    let api: Api<Namespace> = Api::all(Writes::new().observe(&cluster.client()));
    let factory = SharedInformerFactory::new(cluster.client());
    let shop = |event: &Event<Namespace>| event.object().key().name() == "shop";
    let builder = Controller::builder("ender", &factory).for_where::<Namespace>(shop);
    let controller = builder.build(move |_: Request| {
        *count.lock().expect("the lock is not poisoned") += 1;
        let (api, act) = (api.clone(), act.clone());
        async move {
            act(api).await?;
            Ok::<_, ReconcileError>(Action::requeue(Duration::from_secs(1)))
        }
    });
    cluster.run(
        controller
            .expect("the controller is complete")
            .run(CancellationToken::new()),
    );
    cluster.advance(Duration::from_millis(10_500)).await;
    let calls = *calls.lock().expect("the lock is not poisoned");
    assert_eq!(
        cluster
            .get::<Namespace>("shop")
            .status
            .and_then(|it| it.phase)
            .as_deref(),
        Some("Terminating")
    );
    calls
}

#[tokio::test(start_paused = true)]
async fn key_does_not_wait_until_a_terminating_namespace_is_gone() {
    let delete = |api: Api<Namespace>| async move { api.delete("shop", &Default::default()).await.map(drop) };
    assert!(calls_for_a_namespace(delete).await > 10);
    let delete_and_patch = |api: Api<Namespace>| async move {
        api.delete("shop", &Default::default()).await?;
        let label = json!({"metadata": {"labels": {"ended": "yes"}}});
        api.patch("shop", &PatchParams::default(), &Patch::Merge(label))
            .await
            .map(drop)
    };
    assert!(calls_for_a_namespace(delete_and_patch).await > 10);
}

#[tokio::test(start_paused = true)]
async fn key_with_a_stuck_cache_fails_and_is_reconciled_after_a_time_limit() {
    let cluster = two_namespaces().await;
    let (factory, metrics) = (SharedInformerFactory::new(cluster.client()), Metrics::new());
    let builder = Controller::builder("writer", &factory)
        .for_::<ConfigMap>()
        .owns::<Secret>();
    let calls = writer(
        &cluster,
        builder.metrics(&metrics),
        &ObjectKey::new("billing", "s"),
        "billing",
    );
    cluster.advance(Duration::from_millis(500)).await;
    for verb in [Verb::Watch, Verb::List] {
        cluster.inject(faults::server_error().on(verb, "secrets")).forget();
    }
    cluster.watches().on("secrets").end();
    cluster.advance(Duration::from_secs(10)).await;
    let before = *calls.lock().expect("the lock is not poisoned");
    cluster.advance(Duration::from_secs(800)).await;
    let after = *calls.lock().expect("the lock is not poisoned") - before;
    assert!(
        (4..=6).contains(&after),
        "the key is reconciled about once in 150 s: {after} times"
    );
    let figures = metrics.render();
    let errors = format!("controller_runtime_reconcile_errors_total{{controller=\"writer\"}} {after}");
    assert!(figures.contains(&errors), "{figures}");
}

/// Function that returns a fault: the response to the first creation of a Secret is lost.
type Loss = fn() -> testkit::FaultBuilder;

#[rstest]
#[case::connection_reset(|| faults::reset().but_applied())]
#[case::timeout(|| faults::timeout().but_applied())]
#[case::server_error(|| faults::server_error().but_applied())]
#[case::no_response(|| faults::no_answer().but_applied())]
#[case::truncated_response(|| faults::truncated(40))]
#[tokio::test(start_paused = true)]
async fn key_waits_for_a_current_cache_after_a_lost_create_response(#[case] loss: Loss) {
    let cluster = TestCluster::start();
    let factory = SharedInformerFactory::new(cluster.client_named("cache"));
    let made = factory.informer::<Secret>().lister();
    let api: Api<Secret> = Api::default_namespaced(Writes::new().observe(&cluster.client_named("writer")));
    let builder = Controller::builder("maker", &factory)
        .for_::<ConfigMap>()
        .owns::<Secret>();
    let builder = builder.reconcile_timeout(Duration::from_secs(2));
    let controller = builder.build(move |_: Request| {
        let (api, made) = (api.clone(), made.clone());
        async move {
            if made.is_empty() {
                let mut secret = Secret::default();
                secret.metadata.generate_name = Some("made-".to_owned());
                api.create(&PostParams::default(), &secret).await?;
            }
            Ok::<_, ReconcileError>(Action::await_change())
        }
    });
    let lost = cluster.inject(loss().client("writer").on(Verb::Create, "secrets").once());
    cluster.run(
        controller
            .expect("the controller is complete")
            .run(CancellationToken::new()),
    );
    cluster.settle().await;
    // The cache does not receive the Secret for some time.
    cluster.watches().client("cache").on("secrets").hold();
    cluster.create(config_map("a")).await;
    cluster.advance(Duration::from_secs(10)).await;
    cluster.watches().client("cache").on("secrets").resume();
    cluster.advance(Duration::from_secs(60)).await;
    assert_eq!(lost.hits(), 1);
    assert_eq!(cluster.list::<Secret>().len(), 1, "the object was not created again");
}

#[tokio::test(start_paused = true)]
async fn watches_cannot_be_added_to_a_controller_that_was_dropped() {
    let cluster = TestCluster::start();
    let factory = SharedInformerFactory::new(cluster.client());
    let controller = Controller::builder("never", &factory)
        .for_::<ConfigMap>()
        .build(|_: Request| async { Ok::<_, ReconcileError>(Action::await_change()) })
        .expect("the controller is complete");
    let watches = controller.later_watches();
    watches.watch::<Secret>(nobody()).expect("the controller exists");
    drop(controller);
    watches.watch::<Secret>(nobody()).expect_err("the controller has ended");
}
