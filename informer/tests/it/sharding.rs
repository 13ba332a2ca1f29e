//! Controllers with replicas that share keys: despite faults, two workers never process the same key, and keys are not
//! lost.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use informer::Clock;
use informer::reconcile::{Action, ReconcileError, Request};
use informer::runtime::{ClusterKey, Clusters, Manager, Sharding, ShardingConfig};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use rstest::rstest;
use serde_json::json;
use testkit::explore::explore;
use testkit::objects::config_map;
use testkit::{RestartLog, Running, TestCluster, Verb, WatchEventKind, faults};
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

/// Number of objects.
pub(crate) const OBJECTS: usize = 24;

/// Duration of a reconcile.
const WORK: Duration = Duration::from_millis(700);

pub(crate) fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

/// Record of the work of all replicas, which checks that a key never has two workers.
#[derive(Clone, Default)]
pub(crate) struct Ledger(Arc<Mutex<Book>>);

#[derive(Default)]
pub(crate) struct Book {
    working: BTreeMap<String, String>,
    /// For each key, the replica that last reconciled it, and the time at which this reconcile started.
    done: BTreeMap<String, (String, Instant)>,
    calls: usize,
    faults: Vec<String>,
}

/// A reconcile of a key, which ends when this value is dropped.
pub(crate) struct Working(Ledger, String);

impl Ledger {
    pub(crate) fn book(&self) -> MutexGuard<'_, Book> {
        self.0.lock().expect("the lock is not poisoned")
    }

    pub(crate) fn begin(&self, key: &str, replica: &str) -> Working {
        let mut book = self.book();
        book.calls += 1;
        if let Some(other) = book.working.insert(key.to_owned(), replica.to_owned()) {
            book.faults
                .push(format!("{replica} began {key} while {other} worked on it"));
        }
        Working(self.clone(), key.to_owned())
    }

    pub(crate) fn finish(&self, key: &str, replica: &str, since: Instant) {
        self.book().done.insert(key.to_owned(), (replica.to_owned(), since));
    }

    /// Returns, for each replica, the number of keys that it was the last to reconcile.
    pub(crate) fn shares(&self) -> BTreeMap<String, usize> {
        let mut shares = BTreeMap::new();
        for (replica, _) in self.book().done.values() {
            *shares.entry(replica.clone()).or_default() += 1;
        }
        shares
    }

    /// Returns the number of keys whose last reconcile was at or after a time.
    fn since(&self, instant: Instant) -> usize {
        self.book().done.values().filter(|(_, at)| *at >= instant).count()
    }

    pub(crate) fn check(&self) {
        assert_eq!(self.book().faults, Vec::<String>::new());
    }
}

impl Drop for Working {
    fn drop(&mut self) {
        self.0.book().working.remove(&self.1);
    }
}

/// A process that participates in the group.
struct Replica {
    sharding: Sharding,
    running: Running,
    stop: CancellationToken,
}

pub(crate) fn manager(cluster: &TestCluster, name: &str) -> Manager {
    let clock = Clock::starting_at(cluster.server().now());
    let builder = Manager::builder(cluster.client_named(name)).clock(clock);
    builder.build().expect("a manager without leader election can be built")
}

fn join(cluster: &TestCluster, name: &str, ledger: &Ledger) -> Replica {
    join_working(cluster, name, ledger, WORK)
}

fn join_working(cluster: &TestCluster, name: &str, ledger: &Ledger, work: Duration) -> Replica {
    let manager = manager(cluster, name);
    let config = ShardingConfig::new("default", "maps", name);
    let sharding = Sharding::new(&manager, config).expect("the durations are consistent");
    let (ledger, replica) = (ledger.clone(), name.to_owned());
    let builder = manager.controller("maps").for_::<ConfigMap>().sharded(&sharding);
    let reconcile = move |request: Request| {
        let (ledger, replica) = (ledger.clone(), replica.clone());
        async move {
            let (key, since) = (request.key.to_string(), Instant::now());
            let _working = ledger.begin(&key, &replica);
            sleep(work).await;
            ledger.finish(&key, &replica, since);
            Ok::<_, ReconcileError>(Action::await_change())
        }
    };
    builder
        .concurrency(4)
        .complete(reconcile)
        .expect("the controller is complete");
    let stop = CancellationToken::new();
    let running = cluster.run({
        let stop = stop.clone();
        async move { manager.run(stop.cancelled()).await }
    });
    Replica {
        sharding,
        running,
        stop,
    }
}

