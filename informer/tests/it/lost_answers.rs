//! Writes without a response: reads and reconciles wait for the outcome, up to a time limit.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use informer::ObjectKey;
use informer::cache::SharedInformerFactory;
use informer::handler::enqueue;
use informer::reconcile::{Action, ReconcileError, Request, Writes};
use informer::runtime::{CachedClient, Controller, Manager};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::Api;
use kube::api::{DeleteParams, Patch};
use rstest::rstest;
use serde_json::{Value, json};
use testkit::objects::{config_map, secret};
use testkit::{TestCluster, Verb, faults};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

fn key(name: &str) -> ObjectKey {
    ObjectKey::new("default", name)
}

fn changed() -> Patch<Value> {
    Patch::Merge(json!({"data": {"a": "new"}}))
}

/// Returns a cached client whose cache contains these ConfigMaps and receives no further changes.
async fn behind(cluster: &TestCluster, names: &[String]) -> CachedClient {
    for name in names {
        cluster.create(config_map(name).data("a", "old")).await;
    }
    let manager = Manager::new(cluster.client_named("reader"));
    let client = manager.cached_client();
    cluster.run(async move { manager.run(std::future::pending()).await });
    cluster.settle().await;
    client.list::<ConfigMap>().await.expect("the read succeeds");
    cluster.advance(seconds(1)).await;
    cluster.watches().client("reader").on("configmaps").hold();
    client
}

async fn value(client: &CachedClient, name: &str) -> Result<String, informer::Error> {
    let map = client.get::<ConfigMap>(&key(name)).await?;
    let data = map.and_then(|it| it.data.clone()).unwrap_or_default();
    Ok(data.get("a").cloned().unwrap_or_default())
}

#[tokio::test(start_paused = true)]
async fn read_waits_for_a_write_that_was_cancelled_before_its_response() {
    let cluster = TestCluster::start();
    let client = behind(&cluster, &["m".to_owned()]).await;
    let lost = faults::no_answer().but_applied().client("reader");
    let lost = cluster.inject(lost.on(Verb::Patch, "configmaps").once());
    let (key, patch) = (key("m"), changed());
    let writing = client.patch::<ConfigMap>(&key, &patch);
    timeout(seconds(1), writing)
        .await
        .expect_err("the request has no response");
    assert_eq!(lost.hits(), 1);
    let resumed = async {
        sleep(seconds(5)).await;
        cluster.watches().client("reader").on("configmaps").resume();
    };
    let (value, ()) = futures::join!(value(&client, "m"), resumed);
    assert_eq!(value.expect("the cache receives the write"), "new");
}

#[tokio::test(start_paused = true)]
async fn key_is_held_back_after_a_write_of_the_cached_client_was_cancelled() {
    let cluster = TestCluster::start();
    let manager = Manager::new(cluster.client_named("maker"));
    let (client, made) = (manager.cached_client(), manager.lister::<Secret>());
    let builder = manager.controller("maker").for_::<ConfigMap>().owns::<Secret>();
    let reconcile = move |_: Request| {
        let (client, made) = (client.clone(), made.clone());
        async move {
            if !made.is_empty() {
                return Ok::<_, ReconcileError>(Action::await_change());
            }
            let mut secret = Secret::default();
            secret.metadata.namespace = Some("default".to_owned());
            secret.metadata.generate_name = Some("made-".to_owned());
            let _lost = timeout(seconds(1), client.create(&secret)).await;
            Ok(Action::requeue(seconds(1)))
        }
    };
    builder.complete(reconcile).expect("the controller is complete");
    let lost = faults::no_answer().but_applied().client("maker");
    let lost = cluster.inject(lost.on(Verb::Create, "secrets").once());
    cluster.run(async move { manager.run(std::future::pending()).await });
    cluster.settle().await;
    let watches = cluster.watches().client("maker").on("secrets");
    watches.hold();
    cluster.create(config_map("a")).await;
    cluster.advance(seconds(10)).await;
    watches.resume();
    cluster.advance(seconds(60)).await;
    assert_eq!(lost.hits(), 1);
    assert_eq!(cluster.list::<Secret>().len(), 1, "the object was not created again");
}

