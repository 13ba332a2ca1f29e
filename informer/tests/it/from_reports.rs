//! Tests for bugs that were reported for client-go, controller-runtime, kube-runtime and kopf.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::FutureExt;
use informer::Clock;
use informer::cache::{FakeSource, HandlerOptions, QueueOrder, SharedInformer, SharedInformerFactory};
use informer::handler::{Event, HandlerFn};
use informer::queue::{AddOptions, LOW_PRIORITY, WorkQueue};
use informer::reconcile::{Action, ReconcileError, Request};
use informer::runtime::{
    Controller, ElectionOutcome, EventRecorder, LeaderElectionConfig, LeaderElector, LeaseLock, Manager, Note,
    RecorderConfig, RetryPolicy, add_finalizer, remove_finalizer, retry_on_conflict,
};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use k8s_openapi::api::events::v1;
use kube::Api;
use rstest::rstest;
use serde_json::json;
use testkit::objects::{config_map, pod};
use testkit::{TestCluster, Verb, faults};
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

/// Recorded messages, in order. Clones share the messages.
#[derive(Clone, Default)]
struct Noted(Arc<Mutex<Vec<String>>>);

impl Noted {
    fn note(&self, text: &str) {
        self.0.lock().expect("the lock is not poisoned").push(text.to_owned());
    }

    fn all(&self) -> Vec<String> {
        self.0.lock().expect("the lock is not poisoned").clone()
    }
}

fn word(event: &Event<ConfigMap>) -> &'static str {
    match event {
        Event::Added { .. } => "added",
        Event::Updated { .. } => "updated",
        Event::Deleted { .. } => "deleted",
    }
}

/// kubernetes/kubernetes#115658: an object that is created and deleted around a new list stays in the cache.
#[rstest]
#[case::in_arrival_order(QueueOrder::Arrival)]
#[case::grouped_by_object(QueueOrder::ByObject)]
#[tokio::test(start_paused = true)]
async fn deletion_of_a_short_lived_object_around_a_list_is_delivered(#[case] order: QueueOrder) {
    let source = FakeSource::new();
    let builder = SharedInformer::<ConfigMap>::builder(source.clone()).order(order);
    let informer = builder.build().expect("the options have no duplicates");
    let (noted, permits) = (Noted::default(), Arc::new(Semaphore::new(0)));
    let (told, waits) = (noted.clone(), Arc::clone(&permits));
    struct Slow(Noted, Arc<Semaphore>);
    impl informer::handler::ResourceEventHandler<ConfigMap> for Slow {
        async fn on_event(&self, event: &Event<ConfigMap>) -> Result<(), informer::handler::HandlerError> {
            self.1.acquire().await?.forget();
            if !event.is_replay() {
                self.0.note(&format!("{} {}", word(event), event.object().key().name()));
            }
            Ok(())
        }
    }
    informer
        .add_handler(Slow(told, waits))
        .expect("the informer has not stopped");
    let runs = informer.clone();
    tokio::spawn(async move { runs.run(std::future::pending()).await });
    sleep(seconds(1)).await;
    // The handler is far behind when a list without the object arrives.
    source.add(json!({"metadata": {"name": "short", "namespace": "default"}}));
    source.add(json!({"metadata": {"name": "long", "namespace": "default"}}));
    sleep(seconds(1)).await;
    source.delete_unseen("default", "short");
    source.reset_watches();
    sleep(seconds(120)).await;
    permits.add_permits(100);
    sleep(seconds(1)).await;
    assert_eq!(noted.all(), ["added short", "added long", "deleted short"]);
    assert_eq!(informer.lister().len(), 1);
}

/// kubernetes/kubernetes#108518, kubernetes-sigs/controller-runtime#1367: recording after the shutdown panics.
#[tokio::test(start_paused = true)]
async fn event_recorded_after_the_shutdown_is_dropped_and_counted() {
    let cluster = TestCluster::start();
    let manager = Manager::builder(cluster.client());
    let manager = manager.build().expect("a manager without leader election can be built");
    let recorder = manager.recorder("web").expect("the manager has not stopped");
    let stop = CancellationToken::new();
    let (runs, until) = (manager.clone(), stop.clone());
    cluster.run(async move { runs.run(until.cancelled()).await });
    cluster.create(pod("web-0").namespace("default")).await;
    let web: Pod = cluster.get("web-0");
    stop.cancel();
    cluster.advance(seconds(5)).await;
    recorder.record(&web, Note::normal("Stopped", "Stop", ""));
    cluster.advance(seconds(5)).await;
    assert_eq!(cluster.list::<v1::Event>().len(), 0);
    let figures = manager.metrics().render();
    assert!(
        figures.contains("informer_events_dropped_total{controller=\"web\",reason=\"full\"} 1"),
        "{figures}"
    );
}

