//! Lease holders with late responses to renewals and releases, claims from backups, and processes that share an
//! identity.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use informer::Clock;
use informer::runtime::{LeaderElectionConfig, LeaderElector, LeaseLock};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use rstest::rstest;
use serde_json::json;
use testkit::objects::config_map;
use testkit::{Running, TestCluster, Verb, faults};
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

/// A period in which a process was the leader, and its last write.
#[derive(Clone, Debug)]
struct Term {
    client: String,
    began: Instant,
    ended: Option<Instant>,
    last_write: Option<Instant>,
}

/// The periods of all processes.
#[derive(Clone, Default)]
struct Terms(Arc<Mutex<Vec<Term>>>);

impl Terms {
    fn begin(&self, client: &str) -> Serving {
        let mut all = self.0.lock().expect("the lock is not poisoned");
        all.push(Term {
            client: client.to_owned(),
            began: Instant::now(),
            ended: None,
            last_write: None,
        });
        Serving(self.clone(), all.len() - 1)
    }

    fn all(&self) -> Vec<Term> {
        self.0.lock().expect("the lock is not poisoned").clone()
    }

    /// Asserts that the periods, including their last writes, do not overlap.
    fn check(&self) {
        for pair in self.all().windows(2) {
            let next = pair[1].began;
            assert!(pair[0].ended.is_some_and(|it| it <= next), "{pair:?}");
            assert!(pair[0].last_write.is_none_or(|it| it <= next), "{pair:?}");
        }
    }
}

struct Serving(Terms, usize);

impl Serving {
    fn note(&self, change: impl FnOnce(&mut Term)) {
        change(&mut self.0.0.lock().expect("the lock is not poisoned")[self.1]);
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.note(|it| it.ended = Some(Instant::now()));
    }
}

/// Runs a candidate. Once it is the leader, it writes every 50 ms with a fenced client, until the end of the test.
fn join(cluster: &TestCluster, client: &str, config: LeaderElectionConfig, terms: &Terms) -> Running {
    let elector = candidate(cluster, client, config);
    run(cluster, client, elector, CancellationToken::new(), terms)
}

fn candidate(cluster: &TestCluster, client: &str, config: LeaderElectionConfig) -> LeaderElector {
    let lock = LeaseLock::new(cluster.client_named(client), "default", "lock");
    LeaderElector::new(lock, config).expect("the durations are consistent")
}

/// Same as `join`, but the candidate stops when `cancel` is cancelled. Its writes continue.
fn run(
    cluster: &TestCluster,
    client: &str,
    elector: LeaderElector,
    cancel: CancellationToken,
    terms: &Terms,
) -> Running {
    let fenced = elector.fenced(&cluster.client_named(&format!("{client}-writes")));
    let maps: Api<ConfigMap> = Api::default_namespaced(fenced);
    let (terms, client) = (terms.clone(), client.to_owned());
    cluster.run(async move {
        let lead = |stop: CancellationToken| async move {
            let serving = Arc::new(terms.begin(&client));
            let writing = Arc::clone(&serving);
            // This task does not stop when leadership is lost, so only the fence refuses its writes.
            tokio::spawn(async move {
                let patch = Patch::Merge(json!({"data": {"by": client}}));
                loop {
                    if maps.patch("m", &PatchParams::default(), &patch).await.is_ok() {
                        writing.note(|it| it.last_write = Some(Instant::now()));
                    }
                    sleep(Duration::from_millis(50)).await;
                }
            });
            let _leading = Leading(serving);
            stop.cancelled().await;
        };
        elector.run(cancel, lead).await;
    })
}

struct Leading(Arc<Serving>);

impl Drop for Leading {
    fn drop(&mut self) {
        self.0.note(|it| it.ended = Some(Instant::now()));
    }
}

fn config(cluster: &TestCluster, identity: &str, seed: u64) -> LeaderElectionConfig {
    LeaderElectionConfig {
        clock: Clock::starting_at(cluster.server().now()),
        seed,
        ..LeaderElectionConfig::new(identity)
    }
}

#[rstest]
#[tokio::test(start_paused = true)]
async fn late_response_to_a_renewal_extends_neither_the_leadership_nor_the_fence(
    #[values(10, 14)] renew: u64,
    #[values(1, 2, 3, 4)] seed: u64,
) {
    let (cluster, terms) = (TestCluster::builder().object(config_map("m")).start(), Terms::default());
    let config = |identity: &str| LeaderElectionConfig {
        renew_deadline: seconds(renew),
        ..config(&cluster, identity, seed)
    };
    let _a = join(&cluster, "a", config("a"), &terms);
    cluster.advance(seconds(1)).await;
    let _b = join(&cluster, "b", config("b"), &terms);
    cluster.advance(seconds(30)).await;
    let late = faults::slow_answer(Duration::from_millis(renew * 500 - 100));
    let late = cluster.inject(late.client("a").on(Verb::Update, "leases").once());
    while late.hits() == 0 {
        cluster.advance(Duration::from_millis(100)).await;
    }
    cluster
        .inject(faults::no_answer().client("a").on(Verb::Update, "leases"))
        .forget();
    cluster
        .inject(faults::no_answer().client("a").on(Verb::Get, "leases"))
        .forget();
    cluster.advance(seconds(60)).await;
    let clients: Vec<_> = terms.all().into_iter().map(|it| it.client).collect();
    assert_eq!(clients, ["a", "b"]);
    terms.check();
}

