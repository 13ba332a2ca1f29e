//! Processes that wait for caches that were requested late or receive no data, and for shutdowns that hang.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use informer::reconcile::{Action, ReconcileError, Request};
use informer::runtime::{LeaderElectionConfig, LeaderElector, LeaseLock, Manager, run_always, run_when_leader};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use rstest::rstest;
use testkit::objects::{config_map, secret};
use testkit::{TestCluster, Verb, faults};
use tokio_util::sync::CancellationToken;

fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

/// Runs a manager, and records its result in the mutex.
fn running(cluster: &TestCluster, manager: &Manager) -> (CancellationToken, Arc<Mutex<Option<String>>>) {
    let (stop, end) = (CancellationToken::new(), Arc::new(Mutex::new(None)));
    let (manager, shutdown, told) = (manager.clone(), stop.clone(), Arc::clone(&end));
    cluster.run(async move {
        let result = manager.run(shutdown.cancelled_owned()).await;
        let text = result.map_or_else(|err| err.to_string(), |()| "ended".to_owned());
        *told.lock().expect("the lock is not poisoned") = Some(text);
    });
    (stop, end)
}

fn electing(cluster: &TestCluster) -> Manager {
    let lock = LeaseLock::new(cluster.client(), "default", "lock");
    let manager = Manager::builder(cluster.client()).leader_election(lock, LeaderElectionConfig::new("a"));
    manager.build().expect("the durations are consistent")
}

