//! Slow runs and wrong runs, waiting, and the coverage of a search.

use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Patch, PatchParams};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, ResourceExt};
use rstest::rstest;
use serde_json::json;
use testkit::TestCluster;
use testkit::explore::{Oracle, errors, explore};
use testkit::objects::config_map;

/// Marks each ConfigMap with its size; retries after this number of seconds.
async fn mark(client: Client, again: u64) {
    let maps = Api::<ConfigMap>::default_namespaced(client);
    let mut events = watcher(maps.clone(), watcher::Config::default())
        .default_backoff()
        .boxed();
    while let Some(event) = events.next().await {
        let (watcher::Event::Apply(map) | watcher::Event::InitApply(map)) = (match event {
            Ok(event) => event,
            Err(_) => continue,
        }) else {
            continue;
        };
        let size = map
            .data
            .as_ref()
            .and_then(|it| it.get("size"))
            .cloned()
            .unwrap_or_default();
        let patch = Patch::Merge(json!({"metadata": {"annotations": {"size": size}}}));
        while map.annotations().get("size") != Some(&size)
            && maps
                .patch(&map.name_any(), &PatchParams::default(), &patch)
                .await
                .is_err()
        {
            tokio::time::sleep(Duration::from_secs(again)).await;
        }
    }
}

#[rstest]
#[case::within_fifteen_minutes(300, false)]
#[case::after_half_an_hour(1_800, true)]
fn late_end_state_passes_and_is_noted_after_fifteen_minutes(#[case] again: u64, #[case] is_noted: bool) {
    let report = explore(async move |cluster: &TestCluster| {
        cluster.create(config_map("a").data("size", "1")).await;
        cluster.controller("marker", move |client| mark(client, again));
        cluster.settle().await;
    })
    .faults(errors())
    .run();
    let is_told = report.notes().iter().any(|it| it.contains("`.within(…)`"));
    assert_eq!(is_told, is_noted, "{report}");
}

#[test]
fn end_state_that_stays_wrong_for_more_than_an_hour_fails() {
    let report = explore(async |cluster: &TestCluster| {
        cluster.create(config_map("a").data("size", "1")).await;
        cluster.controller("marker", |client| mark(client, 100_000));
        cluster.settle().await;
    })
    .faults(errors())
    .report();
    let failure = report.failure().expect("the exploration fails");
    assert_eq!(failure.oracle(), "end state");
    assert!(
        failure
            .what()
            .starts_with("the two runs differ after the step at testkit/tests/first_contact/verdict.rs:"),
        "{report}"
    );
}

/// Sets an annotation to `value` after every other change. Two such controllers with different values compete forever.
async fn fight(client: Client, value: &'static str) {
    let maps = Api::<ConfigMap>::default_namespaced(client);
    let mut events = watcher(maps.clone(), watcher::Config::default())
        .applied_objects()
        .boxed();
    while let Some(Ok(map)) = events.next().await {
        if map.annotations().get("owner").is_none_or(|it| it != value) {
            let patch = Patch::Merge(json!({"metadata": {"annotations": {"owner": value}}}));
            let _ = maps.patch(&map.name_any(), &PatchParams::default(), &patch).await;
        }
    }
}

#[test]
fn hot_loop_at_one_instant_fails_the_reference() {
    let report = explore(async |cluster: &TestCluster| {
        cluster.controller("one", |client| fight(client, "one"));
        cluster.controller("two", |client| fight(client, "two"));
        cluster.create(config_map("a")).await;
        cluster.settle().await;
    })
    .report();
    let failure = report.failure().expect("the exploration fails");
    assert_eq!(failure.oracle(), "no hot loop");
    assert!(
        failure
            .what()
            .starts_with("2000 requests and events at one instant of virtual time:"),
        "{report}"
    );
    assert!(failure.what().contains("one PATCH configmaps default/a"), "{report}");
}

#[test]
fn panic_that_resembles_a_testkit_message_is_an_assertion() {
    let report = explore(async |cluster: &TestCluster| {
        cluster.controller("marker", |client| mark(client, 2));
        panic!("the cluster does not settle: the controller started at my assertion");
    })
    .without(Oracle::HotLoop)
    .report();
    let failure = report.failure().expect("the exploration fails");
    assert_eq!(failure.oracle(), "the scenario's own assertions");
}

#[rstest]
#[case::all_tried(2_000, true)]
#[case::some_not_tried(3, false)]
fn exploration_can_require_that_every_single_fault_is_tried(#[case] schedules: u64, #[case] is_success: bool) {
    let explored = || {
        explore(async |cluster: &TestCluster| {
            cluster.create(config_map("a").data("size", "1")).await;
            cluster.controller("marker", |client| mark(client, 2));
            cluster.settle().await;
        })
        .faults(errors())
        .budget(Duration::from_secs(600))
        .schedules(schedules)
    };
    let report = explored().require_all_singles().report();
    assert_eq!(report.is_success(), is_success, "{report}");
    let report = explored().run();
    let text = report.to_string();
    assert_eq!(text.contains("single faults were not tried"), !is_success, "{text}");
    let is_slow = cfg!(debug_assertions) && !is_success;
    assert_eq!(text.contains("opt-level = 1"), is_slow, "{text}");
}
