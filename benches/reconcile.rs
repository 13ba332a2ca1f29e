//! Measures work queues, and compares controllers with kube-runtime's in the same run: `cargo bench -p benches --bench
//! reconcile`.

use std::time::Duration;

use benches::cpu::Cpu;
use benches::measure::scaled;
use benches::reconciles::{self, Peer};
use benches::{controllers, our_controllers};
use criterion::{BatchSize, Criterion};
use informer::ObjectKey;
use informer::metrics::Metrics;
use informer::queue::{AddOptions, WorkItem, WorkQueue};

fn main() {
    let mut criterion = Cpu::criterion();
    queues(&mut criterion);
    noop();
    latency();
    let tests = scaled(200, 1);
    let (ours, our_requests) = our_controllers::whole_test(tests, 10);
    let (theirs, their_requests) = controllers::whole_test(tests, 10);
    println!(
        "a whole test with 10 parents and 10 children, CPU: informer {:?} and {our_requests} requests, kube-runtime \
         {:?} and {their_requests}",
        ours / tests as u32,
        theirs / tests as u32
    );
}

/// Measures no-op reconciles, in millions per second of CPU time.
fn noop() {
    let millions = |count: usize, time: Duration| count as f64 / time.as_secs_f64() / 1e6;
    for pending in [scaled(1_000, 100), scaled(100_000, 1_000)] {
        for concurrency in [1, 4, 64] {
            // Processing a few keys takes too little time to be measured, so they are processed repeatedly.
            let rounds = u32::try_from(scaled(100_000, 1) / pending).unwrap_or(1).max(1);
            let rate = |peer| {
                let times = (0..rounds).map(|_| reconciles::queued(peer, pending, concurrency));
                millions(pending, times.sum::<Duration>() / rounds)
            };
            let (ours, theirs) = (rate(Peer::Informer), rate(Peer::KubeRuntime));
            println!(
                "no-op reconciles of {pending} keys, {concurrency} at a time: informer {ours:.2} million/s, \
                 kube-runtime {theirs:.2}, {:.1} times",
                ours / theirs
            );
        }
    }
    for pods in [scaled(1_000, 10), scaled(10_000, 100)] {
        let each = |peer| reconciles::first_list(peer, pods).as_secs_f64() * 1e6 / pods as f64;
        let (ours, theirs) = (each(Peer::Informer), each(Peer::KubeRuntime));
        println!(
            "start to {pods} no-op reconciles of Pods: informer {ours:.1} µs of CPU each, kube-runtime {theirs:.1}"
        );
    }
}

/// Measures the time from an event to its reconcile, with the real clock.
fn latency() {
    for peer in [Peer::Informer, Peer::KubeRuntime] {
        let mut waits = reconciles::event_to_reconcile(peer, scaled(1000, 20));
        waits.sort();
        println!(
            "{peer:?}: event to reconcile, real clock: p50 {:?}, p99 {:?}",
            waits[waits.len() / 2],
            waits[waits.len() * 99 / 100]
        );
    }
}

fn queues(criterion: &mut Criterion<Cpu>) {
    // The clock of a controller is usually not paused. Reading a paused clock acquires a lock.
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_time().build().expect("a runtime can be built");
    let _entered = runtime.enter();
    let keys: Vec<_> = (0..1000)
        .map(|at| ObjectKey::new("shop", &format!("web-{at}")))
        .collect();
    let metrics = Metrics::new();
    for (name, queue) in [
        ("queue/plain", WorkQueue::new()),
        ("queue/priority", WorkQueue::builder().by_priority().build()),
        (
            "queue/with metrics",
            WorkQueue::builder().named("web", &metrics).build(),
        ),
    ] {
        let mut at = 0;
        // A worker also exchanges its key for the next one.
        let mut work = None;
        criterion.bench_function(name, |bencher| {
            bencher.iter(|| {
                at = (at + 1) % keys.len();
                let priority = if at % 2 == 0 { 0 } else { -100 };
                queue.add_with(
                    keys[at].clone(),
                    AddOptions {
                        priority,
                        ..AddOptions::default()
                    },
                );
                work = match work.take() {
                    None => queue.try_get(),
                    Some(work) => WorkItem::try_next(work),
                };
            });
        });
    }
    let queue = WorkQueue::new();
    let mut at = 0;
    criterion.bench_function("queue/delayed", |bencher| {
        bencher.iter(|| {
            at = (at + 1) % keys.len();
            queue.add_after(keys[at].clone(), Duration::from_secs(1000 - at as u64 % 7));
        });
    });
    criterion.bench_function("queue/delayed, 1,000 new keys", |bencher| {
        bencher.iter_batched(
            || (WorkQueue::new(), keys.clone()),
            |(queue, keys)| {
                for (at, key) in keys.into_iter().enumerate() {
                    queue.add_after(key, Duration::from_secs(1000 - at as u64 % 7));
                }
                queue
            },
            BatchSize::SmallInput,
        );
    });
}
