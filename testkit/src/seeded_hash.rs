//! Seeds the random keys of hash maps, so that they are the same in each run.
//!
//! The standard library obtains the keys of a thread's maps from a function of the system. If a program defines a
//! symbol with the name of this function, the linker prefers it to the system's library; `system` defines the symbol
//! for Linux and Apple. (On Windows the function is found through import libraries, which std and other crates provide,
//! and linkers refuse a duplicate definition.) The maps of `ahash`, which kube-runtime uses, have a configurable
//! source. On the thread of a run, both return a sequence of numbers that is the same in each run; on all other threads
//! they are random.

#[cfg_attr(target_os = "linux", path = "seeded_hash/linux.rs")]
#[cfg_attr(target_vendor = "apple", path = "seeded_hash/apple.rs")]
#[cfg_attr(
    not(any(target_os = "linux", target_vendor = "apple")),
    path = "seeded_hash/other.rs"
)]
mod system;

use std::cell::Cell;
use std::hash::{BuildHasher, RandomState};
use std::mem::MaybeUninit;
use std::sync::Once;

/// Advice for programs in which the keys of the standard library's maps are random; `None` if the keys are seeded.
pub(crate) const REMEDY: Option<&str> = system::REMEDY;

thread_local! {
    /// Seed of the run on this thread plus the number of draws so far; `None` outside of runs.
    static DRAWN: Cell<Option<u64>> = const { Cell::new(None) };
}

/// Sets the source of `ahash`, once per process. This must precede the first `ahash` map, so clusters call this
/// function as well.
pub(crate) fn install() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let thread = std::thread::Builder::new().name("seeded hash".to_owned()).spawn(|| {
            seed_this_thread(0);
            // Fails if the program has already set a source; the order of such maps is then random.
            let _ = ahash::random_state::set_random_source(Source);
            // This draws the keys that all maps of the process share.
            std::hint::black_box(ahash::RandomState::new());
        });
        // If the thread cannot be started, the keys are random as well.
        let _ = thread.map(std::thread::JoinHandle::join);
    });
}

/// Restarts the sequence of numbers on this thread. It is the same each time for the same seed.
pub(crate) fn seed_this_thread(seed: u64) {
    DRAWN.set(Some(seed));
    system::link();
}

/// Fills `bytes` with the next numbers of the run. Returns `false` and does nothing outside of runs.
#[allow(dead_code, reason = "there is no function of the system to replace on some systems")]
fn fill(bytes: &mut [MaybeUninit<u8>]) -> bool {
    for chunk in bytes.chunks_mut(size_of::<u64>()) {
        let Some(number) = draw() else { return false };
        for (byte, drawn) in chunk.iter_mut().zip(number.to_le_bytes()) {
            byte.write(drawn);
        }
    }
    true
}

/// Returns the next number of the run; `None` outside of runs, and possibly at the end of a thread.
fn draw() -> Option<u64> {
    let drawn = DRAWN.try_with(Cell::get).ok()??;
    let _ = DRAWN.try_with(|it| it.set(Some(drawn.wrapping_add(1))));
    // SplitMix64
    let mut mixed = drawn.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    Some(mixed ^ (mixed >> 31))
}

/// Source of the keys of `ahash` maps.
struct Source;

impl ahash::random_state::RandomSource for Source {
    fn gen_hasher_seed(&self) -> usize {
        let seed = draw().unwrap_or_else(|| RandomState::new().hash_one(0_u8));
        // On 32 bits the upper half is not needed.
        seed as usize
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::thread;

    use super::{REMEDY, seed_this_thread};

    /// Returns the iteration order of a map that is created on a new thread.
    #[expect(
        clippy::disallowed_methods,
        reason = "the keys of another thread are read, without a runtime"
    )]
    fn order(is_seeded: bool) -> Vec<u32> {
        let keys = move || {
            if is_seeded {
                seed_this_thread(0);
            }
            HashMap::<u32, ()>::from_iter((0..100).map(|key| (key, ())))
                .into_keys()
                .collect()
        };
        thread::spawn(keys).join().expect("the thread does not panic")
    }

    #[test]
    fn std_maps_only_have_a_fixed_order_in_runs() {
        assert_eq!(order(true) == order(true), REMEDY.is_none());
        assert_ne!(order(false), order(false));
    }
}
