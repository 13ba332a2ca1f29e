//! `seeded_hash!`: the keys of `HashMap`, which the standard library draws at random, made the same in every run.

use std::hash::{BuildHasher, RandomState};

/// Makes the order of `HashMap`s in this program the same in every run of [`explore`](crate::explore), and with it what
/// kube-runtime leaves to chance. It is written once, at the top of a test program:
///
/// ```standalone_crate
/// testkit::seeded_hash!();
/// ```
///
/// The standard library draws the keys of a thread's maps from the C library's `getrandom`, and asks the linker for it
/// in such a way that a function of the program's own takes its place; this macro is that function. It hands out
/// numbers that begin anew on each thread, and exploration, which notices, makes each run on a thread of its own. The
/// function needs one block of `unsafe`, in the program that uses the macro.
///
/// **What else changes.** Whatever in the program asks the C library for random numbers gets the same on each thread:
/// fit for tests, and for nothing else. Only Linux has it; elsewhere the macro does nothing.
#[macro_export]
macro_rules! seeded_hash {
    () => {
        #[cfg(target_os = "linux")]
        #[unsafe(no_mangle)]
        extern "C" fn getrandom(buffer: *mut u8, length: usize, _flags: u32) -> isize {
            ::std::thread_local! {
                static DRAWN: ::std::cell::Cell<u64> = const { ::std::cell::Cell::new(0) };
            }
            for at in 0..length {
                // SplitMix64. A thread that ends may have no counter any more: then it begins anew.
                let drawn = DRAWN
                    .try_with(|it| it.replace(it.get().wrapping_add(1)))
                    .unwrap_or_default();
                let mut mixed = drawn.wrapping_mul(0x9e37_79b9_7f4a_7c15);
                mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
                mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
                // SAFETY: the caller gives a buffer of this length, as the C library's function asks for.
                unsafe { buffer.add(at).write((mixed >> 56) as u8) };
            }
            length as isize
        }
    };
}

/// Whether two new threads draw the same keys.
pub(crate) fn is_on() -> bool {
    let drawn = || {
        let thread = std::thread::Builder::new().spawn(|| RandomState::new().hash_one(0_u8));
        thread.ok().and_then(|it| it.join().ok())
    };
    let first = drawn();
    first.is_some() && first == drawn()
}
