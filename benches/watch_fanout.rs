//! Measures the delivery of a change to many watchers.

use benches::cpu::Cpu;
use benches::fanout::Watched;
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};

fn fanout(criterion: &mut Criterion<Cpu>) {
    let mut group = criterion.benchmark_group("watch_fanout");
    for watchers in [1, 100, 1000] {
        let kinds = [
            ("watchers", Watched::by_watchers(watchers)),
            ("bodies", Watched::by_bodies(watchers)),
        ];
        for (kind, watched) in kinds {
            for (how, burst) in [("each event", 1), ("bursts of 64", 64)] {
                group.throughput(Throughput::Elements((watchers * burst) as u64));
                let id = BenchmarkId::new(format!("{kind}, {how}"), watchers);
                group.bench_function(id, |b| b.iter_custom(|n| watched.deliver(n as usize * burst, burst)));
            }
        }
    }
    for watchers in [0, 10_000] {
        let watched = Watched::idle(watchers);
        group.throughput(Throughput::Elements(1));
        group.bench_function(BenchmarkId::new("commit with idle watchers", watchers), |b| {
            b.iter_custom(|n| watched.commit(n as usize));
        });
    }
}

criterion_group! {
    name = benches;
    config = Cpu::criterion();
    targets = fanout
}
criterion_main!(benches);
