//! Responses that arrive in a different order than the writes were executed: caches must contain the newest version,
//! not the version of the last response.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use informer::ObjectKey;
use informer::cache::SharedInformerFactory;
use informer::reconcile::{Action, ReconcileError, Request, Writes};
use informer::runtime::{Controller, Manager};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use testkit::objects::{config_map, secret};
use testkit::{TestCluster, faults};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

fn numbered(number: u32) -> Patch<Value> {
    Patch::Merge(json!({"metadata": {"annotations": {"number": number.to_string()}}}))
}

/// Applies the first patch immediately, but delays the response by two seconds.
fn answer_the_first_patch_late(cluster: &TestCluster) {
    let late = faults::slow_answer(Duration::from_secs(2)).client("writer");
    cluster.inject(late.on_writes("secrets").once()).forget();
}

#[tokio::test(start_paused = true)]
async fn key_is_held_back_for_the_newest_of_two_concurrent_writes() {
    let cluster = TestCluster::builder().object(secret("s")).start();
    answer_the_first_patch_late(&cluster);
    let factory = SharedInformerFactory::new(cluster.client_named("cache"));
    let api: Api<Secret> = Api::default_namespaced(Writes::new().observe(&cluster.client_named("writer")));
    let calls: Arc<Mutex<u32>> = Arc::default();
    let count = Arc::clone(&calls);
    let builder = Controller::builder("writer", &factory)
        .for_::<ConfigMap>()
        .owns::<Secret>();
    let controller = builder.build(move |_: Request| {
        *count.lock().expect("the lock is not poisoned") += 1;
        let api = api.clone();
        async move {
            let params = PatchParams::default();
            let (one, two) = (numbered(1), numbered(2));
            let later = async {
                sleep(Duration::from_millis(100)).await;
                api.patch("s", &params, &two).await
            };
            let (first, second) = futures::join!(api.patch("s", &params, &one), later);
            first?;
            second?;
            Ok::<_, ReconcileError>(Action::requeue(Duration::from_secs(1)))
        }
    });
    cluster.run(
        controller
            .expect("the controller is complete")
            .run(CancellationToken::new()),
    );
    cluster.settle().await;
    cluster.create(config_map("a")).await;
    // The cache receives the first write, but not the second write, whose response arrives first.
    cluster.advance(Duration::from_millis(50)).await;
    let watches = cluster.watches().client("cache").on("secrets");
    watches.hold();
    cluster.advance(Duration::from_secs(20)).await;
    assert_eq!(*calls.lock().expect("the lock is not poisoned"), 1);
    watches.resume();
    cluster.advance(Duration::from_secs(5)).await;
    assert!(*calls.lock().expect("the lock is not poisoned") > 1);
}

#[tokio::test(start_paused = true)]
async fn read_returns_the_newest_of_two_concurrent_writes() {
    let cluster = TestCluster::builder().object(secret("s")).start();
    answer_the_first_patch_late(&cluster);
    let manager = Manager::new(cluster.client_named("writer"));
    let client = manager.cached_client();
    cluster.run(async move { manager.run(std::future::pending()).await });
    cluster.settle().await;
    client.list::<Secret>().await.expect("the read succeeds");
    let key = ObjectKey::new("default", "s");
    let first = tokio::spawn({
        let (client, key) = (client.clone(), key.clone());
        async move { client.patch::<Secret>(&key, &numbered(1)).await.map(drop) }
    });
    sleep(Duration::from_millis(50)).await;
    let watches = cluster.watches().client("writer").on("secrets");
    watches.hold();
    client
        .patch::<Secret>(&key, &numbered(2))
        .await
        .expect("the object exists");
    first
        .await
        .expect("the task does not panic")
        .expect("the object exists");
    let read = tokio::spawn(async move { client.get::<Secret>(&key).await });
    sleep(Duration::from_secs(1)).await;
    assert!(
        !read.is_finished(),
        "the read waits while the cache lacks the newest write"
    );
    watches.resume();
    let read = read
        .await
        .expect("the task does not panic")
        .expect("the read succeeds")
        .expect("the object exists");
    assert_eq!(
        read.metadata.annotations.as_ref().expect("the object has annotations")["number"],
        "2"
    );
}
