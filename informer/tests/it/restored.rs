//! A cluster that was restored from a backup: versions decrease, uids and objects may be reused, and keys do not wait
//! for lost writes.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use informer::ObjectKey;
use informer::cache::SharedInformerFactory;
use informer::reconcile::{Action, ReconcileError, Request, Writes};
use informer::runtime::{CachedClient, Controller, Manager};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::{Api, Patch, PatchParams};
use serde_json::json;
use testkit::objects::{config_map, secret};
use testkit::{RestartLog, TestCluster};
use tokio_util::sync::CancellationToken;

/// Time after which a cache detects that the server was restored: a watch from a future version receives no bookmarks.
const FOUND_OUT: Duration = Duration::from_secs(200);

/// Makes many changes, so that a restored cluster does not reach the current version again.
async fn age(cluster: &TestCluster) {
    for number in 0..200 {
        cluster.create(config_map(&format!("old-{number}"))).await;
    }
}

#[tokio::test(start_paused = true)]
async fn keys_do_not_wait_for_versions_lost_in_a_restore() {
    let cluster = TestCluster::start();
    cluster.create(secret("s")).await;
    cluster.create(config_map("a")).await;
    let backup = cluster.snapshot();
    age(&cluster).await;
    let factory = SharedInformerFactory::new(cluster.client_named("cache"));
    let calls: Arc<Mutex<u32>> = Arc::default();
    let (count, api) = (
        Arc::clone(&calls),
        Api::<Secret>::default_namespaced(Writes::new().observe(&cluster.client())),
    );
    let is_a = |event: &informer::handler::Event<ConfigMap>| event.object().key().name() == "a";
    let builder = Controller::builder("writer", &factory)
        .for_where::<ConfigMap>(is_a)
        .owns::<Secret>();
    let controller = builder.build(move |_: Request| {
        let (api, call) = (api.clone(), {
            let mut count = count.lock().expect("the lock is not poisoned");
            *count += 1;
            count.to_string()
        });
        async move {
            let patch = json!({"metadata": {"annotations": {"call": call}}});
            api.patch("s", &PatchParams::default(), &Patch::Merge(patch)).await?;
            Ok::<_, ReconcileError>(Action::requeue(Duration::from_secs(1)))
        }
    });
    cluster.run(
        controller
            .expect("the controller is complete")
            .run(CancellationToken::new()),
    );
    cluster.advance(Duration::from_millis(70_500)).await;
    // The cache never receives the last write before the server is restored.
    cluster.watches().client("cache").hold();
    cluster.advance(Duration::from_secs(2)).await;
    cluster.restore(&backup);
    cluster.restart(RestartLog::Lost, Duration::from_secs(1));
    cluster.watches().client("cache").resume();
    cluster.advance(FOUND_OUT).await;
    let before = std::mem::take(&mut *calls.lock().expect("the lock is not poisoned"));
    cluster.advance(Duration::from_secs(10)).await;
    let after = *calls.lock().expect("the lock is not poisoned");
    assert!(
        before > 5 && after >= 9,
        "{before} calls at first, and {after} in the next ten seconds"
    );
}

#[tokio::test(start_paused = true)]
async fn reads_of_a_cache_that_starts_after_a_restore_do_not_wait_for_lost_versions() {
    let cluster = TestCluster::start();
    cluster.create(secret("s")).await;
    let backup = cluster.snapshot();
    age(&cluster).await;
    let manager = Manager::new(cluster.client());
    let client: CachedClient = manager.cached_client();
    cluster.run(async move { manager.run(std::future::pending()).await });
    cluster.settle().await;
    let key = ObjectKey::new("default", "s");
    let annotate = |value: &str| Patch::Merge(json!({"metadata": {"annotations": {"new": value}}}));
    let annotation = |secret: Option<Arc<Secret>>| {
        let secret = secret.expect("the object exists");
        secret
            .metadata
            .annotations
            .as_ref()
            .and_then(|it| it.get("new").cloned())
    };
    // The first read starts the cache, so there is no cache yet that could detect the restore.
    client
        .patch::<Secret>(&key, &annotate("lost"))
        .await
        .expect("the object exists");
    cluster.restore(&backup);
    cluster.restart(RestartLog::Lost, Duration::from_secs(1));
    cluster.advance(Duration::from_secs(5)).await;
    let read = client
        .get::<Secret>(&key)
        .await
        .expect("the read does not wait for the lost write");
    assert_eq!(annotation(read), None);
    let all = client.list::<Secret>().await.expect("lists do not wait either");
    assert_eq!(all.len(), 1);
    client
        .patch::<Secret>(&key, &annotate("kept"))
        .await
        .expect("the object exists");
    let read = client.get::<Secret>(&key).await.expect("the cache receives the write");
    assert_eq!(annotation(read).as_deref(), Some("kept"));
}

#[tokio::test(start_paused = true)]
async fn reads_do_not_wait_for_versions_lost_in_a_restore() {
    let cluster = TestCluster::start();
    cluster.create(secret("s")).await;
    let backup = cluster.snapshot();
    age(&cluster).await;
    let manager = Manager::new(cluster.client());
    let client: CachedClient = manager.cached_client();
    cluster.run(async move { manager.run(std::future::pending()).await });
    cluster.settle().await;
    let key = ObjectKey::new("default", "s");
    let annotate = Patch::Merge(json!({"metadata": {"annotations": {"new": "yes"}}}));
    let is_new = |secret: Option<Arc<Secret>>| secret.expect("the object exists").metadata.annotations.is_some();
    client.get::<Secret>(&key).await.expect("the read succeeds");
    // A bookmark has arrived, so missing bookmarks are detected.
    cluster.advance(Duration::from_secs(70)).await;
    cluster.watches().hold();
    client
        .patch::<Secret>(&key, &annotate)
        .await
        .expect("the object exists");
    cluster.restore(&backup);
    cluster.restart(RestartLog::Lost, Duration::from_secs(1));
    cluster.watches().resume();
    cluster.advance(FOUND_OUT).await;
    assert!(!is_new(client.get(&key).await.expect("the read does not wait")));
    client
        .patch::<Secret>(&key, &annotate)
        .await
        .expect("the object exists");
    assert!(is_new(client.get(&key).await.expect("the cache receives the write")));
}
