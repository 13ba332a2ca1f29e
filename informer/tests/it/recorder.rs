//! Events: what is written, what is counted, what is dropped.

use std::time::Duration;

use informer::Clock;
use informer::runtime::{EventRecorder, Note, RecorderConfig};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::events::v1::Event;
use testkit::objects::pod;
use testkit::{TestCluster, Verb, faults};
use tokio_util::sync::CancellationToken;

fn recorder(cluster: &TestCluster) -> (EventRecorder, CancellationToken) {
    let config = RecorderConfig {
        clock: Clock::starting_at(cluster.server().now()),
        ..RecorderConfig::new("example.com/web", "web-0")
    };
    let (recorder, writer) = EventRecorder::new(cluster.client(), config);
    let stop = CancellationToken::new();
    cluster.run(writer.run(stop.clone()));
    (recorder, stop)
}

async fn a_pod(cluster: &TestCluster, name: &str) -> Pod {
    cluster.create(pod(name).namespace("default")).await;
    cluster.get::<Pod>(name)
}

#[tokio::test(start_paused = true)]
async fn an_event_says_what_happened_to_whom_and_who_says_so() {
    let cluster = TestCluster::start();
    let (recorder, _stop) = recorder(&cluster);
    let web = a_pod(&cluster, "web-0").await;
    recorder.record(&web, Note::warning("Failed", "CreateService", "no address is left"));
    cluster.settle().await;

    let events = cluster.list::<Event>();
    let [event] = &events[..] else { panic!("{events:?}") };
    assert_eq!(event.type_.as_deref(), Some("Warning"));
    assert_eq!(
        (event.reason.as_deref(), event.action.as_deref()),
        (Some("Failed"), Some("CreateService"))
    );
    assert_eq!(event.note.as_deref(), Some("no address is left"));
    assert_eq!(event.reporting_controller.as_deref(), Some("example.com/web"));
    assert_eq!(event.reporting_instance.as_deref(), Some("web-0"));
    let regarding = event.regarding.as_ref().expect("it regards something");
    assert_eq!(
        (regarding.kind.as_deref(), regarding.uid.as_ref()),
        (Some("Pod"), web.metadata.uid.as_ref())
    );
    assert!(event.metadata.name.as_ref().is_some_and(|it| it.starts_with("web-0.")));
    assert_eq!(event.series, None);
}

#[tokio::test(start_paused = true)]
async fn events_that_differ_in_the_note_are_one_series() {
    let cluster = TestCluster::start();
    let (recorder, _stop) = recorder(&cluster);
    let web = a_pod(&cluster, "web-0").await;
    for time in 0..5 {
        recorder.record(&web, Note::normal("Pulling", "Pull", format!("try {time}")));
    }
    recorder.record(&web, Note::normal("Pulled", "Pull", "it is there"));
    cluster.settle().await;
    let count = |cluster: &TestCluster| -> Vec<Option<i32>> {
        let counts = cluster
            .list::<Event>()
            .into_iter()
            .map(|it| it.series.map(|series| series.count));
        counts.collect()
    };
    assert_eq!(
        count(&cluster),
        [Some(2), None],
        "the second is written, the others are counted"
    );
    let writes = cluster.requests().writes().count();
    cluster.advance(Duration::from_secs(31 * 60)).await;
    assert_eq!(count(&cluster), [Some(5), None]);
    assert_eq!(cluster.requests().writes().count(), writes + 1);

    // The series is over: a new one begins.
    recorder.record(&web, Note::normal("Pulling", "Pull", "once more"));
    cluster.settle().await;
    assert_eq!(cluster.list::<Event>().len(), 3);
}

#[tokio::test(start_paused = true)]
async fn of_one_object_there_are_25_at_once_and_one_more_every_five_minutes() {
    let cluster = TestCluster::start();
    let (recorder, _stop) = recorder(&cluster);
    let (one, other) = (a_pod(&cluster, "one").await, a_pod(&cluster, "other").await);
    for number in 0..40 {
        recorder.record(&one, Note::normal(&format!("Reason{number}"), "Act", ""));
    }
    recorder.record(&other, Note::normal("Reason", "Act", ""));
    cluster.settle().await;
    assert_eq!(cluster.list::<Event>().len(), 26);
    cluster.advance(Duration::from_secs(301)).await;
    for number in 40..45 {
        recorder.record(&one, Note::normal(&format!("Reason{number}"), "Act", ""));
    }
    cluster.settle().await;
    assert_eq!(cluster.list::<Event>().len(), 27);
}

#[tokio::test(start_paused = true)]
async fn what_the_server_refuses_is_not_tried_again_and_nothing_waits_for_it() {
    let cluster = TestCluster::start();
    let (recorder, _stop) = recorder(&cluster);
    let web = a_pod(&cluster, "web-0").await;
    let fault = cluster.inject(faults::status(403, "Forbidden").on(Verb::Create, "events.events.k8s.io"));
    recorder.record(&web, Note::normal("Reason", "Act", ""));
    cluster.settle().await;
    assert_eq!(fault.hits(), 1);
    assert_eq!(cluster.list::<Event>().len(), 0);
}

#[tokio::test(start_paused = true)]
async fn at_the_end_what_waits_is_written() {
    let cluster = TestCluster::start();
    let (recorder, stop) = recorder(&cluster);
    let web = a_pod(&cluster, "web-0").await;
    recorder.record(&web, Note::normal("Stopped", "Stop", ""));
    stop.cancel();
    cluster.settle().await;
    assert_eq!(cluster.list::<Event>().len(), 1);
}
