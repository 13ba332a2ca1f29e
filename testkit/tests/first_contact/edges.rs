//! Explorations with special characters in names, clients of users, failing calls, late requests or many steps.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, ResourceExt};
use rstest::rstest;
use serde_json::json;
use testkit::explore::{External, ExternalError, crashes, errors, explore};
use testkit::objects::{config_map, secret};
use testkit::{TestCluster, UserInfo};
use tokio::time::sleep;

async fn create(client: Client, name: &str) {
    let map: ConfigMap =
        serde_json::from_value(json!({"metadata": {"name": name}})).expect("the object is a ConfigMap");
    let maps = Api::<ConfigMap>::default_namespaced(client);
    // An error is visible in the end state.
    let _ = maps.create(&PostParams::default(), &map).await;
}

#[test]
fn controller_with_a_space_in_its_name_can_call_an_external_system() {
    explore(async |cluster: &TestCluster| {
        let zone = cluster.external("dns zone").of("my operator");
        let handle = cluster.external("dns zone");
        cluster.controller("my operator", move |_| {
            let zone = zone.clone();
            async move {
                while zone.update("a", json!(1)).await.is_err() && zone.create("a", json!(1)).await.is_err() {
                    sleep(Duration::from_secs(1)).await;
                }
            }
        });
        cluster.settle().await;
        assert_eq!(handle.objects().len(), 1);
    })
    .schedules(20)
    .run();
}

#[test]
fn external_system_with_a_space_in_its_name_can_have_an_outage() {
    let failed = Arc::new(AtomicUsize::new(0));
    let all = Arc::clone(&failed);
    explore(async move |cluster: &TestCluster| {
        let (zone, failed) = (cluster.external("dns zone").of("operator"), Arc::clone(&all));
        cluster.controller("operator", move |_| {
            let (zone, failed) = (zone.clone(), Arc::clone(&failed));
            async move {
                while let Err(ExternalError::Unreachable) = zone.create("a", json!(1)).await {
                    failed.fetch_add(1, Ordering::Relaxed);
                    sleep(Duration::from_secs(5)).await;
                }
            }
        });
        cluster.settle().await;
    })
    .replay("outage=12000@operator:call:dns%20zone.create:a#1")
    .schedules(1)
    .report();
    let failed = failed.load(Ordering::Relaxed);
    assert!(failed >= 3, "{failed} calls failed in 12 s");
}

/// Virtual time only passes while all tasks wait.
#[test]
fn call_repeated_without_a_pause_ends_after_an_outage() {
    explore(async |cluster: &TestCluster| {
        let zone = cluster.external("zone").of("operator");
        cluster.controller("operator", move |_| {
            let zone = zone.clone();
            async move { while let Err(ExternalError::Unreachable) = zone.create("a", json!(1)).await {} }
        });
        cluster.settle().await;
    })
    .replay("outage=12000@operator:call:zone.create:a#1")
    .schedules(1)
    .run();
}

/// Starts again from the beginning until everything is done.
async fn create_anew(client: Client, cloud: External) {
    let maps = Api::<ConfigMap>::default_namespaced(client.clone());
    if maps.get("done").await.is_err() {
        let _ = maps.delete("token", &DeleteParams::default()).await;
        create(client.clone(), "token").await;
        while cloud.add(json!(1)).await.is_err() {
            sleep(Duration::from_secs(1)).await;
        }
        create(client, "done").await;
    }
    std::future::pending::<()>().await;
}

/// The additional creation is found first, but does not change the end state.
#[test]
fn lasting_difference_is_reported_before_an_additional_creation() {
    let report = explore(async |cluster: &TestCluster| {
        let cloud = cluster.external("cloud").of("operator");
        cluster.controller("operator", move |client| create_anew(client, cloud.clone()));
        cluster.settle().await;
    })
    .faults(crashes())
    .report();
    let failures: Vec<_> = report.failures().iter().map(|it| it.oracle()).collect();
    assert_eq!(failures, ["end state", "creates and deletes"], "{report}");
}

