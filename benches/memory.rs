//! What objects and servers hold in memory, counted at the allocator: a line each, the name and the bytes.
//!
//! It is a program of its own because counting makes every allocation slower.

#![allow(
    unsafe_code,
    reason = "an allocator that counts is written with the unsafe trait GlobalAlloc"
)]
#![expect(clippy::print_stdout, reason = "the figures program reads it")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::body::Body;
use benches::objects;
use benches::requests::{first_answer, get, runtime};
use fake_apiserver::ApiServer;
use http_body_util::BodyExt;
use tower::ServiceExt;

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

/// The bytes that `work` leaves in use, and the most it had in use at a time, above those at its beginning.
fn measured<T>(work: impl FnOnce() -> T) -> (usize, usize, T) {
    let before = LIVE.load(Ordering::Relaxed);
    PEAK.store(before, Ordering::Relaxed);
    let made = work();
    let (after, peak) = (LIVE.load(Ordering::Relaxed), PEAK.load(Ordering::Relaxed));
    (after.saturating_sub(before), peak.saturating_sub(before), made)
}

fn report(name: &str, bytes: usize) {
    println!("{name}\t{bytes}");
}

fn main() {
    let runtime = runtime();
    let (_, peak, ()) = measured(|| runtime.block_on(first_answer()));
    report("first_start", peak);
    let (_, peak, ()) = measured(|| runtime.block_on(first_answer()));
    report("start", peak);

    let _guard = runtime.enter();
    let (_, _, server) = measured(ApiServer::start);
    let text = objects::running_pod("pod-0000000").to_string();
    report("pod_json", text.len());
    let count = 100_000;
    let names = (0..count).map(|at| format!("pod-{at:07}"));
    let (held, _, _) = measured(|| {
        server
            .load(names.map(|name| objects::running_pod(&name)))
            .expect("load")
    });
    report("stored_pod", held / count);

    let (_, peak, ()) = measured(|| {
        runtime.block_on(async {
            let request = get("/api/v1/namespaces/default/pods");
            let mut body = server.service().oneshot(request).await.expect("infallible").into_body();
            while let Some(frame) = body.frame().await {
                drop(frame);
            }
        });
    });
    report("list", peak);

    let (held, _, _fork) = measured(|| (server.snapshot(), server.fork()));
    report("snapshot_and_fork", held);

    let watch = |_| {
        runtime
            .block_on(server.service().oneshot(get("/api/v1/configmaps?watch=true")))
            .expect("infallible")
    };
    let (held, _, _watches) = measured(|| (0..1000).map(watch).collect::<Vec<http::Response<Body>>>());
    report("watch", held / 1000);
}
