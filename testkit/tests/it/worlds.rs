//! States of clusters: dumps, recordings, differences, restarts; and the assertions on the results of controllers.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::api::ListParams;
use kube::runtime::watcher;
use kube::{Api, ResourceExt};
use rstest::rstest;
use serde_json::json;
use testkit::objects::{config_map, pod};
use testkit::{Pace, Recording, RestartLog, TestCluster, Verb, WatchEventKind, cluster};
use tokio::time::Instant;

use crate::support::{Told, failure, failure_of, label_pods, own_config_maps, watch_pods};

/// Creates a separate directory for one test.
fn folder(name: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{}-{name}", std::process::id()));
    fs::create_dir_all(folder.join("namespaces/shop/core")).expect("the target directory is writable");
    folder
}

#[rstest]
#[tokio::test(start_paused = true)]
async fn supported_kinds_of_a_must_gather_dump_are_loaded(cluster: TestCluster) {
    let folder = folder("dump");
    let write = |path: &str, text: &str| fs::write(folder.join(path), text).expect("the file is writable");
    let pods = r#"{"kind": "PodList", "apiVersion": "v1", "items": [
        {"metadata": {"name": "web-0", "namespace": "shop", "uid": "u-1"}, "status": {"phase": "Running"}}]}"#;
    write("namespaces/shop/core/pods.yaml", pods);
    write(
        "namespaces/shop/shop.yaml",
        "kind: Namespace\napiVersion: v1\nmetadata: {name: shop, uid: u-2}\n",
    );
    write(
        "version.yaml",
        "kind: ClusterVersion\napiVersion: config.openshift.io/v1\nmetadata: {name: version}\n",
    );
    write("timestamp.yaml", "2026-01-01 a log, not an object\n");
    write("pod.log", "kind: Pod\n");

    let report = cluster.load_dump(&folder);
    fs::remove_dir_all(&folder).expect("the directory was created here");
    assert_eq!(report.stored, 2);
    let skipped = report.skipped.join("\n");
    assert!(
        skipped.contains("ClusterVersion \"version\": no resource of this kind is served"),
        "{skipped}"
    );
    assert!(skipped.contains("timestamp.yaml: expected an object"), "{skipped}");
    let web = cluster.get(pod("web-0").namespace("shop"));
    assert_eq!((web.uid(), web.get("status.phase")), ("u-1", Some(&"Running".into())));
}

#[rstest]
#[tokio::test(start_paused = true)]
async fn cluster_state_round_trips_through_yaml(cluster: TestCluster) {
    cluster.create(pod("web-0").namespace("shop").label("app", "web")).await;
    let twin = TestCluster::builder().yaml(&cluster.to_yaml()).start();
    let (ours, theirs) = (
        cluster.get(pod("web-0").namespace("shop")),
        twin.get(pod("web-0").namespace("shop")),
    );
    assert_eq!(ours.uid(), theirs.uid());
    assert_eq!(twin.to_yaml().matches("kind: Pod\n").count(), 1);
}

#[rstest]
#[tokio::test(start_paused = true)]
async fn changes_are_listed_field_by_field(cluster: TestCluster) {
    cluster.create(config_map("kept").data("a", "1")).await;
    cluster.create(config_map("gone")).await;
    let before = cluster.snapshot();
    cluster.assert_unchanged(&before);
    cluster.patch(config_map("kept"), json!({"data": {"a": "2"}})).await;
    cluster.delete(config_map("gone")).await;
    cluster.create(config_map("new")).await;
    let message = failure_of(|| cluster.assert_unchanged(&before));
    let expected = "the cluster has changed:\n- ConfigMap default/gone\n+ ConfigMap default/new\n\
        ~ ConfigMap default/kept\n    data.a: \"1\" -> \"2\"\n";
    assert!(message.ends_with(expected), "{message}");
    cluster.restore(&before);
    cluster.assert_unchanged(&before);
}

