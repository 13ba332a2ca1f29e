//! Leader election: only one of several replicas leads, and another replica takes over.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use informer::Clock;
use informer::metrics::Metrics;
use informer::runtime::{ElectionOutcome, LeaderElectionConfig, LeaderElector, LeaseLock};
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use rstest::rstest;
use testkit::{Running, TestCluster, Verb, faults};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

/// A process that participates in the election.
struct Replica {
    elector: LeaderElector,
    cancel: CancellationToken,
    running: Running,
    outcome: Arc<Mutex<Option<ElectionOutcome>>>,
}

/// Log of all changes of leadership, in order: `+a` when `a` becomes the leader, and `-a` when `a` stops leading.
#[derive(Clone, Default)]
struct Acts(Arc<Mutex<Vec<(Instant, String)>>>);

impl Acts {
    fn say(&self, what: &str) {
        self.0
            .lock()
            .expect("the lock is not poisoned")
            .push((Instant::now(), what.to_owned()));
    }

    fn all(&self) -> Vec<String> {
        self.0
            .lock()
            .expect("the lock is not poisoned")
            .iter()
            .map(|(_, what)| what.clone())
            .collect()
    }

    fn at(&self, what: &str) -> Instant {
        let all = self.0.lock().expect("the lock is not poisoned");
        all.iter()
            .find(|it| it.1 == what)
            .map(|it| it.0)
            .unwrap_or_else(|| panic!("the log has no entry {what}: {all:?}"))
    }
}

fn config(cluster: &TestCluster, identity: &str) -> LeaderElectionConfig {
    LeaderElectionConfig {
        clock: Clock::starting_at(cluster.server().now()),
        ..LeaderElectionConfig::new(identity)
    }
}

fn join(cluster: &TestCluster, config: LeaderElectionConfig, acts: &Acts) -> Replica {
    let identity = config.identity.clone();
    let lock = LeaseLock::new(cluster.client_named(&identity), "default", "lock");
    let elector = LeaderElector::new(lock, config).expect("the durations are consistent");
    let (cancel, outcome) = (CancellationToken::new(), Arc::new(Mutex::new(None)));
    let running = cluster.run({
        let (elector, cancel, acts, outcome) = (elector.clone(), cancel.clone(), acts.clone(), Arc::clone(&outcome));
        async move {
            let ended = elector
                .run(cancel, |stop| async move {
                    acts.say(&format!("+{identity}"));
                    let _guard = Farewell(acts, identity);
                    stop.cancelled().await;
                })
                .await;
            *outcome.lock().expect("the lock is not poisoned") = Some(ended);
        }
    });
    Replica {
        elector,
        cancel,
        running,
        outcome,
    }
}

struct Farewell(Acts, String);

impl Drop for Farewell {
    fn drop(&mut self) {
        self.0.say(&format!("-{}", self.1));
    }
}

impl Replica {
    fn outcome(&self) -> Option<ElectionOutcome> {
        *self.outcome.lock().expect("the lock is not poisoned")
    }
}

fn lease(cluster: &TestCluster) -> LeaseSpec {
    cluster.get::<Lease>("lock").spec.expect("the Lease has a spec")
}

#[tokio::test(start_paused = true)]
async fn one_replica_leads_and_the_other_takes_over() {
    let (cluster, acts) = (TestCluster::start(), Acts::default());
    let a = join(&cluster, config(&cluster, "a"), &acts);
    cluster.advance(seconds(1)).await;
    let b = join(&cluster, config(&cluster, "b"), &acts);
    cluster.advance(seconds(60)).await;
    assert_eq!(acts.all(), ["+a"]);
    assert!(a.elector.is_leader() && !b.elector.is_leader());
    assert_eq!(b.elector.leader().as_deref(), Some("a"));
    assert_eq!(lease(&cluster).lease_transitions, Some(0));

    let cancelled = Instant::now();
    a.cancel.cancel();
    cluster.advance(seconds(10)).await;
    assert_eq!(acts.all(), ["+a", "-a", "+b"]);
    // Because the lease was released, b waits only until its next attempt, not until the lease expires.
    assert!(
        acts.at("+b") - cancelled < Duration::from_millis(4_500),
        "{:?}",
        acts.at("+b") - cancelled
    );
    assert_eq!(a.outcome(), Some(ElectionOutcome::Cancelled));
    assert_eq!(lease(&cluster).holder_identity.as_deref(), Some("b"));
    assert_eq!(lease(&cluster).lease_transitions, Some(1));
}