pub(crate) async fn maps(cluster: &TestCluster) {
    for number in 0..OBJECTS {
        cluster.create(config_map(&format!("map-{number}"))).await;
    }
}

/// Changes all objects, so that all keys must be reconciled.
pub(crate) async fn touch(cluster: &TestCluster, value: &str) {
    for number in 0..OBJECTS {
        let map = config_map(&format!("map-{number}"));
        let _: testkit::Object = cluster.patch(map, json!({"data": {"touched": value}})).await;
    }
}

#[tokio::test(start_paused = true)]
async fn replicas_share_keys_and_hand_them_over_when_leaving() {
    let (cluster, ledger) = (TestCluster::start(), Ledger::default());
    maps(&cluster).await;
    let replicas = ["a", "b", "c"].map(|it| join(&cluster, it, &ledger));
    cluster.advance(seconds(30)).await;
    assert_eq!(replicas[0].sharding.members(), ["a", "b", "c"]);
    let shares = ledger.shares();
    assert_eq!(shares.values().sum::<usize>(), OBJECTS);
    assert!(shares.len() == 3 && shares.values().all(|it| *it >= 3), "{shares:?}");

    touch(&cluster, "1").await;
    cluster.advance(seconds(10)).await;
    assert_eq!(ledger.shares(), shares, "the same replicas work on the same keys");

    replicas[2].stop.cancel();
    cluster.advance(seconds(5)).await;
    assert!(!replicas[2].running.is_running());
    assert_eq!(replicas[0].sharding.members(), ["a", "b"]);
    assert_eq!(ledger.shares().keys().collect::<Vec<_>>(), ["a", "b"]);
    ledger.check();
}

#[tokio::test(start_paused = true)]
async fn replicas_only_reconcile_keys_again_if_the_keys_move() {
    let (cluster, ledger) = (TestCluster::start(), Ledger::default());
    maps(&cluster).await;
    let _replicas = ["a", "b"].map(|it| join(&cluster, it, &ledger));
    cluster.advance(seconds(30)).await;
    let calls = ledger.book().calls;
    assert!(
        calls <= OBJECTS * 2,
        "keys are only reconciled again if they move: {calls}"
    );
    cluster.advance(seconds(600)).await;
    assert_eq!(ledger.book().calls, calls);
}

#[tokio::test(start_paused = true)]
async fn replica_reconciles_each_key_once_after_its_start() {
    let (cluster, ledger) = (TestCluster::start(), Ledger::default());
    maps(&cluster).await;
    let _replica = join(&cluster, "a", &ledger);
    cluster.advance(seconds(30)).await;
    assert_eq!(ledger.book().calls, OBJECTS);
    assert_eq!(ledger.book().done.len(), OBJECTS);
}

#[tokio::test(start_paused = true)]
async fn new_replica_takes_its_share_after_running_work_ends() {
    let (cluster, ledger) = (TestCluster::start(), Ledger::default());
    maps(&cluster).await;
    let a = join_working(&cluster, "a", &ledger, seconds(20));
    cluster.advance(seconds(10)).await;
    let b = join_working(&cluster, "b", &ledger, seconds(1));
    cluster.advance(seconds(5)).await;
    assert_eq!(a.sharding.members(), ["a", "b"]);
    // Replica a works on four keys and keeps them until their reconciles have ended. All other keys move immediately.
    let is_b = |key: &String| b.sharding.owner(key).as_deref() == Some("b");
    let under_work: Vec<_> = ledger
        .book()
        .working
        .iter()
        .map(|(key, by)| (key.clone(), by.clone()))
        .collect();
    assert!(
        under_work.iter().any(|(key, by)| is_b(key) && by == "a"),
        "a key of b is still under work by a"
    );
    assert_eq!(ledger.shares().keys().collect::<Vec<_>>(), ["b"]);
    cluster.advance(seconds(200)).await;
    assert_eq!(ledger.book().done.len(), OBJECTS);
    assert_eq!(ledger.shares().len(), 2);
    ledger.check();
}

