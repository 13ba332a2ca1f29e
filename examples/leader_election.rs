//! Two replicas of a controller with leader election: when the leader ends, the other replica takes over, with caches
//! that are already filled.
//!
//! `cargo run --example leader_election`. The example advances virtual time by 46 seconds, which takes only a moment of
//! real time.

use std::time::Duration;

use informer::Clock;
use informer::reconcile::{Action, ReconcileError, Request};
use informer::runtime::{LeaderElectionConfig, LeaseLock, Manager};
use k8s_openapi::api::core::v1::ConfigMap;
use testkit::TestCluster;
use testkit::objects::config_map;
use tokio_util::sync::CancellationToken;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), informer::Error> {
    let cluster = TestCluster::start();
    cluster.create(config_map("first")).await;
    let (one, stop_one) = replica(&cluster, "one")?;
    cluster.advance(Duration::from_secs(1)).await;
    let (other, stop_other) = replica(&cluster, "other")?;
    cluster.advance(Duration::from_secs(30)).await;
    assert!(one.is_leader() && !other.is_leader());

    println!("one ends");
    stop_one.cancel();
    cluster.advance(Duration::from_secs(10)).await;
    assert!(other.is_leader());
    cluster.create(config_map("second")).await;
    cluster.settle().await;
    stop_other.cancel();
    cluster.advance(Duration::from_secs(5)).await;
    Ok(())
}

fn replica(cluster: &TestCluster, identity: &'static str) -> Result<(Manager, CancellationToken), informer::Error> {
    let client = cluster.client_named(identity);
    let lock = LeaseLock::new(client.clone(), "default", "example");
    let config = LeaderElectionConfig {
        clock: Clock::starting_at(cluster.server().now()),
        ..LeaderElectionConfig::new(identity)
    };
    let manager = Manager::builder(client).leader_election(lock, config).build()?;
    manager
        .controller("maps")
        .for_::<ConfigMap>()
        .complete(move |request: Request| async move {
            println!("{identity} works on {}", request.key);
            Ok::<_, ReconcileError>(Action::await_change())
        })?;
    let (running, stop) = (manager.clone(), CancellationToken::new());
    cluster.run(running_until(running, stop.clone()));
    Ok((manager, stop))
}

async fn running_until(manager: Manager, stop: CancellationToken) {
    if let Err(err) = manager.run(stop.cancelled()).await {
        println!("a manager failed: {err}");
    }
}
