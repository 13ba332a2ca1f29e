//! Controllers that poll by a requeue, as operators of external systems do.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use fake_apiserver::ApiServer;
use futures::{FutureExt, StreamExt};
use k8s_openapi::api::core::v1::{Event as CoreEvent, Pod};
use kube::api::{Patch, PatchParams, PostParams};
use kube::runtime::controller::{Action, Controller};
use kube::runtime::events::{Event, EventType, Recorder};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, Resource, ResourceExt};
use rstest::rstest;
use serde_json::{Value, json};
use testkit::explore::{Explore, crashes, explore};
use testkit::objects::pod;
use testkit::{TestCluster, TestClusterBuilder, cluster};
use tokio::time::Instant;

/// The field of a Pod that a probe updates.
const PROBE_TIME: &str = "status.conditions.*.lastProbeTime";

/// The work of one poll.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Poll {
    /// Reads.
    Read,
    /// Publishes an Event with kube's recorder.
    Publish,
    /// Creates an Event of the core group.
    CoreEvent,
    /// Patches the status without a change.
    SameStatus,
    /// Publishes an Event and patches the status without a change.
    PublishAndSameStatus,
    /// Writes the time of the probe into the status.
    ProbeTime,
}

struct Context {
    client: Client,
    recorder: Recorder,
    server: ApiServer,
    poll: Poll,
}

async fn reconcile(pod: Arc<Pod>, context: Arc<Context>) -> Result<Action, kube::Error> {
    let Context {
        client,
        recorder,
        server,
        poll,
    } = &*context;
    if matches!(poll, Poll::Publish | Poll::PublishAndSameStatus) {
        let event = Event {
            type_: EventType::Normal,
            reason: "Waiting".to_owned(),
            note: Some("waiting for the metrics".to_owned()),
            action: "Poll".to_owned(),
            secondary: None,
        };
        recorder.publish(&event, &pod.object_ref(&())).await?;
    }
    if *poll == Poll::CoreEvent {
        let mut event = CoreEvent {
            involved_object: pod.object_ref(&()),
            ..CoreEvent::default()
        };
        event.metadata.generate_name = Some(format!("{}.", pod.name_any()));
        Api::default_namespaced(client.clone())
            .create(&PostParams::default(), &event)
            .await?;
    }
    let time = match poll {
        Poll::ProbeTime => json!(server.now().to_string()),
        _ => Value::Null,
    };
    let pods = Api::<Pod>::default_namespaced(client.clone());
    match poll {
        Poll::Read => drop(pods.get(&pod.name_any()).await?),
        Poll::SameStatus | Poll::PublishAndSameStatus | Poll::ProbeTime => {
            let condition = json!({"type": "Reachable", "status": "True", "lastProbeTime": time});
            let patch = Patch::Merge(json!({"status": {"conditions": [condition]}}));
            pods.patch_status(&pod.name_any(), &PatchParams::default(), &patch)
                .await?;
        }
        Poll::Publish | Poll::CoreEvent => {}
    }
    Ok(Action::requeue(Duration::from_secs(5)))
}

async fn operator(client: Client, server: ApiServer, poll: Poll) {
    let context = Context {
        recorder: Recorder::new(client.clone(), "poller".into()),
        client,
        server,
        poll,
    };
    let on_error = |_: Arc<Pod>, _: &kube::Error, _: Arc<Context>| Action::requeue(Duration::from_secs(5));
    let pods = Api::<Pod>::default_namespaced(context.client.clone());
    Controller::new(pods, watcher::Config::default())
        .run(reconcile, on_error, Arc::new(context))
        .for_each(|_| async {})
        .await
}

fn start(cluster: &TestCluster, poll: Poll) {
    let server = cluster.server().clone();
    cluster.controller("operator", move |client| operator(client, server.clone(), poll));
}

fn explored(poll: Poll) -> Explore {
    explore(async move |cluster: &TestCluster| {
        start(cluster, poll);
        cluster.create(pod("web-0")).await;
        cluster.settle().await;
    })
    .schedules(60)
}

async fn settled(builder: TestClusterBuilder, poll: Poll) -> Result<Duration, String> {
    let cluster = builder.start();
    start(&cluster, poll);
    cluster.create(pod("web-0")).await;
    let began = Instant::now();
    match AssertUnwindSafe(cluster.settle()).catch_unwind().await {
        Ok(()) => Ok(began.elapsed()),
        Err(panic) => Err(*panic.downcast::<String>().expect("the panic has a text message")),
    }
}

#[rstest]
#[case::reading(Poll::Read)]
#[case::publishing(Poll::Publish)]
#[case::creating_core_events(Poll::CoreEvent)]
#[case::writing_the_same_status(Poll::SameStatus)]
#[case::publishing_and_writing_the_same_status(Poll::PublishAndSameStatus)]
#[tokio::test(start_paused = true)]
async fn polling_controller_without_changes_settles(#[case] poll: Poll) {
    let took = settled(TestCluster::builder(), poll)
        .await
        .expect("the controller settles");
    assert!(took < Duration::from_secs(12), "{took:?}");
}

#[rstest]
#[case::reading(Poll::Read)]
#[case::publishing(Poll::Publish)]
#[case::creating_core_events(Poll::CoreEvent)]
#[case::writing_the_same_status(Poll::SameStatus)]
#[case::publishing_and_writing_the_same_status(Poll::PublishAndSameStatus)]
fn idle_polling_is_not_reported_as_nondeterminism(#[case] poll: Poll) {
    let report = explored(poll).run();
    assert_eq!(report.nondeterminism().len(), 0, "{report}");
    assert_eq!(report.notes(), [""; 0]);
}

