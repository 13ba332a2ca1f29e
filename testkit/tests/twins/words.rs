//! Wording of reports: the run that is at fault, observations that are only notes, and the untried part of a search.

use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::Patch;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, ResourceExt};
use rstest::rstest;
use serde_json::json;
use testkit::explore::{Oracle, crashes, explore, variants};
use testkit::objects::{config_map, object};
use testkit::{TestCluster, TestClusterBuilder};
use tokio::time::sleep;

use crate::support::{OPERATOR, annotation, done, exploration, field, plain};

/// Creates a Secret for each ConfigMap. Deletes Secrets without a ConfigMap only when it starts.
async fn leak(cluster: &TestCluster) {
    cluster.controller("operator", async |client| {
        let maps = Api::<ConfigMap>::default_namespaced(client.clone());
        let secrets = Api::<Secret>::default_namespaced(client);
        for secret in secrets
            .list(&Default::default())
            .await
            .map(|it| it.items)
            .unwrap_or_default()
        {
            if let Ok(None) = maps.get_opt(&secret.name_any()).await {
                let _ = secrets.delete(&secret.name_any(), &Default::default()).await;
            }
        }
        let mut events = watcher(maps, watcher::Config::default())
            .default_backoff()
            .applied_objects()
            .boxed();
        while let Some(event) = events.next().await {
            let Ok(map) = event else { continue };
            let secret: Secret =
                serde_json::from_value(json!({"metadata": {"name": map.name_any()}})).expect("the object is valid");
            let _ = secrets.create(&Default::default(), &secret).await;
        }
    });
    cluster.create(config_map("web")).await;
    cluster.settle().await;
    cluster.delete(config_map("web")).await;
    cluster.settle().await;
}

/// The run with the fault cleans up, and the reference does not.
#[test]
fn object_that_outlives_its_owner_in_the_reference_is_reported() {
    let report = explore(leak)
        .faults(crashes())
        .without(Oracle::Idempotence)
        .without(Oracle::CreatesAndDeletes)
        .report();
    let failure = report.failure().expect("the exploration fails");
    let expected = "left behind in the reference run: secrets default/web, written by operator for configmaps \
                    default/web, which no longer exists";
    assert!(failure.what().starts_with(expected), "{report}");
}

/// Reads a setting for each event, and copies the size of each ConfigMap that is new or in the first list. A changed
/// size is therefore only copied after a restart.
async fn copy_first(cluster: &TestCluster, settles: bool) {
    cluster.controller("operator", async |client| {
        let maps = Api::<ConfigMap>::default_namespaced(client);
        let mut events = watcher(maps.clone(), watcher::Config::default())
            .default_backoff()
            .boxed();
        while let Some(event) = events.next().await {
            let (map, is_listed) = match event {
                Ok(watcher::Event::InitApply(map)) => (map, true),
                Ok(watcher::Event::Apply(map)) => (map, false),
                Ok(watcher::Event::Delete(_) | watcher::Event::Init | watcher::Event::InitDone) | Err(_) => continue,
            };
            while maps.get_opt("settings").await.is_err() {
                sleep(Duration::from_secs(5)).await;
            }
            let size = field(&map, "size");
            if annotation(&map, "size") == size || !(is_listed || annotation(&map, "size").is_empty()) {
                continue;
            }
            let patch = Patch::Merge(json!({"metadata": {"annotations": {"size": size}}}));
            while maps.patch(&map.name_any(), &Default::default(), &patch).await.is_err() {
                sleep(Duration::from_secs(5)).await;
            }
        }
    });
    cluster.create(config_map("web").data("size", "1")).await;
    cluster.settle().await;
    let _: testkit::Object = cluster.patch(config_map("web"), json!({"data": {"size": "2"}})).await;
    if settles {
        cluster.settle().await;
    }
}

/// The run with the fault copies the changed size, and the reference does not. The report does not decide which of the
/// two runs is wrong.
#[rstest]
#[case::after_a_step(true, "the two runs differ after the step at ")]
#[case::at_the_end(false, "the two runs end differently, so one of them is wrong (waited 900s):\n")]
fn headline_does_not_assume_that_the_reference_is_right(#[case] settles: bool, #[case] headline: &str) {
    let report = explore(async move |cluster: &TestCluster| copy_first(cluster, settles).await)
        .faults(crashes())
        .without(Oracle::Idempotence)
        .report();
    let failure = report.failure().expect("the exploration fails");
    assert_eq!(failure.oracle(), "end state", "{report}");
    let (first, _) = failure.what().split_once("\n  ").unwrap_or_default();
    assert!(failure.what().starts_with(headline), "{report}");
    assert!(first.contains(", so one of them is wrong (waited 900s):"), "{report}");
}