#[rstest]
#[case::immediately(Pace::AtOnce, 0)]
#[case::original_pace(Pace::Original, 90)]
#[case::fixed_interval(Pace::Every(Duration::from_secs(10)), 20)]
#[tokio::test(start_paused = true)]
async fn recording_is_replayed_at_the_requested_pace(cluster: TestCluster, #[case] pace: Pace, #[case] seconds: u64) {
    let event = |kind: &str, name: &str, time: &str| {
        let metadata = json!({"name": name, "namespace": "default", "creationTimestamp": time});
        json!({"type": kind, "object": {"apiVersion": "v1", "kind": "Pod", "metadata": metadata}}).to_string()
    };
    let stream = [
        event("ADDED", "a", "2026-01-01T00:00:00Z"),
        event("ADDED", "b", "2026-01-01T00:01:30Z"),
        event("DELETED", "a", "2026-01-01T00:00:00Z"),
    ];
    let recording = Recording::from_kubectl(&stream.join("\n")).expect("the recording is valid");
    let told = Told::default();
    cluster.run(watch_pods(cluster.client(), watcher::Config::default(), told.clone()));
    cluster.settle().await;
    told.take();

    let began = Instant::now();
    cluster.replay(&recording, pace).await;
    assert_eq!(began.elapsed(), Duration::from_secs(seconds));
    cluster.settle().await;
    assert_eq!(told.take(), ["apply a", "apply b", "delete a"]);

    let before = cluster.snapshot();
    cluster.replay_to(&cluster.watches().on("pods"), &recording, pace).await;
    cluster.settle().await;
    assert_eq!(told.take(), ["apply a", "apply b", "delete a"]);
    cluster.assert_unchanged(&before);
}

#[rstest]
#[tokio::test(start_paused = true)]
async fn audit_log_is_replayed(cluster: TestCluster) {
    let event = |verb: &str, code: u16, object: serde_json::Value, second: u8| {
        let reference = json!({"resource": "configmaps", "namespace": "default", "name": "a", "apiVersion": "v1"});
        json!({
            "kind": "Event", "apiVersion": "audit.k8s.io/v1", "level": "RequestResponse", "stage": "ResponseComplete",
            "verb": verb, "objectRef": reference, "responseStatus": {"code": code}, "responseObject": object,
            "stageTimestamp": format!("2026-01-01T00:00:{second:02}.000000Z"),
        })
        .to_string()
    };
    let map = |value: &str| {
        let metadata = json!({"name": "a", "namespace": "default", "uid": "u-1"});
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"k": value}})
    };
    let log = [
        event("create", 201, map("1"), 0),
        event("update", 409, json!({"kind": "Status"}), 1),
        event("update", 200, map("2"), 5),
        event("delete", 200, json!({"kind": "Status", "status": "Success"}), 9),
    ];
    let recording = Recording::from_audit_log(&log.join("\n")).expect("the recording is valid");
    assert_eq!(recording.len(), 3);
    let replay = cluster.replay(&recording, Pace::Original);
    let look = async {
        tokio::time::sleep(Duration::from_secs(6)).await;
        assert_eq!(cluster.get(config_map("a")).data("k"), Some("2"));
    };
    futures::join!(replay, look);
    assert!(cluster.gone(config_map("a")));
}

#[rstest]
#[case::grace_period("delete", json!({"deletionGracePeriodSeconds": 30}), WatchEventKind::Modified)]
#[case::finalizer(
    "delete",
    json!({"deletionGracePeriodSeconds": 0, "finalizers": ["example.com/a"]}),
    WatchEventKind::Modified
)]
#[case::end_of_the_grace_period("delete", json!({"deletionGracePeriodSeconds": 0}), WatchEventKind::Deleted)]
#[case::status_in_the_grace_period("patch", json!({"deletionGracePeriodSeconds": 30}), WatchEventKind::Modified)]
#[case::removal_of_the_last_finalizer("update", json!({"deletionGracePeriodSeconds": 0}), WatchEventKind::Deleted)]
fn deletion_in_an_audit_log_ends_with_the_last_request(
    #[case] verb: &str,
    #[case] deletion: serde_json::Value,
    #[case] expected: WatchEventKind,
) {
    let mut metadata = json!({"name": "a", "namespace": "default", "uid": "u-1"});
    metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
    for (field, value) in deletion.as_object().expect("the value is an object") {
        metadata[field] = value.clone();
    }
    let log = json!({
        "kind": "Event", "apiVersion": "audit.k8s.io/v1", "level": "RequestResponse", "stage": "ResponseComplete",
        "verb": verb, "responseStatus": {"code": 200},
        "objectRef": {"resource": "pods", "namespace": "default", "name": "a", "apiVersion": "v1"},
        "responseObject": {"apiVersion": "v1", "kind": "Pod", "metadata": metadata},
    });
    let recording = Recording::from_audit_log(&log.to_string()).expect("the recording is valid");
    assert_eq!(recording.events()[0].kind, expected);
}