/// A task that the controller has spawned would survive the controller's future.
#[test]
fn crash_at_a_call_blocks_the_requests_of_spawned_tasks() {
    let report = explore(async |cluster: &TestCluster| {
        let (cloud, starts) = (cluster.external("cloud").of("operator"), Arc::new(AtomicUsize::new(0)));
        cluster.controller("operator", move |client| {
            let (cloud, start) = (cloud.clone(), starts.fetch_add(1, Ordering::Relaxed) + 1);
            async move {
                tokio::spawn(async move {
                    sleep(Duration::from_secs(5)).await;
                    create(client, &format!("start-{start}")).await;
                });
                let _ = cloud.create("a", json!(1)).await;
                std::future::pending::<()>().await;
            }
        });
        cluster.settle().await;
    })
    .replay("crash=1000@operator:call:cloud.create:a#1")
    .report();
    assert!(
        report.to_string().contains("configmaps default/start-1: missing"),
        "{report}"
    );
}

#[test]
fn client_with_user_info_receives_faults() {
    let report = explore(async |cluster: &TestCluster| {
        let client = cluster.client_as("operator", UserInfo::service_account("shop", "operator"));
        cluster.run(async move { create(client, "a").await });
        cluster.settle().await;
    })
    .faults(errors())
    .report();
    assert!(report.failure().is_some(), "{report}");
}

/// Deletes the Secrets that belong to a ConfigMap when it is deleted, with one request that is not repeated.
async fn delete_collection(client: Client) {
    let (maps, secrets) = (
        Api::<ConfigMap>::default_namespaced(client.clone()),
        Api::<Secret>::default_namespaced(client),
    );
    let mut events = watcher(maps, watcher::Config::default()).default_backoff().boxed();
    while let Some(event) = events.next().await {
        if let Ok(watcher::Event::Delete(_)) = event {
            let _ = secrets
                .delete_collection(&DeleteParams::default(), &ListParams::default())
                .await;
        }
    }
}

#[test]
fn late_deletion_of_a_collection_is_replayed() {
    explore(async |cluster: &TestCluster| {
        cluster.create(config_map("a")).await;
        cluster.create(secret("a")).await;
        cluster.controller("operator", delete_collection);
        cluster.settle().await;
        cluster.delete::<ConfigMap>("a").await;
        cluster.settle().await;
    })
    .replay("late=20000@operator:deletecollection:secrets:default/#1")
    .schedules(1)
    .run();
}

/// Annotates the ConfigMap `a` with its size, and does not repeat a request that fails.
async fn mark(client: Client) {
    let maps = Api::<ConfigMap>::default_namespaced(client);
    let mut events = watcher(maps.clone(), watcher::Config::default())
        .default_backoff()
        .applied_objects()
        .boxed();
    while let Some(event) = events.next().await {
        let Ok(map) = event else { continue };
        let size = map.data.as_ref().and_then(|it| it.get("size")).cloned();
        if map.annotations().get("size") != size.as_ref() {
            let patch = Patch::Merge(json!({"metadata": {"annotations": {"size": size}}}));
            let _ = maps.patch("a", &PatchParams::default(), &patch).await;
        }
    }
}

#[rstest]
#[case::two_waits(0)]
#[case::twenty_waits(18)]
fn wrong_state_before_a_deletion_is_found_after_any_number_of_waits(#[case] waits: usize) {
    let report = explore(async move |cluster: &TestCluster| {
        for _ in 0..waits {
            cluster.settle().await;
        }
        cluster.controller("marker", mark);
        cluster.create(config_map("a").data("size", "1")).await;
        cluster.settle().await;
        cluster.delete::<ConfigMap>("a").await;
        cluster.settle().await;
    })
    .faults(errors())
    .schedules(100)
    .report();
    let failure = report.failure();
    assert!(failure.is_some_and(|it| it.oracle() == "end state"), "{report}");
}

/// Without the object, the scenario would not contain it in any comparison.
#[test]
fn failure_with_another_seed_does_not_hide_objects() {
    let first = Arc::new(Mutex::new(None));
    let report = explore(async move |cluster: &TestCluster| {
        assert_eq!(
            cluster.seed(),
            *first
                .lock()
                .expect("the lock is not poisoned")
                .get_or_insert(cluster.seed()),
            "the test assumes a seed"
        );
        cluster.controller("operator", |client| async move { create(client, "a").await });
        cluster.settle().await;
    })
    .faults(errors())
    .report();
    let is_noted = report.notes().iter().any(|it| it.contains("the test assumes a seed"));
    assert!(is_noted && report.failure().is_some(), "{report}");
}
