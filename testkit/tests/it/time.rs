//! Activity that `settle` waits for, activity that it ignores, and its failure if the cluster never settles.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, Client};
use rstest::rstest;
use serde_json::json;
use testkit::objects::{config_map, object, pod};
use testkit::{TestCluster, Verb, cluster, faults};
use tokio::time::{Instant, sleep};

use crate::support::{failure, failure_of, label_pods};

async fn patch_map(client: &Client, key: &str, value: u64) {
    let maps = Api::<k8s_openapi::api::core::v1::ConfigMap>::default_namespaced(client.clone());
    let patch = json!({"data": {key: value.to_string()}});
    maps.patch("a", &PatchParams::default(), &Patch::Merge(patch))
        .await
        .expect("the object exists");
}

#[rstest]
#[tokio::test(start_paused = true)]
async fn settle_takes_exactly_the_quiet_time(cluster: TestCluster) {
    let began = Instant::now();
    cluster.settle().await;
    assert_eq!(began.elapsed(), Duration::from_millis(5_100));
}

/// If Events expire an hour after their last write, as in a cluster, `settle` does not wait for this, with or without a
/// watch.
#[rstest]
#[case::without_a_watch(false)]
#[case::with_a_watch(true)]
#[tokio::test(start_paused = true)]
async fn expiring_events_do_not_prevent_settling(#[case] is_watched: bool) {
    const LIFETIME: Duration = Duration::from_secs(3600);
    let cluster = TestCluster::builder().server(|it| it.event_ttl(LIFETIME)).start();
    let about = json!({"kind": "Node", "name": "n"});
    let event = object("v1", "Event", "a").set("involvedObject", about);
    let began = cluster.server().now();
    cluster.create(event).await;
    if is_watched {
        let client = cluster.client();
        cluster.run(async move {
            let events = Api::<k8s_openapi::api::core::v1::Event>::all(client);
            let mut told = std::pin::pin!(kube::runtime::watcher(
                events,
                kube::runtime::watcher::Config::default()
            ));
            while futures::StreamExt::next(&mut told).await.is_some() {}
        });
    }
    cluster.settle().await;
    assert_eq!(cluster.server().expired_events(), 0);
    let left = LIFETIME - cluster.server().now().duration_since(began).unsigned_abs();
    cluster.advance(left - Duration::from_secs(2)).await;
    let settling = Instant::now();
    cluster.settle().await;
    assert_eq!(settling.elapsed(), Duration::from_millis(5_100));
    assert_eq!(cluster.server().expired_events(), 1);
}

#[rstest]
#[tokio::test(start_paused = true)]
async fn settle_waits_for_a_retry_after_five_seconds(cluster: TestCluster) {
    let conflicts = cluster.inject(faults::conflict().on(Verb::Update, "pods").times(3));
    cluster.run(label_pods(cluster.client()));
    cluster.create(pod("web-0")).await;
    cluster.settle().await;
    assert_eq!(conflicts.hits(), 3);
    assert_eq!(cluster.get(pod("web-0")).label("seen"), Some("true"));
}

#[rstest]
#[tokio::test(start_paused = true)]
async fn settle_does_not_wait_for_a_requeue_after_minutes(cluster: TestCluster) {
    let began = Instant::now();
    cluster.run(label_pods(cluster.client()));
    cluster.create(pod("web-0")).await;
    cluster.settle().await;
    assert!(began.elapsed() < Duration::from_secs(6), "{:?}", began.elapsed());
}

#[rstest]
#[tokio::test(start_paused = true)]
async fn polling_does_not_prevent_settling(cluster: TestCluster) {
    let client = cluster.client();
    cluster.create(config_map("a").data("n", "1")).await;
    cluster.run(async move {
        let pods = Api::<Pod>::all(client.clone());
        loop {
            pods.list(&ListParams::default()).await.expect("the list succeeds");
            patch_map(&client, "n", 1).await;
            sleep(Duration::from_secs(1)).await;
        }
    });
    cluster.settle().await;
    assert!(
        cluster.requests().count() < 20,
        "reads and writes that change nothing do not count"
    );
}