/// The server does not respond to reads either, at first or forever.
#[rstest]
#[case::server_never_responds(u64::MAX, None)]
#[case::server_responds_later(10, Some("new"))]
#[tokio::test(start_paused = true)]
async fn read_waits_a_limited_time_for_many_lost_responses(#[case] unanswered: u64, #[case] expected: Option<&str>) {
    let cluster = TestCluster::start();
    let names: Vec<_> = (0..10).map(|it| format!("m-{it}")).collect();
    let client = behind(&cluster, &names).await;
    let lost = faults::timeout().but_applied().client("reader");
    let lost = cluster.inject(lost.on(Verb::Patch, "configmaps").times(10));
    for name in &names {
        let written = client.patch::<ConfigMap>(&key(name), &changed()).await;
        written.expect_err("the response is lost");
    }
    assert_eq!(lost.hits(), 10);
    let reads = faults::no_answer().client("reader").on(Verb::Get, "configmaps");
    let _unanswered = cluster.inject(reads.times(unanswered));
    let resumed = async {
        sleep(seconds(1)).await;
        cluster.watches().client("reader").on("configmaps").resume();
    };
    let began = Instant::now();
    let (list, ()) = futures::join!(client.list::<ConfigMap>().objects(), resumed);
    assert!(began.elapsed() <= seconds(30), "{:?}", began.elapsed());
    assert_eq!(list.is_ok(), expected.is_some(), "{list:?}");
    if let Some(expected) = expected {
        assert_eq!(value(&client, "m-9").await.expect("the read succeeds"), expected);
    }
}

/// The cache receives the deletion and the new object at the same time.
#[tokio::test(start_paused = true)]
async fn recreated_object_does_not_hold_back_the_key_whose_reconcile_deleted_it() {
    let cluster = TestCluster::start();
    cluster.create(secret("s")).await;
    let factory = SharedInformerFactory::new(cluster.client_named("cache"));
    let api: Api<Secret> = Api::default_namespaced(Writes::new().observe(&cluster.client_named("writer")));
    let calls: Arc<Mutex<u32>> = Arc::default();
    let count = Arc::clone(&calls);
    let nobody = enqueue::mapped(|_: &informer::CachedObject<Secret>| Vec::<ObjectKey>::new());
    let builder = Controller::builder("deleter", &factory)
        .for_::<ConfigMap>()
        .watches::<Secret>(nobody);
    let controller = builder.build(move |_: Request| {
        let is_first = {
            let mut count = count.lock().expect("the lock is not poisoned");
            *count += 1;
            *count == 1
        };
        let api = api.clone();
        async move {
            if is_first {
                api.delete("s", &DeleteParams::default()).await?;
            }
            Ok::<_, ReconcileError>(Action::await_change())
        }
    });
    let lost = faults::timeout().but_applied().client("writer");
    let lost = cluster.inject(lost.on(Verb::Delete, "secrets").once());
    cluster.run(
        controller
            .expect("the controller is complete")
            .run(CancellationToken::new()),
    );
    cluster.settle().await;
    let watches = cluster.watches().client("cache").on("secrets");
    watches.hold();
    cluster.create(config_map("a")).await;
    cluster.advance(seconds(1)).await;
    assert_eq!((lost.hits(), *calls.lock().expect("the lock is not poisoned")), (1, 1));
    cluster.create(secret("s").label("is", "another")).await;
    cluster.advance(seconds(1)).await;
    assert_eq!(
        *calls.lock().expect("the lock is not poisoned"),
        1,
        "the key waits while the cache has the deleted object"
    );
    watches.resume();
    cluster.advance(seconds(5)).await;
    assert_eq!(*calls.lock().expect("the lock is not poisoned"), 2);
}

/// An admission webhook may refuse the deletion of one object after others were deleted.
#[tokio::test(start_paused = true)]
async fn read_waits_after_a_refused_deletion_of_a_collection() {
    let cluster = TestCluster::start();
    let client = behind(&cluster, &["m".to_owned()]).await;
    let refused = faults::status(403, "Forbidden").but_applied().client("reader");
    let refused = cluster.inject(refused.on(Verb::DeleteCollection, "configmaps").once());
    let deleted = client.delete_all_of::<ConfigMap>().in_namespace("default").await;
    deleted.expect_err("the request is refused");
    assert_eq!(refused.hits(), 1);
    let resumed = async {
        sleep(seconds(5)).await;
        cluster.watches().client("reader").on("configmaps").resume();
        cluster.watches().client("reader").on("configmaps").bookmark();
    };
    let (value, ()) = futures::join!(value(&client, "m"), resumed);
    assert_eq!(value.expect("the cache receives the deletion"), "");
}
