//! A replica that cannot use its Lease reports this instead of waiting silently.

use std::sync::{Arc, Mutex};

use informer::reconcile::{Action, ReconcileError, Request};
use informer::runtime::{Sharding, ShardingConfig};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::ConfigMap;
use testkit::{TestCluster, Verb, faults};
use tokio_util::sync::CancellationToken;

use crate::sharding::{manager, seconds};

type Ended = Arc<Mutex<Option<String>>>;

/// Runs a manager with a sharded controller. Returns the `Sharding`, and the manager's error once the manager has
/// ended.
fn replica(cluster: &TestCluster) -> (Sharding, Ended) {
    let manager = manager(cluster, "a");
    let sharding =
        Sharding::new(&manager, ShardingConfig::new("default", "maps", "a")).expect("the durations are consistent");
    let builder = manager.controller("maps").for_::<ConfigMap>().sharded(&sharding);
    let reconcile = |_: Request| async { Ok::<_, ReconcileError>(Action::await_change()) };
    builder.complete(reconcile).expect("the controller is complete");
    let ended: Ended = Arc::default();
    let noted = Arc::clone(&ended);
    cluster.run(async move {
        let result = manager.run(std::future::pending()).await;
        *noted.lock().expect("the lock is not poisoned") =
            Some(result.expect_err("the manager stops with an error").to_string());
    });
    (sharding, ended)
}

#[tokio::test(start_paused = true)]
async fn manager_fails_if_sharding_leases_cannot_be_listed() {
    let cluster = TestCluster::start();
    let forbidden = [Verb::List, Verb::Watch].map(|verb| {
        let fault = faults::status(403, "Forbidden").client("a").on(verb, "leases");
        cluster.inject(fault)
    });
    let (_sharding, ended) = replica(&cluster);
    cluster.advance(seconds(119)).await;
    assert_eq!(*ended.lock().expect("the lock is not poisoned"), None);
    cluster.advance(seconds(10)).await;
    assert!(forbidden.iter().any(|it| it.hits() > 0));
    let ended = ended
        .lock()
        .expect("the lock is not poisoned")
        .clone()
        .expect("the run has ended");
    assert!(ended.contains("leases") && ended.contains("Forbidden"), "{ended}");
}

#[tokio::test(start_paused = true)]
async fn replica_that_cannot_publish_its_lease_is_not_ready() {
    let cluster = TestCluster::start();
    let forbidden = faults::status(403, "Forbidden").client("a");
    let forbidden = cluster.inject(forbidden.on(Verb::Create, "leases"));
    let (sharding, ended) = replica(&cluster);
    // Almost the lease duration plus the hand-over timeout.
    cluster.advance(seconds(70)).await;
    sharding.check().expect("the replica may still join");
    cluster.advance(seconds(10)).await;
    let late = sharding.check().expect_err("the replica has no keys").to_string();
    assert!(late.contains("\"a\" has had no valid Lease"), "{late}");
    drop(forbidden);
    cluster.advance(seconds(10)).await;
    sharding.check().expect("the replica has joined");
    assert_eq!(*ended.lock().expect("the lock is not poisoned"), None);
}

#[tokio::test(start_paused = true)]
async fn lease_of_a_leaving_replica_is_released_despite_an_unanswered_request() {
    let cluster = TestCluster::start();
    let manager = manager(&cluster, "a");
    let sharding =
        Sharding::new(&manager, ShardingConfig::new("default", "maps", "a")).expect("the durations are consistent");
    let builder = manager.controller("maps").for_::<ConfigMap>().sharded(&sharding);
    let reconcile = |_: Request| async { Ok::<_, ReconcileError>(Action::await_change()) };
    builder.complete(reconcile).expect("the controller is complete");
    let stop = CancellationToken::new();
    let until = stop.clone();
    cluster.run(async move { manager.run(until.cancelled()).await });
    cluster.advance(seconds(20)).await;
    let unanswered = cluster.inject(faults::no_answer().client("a").on(Verb::Update, "leases").once());
    stop.cancel();
    cluster.advance(seconds(12)).await;
    assert_eq!(unanswered.hits(), 1);
    let leases = cluster.list::<Lease>();
    let holders = leases.iter().map(|it| it.spec.as_ref()?.holder_identity.as_deref());
    assert_eq!(holders.collect::<Vec<_>>(), [Some("")]);
}
