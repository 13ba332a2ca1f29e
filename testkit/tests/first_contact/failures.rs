//! Reports with several failures, and the bounds of a search that has found a failure.

use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::api::{Patch, PostParams};
use kube::{Api, Client, ResourceExt};
use serde_json::json;
use testkit::TestCluster;
use testkit::explore::{Explore, crashes, explore};
use testkit::objects::pod;

use super::story::applied;

/// Creates a ConfigMap with a generated name for each Pod, and expects that it can label the Pod.
async fn make_and_label(client: Client) {
    let maps = Api::<ConfigMap>::default_namespaced(client.clone());
    let pods = Api::<Pod>::default_namespaced(client.clone());
    let mut applied = applied(client);
    while let Some(pod) = applied.next().await {
        if pod.labels().contains_key("made") {
            continue;
        }
        let mut map = ConfigMap::default();
        map.metadata.generate_name = Some(format!("{}-", pod.name_any()));
        let _ = maps.create(&PostParams::default(), &map).await;
        let patch = Patch::Merge(json!({"metadata": {"labels": {"made": "true"}}}));
        let patched = pods.patch(&pod.name_any(), &Default::default(), &patch).await;
        patched.expect("the server answers");
    }
}

fn two_bugs() -> Explore {
    explore(async |cluster: &TestCluster| {
        cluster.controller("maker", make_and_label);
        cluster.create(pod("web")).await;
        cluster.settle().await;
    })
    .budget(Duration::from_secs(600))
}

#[test]
fn report_lists_failures_of_different_oracles_in_order_of_certainty() {
    let report = two_bugs().report();
    let oracles: Vec<&str> = report.failures().iter().map(|it| it.oracle()).collect();
    assert!((2..=3).contains(&oracles.len()), "{report}");
    assert_eq!(oracles[0], "no panic", "{report}");
    assert!(oracles[1..].iter().all(|it| *it != "no panic"), "{report}");
    let text = report.to_string();
    assert!(
        text.contains(&format!("failure 2 of {}, with:", oracles.len())),
        "{text}"
    );
    for failure in report.failures() {
        assert!(
            text.contains(&format!("EXPLORE_REPLAY='{}'", failure.replay())),
            "{text}"
        );
        let again = two_bugs().replay(&failure.replay()).report();
        assert_eq!(again.failure().map(|it| it.what()), Some(failure.what()), "{again}");
    }
    let (json, page) = (report.to_json(), report.trace());
    assert_eq!(json["failures"].as_array().map(Vec::len), Some(oracles.len()));
    assert_eq!(json["failure"], json["failures"][0]);
    let shown: Vec<&str> = page.failures.iter().map(|it| &*it.oracle).collect();
    assert_eq!(shown, oracles);
}

#[test]
fn coverage_counts_schedules_up_to_the_first_failure() {
    let report = two_bugs().report();
    let first = report.failures().iter().map(|it| it.schedules()).min();
    assert_eq!(Some(report.coverage().schedules), first, "{report}");
}

#[test]
fn each_failing_replay_is_reported_as_a_failure() {
    let found = two_bugs().report();
    let explore = found
        .failures()
        .iter()
        .fold(two_bugs(), |explore, it| explore.replay(&it.replay()));
    let report = explore.report();
    assert_eq!(report.failures().len(), found.failures().len(), "{report}");
}

/// The scenario has many named steps, each of which can be skipped.
#[test]
fn budget_includes_the_minimisation_of_a_failure() {
    let budget = Duration::from_secs(1);
    let report = explore(async |cluster: &TestCluster| {
        cluster.controller("maker", make_and_label);
        for number in 0..12 {
            let name = format!("step-{number}");
            let create = async { drop(cluster.create(pod(&name)).await) };
            cluster.step(&name, create).await;
        }
        cluster.settle().await;
    })
    .faults(crashes())
    .budget(budget)
    .report();
    let took = report.coverage().processor_time;
    assert!(report.failure().is_some(), "{report}");
    // A run that has started is completed.
    assert!(took < budget * 2, "{took:?}: {report}");
}