#[tokio::test(start_paused = true)]
async fn lister_of_a_running_manager_starts_immediately() {
    let cluster = TestCluster::start();
    cluster.create(config_map("m")).await;
    cluster.create(secret("s")).await;
    let manager = Manager::new(cluster.client());
    let (_stop, _end) = running(&cluster, &manager);
    cluster.advance(seconds(1)).await;
    let maps = manager.lister::<ConfigMap>();
    assert!(!maps.has_synced());
    maps.synced().await.expect("the informer has not stopped");
    assert_eq!(maps.len(), 1);
    let secrets = manager.factory().informer::<Secret>();
    secrets.synced().await.expect("the informer has not stopped");
    assert_eq!(secrets.lister().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn cache_without_events_is_reported_in_metrics_and_fails_readiness() {
    let cluster = TestCluster::start();
    let manager = Manager::new(cluster.client());
    manager.lister::<ConfigMap>();
    let (_stop, _end) = running(&cluster, &manager);
    let ready = || manager.endpoints().answer("/readyz", "").code;
    let silence = || {
        let metrics = manager.metrics().render();
        let line = metrics
            .lines()
            .find(|it| it.starts_with("informer_last_contact_seconds{"));
        let value = line.and_then(|it| it.rsplit(' ').next()?.parse::<f64>().ok());
        value.unwrap_or_else(|| panic!("the metric is missing in {metrics}"))
    };
    cluster.advance(seconds(600)).await;
    assert_eq!(ready(), 200);
    assert!(silence() <= 61.0, "there is a bookmark each minute: {}", silence());
    let broken = [Verb::Watch, Verb::List].map(|it| cluster.inject(faults::no_answer().on(it, "configmaps")));
    cluster.watches().on("configmaps").end();
    cluster.advance(seconds(700)).await;
    assert!(silence() > 690.0, "{}", silence());
    assert_eq!(ready(), 500);
    let why = manager.endpoints().answer("/readyz/informers", "").body;
    assert!(
        why.contains("nothing was received from /api/v1/configmaps for"),
        "{why}"
    );
    drop(broken);
    cluster.advance(seconds(120)).await;
    assert_eq!(ready(), 200, "the cache has recovered without a restart");
}

#[tokio::test(start_paused = true)]
async fn reconcile_is_notified_of_the_shutdown() {
    let cluster = TestCluster::start();
    cluster.create(config_map("m")).await;
    let manager = Manager::new(cluster.client());
    let maps = manager.controller("maps").for_::<ConfigMap>();
    let reconcile = |request: Request| async move {
        request.stop.cancelled().await;
        Ok::<_, ReconcileError>(Action::await_change())
    };
    maps.complete(reconcile).expect("the controller is complete");
    let (stop, end) = running(&cluster, &manager);
    cluster.advance(seconds(5)).await;
    stop.cancel();
    cluster.advance(seconds(1)).await;
    assert_eq!(end.lock().expect("the lock is not poisoned").as_deref(), Some("ended"));
}

#[tokio::test(start_paused = true)]
async fn shutdown_timeout_reports_running_parts_and_releases_the_lease() {
    let cluster = TestCluster::start();
    cluster.create(config_map("m")).await;
    let manager = electing(&cluster);
    for name in ["one", "other"] {
        let hangs = run_always(name, |_| futures::future::pending());
        manager.add(hangs).expect("the runnable is accepted");
    }
    let ends = run_when_leader("ends", |stop| async move {
        stop.cancelled().await;
        Ok(())
    });
    manager.add(ends).expect("the runnable is accepted");
    let maps = manager.controller("maps").for_::<ConfigMap>();
    let hangs = |_: Request| futures::future::pending::<Result<Action, ReconcileError>>();
    maps.complete(hangs).expect("the controller is complete");
    let (stop, end) = running(&cluster, &manager);
    cluster.advance(seconds(10)).await;
    stop.cancel();
    cluster.advance(seconds(40)).await;
    let why = "manager: these runnables have not stopped within 30s: one, other, ends, maps";
    assert_eq!(end.lock().expect("the lock is not poisoned").as_deref(), Some(why));
    let holder = cluster.get::<Lease>("lock").spec.and_then(|it| it.holder_identity);
    assert_eq!(holder.as_deref(), Some(""), "the lease is released for the next leader");
}

#[tokio::test(start_paused = true)]
async fn lease_lost_during_the_shutdown_ends_the_manager() {
    let cluster = TestCluster::start();
    cluster.create(config_map("m")).await;
    let manager = electing(&cluster);
    let maps = manager.controller("maps").for_::<ConfigMap>();
    let hangs = |_: Request| futures::future::pending::<Result<Action, ReconcileError>>();
    maps.complete(hangs).expect("the controller is complete");
    let (stop, end) = running(&cluster, &manager);
    cluster.advance(seconds(10)).await;
    let _fault = cluster.inject(faults::no_answer().on(Verb::Update, "leases"));
    stop.cancel();
    // The renew deadline is 10 s. Another process may lead after 15 s, but the shutdown may take 30 s.
    cluster.advance(seconds(12)).await;
    let why = "manager: leader election lost during the shutdown";
    assert_eq!(end.lock().expect("the lock is not poisoned").as_deref(), Some(why));
}

#[tokio::test(start_paused = true)]
async fn standby_that_is_shutting_down_does_not_become_the_leader() {
    let cluster = TestCluster::start();
    let lock = LeaseLock::new(cluster.client(), "default", "lock");
    let leader = LeaderElector::new(lock, LeaderElectionConfig::new("b")).expect("the durations are consistent");
    let cancel = CancellationToken::new();
    let cancelled = cancel.clone();
    let lead = |stop: CancellationToken| async move { stop.cancelled().await };
    let _leader = cluster.run(async move { leader.run(cancelled, lead).await });
    cluster.advance(seconds(5)).await;
    let manager = electing(&cluster);
    let slow = run_always("slow", |stop| async move {
        stop.cancelled().await;
        tokio::time::sleep(seconds(20)).await;
        Ok(())
    });
    manager.add(slow).expect("the runnable is accepted");
    let (stop, end) = running(&cluster, &manager);
    cluster.advance(seconds(10)).await;
    stop.cancel();
    cluster.advance(seconds(1)).await;
    cancel.cancel();
    cluster.advance(seconds(10)).await;
    let holder = cluster.get::<Lease>("lock").spec.and_then(|it| it.holder_identity);
    assert_eq!(holder.as_deref(), Some(""), "another process can become the leader");
    cluster.advance(seconds(10)).await;
    assert_eq!(end.lock().expect("the lock is not poisoned").as_deref(), Some("ended"));
}

#[rstest]
#[case::without_checks(false, "/healthz/ping", 200)]
#[case::ready(false, "/readyz/ping", 200)]
#[case::with_other_checks(true, "/healthz/ping", 200)]
#[case::unknown_check(false, "/healthz/pong", 404)]
#[tokio::test(start_paused = true)]
async fn ping_always_succeeds(#[case] has_checks: bool, #[case] path: &str, #[case] code: u16) {
    let manager = Manager::new(TestCluster::start().client());
    if has_checks {
        manager.add_healthz("other", || Err("the service is down".into()));
    }
    assert_eq!(manager.endpoints().answer(path, "").code, code);
}
