//! Counterparts of kube-runtime's options: debounce, triggers for all objects, waiting for a condition.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::StreamExt;
use futures::channel::mpsc;
use informer::cache::{ApiListWatch, SharedInformer};
use informer::handler::enqueue;
use informer::reconcile::{Action, ReconcileError, Request};
use informer::runtime::{ControllerBuilder, Manager};
use informer::{CachedObject, ObjectKey};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use rstest::rstest;
use testkit::TestCluster;
use testkit::objects::{config_map, secret};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

type Calls = Arc<Mutex<Vec<(u64, String)>>>;

/// Runs a controller that records the time in seconds and the key of each call.
fn run(cluster: &TestCluster, manager: &Manager, builder: ControllerBuilder<Manager>) -> Calls {
    let (calls, began) = (Calls::default(), Instant::now());
    let noted = Arc::clone(&calls);
    let reconcile = move |request: Request| {
        let call = (began.elapsed().as_secs(), request.key.to_string());
        noted.lock().expect("the lock is not poisoned").push(call);
        async { Ok::<_, ReconcileError>(Action::await_change()) }
    };
    builder.complete(reconcile).expect("the controller is complete");
    let manager = manager.clone();
    cluster.run(async move { manager.run(std::future::pending()).await });
    calls
}

fn taken(calls: &Calls) -> Vec<(u64, String)> {
    std::mem::take(&mut *calls.lock().expect("the lock is not poisoned"))
}

#[rstest]
#[tokio::test]
async fn debounce_merges_changes_and_is_not_extended_by_them() {
    let cluster = TestCluster::builder().object(config_map("a")).start();
    let manager = Manager::new(cluster.client());
    let builder = manager.controller("maps").for_::<ConfigMap>();
    let calls = run(&cluster, &manager, builder.debounce(Duration::from_millis(3_500)));
    cluster.advance(Duration::from_secs(10)).await;
    assert_eq!(taken(&calls), [(3, "default/a".into())]);

    for second in 0..10 {
        cluster
            .update(config_map("a").data("second", &second.to_string()))
            .await;
        cluster.advance(Duration::from_secs(1)).await;
    }
    cluster.advance(Duration::from_secs(10)).await;
    let seconds: Vec<_> = taken(&calls).into_iter().map(|(second, _)| second).collect();
    assert_eq!(seconds, [13, 17, 21]);
}

#[rstest]
#[tokio::test]
async fn trigger_enqueues_all_objects_of_all_watches() {
    let cluster = TestCluster::builder()
        .object(config_map("a"))
        .object(config_map("b"))
        .object(secret("of-secret"))
        .start();
    let manager = Manager::new(cluster.client());
    let (trigger, triggers) = mpsc::unbounded();
    let same_name = |secret: &CachedObject<Secret>| Some(ObjectKey::new("mapped", secret.key().name()));
    let builder = manager.controller("maps").for_::<ConfigMap>();
    let builder = builder.watches::<Secret>(enqueue::mapped(same_name));
    let calls = run(&cluster, &manager, builder.reconcile_all_on(triggers.map(|()| ())));
    let all = || {
        let mut keys: Vec<_> = taken(&calls).into_iter().map(|(_, key)| key).collect();
        keys.sort();
        keys
    };
    cluster.settle().await;
    let expected = ["default/a", "default/b", "mapped/of-secret"];
    assert_eq!(all(), expected);

    cluster.settle().await;
    assert_eq!(all(), [""; 0]);
    trigger.unbounded_send(()).expect("the receiver is open");
    cluster.settle().await;
    assert_eq!(all(), expected);

    cluster.delete(config_map("b")).await;
    cluster.settle().await;
    assert_eq!(all(), ["default/b"]);
    trigger.unbounded_send(()).expect("the receiver is open");
    cluster.settle().await;
    assert_eq!(all(), ["default/a", "mapped/of-secret"]);
}

fn color(map: Option<&CachedObject<ConfigMap>>) -> Option<String> {
    let map = map?.typed().expect("the object has this type");
    map.data.as_ref()?.get("color").cloned()
}

#[rstest]
#[tokio::test]
async fn await_condition_waits_on_the_cache() {
    let cluster = TestCluster::builder()
        .object(config_map("a").data("color", "red"))
        .start();
    let maps = SharedInformer::<ConfigMap>::new(ApiListWatch::all::<ConfigMap>(cluster.client(), &()));
    let (lister, stop) = (maps.lister(), CancellationToken::new());
    let stopped = stop.clone();
    cluster.run(async move { maps.run(async move { stopped.cancelled().await }).await });
    let key = ObjectKey::new("default", "a");

    let red = lister
        .await_condition(&key, |map| color(map).as_deref() == Some("red"))
        .await;
    assert_eq!(
        color(red.expect("the informer has not stopped").as_ref()).as_deref(),
        Some("red")
    );

    let reader = lister.clone();
    let of_blue = key.clone();
    let blue = tokio::spawn(async move {
        reader
            .await_condition(&of_blue, |map| color(map).as_deref() == Some("blue"))
            .await
    });
    cluster.settle().await;
    assert!(!blue.is_finished());
    cluster.update(config_map("a").data("color", "green")).await;
    cluster.settle().await;
    assert!(!blue.is_finished());
    cluster.update(config_map("a").data("color", "blue")).await;
    let blue = blue
        .await
        .expect("the task does not panic")
        .expect("the informer has not stopped");
    assert_eq!(color(blue.as_ref()).as_deref(), Some("blue"));

    let reader = lister.clone();
    let of_gone = key.clone();
    let gone = tokio::spawn(async move { reader.await_condition(&of_gone, |map| map.is_none()).await });
    cluster.delete(config_map("a")).await;
    assert!(
        gone.await
            .expect("the task does not panic")
            .expect("the informer has not stopped")
            .is_none()
    );

    let reader = lister.clone();
    let never = tokio::spawn(async move { reader.await_condition(&key, |map| map.is_some()).await });
    cluster.settle().await;
    stop.cancel();
    let err = never
        .await
        .expect("the task does not panic")
        .expect_err("the informer has stopped");
    assert_eq!(
        err.to_string(),
        "the informer of ConfigMap stopped before default/a met the awaited condition"
    );
}
