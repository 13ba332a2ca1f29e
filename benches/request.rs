//! Measures the cost of requests through `kube::Client`.

use benches::cpu::Cpu;
use benches::requests::{Bench, start_and_answer};
use benches::server_writes::WRITES;
use criterion::{Criterion, criterion_group, criterion_main};

/// Function that repeats a request, and returns the time that this took.
type Case = fn(&mut Bench, usize) -> std::time::Duration;

fn requests(criterion: &mut Criterion<Cpu>) {
    let mut group = criterion.benchmark_group("request");
    group.bench_function("start to first answer", |b| {
        b.iter_custom(|n| start_and_answer(n as usize))
    });
    let mut bench = Bench::new();
    let cases: [(&str, Case); 14] = [
        ("create ConfigMap", Bench::create_maps),
        ("create ConfigMap and see its event", Bench::create_maps_and_watch),
        ("get ConfigMap", Bench::get_map),
        ("merge patch ConfigMap", Bench::merge_map),
        ("apply ConfigMap", Bench::apply_map),
        ("delete ConfigMap", Bench::delete_maps),
        ("create Pod", Bench::create_pods),
        ("get Pod", Bench::get_pod),
        ("get Pod, server alone", Bench::get_pod_bytes),
        ("replace Pod", Bench::replace_pod),
        ("apply Pod", Bench::apply_pod),
        ("strategic patch Pod", Bench::strategic_pod),
        ("apply Pod of five managers", Bench::apply_pod_of_five),
        (
            "create CustomResourceDefinition with ten CEL rules",
            Bench::create_definitions,
        ),
    ];
    for (name, case) in cases {
        group.bench_function(name, |b| b.iter_custom(|n| case(&mut bench, n as usize)));
    }
}

/// Measures writes without a client, and the field manager's share of them.
fn server_writes(criterion: &mut Criterion<Cpu>) {
    let mut group = criterion.benchmark_group("server");
    for (name, write) in WRITES {
        let mut bench = Bench::new();
        group.bench_function(name, |b| b.iter_custom(|n| write(&mut bench, n as usize)));
    }
}

criterion_group! {
    name = benches;
    config = Cpu::criterion();
    targets = requests, server_writes
}
criterion_main!(benches);
