//! Reports of failures: the times at which requests reach the server, the objects they affect, and the test step that
//! began too early.

use std::time::Duration;

use futures::{Stream, StreamExt};
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::api::{Patch, PostParams};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, ResourceExt};
use serde_json::json;
use testkit::TestCluster;
use testkit::explore::{Explore, Report, explore};
use testkit::objects::pod;

pub(crate) fn applied(client: Client) -> impl Stream<Item = Pod> + Unpin {
    let events = watcher(Api::<Pod>::default_namespaced(client), watcher::Config::default());
    let events = events.default_backoff().applied_objects();
    events.filter_map(async |it| it.ok()).boxed()
}

/// Writes the observed uid into each Pod, addressed only by the Pod's name.
async fn write_uids(client: Client) {
    let pods = Api::<Pod>::default_namespaced(client.clone());
    let mut applied = applied(client);
    while let Some(pod) = applied.next().await {
        if !pod.labels().contains_key("uid") {
            let patch = Patch::Merge(json!({"metadata": {"labels": {"uid": pod.uid()}}}));
            let _ = pods.patch(&pod.name_any(), &Default::default(), &patch).await;
        }
    }
}

/// The line at which the Pod is deleted.
const DELETED_AT: u32 = line!() + 7;

fn pod_is_replaced() -> Explore {
    explore(async |cluster: &TestCluster| {
        cluster.controller("writer", write_uids);
        cluster.create(pod("a")).await;
        cluster.advance(Duration::from_secs(1)).await;
        cluster.delete::<Pod>("a").await;
        cluster.create(pod("a")).await;
        cluster.settle().await;
    })
}

fn late() -> Report {
    pod_is_replaced()
        .replay("late=20000@writer:patch:pods:default/a#1")
        .report()
}

#[test]
fn late_request_is_listed_on_arrival_with_its_object() {
    let report = late().to_string();
    let line = |what: &str| report.lines().position(|it| it.contains(what));
    let sent = line("0.000 writer PATCH pods default/a is held ← here").expect(&report);
    let reached = line("20.000 writer PATCH pods default/a").expect(&report);
    assert!(sent < reached, "{report}");
    let told = "PATCH pods default/a → connection broken, but the object has been replaced since the client read it";
    assert!(
        report.lines().nth(reached).is_some_and(|it| it.contains(told)),
        "{report}"
    );
}

#[test]
fn step_during_a_fault_is_reported_with_its_line() {
    let report = late();
    let went_on = report.failure().and_then(|it| it.went_on()).unwrap_or_default();
    assert!(went_on.contains(&format!("story.rs:{DELETED_AT} began")), "{report}");
    assert!(report.to_string().contains(went_on), "{report}");
}

/// Creates a ConfigMap for each new Pod, even if it exists.
pub(crate) async fn make_maps(client: Client) {
    let maps = Api::<ConfigMap>::default_namespaced(client.clone());
    let mut applied = applied(client);
    while let Some(pod) = applied.next().await {
        let mut map = ConfigMap::default();
        map.metadata.generate_name = Some(format!("{}-", pod.name_any()));
        let _ = maps.create(&PostParams::default(), &map).await;
    }
}

#[test]
fn created_object_is_shown_with_its_final_name() {
    let report = explore(async |cluster: &TestCluster| {
        cluster.controller("maker", make_maps);
        cluster.create(pod("web")).await;
        cluster.settle().await;
    })
    .replay("crash-after=1000@maker:create:configmaps:default/#1")
    .report();
    let failure = report.failure().expect("the exploration fails");
    let plan = failure.plan().join("\n");
    let name = plan.split("default/").nth(1).and_then(|it| it.split(';').next());
    let name = name.expect(&plan);
    assert!(name.starts_with("web-") && name.len() > "web-".len(), "{plan}");
    let rows = report.to_json()["failure"]["timeline"].to_string();
    assert!(rows.contains(&format!("CREATE configmaps default/{name}")), "{rows}");
    assert!(report.to_html().contains(&format!("configmaps default/{name}")));
}

#[test]
fn rows_common_to_both_runs_are_folded_in_text() {
    let report = explore(async |cluster: &TestCluster| {
        cluster.controller("maker", make_maps);
        for number in 0..20 {
            cluster.create(pod(&format!("web-{number}"))).await;
            cluster.settle().await;
        }
    })
    .replay("crash-after=1000@maker:create:configmaps:default/#11")
    .report();
    let text = report.to_string();
    assert!(text.contains(" identical rows"), "{text}");
    assert!(!text.contains("CREATE pods default/web-0 "), "{text}");
    assert!(text.contains("CREATE pods default/web-10 "), "{text}");
}