#[tokio::test(start_paused = true)]
async fn writes_are_refused_before_the_response_to_the_release_arrives() {
    let (cluster, terms) = (TestCluster::builder().object(config_map("m")).start(), Terms::default());
    let cancel = CancellationToken::new();
    let a = candidate(&cluster, "a", config(&cluster, "a", 1));
    let _a = run(&cluster, "a", a, cancel.clone(), &terms);
    cluster.advance(seconds(1)).await;
    let _b = join(&cluster, "b", config(&cluster, "b", 2), &terms);
    cluster.advance(seconds(30)).await;
    // Shorter than the time limit of the request, but longer than the delay between two attempts of b.
    let late = faults::slow_answer(Duration::from_millis(4_900));
    let _late = cluster.inject(late.client("a").on(Verb::Update, "leases"));
    cancel.cancel();
    cluster.advance(seconds(30)).await;
    let clients: Vec<_> = terms.all().into_iter().map(|it| it.client).collect();
    assert_eq!(clients, ["a", "b"]);
    terms.check();
}

#[tokio::test(start_paused = true)]
async fn claim_from_a_backup_does_not_make_its_process_the_leader() {
    let (cluster, terms) = (TestCluster::builder().object(config_map("m")).start(), Terms::default());
    let a = candidate(&cluster, "a", config(&cluster, "a", 1));
    let (first, cancel) = (a.clone(), CancellationToken::new());
    let cancelled = cancel.clone();
    let _first = cluster.run(async move {
        let lead = |stop: CancellationToken| async move { stop.cancelled().await };
        first.run(cancelled, lead).await;
    });
    cluster.advance(seconds(5)).await;
    let backup: Lease = cluster.get("lock");
    cancel.cancel();
    cluster.advance(seconds(5)).await;
    let _b = join(&cluster, "b", config(&cluster, "b", 2), &terms);
    cluster.advance(seconds(10)).await;
    let _a = run(&cluster, "a", a, CancellationToken::new(), &terms);
    cluster.advance(seconds(10)).await;
    // The server is restored, and b does not notice this before its renew deadline.
    for verb in [Verb::Update, Verb::Get] {
        cluster
            .inject(faults::no_answer().client("b").on(verb, "leases"))
            .forget();
    }
    let mut lease: Lease = cluster.get("lock");
    assert_eq!(
        lease.spec.as_ref().and_then(|it| it.holder_identity.as_deref()),
        Some("b")
    );
    lease.spec = backup.spec;
    lease.metadata.annotations = backup.metadata.annotations;
    let leases: Api<Lease> = Api::default_namespaced(cluster.client_named("backup"));
    let restored = leases.replace("lock", &PostParams::default(), &lease).await;
    restored.expect("the Lease has not changed");
    cluster.advance(seconds(60)).await;
    let clients: Vec<_> = terms.all().into_iter().map(|it| it.client).collect();
    assert_eq!(clients, ["b", "a"]);
    terms.check();
}

#[rstest]
#[case::margin_below_one_second(15_000, 14_500)]
#[case::margin_below_one_second_after_rounding(15_900, 15_000)]
#[tokio::test(start_paused = true)]
async fn lease_duration_must_exceed_the_renew_deadline_by_one_second(#[case] lease: u64, #[case] renew: u64) {
    let cluster = TestCluster::start();
    let config = LeaderElectionConfig {
        lease_duration: Duration::from_millis(lease),
        renew_deadline: Duration::from_millis(renew),
        ..config(&cluster, "a", 1)
    };
    let refused = LeaderElector::new(LeaseLock::new(cluster.client(), "default", "lock"), config);
    let err = refused.expect_err("the margin is too short").to_string();
    assert!(
        err.contains("must exceed the renew deadline by at least one second"),
        "{err}"
    );
}

#[tokio::test(start_paused = true)]
async fn processes_with_the_same_identity_never_lead_simultaneously() {
    let (cluster, terms) = (TestCluster::builder().object(config_map("m")).start(), Terms::default());
    let one = join(&cluster, "one", config(&cluster, "web-0", 1), &terms);
    cluster.advance(seconds(1)).await;
    let _two = join(&cluster, "two", config(&cluster, "web-0", 2), &terms);
    cluster.advance(seconds(60)).await;
    assert_eq!(terms.all().len(), 1, "{:?}", terms.all());
    one.crash();
    cluster.advance(seconds(10)).await;
    assert_eq!(terms.all().len(), 1, "the lease of the first process has not expired");
    cluster.advance(seconds(20)).await;
    assert_eq!(terms.all().len(), 2, "{:?}", terms.all());
}
