//! Oracles of exploration and the times at which they are checked; replays that cannot be run fail.

use std::process::Command;
use std::time::Duration;

use futures::{Stream, StreamExt};
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret};
use kube::api::{DeleteParams, GetParams, ListParams, Patch, PatchParams, WatchEvent, WatchParams};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, ResourceExt};
use rstest::rstest;
use serde_json::json;
use testkit::explore::{Explore, Oracle, crashes, explore, stale_watches, variants};
use testkit::objects::{config_map, object};
use testkit::{TestCluster, Worker};

fn maps(client: Client) -> Api<ConfigMap> {
    Api::default_namespaced(client)
}

/// Returns a stream of the ConfigMaps that are new or changed.
fn applied(maps: &Api<ConfigMap>) -> impl Stream<Item = ConfigMap> + Unpin + use<> {
    let events = watcher(maps.clone(), watcher::Config::default()).default_backoff();
    events.applied_objects().filter_map(async |it| it.ok()).boxed()
}

/// Marks each ConfigMap as observed.
async fn mark(client: Client) {
    let maps = maps(client);
    let mut applied = applied(&maps);
    while let Some(map) = applied.next().await {
        if map.labels().is_empty() {
            let patch = Patch::Merge(json!({"metadata": {"labels": {"seen": "true"}}}));
            let _ = maps.patch(&map.name_any(), &Default::default(), &patch).await;
        }
    }
}

/// Increments a counter in each new ConfigMap. After a lost response, increments the counter for each event, including
/// events of its own writes, after a pause.
async fn count(client: Client, reads: usize, pause: Duration) {
    let maps = maps(client);
    for _ in 0..reads {
        let _ = maps.get_opt("a").await;
    }
    let Ok(events) = maps.watch(&WatchParams::default(), "0").await else {
        return;
    };
    let (mut events, mut is_confused, mut count) = (events.boxed(), false, 0);
    while let Some(Ok(event)) = events.next().await {
        if is_confused || matches!(event, WatchEvent::Added(_)) {
            count += 1;
            if !pause.is_zero() {
                tokio::time::sleep(pause).await;
            }
            let patch = Patch::Merge(json!({"metadata": {"annotations": {"count": count.to_string()}}}));
            is_confused |= maps.patch("a", &Default::default(), &patch).await.is_err();
        }
    }
}

/// Requests and events alternate, so that one case exceeds the limit by a request and the other by an event.
#[rstest]
fn hot_loop_is_reported_for_excess_requests_and_events(#[values(0, 1)] reads: usize) {
    let report = explore(async move |cluster: &TestCluster| {
        cluster.controller("operator", move |client| count(client, reads, Duration::ZERO));
        cluster.create(config_map("a")).await;
        cluster.settle().await;
    })
    .replay("lose@operator:patch:configmaps:default/a#1")
    .report();
    assert_eq!(report.failure().map(|it| it.oracle()), Some("no hot loop"), "{report}");
}

/// After a lost response, the controller increments a counter every second forever.
#[rstest]
#[case::enabled(None, Some("no hot loop"))]
#[case::disabled(Some(Oracle::HotLoop), None)]
fn hot_loop_oracle_can_be_disabled(#[case] without: Option<Oracle>, #[case] oracle: Option<&str>) {
    let explored = explore(async |cluster: &TestCluster| {
        cluster.controller("operator", |client| count(client, 0, Duration::from_secs(1)));
        cluster.create(config_map("a")).await;
        cluster.advance(Duration::from_secs(5)).await;
    })
    .ignore("metadata.annotations.count")
    .replay("lose@operator:patch:configmaps:default/a#1")
    .faults(variants());
    let report = without.into_iter().fold(explored, Explore::without).report();
    assert_eq!(report.failure().map(|it| it.oracle()), oracle, "{report}");
}

