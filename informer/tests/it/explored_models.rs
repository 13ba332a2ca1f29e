//! Explores all faults of the components that coordinate processes: leader election, read-your-writes and sharding. The
//! oracle of each test is a simple model.
//!
//! By default, the explorations are small. `DRYDOCK_EXPLORE=whole` in a release build tries all single faults with more
//! objects, and then other plans until each test has used up its CPU time: three hours, or `DRYDOCK_EXPLORE_MINUTES`.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use informer::cache::SharedInformerFactory;
use informer::handler::enqueue;
use informer::reconcile::{Action, ReconcileError, Request, Writes};
use informer::runtime::{
    CachedClient, Controller, LeaderElectionConfig, LeaderElector, LeaseLock, Manager, Sharding, ShardingConfig,
};
use informer::{Clock, ObjectKey, ResourceVersion};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::{Patch, PatchParams};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};
use testkit::TestCluster;
use testkit::explore::{Oracle, explore};
use testkit::objects::{config_map, secret};
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

/// Returns `true` if the whole exploration was requested.
fn is_whole() -> bool {
    std::env::var("DRYDOCK_EXPLORE").is_ok_and(|it| it == "whole")
}

/// Explores a scenario; `schedules` is the number of schedules in a small exploration.
fn explored(schedules: u64, scenario: impl AsyncFn(&TestCluster) + Send + Sync + 'static) {
    // The models check the order of writes. These oracles do not apply, because the last writer depends on the fault,
    // and each process writes again.
    let exploration = explore(scenario)
        .ignore("metadata.annotations.number")
        .ignore("data.by")
        .ignore("data.number")
        .without(Oracle::Idempotence)
        .within(Duration::from_secs(300));
    if is_whole() {
        let minutes = std::env::var("DRYDOCK_EXPLORE_MINUTES").ok();
        let minutes: u64 = minutes.and_then(|it| it.parse().ok()).unwrap_or(180);
        let exploration = exploration.budget(Duration::from_secs(60 * minutes));
        exploration.schedules(u64::MAX).require_all_singles().run();
    } else {
        let exploration = exploration.budget(Duration::from_secs(3 * 3_600));
        exploration.schedules(schedules).run();
    }
}

/// A model shared by all processes of a run, with the failures that it has found. The model does not panic, because a
/// panic would only appear in the log of a controller.
struct Shared<T> {
    model: Arc<Mutex<T>>,
    faults: Arc<Mutex<Vec<String>>>,
}

impl<T> Clone for Shared<T> {
    fn clone(&self) -> Self {
        Self {
            model: Arc::clone(&self.model),
            faults: Arc::clone(&self.faults),
        }
    }
}

impl<T: Default> Shared<T> {
    fn new() -> Self {
        Self {
            model: Arc::default(),
            faults: Arc::default(),
        }
    }
}

impl<T: Default> Shared<T> {
    /// Returns an empty model with the same list of failures. A restarted process needs it, because the process may
    /// read from a server that lags behind.
    fn anew(&self) -> Self {
        Self {
            model: Arc::default(),
            faults: Arc::clone(&self.faults),
        }
    }
}

impl<T> Shared<T> {
    fn lock(&self) -> MutexGuard<'_, T> {
        self.model.lock().expect("the lock is not poisoned")
    }

    fn expect(&self, holds: bool, otherwise: impl FnOnce() -> String) {
        if !holds {
            self.faults.lock().expect("the lock is not poisoned").push(otherwise());
        }
    }

    fn check(&self) {
        assert_eq!(
            *self.faults.lock().expect("the lock is not poisoned"),
            Vec::<String>::new()
        );
    }
}

/// Model of leadership: the current leaders, and the process that last became the leader. No fenced write may be sent
/// after another process has become the leader.
#[derive(Default)]
struct Leadership {
    leaders: Vec<u64>,
    /// Number of the process that last became the leader.
    newest: u64,
}

struct Leading(Shared<Leadership>, u64);

impl Leading {
    fn begin(model: &Shared<Leadership>) -> Self {
        let mut all = model.lock();
        model.expect(all.leaders.is_empty(), || "two processes lead".to_owned());
        all.newest += 1;
        let number = all.newest;
        all.leaders.push(number);
        Self(model.clone(), number)
    }
}

impl Drop for Leading {
    fn drop(&mut self) {
        self.0.lock().leaders.retain(|it| *it != self.1);
    }
}

