//! Helpers of managers and reconcilers: requeueing at a time, patches, event recorders.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use informer::reconcile::{Action, ReconcileError, Request};
use informer::runtime::{Manager, Note, OperationResult, create_or_patch};
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use k8s_openapi::api::events::v1::Event;
use kube::Api;
use testkit::TestCluster;
use testkit::objects::{config_map, pod};
use tokio::time::Instant;

#[tokio::test(start_paused = true)]
async fn key_can_be_requeued_at_an_instant() {
    let cluster = TestCluster::builder().object(config_map("m")).start();
    let manager = Manager::new(cluster.client());
    let calls: Arc<Mutex<Vec<Instant>>> = Arc::default();
    let (seen, due) = (Arc::clone(&calls), Instant::now() + Duration::from_secs(60));
    let reconcile = move |request: Request| {
        let seen = Arc::clone(&seen);
        async move {
            if request.key.name() != "m" {
                return Ok(Action::await_change());
            }
            let number = {
                let mut seen = seen.lock().expect("the lock is not poisoned");
                seen.push(Instant::now());
                seen.len()
            };
            // The duration of the reconcile is not added to the delay. A requeue at a time in the past is due
            // immediately.
            tokio::time::sleep(Duration::from_secs(10)).await;
            Ok::<_, ReconcileError>(if number < 3 {
                Action::requeue_at(due)
            } else {
                Action::await_change()
            })
        }
    };
    manager
        .controller("maps")
        .for_::<ConfigMap>()
        .complete(reconcile)
        .expect("the controller is complete");
    cluster.run(async move { manager.run(std::future::pending()).await });
    cluster.advance(Duration::from_secs(300)).await;
    let calls = calls.lock().expect("the lock is not poisoned");
    assert_eq!(calls.len(), 3);
    assert_eq!(calls[1], due);
    assert_eq!(calls[2].duration_since(due), Duration::from_secs(10));
}

#[tokio::test(start_paused = true)]
async fn object_is_created_or_patched_if_it_differs() {
    let cluster = TestCluster::start();
    let pods: Api<Pod> = Api::default_namespaced(cluster.client());
    let ensure = async |image: &str, message: Option<&str>| {
        let mut initial = Pod::default();
        initial.metadata.name = Some("web".into());
        let (image, message) = (image.to_owned(), message.map(str::to_owned));
        let ensured = create_or_patch(&pods, initial, move |pod| {
            let spec = pod.spec.get_or_insert_default();
            spec.containers.resize_with(1, Default::default);
            spec.containers[0].name = "main".into();
            spec.containers[0].image = Some(image);
            if message.is_some() {
                pod.status.get_or_insert_default().message = message;
            }
            Ok(())
        });
        let (pod, result) = ensured.await.expect("the object can be created or patched");
        (pod.status.and_then(|it| it.message), result)
    };
    let well = Some("well".to_owned());
    assert_eq!(
        ensure("a", Some("well")).await,
        (well.clone(), OperationResult::Created)
    );
    let sent = cluster.requests().writes().count();
    assert_eq!(ensure("a", Some("well")).await.1, OperationResult::Unchanged);
    assert_eq!(cluster.requests().writes().count(), sent);
    assert_eq!(ensure("b", None).await, (well, OperationResult::Updated));
    assert_eq!(ensure("b", Some("ill")).await.1, OperationResult::UpdatedStatusOnly);
    assert_eq!(ensure("c", Some("well")).await.1, OperationResult::UpdatedStatus);
    let err = create_or_patch(&pods, Pod::default(), |_| Ok(()))
        .await
        .expect_err("the object has no name");
    assert!(err.to_string().contains("the object has no name"), "{err}");
}

#[tokio::test(start_paused = true)]
async fn manager_has_one_recorder_for_each_controller() {
    let cluster = TestCluster::builder().object(pod("web")).start();
    let manager = Manager::new(cluster.client());
    let first = manager
        .recorder("example.com/web")
        .expect("the manager has not stopped");
    cluster.run({
        let manager = manager.clone();
        async move { manager.run(std::future::pending()).await }
    });
    cluster.settle().await;
    let web = cluster.get::<Pod>("web");
    let second = manager
        .recorder("example.com/web")
        .expect("the manager has not stopped");
    let other = manager
        .recorder("example.com/other")
        .expect("the manager has not stopped");
    for recorder in [first, second, other] {
        recorder.record(&web, Note::normal("Seen", "Look", "it is there"));
    }
    cluster.settle().await;
    let events = cluster.list::<Event>();
    let mut told: Vec<_> = events
        .iter()
        .map(|it| {
            let count = it.series.as_ref().map_or(1, |series| series.count);
            (it.reporting_controller.clone().unwrap_or_default(), count)
        })
        .collect();
    told.sort();
    assert_eq!(
        told,
        [("example.com/other".to_owned(), 1), ("example.com/web".to_owned(), 2)]
    );
}
