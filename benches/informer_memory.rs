//! What informers hold in memory, counted at the allocator: a line each.
//!
//! It is a program of its own because counting makes every allocation slower.

#![allow(
    unsafe_code,
    reason = "an allocator that counts is written with the unsafe trait GlobalAlloc"
)]
#![expect(clippy::print_stdout, reason = "it prints its figures")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

use benches::informers::{Ours, held, held_by_kube_runtime};
use benches::mirror::{Mirror, pod_text};
use informer::Storage;

/// The system's allocator with the bytes in use counted. One thread allocates, so the counts need no order.
struct Counting;

static LIVE: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

#[global_allocator]
static ALLOCATOR: Counting = Counting;

// SAFETY: every call is handed on to the system's allocator as it came; what is done besides is counting.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let live = LIVE.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        PEAK.fetch_max(live, Ordering::Relaxed);
        // SAFETY: the caller's promises are the system's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's promises are the system's.
        unsafe { System.dealloc(at, layout) }
    }
}

/// The bytes that `work` leaves in use for each object, and the most it had in use at a time.
fn row<T>(name: &str, count: usize, work: impl FnOnce() -> T) {
    let before = LIVE.load(Ordering::Relaxed);
    PEAK.store(before, Ordering::Relaxed);
    let made = work();
    let (after, peak) = (LIVE.load(Ordering::Relaxed), PEAK.load(Ordering::Relaxed));
    let each = |bytes: usize| bytes.saturating_sub(before) / count;
    println!("{name:<44} {:>8} held {:>8} at most", each(after), each(peak));
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
}