#[tokio::test(start_paused = true)]
async fn renewal_keeps_holder_and_acquire_time() {
    let (cluster, acts) = (TestCluster::start(), Acts::default());
    let _a = join(&cluster, config(&cluster, "a"), &acts);
    cluster.advance(seconds(1)).await;
    let before = lease(&cluster);
    cluster.advance(seconds(30)).await;
    let after = lease(&cluster);
    assert_eq!(after.acquire_time, before.acquire_time);
    assert!(after.renew_time > before.renew_time);
    assert_eq!(after.lease_duration_seconds, Some(15));
    // The holder can renew the Lease without reading it.
    assert_eq!(
        cluster
            .requests()
            .client("a")
            .on(Verb::Get, "leases.coordination.k8s.io")
            .count(),
        1
    );
}

#[rstest]
#[case::synchronized_clocks(Duration::ZERO)]
#[case::clock_an_hour_ahead(seconds(3600))]
#[tokio::test(start_paused = true)]
async fn crashed_leader_is_replaced_when_its_lease_expires_despite_clock_skew(#[case] skew: Duration) {
    let (cluster, acts) = (TestCluster::start(), Acts::default());
    let a = join(&cluster, config(&cluster, "a"), &acts);
    cluster.advance(seconds(1)).await;
    let mut other = config(&cluster, "b");
    other.clock = other.clock.ahead_by(skew);
    let _b = join(&cluster, other, &acts);
    cluster.advance(seconds(20)).await;
    assert_eq!(acts.all(), ["+a"], "a renewed lease is not taken over");

    let crashed = Instant::now();
    a.running.crash();
    cluster.advance(seconds(40)).await;
    assert_eq!(acts.all(), ["+a", "-a", "+b"]);
    let waited = acts.at("+b") - crashed;
    // The new leader waits for at least a lease duration after the last renewal, and for at most one retry (2 s × 2.2)
    // longer.
    assert!(waited > seconds(13) && waited < seconds(20), "{waited:?}");
}

#[tokio::test(start_paused = true)]
async fn leader_that_cannot_renew_stops_before_the_next_starts() {
    let (cluster, acts) = (TestCluster::start(), Acts::default());
    let a = join(&cluster, config(&cluster, "a"), &acts);
    cluster.advance(seconds(1)).await;
    let _b = join(&cluster, config(&cluster, "b"), &acts);
    cluster.advance(seconds(10)).await;
    let broken = cluster.inject(faults::server_error().client("a"));
    cluster.advance(seconds(60)).await;
    assert!(broken.hits() > 1, "the renewal was retried");
    assert_eq!(acts.all(), ["+a", "-a", "+b"]);
    assert_eq!(a.outcome(), Some(ElectionOutcome::Lost));
    assert!(acts.at("+b") > acts.at("-a"));
}

#[rstest]
#[case::server_errors(faults::server_error().times(3))]
#[case::too_many_requests(faults::too_many_requests(1).times(3))]
#[case::conflict(faults::conflict().once())]
#[case::lost_response(faults::timeout().but_applied().once())]
#[tokio::test(start_paused = true)]
async fn leader_keeps_its_lease_despite_errors_within_the_renew_deadline(#[case] fault: testkit::FaultBuilder) {
    let (cluster, acts) = (TestCluster::start(), Acts::default());
    let a = join(&cluster, config(&cluster, "a"), &acts);
    cluster.advance(seconds(1)).await;
    let _b = join(&cluster, config(&cluster, "b"), &acts);
    cluster.advance(seconds(5)).await;
    let fault = cluster.inject(fault.client("a").on(Verb::Update, "leases.coordination.k8s.io"));
    cluster.advance(seconds(60)).await;
    assert!(fault.hits() > 0);
    assert_eq!(acts.all(), ["+a"]);
    assert!(a.elector.is_leader());
}