#[rstest]
#[tokio::test(start_paused = true)]
async fn lease_renewal_does_not_prevent_settling(cluster: TestCluster) {
    let client = cluster.client();
    cluster
        .create(object("coordination.k8s.io/v1", "Lease", "leader"))
        .await;
    cluster.run(async move {
        let leases = Api::<k8s_openapi::api::coordination::v1::Lease>::default_namespaced(client);
        for n in 0.. {
            let patch = json!({"spec": {"leaseTransitions": n}});
            leases
                .patch("leader", &PatchParams::default(), &Patch::Merge(patch))
                .await
                .expect("the object exists");
            sleep(Duration::from_secs(2)).await;
        }
    });
    let began = Instant::now();
    cluster.settle().await;
    assert!(began.elapsed() < Duration::from_secs(6), "{:?}", began.elapsed());
}

#[rstest]
#[tokio::test(start_paused = true)]
async fn heartbeat_that_changes_objects_is_reported(cluster: TestCluster) {
    let client = cluster.client_named("heart");
    cluster.create(config_map("a")).await;
    cluster.run(async move {
        for n in 0.. {
            patch_map(&client, "n", n).await;
            sleep(Duration::from_secs(1)).await;
        }
    });
    let message = failure(cluster.settle()).await;
    assert!(
        message.contains("the cluster does not settle: 60") && message.contains(" s of virtual time"),
        "{message}"
    );
    assert!(
        message.contains("PATCH /api/v1/namespaces/default/configmaps/a by \"heart\": 200"),
        "{message}"
    );
    assert!(
        message.contains("time.rs:"),
        "the message names the line of the test: {message}"
    );
}

#[tokio::test(start_paused = true)]
async fn loop_without_a_wait_is_reported() {
    let cluster = TestCluster::builder().max_requests(100).start();
    let client = cluster.client();
    cluster.run(async move {
        let pods = Api::<Pod>::default_namespaced(client);
        loop {
            let _ = pods.get_opt("web-0").await;
        }
    });
    let message = failure(cluster.settle()).await;
    assert!(message.contains("100 requests at one instant"), "{message}");
    assert!(message.contains("/pods/web-0 by \"kube-rs\": 404"), "{message}");
}

#[rstest]
#[tokio::test(start_paused = true)]
async fn writes_without_effect_do_not_delay_settling_while_another_object_changes(cluster: TestCluster) {
    cluster.create(config_map("a").data("same", "1")).await;
    let client = cluster.client();
    cluster.run(async move {
        loop {
            patch_map(&client, "same", 1).await;
            sleep(Duration::from_secs(3)).await;
        }
    });
    let maps = Api::<k8s_openapi::api::core::v1::ConfigMap>::default_namespaced(cluster.client());
    cluster.run(async move {
        sleep(Duration::from_secs(1)).await;
        let patch = Patch::Merge(json!({"metadata": {"name": "b"}, "data": {"once": "1"}}));
        let applied = maps.patch("b", &PatchParams::default(), &patch).await;
        applied.expect("the object exists");
        std::future::pending::<()>().await;
    });
    cluster.create(config_map("b")).await;
    let began = Instant::now();
    cluster.settle().await;
    assert_eq!(began.elapsed(), Duration::from_millis(6_100));
}

/// The controller immediately reacts to its own write by writing again, forever.
#[rstest]
#[tokio::test(start_paused = true)]
async fn settle_reports_a_hot_loop_after_2000_messages(cluster: TestCluster) {
    let client = cluster.client_named("operator");
    cluster.create(config_map("a")).await;
    cluster.run(async move {
        for n in 0.. {
            patch_map(&client, "n", n).await;
        }
    });
    let message = failure(cluster.settle()).await;
    let expected = "the cluster does not settle: more than 2000 requests at one instant of virtual time (20";
    assert!(message.contains(expected), "{message}");
    assert!(message.contains("including events, about 1 object)"), "{message}");
    assert!(
        message.contains(" × PATCH /api/v1/namespaces/default/configmaps/a by \"operator\": 200"),
        "{message}"
    );
}