/// A loop that stops the clock is always an error.
#[test]
fn loop_at_one_instant_always_fails() {
    let report = explore(async |cluster: &TestCluster| {
        cluster.controller("operator", |client| count(client, 0, Duration::ZERO));
        cluster.create(config_map("a")).await;
        cluster.advance(Duration::from_secs(5)).await;
    })
    .cluster(TestCluster::builder().max_requests(500))
    .ignore("metadata.annotations.count")
    .without(Oracle::HotLoop)
    .replay("lose@operator:patch:configmaps:default/a#1")
    .report();
    assert!(!report.is_success(), "{report}");
}

/// After ten seconds, deletes the objects that it listed at its start.
async fn delete_late(client: Client) {
    let maps = maps(client);
    if let Ok(found) = maps.list(&ListParams::default()).await {
        tokio::time::sleep(Duration::from_secs(10)).await;
        for map in found {
            let _ = maps.delete(&map.name_any(), &DeleteParams::default()).await;
        }
    }
}

#[rstest]
#[case::enabled(None, Some("no delete by name of another object"))]
#[case::disabled(Some(Oracle::DeletesByName), None)]
fn deletes_by_name_oracle_can_be_disabled(#[case] without: Option<Oracle>, #[case] oracle: Option<&str>) {
    let explored = explore(async |cluster: &TestCluster| {
        cluster.create(config_map("a")).await;
        cluster.controller("operator", delete_late);
        cluster.settle().await;
        cluster.delete::<ConfigMap>("a").await;
        cluster.create(config_map("a")).await;
        cluster.advance(Duration::from_secs(20)).await;
    })
    .faults(variants());
    let report = without.into_iter().fold(explored, Explore::without).report();
    assert_eq!(report.failure().map(|it| it.oracle()), oracle, "{report}");
}

/// A workload of two steps; the later step depends on the earlier one.
async fn stepwise(cluster: &TestCluster) {
    cluster.controller("operator", mark);
    let make = async { drop(cluster.create(config_map("a")).await) };
    cluster.step("make a", make).await;
    cluster.step("settle", cluster.settle()).await;
    assert!(cluster.exists(config_map("a")), "there is nothing to do");
}

/// A replay that passes would make the bug look fixed.
#[rstest]
#[case::unknown_controller("restart@opeartor", "there is no controller \"opeartor\"; there is \"operator\"")]
#[case::unknown_client("skew=30000@opeartor", "there is no client \"opeartor\"; there is \"operator\"")]
#[case::unknown_step(
    "restart@operator;skip=make b",
    "the scenario has no step \"make b\"; there are \"make a\", \"settle\""
)]
#[case::skipped_step_that_others_need("restart@operator;skip=make a", "there is nothing to do")]
fn replay_that_cannot_be_run_fails(#[case] replay: &str, #[case] said: &str) {
    let report = explore(stepwise).replay(replay).schedules(1).report();
    let failure = report
        .failure()
        .unwrap_or_else(|| panic!("the exploration does not fail: {report}"));
    assert_eq!(failure.oracle(), "the replay can be executed", "{report}");
    assert!(failure.what().contains(said), "{report}");
}

/// A name with every separator of a replay string.
const ODD_NAME: &str = "my: operator; it's 100% @ #1";

#[test]
fn controller_with_special_characters_in_its_name_is_crashed() {
    let singles = |name: &'static str| {
        let scenario = async move |cluster: &TestCluster| {
            cluster.controller(name, mark);
            cluster.create(config_map("a")).await;
            cluster.settle().await;
        };
        let report = explore(scenario).faults(crashes()).schedules(50).run();
        report.coverage().singles
    };
    assert_eq!(singles(ODD_NAME), singles("operator"));
}

/// Creates a Secret for ConfigMap `a`, without checking for an existing one.
async fn make_secrets(client: Client) {
    let secrets = Api::<Secret>::default_namespaced(client.clone());
    let mut applied = applied(&maps(client));
    while let Some(map) = applied.next().await {
        if map.name_any() == "a" {
            let mut secret = Secret::default();
            secret.metadata.generate_name = Some("a-".to_owned());
            let _ = secrets.create(&Default::default(), &secret).await;
        }
    }
}