#[rstest]
#[case::update(Verb::Update)]
#[case::get(Verb::Get)]
#[case::create(Verb::Create)]
#[tokio::test(start_paused = true)]
async fn unanswered_lease_request_does_not_prevent_leadership(#[case] verb: Verb) {
    let (cluster, acts) = (TestCluster::start(), Acts::default());
    let hung = cluster.inject(faults::no_answer().on(verb, "leases.coordination.k8s.io").once());
    let a = join(&cluster, config(&cluster, "a"), &acts);
    cluster.advance(seconds(60)).await;
    assert_eq!(hung.hits(), 1);
    assert_eq!(acts.all(), ["+a"]);
    assert!(a.elector.is_leader());
    a.cancel.cancel();
    cluster.advance(seconds(5)).await;
    assert_eq!(a.outcome(), Some(ElectionOutcome::Cancelled));
}

#[tokio::test(start_paused = true)]
async fn lease_is_released_despite_an_unanswered_request() {
    let (cluster, acts) = (TestCluster::start(), Acts::default());
    let a = join(&cluster, config(&cluster, "a"), &acts);
    cluster.advance(seconds(1)).await;
    let hung = cluster.inject(faults::no_answer().on(Verb::Get, "leases.coordination.k8s.io").once());
    a.cancel.cancel();
    cluster.advance(seconds(9)).await;
    assert_eq!(hung.hits(), 1);
    assert_eq!(lease(&cluster).holder_identity.as_deref(), Some(""));
}

#[tokio::test(start_paused = true)]
async fn leadership_is_not_reported_while_the_lease_is_released() {
    let (cluster, acts, metrics) = (TestCluster::start(), Acts::default(), Metrics::new());
    let a = join(&cluster, config(&cluster, "a"), &acts);
    a.elector.register_metrics(&metrics);
    cluster.advance(seconds(1)).await;
    assert!(a.elector.is_leader());
    let hung = cluster.inject(faults::no_answer().on(Verb::Get, "leases.coordination.k8s.io").once());
    a.cancel.cancel();
    cluster.advance(seconds(1)).await;
    assert_eq!(hung.hits(), 1);
    assert_eq!(lease(&cluster).holder_identity.as_deref(), Some("a"));
    assert!(!a.elector.is_leader());
    let text = metrics.render();
    assert!(
        text.contains("leader_election_master_status{name=\"lock\"} 0"),
        "{text}"
    );
}

/// Replaces the holder of the Lease, as another process does.
fn take_over(lease: &mut Lease) {
    let spec = lease.spec.get_or_insert_default();
    spec.holder_identity = Some("thief".to_owned());
}

#[tokio::test(start_paused = true)]
async fn lease_taken_by_another_holder_is_lost() {
    let (cluster, acts) = (TestCluster::start(), Acts::default());
    let a = join(&cluster, config(&cluster, "a"), &acts);
    cluster.advance(seconds(1)).await;
    cluster.edit("lock", take_over).await;
    cluster.advance(seconds(5)).await;
    assert_eq!(acts.all(), ["+a", "-a"]);
    assert_eq!(a.outcome(), Some(ElectionOutcome::Lost));
    assert_eq!(a.elector.leader().as_deref(), Some("thief"));
    assert_eq!(
        lease(&cluster).holder_identity.as_deref(),
        Some("thief"),
        "a lost lease is not released"
    );
}

#[tokio::test(start_paused = true)]
async fn restored_claim_without_a_response_is_not_leadership_after_another_process_led() {
    let (cluster, acts) = (TestCluster::start(), Acts::default());
    let lost = faults::timeout().but_applied().client("a");
    let lost = cluster.inject(lost.on(Verb::Create, "leases.coordination.k8s.io").once());
    let a = join(&cluster, config(&cluster, "a"), &acts);
    cluster.advance(seconds(1)).await;
    assert_eq!(
        (lost.hits(), lease(&cluster).holder_identity.as_deref()),
        (1, Some("a"))
    );
    let backup = cluster.snapshot();
    cluster.edit("lock", take_over).await;
    cluster.advance(seconds(5)).await;
    assert_eq!(a.elector.leader().as_deref(), Some("thief"));
    cluster.restore(&backup);
    cluster.advance(seconds(10)).await;
    assert_eq!(acts.all(), [""; 0]);
    // The candidate only waits until the restored lease expires.
    cluster.advance(seconds(20)).await;
    assert_eq!(acts.all(), ["+a"]);
}