#[tokio::test(start_paused = true)]
async fn keys_of_a_crashed_replica_move_when_its_lease_expires() {
    let (cluster, ledger) = (TestCluster::start(), Ledger::default());
    maps(&cluster).await;
    let [a, b] = ["a", "b"].map(|it| join(&cluster, it, &ledger));
    cluster.advance(seconds(30)).await;
    touch(&cluster, "1").await;
    cluster.advance(Duration::from_millis(200)).await;
    let crashed = Instant::now();
    b.running.crash();
    cluster.advance(seconds(10)).await;
    assert_eq!(a.sharding.members(), ["a", "b"], "the lease has not expired");
    cluster.advance(seconds(20)).await;
    assert_eq!(a.sharding.members(), ["a"]);
    assert_eq!(ledger.shares(), BTreeMap::from([("a".to_owned(), OBJECTS)]));
    let first = ledger
        .book()
        .done
        .values()
        .map(|it| it.1)
        .filter(|it| *it > crashed + seconds(5))
        .min();
    let first = first.expect("replica b has keys") - crashed;
    assert!((seconds(13)..seconds(20)).contains(&first), "{first:?}");
    cluster.advance(seconds(30)).await;
    assert_eq!(
        cluster.list::<Lease>().len(),
        1,
        "the lease of the dead replica is deleted"
    );
    ledger.check();
}

#[rstest]
#[case::unanswered_requests(|cluster: &TestCluster| cluster.inject(faults::no_answer().client("b")))]
#[case::unanswered_renewals(|cluster: &TestCluster| cluster.inject(faults::no_answer().client("b").on(Verb::Update, "leases")))]
#[case::refused_renewals(|cluster: &TestCluster| cluster.inject(faults::server_error().client("b").on(Verb::Update, "leases")))]
#[case::lost_responses_to_renewals(|cluster: &TestCluster| cluster.inject(faults::no_answer().but_applied().client("b").on(Verb::Update, "leases")))]
#[tokio::test(start_paused = true)]
async fn replica_that_cannot_renew_its_lease_stops_before_another_takes_over(
    #[case] cut: impl Fn(&TestCluster) -> testkit::Injected,
    #[values(200, 25_000)] work: u64,
) {
    let (cluster, ledger) = (TestCluster::start(), Ledger::default());
    maps(&cluster).await;
    let work = Duration::from_millis(work);
    let _replicas = ["a", "b", "c"].map(|it| join_working(&cluster, it, &ledger, work));
    cluster.advance(seconds(30)).await;
    let guard = cut(&cluster);
    for number in 0..10 {
        touch(&cluster, &number.to_string()).await;
        cluster.advance(seconds(5)).await;
    }
    drop(guard);
    let healed = Instant::now();
    touch(&cluster, "healed").await;
    cluster.advance(seconds(30) + work * 10).await;
    assert_eq!(ledger.since(healed), OBJECTS);
    assert_eq!(ledger.shares().len(), 3);
    ledger.check();
}

