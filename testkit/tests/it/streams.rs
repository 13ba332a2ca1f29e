//! Operations of a test on an open watch, and their effects on a kube client.

use std::time::Duration;

use fake_apiserver::api::status::Status;
use fake_apiserver::{Fault, Seen, Verdict, WatchHandle};
use futures::{Stream, StreamExt};
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::api::{WatchEvent, WatchParams};
use kube::runtime::watcher;
use kube::{Api, ResourceExt};
use rstest::rstest;
use testkit::objects::{config_map, pod};
use testkit::{TestCluster, WatchEventKind, cluster};

use crate::support::{Told, watch_pods};

type Events = std::pin::Pin<Box<dyn Stream<Item = kube::Result<WatchEvent<ConfigMap>>> + Send>>;

/// Opens a watch of ConfigMaps from now on, as the client of this name.
async fn watch(cluster: &TestCluster, client: &str) -> Events {
    let maps: Api<ConfigMap> = Api::all(cluster.client_named(client));
    let version = cluster.server().resource_version().to_string();
    maps.watch(&WatchParams::default(), &version)
        .await
        .expect("the watch opens")
        .boxed()
}

/// Collects the events of one second, one word per event; `end` at the end of the stream.
async fn told(events: &mut Events) -> Vec<String> {
    let mut words = Vec::new();
    loop {
        let event = tokio::time::timeout(Duration::from_secs(1), events.next()).await;
        words.push(match event {
            Err(_) => return words,
            Ok(None) => "end".to_owned(),
            Ok(Some(Ok(WatchEvent::Added(map)))) => format!("added {}", map.name_any()),
            Ok(Some(Ok(WatchEvent::Modified(map)))) => format!("modified {}", map.name_any()),
            Ok(Some(Ok(WatchEvent::Deleted(map)))) => format!("deleted {}", map.name_any()),
            Ok(Some(Ok(WatchEvent::Bookmark(_)))) => "bookmark".to_owned(),
            Ok(Some(Ok(WatchEvent::Error(status)))) => format!("error {}", status.code),
            Ok(Some(Err(_))) => "broken".to_owned(),
        });
        if matches!(words.last().map(String::as_str), Some("end" | "broken")) {
            return words;
        }
    }
}

fn only_watch(cluster: &TestCluster) -> WatchHandle {
    let mut watches = cluster.server().watches();
    assert_eq!(watches.len(), 1);
    watches.remove(0)
}

#[rstest]
#[case::unchanged(|_: &WatchHandle| {}, &["added a", "added b"])]
#[case::held(|it: &WatchHandle| it.hold(), &[])]
#[case::one_released(|it: &WatchHandle| { it.hold(); it.release(1) }, &["added a"])]
#[case::resumed(|it: &WatchHandle| { it.hold(); it.resume() }, &["added a", "added b"])]
#[case::silenced(|it: &WatchHandle| { it.silence(); it.end() }, &[])]
#[case::duplicated(|it: &WatchHandle| it.duplicate(1), &["added a", "added a", "added b"])]
#[case::false_event(
    |it: &WatchHandle| it.send(WatchEventKind::Deleted, named("x")),
    &["deleted x", "added a", "added b"]
)]
#[case::bookmark(|it: &WatchHandle| it.bookmark(), &["bookmark", "added a", "added b"])]
#[case::ended(|it: &WatchHandle| it.end(), &["end"])]
#[case::cut(|it: &WatchHandle| it.cut(), &["broken"])]
#[case::cut_inside_an_event(|it: &WatchHandle| it.cut_inside(30), &["end"])]
#[case::cut_inside_a_later_event(|it: &WatchHandle| { it.hold(); it.release(9); it.cut_inside(0) }, &["end"])]
#[case::expired(|it: &WatchHandle| it.expire(), &["error 410", "end"])]
#[case::failed(|it: &WatchHandle| it.fail(Status::internal("injected")), &["error 500", "end"])]
#[case::expired_while_held(|it: &WatchHandle| { it.hold(); it.expire() }, &["error 410"])]
#[tokio::test(start_paused = true)]
async fn watch_handle_controls_delivered_events(
    cluster: TestCluster,
    #[case] meddle: fn(&WatchHandle),
    #[case] expected: &[&str],
) {
    let mut events = watch(&cluster, "operator").await;
    meddle(&only_watch(&cluster));
    cluster.create(config_map("a")).await;
    cluster.create(config_map("b")).await;
    assert_eq!(told(&mut events).await, expected);
}