/// Adds seven to a number in the status of a budget at each start.
async fn count_starts(cluster: &TestCluster) {
    cluster.controller("operator", async |client| {
        let budgets = Api::<PodDisruptionBudget>::default_namespaced(client);
        loop {
            if let Ok(budget) = budgets.get("web").await {
                let known = budget.status.and_then(|it| it.current_healthy).unwrap_or(0);
                let status = json!({
                    "currentHealthy": known + 7, "desiredHealthy": 0, "disruptionsAllowed": 0, "expectedPods": 0,
                });
                let patch = Patch::Merge(json!({"status": status}));
                if budgets.patch_status("web", &Default::default(), &patch).await.is_ok() {
                    return std::future::pending().await;
                }
            }
            sleep(Duration::from_secs(5)).await;
        }
    });
    cluster.settle().await;
}

#[test]
fn hint_for_a_number_in_a_status_contains_both_possibilities() {
    let explored = |world: TestClusterBuilder| {
        explore(count_starts)
            .cluster(world.object(object("policy/v1", "PodDisruptionBudget", "web")))
            .faults(crashes())
            .without(Oracle::Idempotence)
            .report()
    };
    let report = explored(plain());
    let failure = report.failure().expect("the exploration fails");
    let hint = "if this may depend on the history of the run, ignore it: `.ignore(\"status.currentHealthy\")`; \
                otherwise the controller must handle it";
    assert!(failure.what().lines().any(|it| it.trim() == hint), "{report}");
    let report = explored(plain().ignore("status.currentHealthy"));
    assert!(report.is_success(), "{report}");
}

/// Gives each ConfigMap the next number, in the order of arrival.
async fn number(cluster: &TestCluster) {
    OPERATOR.start(cluster, async |parent, cx| {
        if annotation(&parent, "number").is_empty() {
            let all = cx.list::<ConfigMap>("").await?;
            let last = all
                .iter()
                .filter_map(|it| annotation(it, "number").parse::<u32>().ok())
                .max();
            let number = (last.unwrap_or(0) + 1).to_string();
            let metadata = json!({"annotations": {"number": number}, "resourceVersion": parent.resource_version()});
            cx.merge::<ConfigMap>(&parent.name_any(), json!({"metadata": metadata}))
                .await?;
        }
        done()
    });
    for name in ["web", "shop"] {
        cluster.create(config_map(name)).await;
        cluster.settle().await;
    }
}

#[test]
fn values_that_depend_on_arrival_order_cause_a_note() {
    let report = exploration(plain(), async |cluster: &TestCluster, _| number(cluster).await, true)
        .schedules(150)
        .run();
    let notes = report.notes().join("\n");
    assert!(
        notes.contains("values are assigned in the order of arrival"),
        "{report}"
    );
}

#[test]
fn truncated_search_lists_untried_kinds_of_faults() {
    let report = exploration(plain(), async |cluster: &TestCluster, _| number(cluster).await, true)
        .schedules(5)
        .run();
    let text = report.to_string();
    assert!(text.contains("single faults were not tried (untried kinds: "), "{text}");
    assert!(text.contains("overlaps"), "{text}");
}

/// Overlaps can be excluded from the kinds of faults.
#[test]
fn overlaps_can_be_excluded_from_the_faults() {
    let explored = |faults| {
        let report = explore(number)
            .faults(faults)
            .budget(Duration::from_secs(600))
            .schedules(3)
            .run();
        report.coverage().singles.1
    };
    let overlaps = testkit::explore::overlaps();
    assert!(explored(crashes() | overlaps) > explored(crashes()));
    assert_eq!(
        explored(variants() | overlaps),
        explored(variants()),
        "variants are not overlapping faults"
    );
}

#[tokio::test(start_paused = true)]
async fn external_systems_are_shared_by_name() {
    let cluster = TestCluster::start();
    cluster
        .external("cloud")
        .of("one")
        .create("disk", json!({}))
        .await
        .expect("the object does not exist yet");
    let found = cluster.external("cloud").of("other").get("disk").await;
    assert_eq!(found, Ok(Some(json!({}))));
    assert!(cluster.external("another").objects().is_empty());
}

#[test]
fn controller_with_only_discovery_requests_can_be_explored() {
    let report = explore(async |cluster: &TestCluster| {
        cluster.controller("operator", async |client| {
            while client.apiserver_version().await.is_err() {
                tokio::time::sleep(Duration::from_secs(5)).await;
            }
        });
        cluster.settle().await;
    })
    .run();
    assert!(report.coverage().points > 0, "{report}");
}