#[rstest]
#[tokio::test(start_paused = true)]
async fn work_on_many_objects_is_not_a_hot_loop(cluster: TestCluster) {
    let client = cluster.client();
    cluster.run(async move {
        let maps = Api::<k8s_openapi::api::core::v1::ConfigMap>::default_namespaced(client);
        for n in 0..1_500 {
            let map = serde_json::from_value(json!({"metadata": {"name": format!("map-{n}")}}))
                .expect("the object is a ConfigMap");
            maps.create(&Default::default(), &map)
                .await
                .expect("the object does not exist yet");
            maps.get(&format!("map-{n}")).await.expect("the object was created");
        }
    });
    cluster.settle().await;
    assert_eq!(cluster.requests().count(), 3_000);
}

#[rstest]
#[tokio::test(start_paused = true)]
async fn controller_that_panics_fails_the_test(cluster: TestCluster) {
    let controller = cluster.run(async { panic!("the controller cannot continue") });
    let message = failure(cluster.settle()).await;
    assert!(
        message.contains("panicked: the controller cannot continue") && message.contains(&controller.to_string()),
        "{message}"
    );
    assert!(!controller.is_running());
    cluster.settle().await;
}

#[rstest]
#[tokio::test(start_paused = true)]
async fn condition_may_assert_and_may_read_missing_objects(cluster: TestCluster) {
    let client = cluster.client();
    cluster.run(async move {
        sleep(Duration::from_secs(20)).await;
        let map = serde_json::from_value(json!({"metadata": {"name": "late"}})).expect("the object is a ConfigMap");
        let maps = Api::<k8s_openapi::api::core::v1::ConfigMap>::default_namespaced(client);
        maps.create(&Default::default(), &map)
            .await
            .expect("the object does not exist yet");
    });
    cluster
        .eventually(|c| assert_eq!(c.get(config_map("late")).name(), "late"))
        .await;
}

#[rstest]
#[tokio::test(start_paused = true)]
async fn consistently_fails_if_the_condition_stops_holding(cluster: TestCluster) {
    let client = cluster.client();
    cluster.create(config_map("a").data("n", "0")).await;
    cluster.run(async move {
        sleep(Duration::from_secs(600)).await;
        patch_map(&client, "n", 1).await;
    });
    let steady = |c: &TestCluster| c.get(config_map("a")).data("n") == Some("0");
    cluster.consistently(Duration::from_secs(599), steady).await;
    let message = failure(cluster.consistently(Duration::from_secs(10), steady)).await;
    assert!(message.contains("does not hold after 1"), "{message}");
}

#[tokio::test]
async fn clock_is_paused_by_the_cluster() {
    let cluster = TestCluster::start();
    let began = Instant::now();
    cluster.advance(Duration::from_secs(3600)).await;
    assert_eq!(began.elapsed().as_secs(), 3600);
}

#[tokio::test(flavor = "multi_thread")]
async fn multi_threaded_runtime_is_refused() {
    assert!(failure_of(TestCluster::start).contains("current_thread"));
}

#[test]
fn start_without_a_tokio_runtime_is_refused() {
    assert!(failure_of(TestCluster::start).contains("#[tokio::test]"));
}

#[tokio::test(start_paused = true)]
async fn yaml_objects_with_a_uid_are_loaded_unchanged_and_others_are_created() {
    const WORLD: &str = "
{apiVersion: v1, kind: Pod, metadata: {name: new, namespace: shop}, spec: {containers: [{name: a, image: b}]}}
---
{apiVersion: v1, kind: Pod, metadata: {name: old, namespace: shop, uid: u-1}, status: {phase: Failed}}
";
    let cluster = TestCluster::builder().yaml(WORLD).start();
    let (new, old) = (
        cluster.get(pod("new").namespace("shop")),
        cluster.get(pod("old").namespace("shop")),
    );
    assert_eq!(new.get("spec.restartPolicy"), Some(&"Always".into()), "defaults");
    assert_eq!((old.uid(), old.get("status.phase")), ("u-1", Some(&"Failed".into())));
}
