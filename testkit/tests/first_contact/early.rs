//! Assertions of a scenario that fail because the test continues during a fault: they are evaluated again when all
//! faults are over.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::{FutureExt, StreamExt};
use k8s_openapi::api::core::v1::Pod;
use kube::api::Patch;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, ResourceExt};
use serde_json::json;
use testkit::TestCluster;
use testkit::explore::{Explore, delays, explore, overlaps, stale_watches};
use testkit::objects::pod;

/// Labels each Pod. Handles all watch events that arrive together, or only the last one.
async fn label(client: Client, handles_all: bool) {
    let pods = Api::<Pod>::default_namespaced(client);
    let events = watcher(pods.clone(), watcher::Config::default());
    let mut events = events.default_backoff().boxed();
    while let Some(event) = events.next().await {
        let mut together = vec![event];
        while let Some(Some(event)) = events.next().now_or_never() {
            together.push(event);
        }
        let is_list = together.iter().any(|it| matches!(it, Ok(watcher::Event::InitApply(_))));
        let changed = together.into_iter().filter_map(|event| match event {
            Ok(watcher::Event::Apply(pod) | watcher::Event::InitApply(pod)) => Some(pod),
            Ok(watcher::Event::Delete(_) | watcher::Event::Init | watcher::Event::InitDone) | Err(_) => None,
        });
        let mut changed: Vec<Pod> = changed.collect();
        if !handles_all && !is_list {
            changed.drain(..changed.len().saturating_sub(1));
        }
        for pod in changed.iter().filter(|it| !it.labels().contains_key("seen")) {
            let patch = Patch::Merge(json!({"metadata": {"labels": {"seen": "true"}}}));
            let _ = pods.patch(&pod.name_any(), &Default::default(), &patch).await;
        }
    }
}

/// Only waits for conditions, so that the reference does not have a settled step to compare with.
fn two_pods(handles_all: bool) -> Explore {
    let is_labelled = |cluster: &TestCluster, name: &str| cluster.get(pod(name)).label("seen") == Some("true");
    explore(async move |cluster: &TestCluster| {
        cluster.controller("labels", move |client| label(client, handles_all));
        cluster.settle().await;
        cluster.create(pod("a")).await;
        cluster.eventually(|c| is_labelled(c, "a")).await;
        cluster.create(pod("b")).await;
        cluster.eventually(|c| is_labelled(c, "b")).await;
        assert!(is_labelled(cluster, "a"), "the first Pod has no label");
    })
    .faults(stale_watches() | overlaps())
}

#[test]
fn failed_assertion_is_evaluated_again_after_the_faults() {
    let report = two_pods(false).report();
    let failure = report.failure().expect("the exploration fails");
    assert_eq!(failure.oracle(), "the scenario's own assertions", "{report}");
    assert!(failure.what().contains("the first Pod has no label"), "{report}");
    let again = two_pods(false).replay(&failure.replay()).times(2).report();
    assert_eq!(again.failure().map(|it| it.what()), Some(failure.what()), "{again}");
    assert_eq!(again.nondeterminism(), [""; 0]);
}

#[test]
fn assertion_that_holds_after_the_faults_is_not_a_failure() {
    let report = two_pods(true).run();
    assert_eq!(report.coverage().unjudged, 0, "{report}");
}

/// The assertion fails before the first wait if the list takes longer than usual, so there is no later state with which
/// the run could be judged.
#[test]
fn run_whose_assertion_fails_before_the_first_wait_is_counted_as_unjudged() {
    let report = explore(async |cluster: &TestCluster| {
        let is_listed = Arc::<AtomicBool>::default();
        let known = Arc::clone(&is_listed);
        cluster.controller("reader", move |client| {
            let known = Arc::clone(&known);
            async move {
                let _ = Api::<Pod>::default_namespaced(client).list(&Default::default()).await;
                known.store(true, Ordering::Relaxed);
                std::future::pending::<()>().await
            }
        });
        cluster.advance(Duration::from_secs(5)).await;
        assert!(
            is_listed.load(Ordering::Relaxed),
            "the list takes more than five seconds"
        );
        for name in ["a", "b"] {
            cluster.create(pod(name)).await;
            cluster.settle().await;
        }
    })
    .faults(delays() | overlaps())
    .run();
    let unjudged = report.coverage().unjudged;
    assert!(unjudged > 0, "{report}");
    let text = format!(", {unjudged} runs that could not be judged");
    assert!(report.to_string().contains(&text), "{report}");
}
