//! Measures the cost of an exploration run, for a controller with kube-runtime and for a controller with `informer`.

#![expect(clippy::print_stdout, reason = "it prints a table")]

use benches::explorations::{disturbed, undisturbed};
use benches::measure::is_measured;
use benches::reconciles::Peer;

/// Numbers of objects, with the numbers of requests that they cause: two watches, before which kube-runtime sends two
/// lists, and for each object its create, the create of its child, and the reads of the controller. The controller with
/// `informer` reads from its cache.
const KUBE_RUNTIME: &[(usize, usize)] = &[(1, 8), (2, 12), (6, 28), (10, 44), (55, 224)];
const INFORMER: &[(usize, usize)] = &[(1, 4), (5, 12), (10, 22), (13, 28), (111, 224)];

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|it| !it.starts_with("--")).collect();
    if let [peer, objects, runs] = &arguments[..] {
        let peer = match peer.as_str() {
            "informer" => Peer::Informer,
            _ => Peer::KubeRuntime,
        };
        let number = |text: &str| text.parse().expect("the value is a number");
        let runs = undisturbed(peer, number(objects) as usize, number(runs));
        println!("{:.0} runs/s", runs.per_second());
        return;
    }
    println!("| controller | objects | requests | messages | runs/s | µs a request | with a fault each, runs/s |");
    println!("|---|---|---|---|---|---|---|");
    for (peer, name, sizes) in [
        (Peer::KubeRuntime, "kube-runtime", KUBE_RUNTIME),
        (Peer::Informer, "`informer`", INFORMER),
    ] {
        for &(objects, requests) in sizes {
            let runs = if is_measured() { 60_000 / requests as u64 } else { 2 };
            let even = undisturbed(peer, objects, runs);
            assert_eq!(even.requests, requests, "{name}, {objects} objects");
            let faults = disturbed(peer, objects, runs.min(1_500));
            println!(
                "| {name} | {objects} | {requests} | {} | {:.0} | {:.1} | {:.0} |",
                even.messages,
                even.per_second(),
                even.micros_a_request(),
                faults.per_second()
            );
        }
    }
}