#[tokio::test(start_paused = true)]
async fn deleted_lease_is_recreated() {
    let (cluster, acts) = (TestCluster::start(), Acts::default());
    let a = join(&cluster, config(&cluster, "a"), &acts);
    cluster.advance(seconds(1)).await;
    cluster.delete::<Lease>("lock").await;
    cluster.advance(seconds(5)).await;
    assert!(a.elector.is_leader());
    assert_eq!(acts.all(), ["+a"]);
    assert_eq!(lease(&cluster).holder_identity.as_deref(), Some("a"));
}

#[tokio::test(start_paused = true)]
async fn candidate_that_never_led_is_cancelled_without_a_write() {
    let (cluster, acts) = (TestCluster::start(), Acts::default());
    let _a = join(&cluster, config(&cluster, "a"), &acts);
    cluster.advance(seconds(1)).await;
    let b = join(&cluster, config(&cluster, "b"), &acts);
    cluster.advance(seconds(5)).await;
    b.cancel.cancel();
    cluster.advance(seconds(5)).await;
    assert_eq!(b.outcome(), Some(ElectionOutcome::NeverLed));
    assert_eq!(cluster.requests().client("b").writes().count(), 0);
}

#[tokio::test(start_paused = true)]
async fn other_candidates_wait_for_the_expiry_of_a_lease_that_is_not_released() {
    let (cluster, acts) = (TestCluster::start(), Acts::default());
    let keeping = LeaderElectionConfig {
        release_on_cancel: false,
        ..config(&cluster, "a")
    };
    let a = join(&cluster, keeping, &acts);
    cluster.advance(seconds(1)).await;
    let _b = join(&cluster, config(&cluster, "b"), &acts);
    cluster.advance(seconds(2)).await;
    a.cancel.cancel();
    cluster.advance(seconds(10)).await;
    assert_eq!(acts.all(), ["+a", "-a"]);
    cluster.advance(seconds(15)).await;
    assert_eq!(acts.all(), ["+a", "-a", "+b"]);
}

#[tokio::test(start_paused = true)]
async fn each_new_leader_is_reported_once() {
    let (cluster, acts) = (TestCluster::start(), Acts::default());
    let a = join(&cluster, config(&cluster, "a"), &acts);
    let mut leaders = a.elector.subscribe();
    cluster.advance(seconds(30)).await;
    assert_eq!(leaders.borrow_and_update().as_deref(), Some("a"));
    cluster.advance(seconds(30)).await;
    assert!(
        !leaders.has_changed().expect("the leader is published"),
        "renewals do not report a new leader"
    );
}

#[tokio::test(start_paused = true)]
async fn metrics_show_leadership_and_the_check_detects_an_expired_lease() {
    let (cluster, acts, metrics) = (TestCluster::start(), Acts::default(), Metrics::new());
    let a = join(&cluster, config(&cluster, "a"), &acts);
    a.elector.register_metrics(&metrics);
    assert!(
        metrics
            .render()
            .contains("leader_election_master_status{name=\"lock\"} 0")
    );
    cluster.advance(seconds(1)).await;
    assert!(
        metrics
            .render()
            .contains("leader_election_master_status{name=\"lock\"} 1")
    );
    assert!(a.elector.check(Duration::ZERO).is_ok());
    a.running.crash();
    cluster.advance(seconds(16)).await;
    let err = a.elector.check(Duration::ZERO).expect_err("the Lease has expired");
    assert!(err.to_string().contains("default/lock"), "{err}");
    assert!(a.elector.check(seconds(20)).is_ok());
}

#[rstest]
#[case(15, 15, 2, "must exceed the renew deadline")]
#[case(15, 2, 2, "1.2 times the retry period")]
#[case(15, 10, 0, "retry period is zero")]
#[tokio::test(start_paused = true)]
async fn inconsistent_lease_durations_are_refused(
    #[case] lease: u64,
    #[case] renew: u64,
    #[case] retry: u64,
    #[case] why: &str,
) {
    let cluster = TestCluster::start();
    let config = LeaderElectionConfig {
        lease_duration: seconds(lease),
        renew_deadline: seconds(renew),
        retry_period: seconds(retry),
        ..LeaderElectionConfig::new("a")
    };
    let refused = LeaderElector::new(LeaseLock::new(cluster.client(), "default", "lock"), config);
    let err = refused.expect_err("the durations are inconsistent").to_string();
    assert!(err.contains(why), "{err}");
}