#[rstest]
#[case::with_the_recorder(Poll::Publish)]
#[case::with_the_core_group(Poll::CoreEvent)]
#[tokio::test(start_paused = true)]
async fn settle_waits_for_events_if_events_are_counted(#[case] poll: Poll) {
    let message = settled(TestCluster::builder().count_events(), poll)
        .await
        .expect_err("Events keep arriving");
    assert!(
        message.contains("the cluster does not settle") && message.contains("/events"),
        "{message}"
    );
}

#[tokio::test(start_paused = true)]
async fn time_field_that_keeps_changing_is_reported_by_settle() {
    let message = settled(TestCluster::builder(), Poll::ProbeTime)
        .await
        .expect_err("the object changes forever");
    assert!(
        message.contains(&format!("{PROBE_TIME} of pods default/web-0")),
        "{message}"
    );
    assert!(message.contains(&format!(".ignore(\"{PROBE_TIME}\")")), "{message}");
    let took = settled(TestCluster::builder().ignore(PROBE_TIME), Poll::ProbeTime).await;
    assert!(took.as_ref().is_ok_and(|it| *it < Duration::from_secs(12)), "{took:?}");
}

#[test]
fn time_field_that_keeps_changing_fails_the_reference_and_can_be_ignored() {
    let report = explored(Poll::ProbeTime).report();
    let failure = report.failure().expect("the exploration fails");
    assert_eq!(failure.oracle(), "the controllers settle");
    assert!(
        failure.what().contains(&format!(".ignore(\"{PROBE_TIME}\")")),
        "{report}"
    );
    explored(Poll::ProbeTime)
        .cluster(TestCluster::builder().ignore(PROBE_TIME))
        .run();
}

/// The names and times of the Events are derived from the machine's clock, and differ in each run.
#[test]
fn replay_of_a_polling_controller_that_publishes_events_is_deterministic() {
    let report = explored(Poll::PublishAndSameStatus)
        .replay("lose@operator:patch:events.events.k8s.io:default/web-0.*#2")
        .times(5)
        .report();
    assert_eq!(
        (report.nondeterminism().len(), report.notes()),
        (0, [].as_slice()),
        "{report}"
    );
    assert!(report.is_success(), "{report}");
}

/// Sets a label to the name of the controller, one second after any change of the label.
async fn claim(client: Client, name: &'static str) {
    let pods = Api::<Pod>::default_namespaced(client);
    let mut seen = watcher(pods.clone(), watcher::Config::default())
        .applied_objects()
        .boxed();
    while let Some(Ok(pod)) = seen.next().await {
        tokio::time::sleep(Duration::from_secs(1)).await;
        if pod.labels().get("owner").is_none_or(|it| it != name) {
            let patch = Patch::Merge(json!({"metadata": {"labels": {"owner": name}}}));
            let _ = pods.patch(&pod.name_any(), &PatchParams::default(), &patch).await;
        }
    }
}

#[rstest]
#[tokio::test(start_paused = true)]
async fn field_with_two_writers_is_reported_without_ignore_hint(cluster: TestCluster) {
    cluster.controller("one", |client| claim(client, "one"));
    cluster.controller("two", |client| claim(client, "two"));
    cluster.create(pod("web-0")).await;
    let failed = AssertUnwindSafe(cluster.settle())
        .catch_unwind()
        .await
        .expect_err("the writers never agree");
    let message = failed.downcast::<String>().expect("the panic has a text message");
    assert!(
        message.contains("metadata.labels.owner of pods default/web-0"),
        "{message}"
    );
    assert!(!message.contains(".ignore("), "{message}");
}

/// Publishes an Event for each new Pod, and then marks the Pod: a crash in between publishes another one.
async fn publish_once(client: Client, server: ApiServer) {
    let pods = Api::<Pod>::default_namespaced(client.clone());
    let mut seen = watcher(pods.clone(), watcher::Config::default())
        .applied_objects()
        .boxed();
    while let Some(Ok(pod)) = seen.next().await {
        if pod.labels().contains_key("seen") {
            continue;
        }
        let mut event = CoreEvent {
            involved_object: pod.object_ref(&()),
            ..CoreEvent::default()
        };
        event.metadata.name = Some(format!("{}.{:x}", pod.name_any(), server.now().as_nanosecond()));
        let _ = Api::default_namespaced(client.clone())
            .create(&PostParams::default(), &event)
            .await;
        let patch = Patch::Merge(json!({"metadata": {"labels": {"seen": "true"}}}));
        let _ = pods.patch(&pod.name_any(), &PatchParams::default(), &patch).await;
    }
}

#[rstest]
#[case::not_counted_by_default(false)]
#[case::counted(true)]
fn final_events_are_compared_if_events_are_counted(#[case] is_counted: bool) {
    let builder = match is_counted {
        true => TestCluster::builder().count_events(),
        false => TestCluster::builder(),
    };
    let report = explore(async |cluster: &TestCluster| {
        let server = cluster.server().clone();
        cluster.controller("publisher", move |client| publish_once(client, server.clone()));
        cluster.create(pod("web-0")).await;
        cluster.settle().await;
    })
    .cluster(builder)
    .faults(crashes())
    .report();
    let found = report.failure().map(|it| (it.oracle(), it.what().contains("events")));
    assert_eq!(found, is_counted.then_some(("end state", true)), "{report}");
}