/// kubernetes/kubernetes#140448: after an event is dropped because the queue is full, further events of its series are
/// not written.
#[tokio::test(start_paused = true)]
async fn dropped_event_does_not_suppress_the_next_event_of_its_series() {
    let cluster = TestCluster::start();
    let config = RecorderConfig {
        clock: Clock::starting_at(cluster.server().now()),
        ..RecorderConfig::new("example.com/web", "web-0")
    };
    let (recorder, writer) = EventRecorder::new(cluster.client(), config);
    for number in 0..40 {
        cluster.create(pod(&format!("web-{number}")).namespace("default")).await;
    }
    let pods = cluster.list::<Pod>();
    // The writer has not started, so the queue of 1,000 events is full before the event of the last Pod.
    for pod in &pods[..39] {
        for number in 0..26 {
            recorder.record(pod, Note::normal(&format!("Reason{number}"), "Act", ""));
        }
    }
    let last = &pods[39];
    let is_about_last = |it: &v1::Event| it.regarding.as_ref().and_then(|it| it.name.clone()) == last.metadata.name;
    recorder.record(last, Note::warning("Failed", "Act", ""));
    cluster.run(writer.run(CancellationToken::new()));
    cluster.settle().await;
    assert!(!cluster.list::<v1::Event>().iter().any(is_about_last));
    recorder.record(last, Note::warning("Failed", "Act", ""));
    cluster.settle().await;
    assert!(cluster.list::<v1::Event>().iter().any(is_about_last));
}

fn elector(cluster: &TestCluster, identity: &str) -> LeaderElector {
    let lock = LeaseLock::new(cluster.client_named(identity), "default", "lock");
    let config = LeaderElectionConfig {
        clock: Clock::starting_at(cluster.server().now()),
        ..LeaderElectionConfig::new(identity)
    };
    LeaderElector::new(lock, config).expect("the durations are consistent")
}

fn lead(cluster: &TestCluster, identity: &str, noted: &Noted, cancel: &CancellationToken) {
    let (elector, noted, cancel) = (elector(cluster, identity), noted.clone(), cancel.clone());
    let identity = identity.to_owned();
    cluster.run(async move {
        let (began, ended) = (noted.clone(), noted.clone());
        let (name, again) = (identity.clone(), identity.clone());
        let outcome = elector.run(cancel, |stop| async move {
            began.note(&format!("{name} leads"));
            stop.cancelled().await;
        });
        let outcome = outcome.await;
        let lost = if outcome == ElectionOutcome::Lost { " lost" } else { "" };
        ended.note(&format!("{again} ends{lost}"));
    });
}

/// kubernetes/kubernetes#112023: a leader that is cancelled during a request does not release its lease.
#[rstest]
#[tokio::test(start_paused = true)]
async fn leader_cancelled_during_a_request_releases_its_lease(#[values(0, 700, 1900, 2100, 2500)] after: u64) {
    let (cluster, noted, cancel) = (TestCluster::start(), Noted::default(), CancellationToken::new());
    // Each request takes a second.
    let _slow = cluster.inject(faults::slow_answer(seconds(1)).client("a"));
    lead(&cluster, "a", &noted, &cancel);
    cluster.advance(seconds(20)).await;
    assert_eq!(noted.all(), ["a leads"]);
    cluster.advance(Duration::from_millis(after)).await;
    cancel.cancel();
    cluster.advance(seconds(9)).await;
    assert_eq!(noted.all(), ["a leads", "a ends"]);
    let spec = cluster.get::<Lease>("lock").spec.expect("the Lease has a spec");
    assert_eq!(spec.holder_identity.as_deref(), Some(""));
}

/// kubernetes/kubernetes#23731: a leader whose requests are refused for some time, and that then finds another holder,
/// continues to lead.
#[tokio::test(start_paused = true)]
async fn leader_with_refused_renewals_stops_before_another_leads() {
    let (cluster, noted, cancel) = (TestCluster::start(), Noted::default(), CancellationToken::new());
    lead(&cluster, "a", &noted, &cancel);
    cluster.advance(seconds(1)).await;
    lead(&cluster, "b", &noted, &cancel);
    cluster.advance(seconds(10)).await;
    let refused = cluster.inject(faults::status(403, "Forbidden").client("a").on(Verb::Update, "leases"));
    cluster.advance(seconds(40)).await;
    drop(refused);
    cluster.advance(seconds(40)).await;
    assert_eq!(noted.all(), ["a leads", "a ends lost", "b leads"]);
}