/// Many replicas and many faults: two replicas never lead at the same time, and one replica leads in the end.
#[rstest]
#[tokio::test(start_paused = true)]
async fn two_replicas_never_lead_simultaneously(#[values(1, 2, 3, 4, 5, 6, 7, 8)] seed: u64) {
    let (cluster, acts) = (TestCluster::builder().seed(seed).start(), Acts::default());
    let mut replicas = Vec::new();
    let mut random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut draw = |below: u64| {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) % below
    };
    for round in 0..40 {
        let identity = format!("r{round}");
        match draw(6) {
            0 | 1 => {
                let config = LeaderElectionConfig {
                    seed: seed * 100 + round,
                    ..config(&cluster, &identity)
                };
                replicas.push(join(&cluster, config, &acts));
            }
            2 if !replicas.is_empty() => {
                let at = draw(replicas.len() as u64) as usize;
                replicas.swap_remove(at).running.crash();
            }
            3 if !replicas.is_empty() => {
                let at = draw(replicas.len() as u64) as usize;
                replicas.swap_remove(at).cancel.cancel();
            }
            4 => cluster.inject(faults::server_error().times(1 + draw(9))).forget(),
            _ => cluster
                .inject(faults::delay(Duration::from_millis(draw(3_000))).times(3))
                .forget(),
        }
        cluster.advance(Duration::from_millis(500 + draw(20_000))).await;
    }
    let mut acting: Vec<String> = Vec::new();
    for act in acts.all() {
        match act.split_at(1) {
            ("+", who) => acting.push(who.to_owned()),
            (_, who) => acting.retain(|it| it != who),
        }
        assert!(acting.len() <= 1, "{acting:?} act simultaneously: {:?}", acts.all());
    }
    assert!(acts.all().len() > 2, "both replicas have led: {:?}", acts.all());
}

#[tokio::test(start_paused = true)]
async fn candidates_with_the_same_seed_act_at_different_times() {
    let (cluster, acts) = (TestCluster::start(), Acts::default());
    let _leader = join(&cluster, config(&cluster, "a"), &acts);
    cluster.advance(seconds(1)).await;
    let candidates = ["b", "c"];
    let _replicas = candidates.map(|identity| join(&cluster, config(&cluster, identity), &acts));
    cluster.advance(seconds(60)).await;
    let looks = candidates.map(|identity| {
        let requests = cluster
            .requests()
            .client(identity)
            .on(Verb::Get, "leases.coordination.k8s.io");
        requests.iter().map(|it| it.started).collect::<Vec<_>>()
    });
    assert_eq!(looks[0][0], looks[1][0], "both candidates begin at the same time");
    assert!(looks[0].len() > 10);
    assert!(looks[0][1..].iter().all(|it| !looks[1].contains(it)), "{looks:?}");
}

#[tokio::test(start_paused = true)]
async fn lease_has_the_labels_of_its_lock_and_keeps_other_labels() {
    let cluster = TestCluster::start();
    let lead = |name: &'static str, labels: [(&'static str, &'static str); 2]| {
        let lock = LeaseLock::new(cluster.client_named(name), "default", "lock").labels(labels);
        let elector = LeaderElector::new(lock, config(&cluster, name)).expect("the durations are consistent");
        cluster.run(async move {
            let forever = |_: CancellationToken| std::future::pending::<()>();
            elector.run(CancellationToken::new(), forever).await
        })
    };
    let labels = || cluster.get::<Lease>("lock").metadata.labels.unwrap_or_default();
    let a = lead("a", [("team", "shop"), ("leader", "a")]);
    cluster.advance(seconds(5)).await;
    let _: Lease = cluster
        .patch("lock", serde_json::json!({"metadata": {"labels": {"mine": "yes"}}}))
        .await;
    a.crash();
    let _b = lead("b", [("team", "shop"), ("leader", "b")]);
    cluster.advance(seconds(40)).await;
    let expected = [("leader", "b"), ("mine", "yes"), ("team", "shop")];
    let expected = expected.map(|(name, value)| (name.to_owned(), value.to_owned()));
    assert_eq!(labels(), std::collections::BTreeMap::from(expected));
}
