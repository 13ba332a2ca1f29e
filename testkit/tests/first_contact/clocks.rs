//! The time of day: the server's clock initially equals the machine's, and a replay starts at the same time of day.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde_json::json;
use testkit::TestCluster;
use testkit::explore::{External, Faults, delays, errors, explore};
use testkit::objects::config_map;

fn machine() -> Timestamp {
    #[expect(
        clippy::disallowed_methods,
        reason = "a controller that reads the machine's clock is what is tested"
    )]
    Timestamp::now()
}

#[tokio::test(start_paused = true)]
async fn cluster_clock_starts_at_the_time_of_the_machine() {
    let cluster = TestCluster::start();
    let apart = cluster.server().now().duration_since(machine()).abs();
    assert!(apart < SignedDuration::from_secs(120), "{apart}");
}

/// Writes the time of the given clock into a ConfigMap, once.
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
fn controller_that_uses_the_machine_clock_is_reported() {
    let report = stamped(true, delays()).machine_clock().report();
    assert!(
        report.to_string().starts_with("note: stamper wrote "),
        "the note is not at the start of the report: {report}"
    );
    let notes = report.notes().join("\n");
    assert!(
        notes.contains("stamper wrote ") && notes.contains("into configmaps default/stamp at data.at"),
        "{report}"
    );
}

/// The clocks of the standard library follow virtual time in a run.
#[test]
fn machine_clock_follows_the_server_clock_in_a_run() {
    let report = explore(async |cluster: &TestCluster| {
        let server = cluster.server().clone();
        cluster.controller("stamper", move |client| {
            let server = server.clone();
            stamp(client, move || {
                let apart = server.now().duration_since(machine()).abs();
                assert!(apart < SignedDuration::from_secs(1), "{apart}");
                machine()
            })
        });
        #[expect(
            clippy::disallowed_methods,
            reason = "a lifetime that is measured by the machine's clock"
        )]
        let began = std::time::Instant::now();
        cluster.advance(Duration::from_secs(7_200)).await;
        assert_eq!(began.elapsed().as_secs(), 7_200);
    })
    .faults(delays())
    .run();
    assert_eq!(report.notes(), [""; 0]);
}

/// A clock with whole seconds returns the same time in the first runs, and a different time in later runs.
#[test]
fn times_of_the_machine_are_ignored_in_the_end_state() {
    static FIRST: OnceLock<Timestamp> = OnceLock::new();
    let readings = Arc::new(AtomicUsize::new(0));
    let report = explore(async move |cluster: &TestCluster| {
        let readings = Arc::clone(&readings);
        cluster.controller("stamper", move |client| {
            let readings = Arc::clone(&readings);
            stamp(client, move || {
                let second = machine().as_second();
                let first = *FIRST.get_or_init(|| Timestamp::from_second(second).expect("the time is valid"));
                match readings.fetch_add(1, Ordering::Relaxed) {
                    ..4 => first,
                    _ => first + SignedDuration::from_micros(1),
                }
            })
        });
        cluster.settle().await;
    })
    .faults(delays())
    .machine_clock()
    .report();
    assert!(report.is_success(), "{report}");
}

/// Labels the ConfigMap `web` after it has read a login, which it caches for a minute of the machine's clock, even if
/// the login cannot be read.
async fn log_in(client: Client, cloud: External) {
    let maps = Api::<ConfigMap>::default_namespaced(client);
    let mut cached = None;
    loop {
        if cached.is_some_and(|(at, _)| machine().duration_since(at) > SignedDuration::from_secs(60)) {
            cached = None;
        }
        let has_session = cloud.get("session").await.is_ok();
        let (_, has_login) = match cached {
            Some(login) => login,
            None => *cached.insert((machine(), maps.get("login").await.is_ok())),
        };
        let labels = Patch::Merge(json!({"metadata": {"labels": {"seen": "true"}}}));
        if has_session && has_login && maps.patch("web", &PatchParams::default(), &labels).await.is_ok() {
            return std::future::pending().await;
        }
        tokio::time::sleep(Duration::from_secs(30)).await;
    }
}

fn with_cached_login() -> testkit::explore::Explore {
    let world = TestCluster::builder()
        .object(config_map("login"))
        .object(config_map("web"));
    explore(async |cluster: &TestCluster| {
        let cloud = cluster.external("cloud").of("operator");
        cluster.controller("operator", move |client| log_in(client, cloud.clone()));
        cluster.settle().await;
    })
    .cluster(world)
    .faults(errors())
}

/// A failure of a controller that waits for the machine's clock begins with the calls that it repeats.
#[test]
fn calls_that_are_repeated_until_the_machine_clock_advances_are_counted_first() {
    let report = with_cached_login().machine_clock().report();
    let failure = report.failure().expect("the exploration fails");
    let first = failure.what().lines().next().unwrap_or_default();
    let (count, rest) = first.split_once(" equal calls over ").unwrap_or_default();
    let (seconds, rest) = rest.split_once(" s of virtual time ").unwrap_or_default();
    assert!(count.parse::<u32>().is_ok_and(|it| it >= 20), "{report}");
    assert!(seconds.parse::<u32>().is_ok_and(|it| it >= 600), "{report}");
    assert_eq!(
        rest, "(operator call cloud.get session); the controller may measure time with the machine's clock",
        "{report}"
    );
    let text = report.to_string();
    let (head, _) = text.split_once(" equal calls over ").unwrap_or_default();
    assert!(
        head.lines().count() <= 5,
        "the calls are not at the top of the report: {report}"
    );
}

#[test]
#[cfg(target_os = "linux")]
fn cached_login_expires_in_virtual_time() {
    let report = with_cached_login().run();
    assert!(report.is_success(), "{report}");
}

#[test]
fn controller_that_uses_the_server_clock_is_not_reported() {
    let report = stamped(false, delays()).run();
    assert_eq!(report.notes(), [""; 0]);
}

#[test]
fn replay_starts_at_the_time_of_day_of_the_failure() {
    let report = stamped(false, errors()).report();
    let failure = report.failure().expect("the exploration fails");
    let replay = failure.replay();
    let start = replay
        .rsplit_once(";time=")
        .expect("the replay string has a time of day")
        .1
        .to_owned();
    let asked: Timestamp = start.parse().expect("the time is valid");
    let earlier = asked - SignedDuration::from_hours(24 * 40);
    let again = explore(async move |cluster: &TestCluster| {
        let now = cluster.server().now();
        assert!(
            [earlier, earlier + SignedDuration::from_secs(4_391)].contains(&now) || now >= asked,
            "{now}"
        );
        assert!(
            now < asked || cluster.gone(config_map("no")),
            "the reference runs differ"
        );
        cluster.controller("stamper", |client| stamp(client, || Timestamp::UNIX_EPOCH));
        cluster.settle().await;
    })
    .replay(&replay.replace(&start, &earlier.to_string()))
    .schedules(1)
    .report();
    let failure = again.failure().expect("the replay fails again");
    assert!(failure.replay().ends_with(&format!(";time={earlier}")), "{again}");
}
