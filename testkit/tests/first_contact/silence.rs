//! Controllers that publish Events with kube's recorder, and are then idle for longer than the lifetime of Events.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Patch, PatchParams};
use kube::runtime::controller::{Action, Controller};
use kube::runtime::events::{Event, EventType, Recorder};
use kube::runtime::watcher;
use kube::{Api, Client, Resource, ResourceExt};
use rstest::rstest;
use serde_json::json;
use testkit::explore::explore;
use testkit::objects::pod;
use testkit::{TestCluster, cluster};

struct Context {
    client: Client,
    recorder: Recorder,
}

/// Publishes an Event for each reconcile of a Pod, and then copies a label.
async fn reconcile(pod: Arc<Pod>, context: Arc<Context>) -> Result<Action, kube::Error> {
    let event = Event {
        type_: EventType::Normal,
        reason: "Seen".to_owned(),
        note: None,
        action: "Look".to_owned(),
        secondary: None,
    };
    context.recorder.publish(&event, &pod.object_ref(&())).await?;
    let pods = Api::<Pod>::default_namespaced(context.client.clone());
    let wanted = pod.labels().get("wanted").map(String::as_str).unwrap_or_default();
    if pod.labels().get("found").map(String::as_str) != Some(wanted) {
        let patch = Patch::Merge(json!({"metadata": {"labels": {"found": wanted}}}));
        pods.patch(&pod.name_any(), &PatchParams::default(), &patch).await?;
    }
    Ok(Action::await_change())
}

async fn operator(client: Client) {
    let context = Context {
        recorder: Recorder::new(client.clone(), "operator".into()),
        client,
    };
    let on_error = |_: Arc<Pod>, _: &kube::Error, _: Arc<Context>| Action::requeue(Duration::from_secs(5));
    let pods = Api::<Pod>::default_namespaced(context.client.clone());
    Controller::new(pods, watcher::Config::default())
        .run(reconcile, on_error, Arc::new(context))
        .for_each(|_| async {})
        .await
}

async fn edited_after_two_hours(cluster: &TestCluster) {
    cluster.controller("operator", operator);
    cluster.create(pod("web-0").label("wanted", "one")).await;
    cluster.settle().await;
    cluster.advance(Duration::from_secs(2 * 3600)).await;
    let relabel = json!({"metadata": {"labels": {"wanted": "two"}}});
    cluster.patch::<testkit::Object>(pod("web-0"), relabel).await;
    cluster.settle().await;
    assert_eq!(cluster.get(pod("web-0")).label("found"), Some("two"));
}

#[rstest]
#[tokio::test(start_paused = true)]
async fn kube_recorder_continues_after_two_hours_of_silence(cluster: TestCluster) {
    edited_after_two_hours(&cluster).await;
}

#[test]
fn kube_recorder_is_explored_over_two_hours_of_silence() {
    let report = explore(async |cluster: &TestCluster| edited_after_two_hours(cluster).await)
        .schedules(150)
        .run();
    assert_eq!(report.nondeterminism(), Vec::<String>::new(), "{report}");
    assert_eq!(report.notes(), Vec::<String>::new(), "{report}");
}