#[tokio::test(start_paused = true)]
async fn reconcile_that_loses_its_key_is_dropped_and_its_writes_are_refused() {
    let (cluster, outcomes) = (TestCluster::start(), Arc::new(Mutex::new(Vec::new())));
    cluster.create(config_map("map")).await;
    let manager = manager(&cluster, "a");
    let sharding =
        Sharding::new(&manager, ShardingConfig::new("default", "maps", "a")).expect("the durations are consistent");
    let (secrets, told): (Api<Secret>, _) = (Api::default_namespaced(manager.client()), Arc::clone(&outcomes));
    let reconcile = move |_: Request| {
        let (secrets, told) = (secrets.clone(), Arc::clone(&told));
        async move {
            // The reconcile blocks its thread, so it cannot be dropped.
            let begun = Instant::now();
            let mut secret = Secret::default();
            secret.metadata.name = Some("late".into());
            let work = tokio::spawn(sleep(seconds(60)));
            let _waiting = work.await;
            let written = secrets.create(&PostParams::default(), &secret).await;
            told.lock()
                .expect("the lock is not poisoned")
                .push((begun.elapsed(), written.is_ok()));
            Ok::<_, ReconcileError>(Action::await_change())
        }
    };
    let builder = manager.controller("maps").for_::<ConfigMap>().sharded(&sharding);
    builder.complete(reconcile).expect("the controller is complete");
    let metrics = manager.metrics();
    cluster.run(async move { manager.run(std::future::pending()).await });
    cluster.advance(seconds(5)).await;
    assert!(sharding.is_mine("default/map"));
    let _fault = cluster.inject(faults::no_answer().on(Verb::Update, "leases"));
    cluster.advance(seconds(120)).await;
    assert!(!sharding.is_mine("default/map"));
    assert_eq!(sharding.lapses(), 1);
    assert!(
        outcomes.lock().expect("the lock is not poisoned").is_empty(),
        "the reconcile was dropped while it waited"
    );
    assert!(!cluster.exists::<Secret>("late"));
    let text = metrics.render();
    assert!(text.contains("sharding_lapses_total{name=\"maps\"} 1"), "{text}");
    assert!(text.contains("sharding_members{name=\"maps\"} 1"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn replica_with_a_silent_lease_watch_does_not_take_over_keys() {
    let (cluster, ledger) = (TestCluster::start(), Ledger::default());
    maps(&cluster).await;
    let a = join(&cluster, "a", &ledger);
    cluster.advance(seconds(10)).await;
    // Replica a has an outdated view of the other replicas, and considers them dead.
    let watches = cluster.watches().client("a").on("leases");
    watches.hold();
    let _b = join(&cluster, "b", &ledger);
    for number in 0..20 {
        touch(&cluster, &number.to_string()).await;
        cluster.advance(seconds(3)).await;
    }
    watches.resume();
    cluster.advance(seconds(30)).await;
    assert_eq!(a.sharding.members(), ["a", "b"]);
    assert_eq!(ledger.shares().len(), 2);
    ledger.check();
}

#[tokio::test(start_paused = true)]
async fn members_do_not_expire_while_the_lease_watch_is_held() {
    let (cluster, ledger) = (TestCluster::start(), Ledger::default());
    maps(&cluster).await;
    let [a, _b] = ["a", "b"].map(|it| join(&cluster, it, &ledger));
    cluster.advance(seconds(10)).await;
    let watches = cluster.watches().client("a").on("leases");
    watches.hold();
    cluster.advance(seconds(60)).await;
    assert_eq!(a.sharding.members(), ["a", "b"]);
    ledger.check();
}

#[tokio::test(start_paused = true)]
async fn deleted_or_overwritten_lease_is_claimed_again() {
    let (cluster, ledger) = (TestCluster::start(), Ledger::default());
    maps(&cluster).await;
    let replicas = ["a", "b"].map(|it| join(&cluster, it, &ledger));
    cluster.advance(seconds(30)).await;
    let before = ledger.shares();
    let leases: Api<Lease> = Api::default_namespaced(cluster.client_named("somebody"));
    for lease in cluster.list::<Lease>() {
        touch(&cluster, "deleted").await;
        let name = lease.metadata.name.expect("the Lease has a name");
        leases
            .delete(&name, &DeleteParams::default())
            .await
            .expect("the object exists");
        cluster.advance(seconds(60)).await;
        assert_eq!(replicas[0].sharding.members(), ["a", "b"]);
    }
    for lease in cluster.list::<Lease>() {
        touch(&cluster, "overwritten").await;
        let name = lease.metadata.name.expect("the Lease has a name");
        let nobody = json!({"metadata": {"annotations": {"informer.drydock.dev/members": "v1:[]"}}});
        leases
            .patch(&name, &PatchParams::default(), &Patch::Merge(nobody))
            .await
            .expect("the object exists");
        cluster.advance(seconds(60)).await;
    }
    assert_eq!(ledger.shares(), before);
    ledger.check();
}

#[tokio::test(start_paused = true)]
async fn deletion_during_a_handover_is_reconciled() {
    let (cluster, ledger) = (TestCluster::start(), Ledger::default());
    maps(&cluster).await;
    let [a, b] = ["a", "b"].map(|it| join(&cluster, it, &ledger));
    cluster.advance(seconds(30)).await;
    b.running.crash();
    let of_b: Vec<_> = (0..OBJECTS)
        .map(|it| format!("map-{it}"))
        .filter(|it| a.sharding.owner(&format!("default/{it}")).as_deref() == Some("b"))
        .collect();
    let deleted = Instant::now();
    for name in &of_b {
        cluster.delete(config_map(name)).await;
    }
    cluster.advance(seconds(60)).await;
    let book = ledger.book();
    let is_done = |name: &String| book.done[&format!("default/{name}")].1 > deleted;
    assert!(!of_b.is_empty() && of_b.iter().all(is_done));
}

#[tokio::test(start_paused = true)]
async fn unreadable_lease_stops_reconciles_until_the_lease_expires() {
    let (cluster, ledger) = (TestCluster::start(), Ledger::default());
    maps(&cluster).await;
    let _replica = join(&cluster, "a", &ledger);
    cluster.advance(seconds(30)).await;
    let stranger = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": "stranger", "namespace": "default", "uid": "u", "resourceVersion": "100000",
            "labels": {"informer.drydock.dev/sharding": "maps"}},
        "spec": {"holderIdentity": "z", "leaseDurationSeconds": "long"}});
    cluster
        .watches()
        .on("leases")
        .send(WatchEventKind::Added, testkit::objects::serialized(&stranger));
    cluster.advance(seconds(1)).await;
    let before = Instant::now();
    touch(&cluster, "1").await;
    cluster.advance(seconds(5)).await;
    assert_eq!(
        ledger.since(before),
        0,
        "no key is reconciled while the crashed replica may hold it"
    );
    cluster.advance(seconds(30)).await;
    assert_eq!(ledger.since(before), OBJECTS);
    ledger.check();
}