#[rstest]
#[tokio::test(start_paused = true)]
async fn run_is_replayed_from_its_journal(cluster: TestCluster) {
    cluster.run(label_pods(cluster.client()));
    cluster.settle().await;
    cluster.create(pod("a")).await;
    cluster.settle().await;
    let recording = Recording::from_journal(cluster.journal());
    let kinds: Vec<_> = recording.events().iter().map(|it| it.kind).collect();
    assert_eq!(kinds, [WatchEventKind::Added, WatchEventKind::Modified]);
    let other = TestCluster::start();
    other.replay(&recording, Pace::AtOnce).await;
    assert_eq!(other.get(pod("a")).label("seen"), Some("true"));
}

#[rstest]
#[case::kept_log(RestartLog::Kept, 1)]
#[case::lost_log(RestartLog::Lost, 2)]
#[tokio::test(start_paused = true)]
async fn restart_breaks_watches_and_causes_a_relist_if_the_log_is_lost(
    cluster: TestCluster,
    #[case] log: RestartLog,
    #[case] lists: usize,
) {
    cluster.run(label_pods(cluster.client_named("operator")));
    cluster.create(pod("a")).await;
    cluster.settle().await;
    // Other clients write as well, so the last event of the watch is not the newest revision.
    cluster.create(config_map("a")).await;
    cluster.restart(log, Duration::from_secs(3));
    cluster.create(pod("b")).await;
    let refused = Api::<Pod>::all(cluster.client()).list(&ListParams::default()).await;
    assert!(matches!(refused, Err(kube::Error::Service(_))), "{refused:?}");
    // The time between attempts of kube-runtime is random in each run, and may be longer than the quiet time of
    // `settle`.
    cluster
        .eventually(|c| c.get(pod("b")).label("seen") == Some("true"))
        .await;
    cluster
        .requests()
        .on(Verb::List, "pods")
        .client("operator")
        .answered(200)
        .assert_count(lists);
}

#[rstest]
#[tokio::test(start_paused = true)]
async fn frozen_replica_returns_an_earlier_state(cluster: TestCluster) {
    cluster.create(config_map("a")).await;
    let then = cluster.server().resource_version();
    cluster.create(config_map("b")).await;
    cluster.replica("operator").freeze_at(then);
    let maps: Api<ConfigMap> = Api::default_namespaced(cluster.client_named("operator"));
    let list = maps
        .list(&ListParams::default().match_any())
        .await
        .expect("the list succeeds");
    assert_eq!(list.items.iter().map(ResourceExt::name_any).collect::<Vec<_>>(), ["a"]);
}

#[rstest]
#[tokio::test(start_paused = true)]
async fn assertions_check_writes_owners_and_idleness(cluster: TestCluster) {
    cluster.run(own_config_maps(cluster.client_named("operator")));
    cluster.create(pod("web-0").namespace("shop")).await;
    cluster.assert_idle(Duration::from_secs(3600)).await;
    cluster
        .requests()
        .client("operator")
        .assert_writes(&["patch configmaps shop/web-0"; 2]);
    cluster.assert_owner_tree(
        pod("web-0").namespace("shop"),
        "
        Pod shop/web-0
          ConfigMap shop/web-0
        ",
    );
    cluster.assert_no_orphans();
    cluster.apply_event(WatchEventKind::Deleted, pod("web-0").namespace("shop"));
    let message = failure_of(|| cluster.assert_no_orphans());
    assert!(
        message.ends_with("all owners of these objects are missing: ConfigMap shop/web-0"),
        "{message}"
    );
}