#[test]
fn failures_replay_with_any_controller_and_step_names() {
    let explored = || {
        explore(async |cluster: &TestCluster| {
            cluster.controller(ODD_NAME, make_secrets);
            let more = async { drop(cluster.create(config_map("b")).await) };
            cluster.step(ODD_NAME, more).await;
            cluster.create(config_map("a")).await;
            cluster.settle().await;
        })
    };
    let report = explored().report();
    let failure = report.failure().expect("the exploration fails");
    let restarted = format!("restart {ODD_NAME} when all work is done");
    let left_out = format!("skip the step {ODD_NAME:?}");
    assert_eq!(failure.plan(), [restarted, left_out]);
    // In a shell, the replay string is in single quotes.
    assert!(!failure.replay().contains('\''), "{report}");
    let again = explored().replay(&failure.replay()).schedules(1).report();
    let found = again
        .failure()
        .unwrap_or_else(|| panic!("the replay does not fail: {again}"));
    assert_eq!((found.what(), found.plan()), (failure.what(), failure.plan()));
}

/// Marks the ConfigMap at the end; retries failures after twenty seconds.
async fn mark_at_last(client: Client) {
    let maps = maps(client);
    let patch = Patch::Merge(json!({"metadata": {"labels": {"seen": "true"}}}));
    while maps.patch("a", &Default::default(), &patch).await.is_err() {
        tokio::time::sleep(Duration::from_secs(20)).await;
    }
}

/// The first attempt fails immediately. The next attempt gets no response for half a minute. The third attempt, at 70
/// s, is twenty seconds after the last fault.
#[test]
fn within_is_counted_from_the_last_fault() {
    let report = explore(async |cluster: &TestCluster| {
        cluster.create(config_map("a")).await;
        cluster.controller("operator", mark_at_last);
        cluster.settle().await;
    })
    .replay("fail=500@operator:patch:configmaps:default/a#1;silence=30000@operator:patch:configmaps:default/a#2")
    .faults(variants())
    .within(Duration::from_secs(30))
    .report();
    assert!(report.is_success(), "{report}");
}

/// There is no watch of ConfigMaps, and no request between the two writes.
#[test]
fn always_checks_run_after_every_write_of_the_test() {
    let report = explore(async |cluster: &TestCluster| {
        cluster.controller("operator", |client| async move {
            let _ = Api::<Pod>::default_namespaced(client)
                .list(&ListParams::default())
                .await;
        });
        cluster.create(config_map("a")).await;
        cluster.delete::<ConfigMap>("a").await;
        cluster.settle().await;
    })
    .always("there are no ConfigMaps", |cluster| {
        cluster.list::<ConfigMap>().is_empty()
    })
    .report();
    assert_eq!(report.failure().map(|it| it.oracle()), Some("always"), "{report}");
}

/// There is no watch of Pods either: the controller of ReplicaSets creates them one after another.
#[test]
fn always_checks_run_after_every_worker_write() {
    let report = explore(async |cluster: &TestCluster| {
        cluster.controller("operator", mark);
        let set = object("apps/v1", "ReplicaSet", "web").set(
            "spec",
            json!({
                "replicas": 2, "selector": {"matchLabels": {"app": "web"}},
                "template": {
                    "metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "web", "image": "web"}]},
                },
            }),
        );
        cluster.create(set).await;
        cluster.settle().await;
    })
    .cluster(TestCluster::builder().workers([Worker::ReplicaSet]))
    .always("no Pod is alone", |cluster| cluster.list::<Pod>().len() != 1)
    .report();
    let failure = report.failure().expect("the exploration fails");
    assert_eq!((failure.oracle(), failure.plan()), ("always", Vec::new()), "{report}");
}

/// The next test runs this test with environment variables. By itself, it only explores two schedules.
#[test]
#[expect(clippy::print_stdout, reason = "the other test reads it")]
fn entry_point_of_the_process_that_replays_a_plan() {
    println!("{}", explore(stepwise).schedules(2).run());
}