#[tokio::test(start_paused = true)]
async fn keys_of_several_clusters_are_sharded_and_duplicate_shardings_are_refused() {
    let (home, east) = (TestCluster::start(), TestCluster::start());
    maps(&east).await;
    let ledger = Ledger::default();
    for name in ["a", "b"] {
        let manager = manager(&home, name);
        let sharding = Sharding::new(&manager, ShardingConfig::new("default", "maps", name))
            .expect("the durations are consistent");
        let clusters = Clusters::new(&manager).expect("the manager has no other clusters");
        let noted = ledger.clone();
        let reconcile = move |request: Request<ClusterKey>| {
            let working = noted.begin(&request.key.to_string(), name);
            noted.finish(&request.key.to_string(), name, Instant::now());
            drop(working);
            async { Ok::<_, ReconcileError>(Action::await_change()) }
        };
        let builder = clusters.controller("maps").for_::<ConfigMap>();
        builder
            .with(|it| it.sharded(&sharding))
            .complete(reconcile)
            .expect("the controller is complete");
        clusters
            .engage("east", east.client_named(name))
            .expect("the cluster name is unused");
        home.run(async move { manager.run(std::future::pending()).await });
    }
    home.advance(seconds(20)).await;
    let shares = ledger.shares();
    assert!(
        shares.len() == 2 && shares.values().sum::<usize>() == OBJECTS,
        "{shares:?}"
    );

    let manager = Manager::new(home.client());
    for (fault, config) in [
        ("DNS label", ShardingConfig::new("default", "Maps", "a")),
        ("the identity is empty", ShardingConfig::new("default", "maps", "")),
        ("the namespace is empty", ShardingConfig::new("", "maps", "a")),
        (
            "must exceed the renew deadline",
            ShardingConfig {
                lease_duration: seconds(10),
                ..ShardingConfig::new("default", "maps", "a")
            },
        ),
    ] {
        let err = Sharding::new(&manager, config).expect_err(fault).to_string();
        assert!(err.contains(fault), "{err}");
    }
    let config = || ShardingConfig::new("default", "maps", "a");
    Sharding::new(&manager, config()).expect("the manager has no other sharding with this name");
    assert!(
        Sharding::new(&manager, config()).is_err(),
        "a manager has one sharding for each name"
    );
}