#[rstest]
#[tokio::test(start_paused = true)]
async fn failed_check_of_requests_lists_requests_with_clients(cluster: TestCluster) {
    cluster.run(own_config_maps(cluster.client_named("operator")));
    cluster.create(pod("web-0")).await;
    cluster.settle().await;
    let message = failure_of(|| {
        cluster
            .requests()
            .writes()
            .assert_writes(&["create configmaps default/web-0"])
    });
    let expected = "expected\n  create configmaps default/web-0\nfound\n  patch configmaps default/web-0\n  \
        patch configmaps default/web-0:\n  \"operator\" ";
    assert!(message.contains(expected), "{message}");
    let message = failure_of(|| cluster.requests().on(Verb::List, "pods").assert_count(2));
    assert!(
        message.contains("expected 2 requests, found 1:\n  \"operator\""),
        "{message}"
    );
}

#[rstest]
#[tokio::test(start_paused = true)]
async fn assert_idle_fails_after_later_writes(cluster: TestCluster) {
    let maps: Api<ConfigMap> = Api::default_namespaced(cluster.client());
    cluster.create(config_map("a")).await;
    cluster.run(async move {
        for tick in 0.. {
            tokio::time::sleep(Duration::from_secs(20)).await;
            let patch = json!({"data": {"tick": tick.to_string()}});
            let _ = maps
                .patch("a", &Default::default(), &kube::api::Patch::Merge(patch))
                .await;
        }
    });
    let message = failure(cluster.assert_idle(Duration::from_secs(60))).await;
    assert!(message.contains("writes after the cluster had settled:\n"), "{message}");
    assert_eq!(message.matches("PATCH").count(), 3, "{message}");
}

#[rstest]
#[tokio::test(start_paused = true)]
async fn conditions_and_events_are_checked(cluster: TestCluster) {
    let conditions = json!([{"type": "Ready", "status": "False", "reason": "Crash", "message": "it fell"}]);
    cluster.create(pod("a").status(json!({"conditions": conditions}))).await;
    let event = json!({
        "apiVersion": "v1", "kind": "Event", "metadata": {"name": "a.1", "namespace": "default"}, "type": "Warning",
        "reason": "BackOff", "message": "again",
        "involvedObject": {"apiVersion": "v1", "kind": "Pod", "name": "a", "namespace": "default"},
    });
    cluster.server().load([event]).expect("the object is an Event");
    cluster.assert_condition(pod("a"), "Ready", "False");
    cluster.assert_event(pod("a"), "BackOff");
    let message = failure_of(|| cluster.assert_condition(pod("a"), "Ready", "True"));
    assert!(
        message.contains("does not have the condition Ready=True; it has\n  Ready=False Crash it fell"),
        "{message}"
    );
    let message = failure_of(|| cluster.assert_event(pod("a"), "Pulled"));
    assert!(
        message.contains(
            "there is no Event about Pod default/a with the reason Pulled; there are\n  Warning BackOff: again"
        ),
        "{message}"
    );
}

#[rstest]
#[tokio::test(start_paused = true)]
async fn probabilistic_faults_are_reproducible_by_seed(_cluster: TestCluster) {
    async fn struck(seed: u64) -> Vec<bool> {
        let cluster = TestCluster::builder().seed(seed).start();
        cluster
            .inject(testkit::faults::server_error().probability(0.5))
            .forget();
        let pods: Api<Pod> = Api::all(cluster.client());
        let mut struck = Vec::new();
        for _ in 0..32 {
            struck.push(pods.list(&ListParams::default()).await.is_err());
        }
        struck
    }
    let first = struck(1).await;
    assert_eq!(first, struck(1).await);
    assert_ne!(first, struck(2).await);
}
