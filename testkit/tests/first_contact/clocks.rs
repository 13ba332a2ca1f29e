//! The time of day: the server's is the machine's at the start, and the same in a replay.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde_json::json;
use testkit::TestCluster;
use testkit::explore::{Faults, delays, errors, explore};
use testkit::objects::config_map;

fn machine() -> Timestamp {
    #[expect(
        clippy::disallowed_methods,
        reason = "a controller that reads the machine's clock is what is tested"
    )]
    Timestamp::now()
}

#[tokio::test(start_paused = true)]
async fn a_cluster_begins_at_the_time_of_day() {
    let cluster = TestCluster::start();
    let apart = cluster.server().now().duration_since(machine()).abs();
    assert!(apart < SignedDuration::from_secs(120), "{apart}");
}

/// Writes the time into a ConfigMap, once, by the clock it is given.
async fn stamp(client: Client, clock: impl Fn() -> Timestamp) {
    let map = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "stamp"}, "data": {"at": clock().to_string()},
    });
    let maps = Api::<ConfigMap>::default_namespaced(client);
    let _ = maps
        .patch("stamp", &PatchParams::apply("test").force(), &Patch::Apply(map))
        .await;
    std::future::pending::<()>().await
}

fn stamped(is_foreign: bool, faults: Faults) -> testkit::explore::Explore {
    explore(async move |cluster: &TestCluster| {
        let server = cluster.server().clone();
        cluster.advance(Duration::from_secs(5)).await;
        cluster.controller("stamper", move |client| {
            let server = server.clone();
            stamp(client, move || if is_foreign { machine() } else { server.now() })
        });
        cluster.settle().await;
    })
    .faults(faults)
}

#[test]
fn a_controller_that_reads_the_machines_clock_is_named() {
    let report = stamped(true, delays()).report();
    let notes = report.notes().join("\n");
    assert!(
        notes.contains("stamper wrote ") && notes.contains("into configmaps default/stamp at data.at"),
        "{report}"
    );
}

/// A clock of whole seconds tells the same time to the first runs, and another one to those that come later.
#[test]
fn the_machines_time_is_no_end_state() {
    static FIRST: OnceLock<Timestamp> = OnceLock::new();
    let readings = Arc::new(AtomicUsize::new(0));
    let report = explore(async move |cluster: &TestCluster| {
        let readings = Arc::clone(&readings);
        cluster.controller("stamper", move |client| {
            let readings = Arc::clone(&readings);
            stamp(client, move || {
                let second = machine().as_second();
                let first = *FIRST.get_or_init(|| Timestamp::from_second(second).expect("a time"));
                match readings.fetch_add(1, Ordering::Relaxed) {
                    ..4 => first,
                    _ => first + SignedDuration::from_micros(1),
                }
            })
        });
        cluster.settle().await;
    })
    .faults(delays())
    .report();
    assert!(report.is_success(), "{report}");
}

#[test]
fn a_controller_that_reads_the_servers_clock_is_not_named() {
    let report = stamped(false, delays()).run();
    assert_eq!(report.notes(), [""; 0]);
}

#[test]
fn a_replay_begins_at_the_time_of_day_of_the_failure() {
    let report = stamped(false, errors()).report();
    let failure = report.failure().expect("it does not try again");
    let replay = failure.replay();
    let start = replay.rsplit_once(";time=").expect("the time of day").1.to_owned();
    let asked: Timestamp = start.parse().expect("a time");
    let earlier = asked - SignedDuration::from_hours(24 * 40);
    let again = explore(async move |cluster: &TestCluster| {
        let now = cluster.server().now();
        assert!(
            [earlier, earlier + SignedDuration::from_secs(4_391)].contains(&now) || now >= asked,
            "{now}"
        );
        assert!(now < asked || cluster.gone(config_map("no")), "the other reference");
        cluster.controller("stamper", |client| stamp(client, || Timestamp::UNIX_EPOCH));
        cluster.settle().await;
    })
    .replay(&replay.replace(&start, &earlier.to_string()))
    .schedules(1)
    .report();
    let failure = again.failure().expect("the same");
    assert!(failure.replay().ends_with(&format!(";time={earlier}")), "{again}");
}
