//! Managers: order of starting and stopping, and leadership.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use informer::Clock;
use informer::reconcile::{Action, BoxError, ReconcileError, Reconciler, Request};
use informer::runtime::{
    Controller, ControllerBuilder, FnRunnable, LeaderElectionConfig, LeaseLock, Manager, Note, Runnable, RunnableGroup,
    run_always, run_when_leader,
};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::api::events::v1::Event;
use rstest::rstest;
use testkit::objects::config_map;
use testkit::{Running, TestCluster, Verb, faults};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::spans::Lines;

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<String>>>);

impl Log {
    fn say(&self, what: impl Into<String>) {
        self.0.lock().expect("the lock is not poisoned").push(what.into());
    }

    fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock().expect("the lock is not poisoned"))
    }

    fn task(&self, make: fn(&str, Steps) -> FnRunnable, name: &str) -> FnRunnable {
        make(name, Steps(self.clone(), name.to_owned()))
    }
}

struct Steps(Log, String);

impl Steps {
    async fn walk(self, stop: CancellationToken) -> Result<(), informer::reconcile::BoxError> {
        self.0.say(format!("+{}", self.1));
        stop.cancelled().await;
        tokio::time::sleep(Duration::from_secs(1)).await;
        self.0.say(format!("-{}", self.1));
        Ok(())
    }
}

fn always(name: &str, steps: Steps) -> FnRunnable {
    run_always(name, |stop| steps.walk(stop))
}

fn leading(name: &str, steps: Steps) -> FnRunnable {
    run_when_leader(name, |stop| steps.walk(stop))
}

fn electing(cluster: &TestCluster, identity: &str) -> Manager {
    let lock = LeaseLock::new(cluster.client_named(identity), "default", "lock");
    let config = LeaderElectionConfig {
        clock: Clock::starting_at(cluster.server().now()),
        ..LeaderElectionConfig::new(identity)
    };
    let manager = Manager::builder(cluster.client_named(identity))
        .leader_election(lock, config)
        .build();
    manager.expect("the durations are consistent")
}

/// Runs a manager, and adds its result to the log.
fn start(cluster: &TestCluster, manager: &Manager, log: &Log) -> (Running, CancellationToken) {
    let (stop, manager, log) = (CancellationToken::new(), manager.clone(), log.clone());
    let shutdown = stop.clone();
    let running = cluster.run(async move {
        match manager.run(shutdown.cancelled_owned()).await {
            Ok(()) => log.say("ended"),
            Err(err) => log.say(err.to_string()),
        }
    });
    (running, stop)
}

fn counting(manager: &Manager, log: &Log) -> Controller {
    let log = log.clone();
    let controller = Controller::builder("maps", &manager.factory())
        .for_::<ConfigMap>()
        .metrics(&manager.metrics())
        .build(move |request: Request| {
            log.say(request.key.name());
            async { Ok::<_, ReconcileError>(Action::await_change()) }
        });
    controller.expect("the controller is complete")
}

#[tokio::test(start_paused = true)]
async fn always_group_stops_before_leader_group_and_the_lease_is_released_last() {
    let (cluster, log) = (TestCluster::start(), Log::default());
    let manager = electing(&cluster, "a");
    manager
        .add(log.task(leading, "leader"))
        .expect("the runnable is accepted");
    manager
        .add(log.task(always, "always"))
        .expect("the runnable is accepted");
    let (_running, stop) = start(&cluster, &manager, &log);
    cluster.advance(Duration::from_secs(5)).await;
    assert_eq!(log.take(), ["+always", "+leader"]);
    assert!(manager.is_leader());
    stop.cancel();
    cluster.advance(Duration::from_millis(1_500)).await;
    assert_eq!(log.take(), ["-always"]);
    let held = |cluster: &TestCluster| cluster.get::<Lease>("lock").spec.and_then(|it| it.holder_identity);
    assert_eq!(
        held(&cluster).as_deref(),
        Some("a"),
        "the lease is held while a runnable of the leader runs"
    );
    cluster.advance(Duration::from_secs(5)).await;
    assert_eq!(log.take(), ["-leader", "ended"]);
    assert_eq!(held(&cluster).as_deref(), Some(""));
}

