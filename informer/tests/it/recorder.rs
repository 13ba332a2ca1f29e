//! Events are written, counted or dropped.

use std::time::Duration;

use informer::Clock;
use informer::metrics::Metrics;
use informer::runtime::{EventRecorder, Note, RecorderConfig};
use k8s_openapi::api::core::v1::{ObjectReference, Pod};
use k8s_openapi::api::events::v1::Event;
use rstest::rstest;
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
async fn event_contains_note_object_and_reporter() {
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
    let regarding = event.regarding.as_ref().expect("the Event has a regarding object");
    assert_eq!(
        (regarding.kind.as_deref(), regarding.uid.as_ref()),
        (Some("Pod"), web.metadata.uid.as_ref())
    );
    assert!(event.metadata.name.as_ref().is_some_and(|it| it.starts_with("web-0.")));
    assert_eq!(event.series, None);
}

#[tokio::test(start_paused = true)]
async fn events_with_different_notes_form_one_series() {
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
        "the second Event is written, and later ones are counted"
    );
    let writes = cluster.requests().writes().count();
    cluster.advance(Duration::from_secs(31 * 60)).await;
    assert_eq!(count(&cluster), [Some(5), None]);
    assert_eq!(cluster.requests().writes().count(), writes + 1);

    // The series has ended, so a new series begins.
    recorder.record(&web, Note::normal("Pulling", "Pull", "once more"));
    cluster.settle().await;
    assert_eq!(cluster.list::<Event>().len(), 3);
}

