//! Compares the informer with kube-runtime's watcher and reflector in the same run. Prints a line for each figure.

#![expect(clippy::print_stdout, reason = "it prints its figures")]

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use benches::informers::{Ours, Times, kube_runtime, ours};
use benches::measure::{cpu_time, scaled};
use benches::mirror::{pod, pod_text};
use informer::cache::{IndexFn, Indexer, indexes};
use informer::{CachedObject, Storage};
use k8s_openapi::api::core::v1::Pod;
use kube::runtime::{reflector, watcher};

fn micros(time: Duration, count: usize) -> f64 {
    time.as_secs_f64() * 1e6 / count as f64
}

/// Returns the median of each time in three runs.
fn middle(mut run: impl FnMut() -> Times) -> Times {
    let runs = [(); 3].map(|()| run());
    let middle = |part: fn(&Times) -> Duration| {
        let mut all = runs.map(|it| part(&it));
        all.sort();
        all[1]
    };
    Times {
        sync: middle(|it| it.sync),
        changes: middle(|it| it.changes),
    }
}

fn main() {
    let count = |name: &str, default| {
        std::env::var(name)
            .ok()
            .and_then(|it| it.parse().ok())
            .unwrap_or(default)
    };
    let (pods, changes) = (
        count("PODS", scaled(20_000, 100)),
        count("CHANGES", scaled(20_000, 100)),
    );
    println!(
        "{pods} Pods of {} bytes, {changes} changes; CPU time of one thread",
        pod_text(0, 1).len()
    );
    println!(
        "{:<44} {:>12} {:>12} {:>8} {:>8}",
        "", "sync µs/obj", "event µs", "sync ×", "event ×"
    );
    let peer = middle(|| kube_runtime(pods, changes, false));
    let row = |name: &str, times: Times| {
        let (sync, event) = (micros(times.sync, pods), micros(times.changes, changes));
        let ratio = |peer: Duration, ours: Duration| peer.as_secs_f64() / ours.as_secs_f64();
        let (by_sync, by_event) = (ratio(peer.sync, times.sync), ratio(peer.changes, times.changes));
        println!("{name:<44} {sync:>12.2} {event:>12.2} {by_sync:>8.1} {by_event:>8.1}");
    };
    row("kube-runtime", peer);
    row(
        "kube-runtime, managedFields dropped",
        middle(|| kube_runtime(pods, changes, true)),
    );
    let case = |storage, strips, handlers, decodes| {
        let how = Ours {
            storage,
            strips,
            handlers,
            decodes,
        };
        middle(|| ours(pods, changes, how))
    };
    row("encoded", case(Storage::Encoded, false, 0, false));
    row("encoded, managedFields cut", case(Storage::Encoded, true, 0, false));
    let one = case(Storage::Encoded, true, 1, false);
    row("encoded, cut, 1 handler", one);
    let eleven = case(Storage::Encoded, true, 11, false);
    row("encoded, cut, 11 handlers", eleven);
    row(
        "encoded, cut, 1 handler that decodes",
        case(Storage::Encoded, true, 1, true),
    );
    row("typed, managedFields cut", case(Storage::Typed, true, 0, false));
    row("typed, managedFields kept", case(Storage::Typed, false, 0, false));
    row(
        "compressed, managedFields cut",
        case(Storage::Compressed, true, 0, false),
    );
    let extra = (eleven.changes.as_secs_f64() - one.changes.as_secs_f64()) * 1e9 / (changes * 10) as f64;
    println!("another handler: {extra:.0} ns an event");
    readers();
    index();
    relist();
    snapshots();
}