fn named(name: &str) -> serde_json::Value {
    serde_json::json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "default"}})
}

#[rstest]
#[tokio::test(start_paused = true)]
async fn held_events_are_listed(cluster: TestCluster) {
    let mut events = watch(&cluster, "operator").await;
    let handle = only_watch(&cluster);
    handle.hold();
    cluster.create(config_map("a")).await;
    cluster.delete(config_map("a")).await;
    assert!(told(&mut events).await.is_empty());

    let held = handle.held();
    let names: Vec<_> = held.iter().map(|it| (it.kind, it.name.as_str())).collect();
    assert_eq!(names, [("ADDED", "a"), ("DELETED", "a")]);
    assert_eq!(
        (handle.is_held(), handle.delivered(), handle.client()),
        (true, 0, "operator")
    );

    handle.release(1);
    assert_eq!(told(&mut events).await, ["added a"]);
    assert_eq!(handle.held().len(), 1);
    assert_eq!((handle.delivered(), handle.last_revision()), (1, held[0].revision));
    drop(events);
    assert!(handle.has_ended());
}

#[rstest]
#[tokio::test(start_paused = true)]
async fn held_events_of_two_resources_arrive_in_resumed_order(cluster: TestCluster) {
    let mut maps = watch(&cluster, "operator").await;
    let pods: Api<Pod> = Api::all(cluster.client());
    let version = cluster.server().resource_version().to_string();
    let events = pods.watch(&WatchParams::default(), &version).await;
    let mut pods = events.expect("the watch opens").boxed();
    cluster.watches().on("configmaps").hold();
    cluster.create(config_map("first")).await;
    cluster.create(pod("second")).await;
    assert!(matches!(pods.next().await, Some(Ok(WatchEvent::Added(_)))));
    assert!(told(&mut maps).await.is_empty());
    cluster.watches().on("configmaps").resume();
    assert_eq!(told(&mut maps).await, ["added first"]);
}

#[rstest]
#[case::sent(false, &["init", "init a", "init done", "apply b"])]
#[case::withheld(true, &["init", "init a", "init b"])]
#[tokio::test(start_paused = true)]
async fn streaming_list_ends_with_a_bookmark_unless_withheld(
    cluster: TestCluster,
    #[case] is_withheld: bool,
    #[case] expected: &[&str],
) {
    struct Withhold;
    impl Fault for Withhold {
        fn on_request(&mut self, _: &Seen<'_>) -> Verdict {
            Verdict::Pass
        }
        fn on_watch(&mut self, watch: &WatchHandle) {
            watch.withhold_initial_end();
        }
    }
    if is_withheld {
        cluster.server().inject(Withhold).forget();
    }
    let told = Told::default();
    let config = watcher::Config::default().streaming_lists();
    cluster.create(pod("a")).await;
    cluster.run(watch_pods(cluster.client(), config, told.clone()));
    cluster.settle().await;
    cluster.create(pod("b")).await;
    cluster.settle().await;
    assert_eq!(told.take(), expected);
    cluster
        .server()
        .watches()
        .iter()
        .for_each(WatchHandle::send_initial_end);
    cluster.settle().await;
    let expected: &[&str] = if is_withheld { &["init done"] } else { &[] };
    assert_eq!(told.take(), expected);
}

#[rstest]
#[case::sent(false, true)]
#[case::withheld(true, false)]
#[tokio::test(start_paused = true)]
async fn bookmarks_are_sent_every_minute_unless_withheld(
    cluster: TestCluster,
    #[case] is_withheld: bool,
    #[case] expected: bool,
) {
    let mut events = watch(&cluster, "operator").await;
    if is_withheld {
        cluster.watches().withhold_bookmarks();
    }
    let next = tokio::time::timeout(Duration::from_secs(100), events.next()).await;
    assert_eq!(matches!(next, Ok(Some(Ok(WatchEvent::Bookmark(_))))), expected);
}