#[test]
fn replay_is_never_exhaustive() {
    let test = std::env::current_exe().expect("the test has an executable");
    let ran = Command::new(test)
        .args([
            "--exact",
            "entry_point_of_the_process_that_replays_a_plan",
            "--nocapture",
        ])
        .env("EXPLORE_REPLAY", "restart@operator")
        .output()
        .expect("the process starts");
    let said = String::from_utf8_lossy(&ran.stdout);
    assert!(ran.status.success(), "{said}");
    assert!(
        said.contains("explored: ") && said.contains("not searched") && !said.contains("exhaustive"),
        "{said}"
    );
}

/// Random runs continue until the budget is used up.
#[test]
fn search_is_exhaustive_if_only_random_plans_remain() {
    let report = explore(stepwise).faults(crashes()).schedules(22).run();
    let coverage = report.coverage();
    let are_all_tried = coverage.singles.0 == coverage.singles.1 && coverage.pairs.0 == coverage.pairs.1;
    assert!(
        are_all_tried && coverage.swarms > 0 && coverage.schedules == 22,
        "{report}"
    );
    assert!(coverage.is_whole, "{report}");
}

/// Copies the result of its own read, which the server's cache may serve.
async fn copy(client: Client) {
    let maps = maps(client);
    let mut applied = applied(&maps);
    while let Some(map) = applied.next().await {
        if map.name_any() == "a"
            && let Ok(found) = maps.get_with("a", &GetParams::any()).await
        {
            let copy = json!({
                "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "copy"}, "data": found.data,
            });
            let params = PatchParams::apply("operator").force();
            let _ = maps.patch("copy", &params, &Patch::Apply(copy)).await;
        }
    }
}

#[test]
fn read_of_one_object_may_be_served_by_a_lagging_replica() {
    let report = explore(async |cluster: &TestCluster| {
        cluster.controller("operator", copy);
        cluster.create(config_map("a").data("version", "1")).await;
        cluster.settle().await;
        cluster.patch(config_map("a"), json!({"data": {"version": "2"}})).await;
        cluster.settle().await;
    })
    .faults(stale_watches())
    .report();
    let failure = report.failure().expect("the exploration fails");
    let said = "answer get configmaps default/a of operator from a lagging replica";
    assert_eq!(failure.plan(), [said], "{report}");
    assert_eq!(failure.oracle(), "end state");
}

/// Generates a token for each ConfigMap: the Secret `token` contains it, and the ConfigMap gets a copy. If `copies` is
/// set, the copy is the token of the Secret instead of the token that was just generated.
async fn make_token(client: Client, copies: bool) {
    let (maps, secrets) = (maps(client.clone()), Api::<Secret>::default_namespaced(client));
    let mut applied = applied(&maps);
    while let Some(map) = applied.next().await {
        if map.data.is_some() {
            continue;
        }
        let token = format!("{:x}", fastrand::u128(..));
        let mut secret = Secret {
            string_data: Some([("token".to_owned(), token.clone())].into()),
            ..Secret::default()
        };
        secret.metadata.name = Some("token".to_owned());
        let _ = secrets.create(&Default::default(), &secret).await;
        let stored = match copies {
            true => secrets.get("token").await.ok().and_then(|it| it.data),
            false => None,
        };
        let stored = stored.and_then(|mut it| String::from_utf8(it.remove("token")?.0).ok());
        let patch = Patch::Merge(json!({"data": {"token": stored.unwrap_or(token)}}));
        let _ = maps.patch(&map.name_any(), &PatchParams::default(), &patch).await;
    }
}

#[rstest]
#[case::regenerated_value(false, None, Some("generated values"))]
#[case::oracle_disabled(false, Some(Oracle::GeneratedValues), None)]
#[case::copied_value(true, None, None)]
fn copies_of_a_generated_value_must_be_equal(
    #[case] copies: bool,
    #[case] without: Option<Oracle>,
    #[case] oracle: Option<&str>,
) {
    let explored = explore(async move |cluster: &TestCluster| {
        cluster.controller("operator", move |client| make_token(client, copies));
        cluster.create(config_map("a")).await;
        cluster.settle().await;
    })
    .faults(crashes());
    let report = without.into_iter().fold(explored, Explore::without).report();
    assert_eq!(report.failure().map(|it| it.oracle()), oracle, "{report}");
}
