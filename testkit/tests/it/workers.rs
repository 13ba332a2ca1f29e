//! The server's own controllers: `settle` waits for them, and they do not count as controllers under test.

use rstest::rstest;
use testkit::objects::{config_map, namespace, pod, secret};
use testkit::{PodScript, PodSelector, TestCluster, Verb, Worker, faults};

use crate::support::failure_of;

/// The `User-Agent` of the garbage collector.
const COLLECTOR: &str = "generic-garbage-collector";

#[rstest]
#[tokio::test(start_paused = true)]
async fn settle_waits_for_the_garbage_collector() {
    let cluster = TestCluster::builder()
        .workers([Worker::GarbageCollector, Worker::Namespace])
        .start();
    let owner = cluster.create(config_map("owner").namespace("shop")).await;
    let middle = cluster
        .create(secret("middle").namespace("shop").owned_by(&owner))
        .await;
    cluster.create(pod("leaf").namespace("shop").owned_by(&middle)).await;
    cluster.settle().await;
    assert!(cluster.exists(pod("leaf").namespace("shop")));

    cluster.delete(config_map("owner").namespace("shop")).await;
    cluster.settle().await;
    assert!(cluster.gone(pod("leaf").namespace("shop")));

    cluster.create(config_map("left").namespace("shop")).await;
    cluster.delete(namespace("shop")).await;
    cluster.settle().await;
    assert!(cluster.gone(namespace("shop")));
    assert!(cluster.gone(config_map("left").namespace("shop")));
}

#[rstest]
#[tokio::test(start_paused = true)]
async fn requests_of_workers_are_not_counted_and_not_affected_by_faults() {
    let cluster = TestCluster::builder().workers([Worker::GarbageCollector]).start();
    let owner = cluster.create(config_map("owner").namespace("shop")).await;
    cluster.create(pod("web-0").namespace("shop").owned_by(&owner)).await;
    let spared = cluster.inject(faults::server_error().on(Verb::Delete, "pods"));
    cluster.delete(config_map("owner").namespace("shop")).await;
    cluster.settle().await;

    assert!(cluster.gone(pod("web-0").namespace("shop")));
    assert_eq!(spared.hits(), 0, "the fault only affects the controller under test");
    assert_eq!(cluster.requests().count(), 0);
    assert_eq!(cluster.journal().count(Verb::Delete, "pods"), 0);
}

#[rstest]
#[tokio::test(start_paused = true)]
async fn fault_can_affect_a_worker_and_settle_waits_for_retries() {
    let cluster = TestCluster::builder().workers([Worker::GarbageCollector]).start();
    let owner = cluster.create(config_map("owner").namespace("shop")).await;
    cluster.create(pod("web-0").namespace("shop").owned_by(&owner)).await;
    let fault = cluster.inject(
        faults::server_error()
            .on(Verb::Delete, "pods")
            .client(COLLECTOR)
            .times(8),
    );
    cluster.delete(config_map("owner").namespace("shop")).await;
    cluster.settle().await;

    assert_eq!(fault.hits(), 8);
    assert!(cluster.gone(pod("web-0").namespace("shop")));
}

#[rstest]
#[tokio::test(start_paused = true)]
async fn pod_scripts_without_a_kubelet_are_refused() {
    let builder = TestCluster::builder()
        .workers([Worker::GarbageCollector])
        .pod_script(PodSelector::all(), PodScript::default());
    let message = failure_of(|| builder.start());
    assert!(message.contains("Pod scripts require `Worker::Kubelet`"), "{message}");
}
