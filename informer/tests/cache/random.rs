//! Random writes, cut watches, expired histories, failing requests and late answers: whatever happens, at rest the
//! cache is what the cluster has, every handler saw every last state, and versions never went back.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use informer::cache::{ApiListWatch, HandlerOptions, HandlerQueue, QueueOrder, ReflectorOptions, SharedInformer};
use informer::handler::{Event, HandlerFn};
use k8s_openapi::api::core::v1::ConfigMap;
use testkit::objects::config_map;
use testkit::{TestCluster, Verb, faults};

/// The seed's own numbers.
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

/// What one handler knows: the last version of each object, and what was wrong.
#[derive(Default)]
struct Seen {
    objects: BTreeMap<String, u64>,
    wrong: Vec<String>,
}

impl Seen {
    fn take(&mut self, event: &Event<ConfigMap>, skips_states: bool) {
        let key = event.object().key().to_string();
        let version = event.object().resource_version().number().expect("a number");
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
    let log = Arc::clone(&seen);
    let handler = HandlerFn::new(move |event: &Event<ConfigMap>| {
        log.lock()
            .expect("no panic")
            .take(event, queue != HandlerQueue::Unbounded);
    });
    let options = HandlerOptions {
        queue,
        ..HandlerOptions::default()
    };
    informer.add_handler_with(handler, options).expect("it has not stopped");
    seen
}

/// One run; answers the requests of the informer with their times.
async fn run(seed: u64) -> Vec<String> {
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
    let source = ApiListWatch::all::<ConfigMap>(cluster.client(), &());
    let informer = SharedInformer::builder(source)
        .reflector(options)
        .order(order)
        .build()
        .expect("nothing twice");
    let mut handlers = vec![
        watch(&informer, HandlerQueue::Unbounded),
        watch(&informer, HandlerQueue::Coalescing(2)),
    ];
    let runs = informer.clone();
    cluster.run(async move { runs.run(std::future::pending()).await });

    let mut there = [false; 8];
    let mut trouble = Vec::new();
    for _ in 0..60 {
        let number = dice.roll(8) as usize;
        let map = config_map(&format!("map-{number}")).data("n", &dice.roll(1000).to_string());
        match dice.roll(20) {
            0..=9 if !there[number] => drop(cluster.create(map).await),
            0..=6 => drop(cluster.update(map).await),
            7..=9 => cluster.delete(map).await,
            10 => cluster.expire_watches(),
            11 => cluster.watches().on("configmaps").end(),
            12 => cluster.server().compact(),
            13 => trouble.push(cluster.inject(faults::gone().on(Verb::Watch, "configmaps").times(dice.roll(3)))),
            14 => trouble.push(cluster.inject(faults::gone().on(Verb::List, "configmaps").times(dice.roll(3)))),
            15 => {
                trouble.push(cluster.inject(faults::server_error().on(Verb::Watch, "configmaps").times(dice.roll(3))))
            }
            16 => trouble.push(cluster.inject(faults::too_many_requests(1).on(Verb::Watch, "configmaps").times(2))),
            17 => {
                let late = Duration::from_millis(dice.roll(3000));
                trouble.push(cluster.inject(faults::delay(late).on(Verb::List, "configmaps").once()));
            }
            18 if handlers.len() < 5 => handlers.push(watch(&informer, HandlerQueue::Unbounded)),
            _ => cluster.advance(Duration::from_millis(dice.roll(70_000))).await,
        }
        for (number, there) in there.iter_mut().enumerate() {
            *there = cluster.exists(config_map(&format!("map-{number}")));
        }
        if dice.roll(3) == 0 {
            cluster.advance(Duration::from_millis(dice.roll(500))).await;
        }
    }
    trouble.clear();
    // Several of the longest pauses: one may lead to the next.
    cluster.advance(Duration::from_secs(300)).await;
    check(seed, &cluster, &informer, &handlers);
    let requests = cluster.journal().requests();
    requests
        .iter()
        .map(|it| format!("{:?} {}", it.answered, it.path))
        .collect()
}

fn check(seed: u64, cluster: &TestCluster, informer: &SharedInformer<ConfigMap>, handlers: &[Arc<Mutex<Seen>>]) {
    let objects: BTreeMap<String, u64> = cluster
        .list::<ConfigMap>()
        .iter()
        .map(|it| {
            let version = it.metadata.resource_version.as_deref().unwrap_or_default();
            (
                informer::ObjectKey::of(it).to_string(),
                version.parse().expect("a number"),
            )
        })
        .collect();
    let cached: BTreeMap<String, u64> = informer
        .lister()
        .list()
        .iter()
        .map(|it| (it.key().to_string(), it.resource_version().number().expect("a number")))
        .collect();
    assert_eq!(cached, objects, "the cache, seed {seed}");
    for (number, handler) in handlers.iter().enumerate() {
        let seen = handler.lock().expect("no panic");
        assert_eq!(seen.wrong, [""; 0], "handler {number}, seed {seed}");
        assert_eq!(seen.objects, objects, "handler {number}, seed {seed}");
    }
}

/// How many seeds are tried; the variable `SEEDS` says otherwise.
fn seeds() -> u64 {
    std::env::var("SEEDS")
        .ok()
        .and_then(|it| it.parse().ok())
        .unwrap_or(300)
}

#[test]
fn at_rest_the_cache_is_what_the_cluster_has() {
    for seed in 0..seeds() {
        block_on(run(seed));
    }
}

#[test]
fn two_runs_with_one_seed_make_the_same_requests_at_the_same_times() {
    for seed in [1, 7, 42, 1000] {
        let (one, other) = (block_on(run(seed)), block_on(run(seed)));
        assert!(one.len() > 10);
        assert_eq!(one, other, "seed {seed}");
    }
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build();
    runtime.expect("a runtime").block_on(future)
}