/// Measures writes while ten threads list all objects.
fn readers() {
    let pods = 10_000;
    let small = |at: usize| {
        let text = format!(r#"{{"metadata":{{"name":"p-{at:05}","namespace":"default","resourceVersion":"{at}"}}}}"#);
        CachedObject::<Pod>::decode(&text).expect("the object can be decoded")
    };
    let objects: Vec<_> = (0..pods).map(small).collect();
    let indexer = Indexer::<Pod>::new();
    indexer.replace(objects.clone(), "1".into());
    let lister = indexer.lister();
    let read = || lister.snapshot().iter().map(|it| it.key().name().len()).sum::<usize>();
    let (writes, lists) = beside_readers(|at| drop(indexer.insert(objects[at % pods].clone())), read);
    println!("informer: {writes:.0} writes/s with 10 readers that list {pods} objects {lists:.0} times a second");

    let (store, mut writer) = reflector::store::<Pod>();
    let plain = |at: usize| {
        let mut pod = Pod::default();
        pod.metadata.name = Some(format!("p-{at:05}"));
        pod
    };
    (0..pods).for_each(|at| writer.apply_watcher_event(&watcher::Event::Apply(plain(at))));
    let read = || {
        store
            .state()
            .iter()
            .map(|it| it.metadata.name.as_ref().map_or(0, String::len))
            .sum::<usize>()
    };
    let events: Vec<_> = (0..pods).map(|at| watcher::Event::Apply(plain(at))).collect();
    let (writes, lists) = beside_readers(|at| writer.apply_watcher_event(&events[at % pods]), read);
    println!("kube-runtime: {writes:.0} writes/s with 10 readers that list {pods} objects {lists:.0} times a second");
}

/// Returns the number of writes and of lists per second of real time.
#[expect(
    clippy::disallowed_methods,
    reason = "threads and the machine's clock are what is measured"
)]
fn beside_readers(mut write: impl FnMut(usize), read: impl Fn() -> usize + Sync) -> (f64, f64) {
    let (stop, lists) = (AtomicBool::new(false), AtomicUsize::new(0));
    let time = Duration::from_millis(scaled(2_000, 50) as u64);
    let mut writes = 0;
    std::thread::scope(|scope| {
        for _ in 0..10 {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    std::hint::black_box(read());
                    lists.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let start = std::time::Instant::now();
        while start.elapsed() < time {
            for _ in 0..16 {
                write(writes);
                writes += 1;
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
    (
        writes as f64 / time.as_secs_f64(),
        lists.load(Ordering::Relaxed) as f64 / time.as_secs_f64(),
    )
}

/// Compares an index lookup of ten objects with a scan for these objects.
fn index() {
    let pods = Indexer::<Pod>::new();
    for at in 0..10_000 {
        let node = format!("\"nodeName\":\"node-{}\"", at % 1000);
        let text = pod_text(at, 1).replace("\"nodeName\":\"node-17\"", &node);
        pods.insert(CachedObject::decode(&text).expect("the object can be decoded"));
    }
    pods.add_index(indexes::field("spec.nodeName"))
        .expect("the index name is unused");
    let lister = pods.lister();
    let rounds = scaled(20_000, 100);
    let start = cpu_time();
    for at in 0..rounds {
        let node = format!("node-{}", at % 1000);
        assert_eq!(
            lister
                .by_index("field:spec.nodeName", &node)
                .expect("the index exists")
                .len(),
            10
        );
    }
    println!(
        "index lookup of 10 of 10,000: {:.2} µs",
        micros(cpu_time() - start, rounds)
    );

    let (store, mut writer) = reflector::store::<Pod>();
    (0..10_000).for_each(|at| writer.apply_watcher_event(&watcher::Event::Apply(pod(at, 1))));
    let start = cpu_time();
    let rounds = scaled(20, 1);
    for _ in 0..rounds {
        let found = store
            .state()
            .into_iter()
            .filter(|it| it.spec.as_ref().and_then(|it| it.node_name.as_deref()) == Some("node-5"));
        assert_eq!(found.count(), 0);
    }
    println!(
        "kube-runtime, a scan of 10,000: {:.2} µs",
        micros(cpu_time() - start, rounds)
    );
}

/// Returns the objects of a list, decoded from their JSON text.
fn list(pods: usize, version: u64) -> Vec<CachedObject<Pod>> {
    let decode = |at| CachedObject::decode(&pod_text(at, version)).expect("the object can be decoded");
    (0..pods).map(decode).collect()
}

/// Measures the maximum time for which a reader waits for an object while a list replaces all objects, in real time.
/// The index function decodes objects.
#[expect(
    clippy::disallowed_methods,
    reason = "threads and the machine's clock are what is measured"
)]
fn relist() {
    let pods = scaled(100_000, 200);
    let indexer = Indexer::<Pod>::new();
    let node = IndexFn::new("node", |pod: &CachedObject<Pod>| {
        let spec = pod.typed().ok().and_then(|it| it.spec.clone());
        spec.and_then(|it| it.node_name)
    });
    indexer.add_index(node).expect("the index name is unused");
    indexer.replace(list(pods, 1), "1".into());
    let (next, lister) = (list(pods, 2), indexer.lister());
    let key = next[0].key().clone();
    let (is_done, longest) = (AtomicBool::new(false), AtomicUsize::new(0));
    let start = std::time::Instant::now();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_done.load(Ordering::Relaxed) {
                let start = std::time::Instant::now();
                std::hint::black_box(lister.get(&key));
                longest.fetch_max(start.elapsed().as_micros() as usize, Ordering::Relaxed);
            }
        });
        indexer.replace(next, "2".into());
        is_done.store(true, Ordering::Relaxed);
    });
    println!(
        "a relist of {pods} with a typed index: {:.0} ms, in which a reader waits at most {} µs",
        start.elapsed().as_secs_f64() * 1e3,
        longest.load(Ordering::Relaxed)
    );
}

/// Measures writes while a snapshot of the previous state exists.
fn snapshots() {
    let pods = scaled(100_000, 200);
    let indexer = Indexer::<Pod>::new();
    indexer.replace(list(pods, 1), "1".into());
    let (lister, rounds) = (indexer.lister(), scaled(1_000, 10));
    let mut time = Duration::ZERO;
    for at in 0..rounds {
        let object = CachedObject::decode(&pod_text(at * 97 % pods, 2)).expect("the object can be decoded");
        let snapshot = lister.snapshot();
        let start = cpu_time();
        indexer.insert(object);
        time += cpu_time() - start;
        drop(snapshot);
    }
    println!("a write after a snapshot of {pods}: {:.2} µs", micros(time, rounds));
}