/// Runs a candidate with code that continues to write after it has lost leadership.
async fn candidate(client: Client, clock: Clock, identity: &'static str, model: Shared<Leadership>) {
    let lock = LeaseLock::new(client.clone(), "default", "lock");
    let config = LeaderElectionConfig {
        clock,
        ..LeaderElectionConfig::new(identity)
    };
    let elector = LeaderElector::new(lock, config).expect("the durations are consistent");
    let maps: Api<ConfigMap> = Api::default_namespaced(elector.fenced(&client));
    let term: Arc<Mutex<Option<u64>>> = Arc::default();
    let writing = async {
        for number in 0.. {
            let mine = *term.lock().expect("the lock is not poisoned");
            if let Some(mine) = mine {
                let patch = Patch::Merge(json!({"data": {"by": identity, "number": number.to_string()}}));
                let newest = model.lock().newest;
                let written = maps.patch("m", &PatchParams::default(), &patch).await;
                model.expect(written.is_err() || newest == mine, || {
                    format!("{identity} sent a fenced write after another process led")
                });
            }
            // The scenario ends when the processes no longer write.
            let pause = if number < 60 { 1_000 } else { 3_600_000 };
            sleep(Duration::from_millis(pause)).await;
        }
    };
    let electing = async {
        loop {
            let lead = |stop: CancellationToken| {
                let (model, term) = (model.clone(), Arc::clone(&term));
                async move {
                    let leading = Leading::begin(&model);
                    *term.lock().expect("the lock is not poisoned") = Some(leading.1);
                    stop.cancelled().await;
                }
            };
            elector.run(CancellationToken::new(), lead).await;
        }
    };
    futures::future::join(writing, electing).await;
}

#[test]
fn faults_never_cause_two_leaders_or_a_write_of_a_former_leader() {
    explored(12, async |cluster: &TestCluster| {
        let (model, clock): (Shared<_>, _) = (Shared::new(), Clock::starting_at(cluster.server().now()));
        cluster.create(config_map("m")).await;
        for identity in ["a", "b"] {
            let model = model.clone();
            cluster.controller(identity, move |client| {
                candidate(client, clock, identity, model.clone())
            });
        }
        cluster.advance(Duration::from_secs(90)).await;
        model.check();
    });
}

/// Model of caches: the newest version of each object in a response, and the time of this response. Reconciles and
/// reads must not use older versions.
#[derive(Default)]
struct Answered(BTreeMap<String, (ResourceVersion, Instant)>);

impl Answered {
    fn note(&mut self, secret: &Secret) {
        let version = ResourceVersion::from(secret.resource_version().unwrap_or_default().as_str());
        let known = self
            .0
            .entry(secret.name_any())
            .or_insert_with(|| (version.clone(), Instant::now()));
        if version >= known.0 {
            *known = (version, Instant::now());
        }
    }

    /// Returns the version that a cache must have reached. After `patience`, keys are no longer held back, so older
    /// versions are permitted.
    fn least(&self, name: &str, patience: Duration) -> ResourceVersion {
        let known = self.0.get(name).filter(|(_, at)| at.elapsed() < patience);
        known.map(|it| it.0.clone()).unwrap_or_default()
    }
}

impl Shared<Answered> {
    fn expect_seen(&self, least: &ResourceVersion, seen: Option<&ResourceVersion>) {
        let has_seen = least.is_empty() || seen.is_some_and(|it| it >= least);
        self.expect(has_seen, || {
            format!("{seen:?} is older than {least}, an answered write")
        });
    }
}

fn numbered(number: u64) -> Patch<Value> {
    Patch::Merge(json!({"metadata": {"annotations": {"number": number.to_string()}}}))
}

/// Writes the Secret of each ConfigMap with two concurrent requests, four times.
async fn two_writers(client: Client, model: Shared<Answered>) {
    let factory = SharedInformerFactory::new(client.clone());
    let secrets = factory.informer::<Secret>().lister();
    let api: Api<Secret> = Api::default_namespaced(Writes::new().observe(&client));
    let builder = Controller::builder("writer", &factory).for_::<ConfigMap>();
    let reconcile = move |request: Request| {
        let (secrets, api, model) = (secrets.clone(), api.clone(), model.clone());
        async move {
            let name = request.key.name().to_owned();
            let seen = secrets.get(&request.key);
            let version = seen.as_ref().map(|it| it.resource_version().clone());
            let least = model.lock().least(&name, Duration::from_secs(149));
            model.expect_seen(&least, version.as_ref());
            let number = seen
                .and_then(|it| it.annotation("number"))
                .and_then(|it| it.parse::<u64>().ok());
            let number = number.unwrap_or(0);
            if number >= 4 {
                return Ok(Action::await_change());
            }
            let write = async |number| {
                let written = api.patch(&name, &PatchParams::default(), &numbered(number)).await?;
                model.lock().note(&written);
                Ok::<_, kube::Error>(())
            };
            let (one, other) = futures::join!(write(number + 1), write(number + 1));
            one?;
            other?;
            Ok::<_, ReconcileError>(Action::requeue(Duration::from_millis(100)))
        }
    };
    let builder = builder.watches::<Secret>(enqueue::object());
    let controller = builder.build(reconcile).expect("the controller is complete");
    let _ = controller.run(CancellationToken::new()).await;
}

