//! What exploration holds its runs against and when it looks, and the replays it is asked for: what cannot be played
//! fails.

use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Patch, WatchEvent, WatchParams};
use kube::{Api, Client};
use rstest::rstest;
use serde_json::json;
use testkit::TestCluster;
use testkit::explore::explore;
use testkit::objects::config_map;

fn maps(client: Client) -> Api<ConfigMap> {
    Api::default_namespaced(client)
}

/// Counts in the ConfigMap that is new; when an answer was lost to it, for each event, its own included, after a pause.
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

/// Requests and events take turns, so that the one case has a request and the other an event too many.
#[rstest]
fn a_hot_loop_is_told_whatever_message_is_the_first_too_many(#[values(0, 1)] reads: usize) {
    let report = explore(async move |cluster: &TestCluster| {
        cluster.controller("operator", move |client| count(client, reads, Duration::ZERO));
        cluster.create(config_map("a")).await;
        cluster.settle().await;
    })
    .replay("lose@operator:patch:configmaps:default/a#1")
    .report();
    assert_eq!(report.failure().map(|it| it.oracle()), Some("no hot loop"), "{report}");
}
