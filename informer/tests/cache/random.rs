//! Random writes with faults: interrupted watches, expired histories, failed requests, late and missing bookmarks, and
//! servers that restart or lag behind. After recovery, the cache contains the same objects as the cluster, every
//! handler has received the last states, versions have never decreased, and every key was reconciled after its last
//! change, by one worker at a time.
//!
//! With `DRYDOCK_SEEDS=5000`, `cargo test -p informer --test cache idle_cache` tries 5,000 seeds; with `SEED=381`, only
//! this seed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use informer::cache::{
    ApiListWatch, HandlerOptions, HandlerQueue, Lister, QueueOrder, ReflectorOptions, SharedInformer,
    SharedInformerFactory,
};
use informer::handler::{Event, HandlerFn, enqueue};
use informer::reconcile::{Action, ReconcileError, Request};
use informer::runtime::Controller;
use informer::{ObjectKey, ResourceVersion};
use k8s_openapi::api::core::v1::ConfigMap;
use testkit::objects::config_map;
use testkit::{Injected, RestartLog, TestCluster, Verb, faults};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Name of the informer's client.
const CLIENT: &str = "cache";

/// Maximum time until recovery after the last fault. The reflector may be in its longest pause of 30 s plus jitter, and
/// may then pause again because the history became too short for its watch. Requests in progress may take another five
/// seconds.
const RECOVERY: Duration = Duration::from_secs(2 * 60 + 5);

/// Time after which a silent watch without bookmarks is dropped: its maximum duration plus half a minute.
const SILENCE: Duration = Duration::from_secs(10 * 60 + 30);

/// A random number generator with a seed.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }
}

/// State of a handler: the last version of each object, and the detected errors.
#[derive(Default)]
struct Seen {
    objects: BTreeMap<String, u64>,
    /// Version of the cache at the last event.
    cache: ResourceVersion,
    wrong: Vec<String>,
}

impl Seen {
    fn take(&mut self, event: &Event<ConfigMap>, skips_states: bool, cache: ResourceVersion) {
        if cache < self.cache {
            self.wrong
                .push(format!("the cache went from {} to {cache}", self.cache));
        }
        self.cache = cache;
        let key = event.object().key().to_string();
        let version = event
            .object()
            .resource_version()
            .number()
            .expect("the value is a number");
        let before = self.objects.get(&key).copied();
        if let Some(before) = before
            && version < before
        {
            self.wrong.push(format!("{event:?} after {before}"));
        }
        match event {
            Event::Added { .. } if before.is_some() => self.wrong.push(format!("{event:?} but it is known")),
            Event::Updated { old, .. } if before != old.resource_version().number() && !skips_states => {
                self.wrong.push(format!("{event:?} but known is {before:?}"));
            }
            Event::Deleted { .. } if before.is_none() && !skips_states => {
                self.wrong.push(format!("{event:?} but it is not known"));
            }
            Event::Added { .. } | Event::Updated { .. } | Event::Deleted { .. } => {}
        }
        match event {
            Event::Deleted { .. } => drop(self.objects.remove(&key)),
            Event::Added { .. } | Event::Updated { .. } => drop(self.objects.insert(key, version)),
        }
    }
}

fn watch(informer: &SharedInformer<ConfigMap>, queue: HandlerQueue) -> Arc<Mutex<Seen>> {
    let seen: Arc<Mutex<Seen>> = Arc::default();
    let (log, lister) = (Arc::clone(&seen), informer.lister());
    let handler = HandlerFn::new(move |event: &Event<ConfigMap>| {
        let (skips_states, cache) = (queue != HandlerQueue::Unbounded, lister.resource_version());
        log.lock()
            .expect("the lock is not poisoned")
            .take(event, skips_states, cache);
    });
    let options = HandlerOptions {
        queue,
        ..HandlerOptions::default()
    };
    informer
        .add_handler_with(handler, options)
        .expect("the informer has not stopped");
    seen
}

/// State of a controller: the keys in progress, and the cached state of each key when it was last reconciled.
#[derive(Default)]
struct Worked {
    active: BTreeSet<ObjectKey>,
    last: BTreeMap<String, Option<u64>>,
    wrong: Vec<String>,
}

/// Starts a controller with three workers that are slow and sometimes fail.
fn work(cluster: &TestCluster, informer: &SharedInformer<ConfigMap>) -> Arc<Mutex<Worked>> {
    let worked: Arc<Mutex<Worked>> = Arc::default();
    let (log, lister) = (Arc::clone(&worked), informer.lister());
    let reconcile = move |request: Request| reconcile(Arc::clone(&log), lister.clone(), request);
    let everything = |_: &Event<ConfigMap>| true;
    let controller = Controller::builder("maps", &SharedInformerFactory::new(cluster.client_named(CLIENT)))
        .informer(informer, &(), enqueue::object(), everything)
        .concurrency(3)
        .cache_sync_timeout(Duration::from_secs(24 * 3600))
        .build(reconcile)
        .expect("the controller is complete");
    cluster.run(controller.run(CancellationToken::new()));
    worked
}