#[tokio::test(start_paused = true)]
async fn standby_has_warm_caches_and_only_acts_after_it_becomes_the_leader() {
    let (cluster, log, standby_log) = (TestCluster::start(), Log::default(), Log::default());
    cluster.create(config_map("m")).await;
    let (first, second) = (electing(&cluster, "a"), electing(&cluster, "b"));
    first.add(counting(&first, &log)).expect("the runnable is accepted");
    second
        .add(counting(&second, &standby_log))
        .expect("the runnable is accepted");
    let (_first, stop) = start(&cluster, &first, &log);
    cluster.advance(Duration::from_secs(1)).await;
    start(&cluster, &second, &standby_log);
    cluster.advance(Duration::from_secs(30)).await;
    assert_eq!((log.take(), standby_log.take()), (vec!["m".to_owned()], vec![]));
    assert_eq!(
        second.factory().informer::<ConfigMap>().lister().len(),
        1,
        "the cache of the standby is filled"
    );
    assert!(!second.is_leader());
    stop.cancel();
    cluster.advance(Duration::from_secs(10)).await;
    assert_eq!(
        (log.take(), standby_log.take()),
        (vec!["ended".to_owned()], vec!["m".to_owned()])
    );
}

#[tokio::test(start_paused = true)]
async fn losing_the_lease_ends_the_manager_immediately() {
    let (cluster, log) = (TestCluster::start(), Log::default());
    let manager = electing(&cluster, "a");
    manager
        .add(log.task(leading, "leader"))
        .expect("the runnable is accepted");
    let maps = manager.factory().informer::<ConfigMap>();
    start(&cluster, &manager, &log);
    cluster.advance(Duration::from_secs(5)).await;
    cluster.inject(faults::server_error().client("a")).forget();
    cluster.advance(Duration::from_secs(30)).await;
    assert_eq!(log.take(), ["+leader", "manager: leader election lost"]);
    assert!(maps.is_stopped(), "the informers are dropped as well");
}

#[tokio::test(start_paused = true)]
async fn informers_stop_if_the_run_of_the_manager_is_dropped() {
    let (cluster, log) = (TestCluster::start(), Log::default());
    let manager = Manager::new(cluster.client());
    let maps = manager.factory().informer::<ConfigMap>();
    let running = {
        let manager = manager.clone();
        cluster.run(async move { manager.run(std::future::pending()).await })
    };
    cluster.settle().await;
    running.crash();
    cluster.settle().await;
    assert!(maps.is_stopped(), "{:?}", log.take());
}

/// Returns a runnable of the leader that records an event when it is stopped.
fn recording(manager: &Manager, log: &Log) -> FnRunnable {
    let (recorder, log) = (
        manager.recorder("web").expect("the manager has not stopped"),
        log.clone(),
    );
    run_when_leader("records", move |stop| async move {
        stop.cancelled().await;
        log.say("stopping");
        recorder.record(&ConfigMap::default(), Note::normal("Stopped", "Stop", ""));
        Ok(())
    })
}

