//! Measures the memory of informers, counted in the allocator. Prints a line for each informer.
//!
//! This is a separate program because counting slows down every allocation.

#![expect(clippy::print_stdout, reason = "it prints its figures")]

use benches::counting::{Counting, measured};
use benches::informers::{Ours, held, held_by_kube_runtime};
use benches::mirror::{Mirror, pod_text};
use benches::written::{Part, keys};
use informer::Storage;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Prints the bytes per object that `work` leaves in use, and the maximum during `work`.
fn row<T>(name: &str, count: usize, work: impl FnOnce() -> T) {
    let (held, peak, made) = measured(work);
    println!("{name:<44} {:>8} held {:>8} at most", held / count, peak / count);
    drop(made);
}

fn main() {
    let pods = std::env::var("PODS")
        .ok()
        .and_then(|it| it.parse().ok())
        .unwrap_or(20_000);
    println!("bytes a Pod of {} bytes of JSON, of {pods}", pod_text(0, 1).len());
    let mirror = Mirror::new(pods);
    row("kube-runtime", pods, || held_by_kube_runtime(&mirror, false));
    row("kube-runtime, managedFields dropped", pods, || {
        held_by_kube_runtime(&mirror, true)
    });
    let case = |storage, strips| Ours {
        storage,
        strips,
        handlers: 0,
        decodes: false,
    };
    row("encoded", pods, || held(&mirror, case(Storage::Encoded, false)));
    row("encoded, managedFields cut", pods, || {
        held(&mirror, case(Storage::Encoded, true))
    });
    row("typed, managedFields cut", pods, || {
        held(&mirror, case(Storage::Typed, true))
    });
    row("typed", pods, || held(&mirror, case(Storage::Typed, false)));
    row("compressed, managedFields cut", pods, || {
        held(&mirror, case(Storage::Compressed, true))
    });
    println!("bytes a key of a controller, of {pods}, long after its last reconcile");
    row("cache and queue", pods, || keys(pods, Part::Cache));
    row("each key wrote once", pods, || keys(pods, Part::Writes));
    row("each key wrote once, with read-your-writes", pods, || {
        keys(pods, Part::Gate)
    });
}
