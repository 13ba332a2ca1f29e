//! Measures reads of many objects, snapshots and forks.

use benches::cpu::Cpu;
use benches::reads::Many;
use criterion::{Criterion, Throughput, criterion_group, criterion_main};

fn reads(criterion: &mut Criterion<Cpu>) {
    let mut group = criterion.benchmark_group("store");
    let many = Many::pods(10_000);
    group.throughput(Throughput::Elements(10_000));
    group.bench_function("list 10,000 Pods", |b| b.iter_custom(|n| many.list(n as usize)));
    group.bench_function("selector that fits none of 10,000", |b| {
        b.iter_custom(|n| many.select_none(n as usize))
    });
    group.throughput(Throughput::Elements(500));
    group.bench_function("page of 500 of 10,000", |b| b.iter_custom(|n| many.page(n as usize)));
    group.throughput(Throughput::Elements(1));
    group.bench_function("snapshot and fork 10,000", |b| {
        b.iter_custom(|n| many.snapshot_and_fork(n as usize))
    });
    group.bench_function("first write to a fork of 10,000", |b| {
        b.iter_custom(|n| many.write_to_fork(n as usize))
    });
}

criterion_group! {
    name = benches;
    config = Cpu::criterion();
    targets = reads
}
criterion_main!(benches);