#[test]
fn faults_never_cause_a_reconcile_with_a_cache_older_than_a_completed_write() {
    explored(30, async |cluster: &TestCluster| {
        let names = if is_whole() {
            vec!["a", "b", "c", "d"]
        } else {
            vec!["a"]
        };
        let model: Shared<Answered> = Shared::new();
        let shared = model.clone();
        cluster.controller("writer", move |client| two_writers(client, shared.anew()));
        for name in &names {
            cluster.create(secret(name)).await;
            cluster.create(config_map(name)).await;
        }
        cluster.settle().await;
        model.check();
    });
}

/// Reads and writes a Secret in two tasks with the same client.
async fn two_tasks(client: Client, model: Shared<Answered>) {
    let factory = SharedInformerFactory::new(client.clone());
    let client = CachedClient::new(client, &factory);
    let key = ObjectKey::new("default", "s");
    let task = async |first: u64| {
        for number in (first..8).step_by(2) {
            if let Ok(written) = client.patch::<Secret>(&key, &numbered(number)).await {
                model.lock().note(&written);
            }
            let least = model.lock().least("s", Duration::MAX);
            if let Ok(read) = client.get::<Secret>(&key).await {
                let version = read.and_then(|it| it.resource_version());
                let version = version.map(|it| ResourceVersion::from(it.as_str()));
                model.expect_seen(&least, version.as_ref());
            }
        }
    };
    futures::join!(task(0), task(1));
    std::future::pending::<()>().await;
}

#[test]
fn faults_never_cause_a_read_to_miss_a_completed_write() {
    explored(4, async |cluster: &TestCluster| {
        cluster.create(secret("s")).await;
        let model: Shared<Answered> = Shared::new();
        let shared = model.clone();
        cluster.controller("writer", move |client| two_tasks(client, shared.anew()));
        cluster.settle().await;
        model.check();
    });
}

/// Model of sharding: the worker of each key. A key must never have two workers.
type Work = BTreeMap<String, &'static str>;

struct Working(Shared<Work>, String);

impl Working {
    fn begin(model: &Shared<Work>, key: &str, member: &'static str) -> Self {
        let other = model.lock().insert(key.to_owned(), member);
        model.expect(other.is_none(), || {
            format!("{member} began {key} while {other:?} worked on it")
        });
        Self(model.clone(), key.to_owned())
    }
}

impl Drop for Working {
    fn drop(&mut self) {
        self.0.lock().remove(&self.1);
    }
}

async fn member(client: Client, clock: Clock, name: &'static str, model: Shared<Work>) {
    let manager = Manager::builder(client)
        .clock(clock)
        .build()
        .expect("a manager without leader election can be built");
    let sharding =
        Sharding::new(&manager, ShardingConfig::new("default", "maps", name)).expect("the durations are consistent");
    let client = manager.cached_client();
    let reconcile = move |request: Request| {
        let (client, model) = (client.clone(), model.clone());
        async move {
            let _working = Working::begin(&model, &request.key.to_string(), name);
            let Some(map) = client.get::<ConfigMap>(&request.key).await? else {
                return Ok(Action::await_change());
            };
            sleep(Duration::from_millis(200)).await;
            if !map.labels().contains_key("done") {
                let patch = Patch::Merge(json!({"metadata": {"labels": {"done": "yes"}}}));
                client.patch::<ConfigMap>(&request.key, &patch).await?;
            }
            Ok::<_, ReconcileError>(Action::await_change())
        }
    };
    let builder = manager.controller("maps").for_::<ConfigMap>().sharded(&sharding);
    builder
        .concurrency(8)
        .complete(reconcile)
        .expect("the controller is complete");
    manager
        .run(std::future::pending())
        .await
        .expect("the manager stops without an error");
}

#[test]
fn faults_never_assign_a_key_to_two_workers_or_lose_keys_of_a_member() {
    explored(6, async |cluster: &TestCluster| {
        let (model, clock): (Shared<_>, _) = (Shared::new(), Clock::starting_at(cluster.server().now()));
        let count = if is_whole() { 200 } else { 12 };
        for name in ["a", "b", "c"] {
            let model = model.clone();
            cluster.controller(name, move |client| member(client, clock, name, model.clone()));
        }
        for number in 0..count {
            cluster.create(config_map(&format!("map-{number}"))).await;
        }
        cluster.settle().await;
        let maps = cluster.list::<ConfigMap>();
        let left = maps
            .iter()
            .filter(|it| it.name_any().starts_with("map-") && !it.labels().contains_key("done"));
        assert_eq!(
            left.map(ResourceExt::name_any).collect::<Vec<_>>(),
            Vec::<String>::new()
        );
        model.check();
    });
}