const OURS: &str = "example.com/ours";
const THEIRS: &str = "example.com/theirs";

/// kube-rs/kube#964: if two controllers add their finalizers at the same time, one finalizer is duplicated or lost.
#[tokio::test(start_paused = true)]
async fn concurrent_finalizers_are_both_added_once() {
    let cluster = TestCluster::start();
    cluster.create(config_map("m")).await;
    let api: Api<ConfigMap> = Api::default_namespaced(cluster.client());
    let adding = async |name: &'static str| {
        let api = &api;
        retry_on_conflict(RetryPolicy::DEFAULT_RETRY, async || {
            let map = api.get("m").await?;
            add_finalizer(api, name, &map).await
        })
        .await
    };
    let (ours, theirs) = futures::join!(adding(OURS), adding(THEIRS));
    ours.and(theirs).expect("the finalizers are added");
    let mut finalizers = cluster
        .get::<ConfigMap>("m")
        .metadata
        .finalizers
        .expect("there are two finalizers");
    finalizers.sort();
    assert_eq!(finalizers, [OURS, THEIRS]);
}

/// nolar/kopf#798: removing a finalizer restores another finalizer that was removed in the meantime.
#[tokio::test(start_paused = true)]
async fn removing_a_finalizer_does_not_restore_another_finalizer() {
    let cluster = TestCluster::start();
    cluster
        .create(config_map("m").set("metadata.finalizers", vec![THEIRS, OURS]))
        .await;
    let stale: ConfigMap = cluster.get("m");
    cluster
        .edit("m", |map: &mut ConfigMap| {
            map.metadata.finalizers = Some(vec![OURS.into()])
        })
        .await;
    let api: Api<ConfigMap> = Api::default_namespaced(cluster.client());
    let removed = remove_finalizer(&api, OURS, &stale).await;
    assert!(removed.expect_err("the object is stale").is_conflict());
    assert_eq!(
        cluster.get::<ConfigMap>("m").metadata.finalizers,
        Some(vec![OURS.to_owned()])
    );
}

/// kubernetes/kubernetes#112325: an event during the backoff of a key doubles the frequency of its retries.
#[tokio::test(start_paused = true)]
async fn change_during_a_backoff_causes_one_additional_reconcile() {
    let cluster = TestCluster::start();
    let factory = SharedInformerFactory::new(cluster.client());
    let calls: Arc<Mutex<Vec<Instant>>> = Arc::default();
    let noted = Arc::clone(&calls);
    let controller = Controller::builder("maps", &factory).for_::<ConfigMap>();
    let controller = controller.build(move |_: Request| {
        noted.lock().expect("the lock is not poisoned").push(Instant::now());
        async { Err::<Action, _>(ReconcileError::from("not yet")) }
    });
    let controller = controller.expect("the controller is complete");
    cluster.run(controller.run(CancellationToken::new()));
    cluster.create(config_map("a")).await;
    // Calls are made 0, 5, 15, 35, … ms after the creation: the 15th call after 82 s, and the next call 82 s later.
    cluster.advance(seconds(100)).await;
    let before = calls.lock().expect("the lock is not poisoned").len();
    for _ in 0..2 {
        cluster
            .patch::<ConfigMap>("a", json!({"data": {"at": format!("{:?}", Instant::now())}}))
            .await;
        cluster.advance(seconds(1)).await;
    }
    let start = Instant::now();
    cluster.advance(seconds(1200)).await;
    let calls = calls.lock().expect("the lock is not poisoned");
    let later = calls.iter().filter(|it| **it > start).count();
    assert_eq!(calls.len() - later, before + 2, "each event causes one call");
    // The delay has doubled with each call, so earlier delays are negligible.
    assert!(later <= 4, "{later} calls in 20 minutes");
}

/// kubernetes-sigs/controller-runtime#3330: a delayed key with a high priority waits for keys with a lower priority.
#[tokio::test(start_paused = true)]
async fn due_high_priority_key_precedes_ready_low_priority_keys() {
    let queue = WorkQueue::builder().by_priority().build();
    let at = |priority, after| AddOptions {
        priority,
        after,
        ..AddOptions::default()
    };
    queue.add_with("low-1", at(LOW_PRIORITY, Duration::ZERO));
    queue.add_with("low-2", at(LOW_PRIORITY, Duration::ZERO));
    queue.add_with("high", at(0, seconds(1)));
    assert_eq!(queue.get().now_or_never().flatten().as_deref(), Some(&"low-1"));
    sleep(seconds(1)).await;
    assert_eq!(queue.get().now_or_never().flatten().as_deref(), Some(&"high"));
    assert_eq!(queue.get().now_or_never().flatten().as_deref(), Some(&"low-2"));
}

