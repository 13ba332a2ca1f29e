//! kube-runtime's `Controller`, unmodified.

use std::time::Duration;

use rstest::rstest;
use testkit::objects::{config_map, pod};
use testkit::{TestCluster, Verb, cluster, faults};

use crate::support::{label_pods, own_config_maps};

#[rstest]
#[tokio::test(start_paused = true)]
async fn created_object_is_reconciled(cluster: TestCluster) {
    cluster.run(label_pods(cluster.client()));
    cluster.create(pod("web-0").namespace("shop")).await;
    cluster.settle().await;
    assert_eq!(cluster.get(pod("web-0").namespace("shop")).label("seen"), Some("true"));
    assert_eq!(cluster.requests().on(Verb::List, "pods").count(), 1);
    assert_eq!(cluster.requests().writes().count(), 1);
}

#[rstest]
#[tokio::test(start_paused = true)]
async fn conflict_is_retried(cluster: TestCluster) {
    let conflict = cluster.inject(faults::conflict().on(Verb::Update, "pods").once());
    cluster.run(label_pods(cluster.client()));
    cluster.create(pod("web-0")).await;
    cluster.settle().await;
    assert_eq!(cluster.get(pod("web-0")).label("seen"), Some("true"));
    assert_eq!(conflict.hits(), 1);
    assert_eq!(cluster.requests().on(Verb::Update, "pods").count(), 2);
}

#[rstest]
#[tokio::test(start_paused = true)]
async fn deleted_owned_object_is_recreated(cluster: TestCluster) {
    cluster.run(own_config_maps(cluster.client()));
    let web = cluster.create(pod("web-0")).await;
    cluster.settle().await;
    cluster.assert_has(config_map("web-0").data("pod", "web-0").owned_by(&web));

    cluster.delete(config_map("web-0")).await;
    cluster.settle().await;
    cluster.assert_has(config_map("web-0").data("pod", "web-0"));
}

#[rstest]
#[tokio::test(start_paused = true)]
async fn drift_is_corrected(cluster: TestCluster) {
    cluster.run(own_config_maps(cluster.client()));
    cluster.create(pod("web-0")).await;
    cluster.settle().await;
    cluster
        .patch(config_map("web-0"), serde_json::json!({"data": {"pod": "other"}}))
        .await;
    cluster.settle().await;
    cluster.assert_has(config_map("web-0").data("pod", "web-0"));
}

#[rstest]
#[tokio::test(start_paused = true)]
async fn restarted_controller_catches_up_after_a_crash(cluster: TestCluster) {
    let controller = cluster.run(label_pods(cluster.client()));
    cluster.settle().await;
    controller.crash();
    cluster.create(pod("web-0")).await;
    cluster.settle().await;
    assert!(!controller.is_running());
    assert_eq!(cluster.get(pod("web-0")).label("seen"), None);
    assert_eq!(cluster.watches().on("pods").count(), 0);

    cluster.run(label_pods(cluster.client()));
    cluster.settle().await;
    assert_eq!(cluster.get(pod("web-0")).label("seen"), Some("true"));
}

#[rstest]
#[tokio::test(start_paused = true)]
async fn idle_controller_does_not_write_for_a_day(cluster: TestCluster) {
    cluster.run(label_pods(cluster.client()));
    cluster.create(pod("web-0")).await;
    cluster.advance(Duration::from_secs(24 * 3600)).await;
    assert_eq!(cluster.requests().writes().count(), 1);
    assert_eq!(cluster.requests().on(Verb::List, "pods").count(), 1);
    let watches = cluster.requests().on(Verb::Watch, "pods").count();
    assert!(
        (290..310).contains(&watches),
        "a watch ends after 290 s, but there were {watches} in a day"
    );
}

/// The write after the new list conflicts as well.
#[rstest]
#[tokio::test(start_paused = true)]
async fn expired_watch_causes_one_relist(cluster: TestCluster) {
    cluster.run(label_pods(cluster.client()));
    cluster.create(pod("web-0").namespace("shop")).await;
    cluster.settle().await;

    cluster.expire_watches();
    let conflict = cluster.inject(faults::conflict().on(Verb::Update, "pods").once());
    cluster.create(pod("web-1").namespace("shop")).await;

    cluster
        .eventually(|c| c.get(pod("web-1").namespace("shop")).label("seen") == Some("true"))
        .await;
    assert_eq!(cluster.requests().on(Verb::List, "pods").count(), 2);
    assert_eq!(conflict.hits(), 1);
}
