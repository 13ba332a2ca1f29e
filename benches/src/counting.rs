//! `Counting`: the system allocator with a counter of the bytes in use. Used in separate programs, because counting
//! slows down every allocation.

#![allow(
    unsafe_code,
    reason = "an allocator that counts is written with the unsafe trait GlobalAlloc"
)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Allocator that counts the bytes in use. Must be installed as the global allocator. Only one thread allocates, so
/// relaxed counters are sufficient.
#[derive(Debug)]
pub struct Counting;

static LIVE: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

// SAFETY: all calls are passed to the system allocator unchanged; this allocator only counts the bytes.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let live = LIVE.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        PEAK.fetch_max(live, Ordering::Relaxed);
        // SAFETY: the caller meets the requirements of the system allocator.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller meets the requirements of the system allocator.
        unsafe { System.dealloc(at, layout) }
    }
}

/// Returns the number of bytes that `work` leaves in use, and the maximum during `work`, both relative to the
/// beginning, and the result of `work`.
pub fn measured<T>(work: impl FnOnce() -> T) -> (usize, usize, T) {
    let before = LIVE.load(Ordering::Relaxed);
    PEAK.store(before, Ordering::Relaxed);
    let made = work();
    let (after, peak) = (LIVE.load(Ordering::Relaxed), PEAK.load(Ordering::Relaxed));
    (after.saturating_sub(before), peak.saturating_sub(before), made)
}