async fn reconcile(
    log: Arc<Mutex<Worked>>,
    lister: Lister<ConfigMap>,
    request: Request,
) -> Result<Action, ReconcileError> {
    let version = lister.get(&request.key).and_then(|it| it.resource_version().number());
    {
        let mut log = log.lock().expect("the lock is not poisoned");
        if !log.active.insert(request.key.clone()) {
            log.wrong
                .push(format!("two workers reconciled {} at the same time", request.key));
        }
        log.last.insert(request.key.to_string(), version);
    }
    tokio::time::sleep(Duration::from_millis(request.id % 7 * 20)).await;
    log.lock()
        .expect("the lock is not poisoned")
        .active
        .remove(&request.key);
    match request.id % 5 {
        0 if request.failures < 3 => Err("the reconcile fails at random".into()),
        _ => Ok(Action::await_change()),
    }
}

/// Runs the scenario with a seed. Returns the requests of the informer with their times, and the time until recovery
/// was complete.
async fn run(seed: u64) -> (Vec<String>, Duration) {
    let mut dice = Dice(seed.wrapping_mul(2) + 1);
    let cluster = TestCluster::builder()
        .seed(seed)
        .history(4 + dice.roll(60) as usize)
        .start();
    let mut options = ReflectorOptions::default();
    options.seed = seed;
    options.streaming_lists = dice.roll(2) == 0;
    options.page_size = [None, Some(1), Some(3)][dice.roll(3) as usize];
    let order = [QueueOrder::Arrival, QueueOrder::ByObject][dice.roll(2) as usize];
    let source = ApiListWatch::all::<ConfigMap>(cluster.client_named(CLIENT), &());
    let informer = SharedInformer::builder(source)
        .reflector(options)
        .order(order)
        .build()
        .expect("the options have no duplicates");
    let mut handlers = vec![
        watch(&informer, HandlerQueue::Unbounded),
        watch(&informer, HandlerQueue::Coalescing(2)),
    ];
    let worked = work(&cluster, &informer);
    let runs = informer.clone();
    cluster.run(async move { runs.run(std::future::pending()).await });

    let mut there = [false; 8];
    let mut trouble = Trouble::default();
    for _ in 0..60 {
        let number = dice.roll(8) as usize;
        let map = config_map(&format!("map-{number}")).data("n", &dice.roll(1000).to_string());
        match dice.roll(20) {
            0..=9 if !there[number] => drop(cluster.create(map).await),
            0..=6 => drop(cluster.update(map).await),
            7..=9 => cluster.delete(map).await,
            10 if handlers.len() < 5 => handlers.push(watch(&informer, HandlerQueue::Unbounded)),
            10..=16 => trouble.begin(&cluster, &mut dice),
            _ => cluster.advance(Duration::from_millis(dice.roll(70_000))).await,
        }
        for (number, there) in there.iter_mut().enumerate() {
            *there = cluster.exists(config_map(&format!("map-{number}")));
        }
        if dice.roll(3) == 0 {
            cluster.advance(Duration::from_millis(dice.roll(500))).await;
        }
    }
    let patience = trouble.end(&cluster);
    let ended = Instant::now();
    while !is_current(&cluster, &informer) && ended.elapsed() < patience {
        cluster.advance(Duration::from_secs(1)).await;
    }
    let recovered = ended.elapsed();
    // All events are now delivered, and all keys are reconciled, after at most three failures.
    cluster.advance(Duration::from_secs(2)).await;
    check(seed, &cluster, &informer, &handlers, &worked);
    let requests = cluster.journal().requests();
    let requests = requests.iter().map(|it| format!("{:?} {}", it.answered, it.path));
    (requests.collect(), recovered)
}

/// Active faults, which must end before the cache can recover.
#[derive(Default)]
struct Trouble {
    faults: Vec<Injected>,
    is_silent: bool,
}

impl Trouble {
    /// Starts a random fault.
    fn begin(&mut self, cluster: &TestCluster, dice: &mut Dice) {
        let verb = [Verb::Watch, Verb::List][dice.roll(2) as usize];
        let (some, millis) = (dice.roll(3), Duration::from_millis(dice.roll(3_000)));
        let (watches, replica) = (cluster.watches().client(CLIENT), cluster.replica(CLIENT));
        let fault = match dice.roll(23) {
            0 | 1 => faults::gone().times(some),
            2 => faults::server_error().times(some),
            3 => faults::too_many_requests(1).times(2),
            4 => faults::unavailable().times(some),
            5 => faults::refused().times(some),
            6 => faults::reset().times(some),
            7 => faults::truncated(dice.roll(400) as usize).times(some),
            8 => faults::delay(millis).once(),
            9 => faults::slow_answer(millis).once(),
            10 | 11 => return cluster.expire_watches(),
            12 => return watches.end(),
            13 => return watches.cut(),
            14 => return watches.cut_inside(dice.roll(200) as usize),
            15 => return cluster.server().compact(),
            16 => return watches.hold(),
            17 => return watches.resume(),
            18 => return watches.duplicate(some),
            19 if some == 0 => return watches.withhold_bookmarks(),
            // Skip watches without events, to which the cluster sends bookmarks with version 0.
            19 => {
                let has_begun = watches.handles().iter().filter(|it| it.last_revision() > 0);
                return has_begun.for_each(|it| it.bookmark());
            }
            20 => {
                let log = [RestartLog::Kept, RestartLog::Lost][dice.roll(2) as usize];
                return cluster.restart(log, millis);
            }
            21 => {
                return if some == 0 {
                    replica.catch_up()
                } else {
                    replica.lag(dice.roll(8))
                };
            }
            _ if some == 0 && watches.count() > 0 => {
                self.is_silent = true;
                return watches.silence();
            }
            _ => return replica.freeze(),
        };
        self.faults
            .push(cluster.inject(fault.on(verb, "configmaps").client(CLIENT)));
    }