#[tokio::test(start_paused = true)]
async fn events_that_runnables_record_while_they_stop_are_written() {
    let (cluster, log) = (TestCluster::start(), Log::default());
    let manager = electing(&cluster, "a");
    manager
        .add(recording(&manager, &log))
        .expect("the runnable is accepted");
    let (_running, stop) = start(&cluster, &manager, &log);
    cluster.advance(Duration::from_secs(5)).await;
    stop.cancel();
    cluster.advance(Duration::from_secs(1)).await;
    assert_eq!(log.take(), ["stopping", "ended"]);
    assert_eq!(cluster.list::<Event>().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn event_requests_without_a_response_delay_only_the_end_of_a_shutdown() {
    let (cluster, log) = (TestCluster::start(), Log::default());
    let manager = Manager::new(cluster.client());
    manager
        .add(recording(&manager, &log))
        .expect("the runnable is accepted");
    let recorder = manager.recorder("web").expect("the manager has not stopped");
    let (_running, stop) = start(&cluster, &manager, &log);
    cluster
        .inject(faults::delay(Duration::from_secs(3600)).on(Verb::Create, "events.events.k8s.io"))
        .forget();
    cluster.advance(Duration::from_secs(1)).await;
    for number in 0..20 {
        recorder.record(
            &ConfigMap::default(),
            Note::normal(&format!("Reason{number}"), "Act", ""),
        );
    }
    cluster.settle().await;
    stop.cancel();
    cluster.advance(Duration::from_millis(100)).await;
    assert_eq!(log.take(), ["stopping"]);
    cluster.advance(Duration::from_secs(11)).await;
    assert_eq!(log.take(), ["ended"]);
}

#[tokio::test(start_paused = true)]
async fn runnable_that_fails_stops_the_manager() {
    let (cluster, log) = (TestCluster::start(), Log::default());
    let manager = Manager::builder(cluster.client())
        .build()
        .expect("a manager without leader election can be built");
    manager
        .add(log.task(always, "always"))
        .expect("the runnable is accepted");
    let fails = run_when_leader("fails", |_| async {
        tokio::time::sleep(Duration::from_secs(3)).await;
        Err("the runnable failed".into())
    });
    manager.add(fails).expect("the runnable is accepted");
    start(&cluster, &manager, &log);
    cluster.advance(Duration::from_secs(10)).await;
    assert_eq!(log.take(), ["+always", "-always", "fails: the runnable failed"]);
}

/// A runnable of a group that fails when it is stopped.
struct FailsToStop(RunnableGroup);

impl Runnable for FailsToStop {
    fn name(&self) -> String {
        "fails".to_owned()
    }

    fn group(&self) -> RunnableGroup {
        self.0
    }

    fn run(self: Box<Self>, stop: CancellationToken) -> BoxFuture<'static, Result<(), BoxError>> {
        let failing = async move {
            stop.cancelled().await;
            Err::<(), BoxError>("the runnable failed".into())
        };
        failing.boxed()
    }
}

#[rstest]
#[case::first_group(RunnableGroup::Always)]
#[case::last_group(RunnableGroup::Base)]
#[tokio::test(start_paused = true)]
async fn errors_of_runnables_during_the_shutdown_are_logged(#[case] group: RunnableGroup) {
    let (lines, _guard) = Lines::start();
    let (cluster, log) = (TestCluster::start(), Log::default());
    let manager = Manager::new(cluster.client());
    manager.add(FailsToStop(group)).expect("the runnable is accepted");
    let (_running, stop) = start(&cluster, &manager, &log);
    cluster.advance(Duration::from_secs(5)).await;
    stop.cancel();
    cluster.advance(Duration::from_secs(5)).await;
    assert_eq!(log.take(), ["ended"]);
    assert_eq!(
        lines.with("during the shutdown"),
        ["manager{}: a runnable failed during the shutdown error=fails: the runnable failed"]
    );
}

#[tokio::test(start_paused = true)]
async fn shutdown_waits_at_most_thirty_seconds() {
    let (cluster, log) = (TestCluster::start(), Log::default());
    let manager = Manager::builder(cluster.client())
        .build()
        .expect("a manager without leader election can be built");
    let hangs = run_always("hangs", |_| futures::future::pending());
    manager.add(hangs).expect("the runnable is accepted");
    let maps = manager.factory().informer::<ConfigMap>();
    let (running, stop) = start(&cluster, &manager, &log);
    cluster.advance(Duration::from_secs(1)).await;
    stop.cancel();
    let cancelled = Instant::now();
    cluster.eventually(|_| !running.is_running()).await;
    assert!(cancelled.elapsed() >= Duration::from_secs(30) && cancelled.elapsed() < Duration::from_secs(32));
    assert_eq!(
        log.take(),
        ["manager: these runnables have not stopped within 30s: hangs"]
    );
    cluster.settle().await;
    assert!(maps.is_stopped(), "the informers are dropped as well");
}

#[tokio::test(start_paused = true)]
async fn runnables_can_be_added_until_the_manager_stops() {
    let (cluster, log) = (TestCluster::start(), Log::default());
    let manager = Manager::builder(cluster.client())
        .build()
        .expect("a manager without leader election can be built");
    let (_running, stop) = start(&cluster, &manager, &log);
    cluster.advance(Duration::from_secs(1)).await;
    cluster.create(config_map("m")).await;
    manager.add(counting(&manager, &log)).expect("the runnable is accepted");
    let err = manager
        .add(counting(&manager, &log))
        .expect_err("the name is already in use");
    assert!(
        err.to_string()
            .contains("a runnable with the name \"maps\" already exists"),
        "{err}"
    );
    manager
        .add(log.task(always, "always"))
        .expect("the runnable is accepted");
    cluster.advance(Duration::from_secs(1)).await;
    let mut said = log.take();
    said.sort();
    assert_eq!(said, ["+always", "m"]);
    assert!(
        manager
            .endpoints()
            .answer("/metrics", "")
            .body
            .contains("controller_runtime_reconcile_total")
    );
    stop.cancel();
    cluster.advance(Duration::from_secs(5)).await;
    assert_eq!(log.take(), ["-always", "ended"]);
    assert!(manager.add(log.task(always, "late")).is_err());
    assert!(manager.run(async {}).await.is_err(), "a manager can only be run once");
}

#[tokio::test(start_paused = true)]
async fn manager_can_only_be_run_once() {
    let (cluster, log) = (TestCluster::start(), Log::default());
    let manager = Manager::new(cluster.client());
    manager
        .add(log.task(always, "always"))
        .expect("the runnable is accepted");
    let (running, stop) = start(&cluster, &manager, &log);
    cluster.advance(Duration::from_secs(1)).await;
    let err = manager.run(async {}).await.expect_err("the manager already runs");
    assert!(err.to_string().contains("the manager has already been run"), "{err}");
    manager.add(log.task(always, "late")).expect("the runnable is accepted");
    cluster.advance(Duration::from_secs(5)).await;
    assert!(running.is_running());
    assert_eq!(log.take(), ["+always", "+late"]);
    stop.cancel();
    cluster.advance(Duration::from_secs(5)).await;
    assert_eq!(log.take(), ["-always", "-late", "ended"]);
}

#[tokio::test(start_paused = true)]
async fn leader_election_is_a_health_check() {
    let cluster = TestCluster::start();
    let manager = electing(&cluster, "a");
    let answer = manager.endpoints().answer("/healthz", "verbose");
    assert_eq!(
        (answer.code, answer.body.as_str()),
        (200, "[+]leaderElection ok\nhealthz check passed\n")
    );
}

#[tokio::test(start_paused = true)]
async fn runnable_that_panics_stops_the_manager() {
    let (cluster, log) = (TestCluster::start(), Log::default());
    let manager = Manager::new(cluster.client());
    manager
        .add(log.task(always, "always"))
        .expect("the runnable is accepted");
    let panics = |_: Request| async { panic!("the reconcile panicked") as Result<Action, ReconcileError> };
    let controller = manager.controller("maps").for_::<ConfigMap>().propagate_panics();
    controller.complete(panics).expect("the controller is complete");
    cluster.create(config_map("m")).await;
    start(&cluster, &manager, &log);
    cluster.advance(Duration::from_secs(10)).await;
    assert_eq!(
        log.take(),
        ["+always", "-always", "maps: panic: the reconcile panicked"]
    );
}

#[tokio::test(start_paused = true)]
async fn replicas_reconnect_at_different_times() {
    let cluster = TestCluster::start();
    let clients = ["a", "b"];
    for client in clients {
        let manager = electing(&cluster, client);
        manager.lister::<ConfigMap>();
        start(&cluster, &manager, &Log::default());
    }
    cluster.advance(Duration::from_secs(5)).await;
    cluster.expire_watches();
    cluster.advance(Duration::from_secs(30)).await;
    let came_back = clients.map(|client| {
        let requests = cluster.requests().client(client).on(Verb::Watch, "configmaps");
        requests.iter().last().map(|it| it.started)
    });
    assert_ne!(came_back[0], came_back[1]);
}

/// Returns a reconciler that adds the keys that it receives to the log.
fn noting(log: &Log) -> impl Reconciler + use<> {
    let calls = log.clone();
    move |request: Request| {
        calls.say(request.key.name());
        async { Ok::<_, ReconcileError>(Action::await_change()) }
    }
}

#[rstest]
#[case::default(|it: ControllerBuilder<Manager>| it, 0, false)]
#[case::with_warm_up(|it: ControllerBuilder<Manager>| it.warm_up(), 1, false)]
#[case::without_leader_election(|it: ControllerBuilder<Manager>| it.without_leader_election(), 0, true)]
#[tokio::test(start_paused = true)]
async fn standby_warms_up_caches_and_runs_controllers_without_leader_election(
    #[case] configure: fn(ControllerBuilder<Manager>) -> ControllerBuilder<Manager>,
    #[case] waiting: usize,
    #[case] works: bool,
) {
    let (cluster, log) = (TestCluster::start(), Log::default());
    cluster.create(config_map("m")).await;
    let (_leader, stop) = start(&cluster, &electing(&cluster, "leader"), &log);
    cluster.advance(Duration::from_secs(1)).await;
    let (standby, worked) = (electing(&cluster, "standby"), Log::default());
    let controller = configure(standby.controller("maps").for_::<ConfigMap>());
    let controller = controller.build(noting(&worked)).expect("the controller is complete");
    let queue = controller.queue();
    standby.add(controller).expect("the runnable is accepted");
    start(&cluster, &standby, &log);
    cluster.advance(Duration::from_secs(5)).await;
    assert_eq!(queue.len(), waiting);
    assert_eq!(worked.take().len(), usize::from(works));
    stop.cancel();
    standby.elected().await;
    cluster.advance(Duration::from_secs(1)).await;
    assert_eq!(worked.take().len(), usize::from(!works));
}

#[rstest]
#[case::added_before_the_start(false)]
#[case::added_later(true)]
#[tokio::test(start_paused = true)]
async fn controller_added_to_a_standby_is_warmed_up(#[case] is_late: bool) {
    let (cluster, log) = (TestCluster::start(), Log::default());
    cluster.create(config_map("m")).await;
    let (_leader, stop) = start(&cluster, &electing(&cluster, "leader"), &log);
    cluster.advance(Duration::from_secs(1)).await;
    let (standby, worked) = (electing(&cluster, "standby"), Log::default());
    let controller = standby.controller("maps").for_::<ConfigMap>().warm_up();
    let controller = controller.build(noting(&worked)).expect("the controller is complete");
    let queue = controller.queue();
    if is_late {
        start(&cluster, &standby, &log);
        cluster.advance(Duration::from_secs(5)).await;
        standby.add(controller).expect("the runnable is accepted");
    } else {
        standby.add(controller).expect("the runnable is accepted");
        start(&cluster, &standby, &log);
    }
    cluster.advance(Duration::from_secs(5)).await;
    assert_eq!((queue.len(), worked.take().len()), (1, 0));
    stop.cancel();
    standby.elected().await;
    cluster.advance(Duration::from_secs(1)).await;
    assert_eq!((queue.len(), worked.take().len()), (0, 1));
}
