//! Reports of failures: the times at which requests reach the server, the objects they strike, and the step of the
//! test came too early.

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

/// Writes on each Pod the uid that it has seen, by the Pod's name alone.
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

fn a_pod_is_replaced() -> Explore {
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
    a_pod_is_replaced()
        .replay("late=20000@writer:patch:pods:default/a#1")
        .report()
}

#[test]
fn a_late_request_stands_where_it_reached_the_server_and_says_what_it_struck() {
    let report = late().to_string();
    let line = |what: &str| report.lines().position(|it| it.contains(what));
    let sent = line("0.000 writer PATCH pods default/a is held ← here").expect(&report);
    let reached = line("20.000 writer PATCH pods default/a").expect(&report);
    assert!(sent < reached, "{report}");
    let told = "PATCH pods default/a → connection broken, another object than it had seen";
    assert!(
        report.lines().nth(reached).is_some_and(|it| it.contains(told)),
        "{report}"
    );
}

#[test]
fn the_step_that_came_too_early_is_named_by_its_line() {
    let report = late();
    let went_on = report.failure().and_then(|it| it.went_on()).unwrap_or_default();
    assert!(went_on.contains(&format!("story.rs:{DELETED_AT} began")), "{report}");
    assert!(report.to_string().contains(went_on), "{report}");
}

/// Makes a ConfigMap for each Pod that is new, whether there is one or not.
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
fn what_is_created_has_the_name_it_got() {
    let report = explore(async |cluster: &TestCluster| {
        cluster.controller("maker", make_maps);
        cluster.create(pod("web")).await;
        cluster.settle().await;
    })
    .replay("crash-after=1000@maker:create:configmaps:default/#1")
    .report();
    let failure = report.failure().expect("a second ConfigMap");
    let plan = failure.plan().join("\n");
    let name = plan.split("default/").nth(1).and_then(|it| it.split(';').next());
    let name = name.expect(&plan);
    assert!(name.starts_with("web-") && name.len() > "web-".len(), "{plan}");
    let rows = report.to_json()["failure"]["timeline"].to_string();
    assert!(rows.contains(&format!("CREATE configmaps default/{name}")), "{rows}");
    assert!(report.to_html().contains(&format!("configmaps default/{name}</text>")));
}

#[test]
fn rows_that_both_runs_have_are_folded_in_text_and_page() {
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
    assert!(!text.contains("create pods default/web-0 "), "{text}");
    let page = report.to_html();
    assert!(
        page.contains("<tr class=folded>") && page.contains("<tr class='same'>"),
        "{page}"
    );
}
