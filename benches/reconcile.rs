//! Work queues and controllers, those of kube-runtime beside ours in the same run:
//! `cargo bench -p benches --bench reconcile`.

use std::sync::Arc;
use std::time::Duration;

use benches::cpu::Cpu;
use benches::reconciles::{self, Peer};
use criterion::Criterion;
use informer::ObjectKey;
use informer::queue::{AddOptions, WorkQueue};

fn main() {
    let mut criterion = Cpu::criterion();
    queues(&mut criterion);
    for peer in [Peer::Informer, Peer::KubeRuntime] {
        let mut noop = Vec::new();
        for count in [1_000, 10_000] {
            noop.push(reconciles::first_list(peer, count).as_secs_f64() * 1e6 / count as f64);
        }
        println!("{peer:?}: start to {{1,000, 10,000}} no-op reconciles, µs of CPU an object: {noop:.2?}");
        let mut waits = reconciles::event_to_reconcile(peer, 500);
        waits.sort();
        println!(
            "{peer:?}: event to reconcile, real clock: p50 {:?}, p99 {:?}",
            waits[250], waits[495]
        );
        let whole = reconciles::whole_test(peer, 200, 10) / 200;
        println!("{peer:?}: a whole test with 10 parents and 10 children, CPU: {whole:?}");
    }
    let each = reconciles::queued(500_000).as_secs_f64() * 1e9 / 500_000.0;
    println!("Informer: no-op reconciles of keys from a source, ns of CPU each: {each:.0}");
}

fn queues(criterion: &mut Criterion<Cpu>) {
    let runtime = benches::requests::runtime();
    let _entered = runtime.enter();
    let keys: Vec<_> = (0..1000)
        .map(|at| ObjectKey::new("shop", &format!("web-{at}")))
        .collect();
    let keys = Arc::new(keys);
    for (name, queue) in [
        ("queue/plain", WorkQueue::new()),
        ("queue/priority", WorkQueue::builder().by_priority().build()),
    ] {
        let mut at = 0;
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
                drop(queue.try_get());
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
}