#[tokio::test(start_paused = true)]
async fn events_per_object_are_limited_to_a_burst_of_25() {
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
async fn refused_event_is_not_retried() {
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
async fn pending_events_are_written_at_shutdown() {
    let cluster = TestCluster::start();
    let (recorder, stop) = recorder(&cluster);
    let web = a_pod(&cluster, "web-0").await;
    recorder.record(&web, Note::normal("Stopped", "Stop", ""));
    stop.cancel();
    cluster.settle().await;
    assert_eq!(cluster.list::<Event>().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn slow_event_write_delays_neither_the_caller_nor_other_events() {
    let cluster = TestCluster::start();
    let (recorder, _stop) = recorder(&cluster);
    let web = a_pod(&cluster, "web-0").await;
    let slow = cluster.inject(
        faults::delay(Duration::from_secs(60))
            .on(Verb::Create, "events.events.k8s.io")
            .once(),
    );
    for number in 0..16 {
        recorder.record(&web, Note::normal(&format!("Reason{number}"), "Act", ""));
        recorder.record(&web, Note::normal("Same", "Act", format!("time {number}")));
    }
    cluster.advance(Duration::from_secs(10)).await;
    assert_eq!(slow.hits(), 1);
    let written = cluster.list::<Event>().len();
    assert!(written > 8, "{written} events are written next to the slow one");
    cluster.advance(Duration::from_secs(60)).await;
    let all = cluster.list::<Event>();
    let series: Vec<_> = all
        .iter()
        .filter_map(|it| it.series.as_ref())
        .map(|it| it.count)
        .collect();
    assert_eq!((all.len(), &series[..]), (25 - 12 + 1, &[2][..]), "{all:?}");
}

#[tokio::test(start_paused = true)]
async fn dropped_events_are_counted_and_the_caller_never_waits() {
    let (cluster, metrics) = (TestCluster::start(), Metrics::new());
    let config = RecorderConfig::new("example.com/web", "web-0");
    let (recorder, writer) = EventRecorder::new(cluster.client(), config);
    recorder.register_metrics(&metrics);
    let (web, other) = (a_pod(&cluster, "web-0").await, a_pod(&cluster, "other").await);
    // The writer has not started, so a thousand events stay queued.
    for _ in 0..1_003 {
        recorder.record(&web, Note::normal("Reason", "Act", ""));
    }
    let stop = CancellationToken::new();
    cluster.run(writer.run(stop.clone()));
    cluster.settle().await;
    cluster
        .inject(faults::status(403, "Forbidden").on(Verb::Create, "events.events.k8s.io"))
        .forget();
    recorder.record(&other, Note::normal("Reason", "Act", ""));
    cluster.settle().await;
    let text = metrics.render();
    for (reason, count) in [("full", 3), ("spam", 1_000 - 25), ("failed", 1)] {
        let labels = format!("{{controller=\"example.com/web\",reason=\"{reason}\"}}");
        let line = format!("informer_events_dropped_total{labels} {count}");
        assert!(text.lines().any(|it| it == line), "{line} is not in\n{text}");
    }
}

#[tokio::test(start_paused = true)]
async fn pending_event_retry_is_attempted_once_at_shutdown() {
    let cluster = TestCluster::start();
    let (recorder, stop) = recorder(&cluster);
    let web = a_pod(&cluster, "web-0").await;
    let down = cluster.inject(faults::refused().on(Verb::Create, "events.events.k8s.io"));
    recorder.record(&web, Note::normal("Reason", "Act", ""));
    cluster.advance(Duration::from_secs(1)).await;
    assert_eq!(down.hits(), 1);
    drop(down);
    stop.cancel();
    cluster.advance(Duration::from_secs(1)).await;
    assert_eq!(cluster.list::<Event>().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn event_write_is_attempted_twelve_times_ten_seconds_apart() {
    let cluster = TestCluster::start();
    let (recorder, _stop) = recorder(&cluster);
    let web = a_pod(&cluster, "web-0").await;
    let down = cluster.inject(faults::refused().on(Verb::Create, "events.events.k8s.io"));
    recorder.record(&web, Note::normal("Reason", "Act", ""));
    cluster.advance(Duration::from_secs(99)).await;
    let early = down.hits();
    assert!((8..=10).contains(&early), "{early}");
    cluster.advance(Duration::from_secs(600)).await;
    assert_eq!(down.hits(), 12);
}

/// Returns the series count and the note of each event.
fn told(cluster: &TestCluster) -> Vec<(Option<i32>, Option<String>)> {
    let events = cluster.list::<Event>().into_iter();
    events
        .map(|it| (it.series.map(|series| series.count), it.note))
        .collect()
}

#[tokio::test(start_paused = true)]
async fn deleted_event_of_a_series_is_recreated_with_its_name() {
    let cluster = TestCluster::start();
    let (recorder, _stop) = recorder(&cluster);
    let web = a_pod(&cluster, "web-0").await;
    let name = |cluster: &TestCluster| {
        cluster.list::<Event>()[0]
            .metadata
            .name
            .clone()
            .expect("the object has a name")
    };
    recorder.record(&web, Note::normal("Reason", "Act", "first"));
    cluster.settle().await;
    let first = name(&cluster);
    cluster.delete::<Event>(first.as_str()).await;
    recorder.record(&web, Note::normal("Reason", "Act", "second"));
    cluster.settle().await;
    assert_eq!(told(&cluster), [(Some(2), Some("second".to_owned()))]);
    assert_eq!(name(&cluster), first);

    // Further events are counted in the recreated Event, even after it was deleted again.
    recorder.record(&web, Note::normal("Reason", "Act", "third"));
    cluster.advance(Duration::from_secs(31 * 60)).await;
    assert_eq!(told(&cluster), [(Some(3), Some("second".to_owned()))]);
}

#[tokio::test(start_paused = true)]
async fn missing_event_is_recreated_when_its_count_is_written() {
    let cluster = TestCluster::start();
    let (recorder, _stop) = recorder(&cluster);
    let web = a_pod(&cluster, "web-0").await;
    for note in ["first", "second", "third"] {
        recorder.record(&web, Note::normal("Reason", "Act", note));
    }
    cluster.settle().await;
    let name = cluster.list::<Event>()[0]
        .metadata
        .name
        .clone()
        .expect("the object has a name");
    cluster.delete::<Event>(name.as_str()).await;
    cluster.advance(Duration::from_secs(31 * 60)).await;
    assert_eq!(told(&cluster), [(Some(3), Some("first".to_owned()))]);
    assert_eq!(cluster.list::<Event>()[0].metadata.name, Some(name));
}

#[tokio::test(start_paused = true)]
async fn long_note_is_truncated_and_events_of_cluster_scoped_objects_are_in_default() {
    let cluster = TestCluster::start();
    let (recorder, _stop) = recorder(&cluster);
    cluster.create(testkit::objects::node("node-1")).await;
    let node = cluster.get::<k8s_openapi::api::core::v1::Node>("node-1");
    recorder.record(&node, Note::normal("Reason", "Act", format!("x{}", "ü".repeat(600))));
    cluster.settle().await;
    let event = &cluster.list::<Event>()[0];
    assert_eq!(event.note.as_ref().map(String::len), Some(1023));
    assert_eq!(event.metadata.namespace.as_deref(), Some("default"));
}

#[rstest]
#[case::name_with_colons("system:controller:pods")]
#[case::long_name(&"n".repeat(250))]
#[case::uppercase_name("Not-A-Subdomain")]
#[case::consecutive_dots("a..b")]
#[case::empty_name("")]
#[tokio::test(start_paused = true)]
async fn events_are_recorded_for_objects_whose_names_are_invalid_in_event_names(#[case] name: &str) {
    let cluster = TestCluster::start();
    let (recorder, _stop) = recorder(&cluster);
    let regarding = ObjectReference {
        api_version: Some("rbac.authorization.k8s.io/v1".to_owned()),
        kind: Some("ClusterRole".to_owned()),
        name: Some(name.to_owned()),
        ..ObjectReference::default()
    };
    for reason in ["One", "Other"] {
        recorder.record_about(regarding.clone(), Note::normal(reason, "Act", ""));
    }
    cluster.settle().await;
    let events = cluster.list::<Event>();
    assert_eq!(events.len(), 2);
    let regarded = |it: &Event| it.regarding.as_ref().and_then(|it| it.name.clone()).unwrap_or_default();
    assert!(events.iter().all(|it| regarded(it) == name));
}

#[tokio::test(start_paused = true)]
async fn events_above_the_limit_of_two_thousand_are_dropped() {
    let (cluster, metrics) = (TestCluster::start(), Metrics::new());
    let (recorder, writer) = EventRecorder::new(cluster.client(), RecorderConfig::new("example.com/web", "web-0"));
    recorder.register_metrics(&metrics);
    cluster.run(writer.run(CancellationToken::new()));
    let create = || faults::delay(Duration::from_secs(3_600)).on(Verb::Create, "events.events.k8s.io");
    cluster.inject(create()).forget();
    let record = |objects: std::ops::Range<u32>| {
        for object in objects {
            let regarding = ObjectReference {
                name: Some(format!("web-{object}")),
                ..ObjectReference::default()
            };
            recorder.record_about(regarding, Note::normal("Reason", "Act", ""));
        }
    };
    // The writer takes a thousand events from the queue, and sends eight of them concurrently.
    record(0..1_000);
    cluster.advance(Duration::from_secs(1)).await;
    record(1_000..2_003);
    let text = metrics.render();
    let line = "informer_events_dropped_total{controller=\"example.com/web\",reason=\"full\"} 3";
    assert!(text.lines().any(|it| it == line), "{text}");
}

#[tokio::test(start_paused = true)]
async fn last_count_of_a_series_is_written_with_the_time_of_its_last_event() {
    let cluster = TestCluster::start();
    let (recorder, _stop) = recorder(&cluster);
    let web = a_pod(&cluster, "web-0").await;
    let note = || Note::normal("Reason", "Act", "again");
    recorder.record(&web, note());
    cluster.advance(Duration::from_secs(60)).await;
    recorder.record(&web, note());
    cluster.advance(Duration::from_secs(60)).await;
    recorder.record(&web, note());
    // The series ends after six minutes, and this event begins another one.
    cluster.advance(Duration::from_secs(7 * 60)).await;
    recorder.record(&web, note());
    cluster.advance(Duration::from_secs(31 * 60)).await;
    let events = cluster.list::<Event>();
    let counts: Vec<_> = events.iter().map(|it| it.series.as_ref().map(|it| it.count)).collect();
    assert_eq!(counts, [Some(3), None]);
    let (began, series) = (&events[0].event_time, &events[0].series);
    let began = began.as_ref().expect("the Event has a time").0;
    let last = series.as_ref().expect("the Event has a count").last_observed_time.0;
    assert_eq!(last.duration_since(began).as_secs(), 120);
}