    /// Ends all faults. Returns the maximum time until recovery.
    fn end(mut self, cluster: &TestCluster) -> Duration {
        self.faults.clear();
        cluster.replica(CLIENT).catch_up();
        cluster.watches().client(CLIENT).resume();
        if self.is_silent { RECOVERY + SILENCE } else { RECOVERY }
    }
}

fn stored(cluster: &TestCluster) -> BTreeMap<String, u64> {
    let version = |map: &ConfigMap| map.metadata.resource_version.as_deref().unwrap_or_default().parse();
    let maps = cluster.list::<ConfigMap>();
    let pairs = maps.iter().map(|it| {
        (
            ObjectKey::of(it).to_string(),
            version(it).expect("the value is a number"),
        )
    });
    pairs.collect()
}

fn cached(informer: &SharedInformer<ConfigMap>) -> BTreeMap<String, u64> {
    let maps = informer.lister().list();
    let version =
        |it: &informer::CachedObject<ConfigMap>| it.resource_version().number().expect("the value is a number");
    maps.iter().map(|it| (it.key().to_string(), version(it))).collect()
}

fn is_current(cluster: &TestCluster, informer: &SharedInformer<ConfigMap>) -> bool {
    informer.has_synced() && cached(informer) == stored(cluster)
}

fn check(
    seed: u64,
    cluster: &TestCluster,
    informer: &SharedInformer<ConfigMap>,
    handlers: &[Arc<Mutex<Seen>>],
    worked: &Mutex<Worked>,
) {
    let objects = stored(cluster);
    let requests = cluster.journal().requests();
    let asked = requests.iter().filter(|it| &*it.client == CLIENT).map(|it| {
        let (started, answered) = (it.started.as_secs_f64(), it.answered.as_secs_f64());
        format!("{started:.3} {answered:.3} {} {} {:?}", it.code, it.path, it.faults)
    });
    let asked: Vec<_> = asked.collect();
    assert_eq!(
        cached(informer),
        objects,
        "the cache differs with seed {seed} after\n{}",
        asked.join("\n")
    );
    for (number, handler) in handlers.iter().enumerate() {
        let seen = handler.lock().expect("the lock is not poisoned");
        assert_eq!(seen.wrong, [""; 0], "handler {number}, seed {seed}");
        assert_eq!(seen.objects, objects, "handler {number}, seed {seed}");
    }
    let worked = worked.lock().expect("the lock is not poisoned");
    assert_eq!(worked.wrong, [""; 0], "the controller missed changes with seed {seed}");
    let last: BTreeMap<String, u64> = worked
        .last
        .iter()
        .filter_map(|(key, version)| Some((key.clone(), (*version)?)))
        .collect();
    assert_eq!(last, objects, "the last reconcile of each key differs with seed {seed}");
}

/// Returns the seeds to try: only the seed in `SEED`, or the range in `DRYDOCK_SEEDS`, such as `5000` or `2500..5000`.
fn seeds() -> std::ops::Range<u64> {
    let number = |text: &str| text.parse().ok();
    if let Some(seed) = std::env::var("SEED").ok().as_deref().and_then(number) {
        return seed..seed + 1;
    }
    let seeds = std::env::var("DRYDOCK_SEEDS").unwrap_or_default();
    match seeds.split_once("..") {
        Some((first, end)) => number(first).unwrap_or(0)..number(end).unwrap_or(0),
        None => 0..number(&seeds).unwrap_or(60),
    }
}

#[test]
fn idle_cache_equals_the_state_of_the_cluster() {
    assert!(!seeds().is_empty());
    for seed in seeds() {
        block_on(run(seed));
    }
}

#[test]
fn two_runs_with_the_same_seed_make_the_same_requests_at_the_same_times() {
    for seed in [1, 7, 42, 381, 1000] {
        let ((one, _), (other, _)) = (block_on(run(seed)), block_on(run(seed)));
        assert!(one.len() > 10);
        assert_eq!(one, other, "seed {seed}");
    }
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build();
    runtime.expect("the runtime can be built").block_on(future)
}