/// Runs a replica that copies each ConfigMap that it owns to a Secret.
async fn copier(client: Client, clock: Clock, name: &'static str, ledger: Ledger) {
    let builder = Manager::builder(client).clock(clock);
    let manager = builder.build().expect("a manager without leader election can be built");
    let sharding =
        Sharding::new(&manager, ShardingConfig::new("default", "maps", name)).expect("the durations are consistent");
    let client = manager.cached_client();
    let reconcile = move |request: Request| {
        let (client, ledger) = (client.clone(), ledger.clone());
        async move {
            let _working = ledger.begin(&request.key.to_string(), name);
            let Some(map) = client.get::<ConfigMap>(&request.key).await? else {
                return Ok(Action::await_change());
            };
            sleep(WORK).await;
            let mut copy = Secret::default();
            copy.metadata.name = Some(request.key.name().to_owned());
            copy.metadata.namespace = request.key.namespace().map(str::to_owned);
            copy.string_data = map.data.clone();
            client.apply(&copy).await?;
            Ok::<_, ReconcileError>(Action::await_change())
        }
    };
    let builder = manager
        .controller("maps")
        .for_::<ConfigMap>()
        .sharded(&sharding)
        .concurrency(2);
    builder.complete(reconcile).expect("the controller is complete");
    manager
        .run(std::future::pending())
        .await
        .expect("the manager stops without an error");
}

/// Returns the number of runs, which is lower without optimisations.
fn runs() -> u64 {
    let few = if cfg!(debug_assertions) { 30 } else { 1_000 };
    let asked = std::env::var("DRYDOCK_RUNS").ok();
    asked.and_then(|it| it.parse().ok()).unwrap_or(few)
}

#[test]
fn faults_never_lose_a_key_or_assign_it_to_two_replicas() {
    let scenario = async |cluster: &TestCluster| {
        let (ledger, clock) = (Ledger::default(), Clock::starting_at(cluster.server().now()));
        for name in ["a", "b"] {
            let ledger = ledger.clone();
            cluster.controller(name, move |client| copier(client, clock, name, ledger.clone()));
        }
        for name in ["one", "two", "three", "four"] {
            cluster.create(config_map(name).data("color", "red")).await;
        }
        cluster.settle().await;
        for name in ["one", "two", "three", "four"] {
            let _: testkit::Object = cluster
                .patch(config_map(name), json!({"data": {"color": "blue"}}))
                .await;
        }
        cluster.settle().await;
        ledger.check();
    };
    explore(scenario)
        .within(seconds(120))
        .budget(seconds(3_600))
        .schedules(runs())
        .run();
}

#[tokio::test(start_paused = true)]
async fn keys_of_a_crashed_replica_move_after_the_server_was_restored() {
    let (cluster, ledger) = (TestCluster::start(), Ledger::default());
    maps(&cluster).await;
    let backup = cluster.snapshot();
    let [a, b] = ["a", "b"].map(|it| join(&cluster, it, &ledger));
    cluster.advance(seconds(600)).await;
    // The caches never receive the last renewals before the restore.
    cluster.watches().hold();
    cluster.advance(seconds(5)).await;
    cluster.restore(&backup);
    cluster.restart(RestartLog::Lost, seconds(1));
    cluster.watches().resume();
    cluster.advance(seconds(250)).await;
    assert_eq!(a.sharding.members(), ["a", "b"]);
    b.running.crash();
    cluster.advance(seconds(30)).await;
    assert_eq!(a.sharding.members(), ["a"]);
    touch(&cluster, "1").await;
    cluster.advance(seconds(30)).await;
    assert_eq!(ledger.shares(), BTreeMap::from([("a".to_owned(), OBJECTS)]));
}