/// kubernetes-sigs/controller-runtime#3496: keys of the first list are never reconciled if other keys arrive faster
/// than they can be reconciled.
#[tokio::test(start_paused = true)]
async fn keys_of_the_first_list_are_reconciled_under_load() {
    let cluster = TestCluster::builder().object(config_map("initial")).start();
    let factory = SharedInformerFactory::new(cluster.client());
    let (noted, calls) = (Noted::default(), Noted::default());
    let (told, called) = (noted.clone(), calls.clone());
    let (keys, received) = tokio::sync::mpsc::channel(100);
    let builder = Controller::builder("maps", &factory)
        .for_::<ConfigMap>()
        .channel(received);
    let controller = builder.first_come_first_served().build(move |request: Request| {
        called.note("call");
        if request.key.name() == "initial" {
            told.note("initial");
        }
        async {
            sleep(Duration::from_millis(100)).await;
            Ok::<_, ReconcileError>(Action::requeue(Duration::from_millis(50)))
        }
    });
    for number in 0..20 {
        let key = informer::ObjectKey::new("default", &format!("busy-{number}"));
        keys.try_send(key).expect("the channel is not full");
    }
    cluster.run(
        controller
            .expect("the controller is complete")
            .run(CancellationToken::new()),
    );
    cluster.advance(seconds(10)).await;
    assert!(calls.all().len() > 80, "the worker is busy");
    assert!(!noted.all().is_empty());
}

/// kubernetes-sigs/controller-runtime#1761, #3440: a manager that is stopped before its caches have synced hangs.
#[rstest]
#[tokio::test(start_paused = true)]
async fn manager_stops_immediately_if_its_caches_have_not_synced(#[values(false, true)] elects: bool) {
    let cluster = TestCluster::start();
    let _silent = cluster.inject(faults::no_answer().client("m").on(Verb::List, "configmaps"));
    let _same = cluster.inject(faults::no_answer().client("m").on(Verb::Watch, "configmaps"));
    let client = cluster.client_named("m");
    let mut builder = Manager::builder(client.clone()).clock(Clock::starting_at(cluster.server().now()));
    if elects {
        builder = builder.leader_election(
            LeaseLock::new(client, "default", "lock"),
            LeaderElectionConfig::new("m"),
        );
    }
    let manager = builder.build().expect("the durations are consistent");
    let reconcile = |_: Request| async { Ok::<_, ReconcileError>(Action::await_change()) };
    let controller = manager.controller("maps").for_::<ConfigMap>();
    controller.complete(reconcile).expect("the controller is complete");
    let (stop, noted) = (CancellationToken::new(), Noted::default());
    let (until, ended) = (stop.clone(), noted.clone());
    cluster.run(async move {
        let result = manager.run(until.cancelled()).await;
        ended.note(&format!("{result:?}"));
    });
    cluster.advance(seconds(30)).await;
    assert!(noted.all().is_empty());
    stop.cancel();
    cluster.advance(seconds(1)).await;
    assert_eq!(noted.all(), ["Ok(())"]);
}

/// fabric8io/kubernetes-client#7944: a handler that fails once during a resync receives no further resyncs.
#[tokio::test(start_paused = true)]
async fn resyncs_continue_after_a_panic() {
    let source = FakeSource::new();
    source.add(json!({"metadata": {"name": "a", "namespace": "default"}}));
    let informer = SharedInformer::<ConfigMap>::new(source);
    let noted = Noted::default();
    let told = noted.clone();
    let handler = HandlerFn::new(move |event: &Event<ConfigMap>| {
        told.note(word(event));
        assert_ne!(told.all().len(), 2, "the handler panics in its first resync");
    });
    let options = HandlerOptions {
        resync_period: Some(seconds(60)),
        ..HandlerOptions::default()
    };
    informer
        .add_handler_with(handler, options)
        .expect("the informer has not stopped");
    let runs = informer.clone();
    tokio::spawn(async move { runs.run(std::future::pending()).await });
    sleep(seconds(200)).await;
    assert_eq!(noted.all(), ["added", "updated", "updated", "updated"]);
}
