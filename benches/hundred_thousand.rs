//! Measures the CPU time and memory of a cache with 100,000 Pods, from the first list to a relist. Prints a line for
//! each phase.
//!
//! Memory is counted in the allocator, which slows down every allocation, so only times of the same run are comparable.

#![expect(clippy::print_stdout, reason = "it prints its figures")]

use std::time::Duration;

use benches::counting::{Counting, measured};
use benches::informers::{Ours, informer};
use benches::measure::cpu_time;
use benches::mirror::{Mirror, pod_text};
use benches::requests::runtime;
use informer::cache::Lister;
use informer::{ResourceVersion, Storage};
use k8s_openapi::api::core::v1::Pod;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Number of events per second.
const RATE: usize = 10_000;

/// Event that ends a watch. The next list is at version 1 again, with the original objects.
const EXPIRED: &str = "{\"type\":\"ERROR\",\"object\":{\"kind\":\"Status\",\"apiVersion\":\"v1\",\"metadata\":{},\
                       \"status\":\"Failure\",\"message\":\"too old\",\"reason\":\"Expired\",\"code\":410}}\n";

/// CPU time and memory of a phase.
struct Part {
    time: Duration,
    /// Bytes in use at the end, and the maximum, both relative to the beginning.
    held: usize,
    peak: usize,
}

fn part(work: impl Future<Output = ()>, runtime: &tokio::runtime::Runtime) -> Part {
    let start = cpu_time();
    let (held, peak, ()) = measured(|| runtime.block_on(work));
    Part {
        time: cpu_time() - start,
        held,
        peak,
    }
}

fn row(name: &str, part: &Part, count: usize) {
    let micros = part.time.as_secs_f64() * 1e6 / count as f64;
    println!(
        "{name:<32} {micros:>8.2} µs each {:>8.2} s in all",
        part.time.as_secs_f64()
    );
    println!(
        "{:<32} {:>8} bytes held {:>10} at most, of each",
        "",
        part.held / count,
        part.peak / count
    );
}

async fn reached(lister: &Lister<Pod>, version: usize) {
    let version = ResourceVersion::from(version.to_string().as_str());
    lister.reached(&version).await;
}

fn main() {
    let count = |name: &str, default: usize| {
        let asked = std::env::var(name).ok();
        asked.and_then(|it| it.parse().ok()).unwrap_or(default)
    };
    let (pods, seconds) = (count("PODS", 100_000), count("SECONDS", 60));
    let runtime = runtime();
    // Clients must be created within the runtime.
    let _entered = runtime.enter();
    println!(
        "{pods} Pods of {} bytes, {seconds} s of {RATE} events",
        pod_text(0, 1).len()
    );
    for (name, storage) in [("encoded", Storage::Encoded), ("typed", Storage::Typed)] {
        println!("{name}, managedFields cut");
        let mirror = Mirror::new(pods);
        let how = Ours {
            storage,
            strips: true,
            handlers: 0,
            decodes: false,
        };
        let informer = informer(&mirror, how);
        let lister = informer.lister();
        let synced = part(
            async {
                let running = informer.clone();
                tokio::spawn(async move { running.run(std::future::pending()).await });
                informer.synced().await.expect("the cache syncs");
            },
            &runtime,
        );
        row("sync", &synced, pods);
        let mut all = Part {
            time: Duration::ZERO,
            held: 0,
            peak: 0,
        };
        for second in 0..seconds {
            let first = 2 + second * RATE;
            let lines = mirror.changes(RATE, first as u64);
            let changed = part(
                async {
                    mirror.push(lines);
                    reached(&lister, first + RATE - 1).await;
                },
                &runtime,
            );
            all.time += changed.time;
            all.peak = all.peak.max(changed.peak);
        }
        row("events", &all, seconds * RATE);
        let share = all.time.as_secs_f64() / seconds as f64 * 100.0;
        println!("{:<32} {share:>8.1} % of a core", "");
        let relisted = part(
            async {
                mirror.push(vec![EXPIRED.into()]);
                let listed = ResourceVersion::from("1");
                while lister.resource_version() != listed {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            },
            &runtime,
        );
        row("relist, every object changed", &relisted, pods);
    }
}
